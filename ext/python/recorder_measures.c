#include "recorder_measures.h"

#include "raise.h"
#include "report.h"
#include "report_object.h"
#include "triage.h"

enum { LONGEST_WAIT = 2000 }; /* for a device, ms */

static const char pending_name[] = "torchgraphdbg.pending_run";

static void pending_free(PyObject *capsule)
{
    tgd_pending_free(PyCapsule_GetPointer(capsule, pending_name));
}

PyObject *tgd_py_pending_new(tgd_pending_run *run)
{
    PyObject *capsule = PyCapsule_New(run, pending_name, pending_free);
    if (capsule == NULL) {
        tgd_pending_free(run);
    }
    return capsule;
}

/* The reports of a recorder, and what is to become of them. */
typedef struct joining {
    Py_ssize_t n;
    PyObject **reports;               /* Borrowed from a list that nobody else has */
    const tgd_report **snapshots;     /* Borrowed from the reports */
    const tgd_measures **had, **made; /* had: Borrowed from the reports; made: Owned, or NULL */
    tgd_measures **all;               /* one of the two */
} joining;

static void joining_clear(joining *j)
{
    for (Py_ssize_t i = 0; j->made != NULL && i < j->n; i++) {
        tgd_measures_free(j->made[i]);
    }
    PyMem_Free(j->reports);
    PyMem_Free(j->snapshots);
    PyMem_Free(j->had);
    PyMem_Free(j->made);
    PyMem_Free(j->all);
}

static int joining_init(joining *j, PyObject *reports)
{
    const size_t n = (size_t)PyList_GET_SIZE(reports);
    *j = (joining){.n = (Py_ssize_t)n};
    j->reports = PyMem_Calloc(n + 1, sizeof *j->reports);
    j->snapshots = PyMem_Calloc(n + 1, sizeof *j->snapshots);
    j->had = PyMem_Calloc(n + 1, sizeof *j->had);
    j->made = PyMem_Calloc(n + 1, sizeof *j->made);
    j->all = PyMem_Calloc(n + 1, sizeof *j->all);
    if (j->reports == NULL || j->snapshots == NULL || j->had == NULL || j->made == NULL || j->all == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < j->n; i++) {
        j->reports[i] = PyList_GET_ITEM(reports, i);
        j->snapshots[i] = tgd_py_report_snapshot(j->reports[i])->report;
        j->had[i] = j->snapshots[i]->measures;
    }
    return 0;
}

static bool any_timed(const tgd_measures *measures)
{
    for (uint32_t v = 0; v < measures->n_nodes; v++) {
        if (measures->nodes[v].timed) {
            return true;
        }
    }
    return false;
}

/* Finds the report on this backward: the oldest that has its nodes, and no measures yet. */
static tgd_status place(joining *j, const tgd_measured_run *run, tgd_error *err)
{
    for (Py_ssize_t i = 0; i < j->n; i++) {
        if (j->had[i] != NULL || j->made[i] != NULL) {
            continue;
        }
        tgd_measures *measures;
        tgd_status status = tgd_measures_join(&measures, &j->snapshots[i]->graph, run, err);
        if (status != TGD_OK) {
            return status;
        }
        if (any_timed(measures)) {
            j->made[i] = measures;
            return TGD_OK;
        }
        tgd_measures_free(measures);
    }
    return TGD_OK; /* its report is gone */
}

/* Without the GIL. runs: of which some may be NULL. */
static tgd_status join_all(joining *j, tgd_pending_run *const *runs, Py_ssize_t n_runs, tgd_report **out, tgd_error *err)
{
    tgd_status status = TGD_OK;
    for (Py_ssize_t k = 0; k < n_runs && status == TGD_OK; k++) {
        const tgd_measured_run *run = tgd_pending_settle(runs[k], LONGEST_WAIT);
        status = run == NULL ? tgd_fail_memory(err) : place(j, run, err);
    }
    for (Py_ssize_t i = 0; i < j->n; i++) {
        j->all[i] = (tgd_measures *)(j->made[i] != NULL ? j->made[i] : j->had[i]);
    }
    for (Py_ssize_t i = 0; i < j->n && status == TGD_OK; i++) {
        if (j->made[i] != NULL) {
            status = tgd_measures_repeat(j->all, j->snapshots, (size_t)j->n, (size_t)i, err);
        }
    }
    const tgd_request again = {.parameters = NULL};
    for (Py_ssize_t i = 0; i < j->n && status == TGD_OK; i++) {
        if (j->made[i] != NULL) {
            tgd_report_measure(j->snapshots[i], j->made[i]);
            status = tgd_report_rejudge(&out[i], j->snapshots[i], &again, err);
        }
    }
    return status;
}

/* Do the measures say anything? Else the report stays as it was said, with what was alive then. */
static bool says_more(const tgd_report *made)
{
    for (uint32_t i = 0; i < made->n_findings; i++) {
        if (tgd_is_triage(&made->findings[i])) {
            return true;
        }
    }
    return false;
}

/* Where the same report still stands in the list, the new one takes its place. Takes `made` over. */
static int replace(const tgd_py_state *state, PyObject *reports, PyObject *old, tgd_report *made)
{
    PyObject *report = tgd_py_report_wrap(state, made);
    int failed = report == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; failed == 0 && i < PyList_GET_SIZE(reports); i++) {
        if (PyList_GET_ITEM(reports, i) == old) {
            failed = PyList_SetItem(reports, i, Py_NewRef(report));
            break;
        }
    }
    Py_XDECREF(report);
    return failed;
}

static int settle(const tgd_py_state *state, PyObject *reports, PyObject *before, PyObject *pending)
{
    const Py_ssize_t n_runs = PyList_GET_SIZE(pending);
    joining j;
    tgd_pending_run **runs = PyMem_Calloc((size_t)n_runs + 1, sizeof *runs);
    int failed = joining_init(&j, before);
    tgd_report **made = PyMem_Calloc((size_t)PyList_GET_SIZE(before) + 1, sizeof *made);
    if (failed == 0 && (runs == NULL || made == NULL)) {
        PyErr_NoMemory();
        failed = -1;
    }
    if (failed == 0) {
        tgd_error err = {.status = TGD_OK};
        tgd_status status;
        for (Py_ssize_t k = 0; k < n_runs; k++) {
            runs[k] = PyCapsule_GetPointer(PyList_GET_ITEM(pending, k), pending_name);
        }
        Py_BEGIN_ALLOW_THREADS
        status = join_all(&j, runs, n_runs, made, &err);
        Py_END_ALLOW_THREADS
        if (status != TGD_OK) {
            tgd_py_raise(state, status, &err, NULL);
            failed = -1;
        }
    }
    for (Py_ssize_t i = 0; made != NULL && i < PyList_GET_SIZE(before); i++) {
        if (made[i] != NULL && failed == 0 && says_more(made[i])) {
            failed = replace(state, reports, j.reports[i], made[i]);
        } else {
            tgd_report_free(made[i]);
        }
    }
    joining_clear(&j);
    PyMem_Free(runs);
    PyMem_Free(made);
    return failed;
}

int tgd_py_measures_settle(const tgd_py_state *state, PyObject *reports, PyObject *pending)
{
    const Py_ssize_t n = PyList_GET_SIZE(pending);
    if (n == 0) {
        return 0;
    }
    PyObject *taken = PyList_GetSlice(pending, 0, n), *before = PyList_GetSlice(reports, 0, PyList_GET_SIZE(reports));
    int failed = -1;
    if (taken != NULL && before != NULL && PyList_SetSlice(pending, 0, n, NULL) == 0) {
        failed = settle(state, reports, before, taken);
    }
    Py_XDECREF(taken);
    Py_XDECREF(before);
    return failed;
}
