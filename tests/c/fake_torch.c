#include "fake_torch.h"

#include "functorch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what was made ---- */

typedef struct owned {
    void **items;
    size_t n, capacity;
} owned;

static owned all_nodes, all_tensors;
static uint64_t next_sequence_nr, next_storage = 0x1000;
static _Thread_local bool visiting; /* inside a visitor: nobody may call back */

static void refuse(const char *what)
{
    fprintf(stderr, "fake_torch: %s\n", what);
    abort();
}

static void *must(void *memory)
{
    if (memory == NULL) {
        refuse("out of memory");
    }
    return memory;
}

static void *own(owned *list, size_t size)
{
    if (list->n == list->capacity) {
        list->capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        list->items = must(realloc(list->items, list->capacity * sizeof *list->items));
    }
    void *item = must(calloc(1, size));
    list->items[list->n++] = item;
    return item;
}

static void drop(owned *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->items[i]);
    }
    free(list->items);
    *list = (owned){0};
}

void fake_reset(void)
{
    for (size_t i = 0; i < all_nodes.n; i++) {
        tgd_torch_node *node = all_nodes.items[i];
        free(node->edges);
        free(node->inputs);
        free(node->saved);
    }
    drop(&all_nodes);
    drop(&all_tensors);
    next_sequence_nr = 0;
    next_storage = 0x1000;
    tgd_torch_set_python(NULL);
}

/* ---- nodes ---- */

static tgd_torch_node *make_node(const char *name, tgd_node_kind kind)
{
    tgd_torch_node *node = own(&all_nodes, sizeof *node);
    node->name = name;
    node->kind = kind;
    node->sequence_nr = next_sequence_nr++;
    node->thread_id = 1;
    node->n_inputs = 1;
    node->inputs = must(calloc(1, sizeof *node->inputs));
    node->inputs[0] = (fake_input){.ndim = -1, .dtype = -1, .device_type = -1, .device_index = -1, .layout = -1};
    return node;
}

tgd_torch_node *fake_node(const char *name)
{
    return make_node(name, TGD_NODE_BUILTIN);
}

tgd_torch_node *fake_python_node(const char *name, uint32_t python_flags)
{
    tgd_torch_node *node = make_node(name, TGD_NODE_PYTHON);
    node->python = true;
    node->python_flags = python_flags;
    return node;
}

tgd_torch_node *fake_leaf_node(tgd_torch_tensor *leaf)
{
    if (leaf->accumulator == NULL) {
        tgd_torch_node *node = make_node("AccumulateGrad", TGD_NODE_ACCUMULATE_GRAD);
        next_sequence_nr--;
        node->sequence_nr = UINT64_MAX;
        node->variable = leaf;
        fake_input_like(node, 0, leaf);
        leaf->accumulator = node;
    }
    return leaf->accumulator;
}

tgd_torch_node *fake_copy_slices(const char *inner)
{
    tgd_torch_node *node = make_node("CopySlices", TGD_NODE_COPY_SLICES);
    node->inner = inner;
    return node;
}

void fake_edge(tgd_torch_node *from, size_t k, const tgd_torch_node *to, uint32_t input_nr)
{
    if (k >= from->n_edges) {
        from->edges = must(realloc(from->edges, (k + 1) * sizeof *from->edges));
        memset(from->edges + from->n_edges, 0, (k + 1 - from->n_edges) * sizeof *from->edges);
        from->n_edges = (uint32_t)(k + 1);
    }
    from->edges[k] = (fake_edge_to){to, input_nr};
}

void fake_input_like(tgd_torch_node *node, size_t k, const tgd_torch_tensor *tensor)
{
    while (node->n_inputs <= k) {
        node->inputs = must(realloc(node->inputs, (node->n_inputs + 1) * sizeof *node->inputs));
        node->inputs[node->n_inputs++] =
            (fake_input){.ndim = -1, .dtype = -1, .device_type = -1, .device_index = -1, .layout = -1};
    }
    fake_input *input = &node->inputs[k];
    input->ndim = tensor->info.ndim;
    memcpy(input->sizes, tensor->sizes, sizeof input->sizes);
    input->dtype = tensor->info.dtype;
    input->device_type = tensor->info.device_type;
    input->device_index = tensor->info.device_index;
    input->layout = tensor->info.layout;
}

static fake_saved *add_saved(tgd_torch_node *node, fake_saved row)
{
    node->saved = must(realloc(node->saved, (node->n_saved + 1) * sizeof *node->saved));
    node->saved[node->n_saved] = row;
    return &node->saved[node->n_saved++];
}

fake_saved *fake_save(tgd_torch_node *node, const char *name, const tgd_torch_tensor *tensor)
{
    uint32_t flags = TGD_SV_ORIGINAL;
    if (tensor->info.grad_fn == NULL) {
        flags |= TGD_SV_LEAF;
    }
    if (node->kind == TGD_NODE_PYTHON || node->kind == TGD_NODE_CPP) {
        flags |= TGD_SV_GIVEN_NODE;
    }
    return add_saved(node, (fake_saved){name, -1, flags, tensor->base->info.version, tensor});
}

fake_saved *fake_save_result(tgd_torch_node *node, const char *name, const tgd_torch_tensor *tensor)
{
    return add_saved(node, (fake_saved){name, -1, TGD_SV_OUTPUT | TGD_SV_GIVEN_NODE, tensor->base->info.version,
                                        fake_alias(tensor)});
}

fake_saved *fake_save_none(tgd_torch_node *node, const char *name)
{
    return add_saved(node, (fake_saved){name, -1, TGD_SV_EMPTY, 0, NULL});
}

void fake_release(tgd_torch_node *node)
{
    for (uint32_t k = 0; k < node->n_saved; k++) {
        node->saved[k].tensor = NULL;
        node->saved[k].flags &= ~(uint32_t)(TGD_SV_HOOKS | TGD_SV_HAS_GRAD_FN);
    }
}

/* ---- tensors ---- */

static void set_shape(tgd_torch_tensor *tensor, int ndim, const int64_t *sizes)
{
    int64_t numel = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        tensor->sizes[d] = sizes[d];
        tensor->strides[d] = numel;
        numel *= sizes[d];
    }
    tensor->info.ndim = (int16_t)ndim;
    tensor->info.numel = numel;
    tensor->info.storage_bytes = (uint64_t)numel * tensor->info.itemsize;
}

tgd_torch_tensor *fake_tensor(int ndim, const int64_t *sizes)
{
    tgd_torch_tensor *tensor = own(&all_tensors, sizeof *tensor);
    tensor->base = tensor;
    tensor->strided = true;
    tensor->info.flags = TGD_TENSOR_DEFINED | TGD_TENSOR_HAS_STORAGE | TGD_TENSOR_CONTIGUOUS | TGD_TENSOR_FLOATING;
    tensor->info.dtype = FAKE_FLOAT32;
    tensor->info.itemsize = 4;
    tensor->info.device_index = -1;
    tensor->info.storage = next_storage;
    tensor->info.data = next_storage + 0x100;
    tensor->info.version_counter = next_storage + 8;
    next_storage += 0x1000;
    set_shape(tensor, ndim, sizes);
    return tensor;
}

tgd_torch_tensor *fake_leaf(int ndim, const int64_t *sizes)
{
    tgd_torch_tensor *tensor = fake_tensor(ndim, sizes);
    tensor->info.flags |= TGD_TENSOR_REQUIRES_GRAD;
    return tensor;
}

tgd_torch_tensor *fake_output(tgd_torch_node *node, uint32_t output_nr, int ndim, const int64_t *sizes)
{
    tgd_torch_tensor *tensor = fake_tensor(ndim, sizes);
    tensor->info.flags |= TGD_TENSOR_REQUIRES_GRAD;
    tensor->info.grad_fn = node;
    tensor->info.output_nr = output_nr;
    fake_input_like(node, output_nr, tensor);
    return tensor;
}

tgd_torch_tensor *fake_alias(const tgd_torch_tensor *tensor)
{
    tgd_torch_tensor *alias = own(&all_tensors, sizeof *alias);
    *alias = *tensor;
    alias->info.grad_fn = NULL;
    alias->info.flags &= ~(uint32_t)TGD_TENSOR_REQUIRES_GRAD;
    alias->accumulator = NULL;
    return alias;
}

void fake_bump(tgd_torch_tensor *tensor)
{
    ((tgd_torch_tensor *)tensor->base)->info.version++;
}

void fake_set_dtype(tgd_torch_tensor *tensor, int dtype)
{
    static const uint8_t itemsize[] = {[FAKE_FLOAT32] = 4, [FAKE_FLOAT64] = 8, [FAKE_INT64] = 8,
                                       [FAKE_COMPLEX64] = 8, [FAKE_BOOL] = 1};
    tensor->info.dtype = (int8_t)dtype;
    tensor->info.itemsize = itemsize[dtype];
    tensor->info.storage_bytes = (uint64_t)tensor->info.numel * tensor->info.itemsize;
    tensor->info.flags &= ~(uint32_t)(TGD_TENSOR_FLOATING | TGD_TENSOR_COMPLEX);
    if (dtype == FAKE_COMPLEX64) {
        tensor->info.flags |= TGD_TENSOR_COMPLEX;
    } else if (dtype == FAKE_FLOAT32 || dtype == FAKE_FLOAT64) {
        tensor->info.flags |= TGD_TENSOR_FLOATING;
    }
}

/* ---- shim.h: tensors ---- */

static void entered(void)
{
    if (visiting) {
        refuse("a visitor called back into torch");
    }
}

/* Copies into a buffer and spoils what lies behind it, so that a reader that goes too far or too late is seen. */
static const int64_t *lend(int64_t *buffer, const int64_t *numbers, int ndim)
{
    for (int d = 0; d < FAKE_MAX_DIMS; d++) {
        buffer[d] = d < ndim ? numbers[d] : -0x5EAD;
    }
    return buffer;
}

static void read_tensor(const tgd_torch_tensor *tensor, tgd_torch_tensor_info *out)
{
    static _Thread_local int64_t sizes[FAKE_MAX_DIMS], strides[FAKE_MAX_DIMS];
    const tgd_torch_tensor *base = tensor->base;
    *out = tensor->info;
    out->address = (uint64_t)(uintptr_t)tensor;
    out->storage = base->info.storage;
    out->storage_bytes = base->info.storage_bytes;
    out->data = base->info.data;
    out->version_counter = base->info.version_counter;
    out->version = base->info.version;
    out->sizes = lend(sizes, tensor->sizes, tensor->info.ndim);
    out->strides = lend(strides, tensor->strides, tensor->info.ndim);
    if (!tensor->strided) {
        out->strides = NULL;
    }
    if (tensor->info.grad_fn == NULL) {
        out->flags |= TGD_TENSOR_LEAF;
    } else {
        out->flags |= TGD_TENSOR_REQUIRES_GRAD;
    }
    if (tensor->accumulator != NULL) {
        out->flags |= TGD_TENSOR_HAS_ACCUMULATOR;
    }
}

void tgd_torch_tensor_read(const tgd_torch_tensor *tensor, tgd_torch_tensor_info *out)
{
    entered();
    read_tensor(tensor, out);
}

uint64_t tgd_torch_tensor_sum(const tgd_torch_tensor *tensor)
{
    (void)tensor;
    return 0;
}

uint64_t tgd_torch_identity(const tgd_torch_tensor *tensor)
{
    return tensor->identity;
}

int tgd_torch_wraps_grad(const tgd_torch_tensor *tensor)
{
    (void)tensor;
    return 0;
}

tgd_status tgd_torch_tensor_node(const tgd_torch_tensor *tensor, const tgd_torch_node **node, uint32_t *output_nr,
                                 tgd_error *err)
{
    entered();
    if (tensor->node_status != TGD_OK) {
        if (err != NULL) {
            err->status = tensor->node_status;
            err->os_errno = 0;
            snprintf(err->message, sizeof err->message, "the fake threw");
        }
        return tensor->node_status;
    }
    if (tensor->regenerated != NULL || tensor->info.grad_fn != NULL) {
        *node = tensor->regenerated != NULL ? tensor->regenerated : tensor->info.grad_fn;
        *output_nr = tensor->info.output_nr;
    } else {
        *node = tensor->accumulator;
        *output_nr = 0;
    }
    return TGD_OK;
}

const char *tgd_torch_dtype_name(int dtype)
{
    switch (dtype) {
    case FAKE_FLOAT32:
        return "float32";
    case FAKE_FLOAT64:
        return "float64";
    case FAKE_INT64:
        return "int64";
    case FAKE_COMPLEX64:
        return "complex64";
    case FAKE_BOOL:
        return "bool";
    default:
        return "";
    }
}

const char *tgd_torch_device_name(int device_type)
{
    return device_type == FAKE_CPU ? "cpu" : device_type == FAKE_CUDA ? "cuda" : "";
}

const char *tgd_torch_layout_name(int layout)
{
    return layout == 0 ? "strided" : layout == 1 ? "sparse_coo" : "";
}

/* ---- shim.h: nodes ---- */

void tgd_torch_node_read(const tgd_torch_node *node, tgd_torch_node_info *out)
{
    static const char python_type = 0;
    entered();
    memset(out, 0, sizeof *out);
    out->type = node->kind == TGD_NODE_PYTHON ? &python_type : node->name;
    out->sequence_nr = node->sequence_nr;
    out->thread_id = node->thread_id;
    out->n_edges = node->n_edges;
    out->n_inputs = node->n_inputs;
    out->n_pre_hooks = node->n_pre_hooks;
    out->n_tensor_pre_hooks = node->n_tensor_pre_hooks;
    out->n_retain_grad_hooks = node->n_retain_grad_hooks;
    out->n_post_hooks = node->n_post_hooks;
    out->kind = node->kind;
    out->has_saved = node->kind != TGD_NODE_ACCUMULATE_GRAD && node->kind != TGD_NODE_ERROR &&
                     (node->n_saved > 0 || node->python || node->opaque || node->kind != TGD_NODE_BUILTIN);
    out->raising_edges = node->raising_edges;
    out->variable = node->variable;
}

const char *tgd_torch_node_name(const tgd_torch_node *node)
{
    entered();
    return node->kind == TGD_NODE_PYTHON ? "" : node->name;
}

const tgd_torch_node *tgd_torch_node_edge(const tgd_torch_node *node, size_t k, uint32_t *input_nr)
{
    entered();
    if (k >= node->n_edges) {
        refuse("no such edge");
    }
    *input_nr = node->edges[k].input_nr;
    return node->edges[k].to;
}

void tgd_torch_node_input(const tgd_torch_node *node, size_t k, tgd_torch_input *out)
{
    static _Thread_local int64_t sizes[FAKE_MAX_DIMS];
    entered();
    if (k >= node->n_inputs) {
        refuse("no such input");
    }
    const fake_input *input = &node->inputs[k];
    out->sizes = lend(sizes, input->sizes, input->ndim);
    out->ndim = input->ndim;
    out->dtype = input->dtype;
    out->device_type = input->device_type;
    out->device_index = input->device_index;
    out->layout = input->layout;
    out->subclass = input->subclass;
    out->nested = input->nested;
}

/* ---- shim.h: saved tensors ---- */

static tgd_visit visit_saved(const tgd_torch_node *node, tgd_torch_saved_visitor visit, void *context)
{
    tgd_visit result = TGD_VISIT_DONE;
    visiting = true;
    for (uint32_t k = 0; k < node->n_saved && result == TGD_VISIT_DONE; k++) {
        const fake_saved *row = &node->saved[k];
        tgd_torch_saved saved;
        memset(&saved, 0, sizeof saved);
        saved.name = row->name;
        saved.index = row->index;
        saved.flags = row->flags;
        saved.saved_version = row->saved_version;
        if (row->tensor != NULL) {
            read_tensor(row->tensor, &saved.tensor);
            if ((row->flags & TGD_SV_ORIGINAL) != 0 &&
                (row->tensor->info.grad_fn != NULL || (row->tensor->info.flags & TGD_TENSOR_VIEW) != 0)) {
                saved.flags |= TGD_SV_HAS_GRAD_FN;
            }
        }
        if (visit(context, &saved) != 0) {
            result = TGD_VISIT_STOPPED;
        }
    }
    visiting = false;
    return result;
}

tgd_visit tgd_torch_node_saved(const tgd_torch_node *node, const char **inner, tgd_torch_saved_visitor visit,
                               void *context)
{
    entered();
    if (node->opaque) {
        return TGD_VISIT_OPAQUE;
    }
    if (node->busy) {
        return TGD_VISIT_BUSY;
    }
    if (node->python) {
        return TGD_VISIT_PYTHON;
    }
    if (node->inner != NULL) {
        *inner = node->inner;
    }
    return visit_saved(node, visit, context);
}

/* ---- shim.h: nodes written in Python ---- */

static const tgd_torch_python *python_hooks;
static _Thread_local int gil_depth;
static size_t gil_taken;

void tgd_torch_set_python(const tgd_torch_python *python)
{
    python_hooks = python;
}

const tgd_torch_python *tgd_torch_get_python(void)
{
    return python_hooks;
}

static void python_begin(void **token)
{
    gil_depth++;
    gil_taken++;
    *token = &gil_depth;
}

static void python_end(void *token)
{
    if (token != &gil_depth || gil_depth <= 0) {
        refuse("the GIL was given back by somebody who did not hold it");
    }
    gil_depth--;
}

static tgd_visit python_read(const tgd_torch_node *node, tgd_torch_python_node *out, tgd_torch_saved_visitor visit,
                             void *context)
{
    entered();
    if (!node->python) {
        refuse("not a Python node");
    }
    snprintf(out->name, sizeof out->name, "%s", node->kind == TGD_NODE_COPY_SLICES ? node->inner : node->name);
    out->flags = node->python_flags;
    if (node->busy) {
        return TGD_VISIT_BUSY;
    }
    return visit_saved(node, visit, context);
}

static int python_is_parameter(const tgd_torch_tensor *tensor)
{
    return tensor->is_parameter;
}

void fake_python_install(void)
{
    static const tgd_torch_python hooks = {python_read, python_is_parameter, python_begin, python_end, NULL};
    gil_taken = 0;
    tgd_torch_set_python(&hooks);
}

int fake_gil_depth(void)
{
    return gil_depth;
}

size_t fake_gil_taken(void)
{
    return gil_taken;
}

/* ---- shim.h: the build ---- */

const char *tgd_torch_built_for(void)
{
    return "2.13.0 0123456789abcdef";
}

tgd_status tgd_torch_self_test(tgd_error *err)
{
    (void)err;
    return TGD_OK;
}

int tgd_torch_has_origins(void)
{
    return 0;
}

int tgd_torch_node_origin(const tgd_torch_node *node, struct tgd_node_origin *out)
{
    (void)node;
    (void)out;
    return 0;
}
