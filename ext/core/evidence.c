#include "evidence.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BELOW = 1024 }; /* nodes looked at for one finding */

#define SPREAD UINT64_C(0x9E3779B97F4A7C15) /* odd: no two keys become one */

static int compare(const void *left, const void *right)
{
    const tgd_sorted *x = left, *y = right;
    if (x->a != y->a) {
        return x->a < y->a ? -1 : 1;
    }
    if (x->b != y->b) {
        return x->b < y->b ? -1 : 1;
    }
    if (x->c != y->c) {
        return x->c < y->c ? -1 : 1;
    }
    return x->row < y->row ? -1 : x->row > y->row;
}

static tgd_sorted *room(uint32_t n)
{
    return malloc(((size_t)n + 1) * sizeof(tgd_sorted));
}

static void sort(tgd_sorted *rows, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) { /* the rows of one thread come in order, or nearly */
        if (compare(&rows[i - 1], &rows[i]) > 0) {
            qsort(rows, n, sizeof *rows, compare);
            return;
        }
    }
}

tgd_status tgd_evidence_open(tgd_evidence *evidence, tgd_report *report, tgd_error *err)
{
    return tgd_evidence_open_record(evidence, report, report->record, err);
}

tgd_status tgd_evidence_open_record(tgd_evidence *evidence, tgd_report *report, const tgd_record *record,
                                    tgd_error *err)
{
    *evidence = (tgd_evidence){.report = report, .record = record, .err = err};
    evidence->ops = room(record->n_ops);
    evidence->by_counter = room(record->n_writes);
    evidence->by_storage = room(record->n_writes);
    evidence->taken = room(record->n_taken);
    if (evidence->ops == NULL || evidence->by_counter == NULL || evidence->by_storage == NULL ||
        evidence->taken == NULL) {
        return tgd_fail_memory(err);
    }
    for (uint32_t i = 0; i < record->n_ops; i++) {
        const tgd_op_row *op = &record->ops[i];
        evidence->ops[i] = (tgd_sorted){op->thread, op->sequence_nr, op->time, i};
    }
    for (uint32_t i = 0; i < record->n_writes; i++) {
        const tgd_write_row *write = &record->writes[i];
        evidence->by_counter[i] = (tgd_sorted){write->version_counter, write->version, write->time, i};
        evidence->by_storage[i] = (tgd_sorted){write->storage, write->time, write->argument, i};
    }
    for (uint32_t i = 0; i < record->n_taken; i++) {
        const tgd_taken_row *taken = &record->taken[i];
        evidence->taken[i] = (tgd_sorted){taken->thread, taken->sequence_nr, taken->run, i};
    }
    sort(evidence->ops, record->n_ops);
    sort(evidence->by_counter, record->n_writes);
    sort(evidence->by_storage, record->n_writes);
    sort(evidence->taken, record->n_taken);
    return TGD_OK;
}

void tgd_evidence_close(tgd_evidence *evidence)
{
    free(evidence->ops);
    free(evidence->by_counter);
    free(evidence->by_storage);
    free(evidence->taken);
    tgd_address_map_clear(&evidence->rooms);
    tgd_address_map_clear(&evidence->places);
}

uint32_t tgd_sorted_from(const tgd_sorted *rows, uint32_t n, uint64_t a, uint64_t b)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (rows[middle].a < a || (rows[middle].a == a && rows[middle].b < b)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

const tgd_op_row *tgd_evidence_maker(const tgd_evidence *evidence, uint64_t thread, uint64_t sequence_nr)
{
    /* The last op of its thread that began before the thread's count passed the node's number. */
    uint32_t i = tgd_sorted_from(evidence->ops, evidence->record->n_ops, thread, sequence_nr + 1);
    if (i == 0 || evidence->ops[i - 1].a != thread) {
        return NULL;
    }
    const tgd_op_row *op = &evidence->record->ops[evidence->ops[i - 1].row];
    /* Made after that op had ended, by none that has a row: a view's, when somebody asked for its grad_fn. */
    return op->sequence_end != 0 && op->sequence_end <= sequence_nr ? NULL : op;
}

const tgd_node_origin *tgd_evidence_origin(const tgd_evidence *evidence, tgd_node v)
{
    const tgd_node_origin *origins = evidence->report->graph.origins;
    return origins == NULL || origins[v].time == 0 ? NULL : &origins[v];
}

uint64_t tgd_evidence_made(const tgd_evidence *evidence, tgd_node v)
{
    const tgd_node_origin *origin = tgd_evidence_origin(evidence, v);
    const tgd_op_row *op = origin == NULL ? tgd_evidence_op(evidence, v) : NULL;
    return origin != NULL ? origin->time : op != NULL ? op->time : 0;
}

const tgd_op_row *tgd_evidence_op(const tgd_evidence *evidence, tgd_node v)
{
    const tgd_node_row *node = &evidence->report->graph.nodes[v];
    if (node->leaf != TGD_NONE || node->sequence_nr == UINT64_MAX) {
        return NULL;
    }
    const tgd_op_row *op = tgd_evidence_maker(evidence, node->thread_id, node->sequence_nr);
    return op == NULL || op->time < evidence->record->full_since ? NULL : op; /* the one that made it may have no row */
}

static char *copy(const char *s)
{
    size_t size = strlen(s) + 1;
    char *made = malloc(size);
    if (made != NULL) {
        memcpy(made, s, size);
    }
    return made;
}

static tgd_status add_source(tgd_evidence *evidence, const tgd_source *source, uint32_t *out)
{
    tgd_report *report = evidence->report;
    tgd_source_row *rows =
        tgd_grow(report->sources, &report->source_capacity, (size_t)report->n_sources + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(evidence->err);
    }
    report->sources = rows;
    tgd_source_row *row = &rows[report->n_sources];
    *row = (tgd_source_row){
        .file = copy(source->file),
        .function = copy(source->function),
        .module = copy(source->module),
        .module_class = copy(source->module_class),
        .line = source->line,
    };
    *out = report->n_sources++;
    if (row->file == NULL || row->function == NULL || row->module == NULL || row->module_class == NULL) {
        return tgd_fail_memory(evidence->err);
    }
    return TGD_OK;
}

/* The source of a place: *known is TGD_NONE where it was not asked for before. NULL: no memory. */
static uint32_t *source_at(tgd_evidence *evidence, const tgd_place *place)
{
    uint64_t room = (uint64_t)place->stack << 32 | place->module;
    uint32_t *number = tgd_address_map_at(&evidence->rooms, (room + 1) * SPREAD);
    if (number == NULL) {
        return NULL;
    }
    if (*number == TGD_NONE) {
        *number = evidence->n_rooms++;
    }
    /* 23 bits of room, 16 of code, 24 of place in it: enough for what the tables hold */
    uint64_t key = (uint64_t)*number << 41 | (uint64_t)(place->code & 0xFFFF) << 25 |
                   (uint64_t)(((uint32_t)place->lasti & 0xFFFFFF) ^ (place->via & TGD_AT_RETURN ? 1u << 23 : 0u)) << 1 |
                   (place->via & TGD_FIRST_LINE ? 1u : 0u);
    return tgd_address_map_at(&evidence->places, (key + 1) * SPREAD);
}

/* The row of a place alone. */
static tgd_status own_source(tgd_evidence *evidence, const tgd_place *place, tgd_source *source, uint32_t *out,
                             bool *made)
{
    *out = TGD_NONE;
    *made = false;
    if (place->code == TGD_NONE || evidence->report->resolve == NULL) {
        return TGD_OK;
    }
    uint32_t *known = source_at(evidence, place);
    if (known == NULL) {
        return tgd_fail_memory(evidence->err);
    }
    if (*known == TGD_NONE) {
        *source = (tgd_source){.file = "", .function = "", .module = "", .module_class = ""};
        if (!evidence->report->resolve(place, source)) {
            return TGD_OK;
        }
        uint32_t added = TGD_NONE;
        tgd_status status = add_source(evidence, source, &added);
        if (status != TGD_OK) {
            return status;
        }
        *known = added;
        *made = true;
    }
    *out = *known;
    return TGD_OK;
}

tgd_status tgd_evidence_source(tgd_evidence *evidence, const tgd_place *place, uint32_t *out)
{
    tgd_source source;
    bool made;
    tgd_status status = own_source(evidence, place, &source, out, &made);
    /* Outwards, up to a frame that is known already, and so are those around it. */
    for (uint32_t callee = *out; status == TGD_OK && made && source.called;) {
        const tgd_place caller = source.caller;
        uint32_t row;
        status = own_source(evidence, &caller, &source, &row, &made);
        evidence->report->sources[callee].caller = row == TGD_NONE ? 0 : row + 1;
        callee = row;
    }
    return status;
}

const char *tgd_bare_name(const char *name)
{
    const char *colon = strrchr(name, ':');
    return colon == NULL ? name : colon + 1;
}

bool tgd_report_covered(const tgd_report *report)
{
    const tgd_graph *graph = &report->graph;
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        bool has_op = report->node_op != NULL && report->node_op[v] != NULL;
        bool recent = graph->origins != NULL && report->record != NULL && graph->origins[v].time > 0 &&
                      graph->origins[v].time >= report->record->began;
        if (graph->nodes[v].leaf == TGD_NONE && !has_op && !recent) {
            return false;
        }
    }
    return true;
}

static tgd_status locate_refusal(tgd_evidence *evidence)
{
    tgd_report *report = evidence->report;
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < report->n_findings && status == TGD_OK; i++) {
        tgd_finding_row *row = &report->findings[i];
        if (row->detail == TGD_DETAIL_REFUSED_WRITE) {
            status = tgd_evidence_source(evidence, &report->refusal.write->place, &row->where);
        } else if (row->detail == TGD_DETAIL_REFUSED_ROOT) {
            status = tgd_evidence_source(evidence, &report->refusal.place, &row->where);
        }
    }
    return status;
}

/* The compiled region whose second derivative node v stands for: the first one on the way down from it. */
static tgd_node region_below(const tgd_graph *graph, tgd_node v)
{
    tgd_node queue[MOST_BELOW];
    size_t n = 0;
    queue[n++] = v;
    for (size_t i = 0; i < n; i++) {
        const tgd_node_row *row = &graph->nodes[queue[i]];
        if (tgd_graph_type(graph, queue[i])->python_flags & TGD_PY_COMPILED) {
            return queue[i];
        }
        for (uint32_t e = row->first_edge; e < row->first_edge + row->n_edges && n < MOST_BELOW; e++) {
            if (graph->edges[e].to != TGD_NONE) {
                queue[n++] = graph->edges[e].to;
            }
        }
    }
    return v;
}

/* Where no culprit is known, the line to look at is the one that made the node. */
static void fall_back(tgd_report *report)
{
    if (report->node_where == NULL) {
        return;
    }
    for (uint32_t i = 0; i < report->n_findings; i++) {
        tgd_finding_row *row = &report->findings[i];
        if (row->where == TGD_NONE && row->node != TGD_NONE && row->kind != TGD_UNREACHED_PARAMETER) {
            tgd_node v = row->detail == TGD_DETAIL_COMPILED_TWICE ? region_below(&report->graph, row->node) : row->node;
            row->where = report->node_where[v];
            row->op = row->where == TGD_NONE ? NULL : report->node_op[v];
        }
    }
}

tgd_status tgd_judge_record(tgd_report *report, tgd_error *err)
{
    if (report->record == NULL) {
        fall_back(report);
        return TGD_OK;
    }
    tgd_evidence evidence;
    tgd_status status = tgd_evidence_open(&evidence, report, err);
    if (status == TGD_OK) {
        status = tgd_locate_nodes(&evidence);
    }
    if (status == TGD_OK) {
        status = tgd_find_culprits(&evidence);
    }
    if (status == TGD_OK && !(report->refused && report->refusal.write != NULL)) {
        status = tgd_find_packed(&evidence);
    }
    if (status == TGD_OK) {
        status = tgd_find_foreign(&evidence);
    }
    if (status == TGD_OK) {
        status = tgd_find_custom(&evidence);
    }
    if (status == TGD_OK) {
        status = tgd_find_cuts(&evidence);
    }
    if (status == TGD_OK) {
        status = locate_refusal(&evidence);
    }
    if (status == TGD_OK) {
        status = tgd_find_forward(&evidence);
    }
    if (status == TGD_OK) {
        fall_back(report);
    }
    tgd_evidence_close(&evidence);
    return status;
}
