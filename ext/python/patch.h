/*
 * A C function of torch's that runs through ours. Only the pointer to the C function changes: the object, its name, its
 * signature and whoever holds or compares it stay as they are, and no frame is added to a traceback.
 */
#ifndef TGD_PY_PATCH_H
#define TGD_PY_PATCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* GIL held, here and below. Both functions take their arguments in the same way. */
typedef struct tgd_py_patch {
    PyMethodDef ours;
    PyCFunction fast;    /* ours for METH_FASTCALL, where torch may have that instead; or NULL */
    PyMethodDef *real;   /* Borrowed for ever; NULL until it was first installed, then never again */
    PyMethodDef **place; /* Borrowed while installed; NULL otherwise */
    PyObject *holder;    /* Owned while installed: the object that the place is in */
} tgd_py_patch;

/* The function torch._C.[class_name.]name; class_name may be NULL. 0, or -1 with an exception and nothing changed. */
int tgd_py_patch_install(tgd_py_patch *patch, const char *class_name);
/* Where somebody else has put another one over ours meanwhile, theirs stays. Does nothing where it is not installed. */
void tgd_py_patch_restore(tgd_py_patch *patch);

/* What torch's own function returns. */
static inline PyObject *tgd_py_patch_call(const tgd_py_patch *patch, PyObject *self, PyObject *args,
                                          PyObject *keywords)
{
    return ((PyCFunctionWithKeywords)(void (*)(void))patch->real->ml_meth)(self, args, keywords);
}

typedef PyObject *(*tgd_py_fast_function)(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);

static inline PyObject *tgd_py_patch_call_fast(const tgd_py_patch *patch, PyObject *self, PyObject *const *args,
                                               Py_ssize_t n, PyObject *names)
{
    return ((tgd_py_fast_function)(void (*)(void))patch->real->ml_meth)(self, args, n, names);
}

/* What torch._C calls by this dotted name. A new reference, or NULL with an exception. */
PyObject *tgd_py_torch_attribute(const char *class_name, const char *name);

#endif
