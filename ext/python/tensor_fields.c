#include "tensor_fields.h"

#include "document.h"

static PyObject *tuple_of(const int64_t *numbers, int n)
{
    PyObject *tuple = PyTuple_New(n);
    for (int k = 0; tuple != NULL && k < n; k++) {
        PyObject *number = PyLong_FromLongLong(numbers[k]);
        if (number == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, k, number);
        }
    }
    return tuple;
}

PyObject *tgd_py_shape(const tgd_tensor_info *info)
{
    if (info->ndim < 0) {
        Py_RETURN_NONE;
    }
    return tuple_of(info->sizes, info->ndim);
}

PyObject *tgd_py_strides(const tgd_tensor_info *info)
{
    if (info->ndim < 0 || info->strides == NULL) {
        Py_RETURN_NONE;
    }
    return tuple_of(info->strides, info->ndim);
}

PyObject *tgd_py_dtype(const tgd_py_state *state, const tgd_tensor_info *info)
{
    if (info->dtype[0] == '\0') {
        Py_RETURN_NONE;
    }
    PyObject *type = PyObject_GetAttrString(state->torch, "dtype");
    if (type == NULL) {
        return NULL;
    }
    PyObject *dtype = PyObject_GetAttrString(state->torch, info->dtype);
    int is_dtype = -1;
    if (dtype != NULL) {
        is_dtype = PyObject_IsInstance(dtype, type);
    } else if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        is_dtype = 0;
    }
    Py_DECREF(type);
    if (is_dtype == 1) {
        return dtype;
    }
    Py_XDECREF(dtype);
    if (is_dtype < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *tgd_py_device(const tgd_tensor_info *info)
{
    if (info->device[0] == '\0') {
        Py_RETURN_NONE;
    }
    if (info->device_index < 0) {
        return tgd_py_str(info->device);
    }
    return PyUnicode_FromFormat("%s:%d", info->device, info->device_index);
}

/* Ends in a space unless it is empty. */
static PyObject *known(PyObject *value)
{
    PyObject *text = NULL;
    if (value != NULL) {
        text = value == Py_None ? PyUnicode_FromString("") : PyUnicode_FromFormat("%S ", value);
    }
    Py_XDECREF(value);
    return text;
}

PyObject *tgd_py_tensor_phrase(const tgd_tensor_info *info)
{
    PyObject *shape = known(tgd_py_shape(info));
    PyObject *device = known(tgd_py_device(info));
    PyObject *phrase = NULL;
    if (shape != NULL && device != NULL) {
        phrase = PyUnicode_FromFormat("%s%s%U%U", info->dtype, info->dtype[0] != '\0' ? " " : "", shape, device);
    }
    Py_XDECREF(shape);
    Py_XDECREF(device);
    return phrase;
}
