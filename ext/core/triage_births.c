/* Where NaN and infinity are born: nodes that received finite gradients and sent what is not finite. */
#include "triage.h"

#include "words.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BIRTHS = 5, LONGEST_WAY = 64 };

typedef enum mark { FINITE = 0, INFINITE, NOT_A_NUMBER } mark;

static mark mark_of(const tgd_statistics *s)
{
    return s->n_nan > 0 ? NOT_A_NUMBER : s->n_inf > 0 ? INFINITE : FINITE;
}

typedef struct cause {
    const char *stem;  /* of the class */
    const char *what;  /* what its derivative does */
    const char *hint;
    bool makes;        /* its forward makes NaN or inf of finite numbers */
    bool at_zero;      /* it is zeros among what it saved that do it */
} cause;

static const cause causes[] = {
    {"Sqrt", "the derivative of sqrt at 0 is infinite",
     "add an epsilon inside the root: (x + eps).sqrt()", true, true},
    {"Rsqrt", "1/sqrt(x) and its derivative are infinite at 0",
     "add the epsilon before rsqrt: torch.rsqrt(x + eps); a clamp afterwards repairs the value only", true, false},
    {"LinalgVectorNorm", "the derivative of a norm at the zero vector divides 0 by 0",
     "add an epsilon inside: (x.square().sum() + eps).sqrt()", false, true},
    {"Norm", "the derivative of a norm at the zero vector divides 0 by 0",
     "add an epsilon inside: (x.square().sum() + eps).sqrt()", false, true},
    {"Cdist", "the derivative of a distance of 0 divides 0 by 0",
     "add an epsilon to the distance, or leave out the diagonal", false, true},
    {"Log", "the derivative of log is infinite at 0",
     "use log_softmax(x) instead of log(softmax(x)), logsigmoid instead of log(sigmoid), or clamp the "
     "input: x.clamp(min=eps).log()", true, true},
    {"Log2", "the derivative of log2 is infinite at 0", "clamp the input: x.clamp(min=eps)", true, true},
    {"Log10", "the derivative of log10 is infinite at 0", "clamp the input: x.clamp(min=eps)", true, true},
    {"Log1P", "the derivative of log1p is infinite at -1", "clamp the input above -1", true, false},
    {"Pow", "the derivative of x**p with p < 1 is infinite at 0",
     "add an epsilon to the base: (x + eps) ** p", true, true},
    {"Div", "it divides by zero",
     "add an epsilon to the denominator, or replace zeros in it (torch.where) before dividing", true, true},
    {"Reciprocal", "it divides by zero", "add an epsilon to the denominator", true, false},
    {"Softmax", "a row that is all -inf (fully masked) has no softmax: 0/0",
     "leave at least one entry of every row unmasked, or mask with a large finite number "
     "(torch.finfo(x.dtype).min) and zero the row afterwards", true, false},
    {"LogSoftmax", "a row that is all -inf has no softmax: 0/0",
     "leave at least one entry of every row unmasked, or mask with a large finite number", true, false},
    {"Logsumexp", "a row that is all -inf has no logsumexp derivative: exp(-inf + inf)",
     "replace the rows before (torch.where with a finite number), or use a large negative number "
     "instead of -inf", false, false},
    {"Logcumsumexp", "what is -inf has no derivative here",
     "use a large negative number instead of -inf", false, false},
    {"Std", "the deviation of one sample, or of equal values, has no derivative: it divides by 0",
     "use at least two samples or correction=0 (unbiased=False), and add an epsilon: (x.var() + "
     "eps).sqrt()", true, true},
    {"Var", "the variance of one sample divides by 0",
     "use at least two samples, or correction=0 (unbiased=False)", true, false},
    {"StdMean", "the deviation of one sample, or of equal values, has no derivative",
     "use correction=0, and add an epsilon", true, false},
    {"Acos", "the derivative of acos is infinite at -1 and 1", "clamp the input just inside (-1, 1)", true, false},
    {"Asin", "the derivative of asin is infinite at -1 and 1", "clamp the input just inside (-1, 1)", true, false},
    {"Atanh", "the derivative of atanh is infinite at -1 and 1", "clamp the input just inside (-1, 1)", true, false},
    {"Acosh", "the derivative of acosh is infinite at 1", "keep the input above 1", true, false},
    {"Atan2", "atan2(0, 0) has no derivative", "replace pairs of zeros before (torch.where)", false, false},
    {"Exp", "exp overflows", "subtract the maximum before exp, clamp its input, or use logsumexp", true, false},
    {"Expm1", "exp overflows", "clamp the input", true, false},
    {"LinalgSvd", "the derivative of singular vectors divides by the differences of singular values: two are "
     "equal, or zero",
     "use only the singular values (torch.linalg.svdvals), add a little noise, or another "
     "parametrisation", false, false},
    {"LinalgEigh", "the derivative of eigenvectors divides by the differences of eigenvalues: two are equal",
     "use only the eigenvalues (torch.linalg.eigvalsh), or add a little noise", false, false},
    {"LinalgQr", "the matrix is singular, so that its factor has no inverse",
     "add a little noise or a ridge", false, false},
    {"LinalgInvEx", "the matrix is singular", "add a ridge: A + eps * I", true, false},
    {"LinalgSolveEx", "the matrix is singular", "add a ridge: A + eps * I", true, false},
    {"LinalgCholeskyEx", "the matrix is not positive definite", "add a ridge: A + eps * I", true, false},
    {"Prod", "a product with zeros or huge factors", "use the sum of logarithms", true, true},
    {"Mul", "0 times infinity, or a product that overflows",
     "keep infinities out of the factors: replace them before the product (torch.where, masked_fill, "
     "torch.xlogy for x * log y); a nan_to_num or where afterwards repairs the value only", true, false},
    {"Where", "it hides a branch that is not finite",
     "make the input of the hidden branch safe before it, with a second where", false, false},
    {"Mm", "a matrix that is not finite comes into it",
     "find what made the NaN or infinity before this product", false, false},
    {"Bmm", "a matrix that is not finite comes into it",
     "find what made the NaN or infinity before this product", false, false},
    {"Addmm", "a matrix that is not finite comes into it",
     "find what made the NaN or infinity before this product", false, false},
    {"Convolution", "a tensor that is not finite comes into it",
     "find what made the NaN or infinity before it", false, false},
};

static const cause *cause_of(const tgd_report *report, tgd_node v)
{
    const char *name = tgd_node_class(report, v);
    const char *end = strstr(name, "Backward");
    const size_t n = end == NULL ? strlen(name) : (size_t)(end - name);
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++) {
        if (strncmp(causes[i].stem, name, n) == 0 && causes[i].stem[n] == '\0') {
            return &causes[i];
        }
    }
    return NULL;
}

bool tgd_minds_zeros(const tgd_report *report, tgd_node v)
{
    const cause *is = cause_of(report, v);
    return is != NULL && is->at_zero;
}

const char *tgd_nonfinite_hint(const tgd_report *report, tgd_node v)
{
    const cause *is = cause_of(report, v);
    return is == NULL ? NULL : is->hint;
}

/* ---- what came in wrong ---- */

/* Of a product: the edges whose gradient is computed from the other operands. */
static bool is_product(const tgd_report *report, tgd_node v)
{
    const char *name = tgd_node_class(report, v);
    return (tgd_node_role(report, v) & TGD_ROLE_LINEAR) || strncmp(name, "MulBackward", 11) == 0;
}

bool tgd_makes_nonfinite(const tgd_report *report, tgd_node v)
{
    const cause *is = cause_of(report, v);
    return is != NULL && is->makes && !is_product(report, v);
}

/* The nearest op behind edge k of v that can make what is not finite, or TGD_NONE. */
static tgd_node maker_behind(const tgd_report *report, tgd_node v, uint32_t k)
{
    const tgd_graph *graph = &report->graph;
    tgd_node at = graph->edges[graph->nodes[v].first_edge + k].to;
    for (int i = 0; i < LONGEST_WAY && at != TGD_NONE; i++) {
        const cause *is = cause_of(report, at);
        if (is != NULL && is->makes && !is_product(report, at)) {
            return at;
        }
        const uint32_t role = tgd_node_role(report, at);
        const bool select = (role & TGD_ROLE_SELECT) != 0;
        if (select || (is != NULL && !is_product(report, at)) ||
            !(role & (TGD_ROLE_VIEW | TGD_ROLE_SPREAD | TGD_ROLE_PLAIN))) {
            return TGD_NONE;
        }
        const tgd_node_row *node = &graph->nodes[at];
        tgd_node next = TGD_NONE;
        for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges; e++) {
            const tgd_node to = graph->edges[e].to;
            next = next == TGD_NONE && to != TGD_NONE && graph->nodes[to].leaf == TGD_NONE ? to : next;
        }
        at = next;
    }
    return TGD_NONE;
}

/* Who made the operand that spoiled the gradients of the product v: behind an edge whose own gradient is fine. */
static tgd_node guilty(const tgd_triage *t, tgd_node v)
{
    const tgd_report *report = t->report;
    const tgd_node_row *node = &report->graph.nodes[v];
    tgd_node first;
    if (tgd_forward_culprit(&first, report, v, NULL) == TGD_OK && first != TGD_NONE) {
        return first;
    }
    if (tgd_forward_birth(&first, report, v, TGD_OPERAND_NAN, NULL) == TGD_OK && first != TGD_NONE) {
        if (tgd_operands_of(report, first, false) & TGD_OPERAND_NAN) { /* it was given one */
            tgd_node maker = TGD_NONE;
            for (uint32_t k = 0; k < report->graph.nodes[first].n_edges && maker == TGD_NONE; k++) {
                maker = maker_behind(report, first, k);
            }
            return maker == TGD_NONE ? first : maker;
        }
        return first;
    }
    for (uint32_t k = 0; k < node->n_edges; k++) {
        const tgd_node maker = maker_behind(report, v, k);
        if (maker != TGD_NONE && (tgd_operands_of(report, maker, true) & TGD_OPERAND_INF) &&
            strncmp(tgd_node_class(report, maker), "LogSoftmax", 10) != 0) { /* which only passes on what a mask made */
            return maker;
        }
    }
    if (!is_product(report, v)) {
        return v;
    }
    for (int fine = 1; fine >= 0; fine--) {
        for (uint32_t k = 0; k < node->n_edges; k++) {
            bool alone;
            const tgd_gradient *sent = tgd_measures_sent(report, v, k, &alone);
            const bool bad = sent != NULL && sent->measured && mark_of(&sent->values) != FINITE;
            const tgd_node maker = bad == (fine == 0) ? maker_behind(report, v, k) : TGD_NONE;
            if (maker != TGD_NONE && strncmp(tgd_node_class(report, v), "Mul", 3) != 0) {
                return maker;
            }
        }
    }
    return v;
}

/* ---- births ---- */

/* The worst that v sent where it alone sends; *shared: of the sums that it is one part of. */
static mark sent_by(const tgd_triage *t, tgd_node v, mark *shared)
{
    mark worst = FINITE;
    *shared = FINITE;
    for (uint32_t k = 0; k < t->report->graph.nodes[v].n_edges; k++) {
        bool alone;
        const tgd_gradient *sent = tgd_measures_sent(t->report, v, k, &alone);
        const mark m = sent == NULL || !sent->measured ? FINITE : mark_of(&sent->values);
        if (alone) {
            worst = m > worst ? m : worst;
        } else {
            *shared = m > *shared ? m : *shared;
        }
    }
    return worst;
}

typedef struct birth {
    tgd_node v;
    mark is;
    int likely;
} birth;

/* How likely v spoils a sum that it has a part in. */
static int likelihood(const tgd_triage *t, tgd_node v)
{
    const uint32_t role = tgd_node_role(t->report, v);
    const cause *is = cause_of(t->report, v);
    const uint8_t held = tgd_operands_of(t->report, v, true) | tgd_operands_of(t->report, v, false);
    if ((role & (TGD_ROLE_SELECT | TGD_ROLE_VIEW)) || ((role & TGD_ROLE_PLAIN) && is == NULL)) {
        return 0; /* finite numbers stay so */
    }
    return 1 + (is != NULL && is->at_zero) + 2 * (is != NULL && is->at_zero && (held & TGD_OPERAND_ZERO)) +
           4 * ((held & (TGD_OPERAND_NAN | TGD_OPERAND_INF)) != 0);
}

/* Has the sum that v has a part in a part that surely is not finite? */
static bool explained(const tgd_triage *t, tgd_node v, const uint8_t *spoils)
{
    const tgd_graph *graph = &t->report->graph;
    const tgd_node_row *node = &graph->nodes[v];
    for (uint32_t k = 0; k < node->n_edges; k++) {
        bool alone;
        const tgd_gradient *sent = tgd_measures_sent(t->report, v, k, &alone);
        const tgd_node to = graph->edges[node->first_edge + k].to;
        if (sent != NULL && sent->measured && !alone && mark_of(&sent->values) != FINITE && spoils[to]) {
            return true;
        }
    }
    return false;
}

static void mark_spoilt(const tgd_triage *t, tgd_node v, uint8_t *spoils)
{
    const tgd_graph *graph = &t->report->graph;
    for (uint32_t e = graph->nodes[v].first_edge; e < graph->nodes[v].first_edge + graph->nodes[v].n_edges; e++) {
        if (graph->edges[e].to != TGD_NONE) {
            spoils[graph->edges[e].to] = 1;
        }
    }
}

static void write_counts(tgd_text *text, const tgd_statistics *s)
{
    if (s->n_nan > 0) {
        tgd_text_count(text, s->n_nan);
        tgd_text_str(text, " NaN");
    }
    if (s->n_inf > 0) {
        tgd_text_str(text, s->n_nan > 0 ? " and " : "");
        tgd_text_count(text, s->n_inf);
        tgd_text_str(text, " infinite");
    }
    tgd_text_str(text, " of ");
    tgd_text_count(text, s->n);
    tgd_text_str(text, s->n == 1 ? " element" : " elements");
}

static const tgd_statistics *worst_sent(const tgd_triage *t, tgd_node v)
{
    const tgd_statistics *worst = NULL;
    for (uint32_t k = 0; k < t->report->graph.nodes[v].n_edges; k++) {
        bool alone;
        const tgd_gradient *sent = tgd_measures_sent(t->report, v, k, &alone);
        if (sent != NULL && sent->measured && (worst == NULL || mark_of(&sent->values) > mark_of(worst))) {
            worst = &sent->values;
        }
    }
    return worst;
}

/* ", and its saved self contains zeros" */
static void write_operands(tgd_text *text, const tgd_report *report, tgd_node v, const cause *is)
{
    const tgd_graph *graph = &report->graph;
    const tgd_node_row *node = &graph->nodes[v];
    const uint8_t which = (uint8_t)(TGD_OPERAND_NAN | TGD_OPERAND_INF |
                                    (is != NULL && is->at_zero ? (unsigned)TGD_OPERAND_ZERO : 0u));
    for (uint32_t s = node->first_saved; s < node->first_saved + node->n_saved && report->operands != NULL; s++) {
        const uint8_t held = report->operands[s] & which;
        if (held != 0) {
            tgd_text_str(text, "; its saved ");
            tgd_saved_name_phrase(text, &graph->saved[s]);
            tgd_text_str(text, held & TGD_OPERAND_NAN   ? " holds NaN"
                               : held & TGD_OPERAND_INF ? " holds infinity"
                                                        : " holds zeros");
        }
    }
}

static tgd_status add(tgd_triage *t, const birth *b)
{
    const tgd_report *report = t->report;
    const tgd_node by = guilty(t, b->v);
    const cause *is = cause_of(report, by);
    const bool nan = b->is == NOT_A_NUMBER, scaled = t->scale > 1 && !nan;
    tgd_triage_words words;
    tgd_triage_words_init(&words);
    tgd_text_str(&words.verdict, nan ? "gradients become NaN at " : "gradients become infinite at ");
    tgd_made_phrase(&words.verdict, report, b->v);
    if (by != b->v) {
        tgd_text_str(&words.verdict, ", for what ");
        tgd_made_phrase(&words.verdict, report, by);
        tgd_text_str(&words.verdict, " made is not finite");
    }
    tgd_text_str(&words.message, "a finite gradient (rms ");
    tgd_number_phrase(&words.message, tgd_statistics_rms(&t->measures->nodes[b->v].gradient) / t->scale);
    tgd_text_str(&words.message, t->scale > 1 ? ", unscaled) goes into " : ") goes into ");
    tgd_text_str(&words.message, tgd_node_class(report, b->v));
    tgd_text_str(&words.message, " and what comes out is not finite: ");
    const tgd_statistics *sent = worst_sent(t, b->v);
    if (sent != NULL) {
        write_counts(&words.message, sent);
    }
    if (is != NULL) {
        tgd_text_str(&words.message, "; ");
        tgd_text_str(&words.message, is->what);
    }
    write_operands(&words.message, report, by, is);
    if (t->scale > 1) {
        tgd_text_str(&words.message, "; the loss was multiplied by ");
        tgd_number_phrase(&words.message, t->scale);
    }
    if (scaled) {
        tgd_text_str(&words.hint, "normal while the scale settles: GradScaler skips this step and halves its scale; if it goes "
                                  "on, the forward overflows float16 here");
    } else {
        tgd_text_str(&words.hint, is != NULL ? is->hint
                                             : "look at the values that this op was given: 0, infinity, or beyond the dtype");
    }
    tgd_status status = tgd_triage_add(t, nan ? TGD_NAN_GRADIENT : TGD_INF_GRADIENT, scaled ? TGD_NOTE : TGD_ERROR,
                                       b->v, by, TGD_NONE, &words);
    tgd_triage_words_drop(&words);
    return status;
}

tgd_status tgd_triage_births(tgd_triage *t, bool *any)
{
    const tgd_report *report = t->report;
    uint8_t *spoils = calloc((size_t)report->graph.n_nodes + 1, 1);
    birth births[MOST_BIRTHS];
    uint32_t n = 0;
    *any = false;
    if (spoils == NULL) {
        return tgd_fail_memory(t->err);
    }
    for (int sure = 1; sure >= 0 && n == 0; sure--) {
        for (uint32_t i = 0; i < report->n_executed && n < MOST_BIRTHS; i++) {
            const tgd_node v = report->sequence[i];
            const tgd_measure_row *row = &t->measures->nodes[v];
            if (!row->timed || report->graph.nodes[v].leaf != TGD_NONE) {
                continue;
            }
            const mark in = row->measured ? mark_of(&row->gradient) : FINITE;
            mark shared;
            const mark out = sent_by(t, v, &shared);
            *any = *any || in != FINITE;
            if (in != FINITE) {
                mark_spoilt(t, v, spoils);
            } else if (row->measured && out != FINITE) {
                births[n++] = (birth){v, out, 9};
                mark_spoilt(t, v, spoils);
            } else if (row->measured && shared != FINITE && sure == 0 && !explained(t, v, spoils)) {
                const birth b = {v, shared, likelihood(t, v)};
                if (n == 0 || b.likely > births[0].likely) {
                    births[0] = b; /* one of these; which is not measured */
                    n = 1;
                }
            }
        }
    }
    free(spoils);
    *any = *any || n > 0;
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < n && status == TGD_OK; i++) {
        status = add(t, &births[i]);
    }
    return status;
}
