/*
 * Where a gradient may end. Ops that carry it on are not recorded, so a row names beside the op's own inputs the leaves
 * that these were made from, found by a short walk up the graph while it is there.
 */
#include "light_cuts.h"

#include <cstring>
#include <deque>
#include <exception>
#include <unordered_set>

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include "identity.h"
#include "light.h"
#include "node_class.h"

namespace tgd
{
namespace
{

/* After a region without grad: what is computed from its results before the first node of a graph takes them. */
constexpr unsigned most_lingering = 32;
constexpr std::size_t most_inputs = 64, most_outputs = 64, most_leaves = 512, most_nodes = 1024;

const char *bare(const char *name)
{
    const char *colon = std::strrchr(name, ':');
    return colon == nullptr ? name : colon + 1;
}

/* The leaves above a node, nearest first. */
void add_leaves(const Node *from, std::vector<tgd_identity> &ids)
{
    std::deque<const Node *> queue{from};
    std::unordered_set<const Node *> met{from};
    std::size_t most = ids.size() + most_leaves;
    while (!queue.empty()) {
        const Node *node = queue.front();
        queue.pop_front();
        if (class_of(*node).kind == TGD_NODE_ACCUMULATE_GRAD) {
            const at::Tensor &leaf = static_cast<const torch::autograd::AccumulateGrad *>(node)->variable;
            tgd_identity id = ids.size() < most && leaf.defined() ? marked(leaf.unsafeGetTensorImpl(), true) : 0;
            if (id != 0) {
                ids.push_back(id);
            }
            continue;
        }
        for (const torch::autograd::Edge &edge : node->next_edges()) {
            const Node *next = edge.function.get();
            if (next != nullptr && met.size() < most_nodes && met.insert(next).second) {
                queue.push_back(next);
            }
        }
    }
}

enum carried : unsigned { no_grad = 0, grad = 1, lost_grad = 2 }; /* the last: a cut is known to have made it */

unsigned carried_by(const c10::IValue *values, std::size_t n)
{
    unsigned found = no_grad;
    for (std::size_t i = 0; i < n && !(found & grad); i++) {
        each_tensor(values[i], [&](c10::TensorImpl *impl) {
            const torch::autograd::AutogradMeta *meta = autograd_of(impl);
            if (meta != nullptr && (meta->grad_fn_ != nullptr || meta->requires_grad_)) {
                found |= grad;
            } else if (marked(impl, false) != 0) {
                found |= lost_grad;
            }
        });
    }
    return found;
}

/* Begins t.cut if one of the values carries a gradient, or else what else is wanted. */
bool begin(thread_state &t, const op_class &op, const c10::IValue *values, std::size_t n, unsigned wanted)
{
    unsigned found = carried_by(values, n);
    if ((found & wanted) == 0 || torch::autograd::get_current_graph_task_id() != -1) {
        return false;
    }
    t.cut_ids.clear();
    std::vector<const Node *> made_by;
    for (std::size_t i = 0; i < n; i++) {
        each_tensor(values[i], [&](c10::TensorImpl *impl) {
            bool grad = false;
            tgd_identity id = t.cut_ids.size() < most_inputs ? identity_of(impl, &grad) : 0;
            if (id != 0) {
                t.cut_ids.push_back(id);
                const Node *node = autograd_of(impl) == nullptr ? nullptr : autograd_of(impl)->grad_fn_.get();
                if (node != nullptr) {
                    made_by.push_back(node);
                }
            }
        });
    }
    for (const Node *node : made_by) {
        add_leaves(node, t.cut_ids);
    }
    t.cut = tgd_op_row{};
    t.cut.time = tick();
    t.cut.sequence_nr = static_cast<std::uint64_t>(at::sequence_number::peek());
    t.cut.thread = at::RecordFunction::currentThreadId();
    t.cut.name = op.name;
    t.cut.place = here();
    t.cut.mode = nowhere;
    t.cut.n_in = static_cast<std::uint16_t>(t.cut_ids.size());
    t.cut.flags = flag_if(found & grad, TGD_OP_CUT) | flag_if(c10::GradMode::is_enabled(), TGD_OP_GRAD_MODE) |
                  flag_if(c10::InferenceMode::is_enabled(), TGD_OP_INFERENCE);
    if (!c10::GradMode::is_enabled()) {
        t.cut.mode = mode_place(t, t.cut.flags);
    }
    return true;
}

void keep_cut(thread_state &t)
{
    std::lock_guard<std::mutex> lock(t.log->mutex);
    t.log->make_room();
    t.cut.first_id = static_cast<std::uint32_t>(t.log->now.ids.size());
    t.log->now.ids.insert(t.log->now.ids.end(), t.cut_ids.begin(), t.cut_ids.end());
    t.log->now.ops.push_back(t.cut);
}

/* ---- while grad mode is off ---- */

/* Returns whether any of them lost its gradient. */
bool add_outputs(thread_state &t, const c10::IValue *values, std::size_t n)
{
    bool lost = false;
    std::size_t n_in = t.cut_ids.size();
    for (std::size_t i = 0; i < n; i++) {
        each_tensor(values[i], [&](c10::TensorImpl *impl) {
            if (t.cut_ids.size() - n_in >= most_outputs) {
                return;
            }
            bool carries = false;
            tgd_identity id = identity_of(impl, &carries);
            if (!carries) {
                lost = true;
                id = marked(impl, true);
                t.cut.flags |= flag_if(c10::isIntegralType(c10::typeMetaToScalarType(impl->dtype()), true),
                                       TGD_OP_INTEGER_OUT);
            }
            t.cut_ids.push_back(id);
        });
    }
    t.cut.n_out = static_cast<std::uint16_t>(t.cut_ids.size() - n_in);
    return lost;
}

void stop_looking(thread_state &t)
{
    if (t.no_grad_callback != 0) {
        at::removeCallback(t.no_grad_callback);
        t.no_grad_callback = 0;
    }
    t.lingers = 0;
}

std::unique_ptr<at::ObserverContext> on_op(const at::RecordFunction &fn)
{
    quietly([&] {
        thread_state &t = state();
        if (t.mode_depth++ > 0) {
            return;
        }
        t.mode_live = false;
        if (!light_on.load(std::memory_order_relaxed) || full_on.load(std::memory_order_relaxed)) {
            return;
        }
        bool after = c10::GradMode::is_enabled(); /* ops that lose a gradient by themselves have their kernels */
        if (after && (t.lingers == 0 || torch::autograd::get_current_graph_task_id() != -1)) {
            return;
        }
        const op_class *op = t.light_depth > 0 ? nullptr : op_of(fn);
        /* What is written to in place is no cut: optimizers and initialisers work so. */
        t.mode_live = op != nullptr && op->n_writes == 0 &&
                      begin(t, *op, fn.inputs().data(), fn.inputs().size(),
                            after ? lost_grad : static_cast<unsigned>(grad) | lost_grad);
        t.mode_live = t.mode_live && !(after && (t.cut.flags & TGD_OP_CUT));
        t.uncaught = std::uncaught_exceptions();
    });
    return nullptr;
}

void on_op_end(const at::RecordFunction &fn, at::ObserverContext *)
{
    quietly([&] {
        thread_state &t = state();
        if (t.mode_depth == 0 || --t.mode_depth > 0) {
            return;
        }
        bool live = t.mode_live;
        t.mode_live = false;
        if (live && std::uncaught_exceptions() <= t.uncaught) {
            add_outputs(t, fn.outputs().data(), fn.outputs().size());
            keep_cut(t);
            t.lingers = c10::GradMode::is_enabled() ? t.lingers : most_lingering;
        }
        if (c10::GradMode::is_enabled() && torch::autograd::get_current_graph_task_id() == -1 &&
            (t.lingers == 0 || --t.lingers == 0)) {
            stop_looking(t);
        }
    });
}

} // namespace

bool can_cut(const char *name)
{
    static const char *const names[] = {
        "detach", "detach_", "detach_copy", "argmax", "argmin", "argsort", "sort", "msort", "topk", "kthvalue", "mode",
        "median", "nanmedian", "max", "min", "cummax", "cummin", "unique_dim", "_unique", "_unique2",
        "unique_consecutive", "nonzero", "count_nonzero", "bucketize", "searchsorted", "histc", "bincount",
        "multinomial", "one_hot", "item", "is_nonzero", "_local_scalar_dense", "equal", "allclose", "to", "_to_copy",
        "type_as", "resolve_conj", "resolve_neg", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite",
        "isclose", "isin", "signbit", "logical_not", "logical_and", "logical_or", "logical_xor", "bitwise_and",
        "bitwise_or", "any", "all", "floor_divide", "heaviside", "nextafter", "dequantize", "quantize_per_tensor",
        nullptr};
    if (std::strncmp(name, "aten::", 6) != 0) {
        return false;
    }
    for (const char *const *known = names; *known != nullptr; known++) {
        if (std::strcmp(bare(name), *known) == 0) {
            return true;
        }
    }
    return false;
}

bool cut_begins(thread_state &t, const op_class &op, const torch::jit::Stack &stack, std::size_t n_arguments)
{
    return !t.mode_live && begin(t, op, stack.data() + (stack.size() - n_arguments), n_arguments, grad);
}

void cut_ends(thread_state &t, const torch::jit::Stack &stack, std::size_t n_returns)
{
    std::size_t n = std::min(n_returns, stack.size());
    if (add_outputs(t, stack.data() + (stack.size() - n), n) || t.cut.n_out == 0) {
        keep_cut(t);
    }
}

void watch_no_grad(thread_state &t, bool off)
{
    if (torch::autograd::get_current_graph_task_id() != -1) {
        return; /* the engine puts a thread's callbacks back when it ends; and no cut is made in there */
    }
    if (off && t.no_grad_callback == 0) {
        at::RecordFunctionCallback callback(on_op, on_op_end);
        callback.needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION});
        t.no_grad_callback = at::addThreadLocalCallback(callback);
    } else if (!off && (t.lingers == 0 || !light_on.load(std::memory_order_relaxed))) {
        stop_looking(t);
    }
}

} // namespace tgd
