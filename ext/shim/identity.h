/*
 * What a tensor is known by while a recorder is on. One made by a node: by (thread, sequence_nr, output_nr), which never
 * comes again. A leaf, or what lies below a cut: by a number kept inside the tensor itself, as its BackendMeta, which
 * dies with the tensor and is not copied with it, so that no address can be mistaken for another. Tensors that own a
 * BackendMeta are left alone.
 */
#ifndef TGD_IDENTITY_H
#define TGD_IDENTITY_H

#include <ATen/core/ivalue.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <torch/csrc/autograd/variable.h>

#include "record.h"

namespace tgd
{

inline const torch::autograd::AutogradMeta *autograd_of(const c10::TensorImpl *impl)
{
    return static_cast<const torch::autograd::AutogradMeta *>(const_cast<c10::TensorImpl *>(impl)->autograd_meta());
}

/* The number a tensor bears; with `make`, one is given where there is none and no other BackendMeta is in the way. */
tgd_identity marked(c10::TensorImpl *impl, bool make);

/* 0 for a tensor that carries no grad and comes from none. */
tgd_identity identity_of(c10::TensorImpl *impl, bool *carries_grad);

/* Calls visit(TensorImpl *) for the tensors in a value. */
template <class Visit> void each_tensor(const c10::IValue &value, Visit &&visit)
{
    if (value.isTensor()) {
        c10::TensorImpl *impl = value.unsafeToTensorImpl();
        if (impl != nullptr && impl != static_cast<c10::TensorImpl *>(c10::UndefinedTensorImpl::singleton())) {
            visit(impl);
        }
    } else if (value.isTensorList()) {
        for (const c10::IValue &item : value.toListRef()) {
            each_tensor(item, visit);
        }
    } else if (value.isList()) {
        for (const c10::IValue &item : value.toListRef()) {
            if (!item.isTensor()) {
                break;
            }
            each_tensor(item, visit);
        }
    }
}

} // namespace tgd

#endif
