#include "row.h"
#include "sequence_object.h"

static PyObject *graph_nodes(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_sequence_new(tgd_py_state_of(object), ((tgd_py_row *)object)->snapshot, TGD_PY_NODES);
}

static PyObject *graph_edges(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_sequence_new(tgd_py_state_of(object), ((tgd_py_row *)object)->snapshot, TGD_PY_EDGES);
}

static PyObject *graph_roots(PyObject *object, void *closure)
{
    (void)closure;
    tgd_py_snapshot *snapshot = ((tgd_py_row *)object)->snapshot;
    tgd_summary summary;
    tgd_report_summary(snapshot->report, &summary);
    PyObject *roots = PyTuple_New((Py_ssize_t)summary.n_roots);
    for (size_t r = 0; roots != NULL && r < summary.n_roots; r++) {
        PyObject *node = tgd_py_node_new(tgd_py_state_of(object), snapshot, tgd_report_root(snapshot->report, r));
        if (node == NULL) {
            Py_CLEAR(roots);
        } else {
            PyTuple_SET_ITEM(roots, (Py_ssize_t)r, node);
        }
    }
    return roots;
}

static PyObject *graph_repr(PyObject *object)
{
    tgd_summary summary;
    tgd_report_summary(((tgd_py_row *)object)->snapshot->report, &summary);
    return PyUnicode_FromFormat("<torchgraphdbg.Graph: %zu node%s, %zu edge%s>", summary.n_nodes,
                                summary.n_nodes == 1 ? "" : "s", summary.n_edges, summary.n_edges == 1 ? "" : "s");
}

static PyGetSetDef graph_getset[] = {
    {"nodes", graph_nodes, NULL, "Every node, a root's before the nodes it leads to.", NULL},
    {"edges", graph_edges, NULL, "Every edge, null edges included, node by node.", NULL},
    {"roots", graph_roots, NULL, "The node of each root as given; None for a root without grad_fn.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(graph_doc, "The autograd graph as it stood: a snapshot that holds no tensor and no node of torch.");

static PyType_Slot graph_slots[] = {
    {Py_tp_doc, (void *)graph_doc},
    {Py_tp_repr, (void *)graph_repr},
    {Py_tp_getset, graph_getset},
    TGD_PY_ROW_SLOTS,
    {0, NULL},
};

PyType_Spec tgd_py_graph_spec = {
    .name = "torchgraphdbg.Graph",
    .basicsize = sizeof(tgd_py_row),
    .flags = TGD_PY_TYPE_FLAGS,
    .slots = graph_slots,
};
