/*
 * CUDA's events as device_clock.c uses them, and what CUDA knows of a pointer.
 *
 * The program must not notice our calls, and CUDA has one "last error" per thread that any call may set:
 * - While an error of the program's own stands there, no call is made: ours could replace it before the program looks.
 * - An error that one of our calls then leaves is ours, and is taken away again.
 * - One that says the context is lost is not: it belongs to work that the program launched, CUDA returns it from every
 *   later call, and it is left for the program.
 * An event is made and recorded with its device as the thread's current one, which is changed only if both devices have
 * contexts, since cudaSetDevice() would make one, and put back. Nothing is called while the current device has none:
 * any call would make one.
 * Looking at an event would break a graph capture that another thread has under way in the global mode: the thread's
 * capture mode is relaxed around it.
 */
#ifndef TGD_CUDA_EVENTS_H
#define TGD_CUDA_EVENTS_H

#include "device_events.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Borrowed for ever. `stream` is a cudaStream_t. TGD_ETORCH where this process has no CUDA. */
tgd_status tgd_cuda_events(const tgd_device_events **out, tgd_error *err);

typedef enum tgd_pointer_state {
    TGD_POINTER_OK = 0,
    TGD_POINTER_UNKNOWN,      /* freed, or never memory that this device can reach */
    TGD_POINTER_OTHER_DEVICE, /* on another device */
    TGD_POINTER_UNCHECKED     /* CUDA could not be asked, or not without the program noticing */
} tgd_pointer_state;

/* What CUDA says of a tensor's data pointer on this device. Does not wait. torch's caching allocator keeps the blocks
   it takes back: a pointer into one that was freed to it is TGD_POINTER_OK. NULL (a tensor without elements) is
   TGD_POINTER_UNCHECKED. */
tgd_pointer_state tgd_device_pointer_state(const void *pointer, int device);

#ifdef __cplusplus
}
#endif
#endif
