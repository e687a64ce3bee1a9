/*
 * torchgraphdbg: what PyTorch's backward would meet, without running it.
 *
 * Plain C11 (compiles as C99 and C++). A report is a snapshot: it owns no tensor and no node of torch,
 * never changes, and may be read from any thread. Strings that an accessor returns are borrowed from the
 * report and live as long as it does. Sizes are bytes unless said otherwise.
 *
 * Every function that can fail returns TGD_OK or a negative tgd_status, leaves its out-parameter untouched on
 * failure, and writes the reason into *err unless err is NULL.
 */
#ifndef TORCHGRAPHDBG_TGD_H
#define TORCHGRAPHDBG_TGD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

typedef enum tgd_status {
    TGD_OK = 0,
    TGD_EINVAL = -1,    /* an argument is wrong */
    TGD_ENOMEM = -2,    /* out of memory */
    TGD_EIO = -3,       /* a file could not be written; os_errno says why */
    TGD_ETORCH = -4,    /* libtorch threw */
    TGD_EGRAPHVIZ = -5, /* Graphviz could not lay the picture out */
    TGD_EPYTHON = -6    /* a Python exception is set (only inside the Python binding) */
} tgd_status;

/* Lives on the caller's stack. */
typedef struct tgd_error {
    tgd_status status;
    int os_errno;       /* with TGD_EIO, else 0 */
    char message[512];  /* one line of UTF-8 without a full stop */
} tgd_error;

/* ---- what to look at ---- */

/* A c10::TensorImpl (at::Tensor::unsafeGetTensorImpl()) and a torch::autograd::Node. Always borrowed. */
typedef struct tgd_torch_tensor tgd_torch_tensor;
typedef struct tgd_torch_node tgd_torch_node;

/* Where backward would start: a tensor, or a node and which of its outputs. Exactly one pointer is set. */
typedef struct tgd_root {
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    uint32_t output_nr; /* with node */
} tgd_root;

/* A named leaf. The name is copied. */
typedef struct tgd_parameter {
    const char *name; /* UTF-8 */
    const tgd_torch_tensor *tensor;
} tgd_parameter;

struct tgd_record;
struct tgd_place;
struct tgd_source;
struct tgd_refusal;
struct tgd_trace;
struct tgd_values;
struct tgd_census;

typedef struct tgd_request {
    const tgd_root *roots;
    size_t n_roots;
    const tgd_parameter *parameters; /* NULL: do not ask who is unreached */
    size_t n_parameters;
    const tgd_torch_tensor *const *inputs; /* as backward(inputs=...); NULL: every leaf */
    size_t n_inputs;
    int create_graph; /* as backward(create_graph=...) */
    int captures;     /* as torch.autograd.grad(): hands the inputs' gradients back and runs no grad_fn of theirs */
    /* Evidence of a recorder, or NULL; borrowed for the call (ext/core/record.h). */
    const struct tgd_record *record;
    int (*resolve)(const struct tgd_place *place, struct tgd_source *out);
    /* What the program's own anomaly mode wrote down about a node, or NULL (ext/core/trace.h). */
    int (*trace)(const tgd_torch_node *node, struct tgd_trace *out);
    const struct tgd_refusal *refusal; /* what PyTorch refused, where that is what the report is about */
    const struct tgd_values *values;   /* what a watch knows beside the graph (ext/core/values.h), or NULL */
    int checksum; /* sum up the saved tensors, to compare with what the record holds */
    const struct tgd_aftermath *aftermath; /* of the run that a report was made before, when it is judged again */
    const struct tgd_census *census; /* what else is alive, or NULL; borrowed for the call (ext/core/census.h) */
    uint64_t asked; /* when, in the record's time */
    int attempted;  /* a backward is about to begin, and the report is about it */
} tgd_request;

/* ---- the report ---- */

typedef struct tgd_report tgd_report;

typedef uint32_t tgd_node; /* index into the report's nodes; a root's node comes before the nodes it leads to */
#define TGD_NONE UINT32_MAX

/**
 * Capture the graph that backward() would walk from the roots, and judge it.
 * Runs no hook, bumps no version, keeps no reference. Needs no GIL and must not be called with one of the
 * caller's locks held that a Python thread may want: nodes written in Python are read under the GIL, which it
 * takes itself. Others may run backward meanwhile; nobody may add or remove edges of this graph.
 * @param[out] out  release with tgd_report_free()
 * @return TGD_OK, TGD_EINVAL, TGD_ENOMEM, TGD_ETORCH
 */
tgd_status tgd_report_capture(tgd_report **out, const tgd_request *request, tgd_error *err);

/**
 * The same snapshot and evidence judged again with other parameters (found by the address of their tensor). The
 * snapshot is shared, not copied; both reports are released on their own. Of the request only parameters, census and
 * record are read: what happened since, which never replaces the report's own. With parameters NULL the report's own
 * stay.
 * @return TGD_OK, TGD_EINVAL, TGD_ENOMEM
 */
tgd_status tgd_report_rejudge(tgd_report **out, const tgd_report *report, const tgd_request *request, tgd_error *err);

/**
 * The same report for strangers: of every path, in source locations and sentences, only the file's name is left. Names
 * of parameters, modules, classes and functions stay.
 * @param[out] out  release with tgd_report_free()
 * @return TGD_OK, TGD_ENOMEM
 */
tgd_status tgd_report_redact(tgd_report **out, const tgd_report *report, tgd_error *err);

/* Accepts NULL. */
void tgd_report_free(tgd_report *report);

/* One sentence that says whether backward will work. */
const char *tgd_report_verdict(const tgd_report *report);

/* 1: no error and no warning among the findings. */
int tgd_report_ok(const tgd_report *report);

typedef struct tgd_summary {
    size_t n_nodes, n_edges, n_null_edges, n_saved, n_roots;
    size_t n_leaves;             /* AccumulateGrad nodes */
    size_t depth;                /* nodes on the longest path from a root */
    size_t n_executed;           /* nodes that backward would run if nothing raised */
    size_t n_executed_to_error;  /* nodes that run before the first one that raises; n_executed if none does */
    uint64_t saved_bytes;        /* storages behind saved tensors, each once, leaves' own storages left out */
    uint64_t leaf_bytes;         /* storages of the leaves, each once */
    size_t n_parameters;         /* given */
    size_t n_parameters_reached; /* of those, will get a gradient */
    size_t n_parameters_frozen;  /* of those, requires_grad is False and not in the graph */
    size_t n_unchecked;          /* saved tensors and nodes that could not be inspected */
    uint64_t snapshot_bytes;     /* memory that the report holds */
} tgd_summary;
void tgd_report_summary(const tgd_report *report, tgd_summary *out);

/* ---- nodes, edges, tensors ---- */

typedef enum tgd_node_kind {
    TGD_NODE_BUILTIN = 0,     /* generated by PyTorch */
    TGD_NODE_ACCUMULATE_GRAD, /* a leaf */
    TGD_NODE_PYTHON,          /* torch.autograd.Function, compiled regions included */
    TGD_NODE_CPP,             /* torch::autograd::Function<T> */
    TGD_NODE_COPY_SLICES,     /* an in-place op on a view */
    TGD_NODE_ERROR,           /* raises whenever it runs */
    TGD_NODE_OTHER            /* a Node subclass that nothing is known about */
} tgd_node_kind;

/* Numbers of c10::ScalarType and c10::DeviceType pass through; -1 = unknown. */
typedef struct tgd_tensor_info {
    const char *dtype;      /* "float32"; "" if unknown */
    const char *device;     /* "cpu", "cuda"; "" if unknown */
    int device_index;       /* 0 for "cuda:0"; -1 where there is none */
    const char *layout;     /* "strided", "sparse_coo", ...; "" if unknown */
    int ndim;               /* -1: no shape can be told (undefined, nested, symbolic) */
    const int64_t *sizes;   /* ndim of them; -1 = symbolic */
    const int64_t *strides; /* ndim of them, in elements, or NULL where there are none */
    int contiguous;         /* 1, 0, or -1 = cannot be told */
} tgd_tensor_info;

typedef struct tgd_node_info {
    const char *name;       /* as grad_fn.name() without namespace: "MulBackward0", "AccumulateGrad" */
    tgd_node_kind kind;
    const char *inner;      /* CopySlices: name of the wrapped node; else NULL */
    uint64_t address;       /* identity while the user's graph lives; never dereferenced */
    uint64_t sequence_nr;   /* UINT64_MAX for AccumulateGrad */
    uint64_t thread_id;     /* of the forward */
    size_t n_edges, n_inputs, n_saved;
    size_t n_pre_hooks, n_tensor_pre_hooks, n_retain_grad_hooks, n_post_hooks;
    size_t order;           /* place in backward's order, 0 first; SIZE_MAX: backward does not run it */
    const char *parameter;  /* AccumulateGrad: its name from the request, or NULL */
    int requires_grad;      /* AccumulateGrad: the leaf's flag now; else 1 */
    int unchecked;          /* 1: its saved tensors could not be read */
} tgd_node_info;

size_t tgd_report_n_nodes(const tgd_report *report);
void tgd_report_node(const tgd_report *report, tgd_node node, tgd_node_info *out);

typedef struct tgd_edge {
    tgd_node to;       /* TGD_NONE: a null edge, no gradient is wanted there */
    uint32_t input_nr; /* which input of `to` */
} tgd_edge;
/* edge k of a node, k < n_edges, in the order of next_functions */
tgd_edge tgd_report_edge(const tgd_report *report, tgd_node node, size_t k);

/* Metadata of the k-th gradient that a node receives, k < n_inputs; ndim -1 where the input is unused. For
   AccumulateGrad input 0 is the leaf as it was when the node was made. */
void tgd_report_input(const tgd_report *report, tgd_node node, size_t k, tgd_tensor_info *out);

/* Root r: its node, or TGD_NONE where it has no grad_fn. */
tgd_node tgd_report_root(const tgd_report *report, size_t r);

typedef enum tgd_saved_state {
    TGD_SAVED_OK = 0,
    TGD_SAVED_NONE,            /* nothing was saved here (an optional input) */
    TGD_SAVED_MODIFIED,        /* version moved on */
    TGD_SAVED_DETACHED,        /* cut off by detach_() */
    TGD_SAVED_RELEASED,        /* freed by an earlier backward */
    TGD_SAVED_STORAGE_FREED,   /* storage has no bytes */
    TGD_SAVED_STORAGE_CHANGED, /* storage too small, or the tensor has another shape or dtype than when saved */
    TGD_SAVED_HOOKED,          /* packed by a saved-tensor hook or a checkpoint: not looked into */
    TGD_SAVED_UNCHECKED        /* busy, or a wrapper without storage */
} tgd_saved_state;

typedef struct tgd_saved_info {
    const char *name;      /* attribute without _saved_: "self", "result"; "saved_tensors" of a custom Function */
    int64_t index;         /* place in a list, else -1 */
    tgd_saved_state state;
    tgd_tensor_info tensor;
    uint64_t bytes;          /* of the tensor's elements */
    uint64_t storage;        /* identity of its storage; 0 = none */
    uint64_t storage_bytes;
    uint32_t saved_version, current_version;
    int is_output;           /* the node's own result rather than an input */
    int is_leaf;
    int has_hooks;
} tgd_saved_info;
void tgd_report_saved(const tgd_report *report, tgd_node node, size_t k, tgd_saved_info *out);

/* ---- findings ---- */

typedef enum tgd_finding_kind {
#define TGD_FINDING_KIND(id, slug, statement) TGD_##id,
#include "torchgraphdbg/tgd_findings.def"
    TGD_N_FINDING_KINDS
} tgd_finding_kind;

typedef enum tgd_reason {
    TGD_REASON_NONE = 0,
#define TGD_REASON_KIND(id, slug, statement) TGD_REASON_##id,
#include "torchgraphdbg/tgd_findings.def"
    TGD_N_REASONS
} tgd_reason;

typedef enum tgd_severity { TGD_ERROR = 0, TGD_WARNING, TGD_NOTE } tgd_severity;

const char *tgd_finding_slug(tgd_finding_kind kind);
const char *tgd_finding_statement(tgd_finding_kind kind);
const char *tgd_reason_slug(tgd_reason reason); /* NULL for TGD_REASON_NONE */
const char *tgd_reason_statement(tgd_reason reason); /* the same */
const char *tgd_severity_slug(tgd_severity severity);
const char *tgd_saved_state_slug(tgd_saved_state state);
const char *tgd_node_kind_slug(tgd_node_kind kind);

typedef struct tgd_finding_info {
    tgd_finding_kind kind;
    tgd_severity severity;
    tgd_node node;         /* the node that raises or loses the gradient, or TGD_NONE */
    size_t saved;          /* index among that node's saved tensors, or SIZE_MAX */
    const char *parameter; /* or NULL */
    tgd_reason reason;
    size_t root;           /* index of the root it is about, or SIZE_MAX */
    size_t group;          /* findings that share a cause share a group number */
} tgd_finding_info;

/* Findings come most important first: errors in the order backward meets them, then warnings, then notes. */
size_t tgd_report_n_findings(const tgd_report *report);
void tgd_report_finding(const tgd_report *report, size_t i, tgd_finding_info *out);

/* A place in the user's source, from a recorder. */
typedef struct tgd_source_info {
    const char *file, *function;       /* "" if unknown */
    const char *module, *module_class; /* path and class of the nn.Module whose forward ran; "" if none */
    int line;                          /* 0 if unknown */
} tgd_source_info;
/* Where to change something: 1, or 0 where nothing is known. */
int tgd_report_finding_where(const tgd_report *report, size_t i, tgd_source_info *out);
/* The outermost op that ran there, in ATen's name without namespace; NULL where nothing is known. */
const char *tgd_report_finding_op(const tgd_report *report, size_t i);
/* Where the forward made a node: 1, or 0 where nothing is known. */
int tgd_report_node_where(const tgd_report *report, tgd_node node, tgd_source_info *out);
/* The same line and the lines that led to it, innermost first: fills at most n of them, returns how many there are. */
size_t tgd_report_finding_stack(const tgd_report *report, size_t i, tgd_source_info *frames, size_t n);
size_t tgd_report_node_stack(const tgd_report *report, tgd_node node, tgd_source_info *frames, size_t n);
/* The node whose backward made this one, as a gradient that can be differentiated again; TGD_NONE where the forward
   made it, where that is not known, and where the other one is not in this graph. */
tgd_node tgd_report_node_made_by(const tgd_report *report, tgd_node node);

/* The finding in words, and what to do about it. Written like snprintf: the result is the length needed, and
   buffer (which may be NULL with size 0) gets as much of it as fits, always with a final NUL. */
size_t tgd_report_finding_message(const tgd_report *report, size_t i, char *buffer, size_t size);
size_t tgd_report_finding_hint(const tgd_report *report, size_t i, char *buffer, size_t size);

/* ---- forms ---- */

typedef enum tgd_format {
    TGD_FORMAT_TEXT = 0, /* .txt  the report a person reads */
    TGD_FORMAT_JSON,     /* .json schema in README */
    TGD_FORMAT_GV,       /* .gv   the folded graph, for dot */
    TGD_FORMAT_SVG,      /* .svg  the picture */
    TGD_FORMAT_TRACE,    /* .trace.json  when each node ran, for Perfetto and other viewers of Chrome traces */
    TGD_FORMAT_HTML      /* .html the picture in a page of its own, with search and details; at most 400,000 bytes */
} tgd_format;

/* The format that a path's suffix asks for. TGD_EINVAL for an unknown one, with the known ones in *err. */
tgd_status tgd_format_of_path(tgd_format *out, const char *path, tgd_error *err);

/* Receives the bytes of a document piece by piece; a non-zero return is an errno and ends the writing. */
typedef int (*tgd_sink)(void *context, const char *bytes, size_t n);

/**
 * Write the report in one format. Any thread; TGD_FORMAT_SVG and _HTML take one lock of this library for the layout.
 * The same report gives the same bytes.
 * @return TGD_OK, TGD_ENOMEM, TGD_EIO (the sink refused), TGD_EGRAPHVIZ, TGD_EINVAL (TGD_FORMAT_TRACE of a report
 *         whose backward was not timed)
 */
tgd_status tgd_report_write(const tgd_report *report, tgd_format format, tgd_sink sink, void *context, tgd_error *err);

/**
 * Write to a file, whole or not at all: a new file beside it takes its name when it is complete. A path that
 * names a device or a pipe is written to directly.
 * @return as tgd_report_write, TGD_EIO with os_errno
 */
tgd_status tgd_report_save(const tgd_report *report, const char *path, tgd_format format, tgd_error *err);

/* What a picture shows of a graph that is too large to be drawn whole. */
typedef struct tgd_view {
    size_t boxes;       /* about how many, at most TGD_VIEW_MOST; 0: as many as can be read; SIZE_MAX: all there are */
    const char *module; /* Borrowed: opened rather than others; or NULL */
    tgd_node node;      /* shown with what is around it, or TGD_NONE */
} tgd_view;

enum { TGD_VIEW_MOST = 64 };

/* tgd_report_write() and tgd_report_save() with a view, or NULL; formats that are no pictures show everything. Also
   TGD_EINVAL: more boxes than can be drawn, no such module or node. */
tgd_status tgd_report_write_view(const tgd_report *report, tgd_format format, const tgd_view *view, tgd_sink sink,
                                 void *context, tgd_error *err);
tgd_status tgd_report_save_view(const tgd_report *report, const char *path, tgd_format format, const tgd_view *view,
                                tgd_error *err);

/* "2.13.0 cf30153c...: the torch that this library was built for. */
const char *tgd_built_for(void);

#ifdef __cplusplus
}
#endif
#endif
