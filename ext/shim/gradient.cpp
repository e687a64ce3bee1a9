/* What a watch reads of parameters between steps: gradients and versions. */
#include "shim.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/variable.h>

#include "compat.h"
#include "gradient_lock.h"

using namespace tgd;

namespace
{

/* The numbers of a sparse tensor, held by the result; another tensor as it is. */
at::Tensor values_of(const at::Tensor &gradient)
{
    c10::TensorImpl *impl = gradient.unsafeGetTensorImpl();
    const c10::DispatchKeySet keys = impl->key_set();
    if (keys.has_any(c10::python_ks)) {
        return gradient;
    }
    if (keys.has_all(c10::sparse_ks)) {
        return static_cast<at::SparseTensorImpl *>(impl)->values();
    }
    if (keys.has_all(c10::sparse_csr_ks)) {
        return static_cast<at::SparseCsrTensorImpl *>(impl)->values();
    }
    return gradient;
}

} // namespace

extern "C" int tgd_torch_tensor_gradient(const tgd_torch_tensor *tensor, tgd_torch_gradient_visitor visit,
                                         void *context)
{
    int result = 0;
    (void)guarded(nullptr, [&] {
        const auto *meta = static_cast<const torch::autograd::AutogradMeta *>(impl_of(tensor)->autograd_meta());
        if (meta == nullptr) {
            return;
        }
        const auto lock = lock_gradient(impl_of(tensor));
        if (!lock || !meta->grad_.defined()) {
            return;
        }
        const at::Tensor held = values_of(meta->grad_);
        result = visit(context, handle(held.unsafeGetTensorImpl()));
    });
    return result;
}

extern "C" uint32_t tgd_torch_tensor_version(const tgd_torch_tensor *tensor)
{
    const c10::VariableVersion &version = impl_of(tensor)->version_counter();
    return version.enabled() ? version.current_version() : 0;
}
