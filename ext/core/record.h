/*
 * What happened, in the order it happened: ops, in-place writes and grad-mode switches, as plain rows. Filled on the
 * threads that run the ops (ext/shim/observe.cpp), frozen by tgd_record_freeze(), and joined to a snapshot by
 * identity when a report is made (culprit.c, cuts.c). Holds no tensor; code objects are interned for ever.
 */
#ifndef TGD_RECORD_H
#define TGD_RECORD_H

#include "address_map.h"
#include "error.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the stack showed at a moment, cheap to take and formatted only when shown. */
enum {
    TGD_VIA_CHECKPOINT = 1u << 0, /* inside the forward of a reentrant checkpoint */
    TGD_VIA_DECORATOR = 1u << 1,  /* called by what decorates a function with no_grad or the like */
    TGD_VIA_PARAMETER = 1u << 2,  /* inside nn.Parameter's constructor */
    TGD_VIA_OPTIMIZER = 1u << 3,  /* inside Optimizer.step */
    TGD_VIA_DDP_INIT = 1u << 4,   /* inside DistributedDataParallel's constructor: its detach means nothing */
    TGD_VIA_COMPILE = 1u << 5,    /* traced by torch.compile: nothing really ran */
    TGD_FIRST_LINE = 1u << 6,     /* the line is the first of the function, its decorator's */
    TGD_VIA_RESTORE = 1u << 7,    /* the end of no_grad or the like: grad mode becomes what it was before */
    TGD_VIA_BY_CHECKPOINT = 1u << 8, /* the reentrant checkpoint itself did it, not what runs inside */
    TGD_AT_RETURN = 1u << 9       /* no moment: the return of code that hands back lasti values */
};

typedef struct tgd_place {
    uint32_t code;   /* index of the code object, TGD_NONE = no Python frame of the user */
    int32_t lasti;   /* in code units */
    uint32_t module; /* index of the nn.Module whose forward runs, TGD_NONE = none */
    uint32_t via;    /* TGD_VIA_* */
    uint32_t stack;  /* number of the stack of callers around it, 0 = not kept, or none */
} tgd_place;

/* Reads the calling thread's stack without the GIL; supplied by the Python binding. */
typedef struct tgd_frame_reader {
    void (*here)(tgd_place *out);       /* the first frame of the user's */
    void (*checkpoint)(tgd_place *out); /* the user's frame that called the reentrant checkpoint we are in */
    void (*decorated)(tgd_place *out);  /* the decorator's line of the function that runs with grad mode off */
    void (*near)(tgd_place *out);       /* as here(), but nothing of via, and no further than the module that runs */
} tgd_frame_reader;

enum {
    TGD_OP_GRAD_MODE = 1u << 0,   /* grad mode was on */
    TGD_OP_INFERENCE = 1u << 1,   /* under inference_mode */
    TGD_OP_FUNCTION = 1u << 2,    /* a custom torch.autograd.Function */
    TGD_OP_CUT = 1u << 3,         /* an input carries grad, and an output does not (or there is none) */
    TGD_OP_THREW = 1u << 4,
    TGD_OP_INTEGER_OUT = 1u << 5, /* the output without grad is integral or bool */
    TGD_OP_IN_BACKWARD = 1u << 6,
    TGD_OP_RESIZED = 1u << 7,     /* of a write: the storage itself was given another size, or the
                                     tensor (unless that is 0) another storage, this one */
    TGD_OP_MADE = 1u << 8,        /* of an op in a backward that makes a graph: maker_nr and maker_thread are set */
    TGD_OP_MASKS = 1u << 9,       /* of a write under saved-tensor hooks: it multiplied by zeros and ones alone */
    TGD_OP_KEEPS_SIGN = 1u << 10, /* the same: by nothing below zero */
    TGD_OP_NAN_OUT = 1u << 11,    /* what it gave held NaN */
    TGD_OP_INF_OUT = 1u << 12,    /* the same of infinity */
    TGD_OP_MARK = 1u << 13        /* of a write: none at all, a step() or zero_grad() of an optimizer began here */
};

/* Identity of a tensor: 0 = none. With bit 63: made by a node, (thread, sequence_nr, output_nr), which never comes
   again. Without: a number given to this very tensor and kept inside it. */
typedef uint64_t tgd_identity;
#define TGD_IDENTITY_NODE (UINT64_C(1) << 63)

static inline tgd_identity tgd_identity_of_output(uint64_t thread, uint64_t sequence_nr, uint32_t output_nr)
{
    return TGD_IDENTITY_NODE | (thread & 0x7FFF) << 48 | (sequence_nr & UINT64_C(0xFFFFFFFFFF)) << 8 |
           (output_nr & 0xFF);
}

typedef struct tgd_op_row {
    uint64_t time;        /* one count for all threads, never 0 */
    uint64_t sequence_nr; /* of the next node of this thread when the op began */
    uint64_t thread;
    const char *name; /* "aten::add_", for ever; a custom Function's class name */
    tgd_place place;
    tgd_place mode;       /* with a cut while grad mode is off: where it was switched off */
    uint64_t inside;      /* TGD_OP_IN_BACKWARD: address of the node that ran; else of the unpack hook in force, 0 = none */
    uint32_t first_id;    /* in ids: inputs, then outputs */
    uint16_t n_in, n_out;
    uint32_t flags; /* TGD_OP_* */
    uint64_t sequence_end; /* the same when it had ended: it made the numbers between; 0: not known */
    uint32_t maker_thread; /* with TGD_OP_MADE: the node that was running, whose backward this op is part of */
    uint64_t maker_nr;
} tgd_op_row;

/* An op that writes to a tensor it was given. */
typedef struct tgd_write_row {
    uint64_t time, ended; /* all the while the op held the tensor; ended 0: with time */
    uint64_t sequence_nr, thread;
    uint64_t version_counter, storage; /* addresses */
    uint64_t tensor;                   /* address */
    int64_t first_byte, end_byte;      /* in the storage */
    tgd_identity identity;             /* of the tensor before the write, 0 = none */
    uint64_t inside;                   /* as in tgd_op_row */
    const char *name;                  /* outermost op that ran at place */
    tgd_place place;
    uint32_t version;  /* before the write */
    uint32_t argument; /* which tensor of a list, for _foreach and fused ops */
    uint32_t flags;    /* TGD_OP_* */
    bool view, leaf;   /* what it wrote to: for a refused one */
    bool dense;        /* its bytes have no gaps */
} tgd_write_row;

/* One backward, or the refusal of one. */
typedef struct tgd_run_row {
    uint64_t time; /* also its number */
    tgd_place place;
    bool keep_graph, create_graph, failed;
} tgd_run_row;

/* A node that a run took, and so freed unless the run keeps the graph. */
typedef struct tgd_taken_row {
    uint64_t sequence_nr, thread;
    uint64_t run; /* time of the run */
} tgd_taken_row;

/* The bytes of a saved tensor when its node was made, in a recording with checksums. */
typedef struct tgd_sum_row {
    uint64_t time;
    uint64_t sequence_nr, thread; /* of the node */
    uint64_t sum;
    uint32_t place;   /* the how-manieth of what the node saved */
    uint32_t version; /* of the tensor */
} tgd_sum_row;

/* What only shows while a backward runs. Nodes and storages by address: the run keeps them alive. */
typedef enum tgd_event_kind {
    TGD_EVENT_WRITTEN, /* code that a node (or a hook of it) ran wrote into a gradient that came to the node */
    TGD_EVENT_MET,     /* a gradient of the run's own, written before, came to this node as well */
    TGD_EVENT_LACKED,  /* no gradient at all came to this node; or not all, and it is written in Python */
    TGD_EVENT_STOPPED  /* the last node that ran before the run failed */
} tgd_event_kind;

typedef struct tgd_event_row {
    uint64_t time, run;
    uint64_t node, storage;
    const char *name; /* of a write: outermost op that ran at place */
    tgd_place place;
    tgd_event_kind kind;
    bool shared;      /* of a write: somebody beside the node held that gradient when the node began */
    bool of_root;     /* of a write: it lives in the storage of a gradient that the run was started with */
    bool by_hook;     /* of a write: before the node began */
} tgd_event_row;

/* What a run left to be said when it had ended. */
typedef struct tgd_aftermath {
    const tgd_event_row *events; /* Borrowed for the call */
    size_t n_events;
} tgd_aftermath;

/* What a node itself remembers of the light level: where and when it was made, and of the runs that freed what they
   took the first one through it and the newest (0: none). */
typedef struct tgd_node_origin {
    tgd_place place;
    uint64_t time; /* 0: nothing is known */
    uint64_t first_run, last_run;
} tgd_node_origin;

/* Never changes once it is taken; shared by the reports that use it. */
typedef struct tgd_record {
    unsigned shares; /* changed by tgd_record_keep() and _free() alone, atomically */
    tgd_op_row *ops;       /* Owned, by time */
    tgd_write_row *writes; /* Owned, by time */
    tgd_run_row *runs;     /* Owned, by time */
    tgd_taken_row *taken;  /* Owned, unordered between threads */
    tgd_sum_row *sums;     /* Owned, unordered between threads */
    tgd_identity *ids;     /* Owned */
    uint32_t n_ops, n_writes, n_runs, n_taken, n_sums, n_ids;
    uint64_t dropped; /* rows that did not fit: the record has holes */
    uint64_t began;   /* time of the first moment it covers */
    uint64_t full_since; /* from then on ops has every op; before, only those that can end a gradient.
                            UINT64_MAX: only those */
} tgd_record;

/* One more owner. */
void tgd_record_keep(const tgd_record *record);
/* One owner less. Accepts NULL. */
void tgd_record_free(const tgd_record *record);

/* What a place is called. Strings are borrowed for the call and copied by the core. */
typedef struct tgd_source {
    const char *file, *function, *module, *module_class; /* "" if unknown */
    int line;                                            /* 0 if unknown */
    bool called;                                         /* caller is known */
    tgd_place caller;                                    /* the user's frame that called it */
} tgd_source;

/* A report about something PyTorch refused: an in-place write in the forward, or a root of backward. */
typedef struct tgd_refusal {
    const tgd_write_row *write; /* NULL: a root was refused */
    const char *message;        /* PyTorch's own, with a refused root */
    tgd_place place;            /* with a refused root */
} tgd_refusal;

struct tgd_report;
/* Does the report's record reach back to every node of its graph? */
bool tgd_report_covered(const struct tgd_report *report);

/* Supplied by the Python binding; takes the GIL itself. Returns 0 where nothing is known of the place. */
typedef int (*tgd_place_resolver)(const tgd_place *place, tgd_source *out);

#ifdef __cplusplus
}
#endif
#endif
