/* What an exception of the user's is told to carry, and the one warning about a failure of our own. */
#ifndef TGD_PY_NOTE_H
#define TGD_PY_NOTE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "torchgraphdbg/tgd.h"
#include <stdbool.h>

/* "torchgraphdbg: message\n  hint" of one finding. NULL with an exception. */
PyObject *tgd_py_note_of_finding(const tgd_report *report, size_t finding);

/* "torchgraphdbg: the backward before left ..." and the parameters that it did not reach, each with its reason: what
   DistributedDataParallel waits for. NULL where it reached all, or with an exception. */
PyObject *tgd_py_note_of_unused(const tgd_report *report);

/**
 * Adds a note unless the exception bears it already; leaves no exception. Python 3.10 has no add_note() and shows no
 * notes: there the note goes into __notes__, where later tools look for it, and is printed to sys.stderr at once. The
 * type, args, text, cause and context of the exception stay as they are.
 */
void tgd_py_note_add(PyObject *exception, PyObject *note);

/* Turns the exception that is set into one RuntimeWarning "torchgraphdbg could not <what>: ..." unless *complained,
   which it sets; a KeyboardInterrupt was meant for the program and comes again. Leaves no exception. */
void tgd_py_complain(bool *complained, const char *what);

#endif
