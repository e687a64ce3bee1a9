#ifndef TGD_PY_MEASURE_H
#define TGD_PY_MEASURE_H

#include "state.h"

/* The module's function _statistics(), for tests and benchmarks. */
extern const char tgd_py_statistics_doc[];
PyObject *tgd_py_statistics(PyObject *module, PyObject *args, PyObject *keywords);

/* The module's function _measure(on): times nodes, and with 2 looks at gradients, in whatever recorder is on; 0 ends it. For
   benchmarks: what measuring costs beside a light recording. */
PyObject *tgd_py_measure(PyObject *module, PyObject *on);

#endif
