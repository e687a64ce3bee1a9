#include "measure_objects.h"
#include "tensor_fields.h"

static tgd_tensor_info info_of(PyObject *object)
{
    const tgd_py_row *self = (const tgd_py_row *)object;
    tgd_tensor_info info;
    tgd_report_input(self->snapshot->report, (tgd_node)self->node, self->place, &info);
    return info;
}

static PyObject *input_shape(PyObject *object, void *closure)
{
    (void)closure;
    tgd_tensor_info info = info_of(object);
    return tgd_py_shape(&info);
}

static PyObject *input_dtype(PyObject *object, void *closure)
{
    (void)closure;
    tgd_tensor_info info = info_of(object);
    return tgd_py_dtype(tgd_py_state_of(object), &info);
}

static PyObject *input_device(PyObject *object, void *closure)
{
    (void)closure;
    tgd_tensor_info info = info_of(object);
    return tgd_py_device(&info);
}

static PyObject *input_gradient(PyObject *object, void *closure)
{
    (void)closure;
    const tgd_py_row *self = (const tgd_py_row *)object;
    return tgd_py_input_gradient(tgd_py_state_of(object), self->snapshot, (tgd_node)self->node, self->place);
}

static PyObject *input_repr(PyObject *object)
{
    tgd_tensor_info info = info_of(object);
    PyObject *phrase = tgd_py_tensor_phrase(&info);
    if (phrase == NULL) {
        return NULL;
    }
    /* the phrase ends in a space */
    Py_ssize_t n = PyUnicode_GET_LENGTH(phrase);
    PyObject *shown = PyUnicode_Substring(phrase, 0, n > 0 ? n - 1 : 0);
    Py_DECREF(phrase);
    if (shown == NULL) {
        return NULL;
    }
    PyObject *repr = n > 0 ? PyUnicode_FromFormat("<torchgraphdbg.InputMetadata %U>", shown)
                           : PyUnicode_FromString("<torchgraphdbg.InputMetadata unused>");
    Py_DECREF(shown);
    return repr;
}

static PyGetSetDef input_getset[] = {
    {"shape", input_shape, NULL, "Sizes, -1 for a symbolic one; None where the input is unused.", NULL},
    {"dtype", input_dtype, NULL, "The torch.dtype, or None.", NULL},
    {"device", input_device, NULL, "\"cpu\", \"cuda:0\", ..., or None.", NULL},
    {"gradient", input_gradient, NULL, "What it was like in the backward that was recorded; None where none was.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(input_doc, "What backward expects of one gradient that a node receives.");

static PyType_Slot input_slots[] = {
    {Py_tp_doc, (void *)input_doc},
    {Py_tp_repr, (void *)input_repr},
    {Py_tp_getset, input_getset},
    TGD_PY_ROW_SLOTS,
    {0, NULL},
};

PyType_Spec tgd_py_input_metadata_spec = {
    .name = "torchgraphdbg.InputMetadata",
    .basicsize = sizeof(tgd_py_row),
    .flags = TGD_PY_TYPE_FLAGS,
    .slots = input_slots,
};
