/* Where the tensors that a user named are kept, so that each look finds those that are there now and none is kept
   alive that the model has let go. GIL held. */
#ifndef TGD_PY_WATCH_PLACES_H
#define TGD_PY_WATCH_PLACES_H

#include "arguments.h"

typedef struct tgd_py_place {
    PyObject *container; /* Owned: a module's dict of parameters, an optimizer's list; NULL: key is the tensor */
    PyObject *key;       /* Owned, or NULL with a list */
    Py_ssize_t index;    /* in a list */
} tgd_py_place;

typedef struct tgd_py_places {
    tgd_py_place *rows; /* Owned */
    size_t n, capacity;
} tgd_py_places;

/* Fills from params= (None: nothing). Runs code of the user's. 0, or -1 with an exception and nothing held. */
int tgd_py_places_find(tgd_py_places *places, PyObject *params);
void tgd_py_places_clear(tgd_py_places *places);
int tgd_py_places_traverse(const tgd_py_places *places, visitproc visit, void *arg);

/* The object that is there now, or NULL. Borrowed, until Python code runs. Never fails. */
PyObject *tgd_py_place_object(const tgd_py_place *place);
/* The tensor that is there now, or NULL. Borrowed, until Python code runs. Never fails. */
const tgd_torch_tensor *tgd_py_place_tensor(const tgd_py_place *place);

#endif
