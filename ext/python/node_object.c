#include "document.h"
#include "measure_objects.h"
#include "row.h"
#include "source_location_object.h"

static tgd_node_info info_of(PyObject *object)
{
    const tgd_py_row *self = (const tgd_py_row *)object;
    tgd_node_info info;
    tgd_report_node(self->snapshot->report, (tgd_node)self->node, &info);
    return info;
}

static PyObject *node_index(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromSize_t(((tgd_py_row *)object)->node);
}

static PyObject *node_name(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_str(info_of(object).name);
}

static PyObject *node_kind(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_str(tgd_node_kind_slug(info_of(object).kind));
}

static PyObject *node_inner(PyObject *object, void *closure)
{
    (void)closure;
    const char *inner = info_of(object).inner;
    if (inner == NULL) {
        Py_RETURN_NONE;
    }
    return tgd_py_str(inner);
}

static PyObject *node_sequence_nr(PyObject *object, void *closure)
{
    (void)closure;
    uint64_t sequence_nr = info_of(object).sequence_nr;
    if (sequence_nr == UINT64_MAX) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLongLong(sequence_nr);
}

static PyObject *node_order(PyObject *object, void *closure)
{
    (void)closure;
    size_t order = info_of(object).order;
    if (order == SIZE_MAX) {
        Py_RETURN_NONE;
    }
    return PyLong_FromSize_t(order);
}

static PyObject *node_parameter(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_name(info_of(object).parameter);
}

static PyObject *node_unchecked(PyObject *object, void *closure)
{
    (void)closure;
    return PyBool_FromLong(info_of(object).unchecked);
}

static PyObject *node_hooks(PyObject *object, void *closure)
{
    (void)closure;
    tgd_node_info info = info_of(object);
    return Py_BuildValue("{s:n,s:n,s:n,s:n}", "pre", (Py_ssize_t)info.n_pre_hooks, "tensor_pre",
                         (Py_ssize_t)info.n_tensor_pre_hooks, "retain_grad", (Py_ssize_t)info.n_retain_grad_hooks,
                         "post", (Py_ssize_t)info.n_post_hooks);
}

/* A tuple of n rows of this type at this node. */
static PyObject *rows(PyObject *object, PyTypeObject *type, size_t n)
{
    tgd_py_row *self = (tgd_py_row *)object;
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t k = 0; tuple != NULL && k < n; k++) {
        PyObject *row = tgd_py_row_new(type, self->snapshot, self->node, k);
        if (row == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)k, row);
        }
    }
    return tuple;
}

static PyObject *node_inputs(PyObject *object, void *closure)
{
    (void)closure;
    return rows(object, tgd_py_state_of(object)->input_metadata_type, info_of(object).n_inputs);
}

static PyObject *node_saved(PyObject *object, void *closure)
{
    (void)closure;
    return rows(object, tgd_py_state_of(object)->saved_tensor_type, info_of(object).n_saved);
}

static PyObject *node_next(PyObject *object, void *closure)
{
    (void)closure;
    return rows(object, tgd_py_state_of(object)->edge_type, info_of(object).n_edges);
}

static PyObject *node_where(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_py_row *self = (const tgd_py_row *)object;
    tgd_source_info source;
    if (!tgd_report_node_where(self->snapshot->report, (tgd_node)self->node, &source)) {
        Py_RETURN_NONE;
    }
    return tgd_py_source_location_new(tgd_py_state_of(object), &source);
}

static size_t stack_of(const tgd_report *report, size_t which, tgd_source_info *frames, size_t n)
{
    return tgd_report_node_stack(report, (tgd_node)which, frames, n);
}

static PyObject *node_stack(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_py_row *self = (const tgd_py_row *)object;
    return tgd_py_stack_tuple(tgd_py_state_of(object), stack_of, self->snapshot->report, self->node);
}

static PyObject *node_made_by(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_py_row *self = (const tgd_py_row *)object;
    tgd_node made_by = tgd_report_node_made_by(self->snapshot->report, (tgd_node)self->node);
    return tgd_py_node_new(tgd_py_state_of(object), self->snapshot, made_by);
}

/* The outermost module has an empty path and a class; where no module ran there is no class. */
static PyObject *node_module(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_py_row *self = (const tgd_py_row *)object;
    tgd_source_info source;
    if (!tgd_report_node_where(self->snapshot->report, (tgd_node)self->node, &source) ||
        source.module_class[0] == '\0') {
        Py_RETURN_NONE;
    }
    return tgd_py_name(source.module);
}

static PyObject *node_time(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_py_row *self = (const tgd_py_row *)object;
    return tgd_py_node_time(tgd_py_state_of(object), self->snapshot, (tgd_node)self->node);
}

static PyObject *node_gradient(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_py_row *self = (const tgd_py_row *)object;
    return tgd_py_node_gradient(tgd_py_state_of(object), self->snapshot, (tgd_node)self->node);
}

static PyObject *node_repr(PyObject *object)
{
    tgd_node_info info = info_of(object);
    PyObject *name = tgd_py_str(info.name);
    PyObject *parameter = tgd_py_name(info.parameter);
    PyObject *repr = NULL;
    if (name != NULL && parameter != NULL) {
        size_t node = ((tgd_py_row *)object)->node;
        repr = parameter == Py_None
                   ? PyUnicode_FromFormat("<torchgraphdbg.Node %zu %.80U>", node, name)
                   : PyUnicode_FromFormat("<torchgraphdbg.Node %zu %.80U %.80R>", node, name, parameter);
    }
    Py_XDECREF(name);
    Py_XDECREF(parameter);
    return repr;
}

static PyGetSetDef node_getset[] = {
    {"index", node_index, NULL, "Its place in Graph.nodes.", NULL},
    {"name", node_name, NULL, "As grad_fn.name() without namespace: \"MulBackward0\".", NULL},
    {"kind", node_kind, NULL, "What sort of node it is, as a slug.", NULL},
    {"inner", node_inner, NULL, "CopySlices: the name of the node it wraps; else None.", NULL},
    {"sequence_nr", node_sequence_nr, NULL, "Counts up in the forward; None for AccumulateGrad.", NULL},
    {"order", node_order, NULL, "Its place in backward's order, from 0; None where backward does not run it.", NULL},
    {"parameter", node_parameter, NULL, "AccumulateGrad: the parameter's name from params=; else None.", NULL},
    {"hooks", node_hooks, NULL, "How many hooks of each kind it has.", NULL},
    {"unchecked", node_unchecked, NULL, "Whether its saved tensors could not be read.", NULL},
    {"inputs", node_inputs, NULL, "Metadata of each gradient it receives.", NULL},
    {"saved", node_saved, NULL, "The tensors it keeps for backward.", NULL},
    {"next", node_next, NULL, "Its edges, in the order of grad_fn.next_functions.", NULL},
    {"module", node_module, NULL, "Path of the module that made it; None where no recorder was on.", NULL},
    {"where", node_where, NULL, "The forward's source line; None where no recorder was on.", NULL},
    {"stack", node_stack, NULL, "where, and the lines of the program that led there, innermost first.", NULL},
    {"made_by", node_made_by, NULL, "The node whose backward made it, under create_graph; None in the forward.", NULL},
    {"time", node_time, NULL, "When it ran in the backward that was recorded, as a Span; None where none was.", NULL},
    {"gradient", node_gradient, NULL, "What the gradients were like that it received, all together; None where no\n"
                                      "backward was recorded.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(node_doc, "A node of the graph: one step of backward.");

static PyType_Slot node_slots[] = {
    {Py_tp_doc, (void *)node_doc},
    {Py_tp_repr, (void *)node_repr},
    {Py_tp_getset, node_getset},
    TGD_PY_ROW_SLOTS,
    {0, NULL},
};

PyType_Spec tgd_py_node_spec = {
    .name = "torchgraphdbg.Node",
    .basicsize = sizeof(tgd_py_row),
    .flags = TGD_PY_TYPE_FLAGS,
    .slots = node_slots,
};
