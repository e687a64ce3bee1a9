#include "watch_places.h"

#include "python_shim.h"

/* Steals nothing. */
static int add(tgd_py_places *places, PyObject *container, PyObject *key, Py_ssize_t index)
{
    if (tgd_py_reserve((void **)&places->rows, &places->capacity, places->n, sizeof *places->rows) < 0) {
        return -1;
    }
    places->rows[places->n++] =
        (tgd_py_place){.container = Py_XNewRef(container), .key = Py_XNewRef(key), .index = index};
    return 0;
}

static int add_dict(tgd_py_places *places, PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &key, &value)) {
        if (value != Py_None && add(places, dict, key, 0) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Every module's own parameters; a module without a dict of them (a ScriptModule) by the parameters themselves. */
static int add_module(tgd_py_places *places, PyObject *root)
{
    PyObject *modules = PyObject_CallMethod(root, "modules", NULL);
    PyObject *iterator = modules == NULL ? NULL : PyObject_GetIter(modules), *module;
    Py_XDECREF(modules);
    int result = iterator == NULL ? -1 : 0;
    while (result == 0 && (module = PyIter_Next(iterator)) != NULL) {
        PyObject *own = PyObject_GetAttrString(module, "_parameters");
        if (own == NULL) {
            PyErr_Clear();
        } else if (PyDict_Check(own)) {
            result = add_dict(places, own);
        }
        Py_XDECREF(own);
        Py_DECREF(module);
    }
    Py_XDECREF(iterator);
    return PyErr_Occurred() ? -1 : result;
}

static int add_optimizer(tgd_py_places *places, PyObject *optimizer)
{
    PyObject *groups = PyObject_GetAttrString(optimizer, "param_groups");
    int result = groups == NULL || !PyList_Check(groups) ? -1 : 0;
    for (Py_ssize_t g = 0; result == 0 && g < PyList_GET_SIZE(groups); g++) {
        PyObject *group = PyList_GET_ITEM(groups, g);
        PyObject *tensors = PyDict_Check(group) ? PyDict_GetItemString(group, "params") : NULL;
        for (Py_ssize_t i = 0; result == 0 && tensors != NULL && PyList_Check(tensors) && i < PyList_GET_SIZE(tensors);
             i++) {
            result = add(places, tensors, NULL, i);
        }
    }
    Py_XDECREF(groups);
    if (result < 0 && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "params: this optimizer has no list of param_groups");
    }
    return result;
}

static int add_given(tgd_py_places *places, PyObject *params)
{
    tgd_py_arguments arguments;
    int result = tgd_py_arguments_read(&arguments, NULL, params, Py_None, 0);
    for (Py_ssize_t i = 0; result == 0 && i < PyList_GET_SIZE(arguments.kept); i++) {
        PyObject *item = PyList_GET_ITEM(arguments.kept, i);
        const tgd_torch_tensor *tensor;
        const tgd_torch_node *node;
        if (tgd_torch_object(item, &tensor, &node) == TGD_OBJECT_TENSOR) {
            result = add(places, NULL, item, 0);
        }
    }
    tgd_py_arguments_clear(&arguments);
    return result;
}

int tgd_py_places_find(tgd_py_places *places, PyObject *params)
{
    tgd_py_places found = {0};
    int is = params == Py_None ? 0 : tgd_py_is_instance(params, "torch.nn", "Module");
    int result = is < 0 ? -1 : 0;
    if (is == 1) {
        result = add_module(&found, params);
    } else if (result == 0 && params != Py_None) {
        is = tgd_py_is_instance(params, "torch.optim", "Optimizer");
        result = is < 0 ? -1 : is == 1 ? add_optimizer(&found, params) : add_given(&found, params);
    }
    if (result < 0) {
        tgd_py_places_clear(&found);
        return -1;
    }
    tgd_py_places before = *places;
    *places = found;
    tgd_py_places_clear(&before);
    return 0;
}

void tgd_py_places_clear(tgd_py_places *places)
{
    tgd_py_places gone = *places;
    *places = (tgd_py_places){0};
    for (size_t i = 0; i < gone.n; i++) {
        Py_XDECREF(gone.rows[i].container);
        Py_XDECREF(gone.rows[i].key);
    }
    PyMem_Free(gone.rows);
}

int tgd_py_places_traverse(const tgd_py_places *places, visitproc visit, void *arg)
{
    for (size_t i = 0; i < places->n; i++) {
        Py_VISIT(places->rows[i].container);
        Py_VISIT(places->rows[i].key);
    }
    return 0;
}

PyObject *tgd_py_place_object(const tgd_py_place *place)
{
    PyObject *object = place->key;
    if (place->container != NULL && place->key != NULL) {
        object = PyDict_GetItem(place->container, place->key); /* keys are str: nothing runs */
    } else if (place->container != NULL) {
        object = place->index < PyList_GET_SIZE(place->container) ? PyList_GET_ITEM(place->container, place->index)
                                                                  : NULL;
    }
    return object;
}

const tgd_torch_tensor *tgd_py_place_tensor(const tgd_py_place *place)
{
    PyObject *object = tgd_py_place_object(place);
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    return object != NULL && tgd_torch_object(object, &tensor, &node) == TGD_OBJECT_TENSOR ? tensor : NULL;
}
