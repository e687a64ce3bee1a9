/* From the C library's strings and documents to Python objects. */
#ifndef TGD_PY_DOCUMENT_H
#define TGD_PY_DOCUMENT_H

#include "row.h"

/* Bytes that are not UTF-8 become U+FFFD. */
PyObject *tgd_py_str(const char *s);
/* A name that arguments.c handed over: lone surrogates come back as they were. NULL becomes None. */
PyObject *tgd_py_name(const char *name);

/* tgd_report_finding_message or tgd_report_finding_hint */
typedef size_t (*tgd_py_words)(const tgd_report *report, size_t finding, char *buffer, size_t size);
PyObject *tgd_py_words_str(tgd_py_words words, const tgd_report *report, size_t finding);

/* The whole document as bytes or str. Releases the GIL while it is written; the caller holds the snapshot. */
PyObject *tgd_py_document_bytes(const tgd_py_state *state, const tgd_py_snapshot *snapshot, tgd_format format);
PyObject *tgd_py_document_str(const tgd_py_state *state, const tgd_py_snapshot *snapshot, tgd_format format);

#endif
