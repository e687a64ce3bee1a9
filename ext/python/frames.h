/* Where a thread is in the user's program, read from the interpreter's frames. */
#ifndef TGD_PY_FRAMES_H
#define TGD_PY_FRAMES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "record.h"

/* Once, GIL held, before the reader is used. 0, or -1 with an exception. */
int tgd_py_frames_init(PyObject *module);

/* Borrowed for ever. Its functions look at the calling thread's own frames, whether it holds the GIL or not; they take
   the GIL only the first time they meet a code object or a module, so nothing that a GIL holder may want must be
   locked then. They keep the code objects they meet for ever, and no module. */
const tgd_frame_reader *tgd_py_frames(void);

/* The index of a code object in a tgd_place, TGD_NONE where there is no room. GIL held. */
uint32_t tgd_py_frames_code(PyObject *code, PyObject *globals);

/* A tgd_place_resolver. Takes the GIL. The strings are good until the next call on this thread. */
int tgd_py_resolve_place(const tgd_place *place, tgd_source *out);

#endif
