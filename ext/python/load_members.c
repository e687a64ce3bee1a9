#include "load_members.h"

#include "document.h"
#include "raise.h"
#include <string.h>

/* "nodes[3].saved[1].dtype" */
static PyObject *place_of(const tgd_py_document_reader *reader, const char *key)
{
    const char *dot = key == NULL || reader->list == NULL ? "" : ".";
    key = key == NULL ? "" : key;
    if (reader->list == NULL) {
        return PyUnicode_FromString(key);
    }
    if (reader->inner == NULL) {
        return PyUnicode_FromFormat("%s[%zd]%s%s", reader->list, reader->index, dot, key);
    }
    return PyUnicode_FromFormat("%s[%zd].%s[%zd]%s%s", reader->list, reader->index, reader->inner, reader->inner_index,
                                dot, key);
}

/* What came, in few words. A new reference. */
static PyObject *short_repr(PyObject *object)
{
    if (PyList_Check(object)) {
        return PyUnicode_FromString("a list");
    }
    if (PyDict_Check(object)) {
        return PyUnicode_FromString("an object");
    }
    if (object == Py_None) {
        return PyUnicode_FromString("null");
    }
    PyObject *repr = PyObject_Repr(object);
    if (repr == NULL && PyErr_ExceptionMatches(PyExc_ValueError)) { /* thousands of digits */
        PyErr_Clear();
        return PyUnicode_FromString("a very large number");
    }
    if (repr != NULL && PyUnicode_GET_LENGTH(repr) > 60) {
        Py_SETREF(repr, PyUnicode_FromFormat("%.60U...", repr));
    }
    return repr;
}

int tgd_py_wrong(const tgd_py_document_reader *reader, const char *key, const char *expected, PyObject *got)
{
    PyObject *place = place_of(reader, key);
    PyObject *came = got == NULL ? PyUnicode_FromString("nothing") : short_repr(got);
    if (place != NULL && came != NULL) {
        PyErr_Format(PyExc_ValueError, "%R: %U%sexpected %s, got %U", reader->file, place,
                     PyUnicode_GET_LENGTH(place) > 0 ? ": " : "", expected, came);
    }
    Py_XDECREF(place);
    Py_XDECREF(came);
    return -1;
}

int tgd_py_refused(const tgd_py_document_reader *reader, tgd_status status, const tgd_error *err)
{
    if (status != TGD_EINVAL) {
        tgd_py_raise(reader->state, status, err, NULL);
        return -1;
    }
    PyObject *place = place_of(reader, NULL), *reason = tgd_py_str(err->message);
    if (place != NULL && reason != NULL) {
        PyErr_Format(PyExc_ValueError, "%R: %U%s%U", reader->file, place, reader->list == NULL ? "" : ".", reason);
    }
    Py_XDECREF(place);
    Py_XDECREF(reason);
    return -1;
}

PyObject *tgd_py_member(const tgd_py_document_reader *reader, PyObject *object, const char *key)
{
    if (!PyDict_Check(object)) {
        tgd_py_wrong(reader, NULL, "an object", object);
        return NULL;
    }
    PyObject *name = PyUnicode_FromString(key);
    PyObject *value = name == NULL ? NULL : PyDict_GetItemWithError(object, name);
    Py_XDECREF(name);
    if (value == NULL && !PyErr_Occurred()) {
        PyObject *place = place_of(reader, key);
        if (place != NULL) {
            PyErr_Format(PyExc_ValueError, "%R: %U is missing", reader->file, place);
            Py_DECREF(place);
        }
    }
    return value;
}

int tgd_py_member_list(const tgd_py_document_reader *reader, PyObject *object, const char *key, PyObject **out)
{
    *out = tgd_py_member(reader, object, key);
    return *out == NULL ? -1 : PyList_Check(*out) ? 0 : tgd_py_wrong(reader, key, "a list", *out);
}

int tgd_py_member_object(const tgd_py_document_reader *reader, PyObject *object, const char *key, bool nullable,
                         PyObject **out)
{
    PyObject *value = tgd_py_member(reader, object, key);
    if (value == NULL) {
        return -1;
    }
    *out = value == Py_None && nullable ? NULL : value;
    return *out == NULL || PyDict_Check(value) ? 0
                                               : tgd_py_wrong(reader, key, nullable ? "an object or null" : "an object",
                                                              value);
}

int tgd_py_member_text(const tgd_py_document_reader *reader, PyObject *object, const char *key, bool nullable,
                       const char **out)
{
    PyObject *value = tgd_py_member(reader, object, key);
    Py_ssize_t n;
    if (value == NULL) {
        return -1;
    }
    *out = NULL;
    if (value == Py_None && nullable) {
        return 0;
    }
    if (!PyUnicode_Check(value)) {
        return tgd_py_wrong(reader, key, nullable ? "a string or null" : "a string", value);
    }
    *out = PyUnicode_AsUTF8AndSize(value, &n);
    if (*out == NULL && !PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        return -1;
    }
    if (*out == NULL || strlen(*out) != (size_t)n) {
        PyErr_Clear();
        return tgd_py_wrong(reader, key, "a string without NUL characters and lone surrogates", value);
    }
    return 0;
}

int tgd_py_member_flag(const tgd_py_document_reader *reader, PyObject *object, const char *key, bool *out)
{
    PyObject *value = tgd_py_member(reader, object, key);
    if (value == NULL) {
        return -1;
    }
    *out = value == Py_True;
    return PyBool_Check(value) ? 0 : tgd_py_wrong(reader, key, "true or false", value);
}

int tgd_py_item_number(const tgd_py_document_reader *reader, PyObject *item, const char *key, uint64_t most,
                       uint64_t *out)
{
    if (PyLong_CheckExact(item)) {
        *out = PyLong_AsUnsignedLongLong(item);
        if (!(*out == (uint64_t)-1 && PyErr_Occurred()) && *out <= most) {
            return 0;
        }
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError)) {
            return -1;
        }
        PyErr_Clear();
    }
    char expected[64];
    PyOS_snprintf(expected, sizeof expected, "a whole number from 0 to %llu", (unsigned long long)most);
    return tgd_py_wrong(reader, key, expected, item);
}

int tgd_py_member_number(const tgd_py_document_reader *reader, PyObject *object, const char *key, uint64_t most,
                         uint64_t *out)
{
    PyObject *value = tgd_py_member(reader, object, key);
    return value == NULL ? -1 : tgd_py_item_number(reader, value, key, most, out);
}

int tgd_py_member_number_or(const tgd_py_document_reader *reader, PyObject *object, const char *key, uint64_t most,
                            uint64_t absent, uint64_t *out)
{
    PyObject *value = tgd_py_member(reader, object, key);
    if (value == Py_None) {
        *out = absent;
        return 0;
    }
    return value == NULL ? -1 : tgd_py_item_number(reader, value, key, most, out);
}

int tgd_py_member_index(const tgd_py_document_reader *reader, PyObject *object, const char *key, uint32_t *out)
{
    uint64_t index;
    if (tgd_py_member_number_or(reader, object, key, TGD_NONE - 1, TGD_NONE, &index) < 0) {
        return -1;
    }
    *out = (uint32_t)index;
    return 0;
}

int tgd_py_member_identity(const tgd_py_document_reader *reader, PyObject *object, const char *key, uint64_t *out)
{
    PyObject *value = tgd_py_member(reader, object, key);
    if (value == NULL || value == Py_None) {
        *out = 0;
        return value == NULL ? -1 : 0;
    }
    if (!PyUnicode_Check(value)) {
        return tgd_py_item_number(reader, value, key, UINT64_MAX, out);
    }
    PyObject *number = PyUnicode_GET_LENGTH(value) <= 20 ? PyLong_FromUnicodeObject(value, 10) : NULL;
    if (number == NULL) {
        PyErr_Clear();
        return tgd_py_wrong(reader, key, "a whole number or a string of its digits", value);
    }
    int result = tgd_py_item_number(reader, number, key, UINT64_MAX, out);
    Py_DECREF(number);
    return result;
}

int tgd_py_member_word(const tgd_py_document_reader *reader, PyObject *object, const char *key,
                       const char *(*word)(int place), int n, int *out)
{
    const char *text;
    if (tgd_py_member_text(reader, object, key, false, &text) < 0) {
        return -1;
    }
    for (int i = 0; i < n; i++) {
        if (strcmp(word(i), text) == 0) {
            *out = i;
            return 0;
        }
    }
    return tgd_py_wrong(reader, key, "a word that this version knows", tgd_py_member(reader, object, key));
}

int tgd_py_source_members(const tgd_py_document_reader *reader, PyObject *object, tgd_restored_source *out)
{
    uint64_t line;
    if (tgd_py_member_text(reader, object, "file", false, &out->file) < 0 ||
        tgd_py_member_number_or(reader, object, "line", INT_MAX, 0, &line) < 0 ||
        tgd_py_member_text(reader, object, "function", true, &out->function) < 0 ||
        tgd_py_member_text(reader, object, "module", true, &out->module) < 0 ||
        tgd_py_member_text(reader, object, "module_class", true, &out->module_class) < 0 ||
        tgd_py_member_index(reader, object, "caller", &out->caller) < 0) {
        return -1;
    }
    out->line = (int)line;
    out->function = out->function == NULL ? "" : out->function;
    out->module = out->module == NULL ? "" : out->module;
    out->module_class = out->module_class == NULL ? "" : out->module_class;
    return 0;
}

int tgd_py_member_source(const tgd_py_document_reader *reader, PyObject *object, const char *key,
                         tgd_restored_source *room, const tgd_restored_source **out)
{
    PyObject *value;
    *out = NULL;
    if (tgd_py_member_object(reader, object, key, true, &value) < 0) {
        return -1;
    }
    *out = value == NULL ? NULL : room;
    return value == NULL ? 0 : tgd_py_source_members(reader, value, room);
}

/* A list of numbers, or null: then n is -1. */
static int numbers(const tgd_py_document_reader *reader, PyObject *object, const char *key, int64_t **room, int *n)
{
    PyObject *value = tgd_py_member(reader, object, key);
    if (value == NULL) {
        return -1;
    }
    *n = -1;
    if (value == Py_None) {
        return 0;
    }
    if (!PyList_Check(value) || PyList_GET_SIZE(value) > INT16_MAX) {
        return tgd_py_wrong(reader, key, "a short list of numbers, or null", value);
    }
    int64_t *grown = PyMem_Realloc(*room, ((size_t)PyList_GET_SIZE(value) + 1) * sizeof *grown);
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *room = grown;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); i++) {
        PyObject *item = PyList_GET_ITEM(value, i);
        grown[i] = PyLong_CheckExact(item) ? PyLong_AsLongLong(item) : -1;
        if (!PyLong_CheckExact(item) || PyErr_Occurred()) {
            PyErr_Clear();
            return tgd_py_wrong(reader, key, "whole numbers of 64 bits", item);
        }
    }
    *n = (int)PyList_GET_SIZE(value);
    return 0;
}

int tgd_py_tensor_members(tgd_py_document_reader *reader, PyObject *object, bool full, tgd_restored_tensor *out)
{
    *out = (tgd_restored_tensor){.n_strides = -1};
    if (numbers(reader, object, "shape", &reader->sizes, &out->n_sizes) < 0) {
        return -1;
    }
    out->sizes = reader->sizes;
    if (!full) {
        return 0;
    }
    return tgd_py_member_text(reader, object, "dtype", true, &out->dtype) < 0 ||
                   tgd_py_member_text(reader, object, "device", true, &out->device) < 0 ||
                   tgd_py_member_text(reader, object, "layout", true, &out->layout) < 0
               ? -1
               : 0;
}

int tgd_py_strides_member(tgd_py_document_reader *reader, PyObject *object, tgd_restored_tensor *out)
{
    int result = numbers(reader, object, "strides", &reader->strides, &out->n_strides);
    out->strides = reader->strides;
    return result;
}
