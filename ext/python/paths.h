/* Files that a report is saved to. */
#ifndef TGD_PY_PATHS_H
#define TGD_PY_PATHS_H

#include "row.h"

typedef struct tgd_py_path {
    PyObject *given;   /* Owned: as the user wrote it */
    PyObject *encoded; /* Owned bytes, as the system wants it */
    tgd_format format;
} tgd_py_path;

/* Checks type and suffix; touches no file. 0, or -1 with an exception that names the argument. */
int tgd_py_path_read(const tgd_py_state *state, tgd_py_path *out, const char *argument, PyObject *path);
void tgd_py_path_clear(tgd_py_path *path);

/* view may be NULL. Releases the GIL. 0, or -1 with an exception. */
int tgd_py_path_save(const tgd_py_state *state, const tgd_py_path *path, const tgd_py_snapshot *snapshot,
                     const tgd_view *view);

/* The absolute path as a str to show to a person, quoted where it holds characters that a terminal cannot show. */
PyObject *tgd_py_path_shown(const tgd_py_path *path);

#endif
