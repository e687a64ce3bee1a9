#include "watch.h"

#include "module_table.h"
#include "note.h"
#include "observe.h"
#include "raise.h"

#include <unistd.h>

/* The watches that are on, newest first. For the process: torch calls the patches without any state of ours. */
static tgd_py_watch *first_on;

bool tgd_py_watching(void)
{
    return first_on != NULL;
}

tgd_py_watch *tgd_py_watch_first(void)
{
    return first_on;
}

/* ---- on and off ---- */

static int add_hook(tgd_py_watch *self)
{
    static PyMethodDef definition = {"torchgraphdbg_watch", tgd_py_watch_on_forward, METH_VARARGS, NULL};
    PyObject *module = PyImport_ImportModule("torch.nn.modules.module");
    PyObject *hook = module == NULL ? NULL : PyCFunction_New(&definition, (PyObject *)self);
    if (hook != NULL) {
        self->hook = PyObject_CallMethod(module, "register_module_forward_hook", "O", hook);
    }
    Py_XDECREF(module);
    Py_XDECREF(hook);
    return self->hook == NULL ? -1 : 0;
}

static void drop_hook(tgd_py_watch *self)
{
    PyObject *hook = self->hook;
    self->hook = NULL;
    if (hook != NULL) {
        Py_XDECREF(PyObject_CallMethod(hook, "remove", NULL));
        PyErr_Clear();
    }
    Py_XDECREF(hook);
}

static void stop_recording(tgd_py_watch *self)
{
    bool light = self->light, full = self->full;
    self->light = self->full = false;
    Py_BEGIN_ALLOW_THREADS
    if (full) {
        tgd_observe_stop();
    }
    if (light) {
        tgd_observe_stop_light();
    }
    Py_END_ALLOW_THREADS
}

/* 0, or -1 with an exception and everything as before. */
static int arm(tgd_py_watch *self)
{
    tgd_error err = {.status = TGD_OK};
    tgd_status status;
    if (tgd_py_places_find(&self->places, self->params) < 0 || tgd_py_patches_watch(tgd_py_attempt_watcher()) < 0) {
        return -1;
    }
    const tgd_observer *observer = tgd_py_attempt_observer();
    Py_BEGIN_ALLOW_THREADS
    status = tgd_observe_start_light(observer, &err);
    Py_END_ALLOW_THREADS
    self->light = status == TGD_OK;
    if (status != TGD_OK || (self->forward && add_hook(self) < 0)) {
        if (status != TGD_OK) {
            tgd_py_raise(tgd_py_state_of((PyObject *)self), status, &err, NULL);
        }
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        stop_recording(self);
        tgd_py_patches_unwatch();
        PyErr_Restore(type, value, traceback);
        return -1;
    }
    self->on = true;
    self->pid = (long)getpid();
    self->versions = tgd_py_watch_versions(self);
    self->next = first_on;
    first_on = (tgd_py_watch *)Py_NewRef((PyObject *)self);
    if (tgd_py_is_instance(self->params, "torch.nn", "Module") == 1) {
        tgd_py_module_name_all(self->params);
    }
    PyErr_Clear();
    return 0;
}

void tgd_py_watch_remove(tgd_py_watch *self)
{
    if (!self->on) {
        return;
    }
    tgd_py_watch_settle(self);
    if (!self->on) {
        return; /* that failed, and so switched it off already */
    }
    self->on = false;
    for (tgd_py_watch **at = &first_on; *at != NULL; at = &(*at)->next) {
        if (*at == self) {
            *at = self->next;
            self->next = NULL;
            break;
        }
    }
    stop_recording(self);
    drop_hook(self);
    tgd_py_patches_unwatch();
    tgd_py_places_clear(&self->places);
    tgd_py_flight_drop(self);
    tgd_py_watch_forget_outputs(self);
    Py_CLEAR(self->pending.report);
    tgd_py_watch_say_more(self);
    if (first_on == NULL) {
        tgd_py_watch_idle();
    }
    Py_DECREF((PyObject *)self); /* the list's; the caller has its own */
}

void tgd_py_watch_fail(tgd_py_watch *self)
{
    bool interrupted = PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    tgd_py_complain(&self->complained, "go on watching");
    if (!interrupted) {
        tgd_py_watch_remove(self);
    }
}

/* ---- the type ---- */

/* An iterator is read once, or the second look would find it empty. */
static int keep_params(tgd_py_watch *self, PyObject *params)
{
    bool once = params != Py_None && !PyList_Check(params) && !PyTuple_Check(params) &&
                PyObject_HasAttrString(params, "__next__");
    PyObject *iterator = once ? tgd_py_iterate(params) : NULL;
    if (once && iterator == NULL && PyErr_Occurred()) {
        return -1;
    }
    self->params = iterator == NULL ? Py_NewRef(params) : PySequence_List(iterator);
    Py_XDECREF(iterator);
    if (self->params == NULL) {
        return -1;
    }
    tgd_py_arguments arguments;
    int wrong = tgd_py_arguments_read(&arguments, NULL, self->params, Py_None, 0);
    tgd_py_arguments_clear(&arguments);
    return wrong;
}

/* As an absolute str: the program may change its working directory. */
static int keep_directory(tgd_py_watch *self, PyObject *directory)
{
    PyObject *decoded = NULL;
    if (!PyUnicode_FSDecoder(directory, &decoded)) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Format(PyExc_TypeError, "directory: expected a str, bytes or os.PathLike, got %.200s",
                         Py_TYPE(directory)->tp_name);
        } else if (PyErr_ExceptionMatches(PyExc_ValueError)) {
            PyErr_Format(PyExc_ValueError, "directory: %.200R has a NUL character in it", directory);
        }
        return -1;
    }
    PyObject *path = PyImport_ImportModule("os.path");
    self->directory = path == NULL ? NULL : PyObject_CallMethod(path, "abspath", "O", decoded);
    Py_XDECREF(path);
    Py_DECREF(decoded);
    return self->directory == NULL ? -1 : 0;
}

static int read_count(Py_ssize_t *out, const char *name, PyObject *given, Py_ssize_t least)
{
    if (given == NULL) {
        return 0;
    }
    if (!PyLong_Check(given) || PyBool_Check(given)) {
        PyErr_Format(PyExc_TypeError, "%s: expected an int, got %.200s", name, Py_TYPE(given)->tp_name);
        return -1;
    }
    Py_ssize_t value = PyLong_AsSsize_t(given);
    if (value == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        value = least - 1;
    }
    if (value < least) {
        PyErr_Format(PyExc_ValueError, "%s: expected %zd or more, got %R", name, least, given);
        return -1;
    }
    *out = value;
    return 0;
}

static PyObject *watch_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"params", "directory", "every", "max_dumps", "forward", NULL};
    PyObject *params, *directory = NULL, *every = NULL, *max_dumps = NULL;
    int forward = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O$OOp:watch", names, &params, &directory, &every, &max_dumps,
                                     &forward)) {
        return NULL;
    }
    tgd_py_watch *self = (tgd_py_watch *)type->tp_alloc(type, 0);
    PyObject *usual = directory == NULL ? PyUnicode_FromString("torchgraphdbg") : Py_NewRef(directory);
    if (self != NULL) {
        self->every = 1;
        self->max_dumps = 10;
        self->forward = forward != 0;
    }
    bool failed = self == NULL || usual == NULL || read_count(&self->every, "every", every, 1) < 0 ||
                  read_count(&self->max_dumps, "max_dumps", max_dumps, 0) < 0 || keep_params(self, params) < 0 ||
                  keep_directory(self, usual) < 0 || (self->said = PySet_New(NULL)) == NULL ||
                  (self->said_fully = PySet_New(NULL)) == NULL || arm(self) < 0;
    Py_XDECREF(usual);
    if (failed) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static int watch_clear(PyObject *object)
{
    tgd_py_watch *self = (tgd_py_watch *)object;
    Py_CLEAR(self->params);
    Py_CLEAR(self->directory);
    Py_CLEAR(self->said);
    Py_CLEAR(self->said_fully);
    Py_CLEAR(self->pending.report);
    Py_CLEAR(self->hook);
    Py_CLEAR(self->scaler);
    tgd_py_watch_forget_outputs(self);
    tgd_py_flight_drop(self);
    tgd_py_places_clear(&self->places);
    return 0;
}

static void watch_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    watch_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static int watch_traverse(PyObject *object, visitproc visit, void *arg)
{
    tgd_py_watch *self = (tgd_py_watch *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->params);
    Py_VISIT(self->said);
    Py_VISIT(self->said_fully);
    Py_VISIT(self->pending.report);
    Py_VISIT(self->hook);
    Py_VISIT(self->scaler);
    Py_VISIT(self->flight.host);
    Py_VISIT(self->flight.event);
    return tgd_py_places_traverse(&self->places, visit, arg);
}

PyDoc_STRVAR(remove_doc, "remove($self, /)\n--\n\nStop watching and undo all of it. Nothing the second time.");

static PyObject *watch_remove(PyObject *object, PyObject *args)
{
    (void)args;
    tgd_py_watch_remove((tgd_py_watch *)object);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(enter_doc, "__enter__($self, /)\n--\n\nThe watch itself; armed again where it was removed.");

static PyObject *watch_enter(PyObject *object, PyObject *args)
{
    (void)args;
    return !((tgd_py_watch *)object)->on && arm((tgd_py_watch *)object) < 0 ? NULL : Py_NewRef(object);
}

PyDoc_STRVAR(exit_doc, "__exit__($self, type, value, traceback, /)\n--\n\nAs remove().");

static PyObject *watch_exit(PyObject *object, PyObject *args)
{
    (void)args;
    tgd_py_watch_remove((tgd_py_watch *)object);
    Py_RETURN_FALSE;
}

static PyObject *watch_repr(PyObject *object)
{
    const tgd_py_watch *self = (const tgd_py_watch *)object;
    return PyUnicode_FromFormat("<torchgraphdbg.watch, %s, %zd dump%s in %R>", self->on ? "on" : "off", self->n_dumps,
                                self->n_dumps == 1 ? "" : "s", self->directory);
}

static PyMethodDef watch_methods[] = {
    {"remove", watch_remove, METH_NOARGS, remove_doc},
    {"__enter__", watch_enter, METH_NOARGS, enter_doc},
    {"__exit__", watch_exit, METH_VARARGS, exit_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(watch_doc,
             "watch(params, directory='torchgraphdbg', *, every=1, max_dumps=10,\n"
             "      forward=False)\n--\n\n"
             "Stay armed in a training loop: when a backward raises, or a loss or a gradient is not finite, a\n"
             "report, picture and JSON are written, and training goes on or stops as it would have.\n\n"
             "params     the model, as in inspect(): the parameters whose gradients are looked at\n"
             "directory  where dumps go, made when the first one comes: step-000123.svg, .txt, .json; with\n"
             "           -rank3 under torch.distributed, with -pid4711 in a child process, with -2 where that\n"
             "           name is taken\n"
             "every      look at one backward in so many; one that raises is reported in any case\n"
             "max_dumps  never write more than that; further faults are only counted\n"
             "forward    also look at what modules return, to name the first one that is not finite\n\n"
             "It is on at once, until remove() or the end of a with block. An exception of backward carries what\n"
             "is known as a note.");

static PyType_Slot watch_slots[] = {
    {Py_tp_doc, (void *)watch_doc},
    {Py_tp_new, (void *)watch_new},
    {Py_tp_dealloc, (void *)watch_dealloc},
    {Py_tp_traverse, (void *)watch_traverse},
    {Py_tp_clear, (void *)watch_clear},
    {Py_tp_repr, (void *)watch_repr},
    {Py_tp_methods, watch_methods},
    {0, NULL},
};

PyType_Spec tgd_py_watch_spec = {
    .name = "torchgraphdbg.watch",
    .basicsize = sizeof(tgd_py_watch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = watch_slots,
};
