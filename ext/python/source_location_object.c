#include "source_location_object.h"

#include "document.h"
#include <structmember.h>

typedef struct source_location {
    PyObject_HEAD
    PyObject *file;     /* Owned str */
    PyObject *function; /* Owned str, or None */
    int line;
} source_location;

PyObject *tgd_py_source_location_new(const tgd_py_state *state, const tgd_source_info *source)
{
    if (source->file[0] == '\0') {
        Py_RETURN_NONE;
    }
    source_location *self = PyObject_New(source_location, state->source_location_type);
    if (self == NULL) {
        return NULL;
    }
    self->line = source->line;
    self->file = tgd_py_name(source->file);
    self->function = source->function[0] == '\0' ? Py_NewRef(Py_None) : tgd_py_name(source->function);
    if (self->file == NULL || self->function == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

PyObject *tgd_py_stack_tuple(const tgd_py_state *state, tgd_py_stack stack, const tgd_report *report, size_t which)
{
    size_t n = stack(report, which, NULL, 0);
    tgd_source_info *frames = PyMem_New(tgd_source_info, n == 0 ? 1 : n);
    if (frames == NULL) {
        return PyErr_NoMemory();
    }
    stack(report, which, frames, n);
    PyObject *tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t k = 0; tuple != NULL && k < n; k++) {
        PyObject *location = tgd_py_source_location_new(state, &frames[k]);
        if (location == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)k, location);
        }
    }
    PyMem_Free(frames);
    return tuple;
}

static void source_location_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((source_location *)object)->file);
    Py_XDECREF(((source_location *)object)->function);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *source_location_str(PyObject *object)
{
    const source_location *self = (const source_location *)object;
    Py_ssize_t n = PyUnicode_GET_LENGTH(self->file);
    Py_ssize_t slash = PyUnicode_FindChar(self->file, '/', 0, n, -1);
    PyObject *name = slash == -2 ? NULL : PyUnicode_Substring(self->file, slash + 1, n);
    PyObject *text = name == NULL ? NULL : PyUnicode_FromFormat("%U:%d", name, self->line);
    Py_XDECREF(name);
    return text;
}

static PyObject *source_location_repr(PyObject *object)
{
    const source_location *self = (const source_location *)object;
    return self->function == Py_None
               ? PyUnicode_FromFormat("<torchgraphdbg.SourceLocation %U:%d>", self->file, self->line)
               : PyUnicode_FromFormat("<torchgraphdbg.SourceLocation %U:%d in %U>", self->file, self->line,
                                      self->function);
}

static PyObject *source_location_compare(PyObject *object, PyObject *other, int op)
{
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(object) != Py_TYPE(other)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    const source_location *a = (const source_location *)object, *b = (const source_location *)other;
    int equal = a->line == b->line ? PyObject_RichCompareBool(a->file, b->file, Py_EQ) : 0;
    equal = equal == 1 ? PyObject_RichCompareBool(a->function, b->function, Py_EQ) : equal;
    return equal < 0 ? NULL : PyBool_FromLong(equal == (op == Py_EQ));
}

static Py_hash_t source_location_hash(PyObject *object)
{
    const source_location *self = (const source_location *)object;
    Py_hash_t file = PyObject_Hash(self->file);
    if (file == -1) {
        return -1;
    }
    Py_hash_t hash = (Py_hash_t)((size_t)file * 31 + (size_t)self->line);
    return hash == -1 ? -2 : hash;
}

static PyMemberDef source_location_members[] = {
    {"file", T_OBJECT_EX, offsetof(source_location, file), READONLY, "The whole path, or \"Cell In[3]\"."},
    {"line", T_INT, offsetof(source_location, line), READONLY, "Counted from 1."},
    {"function", T_OBJECT_EX, offsetof(source_location, function), READONLY, "The function's name, or None."},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(source_location_doc, "A line of the program: file, line, function. str() is \"net.py:31\".");

static PyType_Slot source_location_slots[] = {
    {Py_tp_doc, (void *)source_location_doc},
    {Py_tp_dealloc, (void *)source_location_dealloc},
    {Py_tp_str, (void *)source_location_str},
    {Py_tp_repr, (void *)source_location_repr},
    {Py_tp_richcompare, (void *)source_location_compare},
    {Py_tp_hash, (void *)source_location_hash},
    {Py_tp_members, source_location_members},
    {0, NULL},
};

PyType_Spec tgd_py_source_location_spec = {
    .name = "torchgraphdbg.SourceLocation",
    .basicsize = sizeof(source_location),
    .flags = TGD_PY_TYPE_FLAGS & ~Py_TPFLAGS_HAVE_GC, /* holds text alone */
    .slots = source_location_slots,
};
