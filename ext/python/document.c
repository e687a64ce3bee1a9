#include "document.h"

#include "raise.h"
#include <errno.h>
#include <string.h>

PyObject *tgd_py_str(const char *s)
{
    return PyUnicode_DecodeUTF8(s, (Py_ssize_t)strlen(s), "replace");
}

PyObject *tgd_py_name(const char *name)
{
    if (name == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *text = PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "surrogatepass");
    if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        return tgd_py_str(name);
    }
    return text;
}

PyObject *tgd_py_words_str(tgd_py_words words, const tgd_report *report, size_t finding)
{
    char small[1024];
    size_t n = words(report, finding, small, sizeof small);
    if (n < sizeof small) {
        return tgd_py_str(small);
    }
    char *large = PyMem_Malloc(n + 1);
    if (large == NULL) {
        return PyErr_NoMemory();
    }
    words(report, finding, large, n + 1);
    PyObject *text = tgd_py_str(large);
    PyMem_Free(large);
    return text;
}

/* Grows without the GIL, hence the raw allocator. */
typedef struct buffer {
    char *bytes; /* Owned */
    size_t n, capacity;
} buffer;

static int append(void *context, const char *bytes, size_t n)
{
    buffer *to = context;
    if (n > (size_t)PY_SSIZE_T_MAX - to->n) {
        return ENOMEM;
    }
    if (to->n + n > to->capacity) {
        size_t capacity = to->capacity < 4096 ? 4096 : to->capacity;
        while (capacity < to->n + n) {
            capacity += capacity / 2;
        }
        char *grown = PyMem_RawRealloc(to->bytes, capacity);
        if (grown == NULL) {
            return ENOMEM;
        }
        to->bytes = grown;
        to->capacity = capacity;
    }
    memcpy(to->bytes + to->n, bytes, n);
    to->n += n;
    return 0;
}

/* 0, or -1 with an exception set and nothing to free. */
static int write_document(const tgd_py_state *state, const tgd_py_snapshot *snapshot, tgd_format format, buffer *out)
{
    tgd_error err = {.status = TGD_OK};
    tgd_status status;
    Py_BEGIN_ALLOW_THREADS
    status = tgd_report_write(snapshot->report, format, append, out, &err);
    Py_END_ALLOW_THREADS
    if (status == TGD_OK) {
        return 0;
    }
    PyMem_RawFree(out->bytes);
    if (status == TGD_EIO && err.os_errno == ENOMEM) {
        status = TGD_ENOMEM;
    }
    tgd_py_raise(state, status, &err, NULL);
    return -1;
}

PyObject *tgd_py_document_bytes(const tgd_py_state *state, const tgd_py_snapshot *snapshot, tgd_format format)
{
    buffer document = {0};
    if (write_document(state, snapshot, format, &document) < 0) {
        return NULL;
    }
    PyObject *result = PyBytes_FromStringAndSize(document.bytes, (Py_ssize_t)document.n);
    PyMem_RawFree(document.bytes);
    return result;
}

PyObject *tgd_py_document_str(const tgd_py_state *state, const tgd_py_snapshot *snapshot, tgd_format format)
{
    buffer document = {0};
    if (write_document(state, snapshot, format, &document) < 0) {
        return NULL;
    }
    PyObject *result = PyUnicode_DecodeUTF8(document.n == 0 ? "" : document.bytes, (Py_ssize_t)document.n, "replace");
    PyMem_RawFree(document.bytes);
    return result;
}
