#ifndef TGD_PY_RECORDER_OBJECT_H
#define TGD_PY_RECORDER_OBJECT_H

#include "state.h"
#include <stdbool.h>

/* Is any recorder on? GIL held. */
bool tgd_py_recording(void);

#endif
