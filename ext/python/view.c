#include "view.h"

#include <stdbool.h>

static int read_detail(tgd_view *out, PyObject *detail)
{
    if (detail == NULL || (PyUnicode_Check(detail) && PyUnicode_CompareWithASCIIString(detail, "auto") == 0)) {
        return 0;
    }
    if (PyUnicode_Check(detail) && PyUnicode_CompareWithASCIIString(detail, "all") == 0) {
        out->boxes = SIZE_MAX;
        return 0;
    }
    if (PyUnicode_Check(detail)) {
        PyErr_Format(PyExc_ValueError, "detail is %R; \"auto\", \"all\" or a number of boxes is wanted", detail);
        return -1;
    }
    if (!PyLong_Check(detail) || PyBool_Check(detail)) {
        PyErr_Format(PyExc_TypeError, "detail is %.100s; \"auto\", \"all\" or a number of boxes is wanted",
                     Py_TYPE(detail)->tp_name);
        return -1;
    }
    int overflow;
    long boxes = PyLong_AsLongAndOverflow(detail, &overflow);
    if (overflow != 0 || boxes < 1 || boxes > TGD_VIEW_MOST) {
        PyErr_Format(PyExc_ValueError, "detail is %R; from 1 to %d boxes can be drawn", detail, TGD_VIEW_MOST);
        return -1;
    }
    out->boxes = (size_t)boxes;
    return 0;
}

static int read_focus(const tgd_py_state *state, tgd_view *out, PyObject *focus, const tgd_py_snapshot *snapshot)
{
    if (focus == NULL || focus == Py_None) {
        return 0;
    }
    if (PyUnicode_Check(focus)) {
        out->module = PyUnicode_AsUTF8(focus);
        return out->module == NULL ? -1 : 0;
    }
    bool finding = PyObject_TypeCheck(focus, state->finding_type);
    if (!finding && !PyObject_TypeCheck(focus, state->node_type)) {
        PyErr_Format(PyExc_TypeError, "focus is %.100s; a module's path, a Node or a Finding is wanted",
                     Py_TYPE(focus)->tp_name);
        return -1;
    }
    const tgd_py_row *row = (const tgd_py_row *)focus;
    if (row->snapshot != snapshot) {
        PyErr_SetString(PyExc_ValueError, finding ? "focus is a Finding of another report" : "focus is a Node of another report");
        return -1;
    }
    out->node = (tgd_node)row->node;
    if (finding) {
        tgd_finding_info info;
        tgd_report_finding(snapshot->report, row->node, &info);
        out->node = info.node;
    }
    return 0;
}

int tgd_py_view_read(const tgd_py_state *state, tgd_view *out, PyObject *detail, PyObject *focus,
                     const tgd_py_snapshot *snapshot)
{
    *out = (tgd_view){.node = TGD_NONE};
    return read_detail(out, detail) < 0 ? -1 : read_focus(state, out, focus, snapshot);
}
