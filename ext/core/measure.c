#include "measure.h"

#include "record.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

void tgd_measured_run_keep(const tgd_measured_run *run)
{
    __atomic_add_fetch(&((tgd_measured_run *)run)->shares, 1, __ATOMIC_RELAXED);
}

void tgd_measured_run_free(const tgd_measured_run *run)
{
    tgd_measured_run *owned = (tgd_measured_run *)run;
    if (owned == NULL || __atomic_sub_fetch(&owned->shares, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    free(owned->spans);
    free(owned->gradients);
    free(owned);
}

void tgd_measures_keep(const tgd_measures *measures)
{
    __atomic_add_fetch(&((tgd_measures *)measures)->shares, 1, __ATOMIC_RELAXED);
}

void tgd_measures_free(const tgd_measures *measures)
{
    tgd_measures *owned = (tgd_measures *)measures;
    if (owned == NULL || __atomic_sub_fetch(&owned->shares, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    free(owned->nodes);
    free(owned->inputs);
    free(owned->spans);
    free(owned);
}

/* ---- which node a span is of ---- */

/* A node that counts is known by its number, which never comes again; a leaf by its tensor, which its AccumulateGrad
   keeps alive; any other by its address, which the root keeps. */
static uint64_t node_key(uint64_t sequence_nr, uint64_t thread, uint64_t leaf, uint64_t node)
{
    if (sequence_nr != UINT64_MAX) {
        return tgd_identity_of_output(thread, sequence_nr, 0);
    }
    return leaf != 0 ? leaf : node;
}

static tgd_status learn_nodes(tgd_address_map *nodes, const tgd_graph *graph, tgd_error *err)
{
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        const tgd_node_row *row = &graph->nodes[v];
        uint64_t leaf = row->leaf == TGD_NONE ? 0 : graph->leaves[row->leaf].tensor;
        uint32_t *at = tgd_address_map_at(nodes, node_key(row->sequence_nr, row->thread_id, leaf, row->address));
        if (at == NULL) {
            return tgd_fail_memory(err);
        }
        *at = v;
    }
    return TGD_OK;
}

/* ---- joining ---- */

static void take_gradients(tgd_measures *measures, const tgd_graph *graph, const tgd_measured_run *run,
                           const tgd_span *span, tgd_node v)
{
    const tgd_node_row *node = &graph->nodes[v];
    for (uint32_t k = 0; k < span->n_gradients && k < node->n_inputs; k++) {
        measures->inputs[node->first_input + k] = run->gradients[span->first_gradient + k];
    }
}

void tgd_measures_fill_node(tgd_measures *measures, const tgd_graph *graph, tgd_node v, uint32_t place)
{
    const tgd_node_row *node = &graph->nodes[v];
    const tgd_span *span = &measures->spans[place];
    tgd_measure_row *row = &measures->nodes[v];
    *row = (tgd_measure_row){.began = span->began, .ended = span->ended, .self_ns = span->self_ns,
                             .total_ns = span->total_ns, .after_ns = span->after_ns, .thread = span->thread,
                             .on_device = span->on_device, .repeats = 1, .span = place, .timed = true,
                             .first_use = span->first_use, .threw = span->threw};
    row->median_self_ns = tgd_measure_own_ns(row);
    bool any = false, all = measures->statistics;
    for (uint32_t i = node->first_input; i < node->first_input + node->n_inputs; i++) {
        const tgd_gradient *gradient = &measures->inputs[i];
        any = any || gradient->measured;
        all = all && (gradient->measured || !gradient->received);
        if (gradient->measured) {
            tgd_statistics_add(&row->gradient, &gradient->values);
        }
    }
    row->measured = any && all;
}

void tgd_measures_count_edges(tgd_measures *measures, const tgd_graph *graph)
{
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        if (!measures->nodes[v].timed) {
            continue;
        }
        const tgd_node_row *node = &graph->nodes[v];
        for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges; e++) {
            const tgd_edge *edge = &graph->edges[e];
            if (edge->to != TGD_NONE && edge->input_nr < graph->nodes[edge->to].n_inputs) {
                measures->inputs[graph->nodes[edge->to].first_input + edge->input_nr].n_edges++;
            }
        }
    }
}

static void fill(tgd_measures *measures, const tgd_graph *graph, const tgd_measured_run *run,
                 const tgd_address_map *nodes)
{
    for (uint32_t i = 0; i < run->n_spans; i++) {
        tgd_span *span = &measures->spans[i];
        const uint64_t key = node_key(span->sequence_nr, span->node_thread, span->leaf, span->node);
        tgd_node v = span->run == run->run ? tgd_address_map_find(nodes, key) : TGD_NONE;
        span->in_graph = TGD_NONE;
        if (v != TGD_NONE && !measures->nodes[v].timed) {
            span->in_graph = v;
            take_gradients(measures, graph, run, span, v);
            tgd_measures_fill_node(measures, graph, v, i);
        }
        span->first_gradient = span->n_gradients = 0;
    }
    tgd_measures_count_edges(measures, graph);
}

tgd_status tgd_measures_join(tgd_measures **out, const tgd_graph *graph, const tgd_measured_run *run, tgd_error *err)
{
    tgd_measures *measures = calloc(1, sizeof *measures);
    if (measures == NULL) {
        return tgd_fail_memory(err);
    }
    *measures = (tgd_measures){.shares = 1, .n_nodes = graph->n_nodes, .n_inputs = graph->n_inputs,
                               .n_spans = run->n_spans, .began = run->began, .ended = run->ended, .thread = run->thread,
                               .ours = run->ours,
                               .dropped = run->dropped, .trouble = run->trouble, .statistics = run->statistics};
    measures->nodes = calloc((size_t)graph->n_nodes + 1, sizeof *measures->nodes);
    measures->inputs = calloc((size_t)graph->n_inputs + 1, sizeof *measures->inputs);
    measures->spans = malloc(((size_t)run->n_spans + 1) * sizeof *measures->spans);
    tgd_address_map nodes = {0};
    tgd_status status = TGD_OK;
    if (measures->nodes == NULL || measures->inputs == NULL || measures->spans == NULL) {
        status = tgd_fail_memory(err);
    } else {
        status = learn_nodes(&nodes, graph, err);
    }
    if (status == TGD_OK) {
        for (tgd_node v = 0; v < graph->n_nodes; v++) {
            measures->nodes[v].span = TGD_NONE;
        }
        if (run->n_spans > 0) {
            memcpy(measures->spans, run->spans, run->n_spans * sizeof *run->spans);
        }
        fill(measures, graph, run, &nodes);
        *out = measures;
    } else {
        tgd_measures_free(measures);
    }
    tgd_address_map_clear(&nodes);
    return status;
}

const tgd_gradient *tgd_measures_sent(const tgd_report *report, tgd_node node, size_t k, bool *alone)
{
    const tgd_measures *measures = report->measures;
    const tgd_graph *graph = &report->graph;
    *alone = false;
    if (measures == NULL || k >= graph->nodes[node].n_edges) {
        return NULL;
    }
    const tgd_edge *edge = &graph->edges[graph->nodes[node].first_edge + k];
    if (edge->to == TGD_NONE || !measures->nodes[edge->to].timed ||
        edge->input_nr >= graph->nodes[edge->to].n_inputs) {
        return NULL;
    }
    const tgd_gradient *gradient = &measures->inputs[graph->nodes[edge->to].first_input + edge->input_nr];
    *alone = gradient->n_edges == 1;
    return gradient;
}
