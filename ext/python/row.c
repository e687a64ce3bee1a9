#include "row.h"

tgd_py_snapshot *tgd_py_snapshot_new(tgd_report *report)
{
    tgd_py_snapshot *snapshot = PyMem_Calloc(1, sizeof *snapshot);
    if (snapshot == NULL) {
        tgd_report_free(report);
        PyErr_NoMemory();
        return NULL;
    }
    snapshot->n_references = 1;
    snapshot->report = report;
    return snapshot;
}

tgd_py_snapshot *tgd_py_snapshot_share(tgd_py_snapshot *snapshot)
{
    snapshot->n_references++;
    return snapshot;
}

void tgd_py_snapshot_drop(tgd_py_snapshot *snapshot)
{
    if (snapshot == NULL || --snapshot->n_references != 0) {
        return;
    }
    tgd_report_free(snapshot->report);
    PyMem_Free(snapshot->first_edge);
    PyMem_Free(snapshot);
}

const size_t *tgd_py_snapshot_first_edge(tgd_py_snapshot *snapshot)
{
    if (snapshot->first_edge != NULL) {
        return snapshot->first_edge;
    }
    size_t n = tgd_report_n_nodes(snapshot->report);
    size_t *first = PyMem_Malloc((n + 1) * sizeof *first);
    if (first == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    size_t total = 0;
    for (size_t v = 0; v < n; v++) {
        tgd_node_info info;
        tgd_report_node(snapshot->report, (tgd_node)v, &info);
        first[v] = total;
        total += info.n_edges;
    }
    first[n] = total;
    snapshot->first_edge = first;
    return first;
}

PyObject *tgd_py_row_new(PyTypeObject *type, tgd_py_snapshot *snapshot, size_t node, size_t place)
{
    tgd_py_row *self = PyObject_GC_New(tgd_py_row, type);
    if (self == NULL) {
        return NULL;
    }
    self->snapshot = tgd_py_snapshot_share(snapshot);
    self->node = node;
    self->place = place;
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

PyObject *tgd_py_node_new(const tgd_py_state *state, tgd_py_snapshot *snapshot, tgd_node node)
{
    if (node == TGD_NONE) {
        Py_RETURN_NONE;
    }
    return tgd_py_row_new(state->node_type, snapshot, node, 0);
}

void tgd_py_row_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    tgd_py_snapshot_drop(((tgd_py_row *)self)->snapshot);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

int tgd_py_row_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return 0;
}

PyObject *tgd_py_row_compare(PyObject *self, PyObject *other, int op)
{
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(self) != Py_TYPE(other)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    const tgd_py_row *a = (const tgd_py_row *)self;
    const tgd_py_row *b = (const tgd_py_row *)other;
    int equal = a->snapshot == b->snapshot && a->node == b->node && a->place == b->place;
    return PyBool_FromLong(equal == (op == Py_EQ));
}

Py_hash_t tgd_py_row_hash(PyObject *self)
{
    const tgd_py_row *row = (const tgd_py_row *)self;
    uint64_t hash = (uint64_t)(uintptr_t)row->snapshot >> 4;
    hash = (hash ^ row->node) * UINT64_C(0x9E3779B97F4A7C15);
    hash = (hash ^ (hash >> 32) ^ row->place) * UINT64_C(0x9E3779B97F4A7C15);
    Py_hash_t result = (Py_hash_t)(hash ^ (hash >> 32));
    return result == -1 ? -2 : result;
}
