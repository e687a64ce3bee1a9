/*
 * Are the numbers of a tensor finite? Reads memory of the CPU as it lies there: no op of torch, no copy, and nothing
 * of a tensor whose memory is elsewhere or is not what its sizes say.
 */
#ifndef TGD_FINITE_H
#define TGD_FINITE_H

#include "shim.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tgd_finite {
    TGD_FINITE = 0,
    TGD_NOT_FINITE,
    TGD_FINITE_UNCHECKED /* another device, a wrapper, integers, a layout without strides */
} tgd_finite;

/* Can this tensor be looked at at all? */
bool tgd_finite_readable(const tgd_torch_tensor_info *tensor);

/**
 * One look. Up to 4,096 elements are all read. Of more: the first slice of the outermost dimension, the head
 * of every other one, and one sixteenth of the rest, another one for each `turn`. What comes out of a matrix product or a convolution bears a
 * NaN from upstream in a whole row or a whole column; an element that overflowed by itself is met within 16 turns.
 * The tensor must stay alive and nobody resize it meanwhile; a write that is under way is harmless.
 */
tgd_finite tgd_finite_look(const tgd_torch_tensor_info *tensor, unsigned turn);

/* Every element; one that is shown many times (stride 0) counts as often. A complex number is NaN if a part is.
   Only for what is readable. */
void tgd_finite_count(const tgd_torch_tensor_info *tensor, int64_t *n_nan, int64_t *n_inf);

#ifdef __cplusplus
}
#endif
#endif
