#ifndef TGD_PY_SOURCE_LOCATION_OBJECT_H
#define TGD_PY_SOURCE_LOCATION_OBJECT_H

#include "state.h"
#include "torchgraphdbg/tgd.h"

/* A SourceLocation, or None where no file is known. */
PyObject *tgd_py_source_location_new(const tgd_py_state *state, const tgd_source_info *source);

/* A stack as a tuple of SourceLocations, innermost first. `stack` fills at most n frames and returns how many there
   are. */
typedef size_t (*tgd_py_stack)(const tgd_report *report, size_t which, tgd_source_info *frames, size_t n);
PyObject *tgd_py_stack_tuple(const tgd_py_state *state, tgd_py_stack stack, const tgd_report *report, size_t which);

#endif
