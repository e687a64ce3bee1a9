/* Reading a leaf's .grad while backwards run in other threads. */
#ifndef TGD_GRADIENT_LOCK_H
#define TGD_GRADIENT_LOCK_H

#include <mutex>
#include <optional>
#include <utility>

#include <torch/csrc/autograd/variable.h>

namespace tgd
{

struct gradient_lock {
    decltype(torch::autograd::impl::try_get_grad_accumulator(std::declval<const at::Tensor &>())) owner;
    std::unique_lock<std::mutex> lock; /* the owner's; released before it */
};

/* AccumulateGrad writes .grad under its own mutex and without the GIL; everybody else holds the GIL, which the caller
   must hold too. No value: a backward is writing it now. Never waits. */
std::optional<gradient_lock> lock_gradient(c10::TensorImpl *impl);

} // namespace tgd

#endif
