/*
 * What the measures of a backward say about the program: where gradients vanish, explode or die, where NaN and infinity
 * are born, and which nodes are slow for no need. Judgement over arrays; nothing is asked of torch.
 */
#ifndef TGD_TRIAGE_H
#define TGD_TRIAGE_H

#include "judge.h"

/* A node on the way of a gradient. */
typedef struct tgd_flow_row {
    double rms;      /* of the gradients it receives: 0 where all are zero, -1 where that is not known */
    double level;    /* decades gained (lost: below 0) since the first linear layer behind the loss */
    tgd_node from;   /* of what sent to it, the node whose own gradient is nearest in size, or TGD_NONE: a root */
    tgd_node jump;   /* of the nodes on the way, the one with the largest gain by itself, or TGD_NONE */
    float gain;      /* of that node, decades */
    bool started;    /* the way has passed a linear layer */
    bool leaf_side;  /* only views are between it and one leaf */
    bool plain;      /* between it and the roots there are only sums, means, scales and views */
} tgd_flow_row;

typedef struct tgd_triage {
    tgd_report *report; /* Borrowed */
    const tgd_measures *measures; /* Borrowed: the report's */
    tgd_flow_row *flow; /* Owned, per node */
    double scale;       /* of a loss scaler, or 1 */
    tgd_error *err;
} tgd_triage;

/* What the class of a node means to a gradient. */
enum {
    TGD_ROLE_VIEW = 1u << 0,    /* the same numbers, in another shape or dtype */
    TGD_ROLE_LINEAR = 1u << 1,  /* a matrix product or convolution */
    TGD_ROLE_SPREAD = 1u << 2,  /* changes how many numbers there are, or belongs to a loss: its gain means nothing */
    TGD_ROLE_SELECT = 1u << 3,  /* its derivative is zero by what the values are: relu, clamp, sign, where */
    TGD_ROLE_SQUASH = 1u << 4,  /* saturates: sigmoid, tanh */
    TGD_ROLE_ATTENTION = 1u << 6, /* its loss of size means nothing, for rows are averaged; a gain does */
    TGD_ROLE_PLAIN = 1u << 5    /* sum, mean, scale: what stands between a hinge and the loss */
};
uint32_t tgd_node_role(const tgd_report *report, tgd_node v);

/* "SqrtBackward0"; of a wrapped node its own */
const char *tgd_node_class(const tgd_report *report, tgd_node v);

/**
 * Adds the findings that the report's measures prove. Where there are none, nothing.
 * @return TGD_OK, TGD_ENOMEM
 */
tgd_status tgd_judge_measures(tgd_report *report, tgd_error *err);

/* ---- what saved tensors held (triage_operands.c) ---- */

enum { TGD_OPERAND_NAN = 1u << 0, TGD_OPERAND_INF = 1u << 1, TGD_OPERAND_ZERO = 1u << 2, /* where that matters */
       TGD_OPERAND_FINITE = 1u << 3 /* looked at, and finite */ };

/* Fills the report's operands while its tensors are alive, for a backward that a recorder sees. */
tgd_status tgd_read_operands(tgd_report *report, tgd_error *err);
tgd_status tgd_copy_operands(tgd_report *to, const tgd_report *from, tgd_error *err);
/* Of all that v saved of its results, or of what it was given. */
uint8_t tgd_operands_of(const tgd_report *report, tgd_node v, bool results);
/* Does its derivative go wrong at zeros that it saved? (triage_births.c) */
bool tgd_minds_zeros(const tgd_report *report, tgd_node v);
/* Of v and of what it was computed from: the node that ran first in the forward and saved what is so; TGD_NONE. */
tgd_status tgd_forward_birth(tgd_node *out, const tgd_report *report, tgd_node v, uint8_t what, tgd_error *err);

/* ---- what the forward gave (forward.c) ---- */

/* The node whose op was the first to give NaN (nan) or infinity on the way to v, each op on it passing that on; v itself
   where it is; TGD_NONE where v's op gave none, or that is not known. */
tgd_status tgd_forward_origin(tgd_node *out, const tgd_report *report, tgd_node v, bool nan, tgd_error *err);
/* The same for the NaN that v was computed from, back to the infinity that it was made of. */
tgd_status tgd_forward_culprit(tgd_node *out, const tgd_report *report, tgd_node v, tgd_error *err);
/* Can its forward make what is not finite of finite numbers, as far as its class tells? What to do, or NULL. */
bool tgd_makes_nonfinite(const tgd_report *report, tgd_node v);
const char *tgd_nonfinite_hint(const tgd_report *report, tgd_node v);
/* Is it the product with a loss scaler's factor? (triage.c) */
bool tgd_by_scale(const tgd_graph *graph, tgd_node v);

/* ---- its parts ---- */

tgd_status tgd_triage_births(tgd_triage *t, bool *any);
tgd_status tgd_triage_zeros(tgd_triage *t);
tgd_status tgd_triage_flow(tgd_triage *t);
tgd_status tgd_triage_slow(tgd_triage *t);

/* The words of a finding while they are put together. Drop in any case. */
typedef struct tgd_triage_words {
    tgd_text message, hint, verdict;
} tgd_triage_words;
void tgd_triage_words_init(tgd_triage_words *words);
void tgd_triage_words_drop(tgd_triage_words *words);

/* Adds a finding at node v, whose line and op are those of `made`. */
tgd_status tgd_triage_add(tgd_triage *t, tgd_finding_kind kind, tgd_severity severity, tgd_node v, tgd_node made,
                          uint32_t parameter, tgd_triage_words *words);

/* "0.00012", "3.4e+12": three figures */
void tgd_number_phrase(tgd_text *text, double value);
/* "sigmoid at net.py:12 (SigmoidBackward0)" */
void tgd_made_phrase(tgd_text *text, const tgd_report *report, tgd_node v);
/* A leaf's name, for a message: "fc.weight", "a leaf (10x3)" */
void tgd_leaf_phrase(tgd_text *text, const tgd_report *report, uint32_t leaf);
/* Leaves that are asked about: those with a name, or all where none has one. */
bool tgd_leaf_counts(const tgd_report *report, uint32_t leaf);

/* ---- for messages.c, hints.c, verdict.c ---- */

static inline bool tgd_is_triage(const tgd_finding_row *row)
{
    return row->detail == TGD_DETAIL_TRIAGE;
}
const char *tgd_triage_message(const tgd_report *report, const tgd_finding_row *row);
const char *tgd_triage_hint(const tgd_report *report, const tgd_finding_row *row);
const char *tgd_triage_verdict(const tgd_report *report, const tgd_finding_row *row);

#endif
