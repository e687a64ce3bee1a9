#ifndef TGD_PY_MEASURE_H
#define TGD_PY_MEASURE_H

#include "state.h"

/* The module's function _statistics(), for tests and benchmarks. */
extern const char tgd_py_statistics_doc[];
PyObject *tgd_py_statistics(PyObject *module, PyObject *args, PyObject *keywords);

#endif
