/*
 * What each node of a backward took, and what the gradients were like that it received: rows as they were measured
 * (ext/shim/measure.cpp), and joined to the snapshot that was taken before that backward. Plain values: no tensor, no
 * event. Once made never changed, so any thread may read.
 */
#ifndef TGD_MEASURE_H
#define TGD_MEASURE_H

#include "error.h"
#include "statistics.h"
#include "torchgraphdbg/tgd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- as measured ---- */

/* A node on a device; times on the axis of tgd_clock_now(). */
typedef struct tgd_device_time {
    uint64_t began, ended;
    uint64_t queued;      /* from when the host had asked for its work until the device began */
    uint64_t uncertainty; /* of began and ended, not of their difference */
    uint64_t stream;
    int device;
    bool known; /* else nothing was timed there, or it had not run when it was read */
} tgd_device_time;

/* One node that ran. Times are nanoseconds of tgd_clock_now(); what we do ourselves meanwhile is in none of them but in
   began and ended. */
typedef struct tgd_span {
    const char *name;    /* for ever */
    uint64_t node;       /* its address then */
    uint64_t leaf;       /* AccumulateGrad: address of its leaf then; else 0 */
    uint64_t sequence_nr, node_thread; /* sequence_nr UINT64_MAX: none */
    uint64_t run;        /* the backward that ran it (record.h) */
    uint64_t outermost;  /* the backward around that one, or the same */
    uint64_t thread;     /* that it ran on, as torch counts them */
    uint64_t began, ended;
    uint64_t total_ns;   /* with the nodes that ran inside it, and with after_ns */
    uint64_t self_ns;    /* without the former */
    uint64_t after_ns;   /* what the engine did for it from `ended` on: hooks, sums of gradients, memory given back */
    tgd_device_time on_device;
    uint32_t first_gradient, n_gradients; /* in gradients: one for each input */
    uint32_t depth;      /* of nodes around it on its thread */
    tgd_node in_graph;   /* once joined: its node, or TGD_NONE: inside another one */
    bool first_use;      /* the first node of its kind, type, device and shape that this process timed */
    bool threw;
} tgd_span;

/* What one input of a node was like when the node ran: after the hooks on it. */
typedef struct tgd_gradient {
    tgd_statistics values;
    const char *unchecked; /* why the values were not looked at, for ever; NULL: they were */
    bool received;         /* else it was None: nothing came along any edge, or the node did not run */
    bool measured;         /* received and looked at */
    bool coarse;           /* on a device: n_subnormal and absmin are not known */
    uint32_t n_edges;      /* once joined: edges of nodes that ran that lead here; what one of them brought is known
                              where it is the only one */
} tgd_gradient;

/* All of one backward and of those inside it. */
typedef struct tgd_measured_run {
    unsigned shares;         /* changed by tgd_measured_run_keep() and _free() alone, atomically */
    tgd_span *spans;         /* Owned, by began */
    tgd_gradient *gradients; /* Owned */
    uint32_t n_spans, n_gradients;
    uint64_t run;
    uint64_t began, ended;   /* of the call of backward */
    uint64_t thread;         /* that called it */
    uint64_t ours;           /* of ended - began: what we did ourselves on that thread */
    uint64_t dropped;        /* nodes that did not fit */
    const char *trouble;     /* why devices were not timed, for ever; or NULL */
    bool statistics;         /* gradients were looked at */
} tgd_measured_run;

void tgd_measured_run_keep(const tgd_measured_run *run);
/* Accepts NULL. */
void tgd_measured_run_free(const tgd_measured_run *run);

/* ---- of a snapshot ---- */

/* A node of the graph. */
typedef struct tgd_measure_row {
    uint64_t began, ended, self_ns, total_ns, after_ns;
    uint64_t thread;
    tgd_device_time on_device;
    tgd_statistics gradient; /* of all its inputs that were looked at */
    uint64_t median_self_ns; /* over the repeats; of the device's time where that is known */
    uint32_t repeats;        /* how often its name, module and line were timed in the backwards of the recorder */
    uint32_t span;           /* in spans, or TGD_NONE */
    bool timed;              /* it ran */
    bool measured;           /* every gradient that it received was looked at, and there was one */
    bool first_use, threw;
} tgd_measure_row;

/* The time by which nodes are compared: the device's where it is known. */
static inline uint64_t tgd_measure_own_ns(const tgd_measure_row *row)
{
    return row->on_device.known ? row->on_device.ended - row->on_device.began : row->self_ns;
}

typedef struct tgd_measures {
    unsigned shares;       /* changed by tgd_measures_keep() and _free() alone, atomically */
    tgd_measure_row *nodes; /* Owned, per node of the graph */
    tgd_gradient *inputs;   /* Owned, per row of graph.inputs */
    tgd_span *spans;        /* Owned, by began; those inside other nodes too. Their gradients are not kept */
    uint32_t n_nodes, n_inputs, n_spans;
    uint64_t began, ended, thread, ours, dropped;
    const char *trouble;
    bool statistics;
} tgd_measures;

struct tgd_graph;
struct tgd_report;

/**
 * The rows of the backward that a snapshot was taken before.
 * @param[out] out  release with tgd_measures_free()
 * @return TGD_OK, TGD_ENOMEM
 */
tgd_status tgd_measures_join(tgd_measures **out, const struct tgd_graph *graph, const tgd_measured_run *run,
                             tgd_error *err);

/**
 * Fills repeats and median_self_ns of one report's measures, which nobody else has yet, with those of n reports on
 * backwards of the same recorder. Nodes are the same where they have the same name, module and line.
 * @param reports   with the measures at the same place, or NULL
 * @param which     the one to fill: in both arrays
 */
tgd_status tgd_measures_repeat(tgd_measures *const *measures, const struct tgd_report *const *reports, size_t n,
                               size_t which, tgd_error *err);

void tgd_measures_keep(const tgd_measures *measures);
/* Accepts NULL. */
void tgd_measures_free(const tgd_measures *measures);

/* Gives a report what was measured of its backward (which becomes shared), unless it has that already. All else stays
   as it was said before backward. Any thread: others see none or all of it. */
void tgd_report_measure(const struct tgd_report *report, const tgd_measures *measures);

/* Makes a node's row out of its span and its inputs' gradients, once both stand in the measures. */
void tgd_measures_fill_node(tgd_measures *measures, const struct tgd_graph *graph, tgd_node v, uint32_t span);
/* Fills n_edges, after the last node. */
void tgd_measures_count_edges(tgd_measures *measures, const struct tgd_graph *graph);

/**
 * The chain of nodes, each behind an edge of the one before, that took the most time together: what backward could not
 * be faster than, however many nodes ran at once.
 * @param[out] path  to be freed; n of them, the first one first
 */
tgd_status tgd_measures_critical_path(const struct tgd_report *report, tgd_node **path, uint32_t *n, tgd_error *err);

/* What a node sent along its k-th edge: the gradient that the node there received. NULL: a null edge, or not known.
   *alone: no other edge led there, so it is just that; else it is the sum of all. */
const tgd_gradient *tgd_measures_sent(const struct tgd_report *report, tgd_node node, size_t k, bool *alone);

#ifdef __cplusplus
}
#endif
#endif
