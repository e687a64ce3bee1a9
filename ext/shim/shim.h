/*
 * What the core reads of libtorch. Declarations in plain C; the definitions in ext/shim are all the C++ there
 * is, and tests/c/fake_torch.c defines the same without libtorch. Facts only: nothing here judges.
 *
 * Nothing here runs a hook, calls into a Python override, makes a Python wrapper, bumps a version, takes or
 * drops a reference that outlives the call, or throws. Pointers in the structs below are borrowed for the call
 * (in a visitor: for the visit) unless they say "for ever".
 */
#ifndef TGD_SHIM_H
#define TGD_SHIM_H

#include "torchgraphdbg/tgd.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tensors ---- */

enum {
    TGD_TENSOR_DEFINED = 1u << 0,
    TGD_TENSOR_REQUIRES_GRAD = 1u << 1,
    TGD_TENSOR_LEAF = 1u << 2,
    TGD_TENSOR_VIEW = 1u << 3,          /* differentiable view */
    TGD_TENSOR_HAS_STORAGE = 1u << 4,
    TGD_TENSOR_CONTIGUOUS = 1u << 5,
    TGD_TENSOR_SYMBOLIC = 1u << 6,      /* sizes hold SymInts */
    TGD_TENSOR_NESTED = 1u << 7,
    TGD_TENSOR_WRAPPER = 1u << 8,       /* functorch wrapper, functional or fake tensor: no data of its own */
    TGD_TENSOR_SUBCLASS = 1u << 9,      /* Python key is set: __torch_dispatch__ (DTensor, ...) */
    TGD_TENSOR_INFERENCE = 1u << 10,    /* made under inference_mode: no version */
    TGD_TENSOR_META = 1u << 11,
    TGD_TENSOR_RETAINS_GRAD = 1u << 12,
    TGD_TENSOR_HAS_ACCUMULATOR = 1u << 13, /* a leaf whose AccumulateGrad is alive: some graph uses it */
    TGD_TENSOR_PARAMETER = 1u << 14,       /* its Python object is a torch.nn.Parameter (Python hook only) */
    TGD_TENSOR_COMPLEX = 1u << 15,
    TGD_TENSOR_FLOATING = 1u << 16,
    TGD_TENSOR_UNTOUCHED = 1u << 17 /* a leaf that no graph ever took: it never had an AccumulateGrad */
};

typedef struct tgd_torch_tensor_info {
    uint64_t address; /* of the TensorImpl */
    uint64_t storage; /* of the StorageImpl; 0 = none */
    uint64_t data;    /* data pointer; 0 = none */
    uint64_t storage_bytes;
    uint64_t version_counter; /* identity: views and detach() share it */
    int64_t storage_offset;   /* elements */
    int64_t numel;            /* -1 where it cannot be told */
    const int64_t *sizes;     /* ndim of them, -1 = symbolic */
    const int64_t *strides;   /* ndim of them, or NULL */
    const tgd_torch_node *grad_fn; /* the field as it stands, never regenerated; NULL for a leaf */
    uint32_t output_nr;
    uint32_t version;
    uint32_t flags; /* TGD_TENSOR_* */
    uint32_t itemsize;
    int16_t ndim; /* -1: no plain shape */
    int8_t dtype; /* c10::ScalarType, -1 = unknown */
    int8_t device_type;
    int8_t device_index; /* -1 = none */
    int8_t layout;       /* at::Layout, -1 = unknown */
} tgd_torch_tensor_info;

/* sizes and strides point into the tensor, or into a thread-local buffer until the next call on this thread. */
void tgd_torch_tensor_read(const tgd_torch_tensor *tensor, tgd_torch_tensor_info *out);

/* A checksum of the values of a tensor on the CPU, 0 where none can be had. Of what repeats (stride 0) each value counts
   once. Not for keeping secrets. NULL is no tensor. */
uint64_t tgd_torch_tensor_sum(const tgd_torch_tensor *tensor);

/* The node backward() would start at from this tensor: its grad_fn, made anew for a view whose base changed in
   place (as backward itself would do), or the AccumulateGrad of a leaf that has one, or NULL. The tensor keeps
   it alive. Also says which output of the node it is. */
tgd_status tgd_torch_tensor_node(const tgd_torch_tensor *tensor, const tgd_torch_node **node, uint32_t *output_nr,
                                 tgd_error *err);

/* Visit a leaf's .grad, or the values of a sparse one, held for the visit; not at all where there is none. Returns
   what the visitor returned, or 0. The visitor must not call back into torch. */
typedef int (*tgd_torch_gradient_visitor)(void *context, const tgd_torch_tensor *gradient);
int tgd_torch_tensor_gradient(const tgd_torch_tensor *tensor, tgd_torch_gradient_visitor visit, void *context);

/* How often the tensor and its views were written to, as far as autograd knows; 0 under inference_mode. */
uint32_t tgd_torch_tensor_version(const tgd_torch_tensor *tensor);

/* Names for ever; "" for an unknown number. */
const char *tgd_torch_dtype_name(int dtype);        /* "float32" */
const char *tgd_torch_device_name(int device_type); /* "cuda" */
const char *tgd_torch_layout_name(int layout);      /* "strided" */

/* ---- nodes ---- */

typedef struct tgd_torch_node_info {
    const void *type; /* identity of the C++ class, same for all its nodes; one key for what is known of it */
    uint64_t sequence_nr, thread_id;
    size_t n_edges, n_inputs;
    uint32_t n_pre_hooks, n_tensor_pre_hooks, n_retain_grad_hooks, n_post_hooks;
    tgd_node_kind kind;
    int has_saved; /* 0: this class never saves a tensor, do not visit */
    int has_metadata; /* anomaly mode wrote something down about it, or somebody else used the same place */
    uint32_t raising_edges; /* bit k: this class only raises where a gradient is wanted along edge k; all: along any */
    const tgd_torch_tensor *variable; /* AccumulateGrad's leaf, else NULL */
} tgd_torch_node_info;

/* O(1), no lock. */
void tgd_torch_node_read(const tgd_torch_node *node, tgd_torch_node_info *out);

/* The class's name without namespace ("MulBackward0"), for ever. For TGD_NODE_PYTHON: "" (each has its own,
   see tgd_torch_python_read). */
const char *tgd_torch_node_name(const tgd_torch_node *node);

/* Edge k: the node it leads to (NULL = null edge) and which of its inputs. */
const tgd_torch_node *tgd_torch_node_edge(const tgd_torch_node *node, size_t k, uint32_t *input_nr);

typedef struct tgd_torch_input {
    const int64_t *sizes; /* ndim of them, -1 = symbolic; a thread-local buffer until the next call */
    int16_t ndim;         /* -1 = unused, nested, or unknown */
    int8_t dtype, device_type, device_index, layout;
    int8_t subclass; /* 1: a tensor subclass */
    int8_t nested;
} tgd_torch_input;
void tgd_torch_node_input(const tgd_torch_node *node, size_t k, tgd_torch_input *out);

/* ---- saved tensors ---- */

enum {
    TGD_SV_EMPTY = 1u << 0,            /* was_default_constructed_: None was saved */
    TGD_SV_HOOKS = 1u << 1,            /* packed by hooks; data_ is not there */
    TGD_SV_LEAF = 1u << 2,             /* is_leaf_ */
    TGD_SV_OUTPUT = 1u << 3,           /* is_output_ */
    TGD_SV_INPLACE_ON_VIEW = 1u << 4,  /* is_inplace_on_view_ */
    TGD_SV_ORIGINAL = 1u << 5,         /* saved_original_ */
    TGD_SV_HAS_GRAD_FN = 1u << 6,      /* the grad_fn that unpack() would find is not null (also: data_ is a view) */
    TGD_SV_GIVEN_NODE = 1u << 7,       /* unpack() is handed the node, so detach_() cannot make it raise */
    TGD_SV_RELEASED_FLAG = 1u << 8,    /* no tensor: the node's "already released" flag, which alone raises */
    TGD_SV_RAISES = 1u << 10,          /* no tensor: the node inside a CopySlices only raises */
    TGD_SV_METADATA_DIFFERS = 1u << 9  /* shape or dtype is not what the tensor's grad_fn was made with */
};

typedef struct tgd_torch_saved {
    const char *name; /* "self"; for ever */
    int64_t index;    /* in a list, else -1 */
    uint32_t flags;   /* TGD_SV_* */
    uint32_t saved_version;
    uint32_t output_nr;   /* with hooks: which output of the node that made the tensor */
    const void *hooks;    /* with TGD_SV_HOOKS: for tgd_torch_python.packed, during the visit */
    uint64_t identity;    /* with hooks: of the tensor that was packed, where another node made it; else 0 */
    uint64_t leaf;        /* with hooks: address of the leaf that was packed, where it requires grad; else 0 */
    uint64_t mark;        /* the number that a recorder gave this tensor, or the one it is a view of; else 0 */
    tgd_torch_tensor_info tensor; /* flags 0 where there is none to look at */
} tgd_torch_saved;

/* Return non-zero to stop. */
typedef int (*tgd_torch_saved_visitor)(void *context, const tgd_torch_saved *saved);

typedef enum tgd_visit {
    TGD_VISIT_DONE = 0,
    TGD_VISIT_BUSY,    /* another thread holds the node's mutex: nothing was visited */
    TGD_VISIT_OPAQUE,  /* a class nothing is known about */
    TGD_VISIT_PYTHON,  /* (partly) written in Python: call tgd_torch_python_read, nothing was visited */
    TGD_VISIT_STOPPED  /* the visitor said so */
} tgd_visit;

/* Visit what a node saved, under the node's mutex (tried, never waited for). The visitor must not call back
   into torch. For CopySlices: what the wrapped node saved; *inner gets its name (for ever) or stays as it is. */
tgd_visit tgd_torch_node_saved(const tgd_torch_node *node, const char **inner, tgd_torch_saved_visitor visit,
                               void *context);

/* ---- nodes written in Python ---- */

enum {
    TGD_PY_ONCE_DIFFERENTIABLE = 1u << 0, /* backward is wrapped by once_differentiable */
    TGD_PY_COMPILED = 1u << 1,            /* a region made by torch.compile */
    TGD_PY_RAISES = 1u << 2,              /* its backward only raises (double backward of a compiled region) */
    TGD_PY_READS_SAVED = 1u << 3,         /* its backward's code names saved_tensors, or may */
    TGD_PY_HIDES_GRAPH = 1u << 4,         /* runs a backward of its own: a reentrant checkpoint */
    TGD_PY_HIDES_PARAMETERS = 1u << 5     /* gradients reach parameters behind the graph's back (FSDP) */
};

typedef struct tgd_torch_python_node {
    char name[256]; /* class name, cut to fit, valid UTF-8 */
    uint32_t flags; /* TGD_PY_* */
    uint32_t code;  /* of its backward: as tgd_place's, TGD_NONE = not known */
} tgd_torch_python_node;

/* What a saved-tensor hook made of a tensor. Nothing of it is unpacked. */
enum {
    TGD_PACKED_CHECKPOINT = 1u << 0, /* by a non-reentrant checkpoint: backward runs its function again */
    TGD_PACKED_NO_STOP = 1u << 1,    /* and to its end, beyond the last tensor it saves */
    TGD_PACKED_TENSOR = 1u << 2      /* there is a tensor in what the hook returned */
};
typedef struct tgd_torch_packed {
    uint32_t flags;              /* TGD_PACKED_* */
    uint64_t hook;               /* address of the unpack hook: each checkpointed call has its own */
    uint32_t place, n_places;    /* of a checkpoint: the how-manieth of the tensors it saved */
    tgd_torch_tensor_info tensor; /* with TGD_PACKED_TENSOR: the first one; sizes and strides as of tensor_read */
} tgd_torch_packed;

/* As tgd_torch_node_saved, for a node (or a CopySlices around one) written in Python. Holds the GIL meanwhile.
   Supplied by the Python binding; without it every such node is TGD_VISIT_OPAQUE and named "PyNode". */
typedef tgd_visit (*tgd_torch_python_reader)(const tgd_torch_node *node, tgd_torch_python_node *out,
                                             tgd_torch_saved_visitor visit, void *context);
/* Is this tensor's Python object a torch.nn.Parameter? 1, 0, or -1 = cannot be told. Holds the GIL meanwhile. */
typedef int (*tgd_torch_is_parameter)(const tgd_torch_tensor *tensor);

typedef struct tgd_torch_python {
    tgd_torch_python_reader read;
    tgd_torch_is_parameter is_parameter;
    void (*begin)(void **token); /* takes the GIL for a batch of reads */
    void (*end)(void *token);
    /* Reads tgd_torch_saved.hooks, in a visit between begin and end. False: of an unknown class. */
    bool (*packed)(const void *hooks, tgd_torch_packed *out);
} tgd_torch_python;

/* Borrowed for ever; set once, before the first capture. */
void tgd_torch_set_python(const tgd_torch_python *python);
const tgd_torch_python *tgd_torch_get_python(void);

/* ---- origins ---- */

struct tgd_node_origin; /* ext/core/record.h */

/* Has the light level of recording ever been on, so that nodes may remember where they were made? */
int tgd_torch_has_origins(void);
/* 1 where this node does. Makes no metadata, takes no lock. */
int tgd_torch_node_origin(const tgd_torch_node *node, struct tgd_node_origin *out);

/* ---- identity ---- */

/* What the recorder knows this tensor by (ext/core/record.h): that of the node that made it, or the number it bears;
   0 where no recorder met it. */
uint64_t tgd_torch_identity(const tgd_torch_tensor *tensor);

/* ---- the build ---- */

const char *tgd_torch_built_for(void); /* version, a space, git hash */

/* Compare the generated member table with the classes loaded: for a few nodes made on the CPU, every saved
   tensor that the table finds must be the one that was saved. TGD_ETORCH says which is wrong. */
tgd_status tgd_torch_self_test(tgd_error *err);

#ifdef __cplusplus
}
#endif
#endif
