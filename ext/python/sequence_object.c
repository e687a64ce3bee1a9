#include "sequence_object.h"

typedef struct sequence {
    PyObject_HEAD
    tgd_py_snapshot *snapshot; /* Owned reference */
    tgd_py_items items;
    Py_ssize_t start, step, length; /* a slice of a slice is one slice */
} sequence;

static PyObject *make(PyTypeObject *type, tgd_py_snapshot *snapshot, tgd_py_items items, Py_ssize_t start,
                      Py_ssize_t step, Py_ssize_t length)
{
    sequence *self = PyObject_GC_New(sequence, type);
    if (self == NULL) {
        return NULL;
    }
    self->snapshot = tgd_py_snapshot_share(snapshot);
    self->items = items;
    self->start = start;
    self->step = step;
    self->length = length;
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

PyObject *tgd_py_sequence_new(const tgd_py_state *state, tgd_py_snapshot *snapshot, tgd_py_items items)
{
    size_t n = tgd_report_n_nodes(snapshot->report);
    if (items == TGD_PY_EDGES) {
        const size_t *first_edge = tgd_py_snapshot_first_edge(snapshot);
        if (first_edge == NULL) {
            return NULL;
        }
        n = first_edge[n];
    }
    return make(state->sequence_type, snapshot, items, 0, 1, (Py_ssize_t)n);
}

static void sequence_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    tgd_py_snapshot_drop(((sequence *)object)->snapshot);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int sequence_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static Py_ssize_t sequence_length(PyObject *object)
{
    return ((sequence *)object)->length;
}

/* The node whose edges include edge number `at`: the last one whose first edge is not past it. */
static size_t node_of_edge(const size_t *first_edge, size_t n_nodes, size_t at)
{
    size_t low = 0, high = n_nodes;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (first_edge[middle] <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static PyObject *sequence_item(PyObject *object, Py_ssize_t i)
{
    sequence *self = (sequence *)object;
    if (i < 0 || i >= self->length) {
        PyErr_SetString(PyExc_IndexError, "index out of range");
        return NULL;
    }
    const tgd_py_state *state = tgd_py_state_of(object);
    size_t at = (size_t)(self->start + i * self->step);
    if (self->items == TGD_PY_NODES) {
        return tgd_py_row_new(state->node_type, self->snapshot, at, 0);
    }
    const size_t *first_edge = tgd_py_snapshot_first_edge(self->snapshot);
    if (first_edge == NULL) {
        return NULL;
    }
    size_t node = node_of_edge(first_edge, tgd_report_n_nodes(self->snapshot->report), at);
    return tgd_py_row_new(state->edge_type, self->snapshot, node, at - first_edge[node]);
}

static PyObject *sequence_subscript(PyObject *object, PyObject *key)
{
    sequence *self = (sequence *)object;
    if (PySlice_Check(key)) {
        Py_ssize_t start, stop, step;
        if (PySlice_Unpack(key, &start, &stop, &step) < 0) {
            return NULL;
        }
        Py_ssize_t length = PySlice_AdjustIndices(self->length, &start, &stop, step);
        if (length == 0) {
            return make(Py_TYPE(object), self->snapshot, self->items, 0, 1, 0);
        }
        if (length == 1) {
            step = 1; /* it may be as large as Py_ssize_t holds, and is never taken */
        }
        return make(Py_TYPE(object), self->snapshot, self->items, self->start + start * self->step, step * self->step,
                    length);
    }
    if (!PyIndex_Check(key)) {
        PyErr_Format(PyExc_TypeError, "indices must be integers or slices, not %.200s", Py_TYPE(key)->tp_name);
        return NULL;
    }
    Py_ssize_t i = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (i == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return sequence_item(object, i < 0 ? i + self->length : i);
}

/* Where value is, -1 where it is not, -2 with an exception set. */
static Py_ssize_t find(PyObject *object, PyObject *value)
{
    sequence *self = (sequence *)object;
    const tgd_py_state *state = tgd_py_state_of(object);
    if (Py_TYPE(value) != (self->items == TGD_PY_NODES ? state->node_type : state->edge_type)) {
        return -1;
    }
    const tgd_py_row *row = (const tgd_py_row *)value;
    if (row->snapshot != self->snapshot || self->length == 0) {
        return -1;
    }
    size_t at = row->node;
    if (self->items == TGD_PY_EDGES) {
        const size_t *first_edge = tgd_py_snapshot_first_edge(self->snapshot);
        if (first_edge == NULL) {
            return -2;
        }
        at = first_edge[row->node] + row->place;
    }
    Py_ssize_t away = (Py_ssize_t)at - self->start;
    if (away % self->step != 0 || away / self->step < 0 || away / self->step >= self->length) {
        return -1;
    }
    return away / self->step;
}

static int sequence_contains(PyObject *object, PyObject *value)
{
    Py_ssize_t at = find(object, value);
    return at == -2 ? -1 : at >= 0;
}

PyDoc_STRVAR(index_doc, "index($self, value, start=0, stop=None, /)\n--\n\n"
                        "Position of value. ValueError where it is not in this sequence.");

static PyObject *sequence_index(PyObject *object, PyObject *args)
{
    Py_ssize_t length = ((sequence *)object)->length;
    PyObject *value, *start = Py_None, *stop = Py_None;
    if (!PyArg_ParseTuple(args, "O|OO:index", &value, &start, &stop)) {
        return NULL;
    }
    Py_ssize_t low = 0, high = length;
    if (start != Py_None) {
        low = PyNumber_AsSsize_t(start, NULL);
        if (low == -1 && PyErr_Occurred()) {
            return NULL;
        }
    }
    if (stop != Py_None) {
        high = PyNumber_AsSsize_t(stop, NULL);
        if (high == -1 && PyErr_Occurred()) {
            return NULL;
        }
    }
    PySlice_AdjustIndices(length, &low, &high, 1);
    Py_ssize_t at = find(object, value);
    if (at == -2) {
        return NULL;
    }
    if (at < low || at >= high) {
        PyErr_Format(PyExc_ValueError, "%.200R is not in this sequence", value);
        return NULL;
    }
    return PyLong_FromSsize_t(at);
}

PyDoc_STRVAR(count_doc, "count($self, value, /)\n--\n\n"
                        "1 where value is in this sequence, else 0.");

static PyObject *sequence_count(PyObject *object, PyObject *value)
{
    Py_ssize_t at = find(object, value);
    return at == -2 ? NULL : PyLong_FromLong(at >= 0);
}

static PyObject *sequence_compare(PyObject *object, PyObject *other, int op)
{
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(object) != Py_TYPE(other)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    const sequence *a = (const sequence *)object;
    const sequence *b = (const sequence *)other;
    int equal = a->snapshot == b->snapshot && a->items == b->items && a->length == b->length &&
                (a->length == 0 || a->start == b->start) && (a->length <= 1 || a->step == b->step);
    return PyBool_FromLong(equal == (op == Py_EQ));
}

static PyObject *sequence_repr(PyObject *object)
{
    const sequence *self = (const sequence *)object;
    const char *what = self->items == TGD_PY_NODES ? "node" : "edge";
    return PyUnicode_FromFormat("<torchgraphdbg.GraphSequence: %zd %s%s>", self->length, what,
                                self->length == 1 ? "" : "s");
}

static PyMethodDef sequence_methods[] = {
    {"index", sequence_index, METH_VARARGS, index_doc},
    {"count", sequence_count, METH_O, count_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(sequence_doc, "Nodes or edges of a graph, in capture order: a root's node comes before the nodes it leads\n"
                           "to. Slices are views; the items are made when they are asked for.");

static PyType_Slot sequence_slots[] = {
    {Py_tp_doc, (void *)sequence_doc},
    {Py_tp_dealloc, (void *)sequence_dealloc},
    {Py_tp_traverse, (void *)sequence_traverse},
    {Py_tp_repr, (void *)sequence_repr},
    {Py_tp_richcompare, (void *)sequence_compare},
    {Py_tp_hash, (void *)PyObject_HashNotImplemented},
    {Py_tp_iter, (void *)PySeqIter_New},
    {Py_tp_methods, sequence_methods},
    {Py_sq_length, (void *)sequence_length},
    {Py_sq_item, (void *)sequence_item},
    {Py_sq_contains, (void *)sequence_contains},
    {Py_mp_length, (void *)sequence_length},
    {Py_mp_subscript, (void *)sequence_subscript},
    {0, NULL},
};

PyType_Spec tgd_py_sequence_spec = {
    .name = "torchgraphdbg.GraphSequence",
    .basicsize = sizeof(sequence),
    .flags = TGD_PY_TYPE_FLAGS | Py_TPFLAGS_SEQUENCE,
    .slots = sequence_slots,
};
