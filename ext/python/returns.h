/* Where code returns. */
#ifndef TGD_PY_RETURNS_H
#define TGD_PY_RETURNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The line of the return statement that hands back this many values (a literal tuple of them, else one); n < 0: of any.
   The last of several; of any where none hands back so many; 0 where it cannot be told. GIL held; leaves no
   exception. */
int tgd_py_return_line(PyCodeObject *code, int n);

#endif
