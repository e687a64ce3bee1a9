/* What a report from a file says beside its snapshot: parameters, findings, the order; and whether it all fits. */
#include "restore.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_GROUPS_A_FINDING = 16, MOST_GROUPS = 1024 };

static tgd_status copy(char **out, const char *s, tgd_error *err)
{
    *out = NULL;
    if (s == NULL) {
        return TGD_OK;
    }
    size_t size = strlen(s) + 1;
    *out = malloc(size);
    if (*out == NULL) {
        return tgd_fail_memory(err);
    }
    memcpy(*out, s, size);
    return TGD_OK;
}

tgd_status tgd_restore_parameter(tgd_restorer *r, const char *name, const tgd_restored_tensor *tensor,
                                 bool requires_grad, bool reached, uint32_t node, tgd_error *err)
{
    tgd_report *report = r->report;
    const tgd_graph *graph = &report->graph;
    if (node != TGD_NONE && (node >= graph->n_nodes || graph->nodes[node].leaf == TGD_NONE)) {
        return tgd_fail(err, TGD_EINVAL, "node: expected an AccumulateGrad, got %lu of %lu nodes", (unsigned long)node,
                        (unsigned long)graph->n_nodes);
    }
    uint32_t string;
    tgd_tensor_row shape;
    tgd_status status = tgd_restore_tensor(r, tensor, &shape, err);
    if (status == TGD_OK) {
        status = tgd_restore_string(r, name, &string, err);
    }
    if (status != TGD_OK) {
        return status;
    }
    tgd_parameter_row *rows =
        tgd_grow(report->parameters, &r->parameter_capacity, (size_t)report->n_parameters + 1, sizeof *rows);
    uint32_t *first = rows == NULL ? NULL : tgd_address_map_at(&r->parameters, tgd_restore_key(string));
    report->parameters = rows == NULL ? report->parameters : rows;
    if (first == NULL) {
        return tgd_fail_memory(err);
    }
    tgd_parameter_row row = {.leaf = node == TGD_NONE ? TGD_NONE : graph->nodes[node].leaf, .node = TGD_NONE,
                             .shape = shape.shape, .numel = tgd_graph_numel(graph, shape.shape),
                             .flags = requires_grad ? TGD_TENSOR_REQUIRES_GRAD : 0u, .reached = reached,
                             .dtype = -1, .device_type = -1, .device_index = -1, .layout = -1};
    status = copy(&row.name, name, err);
    if (status != TGD_OK) {
        return status;
    }
    *first = *first == TGD_NONE ? report->n_parameters : *first;
    rows[report->n_parameters++] = row;
    return TGD_OK;
}

/* ---- findings ---- */

/* Fills the row's indices. */
static tgd_status resolve(tgd_restorer *r, const tgd_restored_finding *finding, tgd_finding_row *row, tgd_error *err)
{
    const tgd_graph *graph = &r->report->graph;
    if (finding->node != TGD_NONE && finding->node >= graph->n_nodes) {
        return tgd_fail(err, TGD_EINVAL, "node: %lu of %lu nodes", (unsigned long)finding->node,
                        (unsigned long)graph->n_nodes);
    }
    if (finding->root != TGD_NONE && finding->root >= graph->n_roots) {
        return tgd_fail(err, TGD_EINVAL, "root: %lu of %lu roots", (unsigned long)finding->root,
                        (unsigned long)graph->n_roots);
    }
    if (finding->saved != TGD_NONE) {
        if (finding->node == TGD_NONE || finding->saved >= graph->nodes[finding->node].n_saved) {
            return tgd_fail(err, TGD_EINVAL, "saved_place: %lu, and the node has no such saved tensor",
                            (unsigned long)finding->saved);
        }
        row->saved = graph->nodes[finding->node].first_saved + finding->saved;
    } else if (finding->kind == TGD_MODIFIED_IN_PLACE) {
        return tgd_fail(err, TGD_EINVAL, "saved_place: expected the saved tensor that was modified, got null");
    }
    if (finding->parameter != NULL) {
        uint32_t string;
        tgd_status status = tgd_restore_string(r, finding->parameter, &string, err);
        if (status != TGD_OK) {
            return status;
        }
        row->parameter = tgd_address_map_find(&r->parameters, tgd_restore_key(string));
        if (row->parameter == TGD_NONE) {
            return tgd_fail(err, TGD_EINVAL, "parameter: \"%.60s\" is not among the parameters", finding->parameter);
        }
    } else if (finding->kind == TGD_UNREACHED_PARAMETER) {
        return tgd_fail(err, TGD_EINVAL, "parameter: expected the name of the parameter, got null");
    }
    return TGD_OK;
}

tgd_status tgd_restore_finding(tgd_restorer *r, const tgd_restored_finding *finding, tgd_error *err)
{
    tgd_report *report = r->report;
    tgd_finding_row row = {
        .kind = (uint8_t)finding->kind,
        .severity = (uint8_t)finding->severity,
        .reason = (uint8_t)finding->reason,
        .node = finding->node,
        .saved = TGD_NONE,
        .parameter = TGD_NONE,
        .root = finding->root,
        .group = finding->group,
        .other = TGD_NONE,
        .culprit = finding->culprit,
        .unsure = finding->unsure,
    };
    if (report->n_findings > 0 && report->findings[report->n_findings - 1].severity > row.severity) {
        return tgd_fail(err, TGD_EINVAL, "severity: expected errors first, then warnings, then notes");
    }
    tgd_status status = resolve(r, finding, &row, err);
    if (status == TGD_OK) {
        status = tgd_restore_source(r, finding->where, &row.where, err);
    }
    if (status == TGD_OK && finding->op != NULL) {
        uint32_t op;
        status = tgd_restore_string(r, finding->op, &op, err);
        row.op = status == TGD_OK ? report->graph.strings[op] : NULL;
    }
    if (status != TGD_OK) {
        return status;
    }
    tgd_words_row *words = tgd_grow(report->words, &r->words_capacity, (size_t)report->n_findings + 1, sizeof *words);
    if (words == NULL) {
        return tgd_fail_memory(err);
    }
    report->words = words;
    status = copy(&words[report->n_findings].message, finding->message, err);
    if (status == TGD_OK && (status = copy(&words[report->n_findings].hint, finding->hint, err)) != TGD_OK) {
        free(words[report->n_findings].message);
    }
    if (status != TGD_OK) {
        return status;
    }
    status = tgd_report_add(report, row, err);
    if (status != TGD_OK) {
        free(words[report->n_findings].message);
        free(words[report->n_findings].hint);
        return status;
    }
    report->n_errors += row.severity == TGD_ERROR;
    report->n_warnings += row.severity == TGD_WARNING;
    report->n_notes += row.severity == TGD_NOTE;
    report->n_groups = row.group >= report->n_groups ? row.group + 1 : report->n_groups;
    return TGD_OK;
}

/* ---- the whole ---- */

static tgd_status check_edges(const tgd_graph *graph, tgd_error *err)
{
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        for (uint32_t k = 0; k < graph->nodes[v].n_edges; k++) {
            tgd_node to = graph->edges[graph->nodes[v].first_edge + k].to;
            if (to != TGD_NONE && to >= graph->n_nodes) {
                return tgd_fail(err, TGD_EINVAL, "nodes[%lu].edges[%lu]: it leads to node %lu of %lu", (unsigned long)v,
                                (unsigned long)k, (unsigned long)to, (unsigned long)graph->n_nodes);
            }
        }
    }
    return TGD_OK;
}

/* Callers are places among the sources, and no source is called by itself over whatever others. */
static tgd_status check_sources(const tgd_report *report, tgd_error *err)
{
    uint32_t n = report->n_sources;
    uint32_t *seen = calloc((size_t)n + 1, sizeof *seen); /* 1 + the source from which it was come to */
    if (seen == NULL) {
        return tgd_fail_memory(err);
    }
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < n && status == TGD_OK; i++) {
        for (uint32_t at = i + 1; at != 0 && status == TGD_OK; at = report->sources[at - 1].caller) {
            if (at > n) {
                status = tgd_fail(err, TGD_EINVAL, "sources: caller %lu of %lu", (unsigned long)at - 1, (unsigned long)n);
            } else if (seen[at - 1] == i + 1) {
                status = tgd_fail(err, TGD_EINVAL, "sources: their callers go round in a circle");
            } else if (seen[at - 1] != 0) {
                break; /* known to end */
            } else {
                seen[at - 1] = i + 1;
            }
        }
    }
    free(seen);
    return status;
}

static tgd_status check_makers(const tgd_report *report, tgd_error *err)
{
    for (tgd_node v = 0; v < report->graph.n_nodes; v++) {
        tgd_node maker = report->node_made_by[v];
        if (maker != TGD_NONE && maker >= report->graph.n_nodes) {
            return tgd_fail(err, TGD_EINVAL, "nodes[%lu].made_by: %lu of %lu nodes", (unsigned long)v,
                            (unsigned long)maker, (unsigned long)report->graph.n_nodes);
        }
    }
    return TGD_OK;
}

/* Takes nodes away that nothing leads to any more, until none is left. */
static tgd_status check_acyclic(const tgd_graph *graph, tgd_error *err)
{
    uint32_t n = graph->n_nodes, first = 0, last = 0;
    uint32_t *waiting = calloc((size_t)n + 1, sizeof *waiting);
    tgd_node *queue = malloc(((size_t)n + 1) * sizeof *queue);
    tgd_status status = waiting == NULL || queue == NULL ? tgd_fail_memory(err) : TGD_OK;
    for (uint32_t e = 0; e < graph->n_edges && status == TGD_OK; e++) {
        if (graph->edges[e].to != TGD_NONE) {
            waiting[graph->edges[e].to]++;
        }
    }
    for (tgd_node v = 0; v < n && status == TGD_OK; v++) {
        if (waiting[v] == 0) {
            queue[last++] = v;
        }
    }
    while (first < last) {
        const tgd_node_row *row = &graph->nodes[queue[first++]];
        for (uint32_t e = row->first_edge; e < row->first_edge + row->n_edges; e++) {
            tgd_node to = graph->edges[e].to;
            if (to != TGD_NONE && --waiting[to] == 0) {
                queue[last++] = to;
            }
        }
    }
    if (status == TGD_OK && last < n) {
        status = tgd_fail(err, TGD_EINVAL, "nodes: their edges go round in a circle, and no graph of autograd's does");
    }
    free(waiting);
    free(queue);
    return status;
}

/* Fills sequence: the places are 0, 1, 2, ..., each once, and no node runs before one that leads to it. */
static tgd_status check_order(tgd_report *report, tgd_error *err)
{
    const tgd_graph *graph = &report->graph;
    uint32_t n = 0;
    report->sequence = malloc(((size_t)graph->n_nodes + 1) * sizeof *report->sequence);
    if (report->sequence == NULL) {
        return tgd_fail_memory(err);
    }
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        n += report->order[v] != TGD_NONE;
        report->sequence[v] = TGD_NONE;
    }
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        uint32_t place = report->order[v];
        if (place == TGD_NONE) {
            continue;
        }
        if (place >= n || report->sequence[place] != TGD_NONE) {
            return tgd_fail(err, TGD_EINVAL, "nodes[%lu].order: expected each place from 0 to %lu once, got %lu",
                            (unsigned long)v, (unsigned long)n - 1, (unsigned long)place);
        }
        report->sequence[place] = v;
        const tgd_node_row *row = &graph->nodes[v];
        for (uint32_t e = row->first_edge; e < row->first_edge + row->n_edges; e++) {
            tgd_node to = graph->edges[e].to;
            if (to != TGD_NONE && report->order[to] <= place) {
                return tgd_fail(err, TGD_EINVAL, "nodes[%lu].order: it runs after node %lu, which it leads to",
                                (unsigned long)v, (unsigned long)to);
            }
        }
    }
    report->n_executed = n;
    return TGD_OK;
}

static tgd_status name_leaves(tgd_report *report, tgd_error *err)
{
    report->leaf_parameter = malloc(((size_t)report->graph.n_leaves + 1) * sizeof *report->leaf_parameter);
    if (report->leaf_parameter == NULL) {
        return tgd_fail_memory(err);
    }
    for (uint32_t i = 0; i < report->graph.n_leaves; i++) {
        report->leaf_parameter[i] = TGD_NONE;
    }
    for (uint32_t i = report->n_parameters; i-- > 0;) {
        if (report->parameters[i].leaf != TGD_NONE) {
            report->leaf_parameter[report->parameters[i].leaf] = i;
        }
    }
    return TGD_OK;
}

static tgd_status check_head(const tgd_report *report, const tgd_restored_head *head, tgd_error *err)
{
    if (report->graph.n_roots == 0) {
        return tgd_fail(err, TGD_EINVAL, "roots: expected at least one");
    }
    if (head->depth > report->graph.n_nodes) {
        return tgd_fail(err, TGD_EINVAL, "summary.depth: %lu, and there are %lu nodes", (unsigned long)head->depth,
                        (unsigned long)report->graph.n_nodes);
    }
    if (head->first_error > report->n_executed) {
        return tgd_fail(err, TGD_EINVAL, "summary.executed_to_error: %lu of %lu nodes that run",
                        (unsigned long)head->first_error, (unsigned long)report->n_executed);
    }
    if (report->n_groups > (uint64_t)report->n_findings * MOST_GROUPS_A_FINDING + MOST_GROUPS) {
        return tgd_fail(err, TGD_EINVAL, "findings: group %lu of %lu findings", (unsigned long)report->n_groups - 1,
                        (unsigned long)report->n_findings);
    }
    return TGD_OK;
}

tgd_status tgd_restore_end(tgd_restorer *r, const tgd_restored_head *head, tgd_report **out, tgd_error *err)
{
    tgd_report *report = r->report;
    tgd_status status = check_edges(&report->graph, err);
    if (status == TGD_OK) {
        status = check_sources(report, err);
    }
    if (status == TGD_OK) {
        status = check_makers(report, err);
    }
    if (status == TGD_OK) {
        status = check_acyclic(&report->graph, err);
    }
    if (status == TGD_OK) {
        status = check_order(report, err);
    }
    if (status == TGD_OK) {
        status = check_head(report, head, err);
    }
    if (status == TGD_OK) {
        status = name_leaves(report, err);
    }
    if (status == TGD_OK) {
        status = copy(&report->verdict, head->verdict, err);
    }
    if (status == TGD_OK) {
        status = copy(&report->torch, head->torch, err);
    }
    if (status == TGD_OK) {
        status = copy(&report->raised, head->raised, err);
    }
    if (status == TGD_OK) {
        status = copy(&report->occasion, head->occasion, err);
    }
    if (status != TGD_OK) {
        return status;
    }
    report->recorded = head->recorded;
    report->root_fails = head->roots_refused;
    report->has_parameters = head->has_parameters;
    report->has_inputs = head->has_inputs;
    report->create_graph = head->create_graph;
    report->depth = head->depth;
    report->first_error = head->first_error;
    report->snapshot_bytes = head->snapshot_bytes;
    tgd_graph_seal(&report->graph);
    r->report = NULL;
    *out = report;
    return TGD_OK;
}
