#include "report_object.h"

#include "auto_recording.h"
#include "document.h"
#include "frames.h"
#include "measure_objects.h"
#include "observe.h"
#include "paths.h"
#include "raise.h"
#include "recorder_object.h"
#include "traceback.h"
#include "view.h"
#include "watch_object.h"

typedef struct report {
    PyObject_HEAD
    tgd_py_snapshot *snapshot; /* Owned reference */
    PyObject *graph;           /* Owned */
    PyObject *findings;        /* Owned tuple, NULL until it is asked for */
} report;

const tgd_py_snapshot *tgd_py_report_snapshot(PyObject *object)
{
    return ((report *)object)->snapshot;
}

PyObject *tgd_py_report_wrap(const tgd_py_state *state, tgd_report *captured)
{
    tgd_py_snapshot *snapshot = tgd_py_snapshot_new(captured);
    if (snapshot == NULL) {
        return NULL;
    }
    PyObject *graph = tgd_py_row_new(state->graph_type, snapshot, 0, 0);
    report *self = graph == NULL ? NULL : PyObject_GC_New(report, state->report_type);
    if (self == NULL) {
        Py_XDECREF(graph);
        tgd_py_snapshot_drop(snapshot);
        return NULL;
    }
    self->snapshot = snapshot;
    self->graph = graph;
    self->findings = NULL;
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

static tgd_status capture_since(tgd_report **out, const tgd_request *request, uint64_t since, tgd_error *err)
{
    tgd_request complete = *request;
    tgd_record *record = NULL;
    tgd_status status = tgd_observe_take(&record, since, err);
    if (status == TGD_OK) {
        complete.record = record;
        complete.resolve = tgd_py_resolve_place;
        complete.trace = tgd_py_trace;
        complete.checksum = tgd_observe_checksums();
        status = tgd_report_capture(out, &complete, err);
    }
    tgd_record_free(record);
    return status;
}

/* A long recording holds many steps, and a report is about one: the last rows first, more of them only where the
   graph has nodes from before. What grows shows over a few steps, and is not asked for at every one. */
static tgd_status capture(tgd_report **out, const tgd_request *request, tgd_py_asked asked, tgd_error *err)
{
    if (!tgd_observe_on()) {
        tgd_request complete = *request;
        complete.trace = tgd_py_trace;
        return tgd_report_capture(out, &complete, err);
    }
    static const size_t recent[] = {2, 8, SIZE_MAX}; /* backwards */
    for (size_t i = asked == TGD_PY_BY_A_STEP ? 0 : 1;; i++) {
        uint64_t since = tgd_observe_recent(recent[i]);
        tgd_report *captured = NULL;
        tgd_status status = capture_since(&captured, request, since, err);
        if (status != TGD_OK) {
            return status;
        }
        if (since == 0 || tgd_report_covered(captured)) {
            *out = captured;
            return TGD_OK;
        }
        tgd_report_free(captured);
    }
}

PyObject *tgd_py_report_new(const tgd_py_state *state, const tgd_request *request, tgd_py_asked asked)
{
    tgd_report *captured = NULL;
    tgd_error err = {.status = TGD_OK};
    tgd_status status;
    Py_BEGIN_ALLOW_THREADS
    status = capture(&captured, request, asked, &err);
    Py_END_ALLOW_THREADS
    return status == TGD_OK ? tgd_py_report_wrap(state, captured) : tgd_py_raise(state, status, &err, NULL);
}

PyObject *tgd_py_report_rejudged(const tgd_py_state *state, PyObject *object, const tgd_request *request)
{
    const tgd_report *before = ((report *)object)->snapshot->report;
    tgd_report *judged = NULL;
    tgd_error err = {.status = TGD_OK};
    tgd_status status;
    Py_BEGIN_ALLOW_THREADS
    status = tgd_report_rejudge(&judged, before, request, &err);
    Py_END_ALLOW_THREADS
    return status == TGD_OK ? tgd_py_report_wrap(state, judged) : tgd_py_raise(state, status, &err, NULL);
}

int tgd_py_snapshot_redact(tgd_py_snapshot *out, const tgd_py_state *state, const tgd_py_snapshot *snapshot)
{
    tgd_error err = {.status = TGD_OK};
    tgd_status status;
    *out = (tgd_py_snapshot){.n_references = 1};
    Py_BEGIN_ALLOW_THREADS
    status = tgd_report_redact(&out->report, snapshot->report, &err);
    Py_END_ALLOW_THREADS
    if (status != TGD_OK) {
        tgd_py_raise(state, status, &err, NULL);
        return -1;
    }
    return 0;
}

static int report_clear(PyObject *object)
{
    report *self = (report *)object;
    Py_CLEAR(self->graph);
    Py_CLEAR(self->findings);
    return 0;
}

static void report_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    report_clear(object);
    tgd_py_snapshot_drop(((report *)object)->snapshot);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int report_traverse(PyObject *object, visitproc visit, void *arg)
{
    report *self = (report *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->graph);
    Py_VISIT(self->findings);
    return 0;
}

static PyObject *report_verdict(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_str(tgd_report_verdict(((report *)object)->snapshot->report));
}

static PyObject *report_ok(PyObject *object, void *closure)
{
    (void)closure;
    return PyBool_FromLong(tgd_report_ok(((report *)object)->snapshot->report));
}

static PyObject *report_graph(PyObject *object, void *closure)
{
    (void)closure;
    return Py_XNewRef(((report *)object)->graph);
}

static PyObject *report_findings(PyObject *object, void *closure)
{
    (void)closure;
    report *self = (report *)object;
    if (self->findings == NULL) {
        size_t n = tgd_report_n_findings(self->snapshot->report);
        PyObject *findings = PyTuple_New((Py_ssize_t)n);
        if (findings == NULL) {
            return NULL;
        }
        for (size_t i = 0; i < n; i++) {
            PyObject *finding = tgd_py_row_new(tgd_py_state_of(object)->finding_type, self->snapshot, i, 0);
            if (finding == NULL) {
                Py_DECREF(findings);
                return NULL;
            }
            PyTuple_SET_ITEM(findings, (Py_ssize_t)i, finding);
        }
        /* An allocation above may have run other Python code that asked for the same. */
        Py_XSETREF(self->findings, findings);
    }
    return Py_NewRef(self->findings);
}

/* module.function(args...) with modules that are only imported when somebody needs them. */
static PyObject *imported(const char *module_name, const char *function)
{
    PyObject *module = PyImport_ImportModule(module_name);
    if (module == NULL) {
        return NULL;
    }
    PyObject *result = PyObject_GetAttrString(module, function);
    Py_DECREF(module);
    return result;
}

static PyObject *report_timeline(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_timeline(tgd_py_state_of(object), ((report *)object)->snapshot);
}

PyDoc_STRVAR(diff_doc,
             "diff($self, other, /)\n--\n\n"
             "What changed from this report to the other one, as a Difference: nodes that came and went, times,\n"
             "gradients and findings. str() of it is the text.");

static PyObject *report_diff(PyObject *object, PyObject *other)
{
    if (Py_TYPE(other) != Py_TYPE(object)) {
        return PyErr_Format(PyExc_TypeError, "other: expected a torchgraphdbg.Report, got %.200s",
                            Py_TYPE(other)->tp_name);
    }
    PyObject *make = imported("torchgraphdbg._diff", "Difference");
    PyObject *difference = make == NULL ? NULL : PyObject_CallFunctionObjArgs(make, object, other, NULL);
    Py_XDECREF(make);
    return difference;
}

static PyObject *report_summary(PyObject *object, void *closure)
{
    (void)closure;
    tgd_summary s;
    tgd_report_summary(((report *)object)->snapshot->report, &s);
    const struct {
        const char *name;
        unsigned long long value;
    } numbers[] = {
        {"nodes", s.n_nodes},
        {"edges", s.n_edges},
        {"null_edges", s.n_null_edges},
        {"roots", s.n_roots},
        {"leaves", s.n_leaves},
        {"depth", s.depth},
        {"saved_tensors", s.n_saved},
        {"saved_bytes", s.saved_bytes},
        {"leaf_bytes", s.leaf_bytes},
        {"executed", s.n_executed},
        {"executed_to_error", s.n_executed_to_error},
        {"parameters", s.n_parameters},
        {"parameters_reached", s.n_parameters_reached},
        {"parameters_frozen", s.n_parameters_frozen},
        {"unchecked", s.n_unchecked},
        {"snapshot_bytes", s.snapshot_bytes},
    };
    PyObject *summary = PyDict_New();
    for (size_t k = 0; summary != NULL && k < sizeof numbers / sizeof numbers[0]; k++) {
        PyObject *value = PyLong_FromUnsignedLongLong(numbers[k].value);
        if (value == NULL || PyDict_SetItemString(summary, numbers[k].name, value) < 0) {
            Py_CLEAR(summary);
        }
        Py_XDECREF(value);
    }
    return summary;
}

PyDoc_STRVAR(to_dict_doc, "to_dict($self, /)\n--\n\n"
                          "The report as plain Python values: what the .json file holds.");

static PyObject *report_to_dict(PyObject *object, PyObject *args)
{
    (void)args;
    PyObject *document = tgd_py_document_bytes(tgd_py_state_of(object), ((report *)object)->snapshot, TGD_FORMAT_JSON);
    if (document == NULL) {
        return NULL;
    }
    PyObject *loads = imported("json", "loads");
    PyObject *result = loads == NULL ? NULL : PyObject_CallOneArg(loads, document);
    Py_XDECREF(loads);
    Py_DECREF(document);
    return result;
}

PyDoc_STRVAR(save_doc,
             "save($self, /, path, *, redact=False, detail='auto', focus=None)\n--\n\n"
             "Write the report to a file. The suffix picks the format: .svg, .html, .json, .gv, .txt, or\n"
             ".trace.json: the timeline of the backward that was recorded, for Perfetto.\n\n"
             "redact leaves of every path only the file's name, in source locations and in sentences, so that\n"
             "the report can be shared. Names of parameters, modules, classes and functions stay.\n\n"
             "detail is how many boxes a picture has: 'auto' (as many as can be read), 'all' (up to 64 ops;\n"
             "ValueError above that) or a number. focus is what it must show: a module's path, a Node or a Finding.\n\n"
             "path is a str, bytes or os.PathLike. The file appears whole or not at all; one that stood\n"
             "there before is replaced only when the new one is complete. Raises ValueError for an unknown\n"
             "suffix and OSError where the file cannot be written.");

static PyObject *report_save(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"path", "redact", "detail", "focus", NULL};
    PyObject *path, *detail = NULL, *focus = NULL;
    tgd_view view;
    int redact = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$pOO:save", names, &path, &redact, &detail, &focus)) {
        return NULL;
    }
    const tgd_py_state *state = tgd_py_state_of(object);
    tgd_py_path target;
    if (tgd_py_view_read(state, &view, detail, focus, ((report *)object)->snapshot) < 0 ||
        tgd_py_path_read(state, &target, "path", path) < 0) {
        return NULL;
    }
    const tgd_py_snapshot *snapshot = ((report *)object)->snapshot;
    tgd_py_snapshot redacted = {.report = NULL};
    int failed = redact ? tgd_py_snapshot_redact(&redacted, state, snapshot) : 0;
    if (failed == 0) {
        failed = tgd_py_path_save(state, &target, redact ? &redacted : snapshot, &view);
    }
    tgd_report_free(redacted.report);
    tgd_py_path_clear(&target);
    if (failed < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *report_str(PyObject *object)
{
    return tgd_py_document_str(tgd_py_state_of(object), ((report *)object)->snapshot, TGD_FORMAT_TEXT);
}

static PyObject *report_repr(PyObject *object)
{
    PyObject *verdict = report_verdict(object, NULL);
    if (verdict == NULL) {
        return NULL;
    }
    PyObject *repr = PyUnicode_FromFormat("<torchgraphdbg.Report: %U>", verdict);
    Py_DECREF(verdict);
    return repr;
}

PyDoc_STRVAR(repr_svg_doc, "_repr_svg_($self, /)\n--\n\nThe picture, for notebooks.");

static PyObject *report_repr_svg(PyObject *object, PyObject *args)
{
    (void)args;
    return tgd_py_document_str(tgd_py_state_of(object), ((report *)object)->snapshot, TGD_FORMAT_SVG);
}

PyDoc_STRVAR(repr_html_doc, "_repr_html_($self, /)\n--\n\nThe picture as an image element, for notebooks.");

/* An image and not inline SVG: its styles and ids cannot meet those of the page or of another output, a browser runs
   nothing inside it, and it scales to the cell's width. */
static PyObject *report_repr_html(PyObject *object, PyObject *args)
{
    (void)args;
    PyObject *encode = NULL, *options = NULL, *encoded = NULL, *base64 = NULL;
    PyObject *escape = NULL, *verdict = NULL, *alt = NULL, *html = NULL;
    PyObject *picture =
        tgd_py_document_bytes(tgd_py_state_of(object), ((report *)object)->snapshot, TGD_FORMAT_SVG);
    PyObject *positional = picture == NULL ? NULL : PyTuple_Pack(1, picture);
    if (positional == NULL || (encode = imported("binascii", "b2a_base64")) == NULL ||
        (options = Py_BuildValue("{s:O}", "newline", Py_False)) == NULL ||
        (encoded = PyObject_Call(encode, positional, options)) == NULL ||
        (base64 = PyUnicode_FromEncodedObject(encoded, "ascii", "strict")) == NULL ||
        (escape = imported("html", "escape")) == NULL || (verdict = report_verdict(object, NULL)) == NULL ||
        (alt = PyObject_CallOneArg(escape, verdict)) == NULL) {
        goto done;
    }
    html = PyUnicode_FromFormat("<img alt=\"%U\" style=\"max-width: 100%%\" src=\"data:image/svg+xml;base64,%U\">", alt,
                                base64);
done:
    Py_XDECREF(picture);
    Py_XDECREF(positional);
    Py_XDECREF(encode);
    Py_XDECREF(options);
    Py_XDECREF(encoded);
    Py_XDECREF(base64);
    Py_XDECREF(escape);
    Py_XDECREF(verdict);
    Py_XDECREF(alt);
    return html;
}

static PyGetSetDef report_getset[] = {
    {"verdict", report_verdict, NULL, "One sentence that says whether backward will work.", NULL},
    {"findings", report_findings, NULL, "What is wrong or worth knowing, most important first.", NULL},
    {"ok", report_ok, NULL, "No error and no warning among the findings.", NULL},
    {"graph", report_graph, NULL, "The graph as it stood.", NULL},
    {"summary", report_summary, NULL, "Counts and sizes: nodes, depth, saved bytes, parameters reached.", NULL},
    {"timeline", report_timeline, NULL, "A Span for each node that ran in the backward that was recorded, in the order in\n"
                                        "which they began; None where none was.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef report_methods[] = {
    {"diff", report_diff, METH_O, diff_doc},
    {"to_dict", report_to_dict, METH_NOARGS, to_dict_doc},
    {"save", (PyCFunction)(void (*)(void))report_save, METH_VARARGS | METH_KEYWORDS, save_doc},
    {"_repr_svg_", report_repr_svg, METH_NOARGS, repr_svg_doc},
    {"_repr_html_", report_repr_html, METH_NOARGS, repr_html_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(report_doc, "What backward would meet. A snapshot: it holds no tensor and never changes, any thread may\n"
                         "read it. str(report) is the text report.");

static PyType_Slot report_slots[] = {
    {Py_tp_doc, (void *)report_doc},
    {Py_tp_dealloc, (void *)report_dealloc},
    {Py_tp_traverse, (void *)report_traverse},
    {Py_tp_clear, (void *)report_clear},
    {Py_tp_repr, (void *)report_repr},
    {Py_tp_str, (void *)report_str},
    {Py_tp_getset, report_getset},
    {Py_tp_methods, report_methods},
    {0, NULL},
};

PyType_Spec tgd_py_report_spec = {
    .name = "torchgraphdbg.Report",
    .basicsize = sizeof(report),
    .flags = TGD_PY_TYPE_FLAGS,
    .slots = report_slots,
};
