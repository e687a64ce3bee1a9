#ifndef TGD_PY_LOAD_MEASURES_H
#define TGD_PY_LOAD_MEASURES_H

#include "load_members.h"

/* The member "measures" of a report's document, into the report that is being put together, after its nodes. Nothing
   where the member is null, or is not there: older files have none. 0, or -1 with an exception. */
int tgd_py_load_measures(tgd_py_document_reader *reader, PyObject *document, tgd_restorer *restorer);

#endif
