#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* pthread_atfork */
#endif

#include "device_clock.h"
#include "clock.h"
#include "device_axis.h"
#include "device_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 128, DEFAULT_SPANS = 16384, MOST_SPANS = 1 << 20, BLOCKED = 8, REFERENCE_AGE = 1000000000 };

struct tgd_device_clock {
    const tgd_device_events *events; /* Borrowed */
    uint32_t max_spans;
    unsigned forks;                         /* of the process, when the clock was opened */
    _Atomic(tgd_device_pool *) devices[DEVICES]; /* Owned; NULL until first used */
    pthread_mutex_t collecting;
    atomic_bool off, lost; /* no new spans; no call at all */
    atomic_uint_least64_t number, timed, captured, dropped, aside, errors;
    atomic_int trouble_state; /* 0 none, 1 being written, 2 written */
    char trouble[640];
};

/* ---- forks ---- */

static atomic_uint forks;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void in_child(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

/* The parent's driver is of no use in a child, and locks may have been held at the fork. */
static bool forked(const tgd_device_clock *clock)
{
    return atomic_load_explicit(&forks, memory_order_relaxed) != clock->forks;
}

/* ---- what goes wrong ---- */

static void count(atomic_uint_least64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static void note(tgd_device_clock *clock, tgd_events_status status, const tgd_error *err)
{
    if (status == TGD_EVENTS_CAPTURING) {
        count(&clock->captured);
    } else if (status == TGD_EVENTS_ASIDE) {
        count(&clock->aside);
    } else if (status == TGD_EVENTS_FAILED || status == TGD_EVENTS_LOST) {
        count(&clock->errors);
        if (status == TGD_EVENTS_LOST) {
            atomic_store(&clock->lost, true);
        }
        atomic_store(&clock->off, true);
        int none = 0;
        if (atomic_compare_exchange_strong(&clock->trouble_state, &none, 1)) {
            snprintf(clock->trouble, sizeof clock->trouble,
                     "the times of %s nodes are not recorded any more: %s; the program itself is not affected",
                     clock->events->name, err->message);
            atomic_store(&clock->trouble_state, 2);
        }
    }
}

const char *tgd_device_clock_trouble(const tgd_device_clock *clock)
{
    return atomic_load(&clock->trouble_state) == 2 ? clock->trouble : NULL;
}

tgd_device_clock_counts tgd_device_clock_count(const tgd_device_clock *clock)
{
    return (tgd_device_clock_counts){.timed = atomic_load(&clock->timed),
                                     .captured = atomic_load(&clock->captured),
                                     .dropped = atomic_load(&clock->dropped),
                                     .aside = atomic_load(&clock->aside),
                                     .errors = atomic_load(&clock->errors)};
}

/* ---- open and close ---- */

tgd_status tgd_device_clock_open(tgd_device_clock **out, const tgd_device_events *events, uint32_t max_spans,
                                 tgd_error *err)
{
    if (max_spans > MOST_SPANS) {
        return tgd_fail(err, TGD_EINVAL, "max_spans is %u, the most is %d", max_spans, MOST_SPANS);
    }
    tgd_device_clock *clock = calloc(1, sizeof *clock);
    if (clock == NULL) {
        return tgd_fail_memory(err);
    }
    if (pthread_mutex_init(&clock->collecting, NULL) != 0) {
        free(clock);
        return tgd_fail_memory(err);
    }
    pthread_once(&fork_once, watch_forks);
    clock->events = events;
    clock->max_spans = max_spans != 0 ? max_spans : DEFAULT_SPANS;
    clock->forks = atomic_load(&forks);
    *out = clock;
    return TGD_OK;
}

void tgd_device_clock_close(tgd_device_clock *clock)
{
    if (clock == NULL) {
        return;
    }
    bool destroy = !forked(clock) && !atomic_load(&clock->lost);
    for (int i = 0; i < DEVICES; i++) {
        tgd_device_pool_free(atomic_load(&clock->devices[i]), destroy ? clock->events : NULL, i);
    }
    if (!forked(clock)) {
        pthread_mutex_destroy(&clock->collecting);
    }
    free(clock);
}

/* The device's pool, made on first use; NULL when out of memory. */
static tgd_device_pool *pool_of(tgd_device_clock *clock, int device)
{
    tgd_device_pool *pool = atomic_load_explicit(&clock->devices[device], memory_order_acquire);
    if (pool == NULL) {
        tgd_device_pool *made = tgd_device_pool_new(clock->max_spans);
        if (made == NULL || atomic_compare_exchange_strong(&clock->devices[device], &pool, made)) {
            return made;
        }
        tgd_device_pool_free(made, NULL, device); /* another thread was first */
    }
    return pool;
}

/* ---- recording ---- */

/* Looks whether the span's reference has run, so that its time is known closely on the host. One thread at a time. */
static void look_at_reference(tgd_device_clock *clock, tgd_device_pool *pool, int device, tgd_reference *reference)
{
    if (atomic_load_explicit(&reference->not_after, memory_order_relaxed) != 0 ||
        atomic_exchange_explicit(&pool->looking, true, memory_order_acquire)) {
        return;
    }
    if (atomic_load_explicit(&reference->not_after, memory_order_acquire) == 0) {
        tgd_error err;
        uint64_t asked = tgd_clock_now();
        tgd_events_status status = clock->events->query(clock->events->self, device, reference->event, &err);
        if (status == TGD_EVENTS_OK) {
            atomic_store_explicit(&reference->not_after, tgd_clock_now(), memory_order_release);
        } else if (status == TGD_EVENTS_PENDING) {
            atomic_store_explicit(&reference->not_before, asked, memory_order_relaxed);
        } else if (status == TGD_EVENTS_CAPTURING) {
            atomic_store_explicit(&reference->not_after, TGD_NEVER, memory_order_release);
            pthread_mutex_lock(&pool->lock);
            reference->asked = 0; /* the next span asks for a new one */
            pthread_mutex_unlock(&pool->lock);
        } else if (status != TGD_EVENTS_ASIDE) {
            note(clock, status, &err);
        }
    }
    atomic_store_explicit(&pool->looking, false, memory_order_release);
}

/* A new reference if the newest one is old, recorded under the pool's lock: once a second, and it waits for nobody
   but the driver. What came of it; on TGD_EVENTS_OK pool->reference is one to measure from. */
static tgd_events_status refresh_reference(tgd_device_clock *clock, tgd_device_pool *pool, int device, uint64_t stream,
                                           tgd_error *err)
{
    uint64_t now = tgd_clock_now();
    bool have = pool->reference != TGD_NONE;
    if (have && now - pool->references[pool->reference].asked < REFERENCE_AGE) {
        return TGD_EVENTS_OK;
    }
    uint32_t i = tgd_device_pool_idle_reference(pool);
    if (i == TGD_NONE) {
        return TGD_EVENTS_OK; /* all still serve spans: go on with the newest, at a wider uncertainty */
    }
    tgd_reference *reference = &pool->references[i];
    tgd_events_status status = clock->events->record(clock->events->self, device, stream, &reference->event, err);
    if (status == TGD_EVENTS_OK) {
        reference->asked = now;
        tgd_axis_init(&reference->axis, now);
        atomic_store(&reference->not_before, now);
        atomic_store(&reference->not_after, 0);
        pool->reference = i;
    }
    return status == TGD_EVENTS_CAPTURING && have ? TGD_EVENTS_OK : status;
}

tgd_span_token tgd_device_span_begin(tgd_device_clock *clock, int device, uint64_t stream, uint64_t key)
{
    if (atomic_load_explicit(&clock->off, memory_order_relaxed) || forked(clock)) {
        return 0;
    }
    tgd_device_pool *pool = device >= 0 && device < DEVICES ? pool_of(clock, device) : NULL;
    if (pool == NULL) {
        count(&clock->dropped);
        return 0;
    }
    tgd_error err = {.message = ""};
    tgd_span *span = NULL;
    pthread_mutex_lock(&pool->lock);
    tgd_events_status status = refresh_reference(clock, pool, device, stream, &err);
    if (status == TGD_EVENTS_OK) {
        span = tgd_device_pool_take(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    if (status == TGD_EVENTS_OK && span == NULL) {
        count(&clock->dropped);
    }
    if (span == NULL) {
        note(clock, status, &err);
        return 0;
    }
    span->key = key;
    span->number = atomic_fetch_add_explicit(&clock->number, 1, memory_order_relaxed);
    span->stream = stream;
    span->host_begin = tgd_clock_now();
    status = clock->events->record(clock->events->self, device, stream, &span->begin, &err);
    if (status != TGD_EVENTS_OK) {
        note(clock, status, &err);
        tgd_device_pool_abandon(pool, span);
        return 0;
    }
    look_at_reference(clock, pool, device, &pool->references[span->reference]);
    return tgd_device_pool_open(pool, span) | (uint64_t)(device + 1) << 56;
}

void tgd_device_span_end(tgd_device_clock *clock, tgd_span_token token)
{
    int device = (int)(token >> 56) - 1;
    if (device < 0 || device >= DEVICES || forked(clock)) {
        return;
    }
    tgd_device_pool *pool = atomic_load_explicit(&clock->devices[device], memory_order_acquire);
    tgd_span *span = pool != NULL ? tgd_device_pool_ending(pool, token) : NULL;
    if (span == NULL) {
        return;
    }
    tgd_error err = {.message = ""};
    tgd_events_status status = TGD_EVENTS_ASIDE;
    span->not_before = tgd_clock_now();
    if (!atomic_load_explicit(&clock->off, memory_order_relaxed)) {
        status = clock->events->record(clock->events->self, device, span->stream, &span->end, &err);
    }
    if (status != TGD_EVENTS_OK) {
        count(&clock->dropped);
        if (status != TGD_EVENTS_ASIDE) {
            note(clock, status, &err);
        }
        tgd_device_pool_abandon(pool, span);
        return;
    }
    span->host_end = tgd_clock_now();
    look_at_reference(clock, pool, device, &pool->references[span->reference]);
    tgd_device_pool_close(span);
}

/* ---- reading ---- */

typedef struct reading {
    tgd_device_clock *clock;
    tgd_device_pool *pool;
    int device;
    uint64_t blocked[BLOCKED]; /* streams in which something was met that has not run: nor has what comes after it */
    size_t n_blocked;
} reading;

static bool is_blocked(const reading *r, uint64_t stream)
{
    for (size_t i = 0; i < r->n_blocked; i++) {
        if (r->blocked[i] == stream) {
            return true;
        }
    }
    return false;
}

/* Asks the device for an ended span's times. */
static tgd_events_status read_span(reading *r, tgd_span *span)
{
    const tgd_device_events *events = r->clock->events;
    tgd_reference *reference = &r->pool->references[span->reference];
    if (is_blocked(r, span->stream)) {
        return TGD_EVENTS_PENDING;
    }
    if (!atomic_load(&r->clock->lost)) {
        look_at_reference(r->clock, r->pool, r->device, reference);
    }
    if (atomic_load(&r->clock->lost)) {
        return TGD_EVENTS_LOST;
    }
    tgd_error err = {.message = ""};
    uint64_t asked = tgd_clock_now();
    tgd_events_status status = events->query(events->self, r->device, span->end, &err);
    uint64_t seen = tgd_clock_now();
    if (status == TGD_EVENTS_PENDING) {
        span->not_before = asked;
        if (r->n_blocked < BLOCKED) {
            r->blocked[r->n_blocked++] = span->stream;
        }
    }
    uint64_t reference_seen = atomic_load_explicit(&reference->not_after, memory_order_acquire);
    if (status == TGD_EVENTS_OK && reference_seen == 0) {
        return TGD_EVENTS_PENDING; /* the reference is in another stream that has not come so far */
    }
    if (status == TGD_EVENTS_OK && reference_seen == TGD_NEVER) {
        status = TGD_EVENTS_CAPTURING;
    }
    int64_t begin = 0, length = 0;
    if (status == TGD_EVENTS_OK) {
        status = events->elapsed(events->self, r->device, reference->event, span->begin, &begin, &err);
    }
    if (status == TGD_EVENTS_OK) {
        status = events->elapsed(events->self, r->device, span->begin, span->end, &length, &err);
    }
    if (status == TGD_EVENTS_OK) {
        span->distance = begin;
        span->length = length > 0 ? length : 0;
        tgd_axis *axis = &reference->axis;
        tgd_axis_not_before(axis, 0, atomic_load(&reference->not_before));
        tgd_axis_not_after(axis, 0, reference_seen);
        tgd_axis_not_before(axis, begin, span->host_begin);
        tgd_axis_not_before(axis, begin + length, span->not_before);
        tgd_axis_not_after(axis, begin + length, seen);
    } else if (status != TGD_EVENTS_PENDING && status != TGD_EVENTS_ASIDE) {
        note(r->clock, status, &err);
    }
    return status;
}

static void show(const reading *r, const tgd_span *span, void (*visit)(void *context, const tgd_device_span *span),
                 void *context)
{
    const tgd_axis *axis = &r->pool->references[span->reference].axis;
    uint64_t begin = tgd_axis_at(axis, span->distance);
    begin = begin > span->host_begin ? begin : span->host_begin; /* drift, at most */
    tgd_device_span shown = {.key = span->key,
                             .number = span->number,
                             .stream = span->stream,
                             .device = r->device,
                             .host_begin = span->host_begin,
                             .host_end = span->host_end,
                             .device_begin = begin,
                             .device_end = begin + (uint64_t)span->length,
                             .uncertainty = tgd_axis_uncertainty(axis, span->distance)};
    visit(context, &shown);
    count(&r->clock->timed);
}

/* How many spans of the device stay for later. */
static size_t collect_device(reading *r, void (*visit)(void *context, const tgd_device_span *span), void *context)
{
    size_t n = tgd_device_pool_list(r->pool), pending = 0, read = 0, done = 0;
    uint32_t *order = r->pool->order;
    /* All are read before the first is shown: the axis that they share is then known as well as it can be. */
    for (size_t i = 0; i < n; i++) {
        tgd_span *span = &r->pool->spans[order[i]];
        tgd_events_status status = tgd_device_pool_ended(span) ? read_span(r, span) : TGD_EVENTS_PENDING;
        if (status == TGD_EVENTS_OK) {
            order[read++] = order[i];
        } else if (status != TGD_EVENTS_PENDING && status != TGD_EVENTS_ASIDE) {
            if (status != TGD_EVENTS_CAPTURING) {
                count(&r->clock->dropped);
            }
            tgd_device_pool_abandon(r->pool, span);
        } else {
            pending++;
        }
    }
    for (; done < read; done++) {
        show(r, &r->pool->spans[order[done]], visit, context);
    }
    tgd_device_pool_recycle(r->pool, order, read);
    return atomic_load(&r->clock->lost) ? 0 : pending; /* nothing will come of them */
}

size_t tgd_device_clock_collect(tgd_device_clock *clock, void (*visit)(void *context, const tgd_device_span *span),
                                void *context)
{
    if (forked(clock)) {
        return 0;
    }
    size_t pending = 0;
    pthread_mutex_lock(&clock->collecting);
    for (int i = 0; i < DEVICES; i++) {
        reading r = {.clock = clock, .pool = atomic_load(&clock->devices[i]), .device = i};
        if (r.pool != NULL) {
            pending += collect_device(&r, visit, context);
        }
    }
    pthread_mutex_unlock(&clock->collecting);
    return pending;
}
