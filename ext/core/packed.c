/* Second look at saved tensors that hooks packed: which hook, and what it made of them. Needs the GIL, so that it comes
   after the walk. */
#include "graph.h"

enum { BATCH = 1024 /* nodes read before other Python threads get their turn */ };

typedef struct reader {
    tgd_graph *graph;
    const tgd_torch_python *python;
    tgd_error *err;
    tgd_status status;
    tgd_node node;
    uint32_t next, end; /* rows of the node in graph.saved that are still to come */
} reader;

static int64_t last_element(const tgd_torch_tensor_info *tensor)
{
    int64_t last = tensor->storage_offset;
    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->strides == NULL || tensor->sizes[i] < 1 || tensor->strides[i] < 0) {
            return -1;
        }
        last += (tensor->sizes[i] - 1) * tensor->strides[i];
    }
    return tensor->ndim < 0 ? -1 : last;
}

static void set_tensor(tgd_packed_row *row, const tgd_torch_tensor_info *tensor)
{
    int64_t last = last_element(tensor);
    if (last >= 0) {
        row->storage = tensor->storage;
        row->first_byte = tensor->storage_offset * (int64_t)tensor->itemsize;
        row->end_byte = (last + 1) * (int64_t)tensor->itemsize;
    }
}

/* tgd_torch_saved_visitor: the same tensors in the same order as add_saved() in walk.c, unless a backward came in
   between. */
static int add_packed(void *context, const tgd_torch_saved *saved)
{
    reader *r = context;
    tgd_graph *graph = r->graph;
    if (saved->flags & TGD_SV_RAISES) {
        return 0;
    }
    if (r->next >= r->end) {
        return 1;
    }
    uint32_t s = r->next++;
    tgd_torch_packed packed;
    if (saved->hooks == NULL || !(graph->saved[s].flags & TGD_SV_HOOKS) || !r->python->packed(saved->hooks, &packed)) {
        return 0;
    }
    tgd_packed_row *rows = tgd_grow(graph->packed, &graph->packed_capacity, (size_t)graph->n_packed + 1, sizeof *rows);
    if (rows == NULL) {
        r->status = tgd_fail_memory(r->err);
        return 1;
    }
    graph->packed = rows;
    tgd_packed_row row = {.saved = s, .node = r->node, .output_nr = saved->output_nr, .place = packed.place,
                          .n_places = packed.n_places, .flags = packed.flags, .hook = packed.hook,
                          .identity = saved->identity, .leaf = saved->leaf};
    if (packed.flags & TGD_PACKED_TENSOR) {
        set_tensor(&row, &packed.tensor);
    }
    rows[graph->n_packed++] = row;
    return 0;
}

static bool is_hooked(const tgd_graph *graph, const tgd_node_row *node)
{
    for (uint32_t s = node->first_saved; s < node->first_saved + node->n_saved; s++) {
        if (graph->saved[s].flags & TGD_SV_HOOKS) {
            return true;
        }
    }
    return false;
}

static void read_node(reader *r, tgd_node v)
{
    const tgd_node_row *row = &r->graph->nodes[v];
    const tgd_torch_node *node = (const tgd_torch_node *)(uintptr_t)row->address;
    const char *inner = NULL;
    r->node = v;
    r->next = row->first_saved;
    r->end = row->first_saved + row->n_saved;
    if (tgd_torch_node_saved(node, &inner, add_packed, r) == TGD_VISIT_PYTHON) {
        tgd_torch_python_node unused = {.name = "", .flags = 0, .code = TGD_NONE};
        r->python->read(node, &unused, add_packed, r);
    }
}

tgd_status tgd_graph_read_packed(tgd_graph *graph, tgd_error *err)
{
    reader r = {.graph = graph, .python = tgd_torch_get_python(), .err = err, .status = TGD_OK};
    if (r.python == NULL || r.python->packed == NULL) {
        return TGD_OK;
    }
    for (tgd_node v = 0; v < graph->n_nodes && r.status == TGD_OK;) {
        void *token;
        r.python->begin(&token);
        for (uint32_t n = 0; v < graph->n_nodes && n < BATCH && r.status == TGD_OK; v++) {
            if (is_hooked(graph, &graph->nodes[v])) {
                read_node(&r, v);
                n++;
            }
        }
        r.python->end(token);
    }
    return r.status;
}
