/* The .grad of a leaf, without touching it. */
#ifndef TGD_LEAF_GRADIENT_H
#define TGD_LEAF_GRADIENT_H

#include "shim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tgd_torch_gradient {
    uint64_t storage;             /* address of the StorageImpl; 0: no gradient, or one without storage */
    uint64_t thread, sequence_nr; /* of its grad_fn, with has_graph */
    int has_graph;                /* it has a grad_fn */
} tgd_torch_gradient;

/* GIL held. 0 where the tensor has no .grad, or a backward on another thread is writing it this moment. */
int tgd_torch_gradient_read(const tgd_torch_tensor *tensor, tgd_torch_gradient *out);

#ifdef __cplusplus
}
#endif
#endif
