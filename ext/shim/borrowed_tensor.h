/* A TensorImpl that somebody else holds, as the at::Tensor that torch's functions take. */
#ifndef TGD_BORROWED_TENSOR_H
#define TGD_BORROWED_TENSOR_H

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>

namespace tgd
{

/* Holds no reference of its own. */
class borrowed_tensor
{
public:
    explicit borrowed_tensor(c10::TensorImpl *impl)
        : tensor_(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(impl))
    {
    }
    ~borrowed_tensor()
    {
        tensor_.unsafeReleaseTensorImpl();
    }
    borrowed_tensor(const borrowed_tensor &) = delete;
    borrowed_tensor &operator=(const borrowed_tensor &) = delete;
    const at::Tensor &get() const
    {
        return tensor_;
    }

private:
    at::Tensor tensor_;
};

} // namespace tgd

#endif
