#include "recorder_object.h"

#include "arguments.h"
#include "attempt.h"
#include "measuring.h"
#include "module_table.h"
#include "note.h"
#include "raise.h"
#include "recorder_measures.h"
#include "report_object.h"

enum { MOST_REPORTS = 16 };

typedef struct recorder {
    PyObject_HEAD
    PyObject *params;  /* Owned: as given, an iterator as a list; None: not asked about */
    PyObject *reports; /* Owned list, newest last */
    PyObject *pending; /* Owned list: what was measured and has not been put into its report, newest last */
    unsigned what;     /* TGD_MEASURE_* */
    /* What the newest attempt raised, to know the exception again when it leaves the block. */
    PyObject *failed;       /* Owned: the report it belongs to; NULL: nothing was raised */
    PyTypeObject *raised;   /* Owned, with failed */
    PyObject *text;         /* Owned str, with failed; NULL for any but PyTorch's own RuntimeError */
    const PyObject *object; /* identity alone, never dereferenced */
    tgd_record *seen; /* Owned: what was seen up to the end of the block; NULL while it is on */
    bool on, complained;
    int checksum;
    struct recorder *next; /* Owned reference, while it is on: the one that was on before */
} recorder;

/* The recorders that are on, newest first. For the process: torch calls the patches without any state of ours. */
static recorder *first_on;

bool tgd_py_recording(void)
{
    return first_on != NULL;
}

PyObject *tgd_py_recorders(void)
{
    PyObject *list = PyList_New(0);
    for (recorder *self = first_on; list != NULL && self != NULL; self = self->next) {
        if (PyList_Append(list, (PyObject *)self) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

PyObject *tgd_py_recorder_params(PyObject *object)
{
    return ((recorder *)object)->params;
}

/* ---- attempts ---- */

static void forget(recorder *self)
{
    Py_CLEAR(self->failed);
    Py_CLEAR(self->raised);
    Py_CLEAR(self->text);
    self->object = NULL;
}

PyObject *tgd_py_recorder_newest(PyObject *object)
{
    recorder *self = (recorder *)object;
    Py_ssize_t n = PyList_GET_SIZE(self->reports);
    return n == 0 ? NULL : PyList_GET_ITEM(self->reports, n - 1);
}

int tgd_py_recorder_replace(PyObject *object, PyObject *report)
{
    recorder *self = (recorder *)object;
    Py_ssize_t n = PyList_GET_SIZE(self->reports);
    return n == 0 ? 0 : PyList_SetItem(self->reports, n - 1, Py_NewRef(report));
}

int tgd_py_recorder_add(PyObject *object, PyObject *report)
{
    recorder *self = (recorder *)object;
    forget(self);
    if (PyList_Append(self->reports, report) < 0) {
        return -1;
    }
    Py_ssize_t n = PyList_GET_SIZE(self->reports);
    return n <= MOST_REPORTS ? 0 : PyList_SetSlice(self->reports, 0, n - MOST_REPORTS, NULL);
}

int tgd_py_recorder_measured(PyObject *object, PyObject *pending)
{
    recorder *self = (recorder *)object;
    if (self->what == 0) {
        return 0;
    }
    if (PyList_Append(self->pending, pending) < 0) {
        return -1;
    }
    Py_ssize_t n = PyList_GET_SIZE(self->pending);
    return n <= MOST_REPORTS ? 0 : PyList_SetSlice(self->pending, 0, n - MOST_REPORTS, NULL);
}

void tgd_py_recorder_failed(PyObject *object, PyObject *exception)
{
    recorder *self = (recorder *)object;
    Py_ssize_t n = PyList_GET_SIZE(self->reports);
    if (n == 0) {
        return;
    }
    PyTypeObject *type = exception == NULL ? (PyTypeObject *)PyExc_RuntimeError : Py_TYPE(exception);
    forget(self);
    self->failed = Py_NewRef(PyList_GET_ITEM(self->reports, n - 1));
    self->raised = (PyTypeObject *)Py_NewRef((PyObject *)type);
    self->object = exception;
    if (exception != NULL && type == (PyTypeObject *)PyExc_RuntimeError) {
        self->text = PyObject_Str(exception);
        PyErr_Clear();
    }
}

void tgd_py_recorder_complain(PyObject *object)
{
    tgd_py_complain(&((recorder *)object)->complained, "report on this");
}

/* ---- the exception that leaves the block ---- */

/* What PyTorch says when it refuses an in-place op; nobody can tell us the very exception. */
static bool is_refusal_text(PyObject *text)
{
    const char *bytes = PyUnicode_AsUTF8(text);
    return bytes != NULL && (strstr(bytes, "is being used in an in-place operation") != NULL ||
                             strstr(bytes, "is being modified inplace") != NULL);
}

/* Is it what the newest attempt raised? An address may have been used again, PyTorch's text says it all. */
static bool is_known(const recorder *self, PyObject *exception)
{
    if (self->failed == NULL || Py_TYPE(exception) != self->raised) {
        return false;
    }
    if (self->raised != (PyTypeObject *)PyExc_RuntimeError) {
        return exception == self->object;
    }
    PyObject *text = PyObject_Str(exception);
    bool known = text != NULL && (self->text != NULL ? PyUnicode_Compare(text, self->text) == 0
                                                     : self->object == NULL && is_refusal_text(text));
    Py_XDECREF(text);
    PyErr_Clear();
    return known;
}

/* The finding that explains the exception, in words. A new reference, or NULL. */
static PyObject *explanation(const recorder *self)
{
    const tgd_report *report = tgd_py_report_snapshot(self->failed)->report;
    size_t finding = tgd_report_explains(report);
    tgd_finding_info first;
    if (finding == SIZE_MAX && tgd_report_n_findings(report) > 0 && !tgd_report_knows_raised(report)) {
        tgd_report_finding(report, 0, &first); /* what PyTorch refused, or what was predicted */
        finding = first.severity == TGD_ERROR ? 0 : SIZE_MAX;
    }
    return finding == SIZE_MAX ? NULL : tgd_py_note_of_finding(report, finding);
}

/* DistributedDataParallel refuses a forward since the backward before left out parameters: those, or NULL. */
static PyObject *unused_parameters(const recorder *self, PyObject *exception)
{
    Py_ssize_t n = PyList_GET_SIZE(self->reports);
    PyObject *text = n > 0 && Py_IS_TYPE(exception, (PyTypeObject *)PyExc_RuntimeError) ? PyObject_Str(exception) : NULL;
    const char *bytes = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    bool refused = bytes != NULL && strstr(bytes, "Expected to have finished reduction in the prior iteration") != NULL;
    Py_XDECREF(text);
    PyErr_Clear();
    return refused ? tgd_py_note_of_unused(tgd_py_report_snapshot(PyList_GET_ITEM(self->reports, n - 1))->report) : NULL;
}

static void explain(const recorder *self, PyObject *exception)
{
    PyObject *note = is_known(self, exception) ? explanation(self) : unused_parameters(self, exception);
    if (note != NULL) {
        tgd_py_note_add(exception, note);
    }
    Py_XDECREF(note);
    PyErr_Clear();
}

/* ---- what happened after an attempt ---- */

/* All that is held, for what grows does so over many steps. No record is no failure: the reports stand without. */
static tgd_record *take_all(void)
{
    tgd_record *record = NULL;
    tgd_error err = {.status = TGD_OK};
    Py_BEGIN_ALLOW_THREADS
    (void)tgd_observe_take(&record, 0, &err);
    Py_END_ALLOW_THREADS
    return record;
}

/* The report with what happened since: steps of optimizers, what is alive now. params None: about those it has. */
static PyObject *judged_again(recorder *self, PyObject *report, PyObject *params)
{
    tgd_py_arguments arguments;
    PyObject *judged = NULL;
    tgd_record *record = self->on ? take_all() : self->seen;
    bool own = params == Py_None;
    if (tgd_py_arguments_read(&arguments, NULL, own ? self->params : params, Py_None, 0) == 0 &&
        tgd_py_arguments_look_around(&arguments) == 0) {
        arguments.request.record = record;
        if (own) { /* the report has them as they were */
            arguments.request.parameters = NULL;
        }
        judged = tgd_py_report_rejudged(tgd_py_state_of((PyObject *)self), report, &arguments.request);
    }
    tgd_py_arguments_clear(&arguments);
    if (self->on) {
        tgd_record_free(record);
    }
    return judged;
}

static bool says_the_same(PyObject *left, PyObject *right)
{
    const tgd_report *a = tgd_py_report_snapshot(left)->report, *b = tgd_py_report_snapshot(right)->report;
    return tgd_report_n_findings(a) == tgd_report_n_findings(b) &&
           strcmp(tgd_report_verdict(a), tgd_report_verdict(b)) == 0;
}

/* ---- the type ---- */

/* An iterator is read once, or the second report would find it empty. 0, or -1 with an exception. */
static int keep_params(recorder *self, PyObject *params)
{
    PyObject *iterator = NULL;
    bool once = params != Py_None && !PyList_Check(params) && !PyTuple_Check(params) &&
                PyObject_HasAttrString(params, "__next__");
    if (once && (iterator = tgd_py_iterate(params)) == NULL && PyErr_Occurred()) {
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

static PyObject *recorder_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"params", "checksum", "timeline", "statistics", NULL};
    PyObject *params = Py_None;
    int checksum = 0, timeline = 1, statistics = 1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O$ppp:record", names, &params, &checksum, &timeline,
                                     &statistics)) {
        return NULL;
    }
    recorder *self = (recorder *)type->tp_alloc(type, 0);
    if (self != NULL && (keep_params(self, params) < 0 || (self->reports = PyList_New(0)) == NULL ||
                         (self->pending = PyList_New(0)) == NULL)) {
        Py_CLEAR(self);
    }
    if (self != NULL) {
        self->checksum = checksum;
        self->what = (timeline || statistics ? TGD_MEASURE_TIME : 0u) | (statistics ? TGD_MEASURE_GRADIENTS : 0u);
    }
    return (PyObject *)self;
}

static int recorder_clear(PyObject *object)
{
    recorder *self = (recorder *)object;
    Py_CLEAR(self->params);
    Py_CLEAR(self->reports);
    Py_CLEAR(self->pending);
    forget(self);
    tgd_record_free(self->seen);
    self->seen = NULL;
    return 0;
}

static void recorder_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    recorder_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static int recorder_traverse(PyObject *object, visitproc visit, void *arg)
{
    recorder *self = (recorder *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->params);
    Py_VISIT(self->reports);
    Py_VISIT(self->pending);
    Py_VISIT(self->failed);
    Py_VISIT(self->raised);
    return 0;
}

PyDoc_STRVAR(enter_doc, "__enter__($self, /)\n--\n\nStart recording.");

static PyObject *recorder_enter(PyObject *object, PyObject *args)
{
    (void)args;
    recorder *self = (recorder *)object;
    if (self->on) {
        PyErr_SetString(PyExc_RuntimeError, "this record is on already");
        return NULL;
    }
    if (tgd_py_patches_watch(tgd_py_attempt_watcher()) < 0) {
        return NULL;
    }
    tgd_error err = {.status = TGD_OK};
    tgd_status status;
    const tgd_observer *observer = tgd_py_attempt_observer();
    self->on = true;
    Py_BEGIN_ALLOW_THREADS
    status = tgd_observe_start(observer, &err);
    if (status == TGD_OK && self->what != 0 && (status = tgd_measure_start(self->what, &err)) != TGD_OK) {
        tgd_observe_stop();
    }
    Py_END_ALLOW_THREADS
    if (status != TGD_OK) {
        self->on = false;
        tgd_py_patches_unwatch();
        return tgd_py_raise(tgd_py_state_of(object), status, &err, NULL);
    }
    tgd_observe_want_checksums(self->checksum);
    self->next = first_on;
    first_on = (recorder *)Py_NewRef(object);
    if (tgd_py_is_instance(self->params, "torch.nn", "Module") == 1) {
        tgd_py_module_name_all(self->params);
    }
    PyErr_Clear();
    return Py_NewRef(object);
}

PyDoc_STRVAR(exit_doc, "__exit__($self, type, value, traceback, /)\n--\n\n"
                       "Stop recording. An exception passes, with the finding that explains it as a note.");

static PyObject *recorder_exit(PyObject *object, PyObject *args)
{
    PyObject *type, *value, *traceback;
    if (!PyArg_ParseTuple(args, "OOO:__exit__", &type, &value, &traceback)) {
        return NULL;
    }
    recorder *self = (recorder *)object;
    if (!self->on) {
        PyErr_SetString(PyExc_RuntimeError, "this record is not on");
        return NULL;
    }
    self->on = false;
    tgd_record_free(self->seen);
    self->seen = take_all();
    for (recorder **at = &first_on; *at != NULL; at = &(*at)->next) {
        if (*at == self) {
            *at = self->next;
            self->next = NULL;
            break;
        }
    }
    Py_BEGIN_ALLOW_THREADS
    tgd_observe_want_checksums(-self->checksum);
    if (self->what != 0) {
        tgd_measure_stop(self->what);
    }
    tgd_observe_stop();
    Py_END_ALLOW_THREADS
    tgd_py_patches_unwatch();
    if (value != Py_None) {
        explain(self, value);
    }
    Py_DECREF(object); /* the list's; the caller has its own */
    Py_RETURN_FALSE;
}

PyDoc_STRVAR(report_doc,
             "report($self, /, params=None)\n--\n\n"
             "The report on the newest attempt: a backward, whether it raised or not, or an in-place\n"
             "operation that PyTorch refused.\n\n"
             "params  names the leaves, and asks which of them backward does not reach, as in inspect();\n"
             "        by default those that the record was made with.\n\n"
             "Raises LookupError when nothing was attempted.");

static PyObject *recorder_report(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"params", NULL};
    PyObject *params = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:report", names, &params)) {
        return NULL;
    }
    recorder *self = (recorder *)object;
    Py_ssize_t n = PyList_GET_SIZE(self->reports);
    if (n == 0) {
        PyErr_SetString(PyExc_LookupError, "nothing was attempted while this record was on: no backward, and no "
                                           "in-place operation that PyTorch refused");
        return NULL;
    }
    if (tgd_py_measures_settle(tgd_py_state_of(object), self->reports, self->pending) < 0) {
        return NULL;
    }
    n = PyList_GET_SIZE(self->reports);
    PyObject *newest = Py_NewRef(PyList_GET_ITEM(self->reports, n - 1));
    PyObject *judged = judged_again(self, newest, params);
    if (judged != NULL && params == Py_None) {
        /* The same object as in reports, whether there was more to say or not. */
        if (says_the_same(newest, judged)) {
            Py_SETREF(judged, Py_NewRef(newest));
        } else if (PyList_GET_SIZE(self->reports) == n && PyList_GET_ITEM(self->reports, n - 1) == newest) {
            PyList_SetItem(self->reports, n - 1, Py_NewRef(judged));
        }
    }
    Py_DECREF(newest);
    return judged;
}

static PyObject *recorder_reports(PyObject *object, void *closure)
{
    (void)closure;
    const recorder *self = (const recorder *)object;
    if (tgd_py_measures_settle(tgd_py_state_of(object), self->reports, self->pending) < 0) {
        return NULL;
    }
    return PyList_AsTuple(self->reports);
}

static PyObject *recorder_repr(PyObject *object)
{
    const recorder *self = (const recorder *)object;
    Py_ssize_t n = PyList_GET_SIZE(self->reports);
    return PyUnicode_FromFormat("<torchgraphdbg.record, %s, %zd report%s>", self->on ? "on" : "off", n,
                                n == 1 ? "" : "s");
}

static PyMethodDef recorder_methods[] = {
    {"__enter__", recorder_enter, METH_NOARGS, enter_doc},
    {"__exit__", recorder_exit, METH_VARARGS, exit_doc},
    {"report", (PyCFunction)(void (*)(void))recorder_report, METH_VARARGS | METH_KEYWORDS, report_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recorder_getset[] = {
    {"reports", recorder_reports, NULL, "One for each attempt, newest last; the last 16.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(recorder_doc,
             "record(params=None, *, checksum=False, timeline=True, statistics=True)\n--\n\n"
             "Record what runs inside a with block, for one step or a few, so that a report names lines.\n\n"
             "params      names the leaves, as in inspect(); of a module also the paths of the modules in it\n"
             "checksum    sum up every tensor on the CPU that an op saves, when it is saved and for each report,\n"
             "            so that writes by numpy, DLPack and other libraries show. Reads all of them at the\n"
             "            speed of memory; those of custom Functions are left out.\n"
             "timeline    time each node of a backward\n"
             "statistics  look at each gradient that a node receives, and time it\n\n"
             "    with torchgraphdbg.record(params=model) as rec:\n"
             "        loss = criterion(model(x), y)\n"
             "        loss.backward()\n"
             "    print(rec.report())\n\n"
             "While it is on, inspect() and dump() use what it saw too. Every thread is recorded, and nothing\n"
             "that the program computes changes. An exception passes through with the finding that explains\n"
             "it as a note.");

static PyType_Slot recorder_slots[] = {
    {Py_tp_doc, (void *)recorder_doc},
    {Py_tp_new, (void *)recorder_new},
    {Py_tp_dealloc, (void *)recorder_dealloc},
    {Py_tp_traverse, (void *)recorder_traverse},
    {Py_tp_clear, (void *)recorder_clear},
    {Py_tp_repr, (void *)recorder_repr},
    {Py_tp_methods, recorder_methods},
    {Py_tp_getset, recorder_getset},
    {0, NULL},
};

PyType_Spec tgd_py_record_spec = {
    .name = "torchgraphdbg.record",
    .basicsize = sizeof(recorder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = recorder_slots,
};
