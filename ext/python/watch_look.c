/* What a watch does before and after each outermost backward. */
#include "watch.h"

#include "document.h"
#include "note.h"
#include "observe.h"
#include "prescan.h"
#include "report_object.h"

enum { OCCASION = 96, MOST_SAID = 1024 };

typedef struct entry {
    tgd_py_watch *watch; /* Owned */
    PyObject *report;    /* Owned: from before backward, where something is wrong; or NULL */
    PyObject *path;      /* Owned: where it was written to, or NULL */
    uint64_t step;
    bool due;  /* this backward is one to look at */
    bool full; /* full recording was on since before the forward */
    bool other; /* the graph has none of this watch's parameters: another one's, or another thread's */
} entry;

struct tgd_py_look {
    tgd_py_findings roots; /* Owned */
    unsigned turn;
    size_t n;
    entry rows[];
};

/* Of all looks: they hold the GIL from beginning to end. */
static tgd_prescan prescan;

void tgd_py_watch_idle(void)
{
    tgd_prescan_clear(&prescan);
}

uint64_t tgd_py_watch_step(const tgd_py_watch *self)
{
    uint64_t begun = self->n_backwards == 0 ? 0 : self->n_backwards - 1;
    return self->n_changes > 0 ? self->n_changes : begun;
}

static void occasion(char text[OCCASION], const entry *e)
{
    PyOS_snprintf(text, OCCASION, "step %llu, in backward %llu of this watch", (unsigned long long)e->step,
                  (unsigned long long)e->watch->n_backwards);
}

/* ---- dumps ---- */

static void start_full(tgd_py_watch *self)
{
    tgd_error err = {.status = TGD_OK};
    tgd_status status;
    const tgd_observer *observer = tgd_py_attempt_observer();
    if (self->full || !self->on) {
        return;
    }
    self->full = true;
    self->full_since = self->n_backwards;
    Py_BEGIN_ALLOW_THREADS
    status = tgd_observe_start(observer, &err);
    Py_END_ALLOW_THREADS
    if (status != TGD_OK) {
        self->full = false; /* the light recording goes on */
    }
}

static void stop_full(tgd_py_watch *self)
{
    if (self->full) {
        self->full = false;
        Py_BEGIN_ALLOW_THREADS
        tgd_observe_stop();
        Py_END_ALLOW_THREADS
    }
}

/* Dumps, and records everything of the next step. The path, None, or NULL with an exception. */
static PyObject *dump(tgd_py_watch *self, PyObject *report, uint64_t step)
{
    PyObject *path = tgd_py_watch_dump(self, report, step);
    if (path != NULL && path != Py_None) {
        start_full(self);
    }
    return path;
}

/* The same, unless this very verdict was dumped already (with the evidence there is now). */
static PyObject *dump_once(tgd_py_watch *self, PyObject *report, const entry *e)
{
    PyObject *verdict = tgd_py_str(tgd_report_verdict(tgd_py_report_snapshot(report)->report));
    PyObject *said = e->full ? self->said_fully : self->said;
    int known = verdict == NULL ? -1 : PySet_Contains(said, verdict);
    if (known == 0) {
        known = PySet_GET_SIZE(said) >= MOST_SAID && PySet_Clear(said) < 0 ? -1 : PySet_Add(said, verdict);
        known = known == 0 && e->full ? PySet_Add(self->said, verdict) : known;
        Py_XDECREF(verdict);
        return known < 0 ? NULL : dump(self, report, e->step);
    }
    Py_XDECREF(verdict);
    self->n_more += known == 1;
    return known < 0 ? NULL : Py_NewRef(Py_None);
}

/* Is the graph any business of this watch? One that is alone takes everything. */
static bool concerns(const tgd_py_look *look, PyObject *report)
{
    tgd_summary summary;
    tgd_report_summary(tgd_py_report_snapshot(report)->report, &summary);
    return look->n == 1 || summary.n_parameters == 0 || summary.n_parameters_reached > 0 || summary.n_leaves == 0;
}

static PyObject *report_for(const entry *e, const tgd_py_attempt *attempt, tgd_values values)
{
    char text[OCCASION];
    occasion(text, e);
    values.occasion = text;
    tgd_py_attempt with = *attempt;
    with.values = &values;
    const tgd_py_state *state = tgd_py_state_of((PyObject *)e->watch);
    return e->report == NULL ? tgd_py_attempt_report(state, e->watch->params, &with)
                             : tgd_py_attempt_rejudged(state, e->watch->params, e->report, &with);
}

/* ---- a step that a GradScaler may skip ---- */

static void forget_pending(tgd_py_watch *self)
{
    Py_CLEAR(self->pending.report);
}

void tgd_py_watch_settle(tgd_py_watch *self)
{
    if (self->pending.report == NULL || tgd_py_watch_params_finite(self)) {
        return;
    }
    PyObject *report = self->pending.report;
    self->pending.report = NULL;
    PyObject *path = self->ill ? Py_NewRef(Py_None) : dump(self, report, self->pending.step);
    self->ill = true;
    Py_DECREF(report);
    if (path == NULL) {
        tgd_py_watch_fail(self);
    }
    Py_XDECREF(path);
}

/* ---- before ---- */

/* 1: something may be wrong with the graph, 0, or -1 with an exception. */
static int scan(const tgd_py_attempt *attempt)
{
    tgd_py_arguments arguments;
    tgd_error err = {.status = TGD_OK};
    int hit = tgd_py_arguments_read(&arguments, attempt->roots, Py_None, Py_None, 0);
    if (hit == 0) {
        hit = tgd_prescan_look(&prescan, &arguments.request, &err);
        if (hit < 0) {
            PyErr_SetString(PyExc_RuntimeError, err.message);
            hit = -1;
        }
    }
    tgd_py_arguments_clear(&arguments);
    return hit;
}

/* Has the graph that was scanned from end to end none of the watch's parameters? */
static bool has_none(const tgd_py_watch *self)
{
    size_t n_asked = 0;
    for (size_t i = 0; i < self->places.n; i++) {
        const tgd_torch_tensor *tensor = tgd_py_place_tensor(&self->places.rows[i]);
        const tgd_torch_node *node = NULL;
        uint32_t output_nr;
        if (tensor == NULL || tgd_torch_tensor_node(tensor, &node, &output_nr, NULL) != TGD_OK) {
            continue;
        }
        n_asked++;
        if (node != NULL && tgd_address_map_find(&prescan.seen, (uint64_t)(uintptr_t)node) != TGD_NONE) {
            return false;
        }
    }
    return n_asked > 0;
}

static bool predicts(PyObject *report)
{
    const tgd_report *made = tgd_py_report_snapshot(report)->report;
    tgd_finding_info first;
    if (tgd_report_n_findings(made) == 0) {
        return false;
    }
    tgd_report_finding(made, 0, &first);
    return first.severity == TGD_ERROR;
}

/* An error goes to disk before backward meets it; of what only may happen, nothing is said until it does. */
static void report_before(tgd_py_look *look, entry *e, const tgd_py_attempt *attempt)
{
    e->report = report_for(e, attempt, (tgd_values){.ran = TGD_NOT_YET});
    bool failed = e->report == NULL;
    if (!failed && predicts(e->report) && concerns(look, e->report)) {
        e->path = dump_once(e->watch, e->report, e);
        failed = e->path == NULL;
    }
    if (failed) {
        tgd_py_watch_fail(e->watch);
    }
}

static bool is_due(const tgd_py_watch *self)
{
    return self->n_backwards % (uint64_t)self->every == 0;
}

static void begin_step(entry *e)
{
    tgd_py_watch *self = e->watch;
    tgd_py_watch_settle(self);
    uint64_t versions = tgd_py_watch_versions(self);
    self->n_changes += self->n_backwards > 0 && versions != self->versions;
    self->versions = versions;
    e->due = is_due(self);
    self->n_backwards++;
    e->step = tgd_py_watch_step(self);
    e->full = self->full;
}

static tgd_py_look *new_look(void)
{
    size_t n = 0;
    for (tgd_py_watch *w = tgd_py_watch_first(); w != NULL; w = w->next) {
        n++;
    }
    tgd_py_look *look = n == 0 ? NULL : PyMem_Calloc(1, sizeof *look + n * sizeof look->rows[0]);
    for (tgd_py_watch *w = tgd_py_watch_first(); look != NULL && w != NULL; w = w->next) {
        look->rows[look->n++].watch = (tgd_py_watch *)Py_NewRef((PyObject *)w);
    }
    return look;
}

tgd_py_look *tgd_py_watch_before(const tgd_py_attempt *attempt)
{
    tgd_py_look *look = tgd_py_watch_first() == NULL ? NULL : new_look();
    bool due = false;
    for (size_t i = 0; look != NULL && i < look->n; i++) {
        due = due || is_due(look->rows[i].watch);
        look->turn = look->rows[i].watch->turn;
    }
    int hit = 0;
    if (due) {
        hit = tgd_py_watch_roots(attempt->roots, look->turn, &look->roots) < 0 ? -1 : scan(attempt);
    }
    if (hit < 0) {
        tgd_py_watch_fail(look->rows[0].watch);
    }
    for (size_t i = 0; look != NULL && i < look->n; i++) {
        entry *e = &look->rows[i];
        e->other = due && hit == 0 && look->n > 1 && has_none(e->watch);
        if (!e->other) {
            begin_step(e);
        }
        if (hit > 0 && e->due) {
            report_before(look, e, attempt);
        }
    }
    return look;
}

/* ---- after ---- */

/* What the exception is told: the finding that explains it, or what is known; and where the dump is. */
static void add_note(PyObject *exception, PyObject *report, PyObject *path)
{
    const tgd_report *made = tgd_py_report_snapshot(report)->report;
    size_t finding = tgd_report_explains(made);
    PyObject *verdict = finding == SIZE_MAX ? tgd_py_str(tgd_report_verdict(made)) : NULL;
    PyObject *note = finding != SIZE_MAX ? tgd_py_note_of_finding(made, finding)
                     : verdict != NULL   ? PyUnicode_FromFormat("torchgraphdbg: %U", verdict)
                                         : NULL;
    if (note != NULL && path != NULL && path != Py_None) {
        Py_SETREF(note, PyUnicode_FromFormat("%U\n  %U", note, path));
    }
    if (note != NULL) {
        tgd_py_note_add(exception, note);
    }
    Py_XDECREF(verdict);
    Py_XDECREF(note);
    PyErr_Clear();
}

static void raised(tgd_py_look *look, entry *e, const tgd_py_attempt *attempt, PyObject *exception)
{
    if (!PyErr_GivenExceptionMatches(exception, PyExc_Exception)) {
        return; /* KeyboardInterrupt, SystemExit: nothing is wrong */
    }
    PyObject *text = tgd_py_attempt_raised(exception), *report = NULL;
    const char *words = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    tgd_py_findings values = {0};
    if (words != NULL && tgd_py_watch_outputs(e->watch, &values) == 0) {
        bool before = e->report != NULL;
        report = report_for(e, attempt,
                            (tgd_values){.rows = values.rows, .n = values.n, .ran = before ? TGD_NOT_YET : TGD_RAISED,
                                         .raised = words});
    }
    bool failed = report == NULL;
    if (!failed && concerns(look, report)) {
        if (e->path == NULL) {
            e->path = dump_once(e->watch, report, e);
            failed = e->path == NULL;
        }
        add_note(exception, report, e->path);
    }
    if (failed) {
        tgd_py_watch_fail(e->watch);
    }
    tgd_py_findings_clear(&values);
    Py_XDECREF(text);
    Py_XDECREF(report);
}

static int copy_roots(tgd_py_findings *to, const tgd_py_findings *from)
{
    for (size_t i = 0; i < from->n; i++) {
        if (tgd_py_reserve((void **)&to->rows, &to->capacity, to->n, sizeof *to->rows) < 0) {
            return -1;
        }
        to->rows[to->n++] = from->rows[i];
    }
    to->nan_root = from->nan_root;
    return 0;
}

/* Values that are not finite: an alarm when it begins, once more with full evidence, and no more until a step went
   well in between. -1 with an exception. */
static int alarm_values(tgd_py_look *look, entry *e, const tgd_py_attempt *attempt, tgd_py_findings *values)
{
    tgd_py_watch *self = e->watch;
    bool again = self->ill && !(e->full && !self->ill_fully);
    if (again) {
        self->n_more++;
        return 0;
    }
    bool only_roots = values->n == look->roots.n;
    if (tgd_py_watch_outputs(self, values) < 0) {
        return -1;
    }
    Py_CLEAR(e->report);
    PyObject *report = report_for(e, attempt, (tgd_values){.rows = values->rows, .n = values->n, .ran = TGD_RAN});
    if (report == NULL) {
        return -1;
    }
    PyObject *path = Py_NewRef(Py_None);
    if (only_roots && !concerns(look, report)) {
        /* another model's */
    } else if (!values->nan_root && tgd_py_scaler_at_work(&self->scaler)) {
        Py_XSETREF(self->pending.report, Py_NewRef(report));
        self->pending.step = e->step;
    } else {
        Py_SETREF(path, dump(self, report, e->step));
        self->ill = true;
        self->ill_fully = self->ill_fully || e->full;
    }
    Py_DECREF(report);
    Py_XDECREF(path);
    return path == NULL ? -1 : 0;
}

/* Gradients of a device that were asked for some steps ago. */
static void land(tgd_py_look *look, entry *e, const tgd_py_attempt *attempt)
{
    tgd_py_watch *self = e->watch;
    tgd_py_findings values = {0};
    int landed = tgd_py_flight_land(self, PyTuple_GET_SIZE(attempt->roots), &values);
    if (landed > 0 && values.n > 0) {
        entry then = *e;
        then.step = self->flight.step;
        then.report = NULL;
        landed = alarm_values(look, &then, attempt, &values);
    } else if (landed > 0) {
        self->ill = self->ill_fully = false;
        forget_pending(self);
    }
    tgd_py_findings_clear(&values);
    if (landed < 0) {
        tgd_py_watch_fail(self);
    }
}

static void went_through(tgd_py_look *look, entry *e, const tgd_py_attempt *attempt)
{
    tgd_py_watch *self = e->watch;
    tgd_py_findings values = {0};
    int failed = copy_roots(&values, &look->roots);
    bool far = false; /* answers will come later */
    if (failed == 0 && !attempt->captures) {
        failed = tgd_py_watch_gradients(self, &values);
        far = tgd_py_flight_launch(self, attempt->roots, e->step);
    }
    if (failed == 0 && values.n > 0) {
        failed = alarm_values(look, e, attempt, &values);
    } else if (failed == 0 && !attempt->captures && !far) {
        self->ill = self->ill_fully = false;
        forget_pending(self);
    }
    tgd_py_findings_clear(&values);
    if (failed < 0) {
        tgd_py_watch_fail(self);
    }
}

void tgd_py_watch_after(tgd_py_look *look, const tgd_py_attempt *attempt, PyObject *exception)
{
    if (look == NULL) {
        return;
    }
    for (size_t i = 0; i < look->n; i++) {
        entry *e = &look->rows[i];
        if (e->watch->on && exception != NULL && !e->other) {
            raised(look, e, attempt, exception);
        } else if (e->watch->on && e->due) {
            land(look, e, attempt);
            went_through(look, e, attempt);
        }
        tgd_py_watch_forget_outputs(e->watch);
        if (e->full && e->watch->full && e->watch->n_backwards > e->watch->full_since) {
            stop_full(e->watch);
        }
        Py_XDECREF(e->report);
        Py_XDECREF(e->path);
        Py_DECREF(e->watch);
    }
    tgd_py_findings_clear(&look->roots);
    PyMem_Free(look);
    PyErr_Clear();
}

void tgd_py_watch_refused(const tgd_py_attempt *attempt, PyObject *exception)
{
    tgd_py_look *look = new_look();
    for (size_t i = 0; look != NULL && i < look->n; i++) {
        entry *e = &look->rows[i];
        begin_step(e);
        PyObject *report = report_for(e, attempt, (tgd_values){.ran = TGD_NOT_YET});
        PyObject *path = report == NULL ? NULL : dump_once(e->watch, report, e);
        if (path == NULL) {
            tgd_py_watch_fail(e->watch);
        } else {
            PyObject *note = tgd_py_note_of_finding(tgd_py_report_snapshot(report)->report, 0);
            if (note != NULL) {
                tgd_py_note_add(exception, note);
            }
            Py_XDECREF(note);
            PyErr_Clear();
        }
        Py_XDECREF(path);
        Py_XDECREF(report);
        Py_DECREF(e->watch);
    }
    PyMem_Free(look);
}
