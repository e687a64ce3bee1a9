/* What torch's anomaly mode wrote down about a node: the "traceback_" and "parent_" of grad_fn.metadata. */
#ifndef TGD_PY_TRACEBACK_H
#define TGD_PY_TRACEBACK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "trace.h"

/* For tgd_request.trace. GIL held. Runs no Python code and leaves no exception. */
int tgd_py_trace(const tgd_torch_node *node, tgd_trace *out);

#endif
