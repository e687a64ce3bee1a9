#include "document.h"
#include "tensor_fields.h"

static tgd_saved_info info_of(PyObject *object)
{
    const tgd_py_row *self = (const tgd_py_row *)object;
    tgd_saved_info info;
    tgd_report_saved(self->snapshot->report, (tgd_node)self->node, self->place, &info);
    return info;
}

/* Was there a tensor to look at? Not where nothing was saved, it was released, or a hook packed it. */
static int has_tensor(const tgd_saved_info *info)
{
    return info->tensor.dtype[0] != '\0';
}

static PyObject *saved_name(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_str(info_of(object).name);
}

static PyObject *saved_index(PyObject *object, void *closure)
{
    (void)closure;
    int64_t index = info_of(object).index;
    if (index < 0) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(index);
}

static PyObject *saved_node(PyObject *object, void *closure)
{
    (void)closure;
    tgd_py_row *self = (tgd_py_row *)object;
    return tgd_py_node_new(tgd_py_state_of(object), self->snapshot, (tgd_node)self->node);
}

static PyObject *saved_state(PyObject *object, void *closure)
{
    (void)closure;
    return tgd_py_str(tgd_saved_state_slug(info_of(object).state));
}

static PyObject *saved_shape(PyObject *object, void *closure)
{
    (void)closure;
    tgd_saved_info info = info_of(object);
    return tgd_py_shape(&info.tensor);
}

static PyObject *saved_strides(PyObject *object, void *closure)
{
    (void)closure;
    tgd_saved_info info = info_of(object);
    return tgd_py_strides(&info.tensor);
}

static PyObject *saved_dtype(PyObject *object, void *closure)
{
    (void)closure;
    tgd_saved_info info = info_of(object);
    return tgd_py_dtype(tgd_py_state_of(object), &info.tensor);
}

static PyObject *saved_device(PyObject *object, void *closure)
{
    (void)closure;
    tgd_saved_info info = info_of(object);
    return tgd_py_device(&info.tensor);
}

static PyObject *saved_contiguous(PyObject *object, void *closure)
{
    (void)closure;
    int contiguous = info_of(object).tensor.contiguous;
    if (contiguous < 0) {
        Py_RETURN_NONE;
    }
    return PyBool_FromLong(contiguous);
}

static PyObject *saved_bytes(PyObject *object, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(info_of(object).bytes);
}

static PyObject *saved_storage(PyObject *object, void *closure)
{
    (void)closure;
    uint64_t storage = info_of(object).storage;
    if (storage == 0) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLongLong(storage);
}

static PyObject *saved_storage_bytes(PyObject *object, void *closure)
{
    (void)closure;
    tgd_saved_info info = info_of(object);
    if (info.storage == 0) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLongLong(info.storage_bytes);
}

static PyObject *saved_saved_version(PyObject *object, void *closure)
{
    (void)closure;
    tgd_saved_info info = info_of(object);
    if (!has_tensor(&info)) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLong(info.saved_version);
}

static PyObject *saved_version(PyObject *object, void *closure)
{
    (void)closure;
    tgd_saved_info info = info_of(object);
    if (!has_tensor(&info)) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLong(info.current_version);
}

static PyObject *saved_has_hooks(PyObject *object, void *closure)
{
    (void)closure;
    return PyBool_FromLong(info_of(object).has_hooks);
}

static PyObject *saved_is_output(PyObject *object, void *closure)
{
    (void)closure;
    return PyBool_FromLong(info_of(object).is_output);
}

static PyObject *saved_is_leaf(PyObject *object, void *closure)
{
    (void)closure;
    return PyBool_FromLong(info_of(object).is_leaf);
}

static PyObject *saved_repr(PyObject *object)
{
    tgd_saved_info info = info_of(object);
    PyObject *phrase = tgd_py_tensor_phrase(&info.tensor);
    PyObject *name = info.index < 0 ? tgd_py_str(info.name)
                                    : PyUnicode_FromFormat("%s[%lld]", info.name, (long long)info.index);
    PyObject *repr = NULL;
    if (phrase != NULL && name != NULL) {
        repr = PyUnicode_FromFormat("<torchgraphdbg.SavedTensor %.80U: %U%s>", name, phrase,
                                    tgd_saved_state_slug(info.state));
    }
    Py_XDECREF(phrase);
    Py_XDECREF(name);
    return repr;
}

static PyGetSetDef saved_getset[] = {
    {"name", saved_name, NULL, "The attribute's name without _saved_; \"saved_tensors\" of a custom Function.", NULL},
    {"index", saved_index, NULL, "Place in a list of saved tensors, else None.", NULL},
    {"node", saved_node, NULL, "The node that saved it.", NULL},
    {"state", saved_state, NULL, "\"ok\", or what backward would find wrong with it.", NULL},
    {"shape", saved_shape, NULL, "Sizes, -1 for a symbolic one; None where no shape can be told.", NULL},
    {"dtype", saved_dtype, NULL, "The torch.dtype, or None.", NULL},
    {"device", saved_device, NULL, "\"cpu\", \"cuda:0\", ..., or None.", NULL},
    {"strides", saved_strides, NULL, "Strides in elements, or None.", NULL},
    {"contiguous", saved_contiguous, NULL, "Whether it is contiguous; None where that cannot be told.", NULL},
    {"saved_version", saved_saved_version, NULL, "The tensor's version when it was saved, or None.", NULL},
    {"version", saved_version, NULL, "The tensor's version at the time of the report, or None.", NULL},
    {"bytes", saved_bytes, NULL, "Bytes of its elements.", NULL},
    {"storage", saved_storage, NULL, "Identity of its storage: equal where memory is shared. None where it has none.",
     NULL},
    {"storage_bytes", saved_storage_bytes, NULL, "Bytes of the whole storage, or None.", NULL},
    {"has_hooks", saved_has_hooks, NULL, "Packed by a saved-tensor hook or a checkpoint: not looked into.", NULL},
    {"is_output", saved_is_output, NULL, "The node's own result rather than an input.", NULL},
    {"is_leaf", saved_is_leaf, NULL, "A leaf: a parameter, or a tensor that needs no gradient.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(saved_doc, "A tensor that a node keeps for backward, as it stood: read without unpacking it.");

static PyType_Slot saved_slots[] = {
    {Py_tp_doc, (void *)saved_doc},
    {Py_tp_repr, (void *)saved_repr},
    {Py_tp_getset, saved_getset},
    TGD_PY_ROW_SLOTS,
    {0, NULL},
};

PyType_Spec tgd_py_saved_tensor_spec = {
    .name = "torchgraphdbg.SavedTensor",
    .basicsize = sizeof(tgd_py_row),
    .flags = TGD_PY_TYPE_FLAGS,
    .slots = saved_slots,
};
