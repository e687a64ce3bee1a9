/*
 * Who changed a saved tensor. A write is a culprit when it bears the saved tensor's version counter, began at a version
 * the tensor had after it was saved, and ended later than the node was made: from then on the saved tensor itself, or
 * the op that saved it and then wrote to it, keeps counter and storage alive, so that their addresses cannot have been
 * anybody else's. Of several at one version the last is meant: what a custom Function writes to before it saves may
 * have had the address of what it saves.
 */
#include "evidence.h"

#include <string.h>

/* When a node was made; 0: before the recorder began. False: its row is gone, and nothing can be concluded. */
static bool made_at(const tgd_evidence *evidence, tgd_node v, uint64_t *time)
{
    *time = tgd_evidence_made(evidence, v);
    return *time != 0 || evidence->record->dropped == 0;
}

enum { MOST_LATER = 3, MOST_WRITES = 4096 };

/* The first write that moved the version on from `version` or a higher one. */
static const tgd_write_row *first_write(const tgd_evidence *evidence, const tgd_saved_row *saved, uint32_t version,
                                        uint64_t since)
{
    const tgd_record *record = evidence->record;
    uint32_t i = tgd_sorted_from(evidence->by_counter, record->n_writes, saved->version_counter, version);
    const tgd_write_row *found = NULL;
    for (; i < record->n_writes && evidence->by_counter[i].a == saved->version_counter &&
           evidence->by_counter[i].b < saved->version;
         i++) {
        const tgd_write_row *write = &record->writes[evidence->by_counter[i].row];
        if (found != NULL && write->version != found->version) {
            break;
        }
        if ((write->time > since || write->ended > since) && !(write->flags & TGD_OP_THREW)) {
            found = write;
        }
    }
    return found;
}

static const tgd_write_row *detaching_write(const tgd_evidence *evidence, const tgd_saved_row *saved, uint64_t since)
{
    const tgd_record *record = evidence->record;
    uint32_t i = tgd_sorted_from(evidence->by_counter, record->n_writes, saved->version_counter, 0);
    for (; i < record->n_writes && evidence->by_counter[i].a == saved->version_counter; i++) {
        const tgd_write_row *write = &record->writes[evidence->by_counter[i].row];
        if (write->time > since && write->tensor == saved->tensor &&
            strcmp(tgd_bare_name(write->name), "detach_") == 0) {
            return write;
        }
    }
    return NULL;
}

static const tgd_run_row *run_at(const tgd_record *record, uint64_t time)
{
    uint32_t low = 0, high = record->n_runs;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (record->runs[middle].time < time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < record->n_runs && record->runs[low].time == time ? &record->runs[low] : NULL;
}

/* The run that freed a node: the first one through it that did not keep the graph. */
static const tgd_run_row *freeing_run(const tgd_evidence *evidence, tgd_node v)
{
    const tgd_record *record = evidence->record;
    const tgd_node_origin *origin = tgd_evidence_origin(evidence, v);
    if (origin != NULL && origin->first_run != 0) {
        const tgd_run_row *run = run_at(record, origin->first_run);
        /* One that failed may not have come as far as this node; then a later one freed it. */
        return run != NULL && run->failed && origin->first_run != origin->last_run ? NULL : run;
    }
    const tgd_node_row *node = &evidence->report->graph.nodes[v];
    uint32_t i = tgd_sorted_from(evidence->taken, record->n_taken, node->thread_id, node->sequence_nr);
    for (; i < record->n_taken && evidence->taken[i].a == node->thread_id &&
           evidence->taken[i].b == node->sequence_nr;
         i++) {
        for (uint32_t r = 0; r < record->n_runs; r++) {
            if (record->runs[r].time == evidence->taken[i].c && !record->runs[r].keep_graph) {
                return &record->runs[r];
            }
        }
    }
    return NULL;
}

/* The last change of a storage's size: what it is now, it became there. */
static const tgd_write_row *resizing_write(const tgd_evidence *evidence, const tgd_saved_row *saved, uint64_t since)
{
    const tgd_record *record = evidence->record;
    uint64_t storage = evidence->report->graph.storages[saved->storage].address;
    uint32_t i = tgd_sorted_from(evidence->by_storage, record->n_writes, storage, since + 1);
    const tgd_write_row *last = NULL;
    for (; i < record->n_writes && evidence->by_storage[i].a == storage; i++) {
        const tgd_write_row *write = &record->writes[evidence->by_storage[i].row];
        last = write->flags & TGD_OP_RESIZED ? write : last;
    }
    return last;
}

static bool same_place(const tgd_write_row *x, const tgd_write_row *y)
{
    return x->name == y->name && x->place.code == y->place.code && x->place.lasti == y->place.lasti;
}

/* Who else moved the version, after the first one. */
static tgd_status name_later(tgd_evidence *evidence, tgd_finding_row *row, const tgd_saved_row *saved,
                             const tgd_write_row *write, uint64_t since)
{
    row->n_later = 0;
    row->more_later = false;
    for (int n = 0; n < MOST_WRITES; n++) {
        const tgd_write_row *before = write;
        write = first_write(evidence, saved, before->version + 1, since);
        if (write == NULL) {
            return TGD_OK;
        }
        if (same_place(before, write)) {
            continue;
        }
        if (row->n_later == MOST_LATER) {
            row->more_later = true;
            return TGD_OK;
        }
        tgd_fact_row fact = {.where = TGD_NONE, .node = TGD_NONE, .op = tgd_bare_name(write->name)};
        uint32_t added = 0;
        tgd_status status = tgd_evidence_source(evidence, &write->place, &fact.where);
        if (status == TGD_OK) {
            status = tgd_report_fact(evidence->report, fact, NULL, &added, evidence->err);
        }
        if (status != TGD_OK) {
            return status;
        }
        row->later = row->n_later == 0 ? added : row->later;
        row->n_later++;
    }
    return TGD_OK;
}

static tgd_status name_culprit(tgd_evidence *evidence, tgd_finding_row *row)
{
    const tgd_saved_row *saved = &evidence->report->graph.saved[row->saved];
    uint64_t since;
    const tgd_write_row *write = NULL;
    if (row->kind == TGD_GRAPH_FREED) {
        const tgd_run_row *run = freeing_run(evidence, row->node);
        row->culprit = run != NULL;
        return run == NULL ? TGD_OK : tgd_evidence_source(evidence, &run->place, &row->where);
    }
    if (!made_at(evidence, row->node, &since)) {
        return TGD_OK;
    }
    if (row->kind == TGD_MODIFIED_IN_PLACE) {
        write = first_write(evidence, saved, saved->saved_version, since);
    } else if (row->kind == TGD_DETACHED_IN_PLACE) {
        write = detaching_write(evidence, saved, since);
    } else if ((row->kind == TGD_STORAGE_FREED || row->kind == TGD_STORAGE_CHANGED) && saved->storage != TGD_NONE) {
        write = resizing_write(evidence, saved, since);
    }
    if (write == NULL) {
        return TGD_OK;
    }
    row->op = tgd_bare_name(write->name);
    row->culprit = true;
    tgd_status status = tgd_evidence_source(evidence, &write->place, &row->where);
    bool several = status == TGD_OK && row->kind == TGD_MODIFIED_IN_PLACE;
    return several ? name_later(evidence, row, saved, write, since) : status;
}

static bool overlaps(const tgd_graph *graph, const tgd_saved_row *saved, const tgd_write_row *write)
{
    int64_t numel = tgd_graph_numel(graph, saved->shape);
    if (numel <= 0 || saved->storage_offset == INT32_MAX || write->end_byte <= write->first_byte) {
        return false;
    }
    int64_t first = (int64_t)saved->storage_offset * saved->itemsize;
    int64_t end = (int64_t)tgd_saved_end(graph, saved);
    /* Views with gaps may lie between one another: of those only what begins at the same byte is sure to meet. */
    bool gaps = !write->dense || end - first != numel * saved->itemsize;
    return gaps ? write->first_byte == first : write->first_byte < end && first < write->end_byte;
}

/* Under another version counter (.data, or what was made from it), or by an op that moves none. The tensor is at the
   version that it was saved at. */
static bool is_silent(const tgd_saved_row *saved, const tgd_write_row *write)
{
    return write->version_counter != saved->version_counter ||
           strncmp(tgd_bare_name(write->name), "_fused_", strlen("_fused_")) == 0;
}

/* A write into the saved tensor's memory that its version does not show. Before x.data = y gave it this memory, other
   tensors had it. */
static const tgd_write_row *silent_write(const tgd_evidence *evidence, const tgd_saved_row *saved, uint64_t since)
{
    const tgd_record *record = evidence->record;
    const tgd_graph *graph = &evidence->report->graph;
    uint64_t storage = graph->storages[saved->storage].address;
    uint32_t i = tgd_sorted_from(evidence->by_storage, record->n_writes, storage, since + 1);
    const tgd_write_row *found = NULL;
    for (; i < record->n_writes && evidence->by_storage[i].a == storage; i++) {
        const tgd_write_row *write = &record->writes[evidence->by_storage[i].row];
        if ((write->flags & TGD_OP_RESIZED) && write->tensor == saved->tensor) {
            found = NULL;
        } else if (found == NULL && is_silent(saved, write) && !(write->flags & (TGD_OP_THREW | TGD_OP_RESIZED)) &&
                   overlaps(graph, saved, write)) {
            found = write;
        }
    }
    return found;
}

static tgd_status find_silent(tgd_evidence *evidence)
{
    tgd_report *report = evidence->report;
    const tgd_graph *graph = &report->graph;
    for (uint32_t i = 0; i < report->n_executed; i++) {
        tgd_node v = report->sequence[i];
        const tgd_node_row *node = &graph->nodes[v];
        uint64_t since;
        if (node->n_saved == 0 || !made_at(evidence, v, &since) || tgd_saved_is_custom(graph, v)) {
            continue;
        }
        for (uint32_t s = node->first_saved; s < node->first_saved + node->n_saved; s++) {
            const tgd_saved_row *saved = &graph->saved[s];
            if (saved->state != TGD_SAVED_OK || saved->storage == TGD_NONE || !tgd_saved_needed(report, v, s)) {
                continue;
            }
            const tgd_write_row *write = silent_write(evidence, saved, since);
            if (write == NULL) {
                continue;
            }
            tgd_finding_row row = {.kind = TGD_SILENTLY_MODIFIED, .severity = TGD_ERROR,
                                   .detail = TGD_DETAIL_SILENT, .node = v, .saved = s, .parameter = TGD_NONE,
                                   .root = TGD_NONE, .other = TGD_NONE, .where = TGD_NONE,
                                   .op = tgd_bare_name(write->name), .culprit = true, .group = report->n_groups++};
            tgd_status status = tgd_evidence_source(evidence, &write->place, &row.where);
            if (status == TGD_OK) {
                status = tgd_report_add(report, row, evidence->err);
            }
            if (status != TGD_OK) {
                return status;
            }
        }
    }
    return TGD_OK;
}

tgd_status tgd_find_culprits(tgd_evidence *evidence)
{
    tgd_report *report = evidence->report;
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < report->n_findings && status == TGD_OK; i++) {
        if (report->findings[i].saved != TGD_NONE) {
            status = name_culprit(evidence, &report->findings[i]);
        }
    }
    bool only_refused = report->refused && report->refusal.write != NULL;
    return status == TGD_OK && !only_refused ? find_silent(evidence) : status;
}
