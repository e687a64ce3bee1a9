#include "attempt.h"

#include "arguments.h"
#include "auto_recording.h"
#include "frames.h"
#include "grad_state.h"
#include "measuring.h"
#include "recorder_measures.h"
#include "python_shim.h"
#include "report_object.h"
#include "watch_object.h"

/* The arguments of run_backward() and _make_grads() by place or by name. Borrowed; NULL where it was not given. */
static PyObject *argument(PyObject *args, PyObject *keywords, Py_ssize_t place, const char *name)
{
    if (place < PyTuple_GET_SIZE(args)) {
        return PyTuple_GET_ITEM(args, place);
    }
    return keywords == NULL ? NULL : PyDict_GetItemString(keywords, name);
}

static int is_true(PyObject *flag)
{
    int is = flag == NULL ? 0 : PyObject_IsTrue(flag);
    PyErr_Clear();
    return is == 1;
}

/* ---- reports ---- */

PyObject *tgd_py_attempt_report(const tgd_py_state *state, PyObject *params, const tgd_py_attempt *a)
{
    tgd_py_arguments arguments;
    PyObject *report = NULL;
    if (tgd_py_arguments_read(&arguments, a->roots, params, a->inputs, a->create_graph) == 0) {
        if (a->refused != NULL) {
            arguments.request.roots = a->refused;
            arguments.request.n_roots = 1;
        }
        arguments.request.captures = a->captures;
        arguments.request.refusal = a->refusal;
        arguments.request.values = a->values;
        arguments.request.attempted = a->refusal == NULL;
        report = tgd_py_report_new(state, &arguments.request, TGD_PY_BY_A_STEP);
    }
    tgd_py_arguments_clear(&arguments);
    return report;
}

PyObject *tgd_py_attempt_rejudged(const tgd_py_state *state, PyObject *params, PyObject *report,
                                  const tgd_py_attempt *a)
{
    tgd_py_arguments arguments;
    PyObject *judged = NULL;
    if (tgd_py_arguments_read(&arguments, NULL, params, Py_None, a->create_graph) == 0) {
        arguments.request.values = a->values;
        arguments.request.aftermath = a->aftermath;
        judged = tgd_py_report_rejudged(state, report, &arguments.request);
    }
    tgd_py_arguments_clear(&arguments);
    return judged;
}

PyObject *tgd_py_attempt_raised(PyObject *exception)
{
    PyObject *text = PyObject_Str(exception);
    PyObject *raised = text == NULL ? NULL : PyUnicode_FromFormat("%s: %U", Py_TYPE(exception)->tp_name, text);
    Py_XDECREF(text);
    return raised;
}

/* Gives every recorder that is on its report. A new list of those that got one, or NULL; leaves no exception. */
static PyObject *report_to_all(const tgd_py_attempt *a)
{
    PyObject *recorders = tgd_py_recorders(), *told = recorders == NULL ? NULL : PyList_New(0);
    Py_ssize_t n = recorders == NULL ? 0 : PyList_GET_SIZE(recorders);
    for (Py_ssize_t i = 0; told != NULL && i < n; i++) {
        PyObject *recorder = PyList_GET_ITEM(recorders, i), *report;
        report = tgd_py_attempt_report(tgd_py_state_of(recorder), tgd_py_recorder_params(recorder), a);
        if (report == NULL || tgd_py_recorder_add(recorder, report) < 0 || PyList_Append(told, recorder) < 0) {
            tgd_py_recorder_complain(recorder);
        }
        Py_XDECREF(report);
    }
    Py_XDECREF(recorders);
    PyErr_Clear();
    return told;
}

/* Takes the list over, which may be NULL. */
static void all_failed(PyObject *told, PyObject *exception)
{
    for (Py_ssize_t i = 0; told != NULL && i < PyList_GET_SIZE(told); i++) {
        tgd_py_recorder_failed(PyList_GET_ITEM(told, i), exception);
    }
    Py_XDECREF(told);
}

/* What a run raised and what it showed makes a report that was made before say more. Leaves no exception. */
static void tell_ended(PyObject *told, const tgd_py_attempt *a, PyObject *exception, const tgd_aftermath *aftermath)
{
    PyObject *raised = exception == NULL ? NULL : tgd_py_attempt_raised(exception);
    const tgd_values values = {.raised = raised == NULL ? NULL : PyUnicode_AsUTF8(raised)};
    bool more = aftermath->n_events > 0 || values.raised != NULL;
    tgd_py_attempt after = *a;
    after.values = values.raised == NULL ? NULL : &values;
    after.aftermath = aftermath;
    for (Py_ssize_t i = 0; more && told != NULL && i < PyList_GET_SIZE(told); i++) {
        PyObject *recorder = PyList_GET_ITEM(told, i), *newest = tgd_py_recorder_newest(recorder), *judged = NULL;
        if (newest != NULL) {
            Py_INCREF(newest);
            judged = tgd_py_attempt_rejudged(tgd_py_state_of(recorder), tgd_py_recorder_params(recorder), newest, &after);
            if (judged == NULL || tgd_py_recorder_replace(recorder, judged) < 0) {
                tgd_py_recorder_complain(recorder);
            }
            Py_DECREF(newest);
        }
        Py_XDECREF(judged);
    }
    Py_XDECREF(raised);
    PyErr_Clear();
}

/* Takes what was measured over, which may be NULL, as the list may. Leaves no exception. */
static void give_measured(PyObject *told, tgd_pending_run *measured)
{
    PyObject *pending = measured == NULL ? NULL : tgd_py_pending_new(measured);
    for (Py_ssize_t i = 0; pending != NULL && told != NULL && i < PyList_GET_SIZE(told); i++) {
        PyObject *recorder = PyList_GET_ITEM(told, i);
        if (tgd_py_recorder_measured(recorder, pending) < 0) {
            tgd_py_recorder_complain(recorder);
        }
    }
    Py_XDECREF(pending);
    PyErr_Clear();
}

/* ---- backward ---- */

/* From before a backward until after it. */
typedef struct under_way {
    tgd_py_attempt attempt; /* what it borrows is run_backward's, and lives as long as that runs */
    PyObject *told;         /* Owned list of the recorders that have a report, or NULL */
    tgd_py_look *look;      /* Owned: of the watches, or NULL */
} under_way;

/* Only tensors and edges, as backward wants them: what else there is it refuses itself, and says so better. */
static bool are_starts(PyObject *sequence, bool edges)
{
    if (sequence == NULL || !PyTuple_Check(sequence)) {
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sequence); i++) {
        PyObject *item = PyTuple_GET_ITEM(sequence, i);
        const tgd_torch_tensor *tensor;
        const tgd_torch_node *node;
        if (tgd_torch_object(item, &tensor, &node) != TGD_OBJECT_TENSOR && !(edges && PyTuple_Check(item))) {
            return false;
        }
    }
    return true;
}

/* Those that the run starts with. */
static void note_gradients(PyObject *gradients)
{
    for (Py_ssize_t i = 0; gradients != NULL && PyTuple_Check(gradients) && i < PyTuple_GET_SIZE(gradients); i++) {
        const tgd_torch_tensor *tensor;
        const tgd_torch_node *node;
        if (tgd_torch_object(PyTuple_GET_ITEM(gradients, i), &tensor, &node) == TGD_OBJECT_TENSOR) {
            tgd_observe_run_gradient(tensor);
        }
    }
}

/* Tells which nodes a run will take, of a list of tensors and edges. */
static void tell_taken(PyObject *roots, PyObject *inputs, bool captures)
{
    const tgd_torch_node *nodes[64] = {NULL}, **given = nodes;
    Py_ssize_t n_roots = PyTuple_GET_SIZE(roots), n_inputs = inputs == NULL ? 0 : PyTuple_GET_SIZE(inputs);
    size_t n = (size_t)(n_roots + n_inputs);
    if (n > sizeof nodes / sizeof nodes[0] && (given = PyMem_Calloc(n, sizeof *given)) == NULL) {
        return;
    }
    for (Py_ssize_t i = 0; i < n_roots + n_inputs; i++) {
        PyObject *item = i < n_roots ? PyTuple_GET_ITEM(roots, i) : PyTuple_GET_ITEM(inputs, i - n_roots);
        const tgd_torch_tensor *tensor;
        uint32_t output_nr;
        if (PyTuple_Check(item) && PyTuple_GET_SIZE(item) > 0) {
            item = PyTuple_GET_ITEM(item, 0); /* an edge */
        }
        given[i] = NULL;
        if (tgd_torch_object(item, &tensor, &given[i]) == TGD_OBJECT_TENSOR &&
            tgd_torch_tensor_node(tensor, &given[i], &output_nr, NULL) != TGD_OK) {
            given[i] = NULL;
        }
    }
    tgd_observe_run_takes(given, (size_t)n_roots, given + n_roots, (size_t)n_inputs, captures);
    if (given != nodes) {
        PyMem_Free(given);
    }
}

static void *backward(PyObject *args, PyObject *keywords)
{
    PyObject *roots = argument(args, keywords, 0, "tensors"), *inputs = argument(args, keywords, 4, "inputs");
    int keep_graph = is_true(argument(args, keywords, 2, "keep_graph"));
    int create_graph = is_true(argument(args, keywords, 3, "create_graph"));
    tgd_place place;
    tgd_py_frames()->here(&place);
    if (place.via & TGD_VIA_COMPILE) {
        return NULL;
    }
    under_way *run = PyMem_Calloc(1, sizeof *run);
    if (run == NULL) {
        return NULL;
    }
    bool some = inputs != NULL && PyTuple_Check(inputs) && PyTuple_GET_SIZE(inputs) > 0;
    if (!tgd_torch_in_backward() && are_starts(roots, true) && PyTuple_GET_SIZE(roots) > 0 &&
        (!some || are_starts(inputs, false))) {
        run->attempt = (tgd_py_attempt){.roots = roots, .inputs = some ? inputs : Py_None, .create_graph = create_graph,
                                        .captures = !is_true(argument(args, keywords, 6, "accumulate_grad"))};
        run->told = report_to_all(&run->attempt);
        run->look = tgd_py_watch_before(&run->attempt);
    }
    tgd_observe_run(keep_graph, create_graph);
    note_gradients(argument(args, keywords, 1, "grad_tensors"));
    if (!keep_graph && are_starts(roots, true) && (!some || are_starts(inputs, true))) {
        tell_taken(roots, some ? inputs : NULL, !is_true(argument(args, keywords, 6, "accumulate_grad")));
    }
    tgd_measure_run_began();
    return run;
}

static void ended(void *token, PyObject *exception)
{
    under_way *run = token;
    if (run == NULL) {
        return;
    }
    tgd_pending_run *measured = tgd_measure_run_ended(run->told != NULL && PyList_GET_SIZE(run->told) > 0);
    size_t n = 0;
    uint64_t number = tgd_observe_run_ended(exception != NULL);
    tgd_event_row *events = number == 0 ? NULL : tgd_observe_events(number, &n);
    const tgd_aftermath aftermath = {.events = events, .n_events = n};
    tell_ended(run->told, &run->attempt, exception, &aftermath);
    free(events);
    give_measured(run->told, measured);
    if (exception != NULL) {
        all_failed(run->told, exception);
    } else {
        Py_XDECREF(run->told);
    }
    tgd_py_watch_after(run->look, &run->attempt, exception);
    PyMem_Free(run);
}

static void refused(PyObject *args, PyObject *keywords, PyObject *exception)
{
    PyObject *given = argument(args, keywords, 0, "outputs");
    if (exception == NULL || !Py_IS_TYPE(exception, (PyTypeObject *)PyExc_RuntimeError) || tgd_torch_in_backward()) {
        return;
    }
    PyObject *roots = given == NULL ? NULL : PySequence_Tuple(given), *text = PyObject_Str(exception);
    const char *message = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    tgd_refusal refusal = {.message = message};
    tgd_py_frames()->here(&refusal.place);
    if (message != NULL && !(refusal.place.via & TGD_VIA_COMPILE) && are_starts(roots, true) &&
        PyTuple_GET_SIZE(roots) > 0) {
        const tgd_py_attempt a = {.roots = roots, .inputs = Py_None, .refusal = &refusal};
        all_failed(report_to_all(&a), exception);
        tgd_py_watch_refused(&a, exception);
    }
    Py_XDECREF(roots);
    Py_XDECREF(text);
    PyErr_Clear();
}

static void grad_mode(int enabled)
{
    tgd_observe_grad_mode(enabled);
}

static void inference(int began)
{
    tgd_observe_inference(began);
}

static void resizing(PyObject *storage)
{
    uint64_t address = tgd_torch_storage_address(storage);
    if (address != 0) {
        tgd_observe_resize(address);
    }
}

static void swapped(PyObject *object)
{
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    if (tgd_torch_object(object, &tensor, &node) == TGD_OBJECT_TENSOR) {
        tgd_observe_swap(tensor);
    }
}

const tgd_py_watcher *tgd_py_attempt_watcher(void)
{
    static const tgd_py_watcher watcher = {
        .grad_mode = grad_mode, .inference = inference, .resizing = resizing, .swapped = swapped,
        .backward = backward, .ended = ended, .refused = refused};
    return &watcher;
}

/* ---- in-place ops ---- */

static void refused_in_place(void *context, const tgd_torch_tensor *tensor, const tgd_write_row *row)
{
    (void)context;
    /* Inside backward a node may be locked that whoever holds the GIL waits for. */
    if ((row->flags & TGD_OP_IN_BACKWARD) || (row->place.via & TGD_VIA_COMPILE) || !Py_IsInitialized()) {
        return;
    }
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    const tgd_root root = {.tensor = tensor};
    const tgd_refusal refusal = {.write = row, .message = "", .place = row->place};
    const tgd_py_attempt a = {.inputs = Py_None, .refusal = &refusal, .refused = &root};
    all_failed(report_to_all(&a), NULL);
    tgd_py_auto_note_refusal(&root, &refusal);
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(gil);
}

const tgd_observer *tgd_py_attempt_observer(void)
{
    static tgd_observer observer;
    observer.frames = *tgd_py_frames();
    observer.refused = refused_in_place;
    return &observer;
}
