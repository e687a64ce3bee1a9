/* The host's clock, one axis for everything that is timed. */
#ifndef TGD_CLOCK_H
#define TGD_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Nanoseconds since an origin that is the same for the whole process (CLOCK_MONOTONIC: since the machine started, on
   Linux). Never goes back, never fails, any thread, no lock; about 20 ns a call, through the vDSO without a system
   call. The system's time service may slew it by up to 500 ppm. */
uint64_t tgd_clock_now(void);

#ifdef __cplusplus
}
#endif

#endif
