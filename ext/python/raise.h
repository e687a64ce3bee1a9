#ifndef TGD_PY_RAISE_H
#define TGD_PY_RAISE_H

#include "state.h"
#include "torchgraphdbg/tgd.h"

/**
 * The only place where a status becomes an exception.
 * @param status    not TGD_OK; with TGD_EPYTHON an exception is set already
 * @param filename  the path as the user gave it, for OSError; NULL = none
 * @return NULL, for `return tgd_py_raise(...)`
 */
PyObject *tgd_py_raise(const tgd_py_state *state, tgd_status status, const tgd_error *err, PyObject *filename);

#endif
