#include "watch.h"

#include "arguments.h"

/* An enabled scaler that has scaled something. */
static bool at_work(PyObject *scaler)
{
    PyObject *enabled = PyObject_GetAttrString(scaler, "_enabled");
    PyObject *scale = enabled == NULL ? NULL : PyObject_GetAttrString(scaler, "_scale");
    bool is = scale != NULL && scale != Py_None && PyObject_IsTrue(enabled) == 1;
    Py_XDECREF(enabled);
    Py_XDECREF(scale);
    PyErr_Clear();
    return is;
}

/* A new reference, or NULL: none was found yet, or it is gone. */
static PyObject *known_scaler(PyObject *reference)
{
    PyObject *scaler = reference == NULL ? NULL : PyObject_CallNoArgs(reference);
    if (scaler == Py_None) {
        Py_CLEAR(scaler);
    }
    PyErr_Clear();
    return scaler;
}

/* Looked for among all objects, but only when something is not finite: nothing of the scaler's is changed or wrapped,
   and nobody pays for it in a step that goes well. */
bool tgd_py_scaler_at_work(PyObject **reference)
{
    PyObject *known = known_scaler(*reference);
    bool found = known != NULL && at_work(known);
    Py_XDECREF(known);
    if (found) {
        return true;
    }
    PyObject *name = PyUnicode_FromString("torch.amp.grad_scaler"), *gc = PyImport_ImportModule("gc");
    PyObject *module = name == NULL ? NULL : PyImport_GetModule(name);
    PyObject *class = module == NULL ? NULL : PyObject_GetAttrString(module, "GradScaler");
    PyObject *objects = class == NULL || gc == NULL || !PyType_Check(class) ? NULL
                                                                          : PyObject_CallMethod(gc, "get_objects", NULL);
    for (Py_ssize_t i = 0; objects != NULL && PyList_Check(objects) && i < PyList_GET_SIZE(objects) && !found; i++) {
        PyObject *object = PyList_GET_ITEM(objects, i);
        found = PyType_IsSubtype(Py_TYPE(object), (PyTypeObject *)class) && at_work(object);
        if (found) {
            Py_XSETREF(*reference, PyWeakref_NewRef(object, NULL));
        }
    }
    Py_XDECREF(name);
    Py_XDECREF(gc);
    Py_XDECREF(module);
    Py_XDECREF(class);
    Py_XDECREF(objects);
    PyErr_Clear();
    return found;
}
