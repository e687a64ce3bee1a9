/* How a finding is worded: what the judges (inspect.c, roots.c, unreached.c) tell messages.c beside the kind. */
#ifndef TGD_JUDGE_H
#define TGD_JUDGE_H

#include "report.h"

typedef enum tgd_detail {
    TGD_DETAIL_NONE = 0,
    /* saved tensors and nodes */
    TGD_DETAIL_SAVED,          /* PyTorch's own unpack() raises */
    TGD_DETAIL_CUSTOM,         /* only if the custom Function's backward reads saved_tensors */
    TGD_DETAIL_UNREAD,         /* the custom Function's backward never names saved_tensors */
    TGD_DETAIL_HOOK_MAY_MEND,  /* a hook that runs before may bring the storage back */
    TGD_DETAIL_SHARDED,        /* the same, and the graph has the hooks of a sharded module */
    TGD_DETAIL_TOO_SMALL,      /* the storage ends before the tensor does */
    TGD_DETAIL_RESHAPED,       /* other sizes or dtype than its grad_fn or AccumulateGrad was made with */
    TGD_DETAIL_LEAF_RESHAPED,  /* the same of a leaf, whatever was saved of it */
    TGD_DETAIL_ERROR_NODE,     /* a node whose apply() throws */
    TGD_DETAIL_COMPILED_TWICE, /* second derivative of a compiled region */
    TGD_DETAIL_ONCE,           /* once_differentiable, with create_graph */
    TGD_DETAIL_COMPILED,       /* a compiled region, with create_graph */
    TGD_DETAIL_SILENT,         /* written under another version counter */
    TGD_DETAIL_HOOKED,         /* `other` saved tensors are packed by hooks */
    TGD_DETAIL_OPAQUE,         /* `other` nodes of an unknown class */
    TGD_DETAIL_BUSY,           /* `other` nodes whose mutex was held */
    /* roots */
    TGD_DETAIL_NO_GRAD,        /* requires no grad */
    TGD_DETAIL_LEAF_ROOT,      /* a leaf that requires grad */
    TGD_DETAIL_NOT_SCALAR,
    TGD_DETAIL_COMPLEX_ROOT,
    TGD_DETAIL_REFUSED_ROOT,   /* refused by backward, in PyTorch's words */
    TGD_DETAIL_REFUSED_WRITE,  /* refused in the forward */
    TGD_DETAIL_ROOT_LOST,      /* a view whose grad_fn PyTorch will not make anew */
    TGD_DETAIL_ROOT_RESHAPED,  /* has other sizes than its grad_fn was made with */
    TGD_DETAIL_ROOT_WRAPPED,   /* vmap wrapped a tensor that carries grad */
    TGD_DETAIL_INPUT_UNUSED,   /* input `other` of the request is not in this graph */
    TGD_DETAIL_INPUT_NO_GRAD,  /* input `other` of the request does not require grad */
    /* parameters */
    TGD_DETAIL_NOT_IN_GRAPH,
    TGD_DETAIL_TURNED_OFF,     /* in the graph, requires_grad now False */
    TGD_DETAIL_REPLACED,       /* leaf `other` of the graph is a Parameter nobody names, of the same shape */
    TGD_DETAIL_NOT_A_LEAF,
    TGD_DETAIL_ROOT_IS_LEAF,   /* nothing is reached: the root is a leaf */
    TGD_DETAIL_HIDDEN,         /* `other` parameters may be reached where the graph does not show */
    /* values */
    TGD_DETAIL_VALUE,          /* values[other] is not finite */
    /* silent changes (silent.c) */
    TGD_DETAIL_PACKED,          /* saved-tensor hooks kept the tensor that was written to */
    TGD_DETAIL_RECOMPUTED,      /* a checkpoint writes to it again before backward reads it */
    TGD_DETAIL_MAY_RECOMPUTE,   /* the same, if it saves something after the write */
    TGD_DETAIL_RECOMPUTED_LEAF, /* a checkpoint reads leaf `other` again, as it is by then */
    TGD_DETAIL_FOREIGN,          /* its bytes changed, and no op wrote to it */
    TGD_DETAIL_RECOMPUTED_INPUT, /* the same of what was computed before the checkpoint */
    /* custom Functions and hooks (custom.c) */
    TGD_DETAIL_GRADIENT_COUNT,   /* backward returned another number of gradients than forward has inputs */
    TGD_DETAIL_GRADIENT_SHAPE,   /* a gradient of another shape, dtype or device than the input */
    TGD_DETAIL_GRADIENT_KIND,    /* something that is no tensor, or a gradient for what is none */
    TGD_DETAIL_GRADIENT_NONE,    /* returned None for an input that backward wants a gradient for */
    TGD_DETAIL_GRADIENT_WRITTEN, /* wrote into the gradient it was given */
    TGD_DETAIL_GRADIENT_HOOK,    /* the same, by a hook */
    TGD_DETAIL_CONSTANT,         /* what forward computed is a constant in the second derivative */
    /* several steps: `other` is a fact */
    TGD_DETAIL_NO_OPTIMIZER,   /* in no optimizer */
    TGD_DETAIL_OPTIMIZES_OLD,  /* an optimizer holds what it has replaced */
    TGD_DETAIL_RATE_ZERO,      /* the learning rate is 0 */
    TGD_DETAIL_NO_SCHEDULER,   /* the same, and the scheduler was never stepped */
    TGD_DETAIL_GRADIENT_ZEROED, /* by zero_grad, between backward and step */
    TGD_DETAIL_GRADIENT_GONE,  /* None when the step came */
    TGD_DETAIL_GRAD_HAS_GRAPH, /* .grad of `count` leaves has a grad_fn */
    TGD_DETAIL_CYCLE,          /* `count` ctx keep an output of their own */
    TGD_DETAIL_GROWS,          /* each step's graph holds those of the steps before */
    TGD_DETAIL_KEPT,           /* tensors of several steps are alive with their graphs */
    TGD_DETAIL_PARALLEL,       /* `count` like parts, joined, and no backward yet */
    TGD_DETAIL_TRIAGE          /* what the measures of a backward prove (triage.c); worded when it was made */
} tgd_detail;

/* The leaf whose storage a saved tensor lives in (itself, or a view of it), or TGD_NONE. */
static inline uint32_t tgd_saved_leaf(const tgd_graph *graph, const tgd_saved_row *saved)
{
    return saved->storage == TGD_NONE ? TGD_NONE : graph->storages[saved->storage].leaf;
}

/* Does backward compute a gradient that it wants from this saved tensor of node v? True where that is not known. */
bool tgd_saved_needed(const tgd_report *report, tgd_node v, uint32_t saved);

/* Byte behind the tensor's last one, in its storage; 0 where that cannot be told. */
uint64_t tgd_saved_end(const tgd_graph *graph, const tgd_saved_row *saved);

/* Was it saved by a custom Function, whose own code decides whether it is ever unpacked? */
static inline bool tgd_saved_is_custom(const tgd_graph *graph, tgd_node v)
{
    const tgd_node_row *row = &graph->nodes[v];
    uint32_t type = row->inner_type != TGD_NONE ? row->inner_type : row->type;
    return graph->types[type].kind == TGD_NODE_PYTHON || graph->types[type].kind == TGD_NODE_CPP;
}

#endif
