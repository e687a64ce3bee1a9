/*
 * The spans of one device: a bounded pool of pairs of events, used again and again, and the list of those under way in
 * the order in which they began. A span belongs to the thread that begins or ends it while it does so, then to who
 * collects; its phase says which. The lock guards the lists alone and is held for some ten nanoseconds, except while a
 * reference is recorded (device_clock.c).
 */
#ifndef TGD_DEVICE_POOL_H
#define TGD_DEVICE_POOL_H

#include "device_axis.h"
#include "device_events.h"

#include <pthread.h>
#include <stdatomic.h>

enum { TGD_REFERENCES = 64 };
#define TGD_NEVER UINT64_MAX

/* An event from which others are measured, and where it stands on the host's axis. */
typedef struct tgd_reference {
    void *event;                                 /* Owned; NULL until first used */
    tgd_axis axis;                               /* the collector's */
    atomic_uint_least64_t not_before, not_after; /* host ns of looks at it: had not run yet; had run, 0 = not seen,
                                                    TGD_NEVER = went into a graph */
    uint64_t asked; /* host ns; under the lock */
    uint32_t spans; /* that are measured from it; under the lock */
} tgd_reference;

typedef struct tgd_span {
    void *begin, *end; /* Owned events; NULL until first used */
    uint64_t key, number, stream;
    uint64_t host_begin, host_end;
    uint64_t not_before;      /* host ns: the end event had not run yet */
    int64_t distance, length; /* device ns: from the reference to begin, from begin to end */
    atomic_uint_least32_t word; /* times it was used, and its phase (device_pool.c) */
    uint32_t reference;         /* index */
    uint32_t previous, next;    /* in the list under way; next also in the list of free ones. Under the lock */
} tgd_span;

typedef struct tgd_device_pool {
    pthread_mutex_t lock;
    tgd_span *spans; /* Owned */
    uint32_t *order; /* Owned: room for the collector's list */
    uint32_t capacity, used; /* spans; those ever taken */
    uint32_t free, first, last;
    uint32_t reference; /* the newest, TGD_NONE = none yet */
    tgd_reference references[TGD_REFERENCES];
    atomic_bool looking; /* a thread is asking whether a reference has run */
} tgd_device_pool;

/* NULL when out of memory. Touches no page of the spans. */
tgd_device_pool *tgd_device_pool_new(uint32_t capacity);

/* Destroys its events (events NULL: leaves them to the driver), and frees it. Accepts NULL. */
void tgd_device_pool_free(tgd_device_pool *pool, const tgd_device_events *events, int device);

/* Under the lock: a reference that serves no span, TGD_NONE where all do. */
uint32_t tgd_device_pool_idle_reference(const tgd_device_pool *pool);

/* Under the lock: a span put at the end of the list, measured from the newest reference; NULL where none is free. */
tgd_span *tgd_device_pool_take(tgd_device_pool *pool);

/* The span has begun: its token, 56 bits, never 0. */
uint64_t tgd_device_pool_open(tgd_device_pool *pool, tgd_span *span);

/* The begun span of a token, now ending; NULL for a token that was ended before or never given. */
tgd_span *tgd_device_pool_ending(tgd_device_pool *pool, uint64_t token);

/* The span has ended: the collector's from now on. */
void tgd_device_pool_close(tgd_span *span);
bool tgd_device_pool_ended(tgd_span *span);

/* Back into the pool; its events can be recorded again, also where they have not run. */
void tgd_device_pool_abandon(tgd_device_pool *pool, tgd_span *span);
void tgd_device_pool_recycle(tgd_device_pool *pool, const uint32_t *indices, size_t n);

/* Writes the list into pool->order; how many. */
size_t tgd_device_pool_list(tgd_device_pool *pool);

#endif
