#include "leaf_gradient.h"

#include <torch/csrc/autograd/variable.h>

#include "compat.h"
#include "gradient_lock.h"
#include "identity.h"
#include "private_fields.h"

namespace tgd
{
namespace
{

TGD_PRIVATE(accumulator_mutex, Node, mutex_)

int read(c10::TensorImpl *impl, tgd_torch_gradient *out)
{
    const torch::autograd::AutogradMeta *meta = autograd_of(impl);
    if (meta == nullptr || meta->grad_fn_ != nullptr) {
        return 0;
    }
    const auto lock = lock_gradient(impl);
    if (!lock) {
        return 0;
    }
    const at::Tensor &grad = meta->grad_;
    if (!grad.defined()) {
        return 0;
    }
    const c10::TensorImpl *of = grad.unsafeGetTensorImpl();
    if (of->has_storage()) {
        out->storage = reinterpret_cast<std::uintptr_t>(of->unsafe_storage().unsafeGetStorageImpl());
    }
    const torch::autograd::AutogradMeta *own = autograd_of(of);
    if (own != nullptr && own->grad_fn_ != nullptr) {
        out->has_graph = 1;
        out->thread = own->grad_fn_->thread_id();
        out->sequence_nr = own->grad_fn_->sequence_nr();
    }
    return 1;
}

} // namespace

std::optional<gradient_lock> lock_gradient(c10::TensorImpl *impl)
{
    const at::Tensor tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(impl));
    gradient_lock held{torch::autograd::impl::try_get_grad_accumulator(tensor), {}};
    if (held.owner) {
        held.lock = std::unique_lock<std::mutex>((*held.owner).*field(accumulator_mutex{}), std::try_to_lock);
        if (!held.lock.owns_lock()) {
            return std::nullopt;
        }
    }
    return held;
}

} // namespace tgd

extern "C" int tgd_torch_gradient_read(const tgd_torch_tensor *tensor, tgd_torch_gradient *out)
{
    int has = 0;
    *out = tgd_torch_gradient{};
    (void)tgd::guarded(nullptr, [&] { has = tgd::read(tgd::impl_of(tensor), out); });
    return has;
}
