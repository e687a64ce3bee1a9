/*
 * Saved tensors -> states and findings. The order of the checks is that of SavedVariable::unpack()
 * (torch/csrc/autograd/saved_variable.cpp): nothing saved, released, detached in place, version. What unpack() does
 * not look at, the storage, comes after it.
 */
#include "judge.h"

#include <stdlib.h>

typedef struct judge {
    tgd_report *report;
    tgd_address_map groups;   /* version counter or storage -> group */
    tgd_error *err;
    bool mended;   /* a node that ran before has a hook that could bring a storage back */
    bool sharded;  /* a sharded module's node is in the graph */
    bool custom;   /* a node that ran before is written in Python, and could do anything */
    uint32_t first_hooked, n_hooked, n_busy, first_busy;
} judge;

uint64_t tgd_saved_end(const tgd_graph *graph, const tgd_saved_row *saved)
{
    if (saved->shape == TGD_NONE || saved->strides == TGD_NONE ||
        saved->storage_offset == INT32_MAX) {
        return 0;
    }
    int ndim, n_strides;
    const int64_t *sizes = tgd_graph_shape(graph, saved->shape, &ndim);
    const int64_t *strides = tgd_graph_shape(graph, saved->strides, &n_strides);
    int64_t last = saved->storage_offset;
    for (int i = 0; i < ndim && i < n_strides; i++) {
        if (sizes[i] < 0 || strides[i] < 0) {
            return 0;
        }
        last += (sizes[i] - 1) * strides[i];
    }
    return ((uint64_t)last + 1) * saved->itemsize;
}

/* Does the leaf have other sizes or another dtype than its AccumulateGrad was made for? */
static bool leaf_reshaped(const tgd_graph *graph, uint32_t leaf)
{
    const tgd_leaf_row *now = &graph->leaves[leaf];
    const tgd_node_row *node = &graph->nodes[now->node];
    if (node->n_inputs == 0 || now->shape == TGD_NONE) {
        return false;
    }
    const tgd_input_row *then = &graph->inputs[node->first_input];
    return then->shape != TGD_NONE && !then->nested && (then->shape != now->shape || then->dtype != now->dtype);
}

static bool is_reshaped(const tgd_graph *graph, const tgd_lookup *lookup, const tgd_saved_row *saved)
{
    if (saved->flags & TGD_SV_METADATA_DIFFERS) {
        return true;
    }
    if (!(saved->flags & TGD_SV_LEAF) || !(saved->flags & TGD_SV_ORIGINAL)) {
        return false;
    }
    uint32_t leaf = tgd_address_map_find(&lookup->leaves, saved->tensor);
    return leaf != TGD_NONE && leaf_reshaped(graph, leaf);
}

static tgd_saved_state state_of(const tgd_graph *graph, const tgd_saved_row *saved)
{
    if (saved->flags & TGD_SV_RELEASED_FLAG) {
        return TGD_SAVED_RELEASED;
    }
    if (saved->flags & TGD_SV_EMPTY) {
        return TGD_SAVED_NONE;
    }
    bool defined = (saved->tensor_flags & TGD_TENSOR_DEFINED) != 0, hooks = (saved->flags & TGD_SV_HOOKS) != 0;
    if (!defined && !hooks) {
        return TGD_SAVED_RELEASED;
    }
    if (!(saved->flags & (TGD_SV_LEAF | TGD_SV_HAS_GRAD_FN | TGD_SV_GIVEN_NODE))) {
        return TGD_SAVED_DETACHED;
    }
    if (hooks) {
        return TGD_SAVED_HOOKED;
    }
    if (saved->saved_version != saved->version) {
        return TGD_SAVED_MODIFIED;
    }
    if (saved->tensor_flags & (TGD_TENSOR_WRAPPER | TGD_TENSOR_SUBCLASS)) {
        return TGD_SAVED_UNCHECKED; /* what it wraps was not looked at, and its own storage holds nothing */
    }
    if (!(saved->tensor_flags & TGD_TENSOR_META) && saved->storage != TGD_NONE &&
        tgd_graph_numel(graph, saved->shape) > 0) {
        uint64_t bytes = graph->storages[saved->storage].bytes;
        if (bytes == 0) {
            return TGD_SAVED_STORAGE_FREED;
        }
        if (tgd_saved_end(graph, saved) > bytes) {
            return TGD_SAVED_STORAGE_CHANGED;
        }
    }
    return saved->flags & TGD_ROW_RESHAPED ? TGD_SAVED_STORAGE_CHANGED : TGD_SAVED_OK;
}

/* One group for all findings of a kind with this key; a group of its own where there is no key. */
static tgd_status group_of(judge *j, tgd_finding_kind kind, uint64_t key, uint32_t *out)
{
    if (key == 0) {
        *out = j->report->n_groups++;
        return TGD_OK;
    }
    uint32_t *group = tgd_address_map_at(&j->groups, key * TGD_N_FINDING_KINDS + kind);
    if (group == NULL) {
        return tgd_fail_memory(j->err);
    }
    if (*group == TGD_NONE) {
        *group = j->report->n_groups++;
    }
    *out = *group;
    return TGD_OK;
}

static tgd_severity severity_of(const judge *j, tgd_node v, tgd_detail *detail)
{
    const tgd_graph *graph = &j->report->graph;
    if (!tgd_saved_is_custom(graph, v)) {
        *detail = TGD_DETAIL_SAVED;
        return TGD_ERROR;
    }
    const tgd_node_row *row = &graph->nodes[v];
    const tgd_type_row *type = &graph->types[row->inner_type != TGD_NONE ? row->inner_type : row->type];
    bool unread = type->kind == TGD_NODE_PYTHON && !(type->python_flags & TGD_PY_READS_SAVED);
    *detail = unread ? TGD_DETAIL_UNREAD : TGD_DETAIL_CUSTOM;
    return unread ? TGD_NOTE : TGD_WARNING;
}

/* A storage that is gone or too small may come back before the node runs. */
static tgd_severity storage_severity(const judge *j, tgd_node v, tgd_detail *detail)
{
    tgd_severity severity = severity_of(j, v, detail);
    if (severity == TGD_ERROR && j->sharded) {
        *detail = TGD_DETAIL_SHARDED;
        return TGD_NOTE;
    }
    if (severity == TGD_ERROR && j->mended) {
        *detail = TGD_DETAIL_HOOK_MAY_MEND;
        return TGD_WARNING;
    }
    return severity;
}

static tgd_status add_for_saved(judge *j, tgd_node v, uint32_t s)
{
    const tgd_graph *graph = &j->report->graph;
    const tgd_saved_row *saved = &graph->saved[s];
    tgd_detail detail = TGD_DETAIL_SAVED;
    tgd_finding_row row = {.node = v, .saved = s, .parameter = TGD_NONE, .root = TGD_NONE, .other = TGD_NONE,
                           .where = TGD_NONE};
    uint64_t key = 1;
    switch ((tgd_saved_state)saved->state) {
    case TGD_SAVED_OK:
    case TGD_SAVED_NONE:
    case TGD_SAVED_UNCHECKED:
        return TGD_OK;
    case TGD_SAVED_HOOKED:
        j->first_hooked = j->n_hooked++ == 0 ? v : j->first_hooked;
        return TGD_OK;
    case TGD_SAVED_MODIFIED:
        row.kind = TGD_MODIFIED_IN_PLACE;
        row.severity = (uint8_t)severity_of(j, v, &detail);
        key = saved->version_counter;
        break;
    case TGD_SAVED_DETACHED:
        row.kind = TGD_DETACHED_IN_PLACE;
        row.severity = (uint8_t)severity_of(j, v, &detail);
        key = saved->tensor;
        break;
    case TGD_SAVED_RELEASED:
        row.kind = TGD_GRAPH_FREED;
        row.severity = (uint8_t)severity_of(j, v, &detail);
        break;
    case TGD_SAVED_STORAGE_FREED:
        row.kind = TGD_STORAGE_FREED;
        row.reason = TGD_REASON_STORAGE_RESIZED;
        row.severity = (uint8_t)storage_severity(j, v, &detail);
        key = graph->storages[saved->storage].address;
        break;
    case TGD_SAVED_STORAGE_CHANGED:
        row.kind = TGD_STORAGE_CHANGED;
        row.reason = TGD_REASON_STORAGE_RESIZED;
        row.severity = (uint8_t)storage_severity(j, v, &detail);
        if (saved->flags & TGD_ROW_RESHAPED) {
            row.reason = TGD_REASON_DATA_SWAPPED;
            /* The op may accept the new sizes, and then the gradient is of another function. */
            row.severity = row.severity == TGD_ERROR ? TGD_WARNING : row.severity;
            detail = detail == TGD_DETAIL_SAVED ? TGD_DETAIL_RESHAPED : detail;
        } else if (detail == TGD_DETAIL_SAVED) {
            detail = TGD_DETAIL_TOO_SMALL;
        }
        key = saved->tensor;
        break;
    }
    row.detail = (uint8_t)detail;
    tgd_status status = group_of(j, (tgd_finding_kind)row.kind, key, &row.group);
    return status == TGD_OK ? tgd_report_add(j->report, row, j->err) : status;
}

static tgd_status add_for_node(judge *j, tgd_node v, tgd_finding_kind kind, tgd_severity severity, tgd_detail detail,
                               uint32_t other)
{
    tgd_finding_row row = {.kind = (uint8_t)kind, .severity = (uint8_t)severity, .detail = (uint8_t)detail,
                           .node = v, .saved = TGD_NONE, .parameter = TGD_NONE, .root = TGD_NONE, .other = other, .where = TGD_NONE,
                           .group = j->report->n_groups++};
    return tgd_report_add(j->report, row, j->err);
}

/* Is a gradient wanted along an edge for which the class has no formula? */
static bool lacks_formula(const tgd_report *report, tgd_node v)
{
    const tgd_node_row *row = &report->graph.nodes[v];
    uint32_t raising = tgd_graph_type(&report->graph, v)->raising_edges;
    if (row->flags & TGD_ROW_RAISES) {
        return true;
    }
    for (uint32_t k = 0; raising != 0 && k < row->n_edges; k++) {
        tgd_node to = report->graph.edges[row->first_edge + k].to;
        bool wanted = to != TGD_NONE && report->order[to] != TGD_NONE;
        if (wanted && (raising == UINT32_MAX || (k < 32 && (raising >> k & 1u)))) {
            return true;
        }
    }
    return false;
}

static tgd_status judge_type(judge *j, tgd_node v)
{
    const tgd_type_row *type = tgd_graph_type(&j->report->graph, v);
    if (type->kind == TGD_NODE_ERROR) {
        return add_for_node(j, v, TGD_NOT_DIFFERENTIABLE, TGD_ERROR, TGD_DETAIL_ERROR_NODE, TGD_NONE);
    }
    if (type->python_flags & TGD_PY_RAISES) {
        return add_for_node(j, v, TGD_NOT_DIFFERENTIABLE, TGD_ERROR, TGD_DETAIL_COMPILED_TWICE, TGD_NONE);
    }
    if (j->report->create_graph && (type->python_flags & TGD_PY_COMPILED)) {
        return add_for_node(j, v, TGD_NOT_DIFFERENTIABLE, TGD_WARNING, TGD_DETAIL_COMPILED, TGD_NONE);
    }
    if (j->report->create_graph && (type->python_flags & TGD_PY_ONCE_DIFFERENTIABLE)) {
        return add_for_node(j, v, TGD_NOT_DIFFERENTIABLE, TGD_WARNING, TGD_DETAIL_ONCE, TGD_NONE);
    }
    return TGD_OK;
}

static bool is_of_storage(uint8_t state)
{
    return state == TGD_SAVED_STORAGE_FREED || state == TGD_SAVED_STORAGE_CHANGED;
}

/* First what unpack() refuses: a node reads its tensors' data only when all are unpacked. */
static tgd_status judge_saved(judge *j, tgd_node v)
{
    const tgd_graph *graph = &j->report->graph;
    const tgd_node_row *row = &graph->nodes[v];
    uint32_t end = row->first_saved + row->n_saved;
    bool released = false, storage = false;
    tgd_status status = TGD_OK;
    for (uint32_t s = row->first_saved; s < end && status == TGD_OK; s++) {
        uint8_t state = graph->saved[s].state;
        storage = storage || is_of_storage(state);
        bool own = state == TGD_SAVED_RELEASED && j->report->ran != TGD_NOT_YET; /* this very run released it */
        if (is_of_storage(state) || own || (state == TGD_SAVED_RELEASED && released)) {
            continue; /* a node is freed once, however much it held */
        }
        released = released || state == TGD_SAVED_RELEASED;
        status = add_for_saved(j, v, s);
    }
    for (uint32_t s = row->first_saved; storage && s < end && status == TGD_OK; s++) {
        if (is_of_storage(graph->saved[s].state)) {
            status = add_for_saved(j, v, s);
        }
    }
    return status;
}

/* A leaf that changed its sizes or dtype while this graph knows it as it was; unless somebody is likely to change
   it back in time. */
static tgd_status judge_leaf(judge *j, tgd_node v, uint32_t leaf)
{
    const tgd_graph *graph = &j->report->graph;
    const uint32_t foreign = TGD_TENSOR_SUBCLASS | TGD_TENSOR_WRAPPER | TGD_TENSOR_NESTED | TGD_TENSOR_SYMBOLIC;
    if (j->sharded || j->mended || j->custom || (graph->leaves[leaf].flags & foreign) || !leaf_reshaped(graph, leaf)) {
        return TGD_OK;
    }
    tgd_status status = add_for_node(j, v, TGD_STORAGE_CHANGED, TGD_WARNING, TGD_DETAIL_LEAF_RESHAPED, leaf);
    if (status == TGD_OK) { /* of one cause with the nodes that saved this leaf */
        tgd_finding_row *row = &j->report->findings[j->report->n_findings - 1];
        status = group_of(j, TGD_STORAGE_CHANGED, graph->leaves[leaf].tensor, &row->group);
    }
    return status;
}

/* In backward's order, so that findings come in it too. */
static tgd_status judge_executed(judge *j)
{
    const tgd_graph *graph = &j->report->graph;
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < j->report->n_executed && status == TGD_OK; i++) {
        tgd_node v = j->report->sequence[i];
        const tgd_node_row *row = &graph->nodes[v];
        if (row->flags & TGD_ROW_BUSY) {
            j->first_busy = j->n_busy++ == 0 ? v : j->first_busy;
        }
        if (row->hooks != TGD_NONE && row->leaf == TGD_NONE) {
            const tgd_hooks_row *hooks = &graph->hooks[row->hooks];
            j->mended = j->mended || hooks->pre > 0 || hooks->tensor_pre > 0;
        }
        status = judge_type(j, v);
        if (status == TGD_OK) {
            status = judge_saved(j, v);
        }
        if (status == TGD_OK && row->leaf != TGD_NONE) {
            status = judge_leaf(j, v, row->leaf);
        }
        j->custom = j->custom || tgd_graph_type(graph, v)->kind == TGD_NODE_PYTHON;
        if (status == TGD_OK && lacks_formula(j->report, v)) { /* found out after all is unpacked */
            status = add_for_node(j, v, TGD_NOT_DIFFERENTIABLE, TGD_ERROR, TGD_DETAIL_ERROR_NODE, TGD_NONE);
        }
        if (row->hooks != TGD_NONE && row->leaf == TGD_NONE) {
            j->mended = j->mended || graph->hooks[row->hooks].post > 0;
        }
    }
    return status;
}

/* One note for each class nothing is known about. */
static tgd_status judge_opaque(judge *j)
{
    tgd_report *report = j->report;
    const tgd_graph *graph = &report->graph;
    uint32_t *counts = calloc(graph->n_types + 1, sizeof *counts);
    if (counts == NULL) {
        return tgd_fail_memory(j->err);
    }
    for (uint32_t i = 0; i < report->n_executed; i++) {
        const tgd_node_row *row = &graph->nodes[report->sequence[i]];
        if (row->flags & TGD_ROW_OPAQUE) {
            counts[row->type]++;
        }
    }
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < report->n_executed && status == TGD_OK; i++) {
        tgd_node v = report->sequence[i];
        uint32_t type = graph->nodes[v].type;
        if ((graph->nodes[v].flags & TGD_ROW_OPAQUE) && counts[type] > 0) {
            status = add_for_node(j, v, TGD_OPAQUE_NODE, TGD_NOTE, TGD_DETAIL_OPAQUE, counts[type]);
            counts[type] = 0;
        }
    }
    free(counts);
    return status;
}

void tgd_decide_states(tgd_graph *graph, const tgd_lookup *lookup)
{
    for (uint32_t s = 0; s < graph->n_saved; s++) {
        tgd_saved_row *saved = &graph->saved[s];
        if (is_reshaped(graph, lookup, saved)) {
            saved->flags |= TGD_ROW_RESHAPED;
        }
        saved->state = (uint8_t)state_of(graph, saved);
    }
}

tgd_status tgd_judge_nodes(tgd_report *report, tgd_error *err)
{
    judge j = {.report = report, .err = err};
    for (uint32_t t = 0; t < report->graph.n_types; t++) {
        j.sharded = j.sharded || (report->graph.types[t].python_flags & TGD_PY_HIDES_PARAMETERS);
    }
    tgd_status status = judge_executed(&j);
    if (status == TGD_OK && j.n_hooked > 0) {
        status = add_for_node(&j, j.first_hooked, TGD_CHECK_OFF, TGD_NOTE, TGD_DETAIL_HOOKED, j.n_hooked);
    }
    if (status == TGD_OK && j.n_busy > 0) {
        status = add_for_node(&j, j.first_busy, TGD_OPAQUE_NODE, TGD_NOTE, TGD_DETAIL_BUSY, j.n_busy);
    }
    if (status == TGD_OK) {
        status = judge_opaque(&j);
    }
    tgd_address_map_clear(&j.groups);
    return status;
}
