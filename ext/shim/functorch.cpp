#include "functorch.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <torch/csrc/autograd/variable.h>

#include "compat.h"

using namespace tgd;

namespace
{

constexpr int most_levels = 64; /* transforms within one another */

} // namespace

extern "C" int tgd_torch_wraps_grad(const tgd_torch_tensor *tensor)
{
    const c10::TensorImpl *impl = impl_of(tensor);
    for (int level = 0; level < most_levels && impl->key_set().has(c10::DispatchKey::FuncTorchBatched); level++) {
        impl = static_cast<const at::functorch::BatchedTensorImpl *>(impl)->value().unsafeGetTensorImpl();
        const auto *meta = static_cast<const torch::autograd::AutogradMeta *>(impl->autograd_meta());
        if (meta != nullptr && (meta->grad_fn_ != nullptr || meta->requires_grad_)) {
            return 1;
        }
    }
    return 0;
}
