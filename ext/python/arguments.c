#include "arguments.h"

#include "living.h"
#include "observe.h"
#include "python_shim.h"
#include <limits.h>

enum { ALONE = -1 }; /* place of an argument that is not in a sequence */

int tgd_py_reserve(void **array, size_t *capacity, size_t n, size_t size)
{
    if (n < *capacity) {
        return 0;
    }
    size_t larger = *capacity < 16 ? 16 : *capacity * 2;
    void *grown = larger > SIZE_MAX / 2 / size ? NULL : PyMem_Realloc(*array, larger * size);
    if (grown == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *array = grown;
    *capacity = larger;
    return 0;
}

int tgd_py_is_instance(PyObject *object, const char *module, const char *class_name)
{
    PyObject *name = PyUnicode_FromString(module);
    if (name == NULL) {
        return -1;
    }
    PyObject *found = PyImport_GetModule(name);
    Py_DECREF(name);
    if (found == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *class = PyObject_GetAttrString(found, class_name);
    Py_DECREF(found);
    if (class == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    int is = PyObject_IsInstance(object, class);
    Py_DECREF(class);
    return is;
}

PyObject *tgd_py_iterate(PyObject *object)
{
    if (PyUnicode_Check(object) || PyBytes_Check(object) || PyByteArray_Check(object) || PyType_Check(object)) {
        return NULL;
    }
    int is_mapping = PyDict_Check(object) ? 1 : tgd_py_is_instance(object, "collections.abc", "Mapping");
    if (is_mapping != 0) {
        return NULL;
    }
    PyObject *iterator = PyObject_GetIter(object);
    if (iterator == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
    }
    return iterator;
}

/* "root: expected ..., got int" or "root[2]: ...". An exception that is set already stays. */
static int refuse(const char *argument, Py_ssize_t place, const char *wanted, PyObject *got)
{
    if (PyErr_Occurred()) {
        return -1;
    }
    if (place == ALONE) {
        PyErr_Format(PyExc_TypeError, "%s: expected %s, got %.200s", argument, wanted, Py_TYPE(got)->tp_name);
    } else {
        PyErr_Format(PyExc_TypeError, "%s[%zd]: expected %s, got %.200s", argument, place, wanted,
                     Py_TYPE(got)->tp_name);
    }
    return -1;
}

static int refuse_value(const char *argument, Py_ssize_t place, const char *what)
{
    if (place == ALONE) {
        PyErr_Format(PyExc_ValueError, "%s: %s", argument, what);
    } else {
        PyErr_Format(PyExc_ValueError, "%s[%zd]: %s", argument, place, what);
    }
    return -1;
}

/* ---- root ---- */

static int add_root(tgd_py_arguments *arguments, PyObject *object, tgd_root root)
{
    if (tgd_py_reserve((void **)&arguments->roots, &arguments->root_capacity, arguments->n_roots, sizeof root) < 0 ||
        PyList_Append(arguments->kept, object) < 0) {
        return -1;
    }
    arguments->roots[arguments->n_roots++] = root;
    return 0;
}

static int add_node(tgd_py_arguments *arguments, Py_ssize_t place, PyObject *object, const tgd_torch_node *node,
                    uint32_t output_nr)
{
    if (node == NULL) {
        return refuse_value("root", place, "this node's graph is gone");
    }
    tgd_torch_node_info info;
    tgd_torch_node_read(node, &info);
    if (output_nr > 0 && output_nr >= info.n_inputs) {
        char what[96];
        PyOS_snprintf(what, sizeof what, "output_nr is %lu and the node has %zu output%s", (unsigned long)output_nr,
                      info.n_inputs, info.n_inputs == 1 ? "" : "s");
        return refuse_value("root", place, what);
    }
    return add_root(arguments, object, (tgd_root){.node = node, .output_nr = output_nr});
}

static int add_edge(tgd_py_arguments *arguments, Py_ssize_t place, PyObject *edge)
{
    PyObject *object = PyObject_GetAttrString(edge, "node");
    PyObject *number = object == NULL ? NULL : PyObject_GetAttrString(edge, "output_nr");
    int result = -1;
    if (number == NULL) {
        goto done;
    }
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    if (tgd_torch_object(object, &tensor, &node) != TGD_OBJECT_NODE) {
        refuse("root", place, "a GradientEdge whose node is a grad_fn node", object);
        goto done;
    }
    if (!PyLong_Check(number)) {
        refuse("root", place, "a GradientEdge whose output_nr is an int", number);
        goto done;
    }
    int overflow;
    long long output_nr = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow != 0 || output_nr < 0 || output_nr > UINT32_MAX) {
        if (!PyErr_Occurred()) {
            refuse_value("root", place, "output_nr is out of range");
        }
        goto done;
    }
    result = add_node(arguments, place, object, node, (uint32_t)output_nr);
done:
    Py_XDECREF(object);
    Py_XDECREF(number);
    return result;
}

/* 1 where object was a root by itself, 0 where it is something else, -1 with an exception. */
static int add_one_root(tgd_py_arguments *arguments, Py_ssize_t place, PyObject *object)
{
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    switch (tgd_torch_object(object, &tensor, &node)) {
    case TGD_OBJECT_TENSOR:
        return add_root(arguments, object, (tgd_root){.tensor = tensor}) < 0 ? -1 : 1;
    case TGD_OBJECT_NODE:
        return add_node(arguments, place, object, node, 0) < 0 ? -1 : 1;
    case TGD_OBJECT_OTHER:
        break;
    }
    int is_edge = PyTuple_Check(object) ? tgd_py_is_instance(object, "torch.autograd.graph", "GradientEdge") : 0;
    if (is_edge != 1) {
        return is_edge;
    }
    return add_edge(arguments, place, object) < 0 ? -1 : 1;
}

static int read_roots(tgd_py_arguments *arguments, PyObject *root)
{
    int added = add_one_root(arguments, ALONE, root);
    if (added != 0) {
        return added < 0 ? -1 : 0;
    }
    PyObject *iterator = tgd_py_iterate(root);
    if (iterator == NULL) {
        return refuse("root", ALONE, "a tensor, a grad_fn node, a GradientEdge or a sequence of them", root);
    }
    PyObject *item;
    Py_ssize_t place = 0;
    for (; (item = PyIter_Next(iterator)) != NULL; place++) {
        added = add_one_root(arguments, place, item);
        if (added == 0) {
            added = refuse("root", place, "a tensor, a grad_fn node or a GradientEdge", item);
        }
        Py_DECREF(item);
        if (added < 0) {
            break;
        }
    }
    Py_DECREF(iterator);
    if (PyErr_Occurred()) {
        return -1;
    }
    return place > 0 ? 0 : refuse_value("root", ALONE, "expected at least one tensor or node, got an empty sequence");
}

/* ---- inputs ---- */

/* 1 where object was a tensor, 0 where it is something else, -1 with an exception. */
static int add_one_input(tgd_py_arguments *arguments, PyObject *object)
{
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    if (tgd_torch_object(object, &tensor, &node) != TGD_OBJECT_TENSOR) {
        return 0;
    }
    if (tgd_py_reserve((void **)&arguments->inputs, &arguments->input_capacity, arguments->n_inputs, sizeof tensor) <
            0 ||
        PyList_Append(arguments->kept, object) < 0) {
        return -1;
    }
    arguments->inputs[arguments->n_inputs++] = tensor;
    return 1;
}

static int read_inputs(tgd_py_arguments *arguments, PyObject *inputs)
{
    int added = add_one_input(arguments, inputs);
    if (added != 0) {
        return added < 0 ? -1 : 0;
    }
    PyObject *iterator = tgd_py_iterate(inputs);
    if (iterator == NULL) {
        return refuse("inputs", ALONE, "a tensor or a sequence of tensors", inputs);
    }
    PyObject *item;
    Py_ssize_t place = 0;
    for (; (item = PyIter_Next(iterator)) != NULL; place++) {
        added = add_one_input(arguments, item);
        if (added == 0) {
            added = refuse("inputs", place, "a tensor", item);
        }
        Py_DECREF(item);
        if (added < 0) {
            break;
        }
    }
    Py_DECREF(iterator);
    if (PyErr_Occurred()) {
        return -1;
    }
    return place > 0 ? 0 : refuse_value("inputs", ALONE, "expected at least one tensor; None stands for every leaf");
}

/* ---- the whole request ---- */

int tgd_py_arguments_read(tgd_py_arguments *out, PyObject *root, PyObject *params,
                          PyObject *inputs, int create_graph)
{
    *out = (tgd_py_arguments){.kept = PyList_New(0), .names = PySet_New(NULL)};
    if (out->kept == NULL || out->names == NULL || (root != NULL && read_roots(out, root) < 0) ||
        (params != Py_None && tgd_py_parameters_read(out, params) < 0) ||
        (inputs != Py_None && read_inputs(out, inputs) < 0)) {
        return -1;
    }
    /* Not NULL even where there are none of them: they were asked about. */
    static const tgd_parameter no_parameters;
    out->request = (tgd_request){
        .roots = out->roots,
        .n_roots = out->n_roots,
        .parameters = params == Py_None ? NULL : out->n_parameters > 0 ? out->parameters : &no_parameters,
        .n_parameters = out->n_parameters,
        .inputs = out->inputs,
        .n_inputs = out->n_inputs,
        .create_graph = create_graph,
        .asked = tgd_observe_now(),
    };
    out->living = tgd_py_living_new(out->kept);
    if (out->living == NULL || tgd_py_living_read(out->living, params, out->parameters, out->n_parameters) < 0) {
        return -1;
    }
    out->request.census = tgd_py_living_census(out->living);
    return 0;
}

int tgd_py_arguments_look_around(tgd_py_arguments *arguments)
{
    if (tgd_py_living_look_around(arguments->living) < 0) {
        return -1;
    }
    arguments->request.census = tgd_py_living_census(arguments->living);
    return 0;
}

void tgd_py_arguments_clear(tgd_py_arguments *arguments)
{
    PyMem_Free(arguments->roots);
    PyMem_Free(arguments->parameters);
    PyMem_Free((void *)arguments->inputs);
    tgd_py_living_free(arguments->living);
    arguments->living = NULL;
    Py_CLEAR(arguments->kept);
    Py_CLEAR(arguments->names);
}
