/* What nodes saved for backward: SavedVariable's private fields, and where each kind of node keeps its own. */
#include <mutex>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "identity.h"
#include "node_class.h"
#include "private_fields.h"
#include "record.h"
#include "saved.h"

using torch::autograd::AutogradContext;
using torch::autograd::AutogradMeta;
using torch::autograd::CopySlices;
using torch::autograd::DifferentiableViewMeta;
using torch::autograd::InputMetadata;
using torch::autograd::SavedVariable;

namespace tgd
{
namespace
{

TGD_PRIVATE(saved_data, SavedVariable, data_)
TGD_PRIVATE(saved_version, SavedVariable, saved_version_)
TGD_PRIVATE(saved_default, SavedVariable, was_default_constructed_)
TGD_PRIVATE(saved_on_view, SavedVariable, is_inplace_on_view_)
TGD_PRIVATE(saved_original, SavedVariable, saved_original_)
TGD_PRIVATE(saved_leaf, SavedVariable, is_leaf_)
TGD_PRIVATE(saved_output, SavedVariable, is_output_)
TGD_PRIVATE(saved_hooks, SavedVariable, hooks_)
TGD_PRIVATE(saved_grad_fn, SavedVariable, grad_fn_)
TGD_PRIVATE(saved_weak_grad_fn, SavedVariable, weak_grad_fn_)
TGD_PRIVATE(saved_accumulator, SavedVariable, grad_accumulator_)
TGD_PRIVATE(saved_output_nr, SavedVariable, output_nr_)
TGD_PRIVATE(tensor_autograd, c10::TensorImpl, autograd_meta_)
TGD_PRIVATE(node_mutex, Node, mutex_)
TGD_PRIVATE(context_saved, AutogradContext, saved_variables_)
TGD_PRIVATE(context_freed, AutogradContext, has_freed_buffers_)

void set(std::uint32_t &flags, std::uint32_t flag, bool on)
{
    flags |= on ? flag : 0u;
}

/* Stands for every torch::autograd::Function<T>: T is not part of CppNode<T>'s layout. */
struct any_function : torch::autograd::Function<any_function> {
    static torch::autograd::Variable forward(AutogradContext *, torch::autograd::Variable v)
    {
        return v;
    }
    static torch::autograd::variable_list backward(AutogradContext *, torch::autograd::variable_list grads)
    {
        return grads;
    }
};
using any_cpp_node = torch::autograd::CppNode<any_function>;
static_assert(std::is_same_v<decltype(any_cpp_node::ctx_), AutogradContext>, "CppNode keeps its context elsewhere");
static_assert(sizeof(any_cpp_node) >= sizeof(Node) + sizeof(AutogradContext), "CppNode has another layout");

/* Backward reads this tensor as its grad_fn made it; does it still have that shape and type? Not asked of classes
   whose fields are not what sizes() says. */
bool differs_from_grad_fn(const c10::TensorImpl &impl, const AutogradMeta &meta, std::uint32_t tensor_flags)
{
    /* A view's grad_fn is replaced under this lock when its base has changed. */
    std::unique_lock<std::mutex> lock(meta.mutex_, std::defer_lock);
    if (meta.is_view_ && !lock.try_lock()) {
        return false;
    }
    const Node *grad_fn = meta.grad_fn_.get();
    const std::uint32_t foreign = TGD_TENSOR_SUBCLASS | TGD_TENSOR_WRAPPER | TGD_TENSOR_NESTED | TGD_TENSOR_SYMBOLIC;
    if (grad_fn == nullptr || (tensor_flags & foreign) != 0 || meta.output_nr_ >= grad_fn->num_inputs()) {
        return false;
    }
    const InputMetadata &made = grad_fn->input_metadata(meta.output_nr_);
    if (made.was_default_constructed() || made.is_nested_tensor()) {
        return false;
    }
    const c10::SymIntArrayRef shape = made.shape_as_dim_vector();
    const c10::IntArrayRef sizes = impl.sizes_default();
    bool differs = shape.size() != sizes.size();
    for (std::size_t i = 0; !differs && i < sizes.size(); i++) {
        differs = !shape[i].is_heap_allocated() && shape[i].as_int_unchecked() != sizes[i];
    }
    const auto dtype = made.options().dtype_opt();
    return differs || (dtype.has_value() && *dtype != impl.dtype());
}

/* What a SavedVariable still knows of a tensor that its hooks packed. */
void read_hooked(const SavedVariable &saved, tgd_torch_saved *out)
{
    out->hooks = (saved.*field(saved_hooks{})).get();
    out->output_nr = saved.*field(saved_output_nr{});
    const Node *made = borrow(saved.*field(saved_grad_fn{}));
    if (made != nullptr) {
        out->identity = tgd_identity_of_output(made->thread_id(), made->sequence_nr(), out->output_nr);
    }
    const Node *leaf = borrow(saved.*field(saved_accumulator{}));
    if (leaf != nullptr && class_of(*leaf).kind == TGD_NODE_ACCUMULATE_GRAD) {
        const at::Tensor &variable = static_cast<const torch::autograd::AccumulateGrad *>(leaf)->variable;
        out->leaf = reinterpret_cast<std::uintptr_t>(variable.unsafeGetTensorImpl());
    }
}

/* Numbers are given to tensors, and shared by nothing: a view without a gradient has its base's. */
std::uint64_t mark_of(const c10::TensorImpl *impl, const AutogradMeta *meta)
{
    std::uint64_t mark = marked(const_cast<c10::TensorImpl *>(impl), false);
    if (mark == 0 && meta != nullptr && meta->is_view_) {
        const auto *view = static_cast<const DifferentiableViewMeta *>(meta);
        const at::Tensor *base = view->has_bw_view() ? &view->get_backward_view().base_ : nullptr;
        mark = base != nullptr && base->defined() ? marked(base->unsafeGetTensorImpl(), false) : 0;
    }
    return mark;
}

/* Fills in what SavedVariable::unpack() looks at, in its terms. */
void read_saved(const SavedVariable &saved, tgd_torch_saved *out)
{
    const bool hooks = saved.*field(saved_hooks{}) != nullptr;
    const bool original = saved.*field(saved_original{});
    const bool leaf = saved.*field(saved_leaf{});
    const bool on_view = saved.*field(saved_on_view{});
    out->saved_version = saved.*field(saved_version{});
    set(out->flags, TGD_SV_EMPTY, saved.*field(saved_default{}));
    set(out->flags, TGD_SV_HOOKS, hooks);
    set(out->flags, TGD_SV_LEAF, leaf);
    /* Generated nodes hand themselves to unpack() for their own results. */
    set(out->flags, TGD_SV_OUTPUT | TGD_SV_GIVEN_NODE, saved.*field(saved_output{}));
    set(out->flags, TGD_SV_INPLACE_ON_VIEW, on_view);
    set(out->flags, TGD_SV_ORIGINAL, original);

    const at::Tensor &data = saved.*field(saved_data{});
    const c10::TensorImpl *impl = data.unsafeGetTensorImpl();
    tgd_torch_tensor_read(handle(impl), &out->tensor);
    const auto *meta = (out->tensor.flags & TGD_TENSOR_DEFINED) != 0
                           ? static_cast<const AutogradMeta *>((impl->*field(tensor_autograd{})).get())
                           : nullptr;
    bool has_grad_fn = false;
    if (on_view) {
        has_grad_fn = !(saved.*field(saved_weak_grad_fn{})).expired();
    } else if (hooks) {
        has_grad_fn = (saved.*field(saved_grad_fn{})).get() != nullptr;
    } else if (original && meta != nullptr) {
        has_grad_fn = meta->grad_fn_.get() != nullptr ||
                      (meta->is_view_ && static_cast<const DifferentiableViewMeta *>(meta)->has_bw_view());
        set(out->flags, TGD_SV_METADATA_DIFFERS, !leaf && differs_from_grad_fn(*impl, *meta, out->tensor.flags));
    }
    set(out->flags, TGD_SV_HAS_GRAD_FN, has_grad_fn);
    if (!has_grad_fn && !hooks && (out->tensor.flags & TGD_TENSOR_DEFINED) != 0) {
        out->mark = mark_of(impl, meta);
    }
    if (hooks) {
        read_hooked(saved, out);
    }
}

/* Collects "stop" over the visits of one node. */
struct visitor {
    tgd_torch_saved_visitor visit;
    void *context;
    bool stopped = false;

    void tensor(const SavedVariable *saved, const char *name, std::int64_t index, std::uint32_t flags)
    {
        stopped = stopped || tgd_torch_saved_visit(saved, name, index, flags, visit, context) != 0;
    }
    void list(const std::vector<SavedVariable> &saved, const char *name, std::uint32_t flags)
    {
        for (std::size_t i = 0; i < saved.size() && !stopped; i++) {
            tensor(&saved[i], name, static_cast<std::int64_t>(i), flags);
        }
    }
    void released(const char *name)
    {
        tensor(nullptr, name, -1, TGD_SV_RELEASED_FLAG);
    }
    tgd_visit result() const
    {
        return stopped ? TGD_VISIT_STOPPED : TGD_VISIT_DONE;
    }
};

tgd_visit visit_generated(const Node &node, const node_class &type, visitor &each)
{
    const char *base = reinterpret_cast<const char *>(&node);
    for (std::uint32_t i = 0; i < type.n_members; i++) {
        if (type.members[i].kind == saved_member::single) {
            const void *at = base + type.members[i].offset;
            prefetch_tensor((static_cast<const SavedVariable *>(at)->*field(saved_data{})).unsafeGetTensorImpl());
        }
    }
    for (std::uint32_t i = 0; i < type.n_members && !each.stopped; i++) {
        const saved_member &member = type.members[i];
        const void *at = base + member.offset;
        switch (member.kind) {
        case saved_member::single:
            each.tensor(static_cast<const SavedVariable *>(at), member.name, -1, 0);
            break;
        case saved_member::list:
            each.list(*static_cast<const std::vector<SavedVariable> *>(at), member.name, 0);
            break;
        case saved_member::released:
            if (*static_cast<const bool *>(at)) {
                each.released(member.name);
            }
            break;
        }
    }
    return each.result();
}

tgd_visit visit_cpp(const Node &node, visitor &each)
{
    const AutogradContext &context = static_cast<const any_cpp_node &>(node).ctx_;
    if (context.*field(context_freed{})) {
        each.released("saved_tensors");
    }
    each.list(context.*field(context_saved{}), "saved_tensors", TGD_SV_GIVEN_NODE);
    return each.result();
}

tgd_visit visit_node(Node &node, const char **inner, visitor &each)
{
    const node_class &type = class_of(node);
    if (type.kind == TGD_NODE_PYTHON) {
        return TGD_VISIT_PYTHON;
    }
    if (type.kind == TGD_NODE_OTHER) {
        return TGD_VISIT_OPAQUE;
    }
    if (!type.has_saved) {
        return TGD_VISIT_DONE;
    }
    std::unique_lock<std::mutex> lock(node.*field(node_mutex{}), std::try_to_lock);
    if (!lock.owns_lock()) {
        return TGD_VISIT_BUSY;
    }
    if (type.kind == TGD_NODE_CPP) {
        return visit_cpp(node, each);
    }
    if (type.kind != TGD_NODE_COPY_SLICES) {
        return visit_generated(node, type, each);
    }
    /* Released by backward under the same lock, so it lives as long as this does. */
    Node *wrapped = static_cast<CopySlices &>(node).fn.get();
    if (wrapped == nullptr) {
        each.released("fn");
        return each.result();
    }
    const node_class &wrapped_type = class_of(*wrapped);
    if (wrapped_type.kind == TGD_NODE_COPY_SLICES) {
        return TGD_VISIT_OPAQUE;
    }
    if (wrapped_type.kind != TGD_NODE_PYTHON) {
        *inner = wrapped_type.name;
    }
    if (wrapped_type.kind == TGD_NODE_ERROR || wrapped_type.raising_edges == UINT32_MAX) {
        each.tensor(nullptr, "fn", -1, TGD_SV_RAISES);
    }
    return visit_node(*wrapped, inner, each);
}

} // namespace
} // namespace tgd

using namespace tgd;

extern "C" int tgd_torch_saved_visit(const void *saved_variable, const char *name, int64_t index, uint32_t flags,
                                     tgd_torch_saved_visitor visit, void *context)
{
    tgd_torch_saved out = {};
    out.name = name;
    out.index = index;
    out.flags = flags;
    if ((flags & (TGD_SV_RELEASED_FLAG | TGD_SV_RAISES)) != 0) {
        tgd_torch_tensor_read(nullptr, &out.tensor);
    } else {
        try {
            read_saved(*static_cast<const SavedVariable *>(saved_variable), &out);
        } catch (...) {
            out.tensor.flags |= TGD_TENSOR_WRAPPER; /* as tgd_torch_tensor_read() */
        }
    }
    return visit(context, &out);
}

extern "C" tgd_visit tgd_torch_node_saved(const tgd_torch_node *node, const char **inner,
                                          tgd_torch_saved_visitor visit, void *context)
{
    visitor each{visit, context};
    try {
        return visit_node(*node_of(node), inner, each);
    } catch (...) {
        return TGD_VISIT_OPAQUE;
    }
}
