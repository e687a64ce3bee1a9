/* What a program tried while recorders were on, and the reports that they get of it. */
#ifndef TGD_PY_ATTEMPT_H
#define TGD_PY_ATTEMPT_H

#include "observe.h"
#include "patches.h"
#include "state.h"
#include "values.h"

/* Both borrowed for ever. */
const tgd_py_watcher *tgd_py_attempt_watcher(void);
const tgd_observer *tgd_py_attempt_observer(void);

/* ---- what was tried ---- */

typedef struct tgd_py_attempt {
    PyObject *roots;            /* Borrowed: tensors and edges; NULL with `refused` */
    PyObject *inputs;           /* Borrowed, or None */
    int create_graph, captures; /* captures: grad(), which fills no .grad */
    const tgd_refusal *refusal; /* or NULL */
    const tgd_root *refused;    /* what an in-place op was refused on, or NULL */
    const tgd_values *values;   /* or NULL */
    const tgd_aftermath *aftermath; /* or NULL */
} tgd_py_attempt;

/* A new report; NULL with an exception. params is what the user named, or None. */
PyObject *tgd_py_attempt_report(const tgd_py_state *state, PyObject *params, const tgd_py_attempt *attempt);
/* The same snapshot judged again: attempt->values say what was raised, ->aftermath what the run showed. */
PyObject *tgd_py_attempt_rejudged(const tgd_py_state *state, PyObject *params, PyObject *report,
                                  const tgd_py_attempt *attempt);
/* "RuntimeError: ..."; NULL with an exception. */
PyObject *tgd_py_attempt_raised(PyObject *exception);

/* ---- what a recorder does, in recorder_object.c; GIL held ---- */

/* A new list of the recorders that are on, NULL with an exception. */
PyObject *tgd_py_recorders(void);
/* Borrowed. What the user named as params, or None. */
PyObject *tgd_py_recorder_params(PyObject *recorder);
/* Puts a report into the recorder's list as the newest; drops the oldest of too many. 0, or -1 with an exception. */
int tgd_py_recorder_add(PyObject *recorder, PyObject *report);
/* Borrowed. Its newest report, or NULL. */
PyObject *tgd_py_recorder_newest(PyObject *recorder);
/* Puts a report in the place of its newest. 0, or -1 with an exception. */
int tgd_py_recorder_replace(PyObject *recorder, PyObject *report);
/* What was measured of the backward that its newest report is about (tgd_py_pending_new). 0, or -1 with an exception. */
int tgd_py_recorder_measured(PyObject *recorder, PyObject *pending);
/* What its newest report is about raised this; NULL: PyTorch refuses an in-place op, with an exception that is yet to
   be made. No exception is set, none is left. */
void tgd_py_recorder_failed(PyObject *recorder, PyObject *exception);
/* Turns the exception that is set into the one warning a recorder gives about its own failures. */
void tgd_py_recorder_complain(PyObject *recorder);

#endif
