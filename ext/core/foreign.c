/*
 * Saved tensors whose bytes are not what they were when the node was made, though no op that PyTorch ran wrote to them:
 * numpy, DLPack, another library. Told by checksums alone.
 */
#include "evidence.h"

#include <stdlib.h>
#include <string.h>

static int by_place(const void *left, const void *right)
{
    const tgd_sorted *x = left, *y = right;
    if (x->a != y->a) {
        return x->a < y->a ? -1 : 1;
    }
    if (x->b != y->b) {
        return x->b < y->b ? -1 : 1;
    }
    return x->c < y->c ? -1 : x->c > y->c;
}

static const tgd_sum_row *sum_when_made(const tgd_evidence *evidence, const tgd_sorted *sums, tgd_node v, uint32_t place)
{
    const tgd_record *record = evidence->record;
    const tgd_node_row *node = &evidence->report->graph.nodes[v];
    uint32_t i = tgd_sorted_from(sums, record->n_sums, node->thread_id, node->sequence_nr);
    for (; i < record->n_sums && sums[i].a == node->thread_id && sums[i].b == node->sequence_nr; i++) {
        if (sums[i].c == place) {
            return &record->sums[sums[i].row];
        }
    }
    return NULL;
}

/* Batch norm counts on in its running statistics, and no gradient reads them. */
static bool may_change(const tgd_saved_row *saved)
{
    return strcmp(saved->name, "running_mean") == 0 || strcmp(saved->name, "running_var") == 0;
}

static bool is_told(const tgd_report *report, uint32_t s)
{
    for (uint32_t i = 0; i < report->n_findings; i++) {
        if (report->findings[i].saved == s) {
            return true;
        }
    }
    return false;
}

static tgd_status judge_node(tgd_evidence *evidence, const tgd_sorted *sums, tgd_node v)
{
    tgd_report *report = evidence->report;
    const tgd_graph *graph = &report->graph;
    const tgd_node_row *node = &graph->nodes[v];
    tgd_status status = TGD_OK;
    for (uint32_t k = 0; k < node->n_saved && status == TGD_OK; k++) {
        uint32_t s = node->first_saved + k;
        const tgd_saved_row *saved = &graph->saved[s];
        const tgd_sum_row *then = graph->sums[s] == 0 ? NULL : sum_when_made(evidence, sums, v, k);
        if (then == NULL || then->sum == graph->sums[s] || then->version != saved->version ||
            saved->state != TGD_SAVED_OK || may_change(saved) || !tgd_saved_needed(report, v, s) || is_told(report, s)) {
            continue;
        }
        const tgd_finding_row row = {.kind = TGD_SILENTLY_MODIFIED, .severity = TGD_ERROR,
                                     .detail = TGD_DETAIL_FOREIGN, .node = v, .saved = s, .parameter = TGD_NONE,
                                     .root = TGD_NONE, .other = TGD_NONE, .where = TGD_NONE,
                                     .group = report->n_groups++};
        status = tgd_report_add(report, row, evidence->err);
    }
    return status;
}

tgd_status tgd_find_foreign(tgd_evidence *evidence)
{
    const tgd_report *report = evidence->report;
    const tgd_record *record = evidence->record;
    if (report->graph.sums == NULL || record->n_sums == 0) {
        return TGD_OK;
    }
    tgd_sorted *sums = malloc((size_t)record->n_sums * sizeof *sums);
    if (sums == NULL) {
        return tgd_fail_memory(evidence->err);
    }
    for (uint32_t i = 0; i < record->n_sums; i++) {
        sums[i] = (tgd_sorted){record->sums[i].thread, record->sums[i].sequence_nr, record->sums[i].place, i};
    }
    qsort(sums, record->n_sums, sizeof *sums, by_place);
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < report->n_executed && status == TGD_OK; i++) {
        if (!tgd_saved_is_custom(&report->graph, report->sequence[i])) {
            status = judge_node(evidence, sums, report->sequence[i]);
        }
    }
    free(sums);
    return status;
}
