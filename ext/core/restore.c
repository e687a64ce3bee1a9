/* The snapshot of a report that comes from a file: nodes with their edges, inputs and saved tensors, and the roots. */
#include "restore.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static tgd_status restore_type(tgd_restorer *r, const char *name, tgd_node_kind kind, uint32_t *out, tgd_error *err)
{
    tgd_graph *graph = &r->report->graph;
    uint32_t string;
    tgd_status status = tgd_restore_string(r, name, &string, err);
    if (status != TGD_OK) {
        return status;
    }
    uint32_t *index = tgd_address_map_at(&r->types, tgd_restore_key((uint64_t)string * 16 + (uint64_t)kind));
    if (index == NULL) {
        return tgd_fail_memory(err);
    }
    if (*index == TGD_NONE) {
        tgd_type_row *rows = tgd_grow(graph->types, &graph->type_capacity, (size_t)graph->n_types + 1, sizeof *rows);
        if (rows == NULL) {
            return tgd_fail_memory(err);
        }
        graph->types = rows;
        rows[graph->n_types] = (tgd_type_row){.name = graph->strings[string], .kind = kind};
        *index = graph->n_types++;
    }
    *out = *index;
    return TGD_OK;
}

static tgd_status restore_hooks(tgd_restorer *r, const uint32_t counts[4], uint32_t *out, tgd_error *err)
{
    tgd_graph *graph = &r->report->graph;
    *out = TGD_NONE;
    if ((counts[0] | counts[1] | counts[2] | counts[3]) == 0) {
        return TGD_OK;
    }
    tgd_hooks_row *rows = tgd_grow(graph->hooks, &graph->hooks_capacity, (size_t)graph->n_hooks + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(err);
    }
    graph->hooks = rows;
    rows[graph->n_hooks] = (tgd_hooks_row){counts[0], counts[1], counts[2], counts[3]};
    *out = graph->n_hooks++;
    return TGD_OK;
}

static tgd_status restore_leaf(tgd_restorer *r, const tgd_restored_node *node, uint32_t *out, tgd_error *err)
{
    tgd_graph *graph = &r->report->graph;
    bool is_leaf = node->kind == TGD_NODE_ACCUMULATE_GRAD;
    *out = TGD_NONE;
    if (is_leaf != (node->leaf != NULL)) {
        return tgd_fail(err, TGD_EINVAL, "leaf: expected %s", is_leaf ? "what the AccumulateGrad fills" : "null");
    }
    if (!is_leaf) {
        return TGD_OK;
    }
    tgd_tensor_row tensor;
    tgd_leaf_row row = {.node = graph->n_nodes, .numel = node->leaf->elements};
    tgd_status status = tgd_restore_tensor(r, &node->leaf->tensor, &tensor, err);
    if (status == TGD_OK) {
        status = tgd_restore_storage(r, node->leaf->storage, node->leaf->storage_bytes, &row.storage, err);
    }
    if (status != TGD_OK) {
        return status;
    }
    tgd_leaf_row *rows = tgd_grow(graph->leaves, &graph->leaf_capacity, (size_t)graph->n_leaves + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(err);
    }
    graph->leaves = rows;
    if (row.storage != TGD_NONE && graph->storages[row.storage].leaf == TGD_NONE) {
        graph->storages[row.storage].leaf = graph->n_leaves;
    }
    row.flags = TGD_TENSOR_DEFINED | TGD_TENSOR_LEAF | (node->requires_grad ? TGD_TENSOR_REQUIRES_GRAD : 0u);
    row.shape = tensor.shape;
    row.dtype = tensor.dtype;
    row.device_type = tensor.device_type;
    row.device_index = tensor.device_index;
    row.layout = tensor.layout;
    rows[graph->n_leaves] = row;
    *out = graph->n_leaves++;
    return TGD_OK;
}

/* Room for what stands beside each node: its place in the order, its line, whose backward made it. */
static tgd_status reserve_beside(tgd_restorer *r, tgd_error *err)
{
    size_t need = (size_t)r->report->graph.n_nodes + 1;
    uint32_t *order = tgd_grow(r->report->order, &r->order_capacity, need, sizeof *order);
    if (order == NULL) {
        return tgd_fail_memory(err);
    }
    r->report->order = order;
    uint32_t *where = tgd_grow(r->report->node_where, &r->where_capacity, need, sizeof *where);
    if (where == NULL) {
        return tgd_fail_memory(err);
    }
    r->report->node_where = where;
    tgd_node *made_by = tgd_grow(r->report->node_made_by, &r->made_by_capacity, need, sizeof *made_by);
    if (made_by == NULL) {
        return tgd_fail_memory(err);
    }
    r->report->node_made_by = made_by;
    return TGD_OK;
}

tgd_status tgd_restore_node(tgd_restorer *r, const tgd_restored_node *node, tgd_error *err)
{
    tgd_graph *graph = &r->report->graph;
    tgd_node_row row = {
        .sequence_nr = node->sequence_nr,
        .thread_id = node->thread,
        .inner_type = TGD_NONE,
        .first_edge = graph->n_edges,
        .first_input = graph->n_inputs,
        .first_saved = graph->n_saved,
        .flags = node->unchecked ? TGD_ROW_OPAQUE : 0u,
    };
    uint32_t where = TGD_NONE;
    tgd_status status = reserve_beside(r, err);
    if (status == TGD_OK) {
        status = restore_type(r, node->name, node->kind, &row.type, err);
    }
    if (status == TGD_OK && node->inner != NULL) {
        status = restore_type(r, node->inner, TGD_NODE_BUILTIN, &row.inner_type, err);
    }
    if (status == TGD_OK) {
        status = restore_hooks(r, node->hooks, &row.hooks, err);
    }
    if (status == TGD_OK) {
        status = tgd_restore_source(r, node->where, &where, err);
    }
    if (status == TGD_OK) {
        status = restore_leaf(r, node, &row.leaf, err);
    }
    if (status != TGD_OK) {
        return status;
    }
    tgd_node_row *rows = tgd_grow(graph->nodes, &graph->node_capacity, (size_t)graph->n_nodes + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(err);
    }
    graph->nodes = rows;
    r->report->order[graph->n_nodes] = node->order;
    r->report->node_where[graph->n_nodes] = where;
    r->report->node_made_by[graph->n_nodes] = node->made_by;
    rows[graph->n_nodes++] = row;
    return TGD_OK;
}

tgd_status tgd_restore_edge(tgd_restorer *r, tgd_edge edge, tgd_error *err)
{
    tgd_graph *graph = &r->report->graph;
    assert(graph->n_nodes > 0);
    tgd_edge *rows = tgd_grow(graph->edges, &graph->edge_capacity, (size_t)graph->n_edges + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(err);
    }
    graph->edges = rows;
    rows[graph->n_edges++] = edge;
    graph->n_null_edges += edge.to == TGD_NONE;
    graph->nodes[graph->n_nodes - 1].n_edges++;
    return TGD_OK;
}

tgd_status tgd_restore_input(tgd_restorer *r, const tgd_restored_tensor *input, tgd_error *err)
{
    tgd_graph *graph = &r->report->graph;
    assert(graph->n_nodes > 0);
    tgd_tensor_row tensor;
    tgd_status status = tgd_restore_tensor(r, input, &tensor, err);
    if (status != TGD_OK) {
        return status;
    }
    tgd_input_row *rows = tgd_grow(graph->inputs, &graph->input_capacity, (size_t)graph->n_inputs + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(err);
    }
    graph->inputs = rows;
    rows[graph->n_inputs++] = (tgd_input_row){.shape = tensor.shape, .dtype = tensor.dtype,
                                              .device_type = tensor.device_type,
                                              .device_index = tensor.device_index, .layout = tensor.layout};
    graph->nodes[graph->n_nodes - 1].n_inputs++;
    return TGD_OK;
}

/* Bytes of one element; 0 where that cannot be told. */
static tgd_status item_size(const tgd_graph *graph, uint32_t shape, uint64_t bytes, uint8_t *out, tgd_error *err)
{
    int64_t numel = tgd_graph_numel(graph, shape);
    uint64_t size = numel > 0 ? bytes / (uint64_t)numel : 0;
    if (size > UINT8_MAX || (numel > 0 ? size * (uint64_t)numel != bytes : bytes != 0)) {
        return tgd_fail(err, TGD_EINVAL, "bytes: not a whole number of the elements in shape");
    }
    *out = (uint8_t)size;
    return TGD_OK;
}

tgd_status tgd_restore_saved(tgd_restorer *r, const tgd_restored_saved *saved, tgd_error *err)
{
    tgd_graph *graph = &r->report->graph;
    assert(graph->n_nodes > 0);
    uint32_t name;
    tgd_tensor_row tensor;
    tgd_saved_row row = {.saved_version = saved->saved_version, .version = saved->version, .index = (int32_t)saved->index,
                         .state = (uint8_t)saved->state};
    tgd_status status = tgd_restore_string(r, saved->name, &name, err);
    if (status == TGD_OK) {
        status = tgd_restore_tensor(r, &saved->tensor, &tensor, err);
    }
    if (status == TGD_OK) {
        status = item_size(graph, tensor.shape, saved->bytes, &row.itemsize, err);
    }
    if (status == TGD_OK) {
        status = tgd_restore_storage(r, saved->storage, saved->storage_bytes, &row.storage, err);
    }
    if (status == TGD_OK && (saved->index < -1 || saved->index > INT32_MAX)) {
        status = tgd_fail(err, TGD_EINVAL, "index: expected a place in a list, got %lld", (long long)saved->index);
    }
    if (status != TGD_OK) {
        return status;
    }
    row.name = graph->strings[name];
    row.shape = tensor.shape;
    row.strides = tensor.strides;
    row.dtype = tensor.dtype;
    row.device_type = tensor.device_type;
    row.device_index = tensor.device_index;
    row.layout = tensor.layout;
    row.tensor_flags = saved->contiguous < 0 ? 0u : TGD_TENSOR_DEFINED | (saved->contiguous ? TGD_TENSOR_CONTIGUOUS : 0u);
    row.flags = (uint16_t)((saved->state == TGD_SAVED_NONE ? TGD_SV_EMPTY : 0u) |
                           (saved->is_mark ? TGD_SV_RELEASED_FLAG : 0u) | (saved->is_output ? TGD_SV_OUTPUT : 0u) |
                           (saved->is_leaf ? TGD_SV_LEAF : 0u) | (saved->has_hooks ? TGD_SV_HOOKS : 0u));
    tgd_saved_row *rows = tgd_grow(graph->saved, &graph->saved_capacity, (size_t)graph->n_saved + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(err);
    }
    graph->saved = rows;
    rows[graph->n_saved++] = row;
    graph->nodes[graph->n_nodes - 1].n_saved++;
    if (row.storage != TGD_NONE) {
        graph->storages[row.storage].saved = true;
    }
    return TGD_OK;
}

tgd_status tgd_restore_root(tgd_restorer *r, uint32_t node, uint32_t output_nr, const tgd_restored_tensor *tensor,
                            tgd_error *err)
{
    tgd_graph *graph = &r->report->graph;
    tgd_tensor_row row;
    if (node != TGD_NONE && node >= graph->n_nodes) {
        return tgd_fail(err, TGD_EINVAL, "node: %lu of %lu nodes", (unsigned long)node, (unsigned long)graph->n_nodes);
    }
    tgd_status status = tgd_restore_tensor(r, tensor, &row, err);
    if (status != TGD_OK) {
        return status;
    }
    tgd_root_row *rows = tgd_grow(graph->roots, &r->root_capacity, (size_t)graph->n_roots + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(err);
    }
    graph->roots = rows;
    rows[graph->n_roots++] = (tgd_root_row){.node = node, .output_nr = output_nr, .shape = row.shape, .dtype = row.dtype,
                                            .numel = tgd_graph_numel(graph, row.shape),
                                            .device_type = -1, .device_index = -1, .layout = -1};
    return TGD_OK;
}
