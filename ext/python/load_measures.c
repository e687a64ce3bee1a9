#include "load_measures.h"

#include <math.h>
#include <stdlib.h>

typedef struct loading {
    tgd_py_document_reader *in; /* Borrowed */
    tgd_restorer *restorer;     /* Borrowed */
    tgd_measures *measures;     /* Borrowed from the report */
} loading;

/* As long as the report's graph. NULL with an exception. */
static const char *kept(const loading *l, const char *string)
{
    uint32_t index;
    tgd_error err = {.status = TGD_OK};
    tgd_status status = tgd_restore_string(l->restorer, string, &index, &err);
    if (status != TGD_OK) {
        tgd_py_refused(l->in, status, &err);
        return NULL;
    }
    return l->restorer->report->graph.strings[index];
}

/* Not negative; NaN for null. */
static int real(const loading *l, PyObject *object, const char *key, bool positive, double *out)
{
    PyObject *value = tgd_py_member(l->in, object, key);
    if (value == NULL) {
        return -1;
    }
    *out = NAN;
    if (value == Py_None) {
        return 0;
    }
    if (!PyFloat_Check(value) && !(PyLong_Check(value) && !PyBool_Check(value))) {
        return tgd_py_wrong(l->in, key, "a number or null", value);
    }
    *out = PyFloat_AsDouble(value);
    if (PyErr_Occurred()) {
        return -1;
    }
    return positive && *out < 0 ? tgd_py_wrong(l->in, key, "a number that is not negative, or null", value) : 0;
}

static int count(const loading *l, PyObject *object, const char *key, uint64_t *out)
{
    return tgd_py_member_number(l->in, object, key, UINT64_MAX >> 1, out);
}

/* ---- spans ---- */

static int load_device(const loading *l, PyObject *item, tgd_device_time *out)
{
    PyObject *object;
    uint64_t device, began, ended;
    if (tgd_py_member_object(l->in, item, "on_device", true, &object) < 0) {
        return -1;
    }
    if (object == NULL) {
        return 0;
    }
    /* a clock's error may put the beginning before the call of backward: then it is that call's */
    const char *stream;
    PyObject *began_at = tgd_py_member(l->in, object, "began");
    if (began_at == NULL) {
        return -1;
    }
    long long early = PyLong_Check(began_at) ? PyLong_AsLongLong(began_at) : 0;
    PyErr_Clear();
    if ((early >= 0 && count(l, object, "began", &began) < 0) || count(l, object, "ended", &ended) < 0 ||
        tgd_py_member_number(l->in, object, "device", INT32_MAX, &device) < 0 ||
        tgd_py_member_text(l->in, object, "stream", false, &stream) < 0 || count(l, object, "queued", &out->queued) < 0 ||
        count(l, object, "uncertainty", &out->uncertainty) < 0) {
        return -1;
    }
    out->began = early < 0 ? 0 : began;
    out->ended = ended > out->began ? ended : out->began;
    out->device = (int)device;
    out->stream = strtoull(stream, NULL, 10);
    out->known = true;
    return 0;
}

static int load_span(const loading *l, PyObject *item, uint32_t place)
{
    tgd_measures *measures = l->measures;
    tgd_span *span = &measures->spans[place];
    const char *name;
    uint64_t depth, repeats, median;
    if (tgd_py_member_text(l->in, item, "name", false, &name) < 0 ||
        tgd_py_member_index(l->in, item, "node", &span->in_graph) < 0 || count(l, item, "thread", &span->thread) < 0 ||
        tgd_py_member_number(l->in, item, "depth", UINT32_MAX, &depth) < 0 || count(l, item, "began", &span->began) < 0 ||
        count(l, item, "ended", &span->ended) < 0 || count(l, item, "self", &span->self_ns) < 0 ||
        count(l, item, "total", &span->total_ns) < 0 || count(l, item, "after", &span->after_ns) < 0 ||
        count(l, item, "median", &median) < 0 || tgd_py_member_number(l->in, item, "repeats", UINT32_MAX, &repeats) < 0 ||
        tgd_py_member_flag(l->in, item, "first_use", &span->first_use) < 0 ||
        tgd_py_member_flag(l->in, item, "raised", &span->threw) < 0 || load_device(l, item, &span->on_device) < 0 ||
        (span->name = kept(l, name)) == NULL) {
        return -1;
    }
    if (span->ended < span->began) {
        return tgd_py_wrong(l->in, "ended", "a time after \"began\"", PyDict_GetItemString(item, "ended"));
    }
    span->depth = (uint32_t)depth;
    if (span->in_graph == TGD_NONE) {
        return 0;
    }
    if (span->in_graph >= measures->n_nodes || measures->nodes[span->in_graph].timed) {
        return tgd_py_wrong(l->in, "node", "a node of this graph that no other span has",
                            PyDict_GetItemString(item, "node"));
    }
    tgd_measures_fill_node(measures, &l->restorer->report->graph, span->in_graph, place);
    measures->nodes[span->in_graph].repeats = (uint32_t)repeats;
    measures->nodes[span->in_graph].median_self_ns = median;
    return 0;
}

/* ---- gradients ---- */

static int load_gradient(const loading *l, PyObject *item, uint32_t place)
{
    tgd_gradient *out = &l->measures->inputs[place];
    tgd_statistics *s = &out->values;
    if (item == Py_None) {
        return 0;
    }
    if (PyDict_Check(item) && PyDict_GetItemString(item, "unchecked") != NULL) {
        const char *unchecked;
        return tgd_py_member_flag(l->in, item, "received", &out->received) < 0 ||
                       tgd_py_member_text(l->in, item, "unchecked", false, &unchecked) < 0 ||
                       (out->unchecked = kept(l, unchecked)) == NULL
                   ? -1
                   : 0;
    }
    uint64_t underflowed;
    if (count(l, item, "elements", &s->n) < 0 || count(l, item, "nan", &s->n_nan) < 0 ||
        count(l, item, "inf", &s->n_inf) < 0 || count(l, item, "zeros", &s->n_zero) < 0 ||
        tgd_py_member_number_or(l->in, item, "underflowed", UINT64_MAX >> 1, UINT64_MAX, &underflowed) < 0 ||
        real(l, item, "norm", true, &s->norm) < 0 || real(l, item, "absmax", true, &s->absmax) < 0 ||
        real(l, item, "absmin", true, &s->absmin) < 0 || real(l, item, "sum", false, &s->sum) < 0 ||
        real(l, item, "sum_imaginary", false, &s->sum_imaginary) < 0) {
        return -1;
    }
    if (s->n_nan > s->n || s->n_inf > s->n - s->n_nan || s->n_zero > s->n - s->n_nan - s->n_inf) {
        return tgd_py_wrong(l->in, "elements", "at least as many as are NaN, infinite and zero",
                            PyDict_GetItemString(item, "elements"));
    }
    out->coarse = underflowed == UINT64_MAX;
    s->n_subnormal = out->coarse ? 0 : underflowed;
    out->received = out->measured = true;
    return 0;
}

/* ---- the whole ---- */

static int load_list(const loading *l, PyObject *items, const char *name,
                     int (*load_item)(const loading *l, PyObject *item, uint32_t place))
{
    int result = 0;
    l->in->list = name;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items) && result == 0; i++) {
        l->in->index = i;
        result = load_item(l, PyList_GET_ITEM(items, i), (uint32_t)i);
    }
    l->in->list = NULL;
    return result;
}

static tgd_measures *new_measures(const tgd_graph *graph, size_t n_spans)
{
    tgd_measures *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    *made = (tgd_measures){.shares = 1, .n_nodes = graph->n_nodes, .n_inputs = graph->n_inputs,
                           .n_spans = (uint32_t)n_spans};
    made->nodes = calloc((size_t)graph->n_nodes + 1, sizeof *made->nodes);
    made->inputs = calloc((size_t)graph->n_inputs + 1, sizeof *made->inputs);
    made->spans = calloc(n_spans + 1, sizeof *made->spans);
    if (made->nodes == NULL || made->inputs == NULL || made->spans == NULL) {
        tgd_measures_free(made);
        return NULL;
    }
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        made->nodes[v].span = TGD_NONE;
    }
    return made;
}

static int fill(const loading *l, PyObject *object, PyObject *spans, PyObject *gradients)
{
    tgd_measures *measures = l->measures;
    const char *trouble;
    if (count(l, object, "duration", &measures->ended) < 0 ||
        tgd_py_member_number(l->in, object, "ours", measures->ended, &measures->ours) < 0 ||
        count(l, object, "thread", &measures->thread) < 0 ||
        count(l, object, "dropped", &measures->dropped) < 0 ||
        tgd_py_member_flag(l->in, object, "statistics", &measures->statistics) < 0 ||
        tgd_py_member_text(l->in, object, "trouble", true, &trouble) < 0 ||
        (trouble != NULL && (measures->trouble = kept(l, trouble)) == NULL) ||
        load_list(l, gradients, "measures.gradients", load_gradient) < 0 ||
        load_list(l, spans, "measures.spans", load_span) < 0) {
        return -1;
    }
    tgd_measures_count_edges(measures, &l->restorer->report->graph);
    return 0;
}

int tgd_py_load_measures(tgd_py_document_reader *reader, PyObject *document, tgd_restorer *restorer)
{
    PyObject *object, *spans, *gradients;
    const tgd_graph *graph = &restorer->report->graph;
    if (PyDict_GetItemString(document, "measures") == NULL) {
        return 0;
    }
    if (tgd_py_member_object(reader, document, "measures", true, &object) < 0 || object == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    if (tgd_py_member_list(reader, object, "spans", &spans) < 0 ||
        tgd_py_member_list(reader, object, "gradients", &gradients) < 0) {
        return -1;
    }
    if (PyList_GET_SIZE(gradients) != (Py_ssize_t)graph->n_inputs || PyList_GET_SIZE(spans) >= TGD_NONE) {
        return tgd_py_wrong(reader, "measures.gradients", "one for each input of each node", gradients);
    }
    loading l = {reader, restorer, new_measures(graph, (size_t)PyList_GET_SIZE(spans))};
    if (l.measures == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    restorer->report->measures = l.measures;
    return fill(&l, object, spans, gradients);
}
