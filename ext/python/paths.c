#include "paths.h"

#include "document.h"
#include "raise.h"

/* Says which argument a failed conversion was about. Any other exception passes. */
static void name_argument(const char *argument, PyObject *path)
{
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Format(PyExc_TypeError, "%s: expected a str, bytes or os.PathLike, got %.200s", argument,
                     Py_TYPE(path)->tp_name);
    } else if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        PyErr_Format(PyExc_ValueError, "%s: %.200R cannot be encoded for this file system", argument, path);
    } else if (PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Format(PyExc_ValueError, "%s: %.200R has a NUL character in it", argument, path);
    }
}

int tgd_py_path_read(const tgd_py_state *state, tgd_py_path *out, const char *argument, PyObject *path)
{
    PyObject *encoded = NULL;
    if (!PyUnicode_FSConverter(path, &encoded)) {
        name_argument(argument, path);
        return -1;
    }
    tgd_format format;
    tgd_error err = {.status = TGD_OK};
    tgd_status status = tgd_format_of_path(&format, PyBytes_AS_STRING(encoded), &err);
    if (status != TGD_OK) {
        Py_DECREF(encoded);
        if (status == TGD_EINVAL) {
            PyObject *reason = tgd_py_str(err.message);
            if (reason != NULL) {
                PyErr_Format(PyExc_ValueError, "%s: %U", argument, reason);
                Py_DECREF(reason);
            }
        } else {
            tgd_py_raise(state, status, &err, path);
        }
        return -1;
    }
    out->given = Py_NewRef(path);
    out->encoded = encoded;
    out->format = format;
    return 0;
}

void tgd_py_path_clear(tgd_py_path *path)
{
    Py_CLEAR(path->given);
    Py_CLEAR(path->encoded);
}

int tgd_py_path_save(const tgd_py_state *state, const tgd_py_path *path, const tgd_py_snapshot *snapshot,
                     const tgd_view *view)
{
    const char *name = PyBytes_AS_STRING(path->encoded);
    tgd_error err = {.status = TGD_OK};
    tgd_status status;
    Py_BEGIN_ALLOW_THREADS
    status = tgd_report_save_view(snapshot->report, name, path->format, view, &err);
    Py_END_ALLOW_THREADS
    if (status == TGD_OK) {
        return 0;
    }
    tgd_py_raise(state, status, &err, path->given);
    return -1;
}

/* NULL with an exception. A working directory that is gone leaves the name as it is. */
static PyObject *absolute(PyObject *name)
{
    PyObject *module = PyImport_ImportModule("os.path");
    if (module == NULL) {
        return NULL;
    }
    PyObject *path = PyObject_CallMethod(module, "abspath", "O", name);
    Py_DECREF(module);
    if (path == NULL && PyErr_ExceptionMatches(PyExc_OSError)) {
        PyErr_Clear();
        return Py_NewRef(name);
    }
    return path;
}

PyObject *tgd_py_path_shown(const tgd_py_path *path)
{
    PyObject *name = PyUnicode_DecodeFSDefaultAndSize(PyBytes_AS_STRING(path->encoded),
                                                      PyBytes_GET_SIZE(path->encoded));
    PyObject *shown = name == NULL ? NULL : absolute(name);
    Py_XDECREF(name);
    PyObject *printable = shown == NULL ? NULL : PyObject_CallMethod(shown, "isprintable", NULL);
    if (printable == NULL) {
        Py_CLEAR(shown);
    } else if (printable == Py_False) {
        Py_XSETREF(shown, PyObject_Repr(shown));
    }
    Py_XDECREF(printable);
    return shown;
}
