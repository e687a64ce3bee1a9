/* Nodes and tensors as Python sees them: unwrapping, and reading torch.autograd.Function nodes. */
#include "python_shim.h"

#include <cstring>
#include <mutex>
#include <typeinfo>

#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/python_anomaly_mode.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_function.h>
#include <torch/csrc/autograd/python_variable.h>

#include "compat.h"
#include "private_fields.h"
#include "python_code.h"
#include "python_hooks.h"
#include "saved.h"

using torch::autograd::CopySlices;
using torch::autograd::PyNode;

namespace tgd
{
namespace
{

TGD_PRIVATE(node_mutex, Node, mutex_)
TGD_PRIVATE(python_node_metadata, Node, anomaly_metadata_)
TGD_PRIVATE(metadata_dict, torch::autograd::PyAnomalyMetadata, dict_)

/* The PyObject behind a slot, borrowed or NULL. Older slots keep a tagged pointer. */
template <class Slot> auto object_in(const Slot *slot, int) -> decltype(slot->load_pyobj())
{
    return slot->load_pyobj();
}

template <class Slot> PyObject *object_in(const Slot *slot, long)
{
    return slot->_unchecked_untagged_pyobj();
}

/* A PyNode's THPFunction, borrowed. */
template <class N> auto function_of(const N &node, int) -> decltype(node.pyobj())
{
    return node.pyobj();
}

template <class N> PyObject *function_of(const N &node, long)
{
    return node.obj;
}

/* ctx.clear_saved_tensors_on_access lets the first reading of saved_tensors be the last. */
template <class F> auto is_cleared(const F &f, int) -> decltype(f.saved_tensors_accessed_and_cleared)
{
    return f.saved_tensors_accessed_and_cleared;
}

template <class F> bool is_cleared(const F &, long)
{
    return false;
}

/* Keeps an exception that is already set out of the way. */
class quiet
{
public:
#if PY_VERSION_HEX >= 0x030C0000
    quiet() : exception_(PyErr_GetRaisedException())
    {
    }
    ~quiet()
    {
        PyErr_SetRaisedException(exception_);
    }
#else
    quiet()
    {
        PyErr_Fetch(&type_, &value_, &traceback_);
    }
    ~quiet()
    {
        PyErr_Restore(type_, value_, traceback_);
    }
#endif
    quiet(const quiet &) = delete;
    quiet &operator=(const quiet &) = delete;

private:
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *exception_;
#else
    PyObject *type_, *value_, *traceback_;
#endif
};

/* ---- one hold of the GIL ---- */

constexpr std::size_t n_cached = 64; /* a power of two */

/* What the classes met say, as long as the GIL is held without a break: until then no class can die or change.
   A thread_local, so that taking it cannot fail. */
struct batch_state {
    unsigned depth;
    PyTypeObject *type[n_cached];
    std::uint32_t flags[n_cached];
    std::uint32_t code[n_cached];
};
thread_local batch_state batch;

constexpr std::uintptr_t no_interpreter = 0;

void begin(void **token)
{
    if (!Py_IsInitialized()) {
        *token = reinterpret_cast<void *>(no_interpreter);
        return;
    }
    const PyGILState_STATE state = PyGILState_Ensure();
    if (batch.depth++ == 0) {
        std::memset(batch.type, 0, sizeof batch.type);
    }
    *token = reinterpret_cast<void *>(static_cast<std::uintptr_t>(state) + 1);
}

void end(void *token)
{
    const auto number = reinterpret_cast<std::uintptr_t>(token);
    if (number != no_interpreter) {
        batch.depth--;
        PyGILState_Release(static_cast<PyGILState_STATE>(number - 1));
    }
}

/* Holds the GIL for a scope; false where there is no interpreter. */
class gil
{
public:
    gil()
    {
        begin(&token_);
    }
    ~gil()
    {
        end(token_);
    }
    gil(const gil &) = delete;
    gil &operator=(const gil &) = delete;
    explicit operator bool() const
    {
        return reinterpret_cast<std::uintptr_t>(token_) != no_interpreter;
    }

private:
    void *token_;
};

void read_class(PyTypeObject *type, tgd_torch_python_node *out)
{
    const std::size_t i = (reinterpret_cast<std::uintptr_t>(type) >> 5) % n_cached;
    if (batch.type[i] != type) {
        batch.flags[i] = function_flags(type);
        batch.code[i] = backward_code(type);
        batch.type[i] = type;
    }
    out->flags = batch.flags[i];
    out->code = batch.code[i];
}

void copy_name(char (&to)[256], const char *name)
{
    std::size_t n = std::strlen(name);
    if (n >= sizeof to) {
        n = sizeof to - 1;
        while (n > 0 && (static_cast<unsigned char>(name[n]) & 0xC0) == 0x80) {
            n--; /* not inside a character */
        }
    }
    std::memcpy(to, name, n);
    to[n] = '\0';
}

tgd_visit visit_function(const THPFunction &function, tgd_torch_saved_visitor visit, void *context)
{
    if ((function.has_freed_buffers || is_cleared(function, 0)) &&
        tgd_torch_saved_visit(nullptr, "saved_tensors", -1, TGD_SV_RELEASED_FLAG, visit, context) != 0) {
        return TGD_VISIT_STOPPED;
    }
    const auto &saved = function.saved_variables;
    for (std::size_t i = 0; i < saved.size(); i++) {
        if (tgd_torch_saved_visit(&saved[i], "saved_tensors", static_cast<std::int64_t>(i), TGD_SV_GIVEN_NODE, visit,
                                  context) != 0) {
            return TGD_VISIT_STOPPED;
        }
    }
    return TGD_VISIT_DONE;
}

/* The PyNode itself, or the one inside a CopySlices whose mutex is held. */
PyNode *python_node(Node &node, tgd_node_kind kind)
{
    Node *found = kind == TGD_NODE_COPY_SLICES ? static_cast<CopySlices &>(node).fn.get() : &node;
    if (found == nullptr) {
        return nullptr;
    }
    tgd_torch_node_info info;
    tgd_torch_node_read(handle(found), &info);
    return info.kind == TGD_NODE_PYTHON ? static_cast<PyNode *>(found) : nullptr;
}

tgd_visit read_node(const tgd_torch_node *node, tgd_torch_python_node *out, tgd_torch_saved_visitor visit,
                    void *context)
{
    std::memcpy(out->name, "PyNode", sizeof "PyNode");
    out->flags = 0;
    out->code = TGD_NONE;
    gil held;
    if (!held) {
        return TGD_VISIT_OPAQUE;
    }
    quiet exceptions;
    Node &n = *node_of(node);
    tgd_torch_node_info info;
    tgd_torch_node_read(node, &info);
    std::unique_lock<std::mutex> lock(n.*field(node_mutex{}), std::try_to_lock);
    if (!lock.owns_lock() && info.kind == TGD_NODE_COPY_SLICES) {
        return TGD_VISIT_BUSY;
    }
    PyNode *found = python_node(n, info.kind);
    PyObject *object = found == nullptr ? nullptr : function_of(*found, 0);
    if (object == nullptr) {
        return TGD_VISIT_OPAQUE;
    }
    copy_name(out->name, Py_TYPE(object)->tp_name);
    read_class(Py_TYPE(object), out);
    if (!lock.owns_lock()) {
        return TGD_VISIT_BUSY;
    }
    return visit_function(*reinterpret_cast<const THPFunction *>(object), visit, context);
}

tgd_visit read(const tgd_torch_node *node, tgd_torch_python_node *out, tgd_torch_saved_visitor visit, void *context)
{
    try {
        return read_node(node, out, visit, context);
    } catch (...) {
        return TGD_VISIT_OPAQUE;
    }
}

int is_parameter(const tgd_torch_tensor *tensor)
{
    gil held;
    if (!held) {
        return -1;
    }
    quiet exceptions;
    const c10::impl::PyObjectSlot *slot = impl_of(tensor)->pyobj_slot();
    PyObject *object = object_in(slot, 0);
    return object == nullptr ? -1 : is_parameter_object(object);
}

const tgd_torch_python hooks = {read, is_parameter, begin, end, read_packed};

} // namespace
} // namespace tgd

using namespace tgd;

extern "C" tgd_object_kind tgd_torch_object(PyObject *object, const tgd_torch_tensor **tensor,
                                            const tgd_torch_node **node)
{
    *tensor = nullptr;
    *node = nullptr;
    quiet exceptions;
    /* By type alone: isinstance() would ask the object's __class__. */
    if (THPVariableClass != nullptr &&
        PyType_IsSubtype(Py_TYPE(object), reinterpret_cast<PyTypeObject *>(THPVariableClass))) {
        *tensor = handle(THPVariable_Unpack(object).unsafeGetTensorImpl());
        return TGD_OBJECT_TENSOR;
    }
    if (is_function(object)) {
        *node = handle(borrow(reinterpret_cast<THPFunction *>(object)->cdata));
        return TGD_OBJECT_NODE;
    }
    if (is_cpp_function(object)) {
        *node = handle(reinterpret_cast<torch::autograd::THPCppFunction *>(object)->cdata.get());
        return TGD_OBJECT_NODE;
    }
    return TGD_OBJECT_OTHER;
}

extern "C" uint64_t tgd_torch_storage_address(PyObject *object)
{
    if (!THPStorage_Check(object)) {
        return 0;
    }
    return reinterpret_cast<std::uintptr_t>(THPStorage_Unpack(object).unsafeGetStorageImpl());
}

extern "C" PyObject *tgd_torch_node_metadata(const tgd_torch_node *node)
{
    /* By name: libtorch_python keeps the class to itself. */
    const auto *metadata = (node_of(node)->*field(python_node_metadata{})).get();
    if (metadata == nullptr || std::strcmp(typeid(*metadata).name(), "N5torch8autograd17PyAnomalyMetadataE") != 0) {
        return nullptr;
    }
    return static_cast<const torch::autograd::PyAnomalyMetadata *>(metadata)->*field(metadata_dict{});
}

extern "C" const tgd_torch_python *tgd_torch_python_hooks(void)
{
    return &hooks;
}
