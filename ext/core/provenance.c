/*
 * Where each node comes from. In the forward: the op that made it, and that op's line. In a backward that makes a graph
 * of its own, to be differentiated again: the node whose backward it was; its line then is that node's, since the only
 * line of its own is the call of backward, which is the same for all.
 */
#include "evidence.h"

#include <stdlib.h>

enum { MOST_ORDERS = 16 }; /* derivatives of derivatives */

/* Lines that call backward, and the nodes of the graph by their numbers. */
typedef struct origins {
    tgd_evidence *evidence;
    tgd_address_map calls; /* code and place in it -> any */
    tgd_address_map nodes; /* thread and number -> node */
} origins;

static uint64_t line_key(const tgd_place *place)
{
    return ((uint64_t)place->code << 32 | (uint32_t)place->lasti) + 1;
}

static uint64_t node_key(uint64_t thread, uint64_t sequence_nr)
{
    return tgd_identity_of_output(thread, sequence_nr, 0);
}

static tgd_status learn_calls(origins *o)
{
    const tgd_record *record = o->evidence->record;
    for (uint32_t i = 0; i < record->n_runs; i++) {
        uint32_t *known = tgd_address_map_at(&o->calls, line_key(&record->runs[i].place));
        if (known == NULL) {
            return tgd_fail_memory(o->evidence->err);
        }
        *known = i;
    }
    return TGD_OK;
}

static tgd_status learn_nodes(origins *o)
{
    const tgd_graph *graph = &o->evidence->report->graph;
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        const tgd_node_row *node = &graph->nodes[v];
        if (node->leaf != TGD_NONE || node->sequence_nr == UINT64_MAX) {
            continue;
        }
        uint32_t *known = tgd_address_map_at(&o->nodes, node_key(node->thread_id, node->sequence_nr));
        if (known == NULL) {
            return tgd_fail_memory(o->evidence->err);
        }
        *known = v;
    }
    return TGD_OK;
}

/* Does the op's line say no more than that backward was called? */
static bool only_calls(const origins *o, const tgd_op_row *op)
{
    return (op->flags & TGD_OP_MADE) && (op->place.code == TGD_NONE ||
                                         tgd_address_map_find(&o->calls, line_key(&op->place)) != TGD_NONE);
}

/* The op of the forward that an op in a backward goes back to: itself where it has a line of its own. */
static const tgd_op_row *origin_of(const origins *o, const tgd_op_row *op)
{
    const tgd_op_row *first = op;
    for (int order = 0; order < MOST_ORDERS && only_calls(o, first); order++) {
        const tgd_op_row *maker = tgd_evidence_maker(o->evidence, first->maker_thread, first->maker_nr);
        if (maker == NULL || maker->time >= first->time) {
            return op; /* it was made before the recorder began */
        }
        first = maker;
    }
    return first;
}

/* The origin's line. What a checkpoint runs again in backward is in a module of its own all the same. */
static tgd_place place_of(const origins *o, const tgd_op_row *op, const tgd_op_row *origin)
{
    tgd_place place = origin->place;
    if (origin != op && (origin->flags & TGD_OP_FUNCTION) && op->place.module != TGD_NONE) {
        uint32_t run = tgd_address_map_find(&o->calls, line_key(&op->place));
        bool within = run == TGD_NONE || o->evidence->record->runs[run].place.module != op->place.module;
        place.module = within ? op->place.module : place.module;
    }
    return place;
}

/* What the node itself remembers of the light level. */
static tgd_status locate_by_node(const origins *o, tgd_node v)
{
    const tgd_node_origin *origin = tgd_evidence_origin(o->evidence, v);
    uint32_t where = TGD_NONE;
    tgd_status status = origin == NULL ? TGD_OK : tgd_evidence_source(o->evidence, &origin->place, &where);
    if (where != TGD_NONE) {
        o->evidence->report->node_where[v] = where;
    }
    return status;
}

static tgd_status locate(origins *o, tgd_node v)
{
    tgd_report *report = o->evidence->report;
    const tgd_op_row *op = tgd_evidence_op(o->evidence, v), *origin = op;
    if (op == NULL) {
        return locate_by_node(o, v);
    }
    if (op->flags & TGD_OP_MADE) {
        tgd_node made_by = tgd_address_map_find(&o->nodes, node_key(op->maker_thread, op->maker_nr));
        report->node_made_by[v] = made_by == TGD_NONE ? TGD_NODE_ELSEWHERE : made_by;
        origin = origin_of(o, op);
    }
    const tgd_place place = place_of(o, op, origin);
    report->node_op[v] = tgd_bare_name(origin->name);
    uint32_t where;
    tgd_status status = tgd_evidence_source(o->evidence, &place, &where);
    if (where != TGD_NONE) {
        report->node_where[v] = where;
    }
    return status;
}

tgd_status tgd_locate_nodes(tgd_evidence *evidence)
{
    tgd_report *report = evidence->report;
    origins o = {.evidence = evidence};
    tgd_status status = tgd_provenance_begin(report, evidence->err);
    bool again = false; /* some of it was made in a backward */
    for (uint32_t i = 0; i < evidence->record->n_ops && !again; i++) {
        again = (evidence->record->ops[i].flags & TGD_OP_MADE) != 0;
    }
    if (status == TGD_OK && again) {
        status = learn_calls(&o);
    }
    if (status == TGD_OK && again) {
        status = learn_nodes(&o);
    }
    for (tgd_node v = 0; v < report->graph.n_nodes && status == TGD_OK; v++) {
        status = locate(&o, v);
    }
    tgd_address_map_clear(&o.calls);
    tgd_address_map_clear(&o.nodes);
    return status;
}

tgd_status tgd_provenance_begin(tgd_report *report, tgd_error *err)
{
    if (report->node_where != NULL) {
        return TGD_OK;
    }
    size_t n = (size_t)report->graph.n_nodes + 1;
    report->node_where = malloc(n * sizeof *report->node_where);
    report->node_op = calloc(n, sizeof *report->node_op);
    report->node_made_by = malloc(n * sizeof *report->node_made_by);
    if (report->node_where == NULL || report->node_op == NULL || report->node_made_by == NULL) {
        return tgd_fail_memory(err);
    }
    for (size_t v = 0; v < n; v++) {
        report->node_where[v] = report->node_made_by[v] = TGD_NONE;
    }
    return TGD_OK;
}
