/*
 * What else was alive when a report was asked for: tensors that hold a graph, gradients that have one, optimizers.
 * Read by whoever knows the objects (ext/python/census.c) and borrowed for the call: every tensor here lives
 * meanwhile. Only the report's own tables keep anything of it.
 */
#ifndef TGD_CENSUS_H
#define TGD_CENSUS_H

#include "record.h"

typedef struct tgd_optimizer_row {
    const char *name; /* of the class: "Adam" */
    bool of_torch;    /* one of torch's own: step() writes to all that have a gradient */
} tgd_optimizer_row;

/* A tensor that an optimizer updates. */
typedef struct tgd_member_row {
    const tgd_torch_tensor *tensor;
    uint32_t optimizer, group, place; /* of all optimizers; in it; in the group */
    double rate;        /* the group's learning rate */
    bool rate_known;    /* it is a plain number */
    bool scheduled;     /* a scheduler changes it over time */
    bool never_stepped; /* the scheduler was never asked to */
} tgd_member_row;

/* A tensor with a grad_fn by the name under which a module keeps it: "cell.hidden". */
typedef struct tgd_held_row {
    const char *name;
    uint64_t thread, sequence_nr; /* of its grad_fn */
} tgd_held_row;

/* A leaf as it is now, and its .grad. */
typedef struct tgd_gradient_row {
    const tgd_torch_tensor *leaf;
    uint64_t leaf_storage;
    uint64_t storage;             /* of .grad; 0: it is None, or has none */
    uint64_t thread, sequence_nr; /* of its grad_fn */
    bool has_graph;               /* it has a grad_fn */
} tgd_gradient_row;

/* A custom Function's ctx that keeps an output of its own node under this name: neither is ever freed. */
typedef struct tgd_cycle_row {
    const char *name;
    uint64_t thread, sequence_nr; /* of the node */
    tgd_place place;              /* where forward() stores it; no code where that is not known */
} tgd_cycle_row;

typedef struct tgd_census {
    const tgd_gradient_row *gradients;
    const tgd_held_row *held; /* by the module that was given as parameters */
    size_t n_gradients, n_held;
    bool whole; /* the process was looked through: what follows is filled */
    const tgd_root *kept; /* the grad_fn of every tensor that a Python object stands for and that has one */
    const tgd_member_row *members;
    const tgd_optimizer_row *optimizers;
    const tgd_cycle_row *cycles;
    size_t n_kept, n_members, n_optimizers, n_cycles;
} tgd_census;

#endif
