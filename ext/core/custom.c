/*
 * What custom Functions and hooks do wrong: gradients that PyTorch refused, gradients written to while somebody else
 * needs them, and tensors that forward computed and a second derivative takes for constants.
 */
#include "evidence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 16 };

static tgd_node node_at(const tgd_graph *graph, uint64_t address)
{
    for (tgd_node v = 0; address != 0 && v < graph->n_nodes; v++) {
        if (graph->nodes[v].address == address) {
            return v;
        }
    }
    return TGD_NONE;
}

static tgd_node node_numbered(const tgd_graph *graph, uint64_t thread, uint64_t sequence_nr)
{
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        if (graph->nodes[v].sequence_nr == sequence_nr && (graph->nodes[v].thread_id & 0x7FFF) == (thread & 0x7FFF) &&
            graph->nodes[v].leaf == TGD_NONE) {
            return v;
        }
    }
    return TGD_NONE;
}

static const tgd_type_row *python_type(const tgd_graph *graph, tgd_node v)
{
    const tgd_node_row *row = &graph->nodes[v];
    return &graph->types[row->inner_type != TGD_NONE ? row->inner_type : row->type];
}

static tgd_status add(tgd_evidence *evidence, tgd_finding_kind kind, tgd_detail detail, tgd_node v, const char *op,
                      const tgd_place *place)
{
    tgd_report *report = evidence->report;
    tgd_finding_row row = {.kind = (uint8_t)kind,
                           .severity = detail == TGD_DETAIL_GRADIENT_NONE ? TGD_WARNING : TGD_ERROR, .detail = (uint8_t)detail, .node = v,
                           .saved = TGD_NONE, .parameter = TGD_NONE, .root = TGD_NONE, .other = TGD_NONE,
                           .where = TGD_NONE, .op = op == NULL ? NULL : tgd_bare_name(op)};
    tgd_status status = tgd_evidence_source(evidence, place, &row.where);
    row.culprit = row.where != TGD_NONE;
    for (uint32_t i = 0; i < report->n_findings; i++) {
        const tgd_finding_row *other = &report->findings[i];
        if (other->detail == row.detail && other->node == v && other->where == row.where) {
            return status;
        }
    }
    row.group = report->n_groups++;
    return status == TGD_OK ? tgd_report_add(report, row, evidence->err) : status;
}

/* ---- gradients that PyTorch refused ---- */

/* What the words after the node's name mean; TGD_DETAIL_NONE: something else. */
static tgd_detail refusal_of(const char *raised, const char *name)
{
    static const struct {
        const char *says;
        tgd_detail detail;
    } known[] = {
        {"returned an incorrect number of gradients", TGD_DETAIL_GRADIENT_COUNT},
        {"returned an invalid gradient at index", TGD_DETAIL_GRADIENT_SHAPE},
        {"returned a gradient different than None at position", TGD_DETAIL_GRADIENT_KIND},
        {"returned a gradient different from None at position", TGD_DETAIL_GRADIENT_KIND},
        {"expected Variable or None (got", TGD_DETAIL_GRADIENT_KIND},
    };
    const char *named = strstr(raised, name);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *at = strstr(raised, known[i].says);
        if (at != NULL && ((named != NULL && named < at) || known[i].says[0] == 'e')) {
            return known[i].detail;
        }
    }
    return TGD_DETAIL_NONE;
}

static tgd_status judge_stop(tgd_evidence *evidence, const tgd_event_row *event)
{
    const tgd_report *report = evidence->report;
    tgd_node v = node_at(&report->graph, event->node);
    if (v == TGD_NONE || report->raised == NULL || !tgd_saved_is_custom(&report->graph, v)) {
        return TGD_OK;
    }
    const tgd_type_row *type = python_type(&report->graph, v);
    tgd_detail detail = refusal_of(report->raised, type->name);
    if (detail == TGD_DETAIL_NONE) {
        return TGD_OK;
    }
    int got = -1;
    const char *at = strstr(report->raised, ", got ");
    if (detail == TGD_DETAIL_GRADIENT_COUNT && (at == NULL || sscanf(at, ", got %d", &got) != 1)) {
        got = -1;
    }
    const tgd_place place = {.code = type->kind == TGD_NODE_PYTHON ? type->code : TGD_NONE, .lasti = got,
                             .module = TGD_NONE, .via = TGD_AT_RETURN};
    return add(evidence, TGD_CUSTOM_FUNCTION, detail, v, NULL, &place);
}

/* ---- gradients that are not there ---- */

static bool lacked(const tgd_report *report, tgd_node v)
{
    for (size_t i = 0; i < report->n_events; i++) {
        if (report->events[i].kind == TGD_EVENT_LACKED && report->events[i].node == report->graph.nodes[v].address) {
            return true;
        }
    }
    return false;
}

/* A custom Function that had all of its gradients, and whose backward is the user's own. */
static bool answers_for(const tgd_report *report, tgd_node u)
{
    const uint32_t others = TGD_PY_COMPILED | TGD_PY_RAISES | TGD_PY_HIDES_GRAPH | TGD_PY_HIDES_PARAMETERS;
    const tgd_type_row *type = tgd_graph_type(&report->graph, u);
    return type->kind == TGD_NODE_PYTHON && !(type->python_flags & others) && !lacked(report, u);
}

/* Node v ran and no gradient came: whoever could have sent one is a custom Function that returned None. */
static tgd_status judge_lacked(tgd_evidence *evidence, const tgd_event_row *event)
{
    const tgd_report *report = evidence->report;
    const tgd_graph *graph = &report->graph;
    tgd_node v = node_at(graph, event->node), blamed = TGD_NONE;
    for (uint32_t i = 0; v != TGD_NONE && i < report->n_executed; i++) {
        tgd_node u = report->sequence[i];
        for (uint32_t e = graph->nodes[u].first_edge; e < graph->nodes[u].first_edge + graph->nodes[u].n_edges; e++) {
            if (graph->edges[e].to == v) {
                if (!answers_for(report, u)) {
                    return TGD_OK;
                }
                blamed = u;
            }
        }
    }
    if (blamed == TGD_NONE) {
        return TGD_OK;
    }
    const tgd_place place = {.code = tgd_graph_type(graph, blamed)->code, .lasti = -1, .module = TGD_NONE,
                             .via = TGD_AT_RETURN};
    return add(evidence, TGD_CUSTOM_FUNCTION, TGD_DETAIL_GRADIENT_NONE, blamed, NULL, &place);
}

/* ---- gradients written to ---- */

/* 1, 0, or -1 where memory is short. */
static int leads_to(const tgd_graph *graph, tgd_node from, tgd_node to)
{
    uint8_t *seen = calloc((size_t)graph->n_nodes + 1, 1);
    tgd_node *queue = malloc(((size_t)graph->n_nodes + 1) * sizeof *queue);
    int found = seen == NULL || queue == NULL ? -1 : 0;
    size_t n = 0;
    if (found == 0) {
        queue[n++] = from;
        seen[from] = 1;
    }
    for (size_t i = 0; i < n && found == 0; i++) {
        const tgd_node_row *row = &graph->nodes[queue[i]];
        for (uint32_t e = row->first_edge; e < row->first_edge + row->n_edges; e++) {
            tgd_node next = graph->edges[e].to;
            if (next != TGD_NONE && !seen[next]) {
                seen[next] = 1;
                queue[n++] = next;
                found = next == to ? 1 : found;
            }
        }
    }
    free(seen);
    free(queue);
    return found;
}

/* The caller of backward holds the gradients it starts with as well, so that being held proves nothing of them: another
   node must have got the same one. */
static tgd_status was_met(const tgd_evidence *evidence, const tgd_event_row *written, tgd_node v, bool *out)
{
    const tgd_report *report = evidence->report;
    *out = false;
    for (size_t i = 0; i < report->n_events && !*out; i++) {
        const tgd_event_row *met = &report->events[i];
        if (met->kind == TGD_EVENT_MET && met->storage == written->storage && met->time > written->time) {
            tgd_node u = node_at(&report->graph, met->node);
            int leads = u == TGD_NONE || u == v ? 1 : leads_to(&report->graph, v, u);
            if (leads < 0) {
                return tgd_fail_memory(evidence->err);
            }
            *out = leads == 0;
        }
    }
    return TGD_OK;
}

static tgd_status judge_written(tgd_evidence *evidence, const tgd_event_row *event)
{
    tgd_node v = node_at(&evidence->report->graph, event->node);
    bool shared = event->shared;
    tgd_status status = TGD_OK;
    if (v != TGD_NONE && event->of_root) {
        status = was_met(evidence, event, v, &shared);
    }
    if (status != TGD_OK || v == TGD_NONE || !shared) {
        return status;
    }
    return add(evidence, TGD_GRADIENT_MODIFIED, event->by_hook ? TGD_DETAIL_GRADIENT_HOOK : TGD_DETAIL_GRADIENT_WRITTEN,
               v, event->name, &event->place);
}

/* ---- what forward computed, in a second derivative ---- */

/* A tensor that a Function's forward computed, without grad, from an input that carries grad. */
typedef struct kept {
    uint32_t op;       /* row that made it */
    uint32_t function; /* row of the Function */
} kept;

typedef struct keeper {
    tgd_evidence *evidence;
    tgd_address_map known; /* identity -> row of tensors */
    kept *tensors;         /* Owned */
    uint32_t n, capacity;
    struct {
        uint64_t thread;
        uint32_t function; /* row of the Function whose forward runs, or TGD_NONE */
    } running[MOST_THREADS];
    uint32_t n_running;
} keeper;

static bool any_of(const char *name, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strcmp(name, *names) == 0) {
            return true;
        }
    }
    return false;
}

/* Does its output depend smoothly on its input? */
static bool has_derivative(const char *name)
{
    static const char *const flat[] = {"detach", "detach_", "sign", "sgn", "round", "floor", "ceil", "trunc", "fix",
                                       "floor_divide", "heaviside", "bernoulli", "multinomial", "size", "numel",
                                       "result_type", "is_nonzero", "item", "_local_scalar_dense", "argsort", "one_hot",
                                       "bucketize", "searchsorted", "histc", "resize_", "empty_like", "set_", NULL};
    size_t n = strlen(name);
    return !any_of(name, flat) && strncmp(name, "new_", 4) != 0 && !(n > 5 && strcmp(name + n - 5, "_like") == 0);
}

static uint64_t key_of(tgd_identity id)
{
    return id & TGD_IDENTITY_NODE ? id : id << 8;
}

static const kept *kept_among(const keeper *k, const tgd_op_row *op)
{
    for (uint32_t i = 0; i < op->n_in && k->n > 0; i++) {
        uint32_t at = tgd_address_map_find(&k->known, key_of(k->evidence->record->ids[op->first_id + i]));
        if (at != TGD_NONE) {
            return &k->tensors[at];
        }
    }
    return NULL;
}

static tgd_status keep(keeper *k, const tgd_op_row *op, kept row)
{
    for (uint32_t i = 0; i < op->n_out; i++) {
        tgd_identity id = k->evidence->record->ids[op->first_id + op->n_in + i];
        if (id == 0 || (id & TGD_IDENTITY_NODE)) {
            continue;
        }
        kept *rows = tgd_grow(k->tensors, &k->capacity, (size_t)k->n + 1, sizeof *rows);
        uint32_t *at = rows == NULL ? NULL : tgd_address_map_at(&k->known, key_of(id));
        k->tensors = rows == NULL ? k->tensors : rows;
        if (at == NULL) {
            return tgd_fail_memory(k->evidence->err);
        }
        rows[k->n] = row;
        *at = k->n++;
    }
    return TGD_OK;
}

static uint32_t *running_on(keeper *k, uint64_t thread)
{
    for (uint32_t i = 0; i < k->n_running; i++) {
        if (k->running[i].thread == thread) {
            return &k->running[i].function;
        }
    }
    if (k->n_running == MOST_THREADS) {
        return NULL;
    }
    k->running[k->n_running].thread = thread;
    k->running[k->n_running].function = TGD_NONE;
    return &k->running[k->n_running++].function;
}

static tgd_status forward_op(keeper *k, uint32_t i)
{
    const tgd_record *record = k->evidence->record;
    const tgd_op_row *op = &record->ops[i];
    uint32_t *function = running_on(k, op->thread);
    if (function == NULL) {
        return TGD_OK;
    }
    if (op->flags & TGD_OP_FUNCTION) {
        *function = i;
        return TGD_OK;
    }
    if ((op->flags & TGD_OP_GRAD_MODE) ||
        (*function != TGD_NONE && op->sequence_nr != record->ops[*function].sequence_nr + 1)) {
        *function = TGD_NONE;
    }
    bool carries = (op->flags & TGD_OP_CUT) || kept_among(k, op) != NULL;
    if (*function == TGD_NONE || !carries || (op->flags & (TGD_OP_INTEGER_OUT | TGD_OP_THREW)) ||
        !has_derivative(tgd_bare_name(op->name))) {
        return TGD_OK;
    }
    return keep(k, op, (kept){i, *function});
}

static tgd_status backward_op(keeper *k, const tgd_op_row *op)
{
    tgd_evidence *evidence = k->evidence;
    const tgd_report *report = evidence->report;
    const kept *used = kept_among(k, op);
    if (used == NULL || (op->flags & TGD_OP_THREW) || !has_derivative(tgd_bare_name(op->name))) {
        return TGD_OK;
    }
    const tgd_op_row *function = &evidence->record->ops[used->function], *made = &evidence->record->ops[used->op];
    tgd_node v = node_numbered(&report->graph, function->thread, function->sequence_nr);
    bool compiled = v != TGD_NONE && (tgd_graph_type(&report->graph, v)->python_flags & TGD_PY_COMPILED);
    if (compiled || (v != TGD_NONE && report->graph.nodes[v].address != op->inside)) {
        return TGD_OK; /* torch.compile's own second derivative raises, and is no constant */
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
        tgd_identity id = evidence->record->ids[op->first_id + op->n_in + i];
        tgd_node w = id & TGD_IDENTITY_NODE
                         ? node_numbered(&report->graph, id >> 48 & 0x7FFF, id >> 8 & UINT64_C(0xFFFFFFFFFF))
                         : TGD_NONE;
        if (w != TGD_NONE && report->order[w] != TGD_NONE) {
            return add(evidence, TGD_CUSTOM_FUNCTION, TGD_DETAIL_CONSTANT, v == TGD_NONE ? w : v, made->name, &made->place);
        }
    }
    return keep(k, op, *used);
}

static tgd_status find_kept(tgd_evidence *evidence)
{
    const tgd_record *record = evidence->record;
    bool twice = false;
    for (uint32_t i = 0; i < record->n_runs; i++) {
        twice = twice || record->runs[i].create_graph;
    }
    keeper k = {.evidence = evidence};
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; twice && i < record->n_ops && status == TGD_OK; i++) {
        const tgd_op_row *op = &record->ops[i];
        if (!(op->flags & TGD_OP_IN_BACKWARD)) {
            status = forward_op(&k, i);
        } else if (op->flags & TGD_OP_GRAD_MODE) {
            status = backward_op(&k, op);
        }
    }
    free(k.tensors);
    tgd_address_map_clear(&k.known);
    return status;
}

tgd_status tgd_find_custom(tgd_evidence *evidence)
{
    const tgd_report *report = evidence->report;
    tgd_status status = report->refused ? TGD_OK : find_kept(evidence);
    for (size_t i = 0; i < report->n_events && status == TGD_OK; i++) {
        if (report->events[i].kind == TGD_EVENT_LACKED) {
            status = judge_lacked(evidence, &report->events[i]);
        } else if (report->events[i].kind == TGD_EVENT_STOPPED) {
            status = judge_stop(evidence, &report->events[i]);
        } else if (report->events[i].kind == TGD_EVENT_WRITTEN) {
            status = judge_written(evidence, &report->events[i]);
        }
    }
    return status;
}
