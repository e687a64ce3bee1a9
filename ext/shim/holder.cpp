#include "holder.h"

#include <vector>

#include <torch/csrc/autograd/variable.h>

#include "compat.h"
#include "identity.h"

struct tgd_torch_holder {
    std::vector<decltype(torch::autograd::AutogradMeta::grad_fn_)> nodes;
};

extern "C" tgd_torch_holder *tgd_torch_holder_new(void)
{
    return new (std::nothrow) tgd_torch_holder();
}

extern "C" const tgd_torch_node *tgd_torch_hold_grad_fn(tgd_torch_holder *holder, const tgd_torch_tensor *tensor,
                                                        uint32_t *output_nr)
{
    const tgd_torch_node *held = nullptr;
    (void)tgd::guarded(nullptr, [&] {
        const torch::autograd::AutogradMeta *meta = tgd::autograd_of(tgd::impl_of(tensor));
        if (meta != nullptr && meta->grad_fn_ != nullptr) {
            holder->nodes.push_back(meta->grad_fn_);
            *output_nr = meta->output_nr_;
            held = tgd::handle(holder->nodes.back().get());
        }
    });
    return held;
}

extern "C" void tgd_torch_holder_free(tgd_torch_holder *holder)
{
    delete holder;
}
