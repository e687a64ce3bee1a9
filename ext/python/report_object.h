#ifndef TGD_PY_REPORT_OBJECT_H
#define TGD_PY_REPORT_OBJECT_H

#include "arguments.h"
#include "row.h"

/* Captures without the GIL; the arguments hold every object meanwhile. */
PyObject *tgd_py_report_new(const tgd_py_state *state, const tgd_py_arguments *arguments);

/* Borrowed; report is a Report. */
const tgd_py_snapshot *tgd_py_report_snapshot(PyObject *report);

#endif
