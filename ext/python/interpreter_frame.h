/*
 * One interpreter frame, whatever the version of Python calls it. Every function only reads, needs no GIL, and is
 * safe on the frames of the calling thread alone: its own chain stands still while the thread is in C.
 * For one file to include, before anything else.
 */
#ifndef TGD_PY_INTERPRETER_FRAME_H
#define TGD_PY_INTERPRETER_FRAME_H

#define Py_BUILD_CORE_MODULE 1
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX >= 0x030E0000
#include "internal/pycore_interpframe.h"
#elif PY_VERSION_HEX >= 0x030B0000
#include "internal/pycore_frame.h"
#else
#include <frameobject.h>
#endif

#if PY_VERSION_HEX >= 0x030B0000

typedef _PyInterpreterFrame tgd_py_frame;

static inline const tgd_py_frame *tgd_py_frame_innermost(const PyThreadState *thread)
{
#if PY_VERSION_HEX >= 0x030D0000
    return thread->current_frame;
#else
    return thread->cframe == NULL ? NULL : thread->cframe->current_frame;
#endif
}

static inline const tgd_py_frame *tgd_py_frame_outer(const tgd_py_frame *frame)
{
    return frame->previous;
}

/* NULL: a frame of the interpreter's own. One that has not begun yet has its code already. */
static inline PyCodeObject *tgd_py_frame_code(const tgd_py_frame *frame)
{
#if PY_VERSION_HEX >= 0x030E0000
    /* The header's functions do not write, and do not say so. */
    return frame->owner >= FRAME_OWNED_BY_INTERPRETER ? NULL : _PyFrame_GetCode((tgd_py_frame *)frame);
#elif PY_VERSION_HEX >= 0x030D0000
    return frame->owner == FRAME_OWNED_BY_CSTACK ? NULL : _PyFrame_GetCode((tgd_py_frame *)frame);
#elif PY_VERSION_HEX >= 0x030C0000
    return frame->owner == FRAME_OWNED_BY_CSTACK ? NULL : frame->f_code;
#else
    return frame->f_code;
#endif
}

/* In code units. */
static inline int tgd_py_frame_lasti(const tgd_py_frame *frame)
{
    return _PyInterpreterFrame_LASTI((tgd_py_frame *)frame);
}

static inline PyObject *tgd_py_frame_globals(const tgd_py_frame *frame)
{
    return frame->f_globals;
}

/* The first argument of a function, which may be inside a cell. */
static inline PyObject *tgd_py_frame_first_local(const tgd_py_frame *frame)
{
#if PY_VERSION_HEX >= 0x030E0000
    return PyStackRef_AsPyObjectBorrow(frame->localsplus[0]);
#else
    return frame->localsplus[0];
#endif
}

#else

typedef PyFrameObject tgd_py_frame;

static inline const tgd_py_frame *tgd_py_frame_innermost(const PyThreadState *thread)
{
    return thread->frame;
}

static inline const tgd_py_frame *tgd_py_frame_outer(const tgd_py_frame *frame)
{
    return frame->f_back;
}

static inline PyCodeObject *tgd_py_frame_code(const tgd_py_frame *frame)
{
    return frame->f_code;
}

static inline int tgd_py_frame_lasti(const tgd_py_frame *frame)
{
    return frame->f_lasti;
}

static inline PyObject *tgd_py_frame_globals(const tgd_py_frame *frame)
{
    return frame->f_globals;
}

static inline PyObject *tgd_py_frame_first_local(const tgd_py_frame *frame)
{
    const PyCodeObject *code = frame->f_code;
    PyObject *local = frame->f_localsplus[0];
    if (local == NULL && code->co_cell2arg != NULL) { /* an argument that is a cell has moved */
        Py_ssize_t n_cells = PyTuple_GET_SIZE(code->co_cellvars);
        for (Py_ssize_t k = 0; k < n_cells; k++) {
            if (code->co_cell2arg[k] == 0) {
                return frame->f_localsplus[code->co_nlocals + k];
            }
        }
    }
    return local;
}

#endif

#endif
