/* A report back from the JSON it was saved as. */
#ifndef TGD_PY_LOAD_H
#define TGD_PY_LOAD_H

#include "state.h"

extern const char tgd_py_load_doc[];
PyObject *tgd_py_load(PyObject *module, PyObject *args, PyObject *keywords);

#endif
