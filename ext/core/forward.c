/*
 * Where the forward made the NaN or infinity that a root shows: full recording notes of each op whether what it gave was
 * finite. From the root back over ops that each passed it on, so that the infinities of a mask, which go no further
 * than the softmax behind them, are nobody's fault.
 */
#include "evidence.h"
#include "triage.h"
#include "words.h"

#include <stdlib.h>
#include <string.h>

static bool gave(const tgd_report *report, tgd_node v, uint32_t flag)
{
    return v != TGD_NONE && report->node_forward != NULL && (report->node_forward[v] & flag) != 0;
}

static bool is_class(const tgd_report *report, tgd_node v, const char *stem)
{
    const size_t n = strlen(stem);
    const char *name = tgd_node_class(report, v);
    return strncmp(name, stem, n) == 0 && strncmp(name + n, "Backward", 8) == 0;
}

/* Of two nodes: was a made before b? */
static bool earlier(const tgd_graph *graph, tgd_node a, tgd_node b)
{
    return graph->nodes[a].sequence_nr < graph->nodes[b].sequence_nr;
}

/* Did the op give it itself, or one inside it whose own result was fine? */
static bool same_op(const tgd_report *report, tgd_node a, tgd_node b)
{
    return report->node_op != NULL && report->node_op[a] != NULL && report->node_op[a] == report->node_op[b] &&
           report->node_where[a] == report->node_where[b];
}

static int likelihood(const tgd_report *report, tgd_node v)
{
    return tgd_makes_nonfinite(report, v) ? 2 : (tgd_node_role(report, v) & TGD_ROLE_VIEW) == 0;
}

tgd_status tgd_forward_origin(tgd_node *out, const tgd_report *report, tgd_node v, bool nan, tgd_error *err)
{
    const tgd_graph *graph = &report->graph;
    const uint32_t flag = nan ? TGD_OP_NAN_OUT : TGD_OP_INF_OUT;
    *out = TGD_NONE;
    if (!gave(report, v, flag)) {
        return TGD_OK;
    }
    uint8_t *seen = calloc((size_t)graph->n_nodes + 1, 1);
    tgd_node *list = malloc(((size_t)graph->n_nodes + 1) * sizeof *list);
    if (seen == NULL || list == NULL) {
        free(seen);
        free(list);
        return tgd_fail_memory(err);
    }
    uint32_t n = 1;
    list[0] = v;
    seen[v] = 1;
    for (uint32_t i = 0; i < n; i++) {
        const tgd_node_row *node = &graph->nodes[list[i]];
        bool first = true;
        for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges; e++) {
            const tgd_node to = graph->edges[e].to;
            if (gave(report, to, flag)) {
                first = false;
                if (!seen[to]) {
                    seen[to] = 1;
                    list[n++] = to;
                }
            }
        }
        if (first && (*out == TGD_NONE || earlier(graph, list[i], *out))) {
            *out = list[i];
        }
    }
    for (uint32_t i = 0; i < n; i++) { /* of one op's nodes, the one that can have made it */
        if (same_op(report, list[i], *out) && likelihood(report, list[i]) > likelihood(report, *out)) {
            *out = list[i];
        }
    }
    free(seen);
    free(list);
    return TGD_OK;
}

/* A softmax of what is all -inf makes the NaN itself; others only pass on what an infinity becomes. */
static bool is_softmax(const tgd_report *report, tgd_node v)
{
    return is_class(report, v, "Softmax") || is_class(report, v, "LogSoftmax") || is_class(report, v, "Logsumexp") ||
           strncmp(tgd_node_class(report, v), "ScaledDotProduct", 16) == 0;
}

/* Did it save what it was given, and that was so already? */
static bool was_given(const tgd_report *report, tgd_node v, bool nan)
{
    return (tgd_operands_of(report, v, false) & (nan ? TGD_OPERAND_NAN : TGD_OPERAND_INF)) != 0;
}

/* Infinities that are meant: a mask, filled in or added. */
static bool is_mask(const tgd_report *report, tgd_node v)
{
    return is_class(report, v, "MaskedFill") || is_class(report, v, "Where") || is_class(report, v, "Add") ||
           is_class(report, v, "Sub") || was_given(report, v, false);
}

/* Who made the infinity that v made NaN of: v itself where nobody in the graph did. */
static tgd_status behind(tgd_node *out, const tgd_report *report, tgd_node v, tgd_error *err)
{
    const tgd_graph *graph = &report->graph;
    const tgd_node_row *node = &graph->nodes[v];
    *out = v;
    for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges && !is_softmax(report, v); e++) {
        tgd_node origin = TGD_NONE;
        tgd_status status = graph->edges[e].to == TGD_NONE
                                ? TGD_OK
                                : tgd_forward_origin(&origin, report, graph->edges[e].to, false, err);
        if (status != TGD_OK) {
            return status;
        }
        if (origin != TGD_NONE && !is_mask(report, origin)) {
            *out = *out == v || earlier(graph, origin, *out) ? origin : *out;
        }
    }
    return TGD_OK;
}

tgd_status tgd_forward_culprit(tgd_node *out, const tgd_report *report, tgd_node v, tgd_error *err)
{
    const tgd_graph *graph = &report->graph;
    const tgd_node_row *node = &graph->nodes[v];
    *out = TGD_NONE;
    tgd_node worst = TGD_NONE;
    for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges; e++) {
        tgd_node origin;
        if (graph->edges[e].to == TGD_NONE) {
            continue;
        }
        tgd_status status = tgd_forward_origin(&origin, report, graph->edges[e].to, true, err);
        if (status != TGD_OK) {
            return status;
        }
        worst = origin != TGD_NONE && (worst == TGD_NONE || earlier(graph, origin, worst)) ? origin : worst;
    }
    return worst == TGD_NONE ? TGD_OK : behind(out, report, worst, err);
}

/* ---- the finding ---- */

static const char *hint_of(const tgd_report *report, tgd_node by, bool given)
{
    if (given) {
        return "look at the data and at the weights: this op was given it (torch.isfinite(x).all() tells)";
    }
    if (is_class(report, by, "Mean")) {
        return "the mean of no elements is 0/0: look at what selects them, or leave the term out where there are none";
    }
    if (is_class(report, by, "NllLoss") || is_class(report, by, "NllLoss2D")) {
        return "no target counts (all are ignore_index, or have weight 0), so that their mean is 0/0: skip such a batch, or "
               "use reduction=\"sum\" and divide by at least 1";
    }
    if (is_class(report, by, "CtcLoss")) {
        return "a target is longer than its input can spell, so that its loss is infinite: zero_infinity=True, or leave it out";
    }
    const char *hint = tgd_nonfinite_hint(report, by);
    return hint != NULL ? hint : "look at the values that this op was given: 0, infinity, or beyond the dtype";
}

static tgd_status add(tgd_triage *t, tgd_node first, tgd_node by, bool nan, uint32_t n_roots)
{
    const tgd_report *report = t->report;
    const bool given = by == first && was_given(report, first, nan);
    const bool scaled = !nan && first == report->graph.roots[0].node && tgd_by_scale(&report->graph, first);
    tgd_triage_words words;
    tgd_triage_words_init(&words);
    tgd_text_str(&words.verdict, nan ? "the forward makes a NaN at " : "the forward makes an infinity at ");
    tgd_made_phrase(&words.verdict, report, first);
    if (by != first) {
        tgd_text_str(&words.verdict, ", of the infinity that ");
        tgd_made_phrase(&words.verdict, report, by);
        tgd_text_str(&words.verdict, " made");
    }
    tgd_text_str(&words.message, given ? "of all ops on the way to the root the first that gave " : "");
    tgd_text_str(&words.message, nan ? "NaN" : "infinity");
    tgd_text_str(&words.message, given ? " is that of " : " comes out of the op of ");
    tgd_text_str(&words.message, tgd_node_class(report, first));
    tgd_text_str(&words.message, given        ? "; it was among what that op was given"
                                 : by != first ? ", which was given infinity"
                                               : " first: of the ops before it on the way none gave any");
    tgd_text_str(&words.message, n_roots == 1 ? ". It is in the root" : ". It is in one of the roots");
    tgd_text_str(&words.hint, scaled ? "normal while the scale settles: GradScaler skips this step and halves its scale"
                                     : hint_of(report, by, given));
    tgd_status status = tgd_triage_add(t, nan ? TGD_NAN_FORWARD : TGD_INF_FORWARD, scaled ? TGD_NOTE : TGD_WARNING, first, by,
                                       TGD_NONE, &words);
    tgd_triage_words_drop(&words);
    return status;
}

/* Did v save its one result, which is finite? */
static bool is_fine(const tgd_report *report, tgd_node v)
{
    const tgd_node_row *node = &report->graph.nodes[v];
    for (uint32_t s = node->first_saved; s < node->first_saved + node->n_saved && report->operands != NULL; s++) {
        if (strcmp(report->graph.saved[s].name, "result") == 0) {
            return report->operands[s] == TGD_OPERAND_FINITE;
        }
    }
    return false;
}

/* Per node, what its op gave; of a node inside an op whose own result was read and is fine, nothing. */
static tgd_status take_up(tgd_evidence *evidence)
{
    tgd_report *report = evidence->report;
    const uint32_t all = TGD_OP_NAN_OUT | TGD_OP_INF_OUT;
    bool any = false;
    for (uint32_t i = 0; i < evidence->record->n_ops && !any; i++) {
        any = (evidence->record->ops[i].flags & all) != 0;
    }
    if (!any || report->node_forward != NULL) {
        return TGD_OK;
    }
    report->node_forward = calloc((size_t)report->graph.n_nodes + 1, sizeof *report->node_forward);
    if (report->node_forward == NULL) {
        return tgd_fail_memory(evidence->err);
    }
    for (tgd_node v = 0; v < report->graph.n_nodes; v++) {
        const tgd_op_row *op = tgd_evidence_op(evidence, v);
        report->node_forward[v] = (uint16_t)(op == NULL || is_fine(report, v) ? 0 : op->flags & all);
    }
    return TGD_OK;
}

tgd_status tgd_find_forward(tgd_evidence *evidence)
{
    tgd_report *report = evidence->report;
    tgd_status status = take_up(evidence);
    tgd_triage t = {.report = report, .scale = 1, .err = evidence->err};
    for (uint32_t r = 0; r < report->graph.n_roots && status == TGD_OK; r++) {
        const tgd_root_row *root = &report->graph.roots[r];
        const bool nan = gave(report, root->node, TGD_OP_NAN_OUT);
        const bool inf = gave(report, root->node, TGD_OP_INF_OUT) && root->numel == 1; /* else it may be a mask */
        tgd_node first = TGD_NONE, by;
        if (nan || inf) {
            status = tgd_forward_origin(&first, report, root->node, nan, evidence->err);
        }
        if (status == TGD_OK && first != TGD_NONE) {
            by = first;
            status = nan ? behind(&by, report, first, evidence->err) : TGD_OK;
            return status == TGD_OK ? add(&t, first, by, nan, report->graph.n_roots) : status;
        }
    }
    return status;
}
