#include "document.h"
#include "measure_objects.h"
#include "row.h"

static tgd_edge edge_of(PyObject *object)
{
    const tgd_py_row *self = (const tgd_py_row *)object;
    return tgd_report_edge(self->snapshot->report, (tgd_node)self->node, self->place);
}

static PyObject *edge_source(PyObject *object, void *closure)
{
    (void)closure;
    tgd_py_row *self = (tgd_py_row *)object;
    return tgd_py_node_new(tgd_py_state_of(object), self->snapshot, (tgd_node)self->node);
}

static PyObject *edge_target(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_node_new(tgd_py_state_of(object), ((tgd_py_row *)object)->snapshot, edge_of(object).to);
}

static PyObject *edge_input_nr(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLong(edge_of(object).input_nr);
}

static PyObject *edge_gradient(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_edge edge = edge_of(object);
    if (edge.to == TGD_NONE) {
        Py_RETURN_NONE;
    }
    return tgd_py_input_gradient(tgd_py_state_of(object), ((tgd_py_row *)object)->snapshot, edge.to, edge.input_nr);
}

static PyObject *edge_repr(PyObject *object)
{
    const tgd_py_row *self = (const tgd_py_row *)object;
    tgd_node_info info;
    tgd_report_node(self->snapshot->report, (tgd_node)self->node, &info);
    PyObject *source = tgd_py_str(info.name);
    PyObject *target = NULL, *repr = NULL;
    tgd_edge edge = edge_of(object);
    if (source == NULL) {
        return NULL;
    }
    if (edge.to == TGD_NONE) {
        repr = PyUnicode_FromFormat("<torchgraphdbg.Edge %zu %.80U -> None>", self->node, source);
    } else {
        tgd_report_node(self->snapshot->report, edge.to, &info);
        target = tgd_py_str(info.name);
        if (target != NULL) {
            repr = PyUnicode_FromFormat("<torchgraphdbg.Edge %zu %.80U -> %u %.80U, input %u>", self->node, source,
                                        (unsigned)edge.to, target, (unsigned)edge.input_nr);
        }
    }
    Py_DECREF(source);
    Py_XDECREF(target);
    return repr;
}

static PyGetSetDef edge_getset[] = {
    {"source", edge_source, NULL, "The node that hands a gradient on.", NULL},
    {"target", edge_target, NULL, "The node that receives it; None: a null edge, no gradient is wanted there.", NULL},
    {"input_nr", edge_input_nr, NULL, "Which input of target it is added to.", NULL},
    {"gradient", edge_gradient, NULL, "What target received there: what source handed on where Gradient.edges is 1,\n"
                                      "else the sum of all of them. None where no backward was recorded.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(edge_doc, "Where one gradient goes in backward, from source to target.");

static PyType_Slot edge_slots[] = {
    {Py_tp_doc, (void *)edge_doc},
    {Py_tp_repr, (void *)edge_repr},
    {Py_tp_getset, edge_getset},
    TGD_PY_ROW_SLOTS,
    {0, NULL},
};

PyType_Spec tgd_py_edge_spec = {
    .name = "torchgraphdbg.Edge",
    .basicsize = sizeof(tgd_py_row),
    .flags = TGD_PY_TYPE_FLAGS,
    .slots = edge_slots,
};
