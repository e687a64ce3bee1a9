/*
 * Statistics (ext/core/statistics.h) of a tensor. As in shim.h nothing here runs Python, bumps a version, keeps a
 * tensor or throws; what runs on a device is seen by neither autograd, nor a dispatch mode, nor a RecordFunction
 * observer (the device's own profiler does see its kernels).
 */
#ifndef TGD_TENSOR_STATISTICS_H
#define TGD_TENSOR_STATISTICS_H

#include "shim.h"
#include "statistics.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Why a tensor's values were not looked at. */
typedef enum tgd_unchecked {
    TGD_CHECKED = 0,
    TGD_UNCHECKED_UNDEFINED, /* None */
    TGD_UNCHECKED_NESTED,
    TGD_UNCHECKED_META,
    TGD_UNCHECKED_WRAPPER,  /* functorch, fake, functional, DTensor: its data is in tensors that it holds */
    TGD_UNCHECKED_SUBCLASS, /* its __torch_dispatch__ says what its values are */
    TGD_UNCHECKED_SYMBOLIC, /* sizes are symbols */
    TGD_UNCHECKED_DTYPE,    /* integral, quantised, or a float of 4 bits or without sign */
    TGD_UNCHECKED_LAYOUT,   /* oneDNN's own */
    TGD_UNCHECKED_STORAGE,  /* none, or smaller than its shape */
    TGD_UNCHECKED_SHAPE,    /* more than 64 dimensions */
    TGD_UNCHECKED_DEVICE,   /* not on the CPU, or on a device that cannot do it */
    TGD_UNCHECKED_CAPTURE,  /* a CUDA graph is being captured on the stream */
    TGD_UNCHECKED_FAILED    /* torch raised (out of memory, ...) */
} tgd_unchecked;

/* "nested tensor"; for ever. */
const char *tgd_torch_unchecked_name(tgd_unchecked why);

/*
 * Of a tensor on the CPU, at once. *out is written only for TGD_CHECKED. A million elements and more are shared out
 * among torch's threads. Allocates nothing. Any thread. 0.2 us for 256 float32.
 *
 * Sparse: the stored values, and as many zeros as there are places without one. Of an uncoalesced tensor each stored
 * value counts by itself.
 */
tgd_unchecked tgd_torch_statistics(const tgd_torch_tensor *tensor, tgd_statistics *out);

/* Is an element NaN or infinite? Stops where one is found; one thread. */
tgd_unchecked tgd_torch_nonfinite(const tgd_torch_tensor *tensor, bool *out);

/* Does the storage hold every element? Of a strided tensor. */
bool tgd_torch_storage_fits(const tgd_torch_tensor_info *info);

/* ---- on a device ---- */

typedef struct tgd_later tgd_later;

/*
 * Queues the measurement of a tensor on its device's current stream, and waits for nothing: nine kernels and one copy
 * for each 16 million elements. Meanwhile it takes 8 bytes of device memory an element, at most 128 MiB (more where
 * rows that do not lie densely are longer than that). Complex and sparse tensors: not there.
 * on_cpu is for tests: let the CPU do it too.
 * @param[out] out  release with tgd_later_free(); untouched unless TGD_CHECKED
 */
tgd_unchecked tgd_torch_statistics_later(const tgd_torch_tensor *tensor, bool on_cpu, tgd_later **out);

/* 1: tgd_later_read would not wait. 0: not yet. -1: the device failed. */
int tgd_later_ready(const tgd_later *later);

/* Waits for the device where need be: not in backward. n_subnormal and absmin are 0, being unknown. */
tgd_unchecked tgd_later_read(const tgd_later *later, tgd_statistics *out);

void tgd_later_free(tgd_later *later);

#ifdef __cplusplus
}
#endif
#endif
