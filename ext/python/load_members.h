/* Members of a parsed JSON document, checked: whatever is not as it should be is a ValueError that names the file, the
   place in it, what was expected and what came. */
#ifndef TGD_PY_LOAD_MEMBERS_H
#define TGD_PY_LOAD_MEMBERS_H

#include "restore.h"
#include "state.h"

typedef struct tgd_py_document_reader {
    const tgd_py_state *state; /* Borrowed */
    PyObject *file;            /* Borrowed str: what to call it */
    const char *list, *inner;  /* where we are: list[index].inner[inner_index]; NULL = at the top */
    Py_ssize_t index, inner_index;
    int64_t *sizes, *strides; /* Owned (PyMem): the numbers of the tensor read last */
} tgd_py_document_reader;

/* All return 0, or -1 with an exception. Strings and objects are borrowed from the document. */

/* A ValueError about this member (NULL: about the place itself). -1. */
int tgd_py_wrong(const tgd_py_document_reader *reader, const char *key, const char *expected, PyObject *got);
/* The exception for what the core refused. -1. */
int tgd_py_refused(const tgd_py_document_reader *reader, tgd_status status, const tgd_error *err);

/* Any member; it must be there. NULL with an exception. */
PyObject *tgd_py_member(const tgd_py_document_reader *reader, PyObject *object, const char *key);
int tgd_py_member_list(const tgd_py_document_reader *reader, PyObject *object, const char *key, PyObject **out);
/* NULL for null, where that is allowed. */
int tgd_py_member_object(const tgd_py_document_reader *reader, PyObject *object, const char *key, bool nullable,
                         PyObject **out);
int tgd_py_member_text(const tgd_py_document_reader *reader, PyObject *object, const char *key, bool nullable,
                       const char **out);
int tgd_py_member_flag(const tgd_py_document_reader *reader, PyObject *object, const char *key, bool *out);
/* From 0 to most. */
int tgd_py_member_number(const tgd_py_document_reader *reader, PyObject *object, const char *key, uint64_t most,
                         uint64_t *out);
/* `absent` for null. */
int tgd_py_member_number_or(const tgd_py_document_reader *reader, PyObject *object, const char *key, uint64_t most,
                            uint64_t absent, uint64_t *out);
/* An index, TGD_NONE for null. */
int tgd_py_member_index(const tgd_py_document_reader *reader, PyObject *object, const char *key, uint32_t *out);
/* A number or its digits, 0 for null. */
int tgd_py_member_identity(const tgd_py_document_reader *reader, PyObject *object, const char *key, uint64_t *out);
/* One of n words. */
int tgd_py_member_word(const tgd_py_document_reader *reader, PyObject *object, const char *key,
                       const char *(*word)(int place), int n, int *out);
/* A whole number in a list, from 0 to most. */
int tgd_py_item_number(const tgd_py_document_reader *reader, PyObject *item, const char *key, uint64_t most,
                       uint64_t *out);
/* A source location, NULL for null; `room` holds it. */
int tgd_py_member_source(const tgd_py_document_reader *reader, PyObject *object, const char *key,
                         tgd_restored_source *room, const tgd_restored_source **out);
/* The same of an object that is there. */
int tgd_py_source_members(const tgd_py_document_reader *reader, PyObject *object, tgd_restored_source *out);
/* shape and dtype; `full`: device and layout too. Sizes belong to the reader, until the next call. */
int tgd_py_tensor_members(tgd_py_document_reader *reader, PyObject *object, bool full, tgd_restored_tensor *out);
int tgd_py_strides_member(tgd_py_document_reader *reader, PyObject *object, tgd_restored_tensor *out);

#endif
