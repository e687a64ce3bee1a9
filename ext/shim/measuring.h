/*
 * Measuring backwards as they happen: a span for each node that runs, and statistics of the gradients that it is given
 * (ext/core/measure.h). An at::RecordFunction callback of the backward alone, without the GIL; it never throws and
 * waits for no device. For a process: start and stop nest.
 *
 * On a device two events are put around each node, and with TGD_MEASURE_GRADIENTS a few small kernels before it; both
 * are read after the backward.
 */
#ifndef TGD_MEASURING_H
#define TGD_MEASURING_H

#include "measure.h"
#include "shim.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TGD_MEASURE_TIME = 1u << 0, TGD_MEASURE_GRADIENTS = 1u << 1 }; /* the second one includes the first */

/* After tgd_observe_start() or tgd_observe_start_light(), whose count of runs it goes by. */
tgd_status tgd_measure_start(unsigned what, tgd_error *err);
void tgd_measure_stop(unsigned what);

/* From the patched engine, on the thread that calls backward: after tgd_observe_run(). */
void tgd_measure_run_began(void);

/* What an outermost backward left behind, parts of which a device may still be at work on. */
typedef struct tgd_pending_run tgd_pending_run;

/* Before tgd_observe_run_ended(). Of an outermost backward: all of it, with one owner; NULL where nothing was measured,
   it is not wanted, or there is no memory for it. */
tgd_pending_run *tgd_measure_run_ended(int wanted);

/* Reads what its devices have finished, and waits for the rest for at most `wait_ms`; what has not run by then stays
   unknown for ever. Not in backward. Borrowed, never changed afterwards; NULL without memory. Any thread. */
const tgd_measured_run *tgd_pending_settle(tgd_pending_run *pending, unsigned wait_ms);

/* Accepts NULL. */
void tgd_pending_free(tgd_pending_run *pending);

#ifdef __cplusplus
}
#endif
#endif
