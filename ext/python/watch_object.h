/* watch(): stays armed in a training loop. What attempt.c tells it. GIL held throughout. */
#ifndef TGD_PY_WATCH_OBJECT_H
#define TGD_PY_WATCH_OBJECT_H

#include "attempt.h"

/* Is any watch on? */
bool tgd_py_watching(void);

/* What the watches that are on make of one outermost backward. */
typedef struct tgd_py_look tgd_py_look;

/* It is about to run. NULL where no watch is on. Leaves no exception. */
tgd_py_look *tgd_py_watch_before(const tgd_py_attempt *attempt);
/* It is over; exception is what it raised, or NULL. Takes the look over, which may be NULL. Leaves no exception. */
void tgd_py_watch_after(tgd_py_look *look, const tgd_py_attempt *attempt, PyObject *exception);
/* PyTorch refused to start it. Leaves no exception. */
void tgd_py_watch_refused(const tgd_py_attempt *attempt, PyObject *exception);

#endif
