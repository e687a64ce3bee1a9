/*
 * From any number of nodes to the few boxes that a picture can show.
 *
 * Two steps. tgd_units_make() does the work that grows with the graph: nodes in backward's order, views and casts
 * joined to the op that uses them, leaves taken into their users, module paths guessed from parameter names.
 * tgd_fold_make() then cuts the row of units into at most about `budget` intervals. An interval of a topological
 * order can be contracted without making a cycle, so every edge of the result points to a later box.
 */
#ifndef TGD_FOLD_H
#define TGD_FOLD_H

#include "report.h"

/* A module as the names of parameters tell it: "layer1.0" of "layer1.0.conv1.weight". Row 0 is the whole model. */
typedef struct tgd_module_row {
    const char *name; /* Borrowed from a parameter's name, not terminated */
    uint32_t length;
    uint32_t parent; /* TGD_NONE for row 0 */
    uint32_t depth;
    uint32_t n_children;
} tgd_module_row;

/* What was measured of one unit, or of a box. */
typedef struct tgd_unit_measure {
    double rms;      /* of the gradient that its op received; of a box the worst; 0: all zero; -1: not known */
    double leaf_rms; /* the largest of its parameters' gradients, or -1 */
    uint64_t ns;     /* in its nodes and its leaves */
    bool nan, inf;   /* among those gradients */
} tgd_unit_measure;

typedef struct tgd_units {
    const tgd_report *report; /* Borrowed */
    uint32_t n;
    uint32_t *unit_of;      /* Owned, per node; TGD_NONE for a leaf that stands in its users */
    uint32_t *start;        /* Owned, n + 1: unit u has members[start[u] .. start[u + 1]), in backward's order */
    tgd_node *members;      /* Owned */
    tgd_node *lead;         /* Owned, per unit: its first node that is no view */
    uint64_t *alike;        /* Owned, per unit: hash of its ops */
    uint64_t *same;         /* Owned, per unit: hash of its ops and shapes */
    uint32_t *module;       /* Owned, per unit: in modules */
    uint8_t *named;         /* Owned, per unit: 1 = module comes from parameters of its own */
    uint32_t *finding;      /* Owned, per unit: the most important finding about it, or TGD_NONE */
    uint8_t *must;          /* Owned, per unit: 1 = must be a box of its own */
    uint32_t *cross;        /* Owned, per unit: edges that pass from units up to this one to later ones */
    tgd_module_row *modules; /* Owned */
    uint32_t n_modules, module_capacity;
    uint32_t *number;       /* Owned, per finding: 1, 2, ... over groups and severities, as the text report counts */
    uint32_t n_numbers;
    bool *is_view;          /* Owned, per type */
    tgd_unit_measure *measured; /* Owned, per unit; or NULL: backward was not measured */
    double lowest, highest; /* log10 of all rms and leaf_rms that are neither zero nor infinite */
    uint64_t total_ns;
    uint32_t n_measured;    /* units whose gradient is known */
    uint32_t budget;        /* boxes that were asked for, 0: as many as can be read */
} tgd_units;

/* Needs the report for as long as it lives. */
tgd_status tgd_units_make(tgd_units *out, const tgd_report *report, tgd_error *err);
/* What a view asks for (NULL: nothing): sets budget, and which units must be shown. TGD_OK, TGD_EINVAL, TGD_ENOMEM. */
tgd_status tgd_units_view(tgd_units *units, const tgd_view *view, tgd_error *err);
void tgd_units_clear(tgd_units *units);

typedef enum tgd_fold_form {
    TGD_FOLD_ONE = 0, /* one op, with its views and leaves */
    TGD_FOLD_MODULE,  /* everything of one module */
    TGD_FOLD_REPEAT,  /* `copies` times the same */
    TGD_FOLD_RUN      /* whatever stands between two boxes */
} tgd_fold_form;

typedef enum tgd_fold_state {
    TGD_FOLD_RUNS = 0, /* backward gets here, or would if nothing raised */
    TGD_FOLD_RAISES,   /* backward ends here */
    TGD_FOLD_NEVER     /* backward does not get here */
} tgd_fold_state;

enum { TGD_FOLD_BOXES = TGD_VIEW_MOST, TGD_FOLD_MARKS = 3, TGD_FOLD_LEAVES = 8 };

typedef struct tgd_fold_box {
    uint32_t first_unit, n_units;
    uint32_t n_nodes;  /* leaves not counted */
    uint32_t copies;   /* 1 unless TGD_FOLD_REPEAT */
    bool identical;    /* TGD_FOLD_REPEAT: shapes agree as well */
    tgd_fold_form form;
    tgd_fold_state state;
    tgd_node lead;
    uint32_t context; /* module that was opened to show this box */
    uint32_t module;  /* TGD_FOLD_MODULE: the module; REPEAT of modules: that of the first copy; ONE: its own or
                         TGD_NONE */
    uint32_t last_module; /* REPEAT of modules: that of the last copy */
    uint32_t frame;       /* in frames, or TGD_NONE */
    uint32_t finding;     /* the most important one, or TGD_NONE */
    uint32_t marks[TGD_FOLD_MARKS]; /* numbers of the groups of findings about it, ascending */
    tgd_severity severity[TGD_FOLD_MARKS];
    uint32_t n_marks;
    uint32_t leaves[TGD_FOLD_LEAVES]; /* the first few */
    uint32_t n_leaves;                /* distinct ones, all of them */
    int64_t n_elements;               /* of those leaves */
} tgd_fold_box;

typedef struct tgd_fold_edge {
    uint32_t from, to; /* boxes, from < to */
    uint32_t count;    /* edges of the graph that it stands for */
    bool folded;       /* starts or ends inside a fold */
} tgd_fold_edge;

typedef struct tgd_fold_frame {
    uint32_t module;
    uint32_t first_box, n_boxes;
} tgd_fold_frame;

typedef struct tgd_fold {
    const tgd_units *units; /* Borrowed */
    tgd_fold_box *boxes;    /* Owned, in backward's order, at most TGD_FOLD_BOXES */
    tgd_fold_edge *edges;   /* Owned, by from, then to */
    tgd_fold_frame *frames; /* Owned */
    uint32_t n_boxes, n_edges, n_frames;
    uint32_t n_hidden_edges; /* left out because others lead the same way */
} tgd_fold;

tgd_status tgd_fold_make(tgd_fold *out, const tgd_units *units, uint32_t budget, tgd_error *err);
/* The same of what one box holds: edges to what is outside it are not in the result. */
tgd_status tgd_fold_make_inside(tgd_fold *out, const tgd_units *units, const tgd_fold_box *box, uint32_t budget,
                                tgd_error *err);
void tgd_fold_clear(tgd_fold *fold);

/* False where backward was not measured. */
bool tgd_fold_box_measure(tgd_unit_measure *out, const tgd_fold *fold, uint32_t box);

/* ---- words ---- */

/* Length of "Addmm" in "AddmmBackward0". */
size_t tgd_fold_op_length(const char *name);
/* "Addmm"; "Copy in place" for an in-place op on a view */
void tgd_fold_op(tgd_text *text, const tgd_report *report, tgd_node v);
/* "layer1.0.conv1" relative to its frame, "Relu", "h.0 … h.10", "Mul, Add" */
void tgd_fold_title(tgd_text *text, const tgd_fold *fold, uint32_t box);
/* Whole path of a module, "" for row 0. */
void tgd_module_path(tgd_text *text, const tgd_units *units, uint32_t module);
/* "16×256×8×8", "scalar", "" */
void tgd_fold_shape(tgd_text *text, const tgd_graph *graph, uint32_t shape);
/* "weight" of "fc.weight", "leaf 3×4" for one without a name */
void tgd_fold_leaf(tgd_text *text, const tgd_units *units, uint32_t leaf);

/* ---- between the files of this part ---- */

/* Nodes that are no leaves, and leaves that are roots, into order; returns how many. waiting (zeroed) and heap are
   scratch, one entry a node. */
uint32_t tgd_fold_order(const tgd_graph *graph, tgd_node *order, uint32_t *waiting, tgd_node *heap);
tgd_status tgd_units_name(tgd_units *units, const uint32_t *consumer, tgd_error *err);
/* Fills in measured and what follows it. */
tgd_status tgd_units_measure(tgd_units *units, tgd_error *err);
/* The child of `above` on the way to `module`, TGD_NONE where module is not below it. */
uint32_t tgd_module_below(const tgd_units *units, uint32_t above, uint32_t module);

#endif
