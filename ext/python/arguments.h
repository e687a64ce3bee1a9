/* From what a user passes as root, params and inputs to a tgd_request. */
#ifndef TGD_PY_ARGUMENTS_H
#define TGD_PY_ARGUMENTS_H

#include "state.h"
#include "torchgraphdbg/tgd.h"

typedef struct tgd_py_arguments {
    tgd_request request; /* Borrows from what follows */
    tgd_root *roots;     /* Owned, like the next two */
    tgd_parameter *parameters;
    const tgd_torch_tensor **inputs;
    size_t n_roots, n_parameters, n_inputs;
    size_t root_capacity, parameter_capacity, input_capacity;
    struct tgd_py_living *living; /* Owned: what is alive beside them (living.h), or NULL */
    PyObject *kept;  /* Owned list: the tensors, nodes and encoded names that the arrays point into */
    PyObject *names; /* Owned set of the parameter names seen */
} tgd_py_arguments;

/**
 * GIL held; runs Python code of the user's (iterators, named_parameters). root may be NULL: then the request has no
 * roots yet. params and inputs may be None.
 * @param[out] out  release with tgd_py_arguments_clear(), also on failure
 * @return 0, or -1 with an exception that names the argument, what came and what is wanted
 */
int tgd_py_arguments_read(tgd_py_arguments *out, PyObject *root, PyObject *params,
                          PyObject *inputs, int create_graph);
void tgd_py_arguments_clear(tgd_py_arguments *arguments);

/* Also look through the process for what keeps graphs and for optimizers: for a report that somebody asks for, not for
   one that is made in passing. 0, or -1 with an exception. */
int tgd_py_arguments_look_around(tgd_py_arguments *arguments);

/* ---- shared by arguments.c and parameters.c ---- */

/* Fills parameters. Not for None. */
int tgd_py_parameters_read(tgd_py_arguments *arguments, PyObject *params);

/* Room for one more; 0, or -1 with MemoryError. */
int tgd_py_reserve(void **array, size_t *capacity, size_t n, size_t size);
/* Is it an instance of the class that torch keeps under this name? 1, 0, or -1 with an exception. 0 where the
   module was never imported, for then no instance can exist. */
int tgd_py_is_instance(PyObject *object, const char *module, const char *class_name);
/* An iterator over anything but text and mappings; NULL, without an exception where the object is no such thing. */
PyObject *tgd_py_iterate(PyObject *object);

#endif
