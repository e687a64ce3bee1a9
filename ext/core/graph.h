/*
 * The snapshot: arrays of plain structs that own no reference into torch. Filled by walk.c and inspect.c, never
 * changed afterwards; the judgement over them lives in report.h. Rows are compact (under 300 bytes a node with its
 * edge, input and saved tensor), so shapes, strides, names and storages are interned and named by index.
 */
#ifndef TGD_GRAPH_H
#define TGD_GRAPH_H

#include "address_map.h"
#include "error.h"
#include "record.h"
#include "shim.h"
#include <stdbool.h>

typedef struct tgd_type_row {
    const void *key;  /* C++ class; NULL for a Python class */
    const char *name; /* for ever, or in graph.strings */
    tgd_node_kind kind;
    uint32_t python_flags;  /* TGD_PY_*; HIDES_GRAPH also of C++ nodes known by name */
    uint32_t raising_edges; /* as in tgd_torch_node_info */
    uint32_t code;          /* of a Python class: of its backward, as tgd_place's, or TGD_NONE */
} tgd_type_row;

enum {
    TGD_ROW_BUSY = 1u << 0,   /* mutex was held: saved tensors not read */
    TGD_ROW_OPAQUE = 1u << 1, /* class not known */
    TGD_ROW_FREED = 1u << 2,  /* a "released" flag of the node itself is up (custom Function, lists, CopySlices) */
    TGD_ROW_GIVEN_NODE = 1u << 3,
    TGD_ROW_RAISES = 1u << 4, /* CopySlices: the wrapped node only raises */
    TGD_ROW_METADATA = 1u << 5 /* it may say where it was made: anomaly mode */
};

typedef struct tgd_node_row {
    uint64_t address, sequence_nr, thread_id;
    uint32_t type;       /* in types */
    uint32_t inner_type; /* CopySlices: index in types, else TGD_NONE */
    uint32_t first_edge, n_edges;
    uint32_t first_input, n_inputs;
    uint32_t first_saved, n_saved; /* released flags included: rows without a tensor */
    uint32_t leaf;  /* AccumulateGrad: in leaves, else TGD_NONE */
    uint32_t hooks; /* in hooks, else TGD_NONE */
    uint32_t flags; /* TGD_ROW_* */
} tgd_node_row;

typedef struct tgd_hooks_row {
    uint32_t pre, tensor_pre, retain_grad, post;
} tgd_hooks_row;

typedef struct tgd_input_row {
    uint32_t shape; /* in shapes, TGD_NONE = cannot be told */
    int8_t dtype, device_type, device_index, layout;
    uint8_t subclass, nested;
} tgd_input_row;

enum { TGD_ROW_RESHAPED = 1u << 15 }; /* has other sizes or another dtype than in the forward */

typedef struct tgd_saved_row {
    const char *name;   /* for ever */
    uint64_t tensor;    /* address of the TensorImpl; 0 = none */
    uint64_t version_counter;
    int32_t index;
    uint32_t tensor_flags; /* TGD_TENSOR_* */
    uint32_t saved_version, version;
    uint32_t shape, strides; /* in shapes, or TGD_NONE */
    uint32_t storage;        /* in storages, or TGD_NONE */
    int32_t storage_offset;  /* elements, INT32_MAX where it does not fit */
    uint16_t flags;          /* TGD_SV_*, TGD_ROW_RESHAPED */
    uint8_t itemsize;
    int8_t dtype, device_type, device_index, layout;
    uint8_t state; /* tgd_saved_state */
} tgd_saved_row;

/* A saved tensor that hooks packed. */
typedef struct tgd_packed_row {
    uint32_t saved; /* row in saved, ascending */
    tgd_node node;
    uint32_t output_nr;
    uint32_t place, n_places;     /* of a checkpoint, as in tgd_torch_packed */
    uint32_t flags;               /* TGD_PACKED_* */
    uint64_t hook;                /* one for each checkpointed call; 0 = not known */
    uint64_t identity, leaf;      /* as in tgd_torch_saved */
    uint64_t storage;             /* with TGD_PACKED_TENSOR: address */
    int64_t first_byte, end_byte; /* in the storage */
} tgd_packed_row;

typedef struct tgd_storage_row {
    uint64_t address, data, bytes;
    uint32_t leaf; /* in leaves: the leaf that lives in it, or TGD_NONE */
    bool saved;    /* a saved tensor lives in it */
} tgd_storage_row;

typedef struct tgd_leaf_row {
    uint64_t tensor; /* address of the TensorImpl */
    uint32_t node;
    uint32_t shape; /* now */
    uint32_t storage;
    uint32_t flags; /* TGD_TENSOR_* */
    int64_t numel;
    int8_t dtype, device_type, device_index, layout;
} tgd_leaf_row;

enum { TGD_ROOT_WRAPS_GRAD = 1u << 31 }; /* vmap wrapped it: the tensor inside carries grad */

/* One root as it was given. */
typedef struct tgd_root_row {
    tgd_node node;      /* TGD_NONE: no grad_fn */
    uint32_t output_nr;
    uint32_t shape;
    uint32_t flags;     /* TGD_TENSOR_*, TGD_ROOT_*; 0: the root was a node */
    uint64_t tensor;    /* address, 0: the root was a node */
    int64_t numel;
    uint64_t identity;  /* for the recorder (record.h) */
    bool refused;       /* PyTorch will not give its grad_fn: a view it has lost track of */
    int8_t dtype, device_type, device_index, layout;
} tgd_root_row;

/* Lists of sizes or strides, each stored once. List s is numbers[at[s] .. at[s + 1]). */
typedef struct tgd_shapes {
    int64_t *numbers;     /* Owned */
    uint32_t *at;         /* Owned, n + 1 of them */
    tgd_address_map seen; /* hash -> list; emptied by tgd_graph_seal() */
    uint32_t n, n_numbers, capacity, number_capacity;
    uint32_t last; /* asked for most recently */
} tgd_shapes;

typedef struct tgd_graph {
    tgd_node_row *nodes;       /* Owned, like every array here; capture order, roots first */
    struct tgd_edge *edges;    /* row v: nodes[v].first_edge .. + n_edges */
    tgd_input_row *inputs;
    tgd_saved_row *saved;
    tgd_storage_row *storages;
    tgd_leaf_row *leaves;
    tgd_hooks_row *hooks;
    tgd_type_row *types;
    tgd_root_row *roots;
    tgd_packed_row *packed;
    uint64_t *marks; /* numbers that a recorder gave saved tensors which carry no gradient, as the walk met them */
    uint64_t *sums; /* as saved, with checksums: of the bytes, 0 = none; else NULL */
    tgd_node_origin *origins; /* row v: where node v was made; NULL where no light recording ever ran */
    char **strings; /* Owned, each Owned: names of Python classes */
    tgd_shapes shapes;
    uint32_t n_nodes, n_edges, n_inputs, n_saved, n_storages, n_leaves, n_hooks, n_types, n_roots, n_strings,
        n_packed, n_marks;
    uint32_t node_capacity, edge_capacity, input_capacity, saved_capacity, storage_capacity, leaf_capacity,
        hooks_capacity, type_capacity, string_capacity, packed_capacity, sum_capacity, origin_capacity, mark_capacity;
    uint32_t n_null_edges;
    bool checksum; /* set before the walk */
    unsigned *shares; /* how many reports use these arrays; Owned by them together */
} tgd_graph;

/* What only the capture needs to know: where an address stands in the tables. */
typedef struct tgd_lookup {
    tgd_address_map nodes, storages, leaves, types;
} tgd_lookup;

/**
 * Walk from the roots and read every node once, breadth first, on no stack to speak of. States of saved tensors
 * are left TGD_SAVED_OK; inspect.c decides them.
 * @param graph   zeroed; on failure call tgd_graph_clear()
 * @param lookup  zeroed; release with tgd_lookup_clear() in any case
 */
tgd_status tgd_graph_walk(tgd_graph *graph, tgd_lookup *lookup, const tgd_root *roots, size_t n_roots,
                          tgd_error *err);
void tgd_lookup_clear(tgd_lookup *lookup);

/* Fills in packed, for the nodes that have saved tensors packed by hooks. A part of tgd_graph_walk(). */
tgd_status tgd_graph_read_packed(tgd_graph *graph, tgd_error *err);

/* Index of a list of sizes or strides, TGD_NONE for n < 0. */
tgd_status tgd_shapes_intern(tgd_shapes *shapes, const int64_t *numbers, int n, uint32_t *out, tgd_error *err);

/* The same arrays for another report, which clears its graph on its own; only the shapes are copied, since its
   parameters may add some. Of a sealed graph. */
tgd_status tgd_graph_share(tgd_graph *out, const tgd_graph *graph, tgd_error *err);

/* Give back what growing left over. Cannot fail. */
void tgd_graph_seal(tgd_graph *graph);
void tgd_graph_clear(tgd_graph *graph);
uint64_t tgd_graph_bytes(const tgd_graph *graph);

static inline const tgd_type_row *tgd_graph_type(const tgd_graph *graph, tgd_node v)
{
    return &graph->types[graph->nodes[v].type];
}

/* Elements of a tensor of this shape, -1 where it cannot be told. */
int64_t tgd_graph_numel(const tgd_graph *graph, uint32_t shape);

static inline const int64_t *tgd_graph_shape(const tgd_graph *graph, uint32_t shape, int *ndim)
{
    if (shape == TGD_NONE) {
        *ndim = -1;
        return NULL;
    }
    *ndim = (int)(graph->shapes.at[shape + 1] - graph->shapes.at[shape]);
    return graph->shapes.numbers + graph->shapes.at[shape];
}

#endif
