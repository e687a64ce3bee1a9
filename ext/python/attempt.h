/* What a program tried while recorders were on, and the reports that they get of it. */
#ifndef TGD_PY_ATTEMPT_H
#define TGD_PY_ATTEMPT_H

#include "observe.h"
#include "patches.h"
#include "state.h"

/* Both borrowed for ever. */
const tgd_py_watcher *tgd_py_attempt_watcher(void);
const tgd_observer *tgd_py_attempt_observer(void);

/* ---- what a recorder does, in recorder_object.c; GIL held ---- */

/* A new list of the recorders that are on, NULL with an exception. */
PyObject *tgd_py_recorders(void);
/* Borrowed. What the user named as params, or None. */
PyObject *tgd_py_recorder_params(PyObject *recorder);
/* Puts a report into the recorder's list as the newest; drops the oldest of too many. 0, or -1 with an exception. */
int tgd_py_recorder_add(PyObject *recorder, PyObject *report);
/* What its newest report is about raised this; NULL: PyTorch refuses an in-place op, with an exception that is yet to
   be made. No exception is set, none is left. */
void tgd_py_recorder_failed(PyObject *recorder, PyObject *exception);
/* Turns the exception that is set into the one warning a recorder gives about its own failures. */
void tgd_py_recorder_complain(PyObject *recorder);

#endif
