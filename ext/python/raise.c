#include "raise.h"

#include "document.h"
#include <string.h>

static void raise_text(PyObject *exception, const char *message)
{
    PyObject *text = tgd_py_str(message);
    if (text != NULL) {
        PyErr_SetObject(exception, text);
        Py_DECREF(text);
    }
}

/* The constructor picks the subclass (PermissionError, ...) from the errno. */
static void raise_os_error(const tgd_error *err, PyObject *filename)
{
    const char *reason = err->os_errno != 0 ? strerror(err->os_errno) : err->message;
    PyObject *text = PyUnicode_DecodeLocale(reason, "surrogateescape");
    if (text == NULL) {
        return;
    }
    PyObject *exception = filename == NULL
                              ? PyObject_CallFunction(PyExc_OSError, "iO", err->os_errno, text)
                              : PyObject_CallFunction(PyExc_OSError, "iOO", err->os_errno, text, filename);
    Py_DECREF(text);
    if (exception != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
        Py_DECREF(exception);
    }
}

PyObject *tgd_py_raise(const tgd_py_state *state, tgd_status status, const tgd_error *err, PyObject *filename)
{
    switch (status) {
    case TGD_ENOMEM:
        return PyErr_NoMemory();
    case TGD_EINVAL:
        raise_text(PyExc_ValueError, err->message);
        return NULL;
    case TGD_EIO:
        raise_os_error(err, filename);
        return NULL;
    case TGD_EPYTHON:
        if (!PyErr_Occurred()) {
            raise_text(PyExc_SystemError, "torchgraphdbg reported a Python exception and none is set");
        }
        return NULL;
    case TGD_OK:
    case TGD_ETORCH:
    case TGD_EGRAPHVIZ:
        raise_text(state->error, err->message);
        return NULL;
    }
    PyErr_Format(PyExc_SystemError, "unknown status %d", (int)status);
    return NULL;
}
