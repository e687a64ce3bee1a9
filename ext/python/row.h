/*
 * The snapshot behind a Report, shared by every object that shows a part of it, and the one shape that these
 * objects have: a place in the snapshot. None of them refers to another Python object, so no cycle can arise and
 * a report is freed the moment that its last part is dropped.
 */
#ifndef TGD_PY_ROW_H
#define TGD_PY_ROW_H

#include "state.h"
#include "torchgraphdbg/tgd.h"

/* Immutable but for the count and the index, which change under the GIL. */
typedef struct tgd_py_snapshot {
    size_t n_references;
    tgd_report *report; /* Owned */
    size_t *first_edge; /* Owned, n_nodes + 1 running totals of edges; NULL until somebody asks for an edge by number */
} tgd_py_snapshot;

/* Takes the report over, also on failure (NULL with MemoryError set). */
tgd_py_snapshot *tgd_py_snapshot_new(tgd_report *report);
tgd_py_snapshot *tgd_py_snapshot_share(tgd_py_snapshot *snapshot);
/* Accepts NULL. */
void tgd_py_snapshot_drop(tgd_py_snapshot *snapshot);
/* Borrowed; NULL with MemoryError set. */
const size_t *tgd_py_snapshot_first_edge(tgd_py_snapshot *snapshot);

typedef struct tgd_py_row {
    PyObject_HEAD
    tgd_py_snapshot *snapshot; /* Owned reference */
    size_t node;               /* index of a node; of a finding in Finding; 0 in Graph */
    size_t place;              /* among that node's edges, inputs or saved tensors, else 0 */
} tgd_py_row;

PyObject *tgd_py_row_new(PyTypeObject *type, tgd_py_snapshot *snapshot, size_t node, size_t place);
/* A Node, or None for TGD_NONE. */
PyObject *tgd_py_node_new(const tgd_py_state *state, tgd_py_snapshot *snapshot, tgd_node node);

/* Slots of every type whose instances are rows. Equal: same type, same snapshot, same place. */
void tgd_py_row_dealloc(PyObject *self);
int tgd_py_row_traverse(PyObject *self, visitproc visit, void *arg);
PyObject *tgd_py_row_compare(PyObject *self, PyObject *other, int op);
Py_hash_t tgd_py_row_hash(PyObject *self);

#define TGD_PY_ROW_SLOTS                                                                                               \
    {Py_tp_dealloc, (void *)tgd_py_row_dealloc}, {Py_tp_traverse, (void *)tgd_py_row_traverse},                        \
        {Py_tp_richcompare, (void *)tgd_py_row_compare}, {Py_tp_hash, (void *)tgd_py_row_hash}

#endif
