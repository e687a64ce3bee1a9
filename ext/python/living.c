#include "living_parts.h"

#include "arguments.h"
#include "leaf_gradient.h"
#include "python_shim.h"

enum { MOST_LEVELS = 32, MOST_ITEMS = 256 /* of one container of tensors */ };

tgd_py_living *tgd_py_living_new(PyObject *kept)
{
    tgd_py_living *living = PyMem_Calloc(1, sizeof *living);
    if (living == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    living->kept = Py_NewRef(kept);
    return living;
}

void tgd_py_living_free(tgd_py_living *living)
{
    if (living == NULL) {
        return;
    }
    PyMem_Free(living->gradients);
    PyMem_Free(living->held);
    PyMem_Free(living->roots);
    PyMem_Free(living->members);
    PyMem_Free(living->optimizers);
    PyMem_Free(living->cycles);
    tgd_torch_holder_free(living->nodes);
    Py_XDECREF(living->kept);
    Py_XDECREF(living->seen);
    PyMem_Free(living);
}

const tgd_census *tgd_py_living_census(tgd_py_living *living)
{
    tgd_census *census = &living->census;
    census->gradients = living->gradients;
    census->held = living->held;
    census->kept = living->roots;
    census->members = living->members;
    census->optimizers = living->optimizers;
    census->cycles = living->cycles;
    return census;
}

const tgd_torch_tensor *tgd_py_tensor_of(PyObject *object)
{
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    return tgd_torch_object(object, &tensor, &node) == TGD_OBJECT_TENSOR ? tensor : NULL;
}

const tgd_torch_node *tgd_py_node_of(PyObject *object)
{
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    return tgd_torch_object(object, &tensor, &node) == TGD_OBJECT_NODE ? node : NULL;
}

const tgd_torch_node *tgd_py_grad_fn_of(PyObject *object)
{
    const tgd_torch_tensor *tensor = tgd_py_tensor_of(object);
    tgd_torch_tensor_info info = {.grad_fn = NULL};
    if (tensor != NULL) {
        tgd_torch_tensor_read(tensor, &info);
    }
    return info.grad_fn;
}

static int add_gradient(tgd_py_living *living, const tgd_torch_tensor *leaf)
{
    tgd_torch_gradient gradient;
    tgd_torch_tensor_info info;
    tgd_census *census = &living->census;
    (void)tgd_torch_gradient_read(leaf, &gradient);
    tgd_torch_tensor_read(leaf, &info);
    if (tgd_py_reserve((void **)&living->gradients, &living->gradient_capacity, census->n_gradients,
                       sizeof *living->gradients) < 0) {
        return -1;
    }
    living->gradients[census->n_gradients++] =
        (tgd_gradient_row){.leaf = leaf, .leaf_storage = info.storage, .storage = gradient.storage,
                           .thread = gradient.thread, .sequence_nr = gradient.sequence_nr,
                           .has_graph = gradient.has_graph != 0};
    return 0;
}

/* ---- what a module keeps ---- */

PyObject *tgd_py_own_dict(PyObject *object)
{
    PyObject *dict = PyObject_GenericGetDict(object, NULL);
    if (dict != NULL && !PyDict_Check(dict)) {
        Py_CLEAR(dict);
    }
    PyErr_Clear();
    return dict;
}

/* Takes the name over, which may be NULL with an exception. */
static int add_held(tgd_py_living *living, PyObject *name, const tgd_torch_node *grad_fn)
{
    PyObject *encoded = name == NULL ? NULL : PyUnicode_AsEncodedString(name, "utf-8", "replace");
    Py_XDECREF(name);
    int failed = encoded == NULL || PyList_Append(living->kept, encoded) < 0 ||
                 tgd_py_reserve((void **)&living->held, &living->held_capacity, living->census.n_held,
                                sizeof *living->held) < 0;
    if (!failed) {
        tgd_torch_node_info node;
        tgd_torch_node_read(grad_fn, &node);
        living->held[living->census.n_held++] = (tgd_held_row){
            .name = PyBytes_AS_STRING(encoded), .thread = node.thread_id, .sequence_nr = node.sequence_nr};
    }
    Py_XDECREF(encoded);
    return failed ? -1 : 0;
}

static PyObject *below(PyObject *path, PyObject *key)
{
    return PyUnicode_GET_LENGTH(path) == 0 ? PyUnicode_FromFormat("%U", key) : PyUnicode_FromFormat("%U.%U", path, key);
}

/* A tensor with a graph, or a plain list, tuple or dict of such. */
static int read_value(tgd_py_living *living, PyObject *path, PyObject *key, PyObject *value)
{
    if (tgd_py_tensor_of(value) != NULL) {
        const tgd_torch_node *grad_fn = tgd_py_grad_fn_of(value);
        return grad_fn != NULL ? add_held(living, below(path, key), grad_fn) : 0;
    }
    if (!PyList_CheckExact(value) && !PyTuple_CheckExact(value)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value) && i < MOST_ITEMS; i++) {
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(value, i));
        const tgd_torch_node *grad_fn = tgd_py_grad_fn_of(item);
        int failed = 0;
        if (grad_fn != NULL) {
            PyObject *name = below(path, key);
            Py_XSETREF(name, name == NULL ? NULL : PyUnicode_FromFormat("%U[%zd]", name, i));
            failed = add_held(living, name, grad_fn);
        }
        Py_DECREF(item);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

static int read_module(tgd_py_living *living, PyObject *module, PyObject *path, int levels);

/* One entry of a module's dict, or of its _buffers or _modules. */
static int read_entry(tgd_py_living *living, PyObject *path, PyObject *key, PyObject *value, bool modules, int levels)
{
    if (!modules) {
        return read_value(living, path, key, value);
    }
    PyObject *name = value == Py_None ? NULL : below(path, key);
    int failed = name != NULL ? read_module(living, value, name, levels - 1) : value == Py_None ? 0 : -1;
    Py_XDECREF(name);
    return failed;
}

static int read_dict(tgd_py_living *living, PyObject *path, PyObject *dict, bool modules, int levels)
{
    PyObject *items = PyDict_Check(dict) ? PyDict_Items(dict) : NULL; /* a copy: others may change the dict meanwhile */
    int failed = items == NULL && PyErr_Occurred() ? -1 : 0;
    for (Py_ssize_t i = 0; items != NULL && i < PyList_GET_SIZE(items) && failed == 0; i++) {
        PyObject *key = PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 0);
        if (PyUnicode_Check(key)) {
            failed = read_entry(living, path, key, PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 1), modules, levels);
        }
    }
    Py_XDECREF(items);
    return failed;
}

static int read_module(tgd_py_living *living, PyObject *module, PyObject *path, int levels)
{
    PyObject *address = PyLong_FromVoidPtr(module);
    int known = address == NULL ? -1 : PySet_Contains(living->seen, address);
    int failed = known < 0 || (known == 0 && PySet_Add(living->seen, address) < 0) ? -1 : 0;
    Py_XDECREF(address);
    PyObject *dict = known == 0 && failed == 0 && levels > 0 ? tgd_py_own_dict(module) : NULL;
    if (dict != NULL) {
        PyObject *buffers = PyDict_GetItemString(dict, "_buffers"), *modules = PyDict_GetItemString(dict, "_modules");
        Py_XINCREF(buffers);
        Py_XINCREF(modules);
        failed = read_dict(living, path, dict, false, levels);
        if (failed == 0 && buffers != NULL) {
            failed = read_dict(living, path, buffers, false, levels);
        }
        if (failed == 0 && modules != NULL) {
            failed = read_dict(living, path, modules, true, levels);
        }
        Py_XDECREF(buffers);
        Py_XDECREF(modules);
    }
    Py_XDECREF(dict);
    return failed;
}

int tgd_py_living_read(tgd_py_living *living, PyObject *given, const tgd_parameter *parameters, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (add_gradient(living, parameters[i].tensor) < 0) {
            return -1;
        }
    }
    int is_module = given == Py_None ? 0 : tgd_py_is_instance(given, "torch.nn", "Module");
    if (is_module <= 0) {
        return is_module;
    }
    PyObject *path = PyUnicode_FromString("");
    living->seen = PySet_New(NULL);
    int failed = path == NULL || living->seen == NULL ? -1 : read_module(living, given, path, MOST_LEVELS);
    Py_XDECREF(path);
    return failed;
}

/* ---- the process ---- */

/* The class that a module which was imported has under this name: a new reference, or NULL without an exception. */
static PyTypeObject *class_in(const char *module_name, const char *name)
{
    PyObject *key = PyUnicode_FromString(module_name);
    PyObject *module = key == NULL ? NULL : PyImport_GetModule(key);
    PyObject *found = module == NULL ? NULL : PyObject_GetAttrString(module, name);
    Py_XDECREF(key);
    Py_XDECREF(module);
    if (found != NULL && !PyType_Check(found)) {
        Py_CLEAR(found);
    }
    PyErr_Clear();
    return (PyTypeObject *)found;
}

static int add_tensor(tgd_py_living *living, PyObject *object, const tgd_torch_tensor *tensor)
{
    uint32_t output_nr = 0;
    const tgd_torch_node *node = tgd_torch_hold_grad_fn(living->nodes, tensor, &output_nr);
    if (node == NULL) {
        tgd_torch_gradient gradient;
        bool told = !tgd_torch_gradient_read(tensor, &gradient) || !gradient.has_graph;
        for (size_t i = 0; i < living->census.n_gradients && !told; i++) {
            told = living->gradients[i].leaf == tensor;
        }
        return told ? 0 : PyList_Append(living->kept, object) < 0 ? -1 : add_gradient(living, tensor);
    }
    if (PyList_Append(living->kept, object) < 0 ||
        tgd_py_reserve((void **)&living->roots, &living->root_capacity, living->census.n_kept,
                       sizeof *living->roots) < 0) {
        return -1;
    }
    living->roots[living->census.n_kept++] = (tgd_root){.node = node, .output_nr = output_nr};
    return 0;
}

/* Every object that the collector knows: that is every tensor, optimizer and scheduler. */
static PyObject *all_objects(void)
{
    PyObject *collector = PyImport_ImportModule("gc");
    PyObject *objects = collector == NULL ? NULL : PyObject_CallMethod(collector, "get_objects", NULL);
    Py_XDECREF(collector);
    return objects;
}

typedef enum kind { KIND_OTHER = 0, KIND_TENSOR, KIND_OPTIMIZER, KIND_SCHEDULER, KIND_FUNCTION } kind;

/* What the instances of the types met most recently are: there are few types, and many objects. */
typedef struct known_types {
    PyTypeObject *optimizer, *scheduler; /* Owned, or NULL */
    struct {
        const PyTypeObject *type; /* alive, for an object of it is */
        kind kind;
    } slots[256];
} known_types;

static kind kind_of(known_types *known, PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    size_t i = ((uintptr_t)type >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 56;
    if (known->slots[i].type != type) {
        known->slots[i].type = type;
        known->slots[i].kind =
            tgd_py_tensor_of(object) != NULL                                                      ? KIND_TENSOR
            : known->optimizer != NULL && PyType_IsSubtype(type, known->optimizer) ? KIND_OPTIMIZER
            : known->scheduler != NULL && PyType_IsSubtype(type, known->scheduler) ? KIND_SCHEDULER
            : tgd_py_node_of(object) != NULL                                              ? KIND_FUNCTION
                                                                                           : KIND_OTHER;
    }
    return known->slots[i].kind;
}

int tgd_py_living_look_around(tgd_py_living *living)
{
    PyObject *objects = all_objects();
    known_types known = {.optimizer = class_in("torch.optim", "Optimizer"),
                         .scheduler = class_in("torch.optim.lr_scheduler", "LRScheduler")};
    PyObject *optimizers = PyList_New(0), *schedulers = PyList_New(0);
    int failed = objects == NULL || optimizers == NULL || schedulers == NULL;
    living->nodes = tgd_torch_holder_new();
    if (living->nodes == NULL && !failed) {
        PyErr_NoMemory();
        failed = 1;
    }
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(objects); i++) {
        PyObject *object = PyList_GET_ITEM(objects, i);
        switch (kind_of(&known, object)) {
        case KIND_TENSOR:
            failed = add_tensor(living, object, tgd_py_tensor_of(object)) < 0;
            break;
        case KIND_OPTIMIZER:
            failed = PyList_Append(optimizers, object) < 0;
            break;
        case KIND_SCHEDULER:
            failed = PyList_Append(schedulers, object) < 0;
            break;
        case KIND_FUNCTION:
            failed = tgd_py_living_add_cycles(living, object) < 0;
            break;
        case KIND_OTHER:
            break;
        }
    }
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(optimizers); i++) {
        failed = tgd_py_living_add_optimizer(living, PyList_GET_ITEM(optimizers, i), schedulers) < 0;
    }
    living->census.whole = !failed;
    Py_XDECREF(objects);
    Py_XDECREF((PyObject *)known.optimizer);
    Py_XDECREF((PyObject *)known.scheduler);
    Py_XDECREF(optimizers);
    Py_XDECREF(schedulers);
    return failed ? -1 : 0;
}
