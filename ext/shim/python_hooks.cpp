#include "python_hooks.h"

#include <cstring>
#include <typeinfo>

#include <torch/csrc/autograd/python_saved_variable_hooks.h>

#include "compat.h"
#include "private_fields.h"
#include "python_code.h"
#include "python_shim.h"

using torch::autograd::PySavedVariableHooks;
using torch::autograd::SavedVariableHooks;

namespace tgd
{
namespace
{

TGD_PRIVATE(packed_unpack, PySavedVariableHooks, unpack_hook_)
TGD_PRIVATE(packed_data, PySavedVariableHooks, data_)

constexpr Py_ssize_t most_items = 16; /* looked at in a tuple, list or dict */
constexpr int most_nested = 2;

/* A plain pointer, or pybind11's in other versions. Borrowed. */
template <class Object> PyObject *object_of(const Object &object)
{
    return pybind11::handle(object).ptr();
}

/* The variable that a function has in its closure under this name; borrowed, or NULL. */
PyObject *captured(PyObject *function, const char *name)
{
    PyObject *closure = PyFunction_GET_CLOSURE(function);
    PyObject *code = PyFunction_GET_CODE(function);
    if (closure == nullptr || !PyTuple_Check(closure)) {
        return nullptr;
    }
    PyObject *names = PyCode_GetFreevars(reinterpret_cast<PyCodeObject *>(code));
    PyObject *found = nullptr;
    for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names) && i < PyTuple_GET_SIZE(closure); i++) {
        PyObject *cell = PyTuple_GET_ITEM(closure, i);
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), name) == 0 && PyCell_Check(cell)) {
            found = PyCell_GET(cell);
        }
    }
    Py_XDECREF(names);
    PyErr_Clear();
    return found;
}

/* An attribute as it stands in the object; a new reference, or NULL. */
PyObject *attribute(PyObject *object, const char *name)
{
    PyObject *key = PyUnicode_FromString(name);
    PyObject *value = key == nullptr ? nullptr : PyObject_GenericGetAttr(object, key);
    Py_XDECREF(key);
    PyErr_Clear();
    return value;
}

bool refers_to(PyObject *weak, PyObject *object)
{
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *referent = nullptr;
    bool same = PyWeakref_GetRef(weak, &referent) == 1 && referent == object;
    Py_XDECREF(referent);
    PyErr_Clear();
    return same;
#else
    return PyWeakref_GetObject(weak) == object;
#endif
}

/* Which of a frame's weak references means this holder. Nodes are read from the last one backwards, so that the next
   one asked for stands beside the one before. */
std::uint32_t place_of(PyObject *holders, PyObject *holder)
{
    thread_local Py_ssize_t last = 0;
    const Py_ssize_t n = PyList_GET_SIZE(holders);
    const Py_ssize_t from = last < n ? last : 0;
    for (Py_ssize_t k = 0; k < n; k++) {
        for (const Py_ssize_t i : {(from + k) % n, (from + n - k) % n}) {
            PyObject *weak = PyList_GET_ITEM(holders, i);
            if (PyWeakref_Check(weak) && refers_to(weak, holder)) {
                last = i;
                return static_cast<std::uint32_t>(i);
            }
        }
    }
    return TGD_NONE;
}

/* torch.utils.checkpoint's own hook; it has its frame in its closure. */
bool read_checkpoint(PyObject *unpack, PyObject *data, tgd_torch_packed *out)
{
    PyObject *type = loaded_name("torch.utils.checkpoint", "_CheckpointFrame");
    PyObject *frame = PyFunction_Check(unpack) ? captured(unpack, "frame") : nullptr;
    if (type == nullptr || frame == nullptr || reinterpret_cast<PyObject *>(Py_TYPE(frame)) != type) {
        return false;
    }
    PyObject *stop = attribute(frame, "early_stop"), *holders = attribute(frame, "weak_holders");
    out->flags |= TGD_PACKED_CHECKPOINT | (stop == Py_False ? std::uint32_t{TGD_PACKED_NO_STOP} : 0u);
    if (holders != nullptr && PyList_Check(holders)) {
        out->n_places = static_cast<std::uint32_t>(PyList_GET_SIZE(holders));
        out->place = place_of(holders, data);
    }
    Py_XDECREF(stop);
    Py_XDECREF(holders);
    return true;
}

/* The first tensor in what a hook returned; borrowed, or NULL. */
const tgd_torch_tensor *tensor_in(PyObject *data, int depth)
{
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    if (tgd_torch_object(data, &tensor, &node) == TGD_OBJECT_TENSOR) {
        return tensor;
    }
    if (depth >= most_nested) {
        return nullptr;
    }
    tensor = nullptr;
    if (PyTuple_CheckExact(data)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(data) && i < most_items && tensor == nullptr; i++) {
            tensor = tensor_in(PyTuple_GET_ITEM(data, i), depth + 1);
        }
    } else if (PyList_CheckExact(data)) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(data) && i < most_items && tensor == nullptr; i++) {
            tensor = tensor_in(PyList_GET_ITEM(data, i), depth + 1);
        }
    } else if (PyDict_CheckExact(data)) {
        PyObject *key, *value;
        Py_ssize_t at = 0;
        for (Py_ssize_t i = 0; i < most_items && tensor == nullptr && PyDict_Next(data, &at, &key, &value); i++) {
            tensor = tensor_in(value, depth + 1);
        }
    }
    return tensor;
}

} // namespace

bool read_packed(const void *hooks, tgd_torch_packed *out)
{
    std::memset(out, 0, sizeof *out);
    out->place = TGD_NONE;
    /* The class is not exported: told by its name. */
    const auto *any = static_cast<const SavedVariableHooks *>(hooks);
    if (std::strcmp(typeid(*any).name(), "N5torch8autograd20PySavedVariableHooksE") != 0) {
        return false;
    }
    const auto *python = static_cast<const PySavedVariableHooks *>(any);
    PyObject *unpack = object_of(python->*field(packed_unpack{}));
    PyObject *data = object_of(python->*field(packed_data{}));
    out->hook = reinterpret_cast<std::uintptr_t>(unpack);
    if (unpack == nullptr || data == nullptr || read_checkpoint(unpack, data, out)) {
        return true;
    }
    const tgd_torch_tensor *tensor = tensor_in(data, 0);
    if (tensor != nullptr) {
        out->flags |= TGD_PACKED_TENSOR;
        tgd_torch_tensor_read(tensor, &out->tensor);
    }
    return true;
}

} // namespace tgd
