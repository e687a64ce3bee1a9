/* Units: nodes in backward's order, each op with its views and leaves. Every step is linear in the graph, or linear
   with a logarithm of how many nodes are ready at once; none uses stack that grows with it. */
#include "fold.h"

#include <stdlib.h>
#include <string.h>

enum { MUST_FLAGGED = 5, MUST_ALL = 14, NEIGHBOURS = 2 };

/* ---- units ---- */

static bool name_is(const char *name, size_t n, const char *const *list)
{
    for (; *list != NULL; list++) {
        if (strlen(*list) == n && memcmp(name, *list, n) == 0) {
            return true;
        }
    }
    return false;
}

/* Ops that only show, cut or convert a tensor. */
static bool is_view_name(const char *name)
{
    static const char *const views[] = {
        "View", "UnsafeView", "Reshape", "ReshapeAlias", "Transpose", "Permute", "T", "Split", "SplitWithSizes",
        "UnsafeSplit", "UnsafeSplitWithSizes", "Chunk", "Expand", "Unsqueeze", "Squeeze", "Clone", "Slice", "Alias",
        "Select", "Unbind", "Narrow", "AsStrided", "Diagonal", "Unfold", "Movedim", "Swapaxes", "ToCopy", "Flatten",
        "Unflatten", "Detach", "ViewAs", "Contiguous", "BroadcastTensors", "ViewAsReal", "ViewAsComplex", "Lift",
        NULL};
    return name_is(name, tgd_fold_op_length(name), views);
}

/* Whose units' nodes use a node: one unit, or several. */
enum { OWNER_NONE = UINT32_MAX, OWNER_MANY = UINT32_MAX - 1 };

typedef struct scratch {
    tgd_node *order;    /* Owned */
    uint32_t *waiting;  /* Owned; later the owner */
    tgd_node *heap;     /* Owned; later the finding about a node */
    uint8_t *real;      /* Owned, per unit: holds an op that is no view */
    uint32_t *consumer; /* Owned, per unit: the unit nearest before it that uses it */
    uint8_t *leaf_seen; /* Owned, per leaf */
} scratch;

static void scratch_clear(scratch *s)
{
    free(s->order);
    free(s->waiting);
    free(s->heap);
    free(s->real);
    free(s->consumer);
    free(s->leaf_seen);
}

static void *rows(size_t n, size_t size)
{
    return calloc(n == 0 ? 1 : n, size);
}

/* A node joins the unit of its users when it is a view, or when so far that unit holds nothing but views. Joining
   only where all users are in that unit keeps the units free of cycles. */
static void assign_units(tgd_units *units, scratch *s, uint32_t n_order)
{
    const tgd_graph *graph = &units->report->graph;
    const uint32_t *finding = s->heap;
    uint32_t *owner = s->waiting;
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        owner[v] = OWNER_NONE;
        units->unit_of[v] = TGD_NONE;
    }
    for (uint32_t i = 0; i < n_order; i++) {
        tgd_node v = s->order[i];
        bool view = units->is_view[graph->nodes[v].type] && finding[v] == TGD_NONE;
        uint32_t unit = owner[v];
        if (unit >= OWNER_MANY || finding[v] != TGD_NONE || (!view && s->real[unit])) {
            unit = units->n++;
            s->real[unit] = 0;
        }
        s->real[unit] |= !view;
        units->unit_of[v] = unit;
        const tgd_node_row *row = &graph->nodes[v];
        for (uint32_t k = 0; k < row->n_edges; k++) {
            tgd_node to = graph->edges[row->first_edge + k].to;
            if (to != TGD_NONE && owner[to] != unit) {
                owner[to] = owner[to] == OWNER_NONE ? unit : OWNER_MANY;
            }
        }
    }
}

static void gather_members(tgd_units *units, const scratch *s, uint32_t n_order)
{
    const tgd_graph *graph = &units->report->graph;
    for (uint32_t i = 0; i < n_order; i++) {
        units->start[units->unit_of[s->order[i]] + 1]++;
    }
    for (uint32_t u = 0; u < units->n; u++) {
        units->start[u + 1] += units->start[u];
        units->lead[u] = TGD_NONE;
    }
    for (uint32_t i = 0; i < n_order; i++) {
        tgd_node v = s->order[i];
        uint32_t u = units->unit_of[v];
        units->members[units->start[u]++] = v; /* start[u] moves on to start[u + 1]; put back below */
    }
    for (uint32_t u = units->n; u > 0; u--) {
        units->start[u] = units->start[u - 1];
    }
    units->start[0] = 0;
    for (uint32_t u = 0; u < units->n; u++) {
        units->lead[u] = units->members[units->start[u]];
        for (uint32_t m = units->start[u]; m < units->start[u + 1]; m++) {
            tgd_node v = units->members[m];
            if (!units->is_view[graph->nodes[v].type] || s->heap[v] != TGD_NONE) {
                units->lead[u] = v;
                break;
            }
        }
    }
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 29);
}

static uint32_t input_shape(const tgd_graph *graph, tgd_node v)
{
    const tgd_node_row *row = &graph->nodes[v];
    return row->n_inputs == 0 ? TGD_NONE : graph->inputs[row->first_input].shape;
}

static void link_units(tgd_units *units, scratch *s)
{
    const tgd_graph *graph = &units->report->graph;
    for (uint32_t u = 0; u < units->n; u++) {
        uint64_t alike = 1;
        uint64_t same = 1;
        units->finding[u] = TGD_NONE;
        for (uint32_t m = units->start[u]; m < units->start[u + 1]; m++) {
            tgd_node v = units->members[m];
            const tgd_node_row *row = &graph->nodes[v];
            if (s->heap[v] < units->finding[u]) {
                units->finding[u] = s->heap[v];
            }
            alike = mix(alike, row->type);
            same = mix(mix(same, row->type), input_shape(graph, v));
            for (uint32_t k = 0; k < row->n_edges; k++) {
                tgd_node to = graph->edges[row->first_edge + k].to;
                if (to == TGD_NONE) {
                    continue;
                }
                uint32_t w = units->unit_of[to];
                if (w == TGD_NONE) {
                    uint32_t leaf = graph->nodes[to].leaf;
                    alike = mix(alike, 7);
                    same = mix(same, leaf == TGD_NONE ? 7 : graph->leaves[leaf].shape);
                    if (leaf != TGD_NONE && !s->leaf_seen[leaf]) {
                        s->leaf_seen[leaf] = 1;
                        if (s->heap[to] < units->finding[u]) {
                            units->finding[u] = s->heap[to];
                        }
                    }
                } else if (w > u) {
                    s->consumer[w] = u;
                    units->cross[u]++;
                    units->cross[w]--; /* wraps; the running sum below does not */
                }
            }
        }
        units->alike[u] = alike;
        units->same[u] = same;
    }
    for (uint32_t u = 1; u < units->n; u++) {
        units->cross[u] += units->cross[u - 1];
    }
}

/* ---- findings ---- */

static tgd_status number_findings(tgd_units *units, tgd_error *err)
{
    const tgd_report *report = units->report;
    uint32_t *number = rows((size_t)report->n_groups * 3, sizeof *number);
    if (number == NULL) {
        return tgd_fail_memory(err);
    }
    for (uint32_t i = 0; i < report->n_findings; i++) {
        uint32_t *seen = &number[(size_t)report->findings[i].group * 3 + report->findings[i].severity];
        if (*seen == 0) {
            *seen = ++units->n_numbers;
        }
        units->number[i] = *seen;
    }
    free(number);
    return TGD_OK;
}

static bool require(tgd_units *units, uint32_t unit, uint32_t *n)
{
    if (!units->must[unit]) {
        if (*n >= MUST_ALL) {
            return false;
        }
        units->must[unit] = 1;
        (*n)++;
    }
    return true;
}

/* The first flagged units, then their neighbours, become boxes of their own. One of each group goes first, so that
   a hundred findings of one cause do not hide another cause. */
static void choose_must(tgd_units *units, const scratch *s, const uint32_t *unit_of_finding)
{
    const tgd_report *report = units->report;
    const tgd_graph *graph = &report->graph;
    uint32_t flagged[MUST_FLAGGED];
    uint32_t n_flagged = 0;
    uint32_t n = 0;
    for (int round = 0; round < 2; round++) {
        uint32_t last_number = 0;
        for (uint32_t i = 0; i < report->n_findings && n_flagged < MUST_FLAGGED; i++) {
            uint32_t unit = unit_of_finding[i];
            bool first = units->number[i] > last_number;
            last_number = first ? units->number[i] : last_number;
            if (unit == TGD_NONE || units->must[unit] || (round == 0 && !first) ||
                (round == 1 && (report->findings[i].severity == TGD_NOTE ||
                                report->findings[i].kind == TGD_GRAPH_FREED))) {
                continue; /* one freed node tells about all of them */
            }
            require(units, unit, &n);
            flagged[n_flagged++] = unit;
        }
    }
    for (uint32_t i = 0; i < n_flagged; i++) {
        uint32_t u = flagged[i];
        if (s->consumer[u] != TGD_NONE) {
            require(units, s->consumer[u], &n);
        }
        uint32_t found = 0;
        for (uint32_t m = units->start[u]; m < units->start[u + 1] && found < NEIGHBOURS; m++) {
            const tgd_node_row *row = &graph->nodes[units->members[m]];
            for (uint32_t k = 0; k < row->n_edges && found < NEIGHBOURS; k++) {
                tgd_node to = graph->edges[row->first_edge + k].to;
                uint32_t w = to == TGD_NONE ? TGD_NONE : units->unit_of[to];
                if (w != TGD_NONE && w != u && require(units, w, &n)) {
                    found++;
                }
            }
        }
    }
}

static tgd_status mark_units(tgd_units *units, const scratch *s, tgd_error *err)
{
    const tgd_report *report = units->report;
    const tgd_graph *graph = &report->graph;
    tgd_status status = number_findings(units, err);
    if (status != TGD_OK) {
        return status;
    }
    uint32_t *unit_of_finding = rows(report->n_findings, sizeof *unit_of_finding);
    uint32_t *user = rows(graph->n_leaves, sizeof *user);
    if (unit_of_finding == NULL || user == NULL) {
        free(unit_of_finding);
        free(user);
        return tgd_fail_memory(err);
    }
    for (uint32_t leaf = 0; leaf < graph->n_leaves; leaf++) {
        user[leaf] = TGD_NONE;
    }
    for (uint32_t m = report->n_findings == 0 ? 0 : units->start[units->n]; m > 0; m--) {
        const tgd_node_row *row = &graph->nodes[units->members[m - 1]];
        for (uint32_t k = 0; k < row->n_edges; k++) {
            tgd_node to = graph->edges[row->first_edge + k].to;
            if (to != TGD_NONE && units->unit_of[to] == TGD_NONE && graph->nodes[to].leaf != TGD_NONE) {
                user[graph->nodes[to].leaf] = units->unit_of[units->members[m - 1]];
            }
        }
    }
    for (uint32_t i = 0; i < report->n_findings; i++) {
        tgd_node v = report->findings[i].node;
        unit_of_finding[i] = v == TGD_NONE ? TGD_NONE : units->unit_of[v];
        if (v != TGD_NONE && unit_of_finding[i] == TGD_NONE && graph->nodes[v].leaf != TGD_NONE) {
            unit_of_finding[i] = user[graph->nodes[v].leaf];
        }
    }
    choose_must(units, s, unit_of_finding);
    free(unit_of_finding);
    free(user);
    return TGD_OK;
}

/* ---- all of it ---- */

static tgd_status allocate(tgd_units *units, scratch *s, tgd_error *err)
{
    const tgd_report *report = units->report;
    const tgd_graph *graph = &report->graph;
    size_t n = graph->n_nodes;
    s->order = rows(n, sizeof *s->order);
    s->waiting = rows(n, sizeof *s->waiting);
    s->heap = rows(n, sizeof *s->heap);
    s->real = rows(n, sizeof *s->real);
    s->leaf_seen = rows(graph->n_leaves, sizeof *s->leaf_seen);
    units->unit_of = rows(n, sizeof *units->unit_of);
    units->number = rows(report->n_findings, sizeof *units->number);
    units->is_view = rows(graph->n_types, sizeof *units->is_view);
    bool ok = s->order != NULL && s->waiting != NULL && s->heap != NULL && s->real != NULL && s->leaf_seen != NULL &&
              units->unit_of != NULL && units->number != NULL && units->is_view != NULL;
    return ok ? TGD_OK : tgd_fail_memory(err);
}

static tgd_status allocate_units(tgd_units *units, scratch *s, uint32_t n_order, tgd_error *err)
{
    size_t n = units->n;
    s->consumer = rows(n, sizeof *s->consumer);
    units->start = rows(n + 1, sizeof *units->start);
    units->members = rows(n_order, sizeof *units->members);
    units->lead = rows(n, sizeof *units->lead);
    units->alike = rows(n, sizeof *units->alike);
    units->same = rows(n, sizeof *units->same);
    units->module = rows(n, sizeof *units->module);
    units->named = rows(n, sizeof *units->named);
    units->finding = rows(n, sizeof *units->finding);
    units->must = rows(n, sizeof *units->must);
    units->cross = rows(n, sizeof *units->cross);
    bool ok = s->consumer != NULL && units->start != NULL && units->members != NULL && units->lead != NULL &&
              units->alike != NULL && units->same != NULL && units->module != NULL && units->named != NULL &&
              units->finding != NULL && units->must != NULL && units->cross != NULL;
    return ok ? TGD_OK : tgd_fail_memory(err);
}

static tgd_status make(tgd_units *units, scratch *s, tgd_error *err)
{
    const tgd_report *report = units->report;
    const tgd_graph *graph = &report->graph;
    tgd_status status = allocate(units, s, err);
    if (status != TGD_OK) {
        return status;
    }
    for (uint32_t t = 0; t < graph->n_types; t++) {
        units->is_view[t] = is_view_name(graph->types[t].name);
    }
    uint32_t n_order = tgd_fold_order(graph, s->order, s->waiting, s->heap);
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        s->heap[v] = TGD_NONE;
    }
    for (uint32_t i = report->n_findings; i > 0; i--) {
        if (report->findings[i - 1].node != TGD_NONE) {
            s->heap[report->findings[i - 1].node] = i - 1;
        }
    }
    assign_units(units, s, n_order);
    status = allocate_units(units, s, n_order, err);
    if (status != TGD_OK) {
        return status;
    }
    for (uint32_t u = 0; u < units->n; u++) {
        s->consumer[u] = TGD_NONE;
    }
    gather_members(units, s, n_order);
    link_units(units, s);
    status = mark_units(units, s, err);
    if (status == TGD_OK) {
        status = tgd_units_name(units, s->consumer, err);
    }
    return status != TGD_OK ? status : tgd_units_measure(units, err);
}

tgd_status tgd_units_make(tgd_units *out, const tgd_report *report, tgd_error *err)
{
    tgd_units units = {.report = report};
    scratch s = {0};
    tgd_status status = make(&units, &s, err);
    scratch_clear(&s);
    if (status != TGD_OK) {
        tgd_units_clear(&units);
        return status;
    }
    *out = units;
    return TGD_OK;
}

void tgd_units_clear(tgd_units *units)
{
    free(units->unit_of);
    free(units->start);
    free(units->members);
    free(units->lead);
    free(units->alike);
    free(units->same);
    free(units->module);
    free(units->named);
    free(units->finding);
    free(units->must);
    free(units->cross);
    free(units->modules);
    free(units->number);
    free(units->is_view);
    free(units->measured);
    *units = (tgd_units){0};
}
