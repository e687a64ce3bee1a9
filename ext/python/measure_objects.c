/* Node.time, Node.gradient and Report.timeline: what was measured, in Python's terms and in seconds. */
#include "document.h"
#include "measure_objects.h"
#include "report.h"

static const tgd_report *report_of(PyObject *object)
{
    return ((tgd_py_row *)object)->snapshot->report;
}

static PyObject *seconds(uint64_t ns)
{
    return PyFloat_FromDouble((double)ns / 1e9);
}

static PyObject *seconds_or_none(uint64_t ns, bool known)
{
    return known ? seconds(ns) : Py_NewRef(Py_None);
}

/* ---- Span: one node that ran ---- */

static const tgd_span *span_of(PyObject *object)
{
    return &report_of(object)->measures->spans[((tgd_py_row *)object)->place];
}

/* NULL for a node inside another one. */
static const tgd_measure_row *row_of(PyObject *object)
{
    const tgd_span *span = span_of(object);
    return span->in_graph == TGD_NONE ? NULL : &report_of(object)->measures->nodes[span->in_graph];
}

static PyObject *span_name(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_str(span_of(object)->name);
}

static PyObject *span_node(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_node_new(tgd_py_state_of(object), ((tgd_py_row *)object)->snapshot, span_of(object)->in_graph);
}

static PyObject *span_thread(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(span_of(object)->thread);
}

static PyObject *span_depth(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLong(span_of(object)->depth);
}

static PyObject *span_began(PyObject *object, void *closure)
{
    (void)closure;
    return seconds(span_of(object)->began - report_of(object)->measures->began);
}

static PyObject *span_ended(PyObject *object, void *closure)
{
    (void)closure;
    return seconds(span_of(object)->ended - report_of(object)->measures->began);
}

static PyObject *span_self(PyObject *object, void *closure)
{
    (void)closure;
    return seconds(span_of(object)->self_ns);
}

static PyObject *span_total(PyObject *object, void *closure)
{
    (void)closure;
    return seconds(span_of(object)->total_ns);
}

static PyObject *span_after(PyObject *object, void *closure)
{
    (void)closure;
    return seconds(span_of(object)->after_ns);
}

static PyObject *span_device(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_device_time *time = &span_of(object)->on_device;
    return seconds_or_none(time->ended - time->began, time->known);
}

static PyObject *span_queued(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_device_time *time = &span_of(object)->on_device;
    return seconds_or_none(time->queued, time->known);
}

static PyObject *span_stream(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_device_time *time = &span_of(object)->on_device;
    return time->known ? PyLong_FromUnsignedLongLong(time->stream) : Py_NewRef(Py_None);
}

static PyObject *span_first_use(PyObject *object, void *closure)
{
    (void)closure;
    return PyBool_FromLong(span_of(object)->first_use);
}

static PyObject *span_raised(PyObject *object, void *closure)
{
    (void)closure;
    return PyBool_FromLong(span_of(object)->threw);
}

static PyObject *span_repeats(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_measure_row *row = row_of(object);
    return PyLong_FromUnsignedLong(row == NULL ? 1 : row->repeats);
}

static PyObject *span_median(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_measure_row *row = row_of(object);
    return seconds(row == NULL ? span_of(object)->self_ns : row->median_self_ns);
}

static PyObject *span_repr(PyObject *object)
{
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    tgd_text_str(&words, "<torchgraphdbg.Span ");
    tgd_text_line(&words, span_of(object)->name, 80);
    tgd_text_str(&words, ", ");
    tgd_text_duration(&words, span_of(object)->self_ns);
    tgd_text_bytes(&words, ">", 2);
    PyObject *repr = words.status == TGD_OK ? tgd_py_str(words.bytes) : PyErr_NoMemory();
    tgd_text_drop(&words);
    return repr;
}

static PyGetSetDef span_getset[] = {
    {"name", span_name, NULL, "As Node.name.", NULL},
    {"node", span_node, NULL, "The Node; None for one inside another node: of a nested backward.", NULL},
    {"thread", span_thread, NULL, "The thread that it ran on, as torch counts them.", NULL},
    {"depth", span_depth, NULL, "How many nodes ran around it on its thread.", NULL},
    {"began", span_began, NULL, "Seconds after the call of backward.", NULL},
    {"ended", span_ended, NULL, "Seconds after the call of backward.", NULL},
    {"self", span_self, NULL, "Seconds it took on the host, without the nodes inside it.", NULL},
    {"total", span_total, NULL, "Seconds it took on the host, with the nodes inside it.", NULL},
    {"after", span_after, NULL, "Of these, seconds after it ended: hooks, sums of gradients, freed memory.", NULL},
    {"device", span_device, NULL, "Seconds it took on its device; None on the CPU, or where that is not known.", NULL},
    {"queued", span_queued, NULL, "Seconds its work waited for the device; None on the CPU.", NULL},
    {"stream", span_stream, NULL, "The device's stream; None on the CPU.", NULL},
    {"first_use", span_first_use, NULL, "The first of its type, dtype, device and shape: may include one-time costs.",
     NULL},
    {"raised", span_raised, NULL, "It raised.", NULL},
    {"repeats", span_repeats, NULL, "How often nodes of its name, module and line were timed.", NULL},
    {"median", span_median, NULL, "Seconds they took in the median: on the device, else as self.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot span_slots[] = {
    {Py_tp_doc, (void *)"When one node ran, and how long. Without what torchgraphdbg did itself meanwhile."},
    {Py_tp_repr, (void *)span_repr},
    {Py_tp_getset, span_getset},
    TGD_PY_ROW_SLOTS,
    {0, NULL},
};

PyType_Spec tgd_py_span_spec = {
    .name = "torchgraphdbg.Span",
    .basicsize = sizeof(tgd_py_row),
    .flags = TGD_PY_TYPE_FLAGS,
    .slots = span_slots,
};

/* ---- Gradient ---- */

enum { POOLED = UINT32_MAX }; /* place: all inputs of the node */

/* What there is to say of one input, or of all of a node. */
typedef struct facts {
    tgd_statistics values;
    const char *unchecked;
    bool measured, received, coarse;
    uint32_t n_edges;
} facts;

static facts facts_of(PyObject *object)
{
    const tgd_py_row *self = (const tgd_py_row *)object;
    const tgd_report *report = report_of(object);
    const tgd_measures *measures = report->measures;
    const tgd_node_row *node = &report->graph.nodes[self->node];
    if (self->place != POOLED) {
        const tgd_gradient *one = &measures->inputs[node->first_input + self->place];
        return (facts){one->values, one->unchecked, one->measured, one->received, one->coarse, one->n_edges};
    }
    facts all = {.values = measures->nodes[self->node].gradient, .measured = measures->nodes[self->node].measured};
    for (uint32_t i = node->first_input; i < node->first_input + node->n_inputs; i++) {
        const tgd_gradient *one = &measures->inputs[i];
        all.received = all.received || one->received;
        all.coarse = all.coarse || one->coarse;
        all.n_edges += one->n_edges;
        all.unchecked = all.unchecked == NULL && one->received ? one->unchecked : all.unchecked;
    }
    all.unchecked = all.unchecked == NULL && !all.received ? "no tensor" : all.unchecked;
    return all;
}

static PyObject *real_or_none(PyObject *object, double (*of)(const tgd_statistics *))
{
    facts f = facts_of(object);
    return f.measured ? PyFloat_FromDouble(of(&f.values)) : Py_NewRef(Py_None);
}

static double norm(const tgd_statistics *s)
{
    return s->norm;
}

static double absmax(const tgd_statistics *s)
{
    return s->absmax;
}

static double mean(const tgd_statistics *s)
{
    return tgd_statistics_mean(s);
}

static PyObject *gradient_norm(PyObject *object, void *closure)
{
    (void)closure;
    return real_or_none(object, norm);
}

static PyObject *gradient_rms(PyObject *object, void *closure)
{
    (void)closure;
    return real_or_none(object, tgd_statistics_rms);
}

static PyObject *gradient_mean(PyObject *object, void *closure)
{
    (void)closure;
    return real_or_none(object, mean);
}

static PyObject *gradient_absmax(PyObject *object, void *closure)
{
    (void)closure;
    return real_or_none(object, absmax);
}

static PyObject *gradient_absmin(PyObject *object, void *closure)
{
    (void)closure;
    facts f = facts_of(object);
    return f.measured && !f.coarse ? PyFloat_FromDouble(f.values.absmin) : Py_NewRef(Py_None);
}

static PyObject *count_or_none(uint64_t count, bool known)
{
    return known ? PyLong_FromUnsignedLongLong(count) : Py_NewRef(Py_None);
}

static PyObject *gradient_numel(PyObject *object, void *closure)
{
    (void)closure;
    facts f = facts_of(object);
    return count_or_none(f.values.n, f.measured);
}

static PyObject *gradient_nan(PyObject *object, void *closure)
{
    (void)closure;
    facts f = facts_of(object);
    return count_or_none(f.values.n_nan, f.measured);
}

static PyObject *gradient_inf(PyObject *object, void *closure)
{
    (void)closure;
    facts f = facts_of(object);
    return count_or_none(f.values.n_inf, f.measured);
}

static PyObject *gradient_zeros(PyObject *object, void *closure)
{
    (void)closure;
    facts f = facts_of(object);
    return count_or_none(f.values.n_zero, f.measured);
}

static PyObject *gradient_underflowed(PyObject *object, void *closure)
{
    (void)closure;
    facts f = facts_of(object);
    return count_or_none(f.values.n_subnormal, f.measured && !f.coarse);
}

static PyObject *gradient_unchecked(PyObject *object, void *closure)
{
    (void)closure;
    facts f = facts_of(object);
    return tgd_py_name(f.unchecked);
}

static PyObject *gradient_edges(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLong(facts_of(object).n_edges);
}

static PyObject *gradient_repr(PyObject *object)
{
    facts f = facts_of(object);
    if (!f.measured) {
        return PyUnicode_FromFormat("<torchgraphdbg.Gradient unchecked: %s>", f.unchecked == NULL ? "?" : f.unchecked);
    }
    char *norm_text = PyOS_double_to_string(f.values.norm, 'g', 4, 0, NULL);
    PyObject *repr = norm_text == NULL
                         ? PyErr_NoMemory()
                         : PyUnicode_FromFormat("<torchgraphdbg.Gradient norm %s, %llu elements, %llu zero, %llu nan, "
                                                "%llu inf>", norm_text, (unsigned long long)f.values.n,
                                                (unsigned long long)f.values.n_zero,
                                                (unsigned long long)f.values.n_nan,
                                                (unsigned long long)f.values.n_inf);
    PyMem_Free(norm_text);
    return repr;
}

static PyGetSetDef gradient_getset[] = {
    {"norm", gradient_norm, NULL, "Over the finite elements, as the next ones; None where they were not looked at.",
     NULL},
    {"rms", gradient_rms, NULL, "Root of the mean square: comparable between tensors of different size.", NULL},
    {"mean", gradient_mean, NULL, "Of a complex gradient: of its real part.", NULL},
    {"absmax", gradient_absmax, NULL, "Largest magnitude.", NULL},
    {"absmin", gradient_absmin, NULL, "Smallest magnitude that is not zero; None on a device.", NULL},
    {"numel", gradient_numel, NULL, "Elements.", NULL},
    {"nan", gradient_nan, NULL, "How many elements are NaN.", NULL},
    {"inf", gradient_inf, NULL, "How many elements are infinite.", NULL},
    {"zeros", gradient_zeros, NULL, "How many elements are exactly zero.", NULL},
    {"underflowed", gradient_underflowed, NULL,
     "How many are not zero, and below the smallest normal number of the dtype; None on a device.", NULL},
    {"unchecked", gradient_unchecked, NULL, "Why it was not looked at, or None. \"no tensor\": the gradient is None.",
     NULL},
    {"edges", gradient_edges, NULL, "How many edges lead here: what one of them brought is known where it is the only one.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot gradient_slots[] = {
    {Py_tp_doc, (void *)"What the gradient was like that a node received, after the hooks on it."},
    {Py_tp_repr, (void *)gradient_repr},
    {Py_tp_getset, gradient_getset},
    TGD_PY_ROW_SLOTS,
    {0, NULL},
};

PyType_Spec tgd_py_gradient_spec = {
    .name = "torchgraphdbg.Gradient",
    .basicsize = sizeof(tgd_py_row),
    .flags = TGD_PY_TYPE_FLAGS,
    .slots = gradient_slots,
};

/* ---- where they are found ---- */

PyObject *tgd_py_node_time(const tgd_py_state *state, tgd_py_snapshot *snapshot, tgd_node node)
{
    const tgd_measures *measures = snapshot->report->measures;
    if (measures == NULL || !measures->nodes[node].timed) {
        Py_RETURN_NONE;
    }
    return tgd_py_row_new(state->span_type, snapshot, node, measures->nodes[node].span);
}

PyObject *tgd_py_node_gradient(const tgd_py_state *state, tgd_py_snapshot *snapshot, tgd_node node)
{
    const tgd_measures *measures = snapshot->report->measures;
    if (measures == NULL || !measures->statistics || !measures->nodes[node].timed) {
        Py_RETURN_NONE;
    }
    return tgd_py_row_new(state->gradient_type, snapshot, node, POOLED);
}

PyObject *tgd_py_input_gradient(const tgd_py_state *state, tgd_py_snapshot *snapshot, tgd_node node, size_t input)
{
    const tgd_report *report = snapshot->report;
    if (report->measures == NULL || !report->measures->statistics || !report->measures->nodes[node].timed ||
        input >= report->graph.nodes[node].n_inputs) {
        Py_RETURN_NONE;
    }
    return tgd_py_row_new(state->gradient_type, snapshot, node, input);
}

PyObject *tgd_py_timeline(const tgd_py_state *state, tgd_py_snapshot *snapshot)
{
    const tgd_measures *measures = snapshot->report->measures;
    if (measures == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *timeline = PyTuple_New((Py_ssize_t)measures->n_spans);
    for (uint32_t i = 0; timeline != NULL && i < measures->n_spans; i++) {
        const tgd_node node = measures->spans[i].in_graph;
        PyObject *span = tgd_py_row_new(state->span_type, snapshot, node == TGD_NONE ? 0 : node, i);
        if (span == NULL) {
            Py_CLEAR(timeline);
        } else {
            PyTuple_SET_ITEM(timeline, (Py_ssize_t)i, span);
        }
    }
    return timeline;
}
