#ifndef TGD_PY_MEASURE_OBJECTS_H
#define TGD_PY_MEASURE_OBJECTS_H

#include "row.h"

/* New references; None where it was not measured. */
PyObject *tgd_py_node_time(const tgd_py_state *state, tgd_py_snapshot *snapshot, tgd_node node);
PyObject *tgd_py_node_gradient(const tgd_py_state *state, tgd_py_snapshot *snapshot, tgd_node node);
PyObject *tgd_py_input_gradient(const tgd_py_state *state, tgd_py_snapshot *snapshot, tgd_node node, size_t input);
/* A tuple of Span, or None. */
PyObject *tgd_py_timeline(const tgd_py_state *state, tgd_py_snapshot *snapshot);

#endif
