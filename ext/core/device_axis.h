/*
 * Where a device's clock stands on the host's, learnt without waiting for the device. An event runs on the device after
 * the host asked for it and before the host saw that it had run; with the time that the device measured between it and
 * a reference event, both are bounds for the moment at which the reference ran. Every event tightens them: the lower
 * one whenever the stream was idle (what remains is the launch, some microseconds) or an event was seen not to have run
 * yet, the upper one whenever somebody looked soon after an event had run.
 *
 * The two clocks drift apart: TGD_AXIS_DRIFT of the distance to the reference is allowed for, so take a new reference
 * every second or so. Beside that stands the resolution of the device's events, TGD_AXIS_RESOLUTION.
 */
#ifndef TGD_DEVICE_AXIS_H
#define TGD_DEVICE_AXIS_H

#include <stdint.h>

enum {
    TGD_AXIS_DRIFT = 10000,     /* one part in: 100 ppm */
    TGD_AXIS_RESOLUTION = 1000  /* ns: cudaEventElapsedTime counts in about 0.5 us, at either end */
};

typedef struct tgd_axis {
    int64_t lower, upper; /* host ns between which the reference ran */
} tgd_axis;

/* Asked for at this time of the host, so it did not run before. */
void tgd_axis_init(tgd_axis *axis, uint64_t asked);

/* An event `distance` device ns after the reference (before it: negative) ran no earlier, no later, than this time of
   the host. */
void tgd_axis_not_before(tgd_axis *axis, int64_t distance, uint64_t host);
void tgd_axis_not_after(tgd_axis *axis, int64_t distance, uint64_t host);

/* The earliest time of the host at which an event at this distance can have run. */
uint64_t tgd_axis_at(const tgd_axis *axis, int64_t distance);

/* It ran at most this many ns after (drift and resolution: or before) what tgd_axis_at() says; UINT64_MAX while
   nothing is known. */
uint64_t tgd_axis_uncertainty(const tgd_axis *axis, int64_t distance);

#endif
