/* Tensors that a functorch transform made. */
#ifndef TGD_FUNCTORCH_H
#define TGD_FUNCTORCH_H

#include "shim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is there a tensor that carries grad inside this wrapper of vmap's? The wrapper itself has no grad_fn then, and what
   comes out of vmap has one. (The wrapper of grad and jvp has no header that can be included.) Reads fields only. */
int tgd_torch_wraps_grad(const tgd_torch_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
