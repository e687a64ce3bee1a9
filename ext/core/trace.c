/* Lines of nodes from the program's own anomaly mode: what there is where no recorder was on. */
#include "trace.h"

#include "judge.h"

#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 1024,    /* nodes asked about before other Python threads get their turn */
    MOST_ORDERS = 16 /* derivatives of derivatives */
};

typedef struct reader {
    tgd_report *report;
    const tgd_lookup *lookup;
    int (*trace)(const tgd_torch_node *node, struct tgd_trace *out);
    tgd_address_map seen; /* hash of a source -> its row */
    tgd_error *err;
} reader;

static char *copy(const char *s)
{
    size_t size = strlen(s) + 1;
    char *made = malloc(size);
    return made == NULL ? NULL : memcpy(made, s, size);
}

static tgd_status add_source(tgd_report *report, const tgd_source *source, uint32_t caller, tgd_error *err)
{
    tgd_source_row *rows =
        tgd_grow(report->sources, &report->source_capacity, (size_t)report->n_sources + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(err);
    }
    report->sources = rows;
    tgd_source_row *row = &rows[report->n_sources++];
    *row = (tgd_source_row){.file = copy(source->file), .function = copy(source->function), .module = copy(""),
                            .module_class = copy(""), .line = source->line, .caller = caller};
    bool whole = row->file != NULL && row->function != NULL && row->module != NULL && row->module_class != NULL;
    return whole ? TGD_OK : tgd_fail_memory(err);
}

static uint64_t hash(uint64_t seed, const char *text)
{
    for (; *text != '\0'; text++) {
        seed = (seed ^ (unsigned char)*text) * UINT64_C(0x100000001B3);
    }
    return (seed ^ 0xFF) * UINT64_C(0x100000001B3);
}

static bool same(const tgd_source_row *row, const tgd_source *source, uint32_t caller)
{
    return row->line == source->line && row->caller == caller && strcmp(row->file, source->file) == 0 &&
           strcmp(row->function, source->function) == 0;
}

/* The row of a frame with these callers (1 + row, or 0), made where there is none. */
static tgd_status row_of(reader *r, const tgd_source *frame, uint32_t caller, uint32_t *out)
{
    uint64_t key = hash(hash(UINT64_C(0xCBF29CE484222325) ^ (uint64_t)frame->line ^ (uint64_t)caller << 32, frame->file),
                        frame->function);
    for (key |= 1u;; key += 64) {
        uint32_t *known = tgd_address_map_at(&r->seen, key);
        if (known == NULL) {
            return tgd_fail_memory(r->err);
        }
        if (*known == TGD_NONE) {
            *known = *out = r->report->n_sources;
            return add_source(r->report, frame, caller, r->err);
        }
        if (same(&r->report->sources[*known], frame, caller)) {
            *out = *known;
            return TGD_OK;
        }
    }
}

static tgd_status read_node(reader *r, tgd_node v)
{
    tgd_report *report = r->report;
    const tgd_torch_node *node = (const tgd_torch_node *)(uintptr_t)report->graph.nodes[v].address;
    tgd_trace trace = {0};
    if (!r->trace(node, &trace)) {
        return TGD_OK;
    }
    if (trace.made_by != NULL) {
        tgd_node made_by = tgd_address_map_find(&r->lookup->nodes, (uint64_t)(uintptr_t)trace.made_by);
        report->node_made_by[v] = made_by == TGD_NONE ? TGD_NODE_ELSEWHERE : made_by;
    }
    for (int order = 0; order < MOST_ORDERS && trace.only_calls && trace.made_by != NULL; order++) {
        tgd_trace outer = {0};
        if (!r->trace(trace.made_by, &outer)) {
            r->trace(node, &trace);
            break;
        }
        trace = outer;
    }
    uint32_t row = TGD_NONE;
    tgd_status status = TGD_OK;
    for (size_t k = trace.n; k-- > 0 && status == TGD_OK;) {
        status = row_of(r, &trace.frames[k], row == TGD_NONE ? 0 : row + 1, &row);
    }
    report->node_where[v] = row;
    return status;
}

tgd_status tgd_read_traces(tgd_report *report, const tgd_lookup *lookup, const tgd_request *request, tgd_error *err)
{
    const tgd_torch_python *python = tgd_torch_get_python();
    tgd_node v = 0;
    while (v < report->graph.n_nodes && !(report->graph.nodes[v].flags & TGD_ROW_METADATA)) {
        v++;
    }
    if (v == report->graph.n_nodes || request->trace == NULL || python == NULL) {
        return TGD_OK;
    }
    reader r = {.report = report, .lookup = lookup, .trace = request->trace, .err = err};
    tgd_status status = tgd_provenance_begin(report, err);
    while (v < report->graph.n_nodes && status == TGD_OK) {
        tgd_node end = report->graph.n_nodes - v < BATCH ? report->graph.n_nodes : v + BATCH;
        void *token;
        python->begin(&token);
        for (; v < end && status == TGD_OK; v++) {
            /* A leaf's was written when some graph first used it, this one or another. */
            bool told = (report->graph.nodes[v].flags & TGD_ROW_METADATA) && report->graph.nodes[v].leaf == TGD_NONE;
            status = told ? read_node(&r, v) : TGD_OK;
        }
        python->end(token);
    }
    report->n_traced = report->n_sources;
    tgd_address_map_clear(&r.seen);
    return status;
}

tgd_status tgd_copy_traces(tgd_report *report, const tgd_report *from, tgd_error *err)
{
    if (from->n_traced == 0) {
        return TGD_OK;
    }
    tgd_status status = tgd_provenance_begin(report, err);
    for (uint32_t i = 0; i < from->n_traced && status == TGD_OK; i++) {
        const tgd_source_row *row = &from->sources[i];
        const tgd_source source = {.file = row->file, .function = row->function, .line = row->line};
        status = add_source(report, &source, row->caller, err);
    }
    for (tgd_node v = 0; v < report->graph.n_nodes && status == TGD_OK; v++) {
        if (from->node_where[v] < from->n_traced) {
            report->node_where[v] = from->node_where[v];
            report->node_made_by[v] = from->node_made_by[v];
        }
    }
    report->n_traced = from->n_traced;
    return status;
}
