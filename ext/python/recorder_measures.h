/* What was measured of a backward, on its way into the report that was made before it. */
#ifndef TGD_PY_RECORDER_MEASURES_H
#define TGD_PY_RECORDER_MEASURES_H

#include "measuring.h"
#include "state.h"

/* An object that owns it, also on failure (NULL with an exception). */
PyObject *tgd_py_pending_new(tgd_pending_run *run);

/* Puts what is in the list `pending` into the reports that it belongs to, and empties it. May wait for a device, without
   the GIL. 0, or -1 with an exception. */
int tgd_py_measures_settle(const tgd_py_state *state, PyObject *reports, PyObject *pending);

#endif
