/*
 * When and for how long the nodes of a backward ran on their device: two events around each, in the node's own stream,
 * read after they have run. Nothing here ever waits for a device.
 *
 * A span costs two event records, two looks whether the stream is being captured, two whether the device is the current
 * one; one short lock at its begin, none at its end, no allocation once the pool has been used; and at most two queries
 * while the newest reference event (one a second) has not run. Our own part of it, measured over a CUDA runtime that
 * does nothing, is about 0.3 us a span.
 *
 * Any thread may begin and end spans and collect, without the GIL. In a forked child every call does nothing. Nothing
 * is called at exit: a clock that is never closed costs nothing then.
 */
#ifndef TGD_DEVICE_CLOCK_H
#define TGD_DEVICE_CLOCK_H

#include "device_events.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tgd_device_clock tgd_device_clock;

/* A span that has begun; 0 = none (not timed). */
typedef uint64_t tgd_span_token;

/* Nanoseconds on the axis of tgd_clock_now(). The device's times are the earliest possible ones: what they show truly
   happened up to `uncertainty` later, and never before the host asked for it. Durations on the device do not suffer
   from it (about 1 us). device_begin - host_begin is how long the work waited in the queue. */
typedef struct tgd_device_span {
    uint64_t key;                      /* the caller's */
    uint64_t number;                   /* counts the spans that began, over all devices */
    uint64_t stream;
    int device;
    uint64_t host_begin, host_end;     /* just before the first event was asked for, just after the last one was */
    uint64_t device_begin, device_end; /* when they ran */
    uint64_t uncertainty;
} tgd_device_span;

typedef struct tgd_device_clock_counts {
    uint64_t timed;    /* delivered */
    uint64_t captured; /* not timed: the stream was being captured into a graph */
    uint64_t dropped;  /* not timed: no room (nobody collected), or an end that could not be recorded */
    uint64_t aside;    /* not timed: an error of the program's own was pending, or a context would have been made */
    uint64_t errors;   /* calls that failed */
} tgd_device_clock_counts;

/**
 * A clock over these events. Makes no call to the device.
 * @param[out] out   release with tgd_device_clock_close()
 * @param events     borrowed until then
 * @param max_spans  spans of one device that may be under way or uncollected, 1 to 2^20; 0: 16,384 (2 MB)
 * @return TGD_OK, TGD_EINVAL, TGD_ENOMEM
 */
tgd_status tgd_device_clock_open(tgd_device_clock **out, const tgd_device_events *events, uint32_t max_spans,
                                 tgd_error *err);

/* Around what is put into the stream. The end may come from another thread, once. Never fails: what cannot be timed is
   counted, and the first call that fails switches the clock off. */
tgd_span_token tgd_device_span_begin(tgd_device_clock *clock, int device, uint64_t stream, uint64_t key);
void tgd_device_span_end(tgd_device_clock *clock, tgd_span_token token);

/* Delivers the spans whose events have run, of each device in the order in which they began; the others stay for later.
   The span is borrowed for the visit, which must not call back into the clock but may begin and end spans.
   Returns how many are still under way on host or device. */
size_t tgd_device_clock_collect(tgd_device_clock *clock, void (*visit)(void *context, const tgd_device_span *span),
                                void *context);

tgd_device_clock_counts tgd_device_clock_count(const tgd_device_clock *clock);

/* Why the clock switched itself off, one line for the user; NULL while it is on. Borrowed until the clock is closed. */
const char *tgd_device_clock_trouble(const tgd_device_clock *clock);

/* Gives all events back, whether they have run or not. No other call may be under way or follow. Accepts NULL. */
void tgd_device_clock_close(tgd_device_clock *clock);

#ifdef __cplusplus
}
#endif
#endif
