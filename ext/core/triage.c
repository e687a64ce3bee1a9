#include "triage.h"

#include "words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_SCALE 64.0 /* of a loss scaler: smaller factors are the program's own */

/* ---- words ---- */

void tgd_number_phrase(tgd_text *text, double value)
{
    if (value == 0 || !isfinite(value)) {
        tgd_text_str(text, value == 0 ? "0" : value > 0 ? "inf" : value < 0 ? "-inf" : "nan");
        return;
    }
    const double magnitude = fabs(value);
    if (magnitude >= 1e-3 && magnitude < 1e4) {
        tgd_text_fixed(text, value, magnitude >= 100 ? 0 : magnitude >= 1 ? 2 : 4);
        return;
    }
    int exponent = (int)floor(log10(magnitude));
    double digits = exponent < -300 ? value * 1e300 / pow(10, exponent + 300) : value / pow(10, exponent);
    tgd_text_fixed(text, digits, 1);
    tgd_text_printf(text, "e%d", exponent);
}

void tgd_made_phrase(tgd_text *text, const tgd_report *report, tgd_node v)
{
    const uint32_t where = report->node_where == NULL ? TGD_NONE : report->node_where[v];
    const char *op = report->node_op == NULL ? NULL : report->node_op[v];
    if (op != NULL) {
        tgd_text_str(text, op);
        tgd_text_str(text, " (");
    }
    tgd_node_phrase(text, report, v);
    tgd_text_str(text, op != NULL ? ")" : "");
    if (where != TGD_NONE) {
        tgd_text_str(text, " at ");
        tgd_source_phrase(text, &report->sources[where]);
    }
}

void tgd_leaf_phrase(tgd_text *text, const tgd_report *report, uint32_t leaf)
{
    const uint32_t parameter = report->leaf_parameter[leaf];
    if (parameter != TGD_NONE) {
        tgd_name_phrase(text, report->parameters[parameter].name);
        return;
    }
    tgd_text_str(text, "a leaf (");
    tgd_report_tensor_phrase(text, &report->graph, report->graph.leaves[leaf].dtype, report->graph.leaves[leaf].shape);
    tgd_text_str(text, ")");
}

bool tgd_leaf_counts(const tgd_report *report, uint32_t leaf)
{
    return report->n_parameters == 0 || report->leaf_parameter[leaf] != TGD_NONE;
}

void tgd_triage_words_init(tgd_triage_words *words)
{
    tgd_text_init(&words->message, NULL, NULL);
    tgd_text_init(&words->hint, NULL, NULL);
    tgd_text_init(&words->verdict, NULL, NULL);
}

void tgd_triage_words_drop(tgd_triage_words *words)
{
    tgd_text_drop(&words->message);
    tgd_text_drop(&words->hint);
    tgd_text_drop(&words->verdict);
}

static tgd_status keep(tgd_triage *t, tgd_text *text, uint32_t *out)
{
    const tgd_fact_row fact = {.node = TGD_NONE, .where = TGD_NONE};
    tgd_text_bytes(text, "", 1);
    return text->status != TGD_OK ? tgd_fail_memory(t->err)
                                  : tgd_report_fact(t->report, fact, text->bytes, out, t->err);
}

tgd_status tgd_triage_add(tgd_triage *t, tgd_finding_kind kind, tgd_severity severity, tgd_node v, tgd_node made,
                          uint32_t parameter, tgd_triage_words *words)
{
    tgd_report *report = t->report;
    tgd_finding_row row = {.kind = (uint8_t)kind, .severity = (uint8_t)severity, .detail = TGD_DETAIL_TRIAGE, .node = v,
                           .saved = TGD_NONE, .parameter = parameter, .root = TGD_NONE, .where = TGD_NONE,
                           .group = report->n_groups};
    if (made != TGD_NONE && report->node_where != NULL) {
        row.where = report->node_where[made];
        row.op = report->node_op == NULL ? NULL : report->node_op[made];
        row.culprit = made != v;
    }
    uint32_t place;
    tgd_status status = keep(t, &words->message, &row.other);
    if (status == TGD_OK) {
        status = keep(t, &words->hint, &place); /* follows the message */
    }
    if (status == TGD_OK) {
        status = keep(t, &words->verdict, &place);
    }
    if (status == TGD_OK) {
        status = tgd_report_add(report, row, t->err);
        report->n_groups++;
    }
    return status;
}

const char *tgd_triage_message(const tgd_report *report, const tgd_finding_row *row)
{
    return report->facts[row->other].name;
}

const char *tgd_triage_hint(const tgd_report *report, const tgd_finding_row *row)
{
    return report->facts[row->other + 1].name;
}

const char *tgd_triage_verdict(const tgd_report *report, const tgd_finding_row *row)
{
    return report->facts[row->other + 2].name;
}

/* ---- the flow of gradients ---- */

static void find_leaf_sides(tgd_triage *t)
{
    const tgd_graph *graph = &t->report->graph;
    for (uint32_t i = t->report->n_executed; i-- > 0;) {
        const tgd_node v = t->report->sequence[i];
        const tgd_node_row *node = &graph->nodes[v];
        if (node->leaf != TGD_NONE) {
            t->flow[v].leaf_side = true;
            continue;
        }
        uint32_t n = 0;
        bool side = (tgd_node_role(t->report, v) & TGD_ROLE_VIEW) != 0;
        for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges; e++) {
            n += graph->edges[e].to != TGD_NONE;
            side = side && (graph->edges[e].to == TGD_NONE || t->flow[graph->edges[e].to].leaf_side);
        }
        t->flow[v].leaf_side = side && n == 1;
    }
}

/* How far, in decades, what v received is from what `to` did. A sum shows its large parts only. */
static double distance(const tgd_triage *t, tgd_node v, tgd_node to)
{
    const tgd_measure_row *row = &t->measures->nodes[to];
    const double rms = row->measured ? tgd_statistics_rms(&row->gradient) : -1, sent = t->flow[v].rms;
    if (rms < 0 || sent < 0 || (sent == 0 && rms > 0)) {
        return 1000;
    }
    return rms == 0 ? (sent == 0 ? 0 : 500 + log10(sent)) : fabs(log10(rms / sent));
}

/* What reached `to` from v: kept where it is nearest, or at a leaf where it lost the least. */
static void arrive(tgd_triage *t, tgd_node v, tgd_node to)
{
    tgd_flow_row *row = &t->flow[to];
    const tgd_flow_row *sender = &t->flow[v];
    bool better = row->from == TGD_NONE;
    if (!better && row->leaf_side) {
        better = sender->level > t->flow[row->from].level;
    } else if (!better) {
        better = distance(t, v, to) < distance(t, row->from, to);
    }
    if (better) {
        row->from = v;
    }
    row->plain = row->plain && sender->plain && (tgd_node_role(t->report, v) & TGD_ROLE_PLAIN);
}

/* Once all that sends to v is known. */
static void settle(tgd_triage *t, tgd_node v)
{
    tgd_flow_row *row = &t->flow[v];
    const tgd_measure_row *measured = &t->measures->nodes[v];
    row->rms = measured->measured ? tgd_statistics_rms(&measured->gradient) : -1;
    if (row->from == TGD_NONE) {
        return;
    }
    const tgd_flow_row *from = &t->flow[row->from];
    const uint32_t role = tgd_node_role(t->report, row->from);
    row->level = from->level;
    row->started = from->started || (role & TGD_ROLE_LINEAR);
    row->jump = from->jump;
    row->gain = from->gain;
    if (row->rms <= 0 || from->rms <= 0) {
        return;
    }
    const double gain = log10(row->rms / from->rms);
    if (!row->leaf_side && from->started) {
        row->level += !(role & TGD_ROLE_SPREAD) ? gain : (role & TGD_ROLE_ATTENTION) && gain > 0 ? gain : 0;
    }
    if (gain > row->gain) {
        row->gain = (float)gain;
        row->jump = row->from;
    }
}

static void follow(tgd_triage *t)
{
    const tgd_graph *graph = &t->report->graph;
    for (uint32_t v = 0; v < graph->n_nodes; v++) {
        t->flow[v] = (tgd_flow_row){.rms = -1, .from = TGD_NONE, .jump = TGD_NONE, .plain = true};
    }
    find_leaf_sides(t);
    for (uint32_t i = 0; i < t->report->n_executed; i++) {
        const tgd_node v = t->report->sequence[i];
        const tgd_node_row *node = &graph->nodes[v];
        settle(t, v);
        for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges; e++) {
            const tgd_edge *edge = &graph->edges[e];
            if (edge->to != TGD_NONE && t->measures->nodes[v].timed &&
                edge->input_nr < graph->nodes[edge->to].n_inputs &&
                t->measures->inputs[graph->nodes[edge->to].first_input + edge->input_nr].received) {
                arrive(t, v, edge->to);
            }
        }
    }
}

/* Was it multiplied by a tensor of one float32? A number in Python becomes a float64. */
bool tgd_by_scale(const tgd_graph *graph, tgd_node v)
{
    const tgd_node_row *node = &graph->nodes[v];
    for (uint32_t s = node->first_saved; s < node->first_saved + node->n_saved; s++) {
        const tgd_saved_row *saved = &graph->saved[s];
        if (saved->tensor != 0 && tgd_graph_numel(graph, saved->shape) == 1 && strcmp(saved->name, "other") == 0 &&
            strcmp(tgd_torch_dtype_name(saved->dtype), "float32") == 0) {
            return true;
        }
    }
    return false;
}

/* A loss that amp.GradScaler multiplied: the first node is its product with a tensor that holds a power of two. */
static void find_scale(tgd_triage *t)
{
    const tgd_report *report = t->report;
    t->scale = 1;
    if (report->graph.n_roots != 1 || report->graph.roots[0].node == TGD_NONE) {
        return;
    }
    bool alone;
    const tgd_node root = report->graph.roots[0].node;
    const tgd_gradient *sent = tgd_measures_sent(report, root, 0, &alone);
    const tgd_measure_row *row = &t->measures->nodes[root];
    if (strcmp(tgd_node_class(report, root), "MulBackward0") != 0 || sent == NULL || !sent->measured || !alone ||
        sent->values.n != 1 || !row->measured || row->gradient.absmax == 0) {
        return;
    }
    int exponent;
    const double scale = sent->values.absmax / row->gradient.absmax;
    if (scale >= LEAST_SCALE && tgd_by_scale(&report->graph, root) && frexp(scale, &exponent) == 0.5) {
        t->scale = scale;
    }
}

/* Did all of it run? Else what is missing looks like what is zero. */
static bool whole(const tgd_triage *t)
{
    for (uint32_t i = 0; i < t->report->n_executed; i++) {
        const tgd_measure_row *row = &t->measures->nodes[t->report->sequence[i]];
        if (!row->timed || row->threw) {
            return false;
        }
    }
    return t->measures->dropped == 0;
}

tgd_status tgd_judge_measures(tgd_report *report, tgd_error *err)
{
    tgd_triage t = {.report = report, .measures = report->measures, .err = err};
    if (t.measures == NULL || t.measures->n_nodes != report->graph.n_nodes || report->n_executed == 0) {
        return TGD_OK;
    }
    t.flow = malloc((size_t)report->graph.n_nodes * sizeof *t.flow);
    if (t.flow == NULL) {
        return tgd_fail_memory(err);
    }
    follow(&t);
    tgd_status status = TGD_OK;
    bool born = false;
    if (t.measures->statistics) {
        find_scale(&t);
        status = tgd_triage_births(&t, &born);
    }
    if (status == TGD_OK && t.measures->statistics && !born && whole(&t)) {
        status = tgd_triage_zeros(&t);
        if (status == TGD_OK) {
            status = tgd_triage_flow(&t);
        }
    }
    if (status == TGD_OK && whole(&t)) {
        status = tgd_triage_slow(&t);
    }
    free(t.flow);
    return status;
}
