#ifndef TGD_PY_DUMP_H
#define TGD_PY_DUMP_H

#include "state.h"

/* The module's function dump(). */
extern const char tgd_py_dump_doc[];
PyObject *tgd_py_dump(PyObject *module, PyObject *args, PyObject *keywords);

/* This process's rank, or -1 where torch.distributed is not in use or does not say. GIL held; leaves no exception. */
long tgd_py_distributed_rank(void);

#endif
