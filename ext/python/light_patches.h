/*
 * What else changes in torch while the light level of recording is on, so that nothing shows of it. In the functions
 * only the pointer to the C function behind the builtin changes (patch.h):
 *
 *   torch._C.set_anomaly_enabled               the user's anomaly mode, as if ours were not on
 *   torch._C.is_anomaly_enabled
 *   torch._C.is_anomaly_check_nan_enabled
 *   torch._C._dispatch_tls_local_include_set   without the key that in-place writes are seen by
 *   `metadata` of every class of nodes         the C function behind the attribute. Stays when the level ends, and does
 *                                              nothing but for nodes that were made meanwhile
 */
#ifndef TGD_PY_LIGHT_PATCHES_H
#define TGD_PY_LIGHT_PATCHES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Once, GIL held: from now on the light level patches what it needs as it begins, and undoes it as it ends. 0, or -1
   with an exception. */
int tgd_py_light_patches_init(void);

/* GIL held, no exception set, none left. Gives an error of backward's the words it has without the light level; NULL or
   another exception stays as it is. */
void tgd_py_light_plain_text(PyObject *exception);

#endif
