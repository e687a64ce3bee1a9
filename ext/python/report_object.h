#ifndef TGD_PY_REPORT_OBJECT_H
#define TGD_PY_REPORT_OBJECT_H

#include "arguments.h"
#include "row.h"

/* Who wants the report: one of many steps, which is judged again when somebody asks, or a person now. */
typedef enum tgd_py_asked { TGD_PY_BY_A_STEP, TGD_PY_BY_A_PERSON } tgd_py_asked;

/* Captures without the GIL, with the evidence of the recorder that is on; the caller holds every object that the
   request points to meanwhile. */
PyObject *tgd_py_report_new(const tgd_py_state *state, const tgd_request *request, tgd_py_asked asked);

/* A Report. Takes the report over, also on failure. */
PyObject *tgd_py_report_wrap(const tgd_py_state *state, tgd_report *captured);

/* 0 with a snapshot for strangers, to be released with tgd_report_free(out->report); -1 with an exception. */
int tgd_py_snapshot_redact(tgd_py_snapshot *out, const tgd_py_state *state, const tgd_py_snapshot *snapshot);

/* The same graph judged with other parameters. */
PyObject *tgd_py_report_rejudged(const tgd_py_state *state, PyObject *report, const tgd_request *request);

/* Borrowed; report is a Report. */
const tgd_py_snapshot *tgd_py_report_snapshot(PyObject *report);

#endif
