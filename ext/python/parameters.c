/* params=: from a module, an optimizer, a mapping or an iterable to named tensors. */
#include "arguments.h"

#include "python_shim.h"
#include <string.h>

#define WANTED "a module, an optimizer, a mapping of names to tensors, an iterable of (name, tensor) or of tensors"

/* UTF-8 with lone surrogates passed through, and U+FFFD in place of NUL, which would end the name in C. */
static PyObject *encode_name(PyObject *name)
{
    static const char replacement[] = "\xEF\xBF\xBD";
    PyObject *encoded = PyUnicode_AsEncodedString(name, "utf-8", "surrogatepass");
    if (encoded == NULL || memchr(PyBytes_AS_STRING(encoded), '\0', (size_t)PyBytes_GET_SIZE(encoded)) == NULL) {
        return encoded;
    }
    PyObject *clean = PyObject_CallMethod(encoded, "replace", "y#y", "", (Py_ssize_t)1, replacement);
    Py_DECREF(encoded);
    return clean;
}

/* Steals nothing. 0, or -1 with an exception. */
static int add(tgd_py_arguments *arguments, PyObject *name, PyObject *object, const tgd_torch_tensor *tensor)
{
    PyObject *plain = PyUnicode_FromObject(name); /* of a subclass, the text alone counts */
    if (plain == NULL) {
        return -1;
    }
    PyObject *encoded = NULL;
    int result = -1;
    int seen = PySet_Contains(arguments->names, plain);
    if (seen == 1) {
        PyErr_Format(PyExc_ValueError, "params: two tensors have the name %.200R", plain);
    }
    if (seen != 0 || PySet_Add(arguments->names, plain) < 0) {
        goto done;
    }
    encoded = encode_name(plain);
    if (encoded == NULL || PyList_Append(arguments->kept, encoded) < 0 || PyList_Append(arguments->kept, object) < 0 ||
        tgd_py_reserve((void **)&arguments->parameters, &arguments->parameter_capacity, arguments->n_parameters,
                       sizeof *arguments->parameters) < 0) {
        goto done;
    }
    arguments->parameters[arguments->n_parameters++] =
        (tgd_parameter){.name = PyBytes_AS_STRING(encoded), .tensor = tensor};
    result = 0;
done:
    Py_DECREF(plain);
    Py_XDECREF(encoded);
    return result;
}

/* The tensor behind an object, or NULL. Borrowed. */
static const tgd_torch_tensor *tensor_of(PyObject *object)
{
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    return tgd_torch_object(object, &tensor, &node) == TGD_OBJECT_TENSOR ? tensor : NULL;
}

/* One (name, tensor), from item number `place`. */
static int add_pair(tgd_py_arguments *arguments, Py_ssize_t place, PyObject *name, PyObject *object)
{
    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "params[%zd]: expected a name of type str, got %.200s", place,
                     Py_TYPE(name)->tp_name);
        return -1;
    }
    const tgd_torch_tensor *tensor = tensor_of(object);
    if (tensor == NULL) {
        PyErr_Format(PyExc_TypeError, "params: expected a tensor under the name %.200R, got %.200s", name,
                     Py_TYPE(object)->tp_name);
        return -1;
    }
    return add(arguments, name, object, tensor);
}

/* "param 3 (64x10)" */
static PyObject *made_up_name(Py_ssize_t place, const tgd_torch_tensor *tensor)
{
    tgd_torch_tensor_info info;
    tgd_torch_tensor_read(tensor, &info);
    if (info.ndim < 0) {
        return PyUnicode_FromFormat("param %zd", place);
    }
    if (info.ndim == 0) {
        return PyUnicode_FromFormat("param %zd (scalar)", place);
    }
    PyObject *name = PyUnicode_FromFormat("param %zd (", place);
    for (int k = 0; name != NULL && k < info.ndim; k++) {
        const char *after = k + 1 < info.ndim ? "x" : ")";
        PyObject *longer = info.sizes[k] < 0
                               ? PyUnicode_FromFormat("%U?%s", name, after)
                               : PyUnicode_FromFormat("%U%lld%s", name, (long long)info.sizes[k], after);
        Py_SETREF(name, longer);
    }
    return name;
}

/* One item of an iterable: a tensor or a pair. */
static int add_item(tgd_py_arguments *arguments, Py_ssize_t place, PyObject *item)
{
    const tgd_torch_tensor *tensor = tensor_of(item);
    if (tensor != NULL) {
        PyObject *name = made_up_name(place, tensor);
        int result = name == NULL ? -1 : add(arguments, name, item, tensor);
        Py_XDECREF(name);
        return result;
    }
    if ((PyTuple_Check(item) || PyList_Check(item)) && PySequence_Size(item) == 2) {
        PyObject *name = PySequence_GetItem(item, 0);
        PyObject *object = PySequence_GetItem(item, 1);
        int result = name == NULL || object == NULL ? -1 : add_pair(arguments, place, name, object);
        Py_XDECREF(name);
        Py_XDECREF(object);
        return result;
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    PyErr_Format(PyExc_TypeError, "params[%zd]: expected a tensor or a pair (name, tensor), got %.200s", place,
                 Py_TYPE(item)->tp_name);
    return -1;
}

/* Takes the iterator over, which may be NULL with an exception set. */
static int add_items(tgd_py_arguments *arguments, PyObject *iterator)
{
    if (iterator == NULL) {
        return -1;
    }
    PyObject *item;
    int result = 0;
    for (Py_ssize_t place = 0; result == 0 && (item = PyIter_Next(iterator)) != NULL; place++) {
        result = add_item(arguments, place, item);
        Py_DECREF(item);
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : result;
}

/* Iterates over what a method returned; takes it over, NULL included. */
static int add_returned(tgd_py_arguments *arguments, PyObject *returned)
{
    PyObject *iterator = returned == NULL ? NULL : PyObject_GetIter(returned);
    Py_XDECREF(returned);
    return add_items(arguments, iterator);
}

/* Tied weights under each of their names. A module may have a named_parameters() of its own without that option. */
static int add_module(tgd_py_arguments *arguments, PyObject *module)
{
    PyObject *method = PyObject_GetAttrString(module, "named_parameters");
    PyObject *nothing = PyTuple_New(0);
    PyObject *options = Py_BuildValue("{s:O}", "remove_duplicate", Py_False);
    PyObject *returned = NULL;
    if (method != NULL && nothing != NULL && options != NULL) {
        returned = PyObject_Call(method, nothing, options);
        if (returned == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            returned = PyObject_CallNoArgs(method);
        }
    }
    Py_XDECREF(method);
    Py_XDECREF(nothing);
    Py_XDECREF(options);
    return add_returned(arguments, returned);
}

static int add_group(tgd_py_arguments *arguments, Py_ssize_t group, PyObject *tensors)
{
    PyObject *iterator = PyObject_GetIter(tensors);
    if (iterator == NULL) {
        return -1;
    }
    PyObject *item;
    int result = 0;
    for (Py_ssize_t place = 0; result == 0 && (item = PyIter_Next(iterator)) != NULL; place++) {
        PyObject *name = PyUnicode_FromFormat("group %zd / param %zd", group, place);
        result = name == NULL ? -1 : add_pair(arguments, place, name, item);
        Py_XDECREF(name);
        Py_DECREF(item);
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : result;
}

static int add_optimizer(tgd_py_arguments *arguments, PyObject *optimizer)
{
    PyObject *groups = PyObject_GetAttrString(optimizer, "param_groups");
    PyObject *iterator = groups == NULL ? NULL : PyObject_GetIter(groups);
    Py_XDECREF(groups);
    if (iterator == NULL) {
        return -1;
    }
    PyObject *group, *key = PyUnicode_FromString("params");
    int result = key == NULL ? -1 : 0;
    for (Py_ssize_t g = 0; result == 0 && (group = PyIter_Next(iterator)) != NULL; g++) {
        PyObject *tensors = PyObject_GetItem(group, key);
        result = tensors == NULL ? -1 : add_group(arguments, g, tensors);
        Py_XDECREF(tensors);
        Py_DECREF(group);
    }
    Py_XDECREF(key);
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : result;
}

int tgd_py_parameters_read(tgd_py_arguments *arguments, PyObject *params)
{
    if (tensor_of(params) != NULL) {
        PyErr_Format(PyExc_TypeError, "params: expected " WANTED ", got %.200s; put a single tensor into a list",
                     Py_TYPE(params)->tp_name);
        return -1;
    }
    int is = tgd_py_is_instance(params, "torch.nn", "Module");
    if (is != 0) {
        return is < 0 ? -1 : add_module(arguments, params);
    }
    is = tgd_py_is_instance(params, "torch.optim", "Optimizer");
    if (is != 0) {
        return is < 0 ? -1 : add_optimizer(arguments, params);
    }
    is = PyDict_Check(params) ? 1 : tgd_py_is_instance(params, "collections.abc", "Mapping");
    if (is != 0) {
        return is < 0 ? -1 : add_returned(arguments, PyObject_CallMethod(params, "items", NULL));
    }
    PyObject *iterator = tgd_py_iterate(params);
    if (iterator == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError, "params: expected " WANTED ", got %.200s", Py_TYPE(params)->tp_name);
        }
        return -1;
    }
    return add_items(arguments, iterator);
}
