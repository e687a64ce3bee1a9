#include "returns.h"

#include <stdbool.h>
#include <string.h>

/* One instruction, as the dis module tells it. */
typedef struct step {
    PyObject *name;   /* Owned str */
    PyObject *value;  /* Owned: argval */
    long argument, offset;
} step;

static void drop(step *s)
{
    Py_CLEAR(s->name);
    Py_CLEAR(s->value);
}

static long number(PyObject *object, const char *attribute)
{
    PyObject *value = PyObject_GetAttrString(object, attribute);
    long found = value != NULL && PyLong_Check(value) ? PyLong_AsLong(value) : -1;
    Py_XDECREF(value);
    PyErr_Clear();
    return found;
}

static bool read_step(PyObject *instruction, step *out)
{
    *out = (step){.name = PyObject_GetAttrString(instruction, "opname"),
                  .value = PyObject_GetAttrString(instruction, "argval"),
                  .argument = number(instruction, "arg"),
                  .offset = number(instruction, "offset")};
    PyErr_Clear();
    return out->name != NULL && PyUnicode_Check(out->name);
}

static bool is_named(const step *s, const char *name)
{
    return s->name != NULL && PyUnicode_CompareWithASCIIString(s->name, name) == 0;
}

static long count_of(PyObject *constant)
{
    return constant != NULL && PyTuple_Check(constant) ? (long)PyTuple_GET_SIZE(constant) : 1;
}

int tgd_py_return_line(PyCodeObject *code, int n)
{
    int line = 0, any = 0;
    PyObject *dis = PyImport_ImportModule("dis");
    PyObject *all = dis == NULL ? NULL : PyObject_CallMethod(dis, "get_instructions", "O", (PyObject *)code);
    PyObject *steps = all == NULL ? NULL : PySequence_List(all);
    step before = {0};
    for (Py_ssize_t i = 0; steps != NULL && i < PyList_GET_SIZE(steps); i++) {
        step now;
        bool read = read_step(PyList_GET_ITEM(steps, i), &now);
        bool constant = read && is_named(&now, "RETURN_CONST");
        if (constant || (read && is_named(&now, "RETURN_VALUE"))) {
            long count = constant                                 ? count_of(now.value)
                         : is_named(&before, "BUILD_TUPLE")        ? before.argument
                         : is_named(&before, "LOAD_CONST")         ? count_of(before.value)
                                                                   : 1;
            int at = PyCode_Addr2Line(code, (int)now.offset);
            any = at > 0 ? at : any;
            line = at > 0 && (n < 0 || count == n) ? at : line;
        }
        drop(&before);
        before = now;
    }
    drop(&before);
    Py_XDECREF(steps);
    Py_XDECREF(all);
    Py_XDECREF(dis);
    PyErr_Clear();
    return line > 0 ? line : any;
}
