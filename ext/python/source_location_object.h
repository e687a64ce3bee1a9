#ifndef TGD_PY_SOURCE_LOCATION_OBJECT_H
#define TGD_PY_SOURCE_LOCATION_OBJECT_H

#include "state.h"
#include "torchgraphdbg/tgd.h"

/* A SourceLocation, or None where no file is known. */
PyObject *tgd_py_source_location_new(const tgd_py_state *state, const tgd_source_info *source);

#endif
