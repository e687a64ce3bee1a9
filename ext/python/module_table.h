/*
 * The nn.Modules that were seen to run: path and class of each. An index means one module for ever, also after that
 * module has died and another one has its address. Reading needs no GIL; everything else does. At most 16,384 that
 * live at a time.
 */
#ifndef TGD_PY_MODULE_TABLE_H
#define TGD_PY_MODULE_TABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "record.h"

/* The index of a module that is alive (it is an argument of a function that runs on this thread), TGD_NONE if it was
   never added. No GIL. */
uint32_t tgd_py_module_find(const PyObject *module);
/* Has a module that was never added a chance? No GIL. */
int tgd_py_module_table_has_room(void);

/* Add a module and find its path: below one of `outer`, the modules whose forward called it, nearest first. They were
   added before. The outermost gives all within it the paths of named_modules(), where none were given. TGD_NONE where
   that fails; leaves no exception. */
uint32_t tgd_py_module_add(PyObject *module, PyObject *const *outer, size_t n_outer);

/* Add all modules within `root`, under the paths that named_modules() gives them. Leaves no exception. */
void tgd_py_module_name_all(PyObject *root);

/* Borrowed until the GIL is given up. 0 where the module's place was given to another. */
int tgd_py_module_describe(uint32_t index, const char **path, const char **class_name);

#endif
