#include "note.h"

#include "document.h"

enum { MOST_UNUSED = 8 };

PyObject *tgd_py_note_of_finding(const tgd_report *report, size_t finding)
{
    PyObject *message = tgd_py_words_str(tgd_report_finding_message, report, finding);
    PyObject *hint = tgd_py_words_str(tgd_report_finding_hint, report, finding);
    PyObject *note = NULL;
    if (message != NULL && hint != NULL) {
        note = PyUnicode_FromFormat("torchgraphdbg: %U%s%U", message, PyUnicode_GET_LENGTH(hint) > 0 ? "\n  " : "",
                                    hint);
    }
    Py_XDECREF(message);
    Py_XDECREF(hint);
    return note;
}

/* Adds a line. Takes over and returns the note; NULL with an exception. */
static PyObject *append(PyObject *note, PyObject *line)
{
    PyObject *longer = note == NULL || line == NULL ? NULL : PyUnicode_FromFormat("%U\n  %U", note, line);
    Py_XDECREF(note);
    Py_XDECREF(line);
    return longer;
}

PyObject *tgd_py_note_of_unused(const tgd_report *report)
{
    size_t n = 0, n_findings = tgd_report_n_findings(report);
    PyObject *note = PyUnicode_FromString("torchgraphdbg: the backward before did not reach every parameter, and "
                                          "DistributedDataParallel waits for all of them:");
    for (size_t i = 0; i < n_findings && note != NULL; i++) {
        tgd_finding_info finding;
        tgd_report_finding(report, i, &finding);
        if (finding.kind == TGD_UNREACHED_PARAMETER && n++ < MOST_UNUSED) {
            note = append(note, tgd_py_words_str(tgd_report_finding_message, report, i));
        }
    }
    if (n > MOST_UNUSED) {
        note = append(note, PyUnicode_FromFormat("and %zu more", n - MOST_UNUSED));
    }
    if (n == 0) {
        Py_CLEAR(note);
    }
    return note;
}

/* 1 where it bears this note already, from a recorder within this one. */
static int has_note(PyObject *exception, PyObject *note)
{
    PyObject *notes = PyObject_GetAttrString(exception, "__notes__");
    int has = notes == NULL ? 0 : PySequence_Contains(notes, note);
    Py_XDECREF(notes);
    PyErr_Clear();
    return has == 1;
}

/* As BaseException.add_note(). */
static void keep_note(PyObject *exception, PyObject *note)
{
    PyObject *notes = PyObject_GetAttrString(exception, "__notes__");
    if (notes == NULL) {
        PyErr_Clear();
        notes = PyList_New(0);
        if (notes == NULL || PyObject_SetAttrString(exception, "__notes__", notes) < 0) {
            Py_CLEAR(notes); /* an exception without a __dict__ */
        }
    }
    if (notes != NULL && PyList_Check(notes)) {
        PyList_Append(notes, note);
    }
    Py_XDECREF(notes);
    PyErr_Clear();
    PySys_FormatStderr("%U\n", note);
}

void tgd_py_note_add(PyObject *exception, PyObject *note)
{
    if (!has_note(exception, note)) {
        if (PyObject_HasAttrString(exception, "add_note")) {
            Py_XDECREF(PyObject_CallMethod(exception, "add_note", "O", note));
        } else {
            keep_note(exception, note);
        }
    }
    PyErr_Clear();
}

void tgd_py_complain(bool *complained, const char *what)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (type != NULL && PyErr_GivenExceptionMatches(type, PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt(); /* it was meant for the program: let it come again */
    } else if (!*complained) {
        *complained = true;
        if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "torchgraphdbg could not %s: %S", what,
                             value == NULL ? Py_None : value) < 0) {
            PyErr_Clear(); /* warnings are errors here, and this one must not stop the program */
        }
    }
    PyErr_Clear();
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}
