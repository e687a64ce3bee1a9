/*
 * A report: the snapshot, what the simulated backward says about it, and the findings. graphviz/ and json.c read
 * it directly.
 */
#ifndef TGD_REPORT_H
#define TGD_REPORT_H

#include "graph.h"
#include "measure.h"
#include "record.h"
#include "text.h"
#include "values.h"

typedef struct tgd_parameter_row {
    char *name;      /* Owned */
    uint64_t tensor; /* address */
    uint32_t leaf;   /* in graph.leaves, or TGD_NONE: not in this graph */
    tgd_node node;   /* of a tensor that is no leaf: its grad_fn in this graph, or TGD_NONE */
    uint32_t shape;  /* in graph.shapes, or TGD_NONE */
    uint32_t flags;  /* TGD_TENSOR_* */
    int64_t numel;
    tgd_identity identity; /* for the recorder */
    int8_t dtype, device_type, device_index, layout;
    bool reached;    /* backward will give it a gradient */
} tgd_parameter_row;

typedef struct tgd_finding_row {
    uint8_t kind, severity, reason; /* tgd_finding_kind, tgd_severity, tgd_reason */
    uint8_t detail;                 /* which wording, private to the judge that made it (messages.c) */
    tgd_node node;
    uint32_t saved;     /* row in graph.saved, or TGD_NONE */
    uint32_t parameter; /* in parameters, or TGD_NONE */
    uint32_t root;      /* in graph.roots, or TGD_NONE */
    uint32_t group;
    uint32_t other;     /* detail's own: a leaf, a count */
    uint32_t where;     /* in sources, or TGD_NONE */
    const char *op;     /* outermost op that ran there, without namespace, for ever; or NULL */
    bool culprit;       /* op and where are who did it, not the victim's own line */
    uint32_t later;     /* in facts: who wrote to the saved tensor after `where`, in order, each at another place than
                           the one before */
    uint8_t n_later;
    bool more_later;    /* than these */
    bool unsure;        /* a cut that is not proved to lead to the root */
} tgd_finding_row;

/* A place in the user's source, in words. */
typedef struct tgd_source_row {
    char *file, *function, *module, *module_class; /* Owned; "" if unknown */
    int line;
    uint32_t caller; /* 1 + the row of the frame that called it, 0 = none, or not known */
} tgd_source_row;

#define TGD_NODE_ELSEWHERE (TGD_NONE - 1) /* a node that is not in the graph */

/* What a finding says, where that is given and not worded anew: in a report from a file, or a redacted one. */
typedef struct tgd_words_row {
    char *message, *hint; /* Owned; hint may be NULL */
} tgd_words_row;
/* What a finding about several steps says beside its row; a finding's `other` is its index. */
typedef struct tgd_fact_row {
    uint64_t bytes, nodes; /* held: of saved tensors; of the graph */
    uint32_t count, steps; /* tensors or parameters; backwards or steps of an optimizer */
    uint32_t where;        /* a second place, in sources or TGD_NONE */
    tgd_node node;         /* or TGD_NONE */
    const char *op;        /* at `where`, for ever, or NULL */
    char *name;            /* Owned, or NULL */
} tgd_fact_row;

struct tgd_report {
    tgd_graph graph;
    tgd_parameter_row *parameters; /* Owned */
    tgd_finding_row *findings;     /* Owned, most important first */
    uint32_t *order;               /* Owned, per node: place in backward's order, TGD_NONE = not run */
    uint32_t *sequence;            /* Owned, n_executed nodes in that order */
    uint32_t *leaf_parameter;      /* Owned, per leaf: its first parameter, or TGD_NONE */
    char *verdict;                 /* Owned */
    tgd_words_row *words;          /* Owned, per finding; or NULL: messages.c and hints.c word them */
    char *torch;                   /* Owned: what a report from a file was made with; NULL: this torch */
    uint64_t snapshot_bytes;       /* of the report that this one is a copy of; 0: it is none */
    const tgd_record *record;      /* Owned share, or NULL */
    const tgd_record *later;       /* Owned share, or NULL: up to when it was judged again */
    tgd_fact_row *facts;           /* Owned */
    uint64_t asked;                /* in the record's time */
    const tgd_measures *measures;  /* Owned share: of the backward that followed; NULL: nothing was measured */
    char *refused_message;         /* Owned: PyTorch's, of a refused root; or NULL */
    tgd_refusal refusal;           /* where refused is set; message is refused_message */
    tgd_write_row refused_write;   /* refusal.write points here, or is NULL */
    uint8_t *operands;             /* Owned, per saved tensor: TGD_OPERAND_* (triage.h), as before backward; or NULL */
    tgd_event_row *events;         /* Owned: what the run showed that this report was made before */
    size_t n_events;
    tgd_source_row *sources;       /* Owned */
    uint32_t *node_where;          /* Owned, per node: where the forward made it, in sources or TGD_NONE; or NULL */
    const char **node_op;          /* Owned, per node: the op that made it, for ever, or NULL; or NULL */
    tgd_node *node_made_by;        /* Owned, per node: whose backward made it, TGD_NONE, or TGD_NODE_ELSEWHERE; or NULL */
    uint16_t *node_forward;        /* Owned, per node: what its op gave in the forward, TGD_OP_NAN_OUT and so on; or NULL */
    tgd_place_resolver resolve;
    tgd_value_row *values;         /* Owned: what is not finite, in the order of the request */
    char *raised, *occasion;       /* Owned, or NULL: as in tgd_values */
    tgd_ran ran;                   /* when the snapshot was taken */
    uint32_t n_values;
    uint32_t n_sources, source_capacity, n_facts, fact_capacity;
    uint32_t n_traced; /* of the sources, the first: from the program's own anomaly mode */
    uint32_t n_parameters, n_findings, n_executed, n_groups, finding_capacity;
    uint32_t first_error; /* place in the order of the first node that raises, or n_executed */
    uint32_t depth;
    bool has_parameters, create_graph, has_inputs;
    uint32_t lost_input; /* the first of the request's inputs that is not in the graph, or TGD_NONE */
    bool recorded; /* made with a recorder's evidence, even where record is gone */
    bool refused;
    bool attempted, captures; /* as in the request */
    bool root_fails; /* backward refuses the roots themselves */
    bool live;       /* while it is captured: the tensors that rows name by address are alive */
    size_t n_errors, n_warnings, n_notes;
};

/* The default dtype-and-shape phrase: "float32 [3, 4]". */
void tgd_report_tensor_phrase(tgd_text *text, const tgd_graph *graph, int dtype, uint32_t shape);

/* ---- the parts of tgd_report_capture, in order ---- */

/* What a node is to backward(inputs=...). */
enum { TGD_END_NONE = 0, TGD_END_RUNS, TGD_END_TAKES /* its gradient is taken before it runs */ };

/* Backward's order by the engine's own rules. Fills order, sequence, n_executed and depth. end_points is NULL or one
   of the above per node. */
tgd_status tgd_engine_simulate(tgd_report *report, const uint8_t *end_points, tgd_error *err);
/* What became of every saved tensor. */
void tgd_decide_states(tgd_graph *graph, const tgd_lookup *lookup);
/* What the program's own anomaly mode knows of where nodes were made; the same from another report on this graph. */
tgd_status tgd_read_traces(tgd_report *report, const tgd_lookup *lookup, const tgd_request *request, tgd_error *err);
tgd_status tgd_copy_traces(tgd_report *report, const tgd_report *from, tgd_error *err);
/* What PyTorch refused, where the report is about that. */
tgd_status tgd_keep_refusal(tgd_report *report, const tgd_refusal *refusal, tgd_error *err);
tgd_status tgd_judge_refusal(tgd_report *report, tgd_error *err);
/* Findings about saved tensors and nodes. */
tgd_status tgd_judge_nodes(tgd_report *report, tgd_error *err);
/* Findings about the roots. */
tgd_status tgd_judge_roots(tgd_report *report, const tgd_request *request, tgd_error *err);
/* Findings about parameters: reads report->parameters. Must run while the request's tensors are alive. */
tgd_status tgd_judge_parameters(tgd_report *report, tgd_error *err);

/* Room for what is known of where nodes come from (node_where, node_op, node_made_by), nothing at first. */
tgd_status tgd_provenance_begin(tgd_report *report, tgd_error *err);
/* With a record: lines of nodes, who did it, where gradients were cut. Changes and adds findings. Where none says who
   did it, a finding gets its node's own line. */
tgd_status tgd_judge_record(tgd_report *report, tgd_error *err);

/* With a record or a census, about several steps: */
/* what carried a freed graph into this one; */
tgd_status tgd_judge_carried(tgd_report *report, const tgd_request *request, tgd_error *err);
/* graphs that something keeps alive; */
tgd_status tgd_judge_retained(tgd_report *report, const tgd_request *request, tgd_error *err);
/* parameters that have a gradient and do not move. */
tgd_status tgd_judge_weights(tgd_report *report, const tgd_request *request, tgd_error *err);

/* Appends. */
tgd_status tgd_report_add(tgd_report *report, tgd_finding_row row, tgd_error *err);
/* The same; name is copied and may be NULL. *out is its index. */
tgd_status tgd_report_fact(tgd_report *report, tgd_fact_row row, const char *name, uint32_t *out, tgd_error *err);

/* ---- words (messages.c) ---- */
void tgd_message_write(tgd_text *text, const tgd_report *report, size_t finding);
void tgd_hint_write(tgd_text *text, const tgd_report *report, size_t finding);
void tgd_verdict_write(tgd_text *text, const tgd_report *report);
/* "net.py:31" */
void tgd_source_phrase(tgd_text *text, const tgd_source_row *source);
/* "fc.weight" or "a leaf"; "MulBackward0"; "MulBackward0 in CopySlices" */
void tgd_node_phrase(tgd_text *text, const tgd_report *report, tgd_node v);

/* ---- documents ---- */
tgd_status tgd_text_report_write(const tgd_report *report, tgd_sink sink, void *context, tgd_error *err);
/* A text report for a terminal: with colour, and places in the source that can be clicked (text_colour.c). */
void tgd_text_colour(tgd_text *out, const tgd_report *report, const char *plain);
tgd_status tgd_json_write(const tgd_report *report, tgd_sink sink, void *context, tgd_error *err);
/* TGD_EINVAL where nothing was timed. */
tgd_status tgd_chrome_trace_write(const tgd_report *report, tgd_sink sink, void *context, tgd_error *err);
/* The part of the text report about times: how long backward took, and the nodes that took most of it. */
void tgd_slowest_write(tgd_text *text, const tgd_report *report);
/* TGD_FORMAT_GV and TGD_FORMAT_SVG, and the functions of tgd.h that choose a format, are in graphviz/. */

#endif
