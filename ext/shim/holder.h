/* Keeps the grad_fn of tensors alive while a graph is walked that other threads may change meanwhile. */
#ifndef TGD_HOLDER_H
#define TGD_HOLDER_H

#include "shim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tgd_torch_holder tgd_torch_holder;

/* NULL where there is no memory. */
tgd_torch_holder *tgd_torch_holder_new(void);
/* Was the tensor made by a node? Then the node as it stands, never made anew, alive as long as the holder; and which
   output of it. GIL held. NULL for a leaf, or where there is no memory. */
const tgd_torch_node *tgd_torch_hold_grad_fn(tgd_torch_holder *holder, const tgd_torch_tensor *tensor,
                                             uint32_t *output_nr);
/* GIL held: a node may be Python's. Accepts NULL. */
void tgd_torch_holder_free(tgd_torch_holder *holder);

#ifdef __cplusplus
}
#endif
#endif
