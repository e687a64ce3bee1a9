/* Tensors, nodes and edges. */
#include "shim.h"

#include <atomic>

#include <c10/core/ScalarType.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include "borrowed_tensor.h"
#include "compat.h"
#include "node_class.h"
#include "private_fields.h"

using torch::autograd::AutogradMeta;
using torch::autograd::DifferentiableViewMeta;
using torch::autograd::InputMetadata;

namespace tgd
{
namespace
{

TGD_PRIVATE(tensor_device, c10::TensorImpl, device_opt_)
TGD_PRIVATE(tensor_autograd, c10::TensorImpl, autograd_meta_)
TGD_PRIVATE(version_pointer, c10::VariableVersion, version_counter_)
TGD_PRIVATE(storage_size, c10::StorageImpl, size_bytes_)
TGD_PRIVATE(pre_hooks, Node, pre_hooks_)
TGD_PRIVATE(tensor_pre_hooks, Node, tensor_pre_hooks_)
TGD_PRIVATE(retain_grad_hooks, Node, retains_grad_hooks_)
TGD_PRIVATE(node_metadata, Node, anomaly_metadata_)
TGD_PRIVATE(post_hooks, Node, post_hooks_)

constexpr std::size_t most_dimensions = 64;

std::atomic<const tgd_torch_python *> python_hooks{nullptr};

void set(std::uint32_t &flags, std::uint32_t flag, bool on)
{
    flags |= on ? flag : 0u;
}

/* SymInts are 64-bit words; one that is a number is that number. */
static_assert(sizeof(c10::SymInt) == sizeof(std::int64_t), "SymInt is not one word");

/* The numbers themselves where all are plain, else a copy in buffer with -1 for the symbols. Never asks a symbol
   for its value: that would call Python. NULL when they do not fit. */
const std::int64_t *plain(c10::SymIntArrayRef values, std::int64_t *buffer)
{
    bool symbolic = false;
    for (const c10::SymInt &value : values) {
        symbolic = symbolic || value.is_heap_allocated();
    }
    if (!symbolic) {
        return reinterpret_cast<const std::int64_t *>(values.data());
    }
    if (values.size() > most_dimensions) {
        return nullptr;
    }
    for (std::size_t i = 0; i < values.size(); i++) {
        buffer[i] = values[i].is_heap_allocated() ? -1 : values[i].as_int_unchecked();
    }
    return buffer;
}

std::int8_t dtype_number(caffe2::TypeMeta type)
{
    if (!type.isScalarType() || type.toScalarType() == c10::ScalarType::Undefined) {
        return -1;
    }
    return static_cast<std::int8_t>(type.toScalarType());
}

/* Layout from the dispatch keys; layout() itself may end in Python for a subclass or a wrapper around one. */
std::int8_t layout_number(const c10::TensorImpl &impl, c10::DispatchKeySet keys, std::uint32_t flags)
{
    const bool foreign = (flags & (TGD_TENSOR_SUBCLASS | TGD_TENSOR_WRAPPER)) != 0;
    if ((flags & TGD_TENSOR_NESTED) != 0 && foreign) {
        return static_cast<std::int8_t>(c10::Layout::Jagged);
    }
    if (keys.has_all(c10::sparse_ks)) {
        return static_cast<std::int8_t>(c10::Layout::Sparse);
    }
    if (keys.has_all(c10::sparse_csr_ks)) {
        return foreign ? std::int8_t{-1} : static_cast<std::int8_t>(impl.layout());
    }
    if (keys.has_all(c10::mkldnn_ks)) {
        return static_cast<std::int8_t>(c10::Layout::Mkldnn);
    }
    return static_cast<std::int8_t>(c10::Layout::Strided);
}

/* As impl.autograd_meta(), inline. */
const AutogradMeta *autograd_of(const c10::TensorImpl &impl)
{
    return static_cast<const AutogradMeta *>((impl.*field(tensor_autograd{})).get());
}

void read_autograd(const AutogradMeta *meta, tgd_torch_tensor_info *out)
{
    if (meta == nullptr) {
        out->flags |= TGD_TENSOR_LEAF;
        return;
    }
    const Node *grad_fn = meta->grad_fn_.get();
    out->grad_fn = handle(grad_fn);
    out->output_nr = meta->output_nr_;
    if (grad_fn == nullptr) {
        out->flags |= TGD_TENSOR_LEAF;
        set(out->flags, TGD_TENSOR_HAS_ACCUMULATOR, !meta->grad_accumulator_.expired());
        set(out->flags, TGD_TENSOR_UNTOUCHED, never_set(meta->grad_accumulator_));
    }
    set(out->flags, TGD_TENSOR_VIEW, meta->is_view_);
    set(out->flags, TGD_TENSOR_RETAINS_GRAD, meta->retains_grad_);
    /* Of a view the base is asked as well. */
    set(out->flags, TGD_TENSOR_REQUIRES_GRAD,
        grad_fn != nullptr || (meta->is_view_ ? meta->requires_grad() : meta->requires_grad_));
}

void read_storage(c10::StorageImpl *storage, tgd_torch_tensor_info *out)
{
    if (storage == nullptr) {
        return;
    }
    out->flags |= TGD_TENSOR_HAS_STORAGE;
    out->storage = reinterpret_cast<std::uintptr_t>(storage);
    /* Without the copy-on-write and the access checks of data(). */
    out->data = reinterpret_cast<std::uintptr_t>(storage->_mutable_data_ptr_no_checks().get());
    const c10::SymInt &bytes = storage->*field(storage_size{});
    if (bytes.is_heap_allocated()) {
        out->flags |= TGD_TENSOR_SYMBOLIC;
    } else {
        out->storage_bytes = static_cast<std::uint64_t>(bytes.as_int_unchecked());
    }
}

/* Sizes and strides as the fields stand: the functions of that name may call Python. */
void read_shape(const c10::TensorImpl &impl, tgd_torch_tensor_info *out)
{
    static thread_local std::int64_t size_buffer[most_dimensions], stride_buffer[most_dimensions];

    if ((out->flags & TGD_TENSOR_NESTED) != 0) {
        return;
    }
    const bool strided = out->layout == static_cast<std::int8_t>(c10::Layout::Strided);
    if (impl.has_symbolic_sizes_strides()) {
        out->flags |= TGD_TENSOR_SYMBOLIC;
        const c10::SymIntArrayRef sizes = impl.sym_sizes_default();
        out->sizes = plain(sizes, size_buffer);
        if (out->sizes != nullptr) {
            out->ndim = static_cast<std::int16_t>(sizes.size());
            out->strides = strided ? plain(impl.sym_strides_default(), stride_buffer) : nullptr;
        }
        return;
    }
    const c10::IntArrayRef sizes = impl.sizes_default();
    out->sizes = sizes.data();
    out->ndim = static_cast<std::int16_t>(sizes.size());
    out->numel = impl.numel_default();
    if (strided) {
        out->strides = impl.strides_default().data();
        out->storage_offset = impl.storage_offset_default();
        set(out->flags, TGD_TENSOR_CONTIGUOUS, impl.is_contiguous_default(c10::MemoryFormat::Contiguous));
    }
}

template <class Impl> auto is_fake(const Impl &impl, int) -> decltype(impl.is_fake())
{
    return impl.is_fake();
}

template <class Impl> bool is_fake(const Impl &, long)
{
    return false;
}

void read_tensor(c10::TensorImpl &impl, tgd_torch_tensor_info *out)
{
    using c10::DispatchKey;
    constexpr c10::DispatchKeySet wrapper_keys({DispatchKey::FuncTorchBatched, DispatchKey::BatchedNestedTensor,
                                                DispatchKey::Batched, DispatchKey::FuncTorchGradWrapper,
                                                DispatchKey::Functionalize});
    const AutogradMeta *meta = autograd_of(impl);
    c10::StorageImpl *storage = impl.unsafe_storage().unsafeGetStorageImpl();
    const c10::VariableVersion &version = impl.version_counter();
    const auto *counter = (version.*field(version_pointer{})).get();
    prefetch(meta == nullptr ? nullptr : &meta->grad_fn_);
    prefetch(meta == nullptr ? nullptr : &meta->output_nr_);
    prefetch(storage == nullptr ? nullptr : &(storage->*field(storage_size{})));
    prefetch(counter);

    const c10::DispatchKeySet keys = impl.key_set();
    out->flags |= TGD_TENSOR_DEFINED;
    out->address = reinterpret_cast<std::uintptr_t>(&impl);
    out->dtype = dtype_number(impl.dtype());
    out->itemsize = static_cast<std::uint32_t>(impl.dtype().itemsize());
    if (out->dtype >= 0) {
        const auto type = static_cast<c10::ScalarType>(out->dtype);
        set(out->flags, TGD_TENSOR_COMPLEX, c10::isComplexType(type));
        set(out->flags, TGD_TENSOR_FLOATING, c10::isFloatingType(type));
    }
    const auto &device = impl.*field(tensor_device{});
    if (device.has_value()) {
        out->device_type = static_cast<std::int8_t>(device->type());
        out->device_index = static_cast<std::int8_t>(device->index());
        set(out->flags, TGD_TENSOR_META, device->type() == c10::DeviceType::Meta);
    }
    set(out->flags, TGD_TENSOR_SUBCLASS, keys.has_any(c10::python_ks));
    set(out->flags, TGD_TENSOR_NESTED, keys.has(c10::DispatchKey::NestedTensor));
    set(out->flags, TGD_TENSOR_WRAPPER, keys.has_any(wrapper_keys) || is_fake(impl, 0));
    set(out->flags, TGD_TENSOR_INFERENCE, impl.is_inference());
    read_autograd(meta, out);
    read_storage(storage, out);
    if ((out->flags & TGD_TENSOR_SUBCLASS) != 0 && out->data == 0 && out->numel != 0) {
        /* Made by _make_wrapper_subclass, or a FakeTensor: the data, if any, is in tensors that it holds. */
        out->flags |= TGD_TENSOR_WRAPPER;
    }
    if (version.enabled()) {
        out->version = version.current_version();
        out->version_counter = reinterpret_cast<std::uintptr_t>(counter);
    }
    out->layout = layout_number(impl, keys, out->flags);
    read_shape(impl, out);
}

/* Its base was changed in place since grad_fn was made, so backward would make a new one. */
bool is_stale_view(const c10::TensorImpl &impl, const AutogradMeta &meta)
{
    if (!meta.is_view_) {
        return false;
    }
    const auto &view = static_cast<const DifferentiableViewMeta &>(meta);
    return view.has_bw_view() && (meta.grad_fn_.get() != nullptr || view.get_backward_view().base_.requires_grad()) &&
           impl.version_counter().enabled() && impl.version_counter().current_version() != view.get_attr_version();
}

} // namespace
} // namespace tgd

using namespace tgd;

extern "C" void tgd_torch_tensor_read(const tgd_torch_tensor *tensor, tgd_torch_tensor_info *out)
{
    *out = {};
    out->numel = out->ndim = out->dtype = out->device_type = out->device_index = out->layout = -1;
    c10::TensorImpl *impl = impl_of(tensor);
    if (impl == nullptr || impl == c10::UndefinedTensorImpl::singleton()) {
        return;
    }
    try {
        read_tensor(*impl, out);
    } catch (...) {
        /* A check inside libtorch refused: an unusual tensor, about which nothing may be concluded. */
        out->flags |= TGD_TENSOR_WRAPPER;
    }
}

extern "C" tgd_status tgd_torch_tensor_node(const tgd_torch_tensor *tensor, const tgd_torch_node **node,
                                            uint32_t *output_nr, tgd_error *err)
{
    c10::TensorImpl *impl = impl_of(tensor);
    const Node *found = nullptr;
    std::uint32_t nr = 0;
    const tgd_status status = guarded(err, [&] {
        const AutogradMeta *meta = impl == c10::UndefinedTensorImpl::singleton() ? nullptr : autograd_of(*impl);
        if (meta == nullptr) {
            return;
        }
        if (is_stale_view(*impl, *meta)) {
            borrowed_tensor borrowed(impl);
            found = borrowed.get().grad_fn().get();
            nr = meta->output_nr_;
        } else if (meta->grad_fn_.get() != nullptr) {
            found = meta->grad_fn_.get();
            nr = meta->output_nr_;
        } else if (meta->requires_grad_) {
            found = borrow(meta->grad_accumulator_);
        }
    });
    if (status == TGD_OK) {
        *node = handle(found);
        *output_nr = nr;
    }
    return status;
}

extern "C" void tgd_torch_node_read(const tgd_torch_node *node, tgd_torch_node_info *out)
{
    const Node &n = *node_of(node);
    const node_class &type = class_of(n);
    *out = {};
    out->type = &type;
    out->kind = type.kind;
    out->has_saved = type.has_saved;
    out->raising_edges = type.raising_edges;
    out->sequence_nr = n.sequence_nr();
    out->thread_id = n.thread_id();
    out->n_edges = n.next_edges().size();
    out->n_inputs = n.num_inputs();
    out->n_pre_hooks = static_cast<std::uint32_t>((n.*field(pre_hooks{})).size());
    out->n_retain_grad_hooks = static_cast<std::uint32_t>((n.*field(retain_grad_hooks{})).size());
    out->n_post_hooks = static_cast<std::uint32_t>((n.*field(post_hooks{})).size());
    out->has_metadata = n.*field(node_metadata{}) != nullptr;
    if (type.kind != TGD_NODE_ACCUMULATE_GRAD) {
        out->n_tensor_pre_hooks = static_cast<std::uint32_t>((n.*field(tensor_pre_hooks{})).size());
        return;
    }
    const at::Tensor &variable = static_cast<const torch::autograd::AccumulateGrad &>(n).variable;
    if (!variable.defined()) {
        return;
    }
    out->variable = handle(variable.unsafeGetTensorImpl());
    const AutogradMeta *meta = autograd_of(*variable.unsafeGetTensorImpl());
    if (meta != nullptr) {
        /* A leaf keeps these itself. */
        out->n_tensor_pre_hooks = static_cast<std::uint32_t>(meta->hooks_.size());
        out->n_post_hooks += meta->post_acc_grad_hooks_ != nullptr ? 1u : 0u;
    }
}

extern "C" const char *tgd_torch_node_name(const tgd_torch_node *node)
{
    return class_of(*node_of(node)).name;
}

extern "C" const tgd_torch_node *tgd_torch_node_edge(const tgd_torch_node *node, size_t k, uint32_t *input_nr)
{
    const torch::autograd::Edge &edge = static_cast<const Node *>(node_of(node))->next_edges()[k];
    *input_nr = edge.input_nr;
    return handle(edge.function.get());
}

extern "C" void tgd_torch_node_input(const tgd_torch_node *node, size_t k, tgd_torch_input *out)
{
    static thread_local std::int64_t buffer[most_dimensions];

    const InputMetadata &input = static_cast<const Node *>(node_of(node))->input_metadata(k);
    *out = {};
    out->ndim = out->dtype = out->device_type = out->device_index = out->layout = -1;
    if (input.was_default_constructed()) {
        return;
    }
    const at::TensorOptions &options = input.options();
    if (const auto dtype = options.dtype_opt()) {
        out->dtype = dtype_number(*dtype);
    }
    if (const auto device = options.device_opt()) {
        out->device_type = static_cast<std::int8_t>(device->type());
        out->device_index = static_cast<std::int8_t>(device->index());
    }
    if (const auto layout = options.layout_opt()) {
        out->layout = static_cast<std::int8_t>(*layout);
    }
    out->subclass = input.is_tensor_subclass();
    out->nested = input.is_nested_tensor();
    if (out->nested == 0) {
        try {
            const c10::SymIntArrayRef shape = input.shape_as_dim_vector();
            out->sizes = plain(shape, buffer);
            const bool told = out->sizes != nullptr || shape.empty();
            out->ndim = told ? static_cast<std::int16_t>(shape.size()) : std::int16_t{-1};
        } catch (...) {
            /* The shape is kept in another form: it cannot be told. */
        }
    }
}

extern "C" const char *tgd_torch_built_for(void)
{
    return TGD_BUILT_FOR;
}

extern "C" void tgd_torch_set_python(const tgd_torch_python *python)
{
    python_hooks.store(python, std::memory_order_release);
}

extern "C" const tgd_torch_python *tgd_torch_get_python(void)
{
    return python_hooks.load(std::memory_order_acquire);
}
