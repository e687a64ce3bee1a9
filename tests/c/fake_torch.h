/*
 * shim.h without libtorch: graphs built by hand, so that the core can be tested against known answers.
 *
 * Nodes and tensors belong to the fake and live until fake_reset(). Builders abort where memory is short; what shim.h
 * declares never allocates. The rules of shim.h are enforced: sizes and strides are handed out in a buffer that the
 * next call overwrites, and a visitor that calls back aborts.
 */
#ifndef FAKE_TORCH_H
#define FAKE_TORCH_H

#include "shim.h"
#include <stdbool.h>

enum { FAKE_FLOAT32 = 6, FAKE_FLOAT64 = 7, FAKE_INT64 = 4, FAKE_COMPLEX64 = 9, FAKE_BOOL = 11 }; /* c10::ScalarType */
enum { FAKE_CPU = 0, FAKE_CUDA = 1 };                                                              /* c10::DeviceType */
enum { FAKE_MAX_DIMS = 8 };

struct tgd_torch_tensor {
    tgd_torch_tensor_info info; /* info.sizes and info.strides are filled in from below when it is read */
    int64_t sizes[FAKE_MAX_DIMS], strides[FAKE_MAX_DIMS];
    const tgd_torch_tensor *base; /* whose storage and version counter it shares; itself where its own */
    tgd_torch_node *accumulator;  /* a leaf's AccumulateGrad, or NULL */
    bool strided;                 /* has strides */
    int is_parameter;             /* what the Python hook says: 1, 0, -1 */
    const tgd_torch_node *regenerated; /* a stale view: grad_fn is not set, and backward() would start here */
    tgd_status node_status;            /* what tgd_torch_tensor_node() answers */
    uint64_t identity;                 /* for a recorder; 0 = never met */
};

typedef struct fake_saved {
    const char *name;
    int64_t index;
    uint32_t flags, saved_version;
    const tgd_torch_tensor *tensor; /* NULL: none to look at */
} fake_saved;

typedef struct fake_edge_to {
    const tgd_torch_node *to;
    uint32_t input_nr;
} fake_edge_to;

typedef struct fake_input {
    int64_t sizes[FAKE_MAX_DIMS];
    int16_t ndim;
    int8_t dtype, device_type, device_index, layout, subclass, nested;
} fake_input;

struct tgd_torch_node {
    const char *name;  /* class name, shared by all of its class; a Python node's own name */
    const char *inner; /* CopySlices: name of the wrapped node */
    uint64_t sequence_nr, thread_id;
    const tgd_torch_tensor *variable;
    fake_edge_to *edges;
    fake_input *inputs;
    fake_saved *saved;
    uint32_t n_edges, n_inputs, n_saved;
    uint32_t n_pre_hooks, n_tensor_pre_hooks, n_retain_grad_hooks, n_post_hooks;
    uint32_t python_flags, raising_edges;
    tgd_node_kind kind;
    bool busy, opaque;
    bool python;  /* TGD_NODE_PYTHON, or a CopySlices around one */
};

/* Frees every node and tensor, takes the Python hooks away and starts the sequence numbers again. */
void fake_reset(void);

/* ---- nodes ---- */

/* A built-in node with one unused input; the next sequence number, thread 1. The name is not copied. */
tgd_torch_node *fake_node(const char *name);
/* A custom Function's node. */
tgd_torch_node *fake_python_node(const char *name, uint32_t python_flags);
/* The AccumulateGrad of a leaf: one for each leaf, made on first use. */
tgd_torch_node *fake_leaf_node(tgd_torch_tensor *leaf);
/* An in-place op on a view around a node of that name. Its saved tensors are the wrapped node's. */
tgd_torch_node *fake_copy_slices(const char *inner);

/* Edge k of `from`; edges in between are null. to NULL: a null edge. */
void fake_edge(tgd_torch_node *from, size_t k, const tgd_torch_node *to, uint32_t input_nr);
/* What input k of the node looks like: as this tensor, which stands for the forward's output. */
void fake_input_like(tgd_torch_node *node, size_t k, const tgd_torch_tensor *tensor);
/* Saves the tensor as it is now, as an input that was kept whole; returns the row, to change. Valid until the next. */
fake_saved *fake_save(tgd_torch_node *node, const char *name, const tgd_torch_tensor *tensor);
/* As fake_save, for the node's own result: data_ is a detached copy of the handle. */
fake_saved *fake_save_result(tgd_torch_node *node, const char *name, const tgd_torch_tensor *tensor);
/* None was saved here. */
fake_saved *fake_save_none(tgd_torch_node *node, const char *name);
/* What a backward without retain_graph leaves behind. */
void fake_release(tgd_torch_node *node);

/* ---- tensors ---- */

/* float32 on the CPU, contiguous, storage of its own, version 0. No grad_fn, requires no grad. */
tgd_torch_tensor *fake_tensor(int ndim, const int64_t *sizes);
/* The same with requires_grad. */
tgd_torch_tensor *fake_leaf(int ndim, const int64_t *sizes);
/* An output of a node; the node's input metadata takes its shape. */
tgd_torch_tensor *fake_output(tgd_torch_node *node, uint32_t output_nr, int ndim, const int64_t *sizes);
/* Shares storage and version counter; no grad_fn. */
tgd_torch_tensor *fake_alias(const tgd_torch_tensor *tensor);
/* An in-place op: the version moves on for all who share it. */
void fake_bump(tgd_torch_tensor *tensor);
void fake_set_dtype(tgd_torch_tensor *tensor, int dtype);

#define FAKE_SIZES(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
#define FAKE_SCALAR 0, NULL

/* ---- the Python side ---- */

/* Supplies tgd_torch_set_python() with hooks that read what fake_python_node() made. */
void fake_python_install(void);
/* 0 outside a capture; how often the GIL was taken. */
int fake_gil_depth(void);
size_t fake_gil_taken(void);

#endif
