#include "identity.h"

#include <atomic>
#include <typeinfo>

#include "compat.h"
#include "rows.h"

namespace tgd
{
namespace
{

class mark final : public c10::BackendMeta
{
public:
    explicit mark(tgd_identity number) : number_(number)
    {
    }
    /* A copy is another tensor. */
    c10::intrusive_ptr<c10::BackendMeta> clone(const c10::intrusive_ptr<c10::BackendMeta> &) const override
    {
        return {};
    }
    tgd_identity number_;
};

std::atomic<tgd_identity> next_identity{1};

} // namespace

tgd_identity marked(c10::TensorImpl *impl, bool make)
{
    c10::BackendMeta *meta = impl->get_backend_meta();
    if (meta != nullptr) {
        return typeid(*meta) == typeid(mark) ? static_cast<mark *>(meta)->number_ : 0;
    }
    if (!make) {
        return 0;
    }
    tgd_identity number = next_identity.fetch_add(1, std::memory_order_relaxed);
    impl->set_backend_meta(c10::make_intrusive<mark>(number));
    return number;
}

tgd_identity identity_of(c10::TensorImpl *impl, bool *carries_grad)
{
    const torch::autograd::AutogradMeta *meta = autograd_of(impl);
    if (meta != nullptr && meta->grad_fn_ != nullptr) {
        *carries_grad = true;
        return tgd_identity_of_output(meta->grad_fn_->thread_id(), meta->grad_fn_->sequence_nr(), meta->output_nr_);
    }
    *carries_grad = meta != nullptr && meta->requires_grad_;
    return marked(impl, *carries_grad);
}

} // namespace tgd

using namespace tgd;

extern "C" tgd_identity tgd_torch_identity(const tgd_torch_tensor *tensor)
{
    tgd_identity id = 0;
    quietly([&] {
        bool grad = false;
        c10::TensorImpl *impl = impl_of(tensor);
        const torch::autograd::AutogradMeta *meta = autograd_of(impl);
        id = meta != nullptr && meta->grad_fn_ != nullptr ? identity_of(impl, &grad) : marked(impl, false);
    });
    return id;
}
