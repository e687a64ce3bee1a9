#ifndef TGD_PY_SEQUENCE_OBJECT_H
#define TGD_PY_SEQUENCE_OBJECT_H

#include "row.h"

typedef enum tgd_py_items { TGD_PY_NODES, TGD_PY_EDGES } tgd_py_items;

/* All nodes or all edges of a snapshot; the objects are made when they are asked for. */
PyObject *tgd_py_sequence_new(const tgd_py_state *state, tgd_py_snapshot *snapshot, tgd_py_items items);

#endif
