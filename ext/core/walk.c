/* Capture: one pass over the nodes, breadth first, so that row order is also the order of discovery and no stack
   is needed. Nodes written in Python are read in a second pass, under the GIL. */
#include "functorch.h"
#include "graph.h"

#include <stdlib.h>
#include <string.h>

enum {
    PYTHON_BATCH = 4096, /* nodes read before other Python threads get their turn */
    NODE_LINES = 6,      /* cache lines of a typical Node with one saved tensor */
    EDGES_AHEAD = 4
};

typedef struct walker {
    tgd_graph *graph;
    tgd_lookup *lookup;
    tgd_error *err;
    tgd_status status;   /* of a visitor, which can only say "stop" */
    bool raises;         /* the visited CopySlices wraps a node that only raises */
    bool hooked;         /* some saved tensor was packed by hooks */
    bool has_origins;
    uint32_t last_type;  /* neighbours are often of one class */
    tgd_node *pending;   /* Owned: nodes written in Python */
    uint32_t n_pending, pending_capacity;
} walker;

static tgd_status node_index(walker *w, const tgd_torch_node *node, tgd_node *out)
{
    tgd_graph *graph = w->graph;
    uint32_t *index = tgd_address_map_at(&w->lookup->nodes, (uint64_t)(uintptr_t)node);
    if (index == NULL) {
        return tgd_fail_memory(w->err);
    }
    if (*index == TGD_NONE) {
        tgd_node_row *nodes = tgd_grow(graph->nodes, &graph->node_capacity, (size_t)graph->n_nodes + 1, sizeof *nodes);
        if (nodes == NULL) {
            return tgd_fail_memory(w->err);
        }
        graph->nodes = nodes;
        nodes[graph->n_nodes] = (tgd_node_row){.address = (uint64_t)(uintptr_t)node};
        *index = graph->n_nodes++;
    }
    *out = *index;
    return TGD_OK;
}

static tgd_status add_type(walker *w, tgd_type_row row, uint32_t *out)
{
    tgd_graph *graph = w->graph;
    tgd_type_row *types = tgd_grow(graph->types, &graph->type_capacity, (size_t)graph->n_types + 1, sizeof *types);
    if (types == NULL) {
        return tgd_fail_memory(w->err);
    }
    graph->types = types;
    types[graph->n_types] = row;
    *out = graph->n_types++;
    return TGD_OK;
}

/* C++ nodes behind which backward goes on where this graph does not show it: in the process that an RPC called. */
static uint32_t flags_of(const char *name)
{
    return strcmp(name, "torch::distributed::autograd::RecvRpcBackward") == 0 ? TGD_PY_HIDES_GRAPH : 0u;
}

/* The row for a C++ class, or for the name of a node inside CopySlices: both are identities for ever. */
static tgd_status type_index(walker *w, const void *key, const char *name, tgd_node_kind kind, uint32_t *out)
{
    uint32_t *index = tgd_address_map_at(&w->lookup->types, (uint64_t)(uintptr_t)key);
    if (index == NULL) {
        return tgd_fail_memory(w->err);
    }
    if (*index == TGD_NONE) {
        uint32_t added;
        tgd_status status = add_type(w, (tgd_type_row){.key = key, .name = name, .kind = kind, .python_flags = flags_of(name)},
                                     &added);
        if (status != TGD_OK) {
            return status;
        }
        *index = added;
    }
    *out = *index;
    return TGD_OK;
}

/* The row for a class written in Python: by name and flags, since the class itself may come and go. */
static tgd_status python_type_index(walker *w, const tgd_torch_python_node *python, uint32_t *out)
{
    tgd_graph *graph = w->graph;
    uint64_t key = 0xCBF29CE484222325u ^ python->flags ^ (uint64_t)python->code << 32;
    for (const char *c = python->name; *c != '\0'; c++) {
        key = (key ^ (unsigned char)*c) * 0x100000001B3u;
    }
    for (key |= 1u;; key += 16) {
        uint32_t *index = tgd_address_map_at(&w->lookup->types, key);
        if (index == NULL) {
            return tgd_fail_memory(w->err);
        }
        if (*index != TGD_NONE) {
            const tgd_type_row *type = &graph->types[*index];
            if (type->key == NULL && type->python_flags == python->flags && type->code == python->code &&
                strcmp(type->name, python->name) == 0) {
                *out = *index;
                return TGD_OK;
            }
            continue;
        }
        char **strings =
            tgd_grow(graph->strings, &graph->string_capacity, (size_t)graph->n_strings + 1, sizeof *strings);
        if (strings == NULL) {
            return tgd_fail_memory(w->err);
        }
        graph->strings = strings;
        size_t size = strlen(python->name) + 1;
        char *name = malloc(size);
        if (name == NULL) {
            return tgd_fail_memory(w->err);
        }
        memcpy(name, python->name, size);
        strings[graph->n_strings++] = name;
        uint32_t added;
        tgd_status status = add_type(
            w, (tgd_type_row){.name = name, .kind = TGD_NODE_PYTHON, .python_flags = python->flags, .code = python->code},
            &added);
        if (status == TGD_OK) {
            *index = *out = added;
        }
        return status;
    }
}

static tgd_status storage_index(walker *w, const tgd_torch_tensor_info *tensor, uint32_t *out)
{
    *out = TGD_NONE;
    if (tensor->storage == 0) {
        return TGD_OK;
    }
    tgd_graph *graph = w->graph;
    uint32_t *index = tgd_address_map_at(&w->lookup->storages, tensor->storage);
    if (index == NULL) {
        return tgd_fail_memory(w->err);
    }
    if (*index == TGD_NONE) {
        tgd_storage_row *storages =
            tgd_grow(graph->storages, &graph->storage_capacity, (size_t)graph->n_storages + 1, sizeof *storages);
        if (storages == NULL) {
            return tgd_fail_memory(w->err);
        }
        graph->storages = storages;
        storages[graph->n_storages] = (tgd_storage_row){.address = tensor->storage,
                                                        .data = tensor->data,
                                                        .bytes = tensor->storage_bytes,
                                                        .leaf = TGD_NONE};
        *index = graph->n_storages++;
    }
    *out = *index;
    return TGD_OK;
}

/* tgd_torch_saved_visitor */
static int add_saved(void *context, const tgd_torch_saved *saved)
{
    walker *w = context;
    tgd_graph *graph = w->graph;
    if (saved->flags & TGD_SV_RAISES) {
        w->raises = true;
        return 0;
    }
    w->hooked = w->hooked || (saved->flags & TGD_SV_HOOKS);
    tgd_address_map_prefetch(&w->lookup->storages, saved->tensor.storage);
    tgd_saved_row *rows = tgd_grow(graph->saved, &graph->saved_capacity, (size_t)graph->n_saved + 1, sizeof *rows);
    if (rows == NULL) {
        w->status = tgd_fail_memory(w->err);
        return 1;
    }
    graph->saved = rows;
    if (graph->checksum) {
        uint64_t *sums = tgd_grow(graph->sums, &graph->sum_capacity, (size_t)graph->n_saved + 1, sizeof *sums);
        if (sums == NULL) {
            w->status = tgd_fail_memory(w->err);
            return 1;
        }
        graph->sums = sums;
        sums[graph->n_saved] = tgd_torch_tensor_sum((const tgd_torch_tensor *)(uintptr_t)saved->tensor.address);
    }
    const tgd_torch_tensor_info *tensor = &saved->tensor;
    tgd_saved_row row = {
        .name = saved->name,
        .tensor = tensor->address,
        .version_counter = tensor->version_counter,
        .index = saved->index < INT32_MAX ? (int32_t)saved->index : INT32_MAX,
        .flags = (uint16_t)saved->flags,
        .tensor_flags = tensor->flags,
        .saved_version = saved->saved_version,
        .version = tensor->version,
        .shape = TGD_NONE,
        .strides = TGD_NONE,
        .storage = TGD_NONE,
        .storage_offset = tensor->storage_offset < INT32_MAX ? (int32_t)tensor->storage_offset : INT32_MAX,
        .itemsize = (uint8_t)tensor->itemsize,
        .dtype = tensor->dtype,
        .device_type = tensor->device_type,
        .device_index = tensor->device_index,
        .layout = tensor->layout,
        .state = TGD_SAVED_OK,
    };
    if (tensor->flags & TGD_TENSOR_DEFINED) {
        tgd_status status = tgd_shapes_intern(&graph->shapes, tensor->sizes, tensor->ndim, &row.shape, w->err);
        if (status == TGD_OK && tensor->strides != NULL) {
            status = tgd_shapes_intern(&graph->shapes, tensor->strides, tensor->ndim, &row.strides, w->err);
        }
        if (status == TGD_OK) {
            status = storage_index(w, tensor, &row.storage);
        }
        if (status != TGD_OK) {
            w->status = status;
            return 1;
        }
        if (row.storage != TGD_NONE) {
            graph->storages[row.storage].saved = true;
        }
    } else {
        row.dtype = row.device_type = row.device_index = row.layout = -1;
    }
    rows[graph->n_saved++] = row;
    if (saved->mark != 0) {
        uint64_t *marks = tgd_grow(graph->marks, &graph->mark_capacity, (size_t)graph->n_marks + 1, sizeof *marks);
        if (marks == NULL) {
            w->status = tgd_fail_memory(w->err);
            return 1;
        }
        graph->marks = marks;
        marks[graph->n_marks++] = saved->mark;
    }
    return 0;
}

/* What the shim said about the visit of node v, whose rows began at `first`. */
static void settle(tgd_graph *graph, tgd_node v, tgd_visit visit, uint32_t first)
{
    tgd_node_row *row = &graph->nodes[v];
    row->first_saved = first;
    row->n_saved = graph->n_saved - first;
    if (visit == TGD_VISIT_BUSY) {
        row->flags |= TGD_ROW_BUSY;
    } else if (visit == TGD_VISIT_OPAQUE) {
        row->flags |= TGD_ROW_OPAQUE;
    }
    for (uint32_t i = first; i < graph->n_saved; i++) {
        if (graph->saved[i].flags & TGD_SV_RELEASED_FLAG) {
            row->flags |= TGD_ROW_FREED;
        }
    }
}

static tgd_status read_leaf(walker *w, tgd_node v, const tgd_torch_tensor *variable)
{
    tgd_graph *graph = w->graph;
    tgd_torch_tensor_info tensor;
    tgd_torch_tensor_read(variable, &tensor);
    tgd_leaf_row *leaves = tgd_grow(graph->leaves, &graph->leaf_capacity, (size_t)graph->n_leaves + 1, sizeof *leaves);
    if (leaves == NULL) {
        return tgd_fail_memory(w->err);
    }
    graph->leaves = leaves;
    uint32_t *known = tgd_address_map_at(&w->lookup->leaves, tensor.address);
    if (known == NULL) {
        return tgd_fail_memory(w->err);
    }
    tgd_leaf_row row = {
        .tensor = tensor.address,
        .node = v,
        .flags = tensor.flags,
        .numel = tensor.numel,
        .dtype = tensor.dtype,
        .device_type = tensor.device_type,
        .device_index = tensor.device_index,
        .layout = tensor.layout,
    };
    tgd_status status = tgd_shapes_intern(&graph->shapes, tensor.sizes, tensor.ndim, &row.shape, w->err);
    if (status == TGD_OK) {
        status = storage_index(w, &tensor, &row.storage);
    }
    if (status != TGD_OK) {
        return status;
    }
    if (row.storage != TGD_NONE && graph->storages[row.storage].leaf == TGD_NONE) {
        graph->storages[row.storage].leaf = graph->n_leaves;
    }
    *known = graph->n_leaves;
    graph->nodes[v].leaf = graph->n_leaves;
    leaves[graph->n_leaves++] = row;
    return TGD_OK;
}

static tgd_status read_edges(walker *w, tgd_node v, const tgd_torch_node *node, size_t n)
{
    tgd_graph *graph = w->graph;
    tgd_edge *edges = tgd_grow(graph->edges, &graph->edge_capacity, graph->n_edges + n, sizeof *edges);
    if (edges == NULL) {
        return tgd_fail_memory(w->err);
    }
    graph->edges = edges;
    graph->nodes[v].first_edge = graph->n_edges;
    graph->nodes[v].n_edges = (uint32_t)n;
    for (size_t k = 0; k < n; k++) {
        tgd_edge edge = {.to = TGD_NONE};
        const tgd_torch_node *next = tgd_torch_node_edge(node, k, &edge.input_nr);
        if (next == NULL) {
            graph->n_null_edges++;
        } else {
            tgd_status status = node_index(w, next, &edge.to);
            if (status != TGD_OK) {
                return status;
            }
        }
        edges[graph->n_edges++] = edge;
    }
    return TGD_OK;
}

static tgd_status read_inputs(walker *w, tgd_node v, const tgd_torch_node *node, size_t n)
{
    tgd_graph *graph = w->graph;
    tgd_input_row *inputs = tgd_grow(graph->inputs, &graph->input_capacity, graph->n_inputs + n, sizeof *inputs);
    if (inputs == NULL) {
        return tgd_fail_memory(w->err);
    }
    graph->inputs = inputs;
    graph->nodes[v].first_input = graph->n_inputs;
    graph->nodes[v].n_inputs = (uint32_t)n;
    for (size_t k = 0; k < n; k++) {
        tgd_torch_input input;
        tgd_torch_node_input(node, k, &input);
        tgd_input_row row = {
            .dtype = input.dtype,
            .device_type = input.device_type,
            .device_index = input.device_index,
            .layout = input.layout,
            .subclass = (uint8_t)input.subclass,
            .nested = (uint8_t)input.nested,
        };
        tgd_status status = tgd_shapes_intern(&graph->shapes, input.sizes, input.ndim, &row.shape, w->err);
        if (status != TGD_OK) {
            return status;
        }
        inputs[graph->n_inputs++] = row;
    }
    return TGD_OK;
}

static tgd_status read_hooks(walker *w, tgd_node v, const tgd_torch_node_info *info)
{
    tgd_graph *graph = w->graph;
    graph->nodes[v].hooks = TGD_NONE;
    if ((info->n_pre_hooks | info->n_tensor_pre_hooks | info->n_retain_grad_hooks | info->n_post_hooks) == 0) {
        return TGD_OK;
    }
    tgd_hooks_row *hooks = tgd_grow(graph->hooks, &graph->hooks_capacity, (size_t)graph->n_hooks + 1, sizeof *hooks);
    if (hooks == NULL) {
        return tgd_fail_memory(w->err);
    }
    graph->hooks = hooks;
    graph->nodes[v].hooks = graph->n_hooks;
    hooks[graph->n_hooks++] = (tgd_hooks_row){
        .pre = info->n_pre_hooks,
        .tensor_pre = info->n_tensor_pre_hooks,
        .retain_grad = info->n_retain_grad_hooks,
        .post = info->n_post_hooks,
    };
    return TGD_OK;
}

static tgd_status postpone(walker *w, tgd_node v)
{
    tgd_node *pending = tgd_grow(w->pending, &w->pending_capacity, (size_t)w->n_pending + 1, sizeof *pending);
    if (pending == NULL) {
        return tgd_fail_memory(w->err);
    }
    w->pending = pending;
    pending[w->n_pending++] = v;
    return TGD_OK;
}

static tgd_status read_saved(walker *w, tgd_node v, const tgd_torch_node *node)
{
    tgd_graph *graph = w->graph;
    const char *inner = NULL;
    uint32_t first = graph->n_saved;
    w->status = TGD_OK;
    w->raises = false;
    tgd_visit visit = tgd_torch_node_saved(node, &inner, add_saved, w);
    if (w->status != TGD_OK) {
        return w->status;
    }
    settle(graph, v, visit, first);
    graph->nodes[v].flags |= w->raises ? TGD_ROW_RAISES : 0u;
    if (inner != NULL) {
        tgd_status status = type_index(w, inner, inner, TGD_NODE_BUILTIN, &graph->nodes[v].inner_type);
        if (status != TGD_OK) {
            return status;
        }
    }
    return visit == TGD_VISIT_PYTHON ? postpone(w, v) : TGD_OK;
}

/* The nodes this one leads to, and their places in the table, on their way into the cache while it is read: on large
   graphs waiting for memory is most of the time. */
static void fetch_ahead(const walker *w, const tgd_torch_node *node, size_t n_edges)
{
#if defined(__GNUC__)
    for (size_t k = 0; k < n_edges && k < EDGES_AHEAD; k++) {
        uint32_t input_nr;
        const char *next = (const char *)tgd_torch_node_edge(node, k, &input_nr);
        if (next != NULL) {
            tgd_address_map_prefetch(&w->lookup->nodes, (uint64_t)(uintptr_t)next);
            for (int line = 0; line < NODE_LINES; line++) {
                __builtin_prefetch(next + line * 64);
            }
        }
    }
#else
    (void)w;
    (void)node;
    (void)n_edges;
#endif
}

static tgd_status read_origin(walker *w, tgd_node v, const tgd_torch_node *node)
{
    tgd_graph *graph = w->graph;
    tgd_node_origin *origins =
        tgd_grow(graph->origins, &graph->origin_capacity, (size_t)v + 1, sizeof *origins);
    if (origins == NULL) {
        return tgd_fail_memory(w->err);
    }
    graph->origins = origins;
    if (!tgd_torch_node_origin(node, &origins[v])) {
        origins[v] = (tgd_node_origin){.time = 0};
    }
    return TGD_OK;
}

static tgd_status read_node(walker *w, tgd_node v)
{
    tgd_graph *graph = w->graph;
    const tgd_torch_node *node = (const tgd_torch_node *)(uintptr_t)graph->nodes[v].address;
    tgd_torch_node_info info;
    tgd_torch_node_read(node, &info);
    tgd_node_row *row = &graph->nodes[v];
    row->sequence_nr = info.sequence_nr;
    row->thread_id = info.thread_id;
    row->inner_type = row->leaf = TGD_NONE;
    row->flags |= info.has_metadata ? TGD_ROW_METADATA : 0u;

    if (w->last_type >= graph->n_types || graph->types[w->last_type].key != info.type) {
        w->last_type = tgd_address_map_find(&w->lookup->types, (uint64_t)(uintptr_t)info.type);
    }
    if (w->last_type == TGD_NONE) {
        tgd_status added = type_index(w, info.type, tgd_torch_node_name(node), info.kind, &w->last_type);
        if (added != TGD_OK) {
            return added;
        }
        graph->types[w->last_type].raising_edges = info.raising_edges;
    }
    row->type = w->last_type;

    fetch_ahead(w, node, info.n_edges);
    tgd_status status = read_hooks(w, v, &info);
    if (status == TGD_OK && w->has_origins) {
        status = read_origin(w, v, node);
    }
    if (status == TGD_OK && info.n_inputs > 0) {
        status = read_inputs(w, v, node, info.n_inputs);
    }
    if (status == TGD_OK && info.variable != NULL) {
        status = read_leaf(w, v, info.variable);
    }
    if (status == TGD_OK && info.kind == TGD_NODE_PYTHON) {
        status = postpone(w, v);
    } else if (status == TGD_OK && info.has_saved) {
        status = read_saved(w, v, node);
    }
    if (status == TGD_OK && info.n_edges > 0) {
        status = read_edges(w, v, node, info.n_edges);
    }
    return status;
}

static tgd_status read_python_node(walker *w, const tgd_torch_python *python, tgd_node v)
{
    tgd_graph *graph = w->graph;
    tgd_torch_python_node found = {.name = "", .flags = 0, .code = TGD_NONE};
    uint32_t first = graph->n_saved;
    w->status = TGD_OK;
    tgd_visit visit = python->read((const tgd_torch_node *)(uintptr_t)graph->nodes[v].address, &found, add_saved, w);
    if (w->status != TGD_OK) {
        return w->status;
    }
    settle(graph, v, visit, first);
    uint32_t type;
    tgd_status status = python_type_index(w, &found, &type);
    if (status != TGD_OK) {
        return status;
    }
    if (tgd_graph_type(graph, v)->kind == TGD_NODE_COPY_SLICES) {
        graph->nodes[v].inner_type = type;
    } else {
        graph->nodes[v].type = type;
    }
    return TGD_OK;
}

static tgd_status read_python_nodes(walker *w)
{
    const tgd_torch_python *python = tgd_torch_get_python();
    tgd_graph *graph = w->graph;
    if (python == NULL) {
        const tgd_torch_python_node unknown = {.name = "PyNode", .flags = 0, .code = TGD_NONE};
        for (uint32_t i = 0; i < w->n_pending; i++) {
            tgd_node v = w->pending[i];
            settle(graph, v, TGD_VISIT_OPAQUE, graph->n_saved);
            if (tgd_graph_type(graph, v)->kind == TGD_NODE_PYTHON) {
                tgd_status status = python_type_index(w, &unknown, &graph->nodes[v].type);
                if (status != TGD_OK) {
                    return status;
                }
            }
        }
        return TGD_OK;
    }
    for (uint32_t i = 0; i < w->n_pending;) {
        void *token;
        tgd_status status = TGD_OK;
        uint32_t end = w->n_pending - i < PYTHON_BATCH ? w->n_pending : i + PYTHON_BATCH;
        python->begin(&token);
        for (; i < end && status == TGD_OK; i++) {
            status = read_python_node(w, python, w->pending[i]);
        }
        python->end(token);
        if (status != TGD_OK) {
            return status;
        }
    }
    return TGD_OK;
}

static tgd_status read_root(walker *w, const tgd_root *root, tgd_root_row *row)
{
    *row = (tgd_root_row){.node = TGD_NONE, .shape = TGD_NONE, .numel = -1, .dtype = -1, .device_type = -1,
                          .device_index = -1, .layout = -1};
    const tgd_torch_node *node = root->node;
    row->output_nr = root->output_nr;
    if (root->tensor != NULL) {
        tgd_torch_tensor_info tensor;
        tgd_torch_tensor_read(root->tensor, &tensor);
        row->flags = tensor.flags | TGD_TENSOR_DEFINED;
        if ((tensor.flags & (TGD_TENSOR_WRAPPER | TGD_TENSOR_REQUIRES_GRAD)) == TGD_TENSOR_WRAPPER &&
            tensor.grad_fn == NULL && tgd_torch_wraps_grad(root->tensor)) {
            row->flags |= TGD_ROOT_WRAPS_GRAD;
        }
        row->tensor = (uint64_t)(uintptr_t)root->tensor;
        row->identity = tgd_torch_identity(root->tensor);
        row->numel = tensor.numel;
        row->dtype = tensor.dtype;
        row->device_type = tensor.device_type;
        row->device_index = tensor.device_index;
        row->layout = tensor.layout;
        tgd_status status = tgd_shapes_intern(&w->graph->shapes, tensor.sizes, tensor.ndim, &row->shape, w->err);
        if (status == TGD_OK) {
            tgd_error refusal;
            status = tgd_torch_tensor_node(root->tensor, &node, &row->output_nr, &refusal);
            row->refused = status == TGD_ETORCH;
            if (row->refused) {
                node = NULL;
                status = TGD_OK;
            } else if (status != TGD_OK && w->err != NULL) {
                *w->err = refusal;
            }
        }
        if (status != TGD_OK) {
            return status;
        }
    }
    return node == NULL ? TGD_OK : node_index(w, node, &row->node);
}

tgd_status tgd_graph_walk(tgd_graph *graph, tgd_lookup *lookup, const tgd_root *roots, size_t n_roots, tgd_error *err)
{
    walker w = {.graph = graph, .lookup = lookup, .err = err, .status = TGD_OK, .last_type = TGD_NONE,
                .has_origins = tgd_torch_has_origins()};
    if (n_roots == 0 || n_roots >= UINT32_MAX) {
        return tgd_fail(err, TGD_EINVAL, "roots: expected at least one, got %zu", n_roots);
    }
    graph->roots = calloc(n_roots, sizeof *graph->roots);
    if (graph->roots == NULL) {
        return tgd_fail_memory(err);
    }
    graph->n_roots = (uint32_t)n_roots;
    graph->shares = malloc(sizeof *graph->shares);
    if (graph->shares == NULL) {
        return tgd_fail_memory(err);
    }
    *graph->shares = 1;
    for (size_t r = 0; r < n_roots; r++) {
        tgd_status status = read_root(&w, &roots[r], &graph->roots[r]);
        if (status != TGD_OK) {
            return status;
        }
    }
    tgd_status status = TGD_OK;
    for (tgd_node v = 0; v < graph->n_nodes && status == TGD_OK; v++) {
        status = read_node(&w, v);
    }
    if (status == TGD_OK) {
        status = read_python_nodes(&w);
    }
    if (status == TGD_OK && w.hooked) {
        status = tgd_graph_read_packed(graph, err);
    }
    free(w.pending);
    return status;
}
