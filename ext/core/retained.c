/*
 * Graphs that something keeps alive. Ways to see one: a .grad that has a graph of its own; a ctx that keeps its own
 * output; what is alive now (census.h) against when the recorder saw it made; many like parts that wait in one graph.
 */
#include "retained.h"

#include <stdlib.h>
#include <string.h>

tgd_status tgd_retained_add(tgd_evidence *evidence, tgd_finding_row row, const tgd_fact_row *fact,
                            const char *name, const tgd_place *place)
{
    tgd_report *report = evidence->report;
    tgd_status status = tgd_report_fact(report, *fact, name, &row.other, evidence->err);
    if (status == TGD_OK && place != NULL) {
        status = tgd_evidence_source(evidence, place, &row.where);
    }
    row.kind = TGD_RETAINED_GRAPH;
    row.saved = row.root = TGD_NONE;
    row.group = report->n_groups++;
    return status == TGD_OK ? tgd_report_add(report, row, evidence->err) : status;
}

tgd_status tgd_retained_measure(const tgd_graph *graph, tgd_node v, tgd_address_map *counted, tgd_fact_row *fact,
                                tgd_error *err)
{
    const tgd_node_row *node = &graph->nodes[v];
    fact->nodes++;
    for (uint32_t i = node->first_saved; i < node->first_saved + node->n_saved; i++) {
        uint32_t storage = graph->saved[i].storage;
        if (storage == TGD_NONE || graph->storages[storage].leaf != TGD_NONE) {
            continue;
        }
        uint32_t *known = tgd_address_map_at(counted, graph->storages[storage].address);
        if (known == NULL) {
            return tgd_fail_memory(err);
        }
        fact->bytes += *known == TGD_NONE ? graph->storages[storage].bytes : 0;
        *known = 0;
    }
    return TGD_OK;
}

/* ---- .grad with a graph ---- */

/* The backward(create_graph=True) that made this gradient, or NULL. */
static const tgd_run_row *making_run(const tgd_evidence *evidence, const tgd_gradient_row *gradient)
{
    const tgd_record *record = evidence->record;
    const tgd_op_row *op = record == NULL ? NULL
                                          : tgd_evidence_maker(evidence, gradient->thread, gradient->sequence_nr);
    const tgd_run_row *last = NULL;
    for (uint32_t i = 0; op != NULL && i < record->n_runs && record->runs[i].time < op->time; i++) {
        last = record->runs[i].create_graph ? &record->runs[i] : last;
    }
    return last;
}

static uint32_t parameter_of(const tgd_report *report, const tgd_gradient_row *gradient)
{
    for (uint32_t i = 0; i < report->n_parameters; i++) {
        if (report->parameters[i].tensor == (uint64_t)(uintptr_t)gradient->leaf) {
            return i;
        }
    }
    return TGD_NONE;
}

/* One finding for each backward that left some; the first of its leaves stands for all. */
static tgd_status judge_gradients(tgd_evidence *evidence, const tgd_census *census)
{
    const tgd_run_row *told[16];
    size_t n_told = 0;
    tgd_status status = TGD_OK;
    for (size_t i = 0; i < census->n_gradients && status == TGD_OK; i++) {
        const tgd_gradient_row *gradient = &census->gradients[i];
        if (!gradient->has_graph) {
            continue;
        }
        const tgd_run_row *run = making_run(evidence, gradient);
        if (run == NULL && parameter_of(evidence->report, gradient) == TGD_NONE) {
            continue; /* from before the recording, and nobody asks about it */
        }
        bool known = n_told == sizeof told / sizeof *told;
        for (size_t k = 0; k < n_told && !known; k++) {
            known = told[k] == run;
        }
        if (known) {
            continue;
        }
        told[n_told++] = run;
        tgd_fact_row fact = {.where = TGD_NONE, .node = TGD_NONE};
        for (size_t k = i; k < census->n_gradients; k++) {
            fact.count += census->gradients[k].has_graph && making_run(evidence, &census->gradients[k]) == run;
        }
        const tgd_finding_row row = {.severity = TGD_NOTE, .detail = TGD_DETAIL_GRAD_HAS_GRAPH, .node = TGD_NONE,
                                     .parameter = parameter_of(evidence->report, gradient), .where = TGD_NONE,
                                     .culprit = run != NULL};
        status = tgd_retained_add(evidence, row, &fact, NULL, run == NULL ? NULL : &run->place);
    }
    return status;
}

/* ---- ctx with its own output ---- */

static bool was_taken(const tgd_evidence *evidence, const tgd_cycle_row *cycle)
{
    uint32_t n = evidence->record == NULL ? 0 : evidence->record->n_taken;
    uint32_t i = tgd_sorted_from(evidence->taken, n, cycle->thread, cycle->sequence_nr);
    return i < n && evidence->taken[i].a == cycle->thread && evidence->taken[i].b == cycle->sequence_nr;
}

static bool same_place(const tgd_cycle_row *a, const tgd_cycle_row *b)
{
    return a->place.code == b->place.code && a->place.lasti == b->place.lasti && strcmp(a->name, b->name) == 0;
}

/* One finding for each line that stores one. Proved where several outlive their backward, which may yet have broken
   the cycle. */
static tgd_status judge_cycles(tgd_evidence *evidence, const tgd_census *census)
{
    tgd_status status = TGD_OK;
    for (size_t i = 0; i < census->n_cycles && status == TGD_OK; i++) {
        const tgd_cycle_row *cycle = &census->cycles[i];
        bool told = false;
        for (size_t k = 0; k < i && !told; k++) {
            told = same_place(&census->cycles[k], cycle);
        }
        if (told) {
            continue;
        }
        tgd_fact_row fact = {.where = TGD_NONE, .node = TGD_NONE};
        uint32_t outlived = 0;
        for (size_t k = i; k < census->n_cycles; k++) {
            bool same = same_place(&census->cycles[k], cycle);
            fact.count += same;
            outlived += same && was_taken(evidence, &census->cycles[k]);
        }
        const tgd_op_row *op = evidence->record == NULL
                                   ? NULL
                                   : tgd_evidence_maker(evidence, cycle->thread, cycle->sequence_nr);
        const tgd_place *place = cycle->place.code != TGD_NONE ? &cycle->place : op != NULL ? &op->place : NULL;
        const tgd_finding_row row = {.severity = (uint8_t)(outlived >= 3 ? TGD_WARNING : TGD_NOTE),
                                     .detail = TGD_DETAIL_CYCLE, .node = TGD_NONE, .parameter = TGD_NONE,
                                     .where = TGD_NONE, .culprit = true};
        status = tgd_retained_add(evidence, row, &fact, cycle->name, place);
    }
    return status;
}

tgd_status tgd_judge_retained(tgd_report *report, const tgd_request *request, tgd_error *err)
{
    const tgd_census *census = request->census;
    const tgd_record *record = report->later != NULL ? report->later : report->record;
    if (census == NULL) {
        return TGD_OK;
    }
    tgd_evidence evidence = {.report = report, .err = err};
    tgd_status status = record == NULL ? TGD_OK : tgd_evidence_open_record(&evidence, report, record, err);
    if (status == TGD_OK) {
        status = judge_gradients(&evidence, census);
    }
    if (status == TGD_OK && census->whole) {
        status = judge_cycles(&evidence, census);
    }
    if (status == TGD_OK && record != NULL && census->whole) {
        status = tgd_find_growing(&evidence, census);
    }
    if (status == TGD_OK && report->record != NULL && census->whole && !report->attempted) {
        status = tgd_find_parallel(&evidence);
    }
    tgd_evidence_close(&evidence);
    return status;
}
