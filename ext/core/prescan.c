#include "prescan.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>

enum { KEEP_SLOTS = 1 << 16 }; /* larger tables are given back when a small graph comes */

typedef struct scanner {
    tgd_prescan *scan;
    tgd_error *err;
    uint32_t n; /* in the queue */
    bool hit;
} scanner;

/* Byte behind the last one, in the storage; 0 where it cannot be told. */
static uint64_t end_of(const tgd_torch_tensor_info *tensor)
{
    int64_t last = tensor->storage_offset;
    if (tensor->strides == NULL || tensor->sizes == NULL || tensor->numel <= 0) {
        return 0;
    }
    if (tensor->flags & TGD_TENSOR_CONTIGUOUS) {
        return ((uint64_t)last + (uint64_t)tensor->numel) * tensor->itemsize;
    }
    for (int i = 0; i < tensor->ndim; i++) {
        if (tensor->sizes[i] < 0 || tensor->strides[i] < 0) {
            return 0;
        }
        last += (tensor->sizes[i] - 1) * tensor->strides[i];
    }
    return ((uint64_t)last + 1) * tensor->itemsize;
}

/* As state_of() in inspect.c, where anything but "good" or "cannot be told" is a hit. */
static int visit(void *context, const tgd_torch_saved *saved)
{
    scanner *s = context;
    const tgd_torch_tensor_info *tensor = &saved->tensor;
    const uint32_t foreign = TGD_TENSOR_WRAPPER | TGD_TENSOR_SUBCLASS | TGD_TENSOR_META;
    bool defined = (tensor->flags & TGD_TENSOR_DEFINED) != 0, hooks = (saved->flags & TGD_SV_HOOKS) != 0;
    if (saved->flags & (TGD_SV_RELEASED_FLAG | TGD_SV_RAISES)) {
        s->hit = true;
    } else if (saved->flags & TGD_SV_EMPTY) {
        return 0;
    } else if ((!defined && !hooks) || !(saved->flags & (TGD_SV_LEAF | TGD_SV_HAS_GRAD_FN | TGD_SV_GIVEN_NODE))) {
        s->hit = true;
    } else if (!hooks && saved->saved_version != tensor->version) {
        s->hit = true;
    } else if (!hooks && !(tensor->flags & foreign)) {
        s->hit = (saved->flags & TGD_SV_METADATA_DIFFERS) ||
                 ((tensor->flags & TGD_TENSOR_HAS_STORAGE) && tensor->numel > 0 &&
                  (tensor->storage_bytes == 0 || end_of(tensor) > tensor->storage_bytes));
    }
    return s->hit;
}

static bool leaf_reshaped(const tgd_torch_node *node, const tgd_torch_tensor *variable)
{
    tgd_torch_tensor_info now;
    tgd_torch_tensor_read(variable, &now);
    if (now.ndim < 0) {
        return false;
    }
    tgd_torch_input then;
    tgd_torch_node_input(node, 0, &then);
    if (then.ndim < 0 || then.nested) {
        return false;
    }
    return then.ndim != now.ndim || then.dtype != now.dtype ||
           (now.ndim > 0 && memcmp(then.sizes, now.sizes, (size_t)now.ndim * sizeof *now.sizes) != 0);
}

static tgd_status enqueue(scanner *s, const tgd_torch_node *node)
{
    uint32_t *known = tgd_address_map_at(&s->scan->seen, (uint64_t)(uintptr_t)node);
    if (known == NULL) {
        return tgd_fail_memory(s->err);
    }
    if (*known != TGD_NONE) {
        return TGD_OK;
    }
    const tgd_torch_node **grown = tgd_grow(s->scan->queue, &s->scan->capacity, (size_t)s->n + 1, sizeof *grown);
    if (grown == NULL) {
        return tgd_fail_memory(s->err);
    }
    s->scan->queue = grown;
    *known = s->n;
    grown[s->n++] = node;
    return TGD_OK;
}

static void look_at_python(scanner *s, const tgd_torch_node *node)
{
    const tgd_torch_python *python = tgd_torch_get_python();
    tgd_torch_python_node found = {.name = "", .flags = 0};
    if (python != NULL) {
        python->read(node, &found, visit, s);
        s->hit = s->hit || (found.flags & TGD_PY_RAISES);
    }
}

static tgd_status look_at(scanner *s, const tgd_torch_node *node)
{
    tgd_torch_node_info info;
    tgd_torch_node_read(node, &info);
    s->hit = info.kind == TGD_NODE_ERROR;
    if (info.variable != NULL && info.n_inputs > 0) {
        s->hit = s->hit || leaf_reshaped(node, info.variable);
    }
    if (info.kind == TGD_NODE_PYTHON) {
        look_at_python(s, node);
    } else if (info.has_saved && !s->hit) {
        const char *inner = NULL;
        if (tgd_torch_node_saved(node, &inner, visit, s) == TGD_VISIT_PYTHON) {
            look_at_python(s, node);
        }
    }
    tgd_status status = TGD_OK;
    for (size_t k = 0; k < info.n_edges && !s->hit && status == TGD_OK; k++) {
        uint32_t input_nr;
        const tgd_torch_node *next = tgd_torch_node_edge(node, k, &input_nr);
        if (next != NULL) {
            s->hit = info.raising_edges == UINT32_MAX || (k < 32 && (info.raising_edges >> k & 1u));
            status = enqueue(s, next);
        }
    }
    return status;
}

static tgd_status look_at_root(scanner *s, const tgd_root *root)
{
    const tgd_torch_node *node = root->node;
    if (root->tensor != NULL) {
        uint32_t output_nr = 0;
        tgd_torch_tensor_info tensor;
        tgd_error refusal;
        tgd_status status = tgd_torch_tensor_node(root->tensor, &node, &output_nr, &refusal);
        if (status != TGD_OK && status != TGD_ETORCH) {
            return status;
        }
        tgd_torch_tensor_read(root->tensor, &tensor);
        s->hit = status == TGD_ETORCH || node == NULL || !(tensor.flags & TGD_TENSOR_REQUIRES_GRAD);
        tgd_torch_node_info info = {.n_inputs = 0};
        if (!s->hit) {
            tgd_torch_node_read(node, &info);
        }
        if (output_nr < info.n_inputs && tensor.ndim >= 0) {
            tgd_torch_input made;
            tgd_torch_node_input(node, output_nr, &made);
            s->hit = made.ndim >= 0 && !made.nested && !made.subclass &&
                     (made.ndim != tensor.ndim ||
                      (made.ndim > 0 &&
                       memcmp(made.sizes, tensor.sizes, (size_t)made.ndim * sizeof *made.sizes) != 0));
        }
    }
    return node == NULL || s->hit ? TGD_OK : enqueue(s, node);
}

static void begin(tgd_prescan *scan)
{
    if (scan->seen.slots == NULL) {
        return;
    }
    if (scan->seen.mask >= KEEP_SLOTS && scan->seen.n * 16 < scan->seen.mask) {
        tgd_prescan_clear(scan);
        return;
    }
    memset(scan->seen.slots, 0, (scan->seen.mask + 1) * sizeof *scan->seen.slots);
    scan->seen.n = 0;
}

int tgd_prescan_look(tgd_prescan *scan, const tgd_request *request, tgd_error *err)
{
    scanner s = {.scan = scan, .err = err};
    tgd_status status = TGD_OK;
    begin(scan);
    for (size_t r = 0; r < request->n_roots && status == TGD_OK && !s.hit; r++) {
        status = look_at_root(&s, &request->roots[r]);
    }
    for (uint32_t i = 0; i < s.n && status == TGD_OK && !s.hit; i++) {
        status = look_at(&s, scan->queue[i]);
    }
    return status != TGD_OK ? status : s.hit;
}

void tgd_prescan_clear(tgd_prescan *scan)
{
    tgd_address_map_clear(&scan->seen);
    free(scan->queue);
    scan->queue = NULL;
    scan->capacity = 0;
}
