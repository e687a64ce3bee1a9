#include "patches.h"

#include "grad_state.h"
#include "light_patches.h"
#include "patch.h"

static const tgd_py_watcher *watcher; /* under the GIL, like all below */
static unsigned n_watches;

/* The exception that is set, normalised and still set. Borrowed from the thread. */
static PyObject *current_exception(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *exception = PyErr_GetRaisedException();
    PyErr_SetRaisedException(exception);
    return exception;
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyErr_Restore(type, value, traceback);
    return value;
#endif
}

/* Runs the body with no exception set and puts the one that was set back. */
typedef struct held {
    PyObject *type, *value, *traceback;
} held;

static held hold(void)
{
    held h;
    PyErr_Fetch(&h.type, &h.value, &h.traceback);
    return h;
}

static void release(held h)
{
    PyErr_Restore(h.type, h.value, h.traceback);
}

/* ---- grad mode ---- */

static PyObject *set_grad_enabled(PyObject *self, PyObject *args, PyObject *keywords);

static tgd_py_patch grad_mode = {
    .ours = {"_set_grad_enabled", (PyCFunction)(void (*)(void))set_grad_enabled, METH_VARARGS | METH_KEYWORDS, NULL}};

static PyObject *set_grad_enabled(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *result = tgd_py_patch_call(&grad_mode, self, args, keywords);
    if (result != NULL && n_watches > 0) {
        watcher->grad_mode(tgd_torch_grad_mode());
    }
    return result;
}

/* ---- inference mode ---- */

/* pybind11 calls its methods in either way, by version. */
static PyObject *enter_inference(PyObject *self, PyObject *args, PyObject *keywords);
static PyObject *enter_inference_fast(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);
static PyObject *exit_inference(PyObject *self, PyObject *args, PyObject *keywords);
static PyObject *exit_inference_fast(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);

static tgd_py_patch inference_begin = {
    .ours = {"__enter__", (PyCFunction)(void (*)(void))enter_inference, METH_VARARGS | METH_KEYWORDS, NULL},
    .fast = (PyCFunction)(void (*)(void))enter_inference_fast};
static tgd_py_patch inference_end = {
    .ours = {"__exit__", (PyCFunction)(void (*)(void))exit_inference, METH_VARARGS | METH_KEYWORDS, NULL},
    .fast = (PyCFunction)(void (*)(void))exit_inference_fast};

static PyObject *tell_inference(PyObject *result, int began)
{
    if (result != NULL && n_watches > 0) {
        watcher->inference(began);
    }
    return result;
}

static PyObject *enter_inference(PyObject *self, PyObject *args, PyObject *keywords)
{
    return tell_inference(tgd_py_patch_call(&inference_begin, self, args, keywords), 1);
}

static PyObject *enter_inference_fast(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    return tell_inference(tgd_py_patch_call_fast(&inference_begin, self, args, n, names), 1);
}

static PyObject *exit_inference(PyObject *self, PyObject *args, PyObject *keywords)
{
    return tell_inference(tgd_py_patch_call(&inference_end, self, args, keywords), 0);
}

static PyObject *exit_inference_fast(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    return tell_inference(tgd_py_patch_call_fast(&inference_end, self, args, n, names), 0);
}

/* ---- storages ---- */

static PyObject *resize_storage(PyObject *self, PyObject *size);

static tgd_py_patch storage_size = {.ours = {"resize_", resize_storage, METH_O, NULL}};

static PyObject *resize_storage(PyObject *self, PyObject *size)
{
    if (n_watches > 0) {
        watcher->resizing(self);
    }
    return storage_size.real->ml_meth(self, size);
}

/* ---- tensor.data = other ---- */

static PyGetSetDef *data_attribute; /* Borrowed for ever: torch's own table */
static setter real_set_data;

static int set_data(PyObject *self, PyObject *value, void *closure)
{
    int result = real_set_data(self, value, closure);
    if (result == 0 && n_watches > 0) {
        watcher->swapped(self);
    }
    return result;
}

static int replace_set_data(void)
{
    PyObject *found = tgd_py_torch_attribute("TensorBase", "data");
    if (found == NULL) {
        return -1;
    }
    if (!Py_IS_TYPE(found, &PyGetSetDescr_Type) || ((PyGetSetDescrObject *)found)->d_getset->set == NULL) {
        Py_DECREF(found);
        PyErr_SetString(PyExc_RuntimeError, "torchgraphdbg cannot watch this torch: TensorBase.data is not what it was");
        return -1;
    }
    data_attribute = ((PyGetSetDescrObject *)found)->d_getset;
    Py_DECREF(found);
    if (data_attribute->set != set_data) {
        real_set_data = data_attribute->set;
        data_attribute->set = set_data;
    }
    return 0;
}

static void restore_set_data(void)
{
    if (data_attribute != NULL && data_attribute->set == set_data) {
        data_attribute->set = real_set_data;
    }
}

/* ---- the engine ---- */

static PyObject *run_backward(PyObject *self, PyObject *args, PyObject *keywords);

static tgd_py_patch engine = {
    .ours = {"run_backward", (PyCFunction)(void (*)(void))run_backward, METH_VARARGS | METH_KEYWORDS, NULL}};

static PyObject *run_backward(PyObject *self, PyObject *args, PyObject *keywords)
{
    if (n_watches == 0) {
        return tgd_py_patch_call(&engine, self, args, keywords);
    }
    const tgd_py_watcher *told = watcher;
    void *token = told->backward(args, keywords);
    PyObject *result = tgd_py_patch_call(&engine, self, args, keywords);
    if (result != NULL) {
        told->ended(token, NULL);
        return result;
    }
    PyObject *exception = Py_XNewRef(current_exception());
    held h = hold();
    tgd_py_light_plain_text(exception);
    told->ended(token, exception);
    release(h);
    Py_XDECREF(exception);
    return NULL;
}

/* ---- the gradients that backward starts with ---- */

/* self is torch's own function. */
static PyObject *make_grads(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *result = PyObject_Call(self, args, keywords);
    if (result == NULL && n_watches > 0) {
        PyObject *exception = Py_XNewRef(current_exception());
        held h = hold();
        watcher->refused(args, keywords, exception);
        release(h);
        Py_XDECREF(exception);
    }
    return result;
}

static PyMethodDef make_grads_definition = {"_make_grads", (PyCFunction)(void (*)(void))make_grads,
                                            METH_VARARGS | METH_KEYWORDS, NULL};

/* Is it the function above? */
static int is_ours(PyObject *function)
{
    return PyCFunction_Check(function) && ((PyCFunctionObject *)function)->m_ml == &make_grads_definition;
}

static int replace_make_grads(void)
{
    PyObject *module = PyImport_ImportModule("torch.autograd");
    PyObject *real = module == NULL ? NULL : PyObject_GetAttrString(module, "_make_grads");
    PyObject *ours = NULL;
    int result = -1;
    if (real != NULL && is_ours(real)) {
        result = 0; /* somebody took hold of it and put it back */
    } else if (real != NULL) {
        ours = PyCFunction_New(&make_grads_definition, real);
        result = ours == NULL ? -1 : PyObject_SetAttrString(module, "_make_grads", ours);
    }
    Py_XDECREF(module);
    Py_XDECREF(real);
    Py_XDECREF(ours);
    return result;
}

/* Where somebody else has put another one over ours meanwhile, theirs stays, and ours only passes calls on. */
static void restore_make_grads(void)
{
    PyObject *module = PyImport_ImportModule("torch.autograd");
    PyObject *present = module == NULL ? NULL : PyObject_GetAttrString(module, "_make_grads");
    if (present != NULL && is_ours(present)) {
        PyObject_SetAttrString(module, "_make_grads", PyCFunction_GET_SELF(present));
    }
    Py_XDECREF(module);
    Py_XDECREF(present);
    PyErr_Clear();
}

/* ---- on and off ---- */

static void restore_all(void)
{
    tgd_py_patch_restore(&grad_mode);
    tgd_py_patch_restore(&inference_begin);
    tgd_py_patch_restore(&inference_end);
    tgd_py_patch_restore(&storage_size);
    tgd_py_patch_restore(&engine);
    restore_set_data();
    restore_make_grads();
}

int tgd_py_patches_watch(const tgd_py_watcher *who)
{
    if (n_watches > 0) {
        n_watches++;
        return 0;
    }
    watcher = who;
    if (tgd_py_patch_install(&grad_mode, NULL) < 0 || tgd_py_patch_install(&inference_begin, "_InferenceMode") < 0 ||
        tgd_py_patch_install(&inference_end, "_InferenceMode") < 0 ||
        tgd_py_patch_install(&storage_size, "StorageBase") < 0 ||
        tgd_py_patch_install(&engine, "_ImperativeEngine") < 0 || replace_set_data() < 0 ||
        replace_make_grads() < 0) {
        held h = hold();
        restore_all();
        release(h);
        return -1;
    }
    n_watches = 1;
    return 0;
}

void tgd_py_patches_unwatch(void)
{
    if (n_watches > 0 && --n_watches == 0) {
        held h = hold();
        restore_all();
        release(h);
    }
}
