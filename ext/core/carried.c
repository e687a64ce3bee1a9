/*
 * What carried a freed graph into this one. The boundary is the edge from a node that no earlier backward took into one
 * that a backward took and freed: the tensor on it (a hidden state, a running total, shared features) was handed on.
 */
#include "census.h"
#include "evidence.h"

#include <stdlib.h>

/* Did an earlier backward take this node and free it? */
static bool was_freed(const tgd_evidence *evidence, tgd_node v)
{
    const tgd_record *record = evidence->record;
    const tgd_node_row *node = &evidence->report->graph.nodes[v];
    uint32_t i = tgd_sorted_from(evidence->taken, record->n_taken, node->thread_id, node->sequence_nr);
    for (; i < record->n_taken && evidence->taken[i].a == node->thread_id &&
           evidence->taken[i].b == node->sequence_nr;
         i++) {
        for (uint32_t r = 0; r < record->n_runs; r++) {
            if (record->runs[r].time == evidence->taken[i].c && !record->runs[r].keep_graph) {
                return true;
            }
        }
    }
    return false;
}

/* For each node that was freed, the node at the boundary above it. */
static void find_boundaries(const tgd_evidence *evidence, tgd_node *boundary)
{
    const tgd_report *report = evidence->report;
    const tgd_graph *graph = &report->graph;
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        boundary[v] = TGD_NONE;
    }
    for (uint32_t r = 0; r < graph->n_roots; r++) {
        tgd_node v = graph->roots[r].node;
        if (v != TGD_NONE && graph->nodes[v].leaf == TGD_NONE && was_freed(evidence, v)) {
            boundary[v] = v;
        }
    }
    for (uint32_t i = 0; i < report->n_executed; i++) {
        tgd_node u = report->sequence[i];
        const tgd_node_row *row = &graph->nodes[u];
        for (uint32_t e = row->first_edge; e < row->first_edge + row->n_edges; e++) {
            tgd_node v = graph->edges[e].to;
            if (v != TGD_NONE && boundary[v] == TGD_NONE && graph->nodes[v].leaf == TGD_NONE &&
                was_freed(evidence, v)) {
                boundary[v] = boundary[u] == TGD_NONE ? v : boundary[u];
            }
        }
    }
}

static bool is_root(const tgd_graph *graph, tgd_node v)
{
    for (uint32_t r = 0; r < graph->n_roots; r++) {
        if (graph->roots[r].node == v) {
            return true;
        }
    }
    return false;
}

/* The name under which a module keeps the tensor at the boundary; or what the same line has put in its place since. */
static const char *name_of(const tgd_evidence *evidence, const tgd_census *census, tgd_node v)
{
    const tgd_node_row *node = &evidence->report->graph.nodes[v];
    const tgd_op_row *made = tgd_evidence_op(evidence, v);
    const char *same_line = NULL;
    for (size_t i = 0; census != NULL && i < census->n_held; i++) {
        const tgd_held_row *held = &census->held[i];
        if (held->sequence_nr == node->sequence_nr && held->thread == node->thread_id) {
            return held->name;
        }
        const tgd_op_row *op = tgd_evidence_maker(evidence, held->thread, held->sequence_nr);
        if (op != NULL && made != NULL && same_line == NULL && op->name == made->name &&
            op->place.code == made->place.code && op->place.lasti == made->place.lasti) {
            same_line = held->name;
        }
    }
    return same_line;
}

static tgd_status describe(tgd_evidence *evidence, const tgd_census *census, tgd_finding_row *row, tgd_node boundary)
{
    tgd_report *report = evidence->report;
    bool again = is_root(&report->graph, boundary);
    tgd_fact_row fact = {.node = again ? TGD_NONE : boundary, .where = TGD_NONE};
    if (!again) {
        fact.where = report->node_where[boundary];
        fact.op = report->node_op[boundary];
    }
    return tgd_report_fact(report, fact, again ? NULL : name_of(evidence, census, boundary), &row->other,
                           evidence->err);
}

tgd_status tgd_judge_carried(tgd_report *report, const tgd_request *request, tgd_error *err)
{
    bool any = false;
    for (uint32_t i = 0; i < report->n_findings; i++) {
        any = any || report->findings[i].kind == TGD_GRAPH_FREED;
    }
    if (!any || report->record == NULL) {
        return TGD_OK;
    }
    tgd_evidence evidence;
    tgd_status status = tgd_evidence_open(&evidence, report, err);
    tgd_node *boundary = malloc(((size_t)report->graph.n_nodes + 1) * sizeof *boundary);
    if (status == TGD_OK && boundary == NULL) {
        status = tgd_fail_memory(err);
    }
    if (status == TGD_OK) {
        find_boundaries(&evidence, boundary);
    }
    for (uint32_t i = 0; i < report->n_findings && status == TGD_OK; i++) {
        tgd_finding_row *row = &report->findings[i];
        if (row->kind == TGD_GRAPH_FREED && row->node != TGD_NONE && boundary[row->node] != TGD_NONE) {
            status = describe(&evidence, request->census, row, boundary[row->node]);
        }
    }
    free(boundary);
    tgd_evidence_close(&evidence);
    return status;
}
