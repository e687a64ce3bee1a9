/*
 * What is alive beside the arguments of a report: the tensors that the given module keeps, the .grad of the given
 * parameters; and, where somebody asks for the report, all tensors with a grad_fn and all optimizers of the process.
 * Reads dicts, lists and tensors; runs no code of the user's.
 */
#ifndef TGD_PY_LIVING_H
#define TGD_PY_LIVING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "census.h"

typedef struct tgd_py_living tgd_py_living;

/* GIL held, like all of it. kept is the list that holds what the census points to. NULL with an exception. */
tgd_py_living *tgd_py_living_new(PyObject *kept);
/* Accepts NULL. */
void tgd_py_living_free(tgd_py_living *living);

/* Borrowed; good until the next call with this `living`. */
const tgd_census *tgd_py_living_census(tgd_py_living *living);

/* What hangs on the parameters that were given, in `given` as they came. 0, or -1 with an exception. */
int tgd_py_living_read(tgd_py_living *living, PyObject *given, const tgd_parameter *parameters, size_t n);

/* The whole process. 0, or -1 with an exception. */
int tgd_py_living_look_around(tgd_py_living *living);

#endif
