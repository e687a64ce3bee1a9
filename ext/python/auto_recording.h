/* The light recording of the whole process, which `import torchgraphdbg.auto` switches on. */
#ifndef TGD_PY_AUTO_RECORDING_H
#define TGD_PY_AUTO_RECORDING_H

#include "observe.h"
#include "state.h"
#include <stdbool.h>

/* Is it on? GIL held. */
bool tgd_py_auto_recording(void);

/* While it is on: keeps a report on the in-place op that PyTorch refuses here, for auto_refused(). GIL held, no exception
   set; leaves none. */
void tgd_py_auto_note_refusal(const tgd_root *root, const tgd_refusal *refusal);

extern const char tgd_py_auto_start_doc[], tgd_py_auto_stop_doc[], tgd_py_auto_refused_doc[];
PyObject *tgd_py_auto_start(PyObject *module, PyObject *args);
PyObject *tgd_py_auto_stop(PyObject *module, PyObject *args);
PyObject *tgd_py_auto_refused(PyObject *module, PyObject *args);

#endif
