#include "document.h"
#include "row.h"
#include "source_location_object.h"

static tgd_finding_info info_of(PyObject *object)
{
    const tgd_py_row *self = (const tgd_py_row *)object;
    tgd_finding_info info;
    tgd_report_finding(self->snapshot->report, self->node, &info);
    return info;
}

static PyObject *finding_kind(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_str(tgd_finding_slug(info_of(object).kind));
}

static PyObject *finding_severity(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_str(tgd_severity_slug(info_of(object).severity));
}

static PyObject *words_of(PyObject *object, tgd_py_words words)
{
    const tgd_py_row *self = (const tgd_py_row *)object;
    return tgd_py_words_str(words, self->snapshot->report, self->node);
}

static PyObject *finding_message(PyObject *object, void *closure)
{
    (void)closure;
    return words_of(object, tgd_report_finding_message);
}

static PyObject *finding_hint(PyObject *object, void *closure)
{
    (void)closure;
    PyObject *hint = words_of(object, tgd_report_finding_hint);
    if (hint != NULL && PyUnicode_GET_LENGTH(hint) == 0) {
        Py_DECREF(hint);
        Py_RETURN_NONE;
    }
    return hint;
}

static PyObject *finding_node(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_node_new(tgd_py_state_of(object), ((tgd_py_row *)object)->snapshot, info_of(object).node);
}

/* Fills *out where the finding is about a saved tensor. */
static int saved_of(PyObject *object, tgd_saved_info *out)
{
    tgd_finding_info info = info_of(object);
    if (info.node == TGD_NONE || info.saved == SIZE_MAX) {
        return 0;
    }
    tgd_report_saved(((tgd_py_row *)object)->snapshot->report, info.node, info.saved, out);
    return 1;
}

static PyObject *finding_saved(PyObject *object, void *closure)
{
    (void)closure;
    tgd_saved_info saved;
    if (!saved_of(object, &saved)) {
        Py_RETURN_NONE;
    }
    return tgd_py_str(saved.name);
}

static PyObject *finding_saved_index(PyObject *object, void *closure)
{
    (void)closure;
    tgd_saved_info saved;
    if (!saved_of(object, &saved) || saved.index < 0) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(saved.index);
}

static PyObject *finding_parameter(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_name(info_of(object).parameter);
}

static PyObject *finding_reason(PyObject *object, void *closure)
{
    (void)closure;
    const char *slug = tgd_reason_slug(info_of(object).reason);
    if (slug == NULL) {
        Py_RETURN_NONE;
    }
    return tgd_py_str(slug);
}

static PyObject *finding_op(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_py_row *self = (const tgd_py_row *)object;
    const char *op = tgd_report_finding_op(self->snapshot->report, self->node);
    if (op == NULL) {
        Py_RETURN_NONE;
    }
    return tgd_py_str(op);
}

static PyObject *finding_where(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_py_row *self = (const tgd_py_row *)object;
    tgd_source_info source;
    if (!tgd_report_finding_where(self->snapshot->report, self->node, &source)) {
        Py_RETURN_NONE;
    }
    return tgd_py_source_location_new(tgd_py_state_of(object), &source);
}

static PyObject *finding_stack(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_py_row *self = (const tgd_py_row *)object;
    return tgd_py_stack_tuple(tgd_py_state_of(object), tgd_report_finding_stack, self->snapshot->report, self->node);
}

static PyObject *finding_repr(PyObject *object)
{
    tgd_finding_info info = info_of(object);
    PyObject *message = words_of(object, tgd_report_finding_message);
    if (message == NULL) {
        return NULL;
    }
    PyObject *repr = PyUnicode_FromFormat("<torchgraphdbg.Finding %s, %s: %.200U%s>", tgd_finding_slug(info.kind),
                                          tgd_severity_slug(info.severity), message,
                                          PyUnicode_GET_LENGTH(message) > 200 ? "..." : "");
    Py_DECREF(message);
    return repr;
}

static PyObject *finding_str(PyObject *object)
{
    tgd_finding_info info = info_of(object);
    PyObject *message = words_of(object, tgd_report_finding_message);
    PyObject *hint = words_of(object, tgd_report_finding_hint);
    PyObject *text = NULL;
    if (message != NULL && hint != NULL) {
        text = PyUnicode_FromFormat("%s: %s: %U%s%U", tgd_severity_slug(info.severity), tgd_finding_slug(info.kind),
                                    message, PyUnicode_GET_LENGTH(hint) > 0 ? "\n  " : "", hint);
    }
    Py_XDECREF(message);
    Py_XDECREF(hint);
    return text;
}

static PyGetSetDef finding_getset[] = {
    {"kind", finding_kind, NULL, "What is wrong, as a slug: \"modified-in-place\".", NULL},
    {"severity", finding_severity, NULL, "\"error\", \"warning\" or \"note\".", NULL},
    {"message", finding_message, NULL, "The finding in words.", NULL},
    {"hint", finding_hint, NULL, "What to do about it, or None.", NULL},
    {"node", finding_node, NULL, "The node that raises or loses the gradient, or None.", NULL},
    {"saved", finding_saved, NULL, "The saved tensor's attribute without _saved_, or None.", NULL},
    {"saved_index", finding_saved_index, NULL, "Its place in a list of saved tensors, or None.", NULL},
    {"parameter", finding_parameter, NULL, "The parameter's name, or None.", NULL},
    {"reason", finding_reason, NULL, "Why a gradient is missing, as a slug, or None.", NULL},
    {"op", finding_op, NULL, "The op that ran at where; None where no recorder was on.", NULL},
    {"where", finding_where, NULL, "The source line to change; None where no recorder was on.", NULL},
    {"stack", finding_stack, NULL, "where, and the lines of the program that led there, innermost first.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(finding_doc, "One thing that is wrong with the graph, or worth knowing. What is absent is None.");

static PyType_Slot finding_slots[] = {
    {Py_tp_doc, (void *)finding_doc},
    {Py_tp_repr, (void *)finding_repr},
    {Py_tp_str, (void *)finding_str},
    {Py_tp_getset, finding_getset},
    TGD_PY_ROW_SLOTS,
    {0, NULL},
};

PyType_Spec tgd_py_finding_spec = {
    .name = "torchgraphdbg.Finding",
    .basicsize = sizeof(tgd_py_row),
    .flags = TGD_PY_TYPE_FLAGS,
    .slots = finding_slots,
};
