/* What the tests over fake_cudart.c share. The host's clock is the fake's: this program's clock_gettime() takes the
   place of libc's. Include it first. */
#ifndef CUDART_PROBE_H
#define CUDART_PROBE_H

#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* clock_gettime, fork */
#endif

#include "clock.h"
#include "cuda_events.h"
#include "device_clock.h"
#include "fake_cudart.h"

#include "check.h"

#include <dlfcn.h>
#include <time.h>

static const fake_cudart_control *fake;

int clock_gettime(clockid_t clock, struct timespec *out)
{
    (void)clock;
    uint64_t now = fake != NULL ? fake->now() : 0;
    out->tv_sec = (time_t)(now / 1000000000);
    out->tv_nsec = (long)(now % 1000000000);
    return 0;
}

/* The fake, as new, with this many devices. */
static inline void probe_reset(int devices)
{
    if (fake == NULL) {
        void *library = dlopen(getenv("TORCHGRAPHDBG_CUDART"), RTLD_NOW);
        void *symbol = library != NULL ? dlsym(library, "fake_cudart") : NULL;
        fake_cudart_function get;
        memcpy(&get, &symbol, sizeof get);
        if (!CHECK(get != NULL)) {
            abort();
        }
        fake = get();
    }
    fake->reset(devices);
}

static inline tgd_device_clock *probe_open(uint32_t max_spans)
{
    const tgd_device_events *events = NULL;
    tgd_device_clock *clock = NULL;
    if (!CHECK_INT(tgd_cuda_events(&events, NULL), TGD_OK) ||
        !CHECK_INT(tgd_device_clock_open(&clock, events, max_spans, NULL), TGD_OK)) {
        abort();
    }
    return clock;
}

enum { PROBE_SPANS = 4096 };

typedef struct probe_spans {
    size_t n;
    tgd_device_span spans[PROBE_SPANS];
} probe_spans;

static inline void probe_visit(void *context, const tgd_device_span *span)
{
    probe_spans *out = context;
    if (CHECK(out->n < PROBE_SPANS)) {
        out->spans[out->n++] = *span;
    }
}

/* Empties *out first. */
static inline size_t probe_collect(tgd_device_clock *clock, probe_spans *out)
{
    out->n = 0;
    return tgd_device_clock_collect(clock, probe_visit, out);
}

/* A node: one kernel between two events. */
static inline void probe_node(tgd_device_clock *clock, int device, uint64_t stream, uint64_t key, uint64_t duration)
{
    tgd_span_token token = tgd_device_span_begin(clock, device, stream, key);
    fake->launch(stream, device, duration);
    tgd_device_span_end(clock, token);
}

/* What holds after every test: all events given back, nothing waited, no capture broken, no context made, no error
   left, device and capture mode as they were. */
static inline void probe_end(tgd_device_clock *clock)
{
    tgd_device_clock_close(clock);
    CHECK_INT(fake->counts->events, 0);
    CHECK_INT(fake->counts->syncs, 0);
    CHECK_INT(fake->counts->broken, 0);
    CHECK_INT(fake->counts->contexts, 0);
    CHECK_INT(fake->counts->misused, 0);
    CHECK_INT(fake->last_error(), 0);
    CHECK_INT(fake->current_device(), 0);
    CHECK_INT(fake->capture_mode(), 0);
}

#endif
