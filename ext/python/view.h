/* detail= and focus= of a picture. */
#ifndef TGD_PY_VIEW_H
#define TGD_PY_VIEW_H

#include "row.h"

/* detail: "auto", "all" or a number of boxes; focus: None, a module's path, a Node or a Finding of `snapshot` (NULL: of
   none). NULL stands for what was not given. *out borrows from focus. 0, or -1 with an exception that names the
   argument. */
int tgd_py_view_read(const tgd_py_state *state, tgd_view *out, PyObject *detail, PyObject *focus,
                     const tgd_py_snapshot *snapshot);

#endif
