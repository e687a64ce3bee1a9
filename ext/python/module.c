#include "attempt.h"
#include "auto_recording.h"
#include "document.h"
#include "dump.h"
#include "frames.h"
#include "light_patches.h"
#include "load.h"
#include "measure.h"
#include "python_shim.h"
#include "raise.h"
#include "recorder_object.h"
#include "report_object.h"
#include "watch.h"

/* ---- functions ---- */

/* The signature that inspect() and assert_healthy() share. */
static PyObject *inspect_with(PyObject *module, PyObject *args, PyObject *keywords, const char *format)
{
    static char *names[] = {"root", "params", "inputs", "create_graph", NULL};
    PyObject *root, *params = Py_None, *inputs = Py_None;
    int create_graph = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, format, names, &root, &params, &inputs, &create_graph)) {
        return NULL;
    }
    tgd_py_arguments arguments;
    PyObject *report = NULL;
    if (tgd_py_arguments_read(&arguments, root, params, inputs, create_graph) == 0 &&
        (!tgd_py_recording() || tgd_py_arguments_look_around(&arguments) == 0)) {
        report = tgd_py_report_new(PyModule_GetState(module), &arguments.request, TGD_PY_BY_A_PERSON);
    }
    tgd_py_arguments_clear(&arguments);
    return report;
}

PyDoc_STRVAR(inspect_doc,
             "inspect($module, root, *, params=None, inputs=None, create_graph=False)\n--\n\n"
             "Say what backward would meet, without running it. Prints nothing and writes nothing.\n\n"
             "root          a tensor of any shape, a grad_fn node, a GradientEdge, or a sequence of them\n"
             "params        a module, an optimizer, a mapping of names to tensors, or an iterable of\n"
             "              (name, tensor) or of tensors: names the leaves, and asks which of them backward\n"
             "              will not reach\n"
             "inputs        as in backward(inputs=...): only these need a gradient\n"
             "create_graph  as in backward(create_graph=...)\n\n"
             "Runs no hook, changes nothing and keeps no tensor alive.");

static PyObject *py_inspect(PyObject *module, PyObject *args, PyObject *keywords)
{
    return inspect_with(module, args, keywords, "O|$OOp:inspect");
}

PyDoc_STRVAR(assert_healthy_doc,
             "assert_healthy($module, root, *, params=None, inputs=None,\n"
             "               create_graph=False)\n--\n\n"
             "Raise AssertionError with the text report where inspect() finds an error or a warning.");

static PyObject *py_assert_healthy(PyObject *module, PyObject *args, PyObject *keywords)
{
    PyObject *report = inspect_with(module, args, keywords, "O|$OOp:assert_healthy");
    if (report == NULL) {
        return NULL;
    }
    const tgd_py_snapshot *snapshot = tgd_py_report_snapshot(report);
    if (tgd_report_ok(snapshot->report)) {
        Py_DECREF(report);
        Py_RETURN_NONE;
    }
    PyObject *text = tgd_py_document_str(PyModule_GetState(module), snapshot, TGD_FORMAT_TEXT);
    Py_DECREF(report);
    if (text != NULL) {
        PyErr_SetObject(PyExc_AssertionError, text);
        Py_DECREF(text);
    }
    return NULL;
}

PyDoc_STRVAR(built_for_doc, "built_for($module, /)\n--\n\n"
                            "The torch that this extension was built for: its version, a space, its git hash.");

static PyObject *py_built_for(PyObject *module, PyObject *args)
{
    (void)module;
    (void)args;
    return tgd_py_str(tgd_built_for());
}

PyDoc_STRVAR(light_start_doc, "_light_start($module, /)\n--\n\n"
                              "Begin light recording. Counted: each one is undone by one _light_stop().");

static PyObject *py_light_start(PyObject *module, PyObject *args)
{
    (void)args;
    if (tgd_py_patches_watch(tgd_py_attempt_watcher()) < 0) {
        return NULL;
    }
    tgd_error err = {.status = TGD_OK};
    tgd_status status;
    const tgd_observer *observer = tgd_py_attempt_observer();
    Py_BEGIN_ALLOW_THREADS
    status = tgd_observe_start_light(observer, &err);
    Py_END_ALLOW_THREADS
    if (status != TGD_OK) {
        tgd_py_patches_unwatch();
        return tgd_py_raise(PyModule_GetState(module), status, &err, NULL);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(light_stop_doc, "_light_stop($module, /)\n--\n\nEnd light recording.");

static PyObject *py_light_stop(PyObject *module, PyObject *args)
{
    (void)module;
    (void)args;
    Py_BEGIN_ALLOW_THREADS
    tgd_observe_stop_light();
    Py_END_ALLOW_THREADS
    tgd_py_patches_unwatch();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"_light_start", py_light_start, METH_NOARGS, light_start_doc},
    {"_light_stop", py_light_stop, METH_NOARGS, light_stop_doc},
    {"inspect", (PyCFunction)(void (*)(void))py_inspect, METH_VARARGS | METH_KEYWORDS, inspect_doc},
    {"dump", (PyCFunction)(void (*)(void))tgd_py_dump, METH_VARARGS | METH_KEYWORDS, tgd_py_dump_doc},
    {"assert_healthy", (PyCFunction)(void (*)(void))py_assert_healthy, METH_VARARGS | METH_KEYWORDS,
     assert_healthy_doc},
    {"_watch_pretend", tgd_py_watch_pretend, METH_O, NULL},
    {"load", (PyCFunction)(void (*)(void))tgd_py_load, METH_VARARGS | METH_KEYWORDS, tgd_py_load_doc},
    {"auto_start", tgd_py_auto_start, METH_NOARGS, tgd_py_auto_start_doc},
    {"auto_stop", tgd_py_auto_stop, METH_NOARGS, tgd_py_auto_stop_doc},
    {"auto_refused", tgd_py_auto_refused, METH_NOARGS, tgd_py_auto_refused_doc},
    {"built_for", py_built_for, METH_NOARGS, built_for_doc},
    {"_measure", tgd_py_measure, METH_O, NULL},
    {"_statistics", (PyCFunction)(void (*)(void))tgd_py_statistics, METH_VARARGS | METH_KEYWORDS,
     tgd_py_statistics_doc},
    {NULL, NULL, 0, NULL},
};

/* ---- the module ---- */

static int add_types(PyObject *module, tgd_py_state *state)
{
    const struct {
        PyTypeObject **type;
        PyType_Spec *spec;
    } types[] = {
        {&state->report_type, &tgd_py_report_spec},
        {&state->graph_type, &tgd_py_graph_spec},
        {&state->sequence_type, &tgd_py_sequence_spec},
        {&state->node_type, &tgd_py_node_spec},
        {&state->edge_type, &tgd_py_edge_spec},
        {&state->saved_tensor_type, &tgd_py_saved_tensor_spec},
        {&state->input_metadata_type, &tgd_py_input_metadata_spec},
        {&state->finding_type, &tgd_py_finding_spec},
        {&state->source_location_type, &tgd_py_source_location_spec},
        {&state->record_type, &tgd_py_record_spec},
        {&state->watch_type, &tgd_py_watch_spec},
        {&state->span_type, &tgd_py_span_spec},
        {&state->gradient_type, &tgd_py_gradient_spec},
    };
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
        *types[k].type = (PyTypeObject *)PyType_FromModuleAndSpec(module, types[k].spec, NULL);
        if (*types[k].type == NULL || PyModule_AddType(module, *types[k].type) < 0) {
            return -1;
        }
    }
    return 0;
}

/* isinstance(graph.nodes, collections.abc.Sequence) */
static int register_sequence(const tgd_py_state *state)
{
    PyObject *module = PyImport_ImportModule("collections.abc");
    PyObject *abstract = module == NULL ? NULL : PyObject_GetAttrString(module, "Sequence");
    PyObject *registered =
        abstract == NULL ? NULL : PyObject_CallMethod(abstract, "register", "O", (PyObject *)state->sequence_type);
    Py_XDECREF(module);
    Py_XDECREF(abstract);
    Py_XDECREF(registered);
    return registered == NULL ? -1 : 0;
}

static int self_test(void)
{
    tgd_error err = {.status = TGD_OK};
    if (tgd_torch_self_test(&err) == TGD_OK) {
        return 0;
    }
    PyObject *reason = tgd_py_str(err.message);
    if (reason != NULL) {
        PyErr_Format(PyExc_ImportError, "torchgraphdbg does not read this torch right (built for %s): %U",
                     tgd_built_for(), reason);
        Py_DECREF(reason);
    }
    return -1;
}

static int module_exec(PyObject *module)
{
    tgd_py_state *state = PyModule_GetState(module);
    state->torch = PyImport_ImportModule("torch");
    if (state->torch == NULL || self_test() < 0 || tgd_py_frames_init(module) < 0 ||
        tgd_py_light_patches_init() < 0) {
        return -1;
    }
    tgd_torch_set_code_table(tgd_py_frames_code);
    tgd_torch_set_python(tgd_torch_python_hooks());
    state->error = PyErr_NewExceptionWithDoc("torchgraphdbg.Error", "What torch or Graphviz could not do.",
                                             PyExc_RuntimeError, NULL);
    if (state->error == NULL || PyModule_AddObjectRef(module, "Error", state->error) < 0 ||
        add_types(module, state) < 0) {
        return -1;
    }
    return register_sequence(state);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    tgd_py_state *state = PyModule_GetState(module);
    if (state == NULL) {
        return 0; /* not executed yet */
    }
    Py_VISIT(state->error);
    Py_VISIT(state->torch);
    Py_VISIT(state->report_type);
    Py_VISIT(state->graph_type);
    Py_VISIT(state->sequence_type);
    Py_VISIT(state->node_type);
    Py_VISIT(state->edge_type);
    Py_VISIT(state->saved_tensor_type);
    Py_VISIT(state->input_metadata_type);
    Py_VISIT(state->finding_type);
    Py_VISIT(state->source_location_type);
    Py_VISIT(state->record_type);
    Py_VISIT(state->watch_type);
    Py_VISIT(state->span_type);
    Py_VISIT(state->gradient_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    tgd_py_state *state = PyModule_GetState(module);
    if (state == NULL) {
        return 0;
    }
    Py_CLEAR(state->error);
    Py_CLEAR(state->torch);
    Py_CLEAR(state->report_type);
    Py_CLEAR(state->graph_type);
    Py_CLEAR(state->sequence_type);
    Py_CLEAR(state->node_type);
    Py_CLEAR(state->edge_type);
    Py_CLEAR(state->saved_tensor_type);
    Py_CLEAR(state->input_metadata_type);
    Py_CLEAR(state->finding_type);
    Py_CLEAR(state->source_location_type);
    Py_CLEAR(state->record_type);
    Py_CLEAR(state->watch_type);
    Py_CLEAR(state->span_type);
    Py_CLEAR(state->gradient_type);
    return 0;
}

static void module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* libtorch */
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "torchgraphdbg._core",
    .m_doc = "The C side of torchgraphdbg.",
    .m_size = sizeof(tgd_py_state),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
