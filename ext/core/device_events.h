/*
 * Timing events of an accelerator, as device_clock.c uses them: CUDA's own (cuda_events.h), or those of any other
 * device that torch drives (ext/shim/generic_events.h). None of these calls waits for the device, takes the GIL or
 * throws; any thread may make them, one event is used by one thread at a time.
 */
#ifndef TGD_DEVICE_EVENTS_H
#define TGD_DEVICE_EVENTS_H

#include "error.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tgd_events_status {
    TGD_EVENTS_OK = 0,
    TGD_EVENTS_PENDING,   /* has not run yet */
    TGD_EVENTS_CAPTURING, /* the stream is being captured into a graph: nothing was recorded. Of a read: the capture
                             began just then, so that the event went into the graph and will never run */
    TGD_EVENTS_ASIDE,     /* not tried: the program would have noticed. Later it may be possible */
    TGD_EVENTS_FAILED,    /* refused; err says why, and the program does not see the error */
    TGD_EVENTS_LOST       /* the device or its driver is gone for this process; err says why. Make no more calls */
} tgd_events_status;

typedef struct tgd_device_events {
    const char *name;   /* of the kind of device, as torch writes it: "cuda" */
    bool native_stream; /* `stream` below is the driver's handle (cudaStream_t), else torch's number of the stream */
    const void *self;   /* Borrowed for ever; the first argument of each */

    /* Puts the event into the stream; *event NULL: makes one first (owned by the caller, also when the rest fails). */
    tgd_events_status (*record)(const void *self, int device, uint64_t stream, void **event, tgd_error *err);
    /* Has it run? */
    tgd_events_status (*query)(const void *self, int device, void *event, tgd_error *err);
    /* Device nanoseconds from one event to another of the same device; both have run. May be negative. */
    tgd_events_status (*elapsed)(const void *self, int device, void *from, void *to, int64_t *ns, tgd_error *err);
    /* Gives an event back; it need not have run. Accepts NULL. */
    void (*destroy)(const void *self, int device, void *event);
} tgd_device_events;

#ifdef __cplusplus
}
#endif
#endif
