#include "measure_run.h"

#include <exception>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "clock.h"
#include "compat.h"
#include "node_class.h"
#include "op_table.h"
#include "rows.h"

namespace tgd
{
namespace
{

constexpr std::size_t most_spans = 1u << 17; /* of a thread, in backwards that have not ended */

/* ---- first uses ---- */

/* Kinds of nodes that were timed, by a hash of type, dtype, device and shape. Full: none is the first any more. */
bool is_first_use(std::uint64_t hash)
{
    constexpr std::size_t size = 1u << 15, tries = 16;
    static std::atomic<std::uint64_t> seen[size];
    hash |= 1;
    for (std::size_t i = 0; i < tries; i++) {
        std::atomic<std::uint64_t> &slot = seen[(((hash >> 16) ^ (hash >> 40)) + i) & (size - 1)];
        std::uint64_t there = slot.load(std::memory_order_relaxed);
        if (there == 0 && slot.compare_exchange_strong(there, hash, std::memory_order_relaxed)) {
            return true;
        }
        if (there == hash) {
            return false;
        }
    }
    return false;
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15) + (hash >> 29);
}

std::uint64_t kind_of(const char *name, const at::RecordFunction &fn)
{
    std::uint64_t hash = mixed(1, reinterpret_cast<std::uintptr_t>(name));
    for (const c10::IValue &value : fn.inputs()) {
        if (value.isTensor()) {
            tgd_torch_tensor_info info;
            tgd_torch_tensor_read(handle(value.unsafeToTensorImpl()), &info);
            hash = mixed(hash, static_cast<std::uint64_t>(info.dtype + 1) << 16 |
                                   static_cast<std::uint64_t>(info.device_type + 1) << 8 |
                                   static_cast<std::uint64_t>(info.device_index + 1));
            for (int d = 0; d < info.ndim; d++) {
                hash = mixed(hash, static_cast<std::uint64_t>(info.sizes[d]));
            }
        }
    }
    return hash;
}

/* ---- nodes ---- */

/* Of a tensor on the CPU. */
tgd_unchecked statistics_of(measured_thread &t, c10::TensorImpl *impl, tgd_statistics *out)
{
    tgd_torch_tensor_info info;
    tgd_torch_tensor_read(handle(impl), &info);
    if (const tgd_statistics *known = t.recent.find(impl, info)) {
        *out = *known;
        return TGD_CHECKED;
    }
    const tgd_unchecked why = tgd_torch_statistics(handle(impl), out);
    if (why == TGD_CHECKED) {
        t.recent.remember(impl, info, *out);
    }
    return why;
}

void look_at(measured_thread &t, open_span &open, const c10::IValue &value)
{
    measured_gradient made{};
    tgd_gradient &gradient = made.gradient;
    tgd_unchecked why = TGD_UNCHECKED_UNDEFINED;
    if (value.isTensor()) {
        why = statistics_of(t, value.unsafeToTensorImpl(), &gradient.values);
    }
    if (why == TGD_UNCHECKED_DEVICE) {
        tgd_later *later = nullptr;
        why = tgd_torch_statistics_later(handle(value.unsafeToTensorImpl()), false, &later);
        gradient.coarse = why == TGD_CHECKED;
        if (why == TGD_CHECKED) {
            made.later.reset(later, tgd_later_free);
        }
    }
    gradient.received = why != TGD_UNCHECKED_UNDEFINED;
    gradient.measured = why == TGD_CHECKED;
    gradient.unchecked = why == TGD_CHECKED ? nullptr : tgd_torch_unchecked_name(why);
    t.gradients.push_back(std::move(made));
    open.span.n_gradients++;
}

const char *name_of(const node_class &kind, const at::RecordFunction &fn)
{
    return kind.name[0] != '\0' ? kind.name : kept_name(fn.name());
}

void time_on_device(open_span &open, const tgd_torch_node *node)
{
    tgd_torch_stream stream;
    if (tgd_torch_node_stream(node, &stream) == 0) {
        return;
    }
    open.clock = device_clock_of(stream.device_type);
    if (open.clock != nullptr) {
        open.key = next_device_key();
        open.token = tgd_device_span_begin(open.clock, stream.device, device_stream_word(stream), open.key);
    }
}

/* May the code of others change its gradients, or what it makes of them, without a count of it? */
bool runs_code_of_others(Node &node, const node_class &kind)
{
    return kind.kind != TGD_NODE_BUILTIN && kind.kind != TGD_NODE_ACCUMULATE_GRAD
               ? true
               : !node.pre_hooks().empty() || !node.tensor_pre_hooks().empty() || !node.post_hooks().empty();
}

/* Who runs. */
void identify(measured_thread &t, open_span &open, Node &node, const at::RecordFunction &fn)
{
    const node_class &kind = class_of(node);
    tgd_span &span = open.span;
    open.of_node = true;
    span.name = name_of(kind, fn);
    span.node = reinterpret_cast<std::uintptr_t>(&node);
    span.sequence_nr = node.sequence_nr();
    span.node_thread = node.thread_id();
    span.run = state().task_run;
    span.outermost = outermost_of(t, span.run);
    span.thread = at::RecordFunction::currentThreadId();
    if (kind.kind == TGD_NODE_ACCUMULATE_GRAD) {
        const auto &leaf = static_cast<const torch::autograd::AccumulateGrad &>(node).variable;
        span.leaf = reinterpret_cast<std::uintptr_t>(leaf.unsafeGetTensorImpl());
    }
    for (const open_span &around : t.open) {
        span.depth += around.of_node;
    }
    span.depth--;
    open.of_others = runs_code_of_others(node, kind);
    span.first_use = is_first_use(kind_of(span.name, fn));
}

void node_began(const at::RecordFunction &fn)
{
    const std::uint64_t entered = tgd_clock_now();
    measured_thread &t = measured_state();
    t.lost++;
    t.open.emplace_back();
    t.lost--;
    open_span &open = t.open.back();
    open.entered = open.span.began = entered;
    open.uncaught = std::uncaught_exceptions();
    open.first_gradient = t.gradients.size();
    auto node = torch::autograd::get_current_node();
    if (node != nullptr && torch::autograd::get_current_graph_task_id() >= 0) {
        identify(t, open, *node, fn);
        if (looks_at_gradients()) {
            if (open.of_others) {
                t.recent.forget();
            }
            for (const c10::IValue &value : fn.inputs()) {
                look_at(t, open, value);
            }
        }
        time_on_device(open, handle(&*node));
    }
    open.span.began = tgd_clock_now();
}

/* The innermost open span as a row of the thread's log. */
void keep(measured_thread &t, std::uint64_t ended)
{
    const open_span &open = t.open.back();
    const std::uint64_t whole = ended - open.span.began;
    std::lock_guard<std::mutex> lock(t.log->mutex);
    std::vector<measured_row> &rows = t.log->rows;
    if (rows.size() >= most_spans || t.log->gradients.size() >= 2 * most_spans) {
        t.log->dropped++;
        return;
    }
    const std::size_t first_gradient = t.log->gradients.size();
    if (open.span.n_gradients > 0) {
        const auto first = t.gradients.begin() + static_cast<std::ptrdiff_t>(open.first_gradient);
        t.log->gradients.insert(t.log->gradients.end(), first, t.gradients.end());
    }
    rows.push_back({open.span, open.entered, 0, first_gradient, open.clock, open.key});
    tgd_span &span = rows.back().span;
    span.ended = ended;
    span.total_ns = whole > open.ours ? whole - open.ours : 0;
    span.self_ns = span.total_ns > open.children ? span.total_ns - open.children : 0;
    span.threw = std::uncaught_exceptions() > open.uncaught;
    rows.back().left = tgd_clock_now();
}

void node_ended()
{
    const std::uint64_t ended = tgd_clock_now();
    measured_thread &t = measured_state();
    if (t.lost > 0) {
        t.lost--;
        return;
    }
    if (t.open.empty() || t.open.back().is_run) {
        return; /* it began before we did */
    }
    const open_span &open = t.open.back();
    if (open.clock != nullptr) {
        tgd_device_span_end(open.clock, open.token);
    }
    if (open.of_node) {
        quietly([&] { keep(t, ended); });
    }
    t.gradients.resize(open.first_gradient);
    if (open.of_others) {
        t.recent.forget();
    }
    close_span(t, ended);
    if (!t.open.empty()) {
        t.open.back().ours += tgd_clock_now() - ended;
    }
}

std::unique_ptr<at::ObserverContext> on_node(const at::RecordFunction &fn)
{
    quietly([&] { node_began(fn); });
    return nullptr;
}

void on_node_end(const at::RecordFunction &, at::ObserverContext *)
{
    quietly([] { node_ended(); });
}

/* ---- on and off ---- */

struct session {
    std::mutex mutex;
    int times = 0, gradients = 0;
    bool on = false, with_inputs = false;
    at::CallbackHandle handle = 0;
};

session &measuring()
{
    static session *one = new session();
    return *one;
}

/* With the mutex held. */
void arrange(session &one)
{
    const bool on = one.times > 0, with_inputs = one.gradients > 0;
    if (one.on == on && one.with_inputs == with_inputs) {
        return;
    }
    if (one.on) {
        at::removeCallback(one.handle);
        one.on = false;
    }
    set_looks_at_gradients(with_inputs);
    one.with_inputs = with_inputs;
    if (on) {
        at::RecordFunctionCallback node(on_node, on_node_end);
        node.needsInputs(with_inputs).scopes({at::RecordScope::BACKWARD_FUNCTION});
        one.handle = at::addGlobalCallback(node);
        one.on = true;
    } else {
        forget_measured();
    }
    set_measuring(on);
}

} // namespace
} // namespace tgd

using namespace tgd;

extern "C" tgd_status tgd_measure_start(unsigned what, tgd_error *err)
{
    return guarded(err, [&] {
        session &one = measuring();
        std::lock_guard<std::mutex> lock(one.mutex);
        one.times++;
        one.gradients += (what & TGD_MEASURE_GRADIENTS) != 0;
        arrange(one);
    });
}

extern "C" void tgd_measure_stop(unsigned what)
{
    quietly([&] {
        session &one = measuring();
        std::lock_guard<std::mutex> lock(one.mutex);
        one.times -= one.times > 0;
        one.gradients -= (what & TGD_MEASURE_GRADIENTS) != 0 && one.gradients > 0;
        arrange(one);
    });
}

extern "C" void tgd_measure_run_began(void)
{
    quietly([] {
        if (is_measuring() && !state().runs.empty()) {
            begin_run(state().runs.back());
        }
    });
}
