/*
 * Watching ops and backwards as they happen, without changing them: at::RecordFunction callbacks that append rows to
 * per-thread buffers. Callbacks never throw, never wait for the GIL except the first time a code object or module is
 * met, and skip what this library runs itself. One recorder state for the process: start and stop nest.
 */
#ifndef TGD_OBSERVE_H
#define TGD_OBSERVE_H

#include "record.h"
#include "shim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Called on the thread of an op that PyTorch refused because it wants to write to this tensor (it threw): the tensor is
   alive for the call. The row is what will stand in the record. May take the GIL. */
typedef void (*tgd_refused_hook)(void *context, const tgd_torch_tensor *tensor, const tgd_write_row *row);

typedef struct tgd_observer {
    tgd_frame_reader frames;
    tgd_refused_hook refused; /* or NULL */
    void *context;
} tgd_observer;

/* Begin full recording (ops with inputs and outputs, writes, runs). Borrowed for ever. Nested calls count. */
tgd_status tgd_observe_start(const tgd_observer *observer, tgd_error *err);
void tgd_observe_stop(void);

/* Begin light recording, which may stay on for days: where nodes were made, in-place writes, what can end a gradient, and
   which run freed a node. Same observer, borrowed for ever; counted by itself. While full recording is on too, what
   both see is recorded once. Must not be called with the lock of a node held; takes the GIL where the Python binding
   has patches to make. TGD_ETORCH, TGD_ENOMEM: nothing was begun. */
tgd_status tgd_observe_start_light(const tgd_observer *observer, tgd_error *err);
void tgd_observe_stop_light(void);

/* Is any recording on? */
int tgd_observe_on(void);

/* From here on (more = 1), or no longer (-1), checksums of what nodes save are recorded as well. Calls count. */
void tgd_observe_want_checksums(int more);
int tgd_observe_checksums(void);

/* A copy of everything since `since` (0: everything held), all threads merged by time. Any thread. */
tgd_status tgd_observe_take(tgd_record **out, uint64_t since, tgd_error *err);

/* A time n_runs backwards ago, 0 where fewer are held: what most graphs were made after, so that a report need not
   look through all. Any thread. */
uint64_t tgd_observe_recent(size_t n_runs);

/* The count that times rows: what is recorded later has a higher one. */
uint64_t tgd_observe_now(void);

/* From the patched setters, on the thread that calls them, after the real one ran. */
void tgd_observe_grad_mode(int enabled);

/* The same: a block of inference_mode began, or ended. */
void tgd_observe_inference(int began);

/* The same: a storage (its StorageImpl's address) is about to get another size. */
void tgd_observe_resize(uint64_t storage);

/* After tensor.data = other: the tensor lives in another storage now. */
void tgd_observe_swap(const tgd_torch_tensor *tensor);

/* From the patched engine, on the thread that calls backward, before it runs; and after it ended. */
void tgd_observe_run(int keep_graph, int create_graph);
/* Returns the run's number, 0 where none is known. */
uint64_t tgd_observe_run_ended(int failed);

/* Between the two, before it runs: a gradient that the run is started with. */
void tgd_observe_run_gradient(const tgd_torch_tensor *gradient);

/* What a run that ended left to tell: to be freed by the caller; NULL for nothing. They are forgotten here. Any thread. */
tgd_event_row *tgd_observe_events(uint64_t run, size_t *n);
/* All of them. */
void tgd_observe_forget_events(void);

/* After tgd_observe_run(), for a run that does not keep its graph: it starts at these nodes (NULL among them is fine);
   only the way to `inputs` is taken, everything where there are none. captures: their gradients are handed out, so that
   they themselves do not run. Borrowed. */
void tgd_observe_run_takes(const tgd_torch_node *const *roots, size_t n_roots, const tgd_torch_node *const *inputs,
                           size_t n_inputs, int captures);

#ifdef __cplusplus
}
#endif
#endif
