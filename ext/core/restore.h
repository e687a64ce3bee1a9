/*
 * A report put together again from what its JSON says. Whoever reads the file (ext/python/load.c) hands over one node,
 * root, parameter and finding after the other, in the order of the file; what they say of each other is checked here,
 * so that a file can be wrong and nothing that reads the report can fail. Messages and the verdict are kept as they
 * were written: the facts behind their wording are not in a file.
 */
#ifndef TGD_RESTORE_H
#define TGD_RESTORE_H

#include "report.h"

/* Strings here and below are borrowed for the call. */
typedef struct tgd_restored_tensor {
    const char *dtype, *device, *layout; /* "float32", "cuda:0", "strided"; NULL = not known */
    const int64_t *sizes, *strides;      /* n_sizes, n_strides of them */
    int n_sizes, n_strides;              /* -1 = not known */
} tgd_restored_tensor;

typedef struct tgd_restored_source {
    const char *file, *function, *module, *module_class; /* "" = not known */
    int line;                                            /* 0 = not known */
    uint32_t caller;                                     /* place of another one; TGD_NONE = none, or not known */
} tgd_restored_source;

typedef struct tgd_restored_leaf {
    tgd_restored_tensor tensor;
    uint64_t storage, storage_bytes; /* identity; 0 = none */
    int64_t elements;                /* -1 = not known */
} tgd_restored_leaf;

typedef struct tgd_restored_node {
    const char *name;
    const char *inner; /* or NULL */
    tgd_node_kind kind;
    uint64_t sequence_nr; /* UINT64_MAX = none */
    uint64_t thread;
    uint32_t order;          /* TGD_NONE = not run */
    const tgd_restored_source *where; /* or NULL */
    tgd_node made_by;        /* TGD_NONE = not known */
    uint32_t hooks[4];       /* pre, tensor pre, retain-grad, post */
    bool requires_grad, unchecked;
    const tgd_restored_leaf *leaf; /* of an AccumulateGrad, else NULL */
} tgd_restored_node;

typedef struct tgd_restored_saved {
    const char *name;
    int64_t index; /* -1 = in no list */
    tgd_saved_state state;
    tgd_restored_tensor tensor;
    int contiguous; /* -1 = not known */
    uint64_t bytes, storage, storage_bytes;
    uint32_t saved_version, version;
    bool is_output, is_leaf, has_hooks, is_mark;
} tgd_restored_saved;

typedef struct tgd_restored_finding {
    tgd_finding_kind kind;
    tgd_severity severity;
    tgd_reason reason;
    const char *message, *hint; /* hint may be NULL */
    uint32_t node, root;        /* TGD_NONE = none, also of the next two */
    uint32_t saved;             /* place among the node's saved tensors */
    const char *parameter;      /* name, or NULL */
    uint32_t group;
    const char *op;                   /* or NULL */
    const tgd_restored_source *where; /* or NULL */
    bool culprit, unsure;
} tgd_restored_finding;

/* What belongs to the whole. */
typedef struct tgd_restored_head {
    const char *verdict, *torch;
    const char *raised, *occasion; /* or NULL */
    bool recorded, roots_refused, has_parameters, has_inputs, create_graph;
    uint32_t depth, first_error;
    uint64_t snapshot_bytes;
} tgd_restored_head;

typedef struct tgd_restorer tgd_restorer;

/* Release with tgd_restore_free() in any case. NULL when out of memory. */
tgd_restorer *tgd_restore_new(void);
/* Accepts NULL. */
void tgd_restore_free(tgd_restorer *restorer);

/* All return TGD_OK, TGD_ENOMEM, or TGD_EINVAL with what is wrong and what was expected in *err. Sources come first, in
   their order; then nodes, each with its own edges, inputs and saved tensors behind it; then roots, parameters and
   findings, in this order. */
tgd_status tgd_restore_add_source(tgd_restorer *restorer, const tgd_restored_source *source, tgd_error *err);
tgd_status tgd_restore_node(tgd_restorer *restorer, const tgd_restored_node *node, tgd_error *err);
tgd_status tgd_restore_edge(tgd_restorer *restorer, tgd_edge edge, tgd_error *err);
tgd_status tgd_restore_input(tgd_restorer *restorer, const tgd_restored_tensor *input, tgd_error *err);
tgd_status tgd_restore_saved(tgd_restorer *restorer, const tgd_restored_saved *saved, tgd_error *err);
/* node is TGD_NONE for a root without grad_fn. */
tgd_status tgd_restore_root(tgd_restorer *restorer, uint32_t node, uint32_t output_nr,
                            const tgd_restored_tensor *tensor, tgd_error *err);
/* node is TGD_NONE for a parameter that is not in the graph. */
tgd_status tgd_restore_parameter(tgd_restorer *restorer, const char *name, const tgd_restored_tensor *tensor,
                                 bool requires_grad, bool reached, uint32_t node, tgd_error *err);
tgd_status tgd_restore_finding(tgd_restorer *restorer, const tgd_restored_finding *finding, tgd_error *err);

/* Checks the whole and hands it over. The restorer is then good for nothing but tgd_restore_free(). */
tgd_status tgd_restore_end(tgd_restorer *restorer, const tgd_restored_head *head, tgd_report **out, tgd_error *err);

/* ---- shared by the files restore*.c ---- */

typedef struct tgd_tensor_row {
    uint32_t shape, strides; /* in graph.shapes */
    int8_t dtype, device_type, device_index, layout;
} tgd_tensor_row;

struct tgd_restorer {
    tgd_report *report; /* Owned until the end */
    tgd_address_map strings, types, storages, sources;
    struct tgd_source_key {
        uint32_t file, function, module, module_class; /* in graph.strings */
        int line;
        uint32_t caller; /* as in tgd_source_row */
    } *source_keys; /* Owned, per source */
    uint32_t source_key_capacity, parameter_capacity, root_capacity, order_capacity, where_capacity, made_by_capacity,
        words_capacity;
    tgd_address_map parameters; /* string -> the first parameter of that name */
};

/* Index in graph.strings of an equal string that is kept. */
tgd_status tgd_restore_string(tgd_restorer *restorer, const char *s, uint32_t *out, tgd_error *err);
/* In report->sources; TGD_NONE for NULL. */
tgd_status tgd_restore_source(tgd_restorer *restorer, const tgd_restored_source *source, uint32_t *out, tgd_error *err);
tgd_status tgd_restore_tensor(tgd_restorer *restorer, const tgd_restored_tensor *tensor, tgd_tensor_row *out,
                              tgd_error *err);
/* In graph.storages; TGD_NONE for identity 0. */
tgd_status tgd_restore_storage(tgd_restorer *restorer, uint64_t identity, uint64_t bytes, uint32_t *out, tgd_error *err);
/* A key for an address map out of a number below 2^63: another for each, never 0, and spread. */
static inline uint64_t tgd_restore_key(uint64_t number)
{
    return (number + 1) * UINT64_C(0x9E3779B97F4A7C15);
}

#endif
