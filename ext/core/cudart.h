/*
 * The CUDA runtime that this process already uses, found at run time, so that one build serves torch with and without
 * CUDA. The types are our own copies of the few that are needed, since a machine that builds this need not have the
 * CUDA Toolkit; where it has, cudart.c is checked against cuda_runtime_api.h while compiling. They have been the same
 * from CUDA 11 to 13 (cudaPointerAttributes grew at its end in 13: room is left).
 */
#ifndef TGD_CUDART_H
#define TGD_CUDART_H

#include "error.h"

enum { /* cudaError_t, where one is told from another */
    TGD_CUDA_SUCCESS = 0,
    TGD_CUDA_INVALID_VALUE = 1,
    TGD_CUDA_UNLOADING = 4,
    TGD_CUDA_NOT_READY = 600,
    TGD_CUDA_CAPTURED_EVENT = 907,
    TGD_CUDA_CAPTURE_FIRST = 900, /* cudaErrorStreamCaptureUnsupported */
    TGD_CUDA_CAPTURE_LAST = 908   /* cudaErrorStreamCaptureWrongThread */
};
enum { TGD_CUDA_CAPTURE_NONE = 0 };    /* cudaStreamCaptureStatus */
enum { TGD_CUDA_CAPTURE_RELAXED = 2 }; /* cudaStreamCaptureMode */
enum { TGD_CUDA_EVENT_DEFAULT = 0 };   /* timing on, waiting spins (nobody waits) */
enum { /* cudaMemoryType */
    TGD_CUDA_MEMORY_UNREGISTERED = 0,
    TGD_CUDA_MEMORY_HOST = 1,
    TGD_CUDA_MEMORY_DEVICE = 2,
    TGD_CUDA_MEMORY_MANAGED = 3
};

/* cudaPointerAttributes, with room for what later versions add. */
typedef struct tgd_cuda_pointer {
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[24];
} tgd_cuda_pointer;

/* cudaEvent_t and cudaStream_t are pointers. None of these waits for the device. */
typedef struct tgd_cudart {
    int (*get_device)(int *device);
    int (*set_device)(int device);
    int (*event_create)(void **event, unsigned flags);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_elapsed)(float *ms, void *from, void *to);
    int (*event_destroy)(void *event);
    int (*is_capturing)(void *stream, int *status);
    int (*exchange_capture_mode)(int *mode);
    int (*pointer_attributes)(tgd_cuda_pointer *out, const void *pointer);
    int (*get_last_error)(void);
    int (*peek_last_error)(void);
    const char *(*error_name)(int code);
    const char *(*error_string)(int code);
    /* The driver's cuDevicePrimaryCtxGetState; NULL while no driver is loaded. Look it up with tgd_cudart_active(). */
    int (*context_state)(int device, unsigned *flags, int *active);
} tgd_cudart;

/**
 * The runtime, in this order: the file that the environment variable TORCHGRAPHDBG_CUDART names (for tests); the one
 * that torch's CUDA libraries are linked to; any libcudart that is mapped, whatever its path; libcudart.so.13, .12 or
 * .11.0 by the system's rules, if torch's CUDA libraries are loaded. The last is where a torch that was linked to
 * libcudart_static ends: its runtime keeps its symbols to itself, and a second one shares the contexts, the streams and
 * the events with it, being a layer over the same driver (only the "last error" is each one's own).
 * Makes no call of CUDA's: those would start the driver, and a process that forks later could not use it.
 * Once found it stays. Any thread.
 * @return TGD_OK, TGD_EINVAL (the environment variable), TGD_ETORCH (there is none)
 */
tgd_status tgd_cudart_find(const tgd_cudart **out, tgd_error *err);

/* Is there a context on the device already, so that a call does not make one (some hundred megabytes)? */
int tgd_cudart_active(const tgd_cudart *cudart, int device);

#endif
