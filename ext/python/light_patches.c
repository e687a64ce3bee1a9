#include "light_patches.h"

#include "error.h"
#include "light_python.h"
#include "patch.h"
#include "python_shim.h"
#include <stdbool.h>

static unsigned n_levels; /* under the GIL, like all below */

/* ---- anomaly mode ---- */

static PyObject *set_anomaly(PyObject *self, PyObject *args, PyObject *keywords);
static PyObject *is_anomaly(PyObject *self, PyObject *args);
static PyObject *checks_nan(PyObject *self, PyObject *args);

static tgd_py_patch anomaly_setter = {.ours = {"set_anomaly_enabled", (PyCFunction)(void (*)(void))set_anomaly,
                                               METH_VARARGS | METH_KEYWORDS, NULL}};
static tgd_py_patch anomaly_getter = {.ours = {"is_anomaly_enabled", is_anomaly, METH_NOARGS, NULL}};
static tgd_py_patch nan_getter = {.ours = {"is_anomaly_check_nan_enabled", checks_nan, METH_NOARGS, NULL}};

static PyObject *set_anomaly(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *result = tgd_py_patch_call(&anomaly_setter, self, args, keywords);
    if (result != NULL) {
        tgd_light_anomaly_was_set();
    }
    return result;
}

static PyObject *is_anomaly(PyObject *self, PyObject *args)
{
    (void)self;
    (void)args;
    return PyBool_FromLong(tgd_light_anomaly_enabled());
}

static PyObject *checks_nan(PyObject *self, PyObject *args)
{
    (void)self;
    (void)args;
    return PyBool_FromLong(tgd_light_anomaly_checks_nan());
}

void tgd_py_light_plain_text(PyObject *exception)
{
    if (n_levels == 0 || exception == NULL || !Py_IS_TYPE(exception, (PyTypeObject *)PyExc_RuntimeError) ||
        tgd_light_anomaly_enabled()) {
        return;
    }
    PyObject *args = PyObject_GetAttrString(exception, "args"), *text = NULL, *was = NULL, *plain = NULL;
    if (args != NULL && PyTuple_Check(args) && PyTuple_GET_SIZE(args) == 1 &&
        PyUnicode_Check(PyTuple_GET_ITEM(args, 0)) &&
        (was = PyUnicode_FromString(TGD_HINT_ANOMALY_ON)) != NULL &&
        PyUnicode_Contains(PyTuple_GET_ITEM(args, 0), was) == 1 &&
        (plain = PyUnicode_FromString(TGD_HINT_ANOMALY_OFF)) != NULL &&
        (text = PyUnicode_Replace(PyTuple_GET_ITEM(args, 0), was, plain, 1)) != NULL) {
        PyObject *changed = PyTuple_Pack(1, text);
        if (changed != NULL) {
            PyObject_SetAttrString(exception, "args", changed);
        }
        Py_XDECREF(changed);
    }
    Py_XDECREF(args);
    Py_XDECREF(text);
    Py_XDECREF(was);
    Py_XDECREF(plain);
    PyErr_Clear();
}

/* ---- the dispatch key ---- */

/* pybind11's functions take their arguments in one way up to its version 2, in the other since. */
static PyObject *include_set(PyObject *self, PyObject *args, PyObject *keywords);
static PyObject *include_set_fast(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);

static tgd_py_patch included = {.ours = {"_dispatch_tls_local_include_set",
                                         (PyCFunction)(void (*)(void))include_set, METH_VARARGS | METH_KEYWORDS,
                                         NULL}};
static tgd_py_patch included_fast = {.ours = {"_dispatch_tls_local_include_set",
                                              (PyCFunction)(void (*)(void))include_set_fast,
                                              METH_FASTCALL | METH_KEYWORDS, NULL}};

/* A new set without our key; steals the one given. */
static PyObject *without_key(PyObject *set)
{
    PyObject *bits = PyObject_CallMethod(set, "raw_repr", NULL);
    unsigned long long raw = bits == NULL ? 0 : PyLong_AsUnsignedLongLong(bits);
    Py_XDECREF(bits);
    if (PyErr_Occurred()) {
        Py_DECREF(set);
        return NULL;
    }
    if (raw & tgd_light_key_bits()) {
        Py_SETREF(set, PyObject_CallMethod((PyObject *)Py_TYPE(set), "from_raw_repr", "K",
                                           raw & ~(unsigned long long)tgd_light_key_bits()));
    }
    return set;
}

static PyObject *include_set(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *set = tgd_py_patch_call(&included, self, args, keywords);
    return set == NULL ? NULL : without_key(set);
}

static PyObject *include_set_fast(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    _PyCFunctionFastWithKeywords real =
        (_PyCFunctionFastWithKeywords)(void (*)(void))included_fast.real->ml_meth;
    PyObject *set = real(self, args, n, names);
    return set == NULL ? NULL : without_key(set);
}

static int install_included(void)
{
    PyObject *function = tgd_py_torch_attribute(NULL, included.ours.ml_name);
    bool fast = function != NULL && PyCFunction_Check(function) && (PyCFunction_GET_FLAGS(function) & METH_FASTCALL);
    Py_XDECREF(function);
    return function == NULL ? -1 : tgd_py_patch_install(fast ? &included_fast : &included, NULL);
}

/* ---- node.metadata ---- */

static getter real_metadata, real_function_metadata; /* of nodes of C++ and of Python */

static void complete(PyObject *self)
{
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    if (tgd_torch_object(self, &tensor, &node) == TGD_OBJECT_NODE && node != NULL) {
        tgd_light_complete_metadata(node);
    }
}

static PyObject *metadata(PyObject *self, void *closure)
{
    complete(self);
    return real_metadata(self, closure);
}

static PyObject *function_metadata(PyObject *self, void *closure)
{
    complete(self);
    return real_function_metadata(self, closure);
}

/* The attribute's C function, in the class's own table. */
static int replace_getter(PyObject *class, getter *real, getter ours)
{
    PyObject *found = PyType_Check(class) ? PyDict_GetItemString(((PyTypeObject *)class)->tp_dict, "metadata") : NULL;
    if (found == NULL || !Py_IS_TYPE(found, &PyGetSetDescr_Type)) {
        return 0;
    }
    PyGetSetDef *attribute = ((PyGetSetDescrObject *)found)->d_getset;
    if (attribute->get == ours) {
        return 0;
    }
    if (*real != NULL && attribute->get != *real) {
        PyErr_Format(PyExc_RuntimeError, "torchgraphdbg cannot watch this torch: metadata of %s is not what it was",
                     ((PyTypeObject *)class)->tp_name);
        return -1;
    }
    *real = attribute->get;
    attribute->get = ours;
    return 0;
}

static int replace_getters(void)
{
    PyObject *base = tgd_py_torch_attribute(NULL, "_FunctionBase");
    PyObject *module = base == NULL ? NULL : tgd_py_torch_attribute(NULL, "_functions"), *name, *class;
    int result = module == NULL ? -1 : replace_getter(base, &real_function_metadata, function_metadata);
    Py_ssize_t at = 0;
    while (result == 0 && PyDict_Next(PyModule_GetDict(module), &at, &name, &class)) {
        result = replace_getter(class, &real_metadata, metadata);
    }
    Py_XDECREF(base);
    Py_XDECREF(module);
    return result;
}

/* ---- on and off ---- */

static void restore_patches(void)
{
    tgd_py_patch_restore(&anomaly_setter);
    tgd_py_patch_restore(&anomaly_getter);
    tgd_py_patch_restore(&nan_getter);
    tgd_py_patch_restore(&included);
    tgd_py_patch_restore(&included_fast);
}

static int install_patches(void)
{
    int result = 0;
    if (replace_getters() < 0 || tgd_py_patch_install(&anomaly_setter, NULL) < 0 ||
        tgd_py_patch_install(&anomaly_getter, NULL) < 0 || tgd_py_patch_install(&nan_getter, NULL) < 0 ||
        install_included() < 0) {
        result = -1;
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        restore_patches();
        PyErr_Restore(type, value, traceback);
    }
    return result;
}

static int install(tgd_error *err)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int result = n_levels > 0 ? 0 : install_patches();
    if (result == 0) {
        n_levels++;
    } else {
        PyObject *raised_type, *raised, *raised_traceback;
        PyErr_Fetch(&raised_type, &raised, &raised_traceback);
        PyObject *text = raised == NULL ? NULL : PyObject_Str(raised);
        const char *words = text == NULL ? NULL : PyUnicode_AsUTF8(text);
        tgd_fail(err, TGD_ETORCH, "%s", words == NULL ? "torch could not be patched" : words);
        Py_XDECREF(text);
        Py_XDECREF(raised_type);
        Py_XDECREF(raised);
        Py_XDECREF(raised_traceback);
        PyErr_Clear();
    }
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(gil);
    return result;
}

static void restore(void)
{
    if (!Py_IsInitialized()) {
        return;
    }
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (n_levels > 0 && --n_levels == 0) {
        restore_patches();
    }
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(gil);
}

int tgd_py_light_patches_init(void)
{
    static const tgd_light_patches ours = {install, restore};
    if (tgd_torch_dict_offset() != tgd_light_dict_offset()) {
        PyErr_SetString(PyExc_ImportError, "torchgraphdbg does not read this torch right: metadata of nodes");
        return -1;
    }
    tgd_light_set_dict_reader(tgd_torch_metadata_dict);
    tgd_light_set_patches(&ours);
    return 0;
}
