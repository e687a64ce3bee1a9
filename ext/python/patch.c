#include "patch.h"

PyObject *tgd_py_torch_attribute(const char *class_name, const char *name)
{
    PyObject *owner = PyImport_ImportModule("torch._C");
    if (owner != NULL && class_name != NULL) {
        Py_SETREF(owner, PyObject_GetAttrString(owner, class_name));
    }
    PyObject *found = owner == NULL ? NULL : PyObject_GetAttrString(owner, name);
    Py_XDECREF(owner);
    return found;
}

static PyMethodDef **place_in(PyObject *holder)
{
    if (PyInstanceMethod_Check(holder)) { /* pybind11's */
        holder = PyInstanceMethod_GET_FUNCTION(holder);
    }
    if (PyCFunction_CheckExact(holder)) {
        return &((PyCFunctionObject *)holder)->m_ml;
    }
    if (Py_IS_TYPE(holder, &PyMethodDescr_Type)) {
        return &((PyMethodDescrObject *)holder)->d_method;
    }
    return NULL;
}

int tgd_py_patch_install(tgd_py_patch *p, const char *class_name)
{
    PyObject *holder = tgd_py_torch_attribute(class_name, p->ours.ml_name);
    if (holder == NULL) {
        return -1;
    }
    PyMethodDef **place = place_in(holder);
    if (place != NULL && p->fast != NULL && (*place)->ml_flags == (METH_FASTCALL | METH_KEYWORDS)) {
        p->ours.ml_meth = p->fast;
        p->ours.ml_flags = METH_FASTCALL | METH_KEYWORDS;
    }
    if (place == NULL || ((*place)->ml_flags & ~METH_COEXIST) != p->ours.ml_flags) {
        PyErr_Format(PyExc_RuntimeError, "torchgraphdbg cannot watch this torch: %s is not what it was",
                     p->ours.ml_name);
        Py_DECREF(holder);
        return -1;
    }
    if (*place != &p->ours) {
        p->real = *place;
        p->ours.ml_doc = p->real->ml_doc;
        *place = &p->ours;
    }
    p->place = place;
    p->holder = holder;
    return 0;
}

void tgd_py_patch_restore(tgd_py_patch *p)
{
    if (p->place != NULL && *p->place == &p->ours) {
        *p->place = p->real;
    }
    p->place = NULL;
    Py_CLEAR(p->holder);
}
