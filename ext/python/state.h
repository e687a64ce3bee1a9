/* What one import of _core owns. There is no other state: no static PyObject anywhere. */
#ifndef TGD_PY_STATE_H
#define TGD_PY_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct tgd_py_state {
    PyObject *error; /* Owned, like every field: torchgraphdbg.Error */
    PyObject *torch; /* the module */
    PyTypeObject *report_type;
    PyTypeObject *graph_type;
    PyTypeObject *sequence_type;
    PyTypeObject *node_type;
    PyTypeObject *edge_type;
    PyTypeObject *saved_tensor_type;
    PyTypeObject *input_metadata_type;
    PyTypeObject *finding_type;
    PyTypeObject *source_location_type;
    PyTypeObject *record_type;
    PyTypeObject *watch_type;
    PyTypeObject *span_type;
    PyTypeObject *gradient_type;
} tgd_py_state;

/* One per type, in the file that bears the type's name. */
extern PyType_Spec tgd_py_report_spec;
extern PyType_Spec tgd_py_graph_spec;
extern PyType_Spec tgd_py_sequence_spec;
extern PyType_Spec tgd_py_node_spec;
extern PyType_Spec tgd_py_edge_spec;
extern PyType_Spec tgd_py_saved_tensor_spec;
extern PyType_Spec tgd_py_input_metadata_spec;
extern PyType_Spec tgd_py_finding_spec;
extern PyType_Spec tgd_py_source_location_spec;
extern PyType_Spec tgd_py_record_spec;
extern PyType_Spec tgd_py_watch_spec;
extern PyType_Spec tgd_py_span_spec;
extern PyType_Spec tgd_py_gradient_spec;

/* Made by us alone, never subclassed, never changed. */
#define TGD_PY_TYPE_FLAGS                                                                                              \
    (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION)

/* Borrowed. For instances of the types above; none of them can be subclassed, so the type has the module. */
static inline tgd_py_state *tgd_py_state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

#endif
