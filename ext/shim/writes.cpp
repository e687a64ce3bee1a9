#include "writes.h"

#include <algorithm>

#include <c10/core/GradMode.h>

#include "compat.h"
#include "identity.h"
#include "private_fields.h"

namespace tgd
{
namespace
{

TGD_PRIVATE(observed_version, c10::VariableVersion, version_counter_)

void span_of(const c10::TensorImpl *impl, std::int64_t *first, std::int64_t *end)
{
    *first = *end = 0;
    if (!impl->has_storage() || impl->has_symbolic_sizes_strides() || impl->is_python_dispatch()) {
        return;
    }
    c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
    std::int64_t last = impl->storage_offset();
    for (std::size_t i = 0; i < sizes.size(); i++) {
        if (sizes[i] == 0) {
            return;
        }
        last += (sizes[i] - 1) * strides[i];
    }
    auto itemsize = static_cast<std::int64_t>(impl->itemsize());
    *first = impl->storage_offset() * itemsize;
    *end = (last + 1) * itemsize;
}

} // namespace

bool is_refused(const c10::TensorImpl *impl)
{
    const auto *meta = static_cast<const torch::autograd::AutogradMeta *>(impl->autograd_meta());
    if (meta == nullptr || !c10::GradMode::is_enabled()) {
        return false;
    }
    if (meta->is_view_) {
        const auto *view = static_cast<const torch::autograd::DifferentiableViewMeta *>(meta);
        if (view->has_bw_view()) {
            const at::Tensor &base = view->get_backward_view().base_;
            return view->get_creation_meta() != torch::autograd::CreationMeta::DEFAULT ||
                   (base.defined() && base.requires_grad() && base.is_leaf());
        }
    }
    return meta->grad_fn_ == nullptr && meta->requires_grad_;
}

void note_write(thread_state &t, c10::TensorImpl *impl, std::uint32_t argument)
{
    if (impl->is_inference() || t.writes.size() >= 4096) {
        return;
    }
    tgd_write_row row{};
    row.sequence_nr = t.op.sequence_nr;
    row.thread = t.op.thread;
    row.name = t.op.name;
    row.place = t.op.place;
    row.inside = t.op.inside;
    row.flags = t.op.flags | flag_if(t.backward > 0, TGD_OP_IN_BACKWARD);
    row.tensor = reinterpret_cast<std::uintptr_t>(impl);
    row.version_counter = reinterpret_cast<std::uintptr_t>((impl->version_counter().*field(observed_version{})).get());
    row.version = impl->version_counter().current_version();
    row.argument = argument;
    if (impl->has_storage()) {
        row.storage = reinterpret_cast<std::uintptr_t>(impl->unsafe_storage().unsafeGetStorageImpl());
    }
    span_of(impl, &row.first_byte, &row.end_byte);
    row.dense = row.end_byte > row.first_byte && !impl->has_symbolic_sizes_strides() &&
                row.end_byte - row.first_byte ==
                    static_cast<std::int64_t>(impl->itemsize()) * c10::multiply_integers(impl->sizes());
    const torch::autograd::AutogradMeta *meta = autograd_of(impl);
    if (meta != nullptr && meta->grad_fn_ != nullptr) {
        row.identity = tgd_identity_of_output(meta->grad_fn_->thread_id(), meta->grad_fn_->sequence_nr(),
                                              meta->output_nr_);
    }
    row.view = meta != nullptr && meta->is_view_;
    row.leaf = meta == nullptr || meta->grad_fn_ == nullptr;
    t.writes.push_back(row);
    t.written.push_back(impl);
}

void end_writes(thread_state &t, bool threw)
{
    if (t.writes.empty()) {
        return;
    }
    {
        std::lock_guard<std::mutex> lock(t.log->mutex);
        t.log->make_room();
        const std::uint64_t ended = tick();
        for (tgd_write_row &row : t.writes) {
            row.time = t.op.time;
            row.ended = ended;
            row.place = t.op.place;
            row.flags |= flag_if(threw, TGD_OP_THREW);
            t.log->now.writes.push_back(row);
        }
    }
    const tgd_observer *observer = active.load(std::memory_order_acquire);
    if (threw && observer != nullptr && observer->refused != nullptr) {
        auto culprit = std::find_if(t.written.begin(), t.written.end(), is_refused);
        if (culprit == t.written.end()) {
            return; /* it failed for another reason */
        }
        tgd_write_row row = t.writes[static_cast<std::size_t>(culprit - t.written.begin())];
        c10::TensorImpl *impl = *culprit;
        t.writes.clear();
        t.written.clear();
        observer->refused(observer->context, handle(impl), &row);
    }
}

} // namespace tgd
