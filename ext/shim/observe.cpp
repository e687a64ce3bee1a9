/*
 * Full recording by at::RecordFunction. A callback runs on the thread of the op, without the GIL, and must neither
 * throw nor wait: rows go into the thread's own buffer (rows.h).
 */
#include "observe.h"

#include <exception>
#include <mutex>
#include <vector>

#include <ATen/SavedTensorHooks.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "checksum.h"
#include "compat.h"
#include "factors.h"
#include "forward_values.h"
#include "gradients.h"
#include "identity.h"
#include "op_table.h"
#include "private_fields.h"
#include "rows.h"
#include "writes.h"

namespace tgd
{
namespace
{

constexpr std::size_t most_tensors = 64;      /* of one op: more are not followed */

TGD_PRIVATE(safe_object, c10::SafePyObject, data_)

/* The node that a backward runs on this thread, or the unpack hook that what is saved now will get. */
std::uint64_t surroundings(const thread_state &t)
{
    if (t.backward > 0) {
        return reinterpret_cast<std::uintptr_t>(torch::autograd::get_current_node().get());
    }
    const auto &hooks = at::SavedTensorDefaultHooks::get_tls_state().stack;
    return hooks.empty() ? 0 : reinterpret_cast<std::uintptr_t>(hooks.top().second.*field(safe_object{}));
}

/* ---- ops ---- */

/* An op that a node runs, and that may make another node: a gradient that can be differentiated again. */
void note_maker(tgd_op_row &row)
{
    auto node = torch::autograd::get_current_node();
    if (node != nullptr && node->sequence_nr() != UINT64_MAX) {
        row.maker_nr = node->sequence_nr();
        row.maker_thread = static_cast<std::uint32_t>(node->thread_id());
        row.flags |= TGD_OP_MADE;
    }
}

void function_began(const at::RecordFunction &fn, thread_state &t)
{
    /* A custom Function: named by its class, with the sequence number of the node it makes. Its forward's ops are
       recorded on their own. */
    std::size_t n = 0;
    bool carries = false, any = false;
    std::vector<tgd_identity> ids;
    for (const c10::IValue &value : fn.inputs()) {
        each_tensor(value, [&](c10::TensorImpl *impl) {
            bool grad = false;
            tgd_identity id = identity_of(impl, &grad);
            if (id != 0 && n < most_tensors) {
                ids.push_back(id);
                n++;
            }
            carries = carries || grad;
            any = any || id != 0;
        });
    }
    if (!any) {
        return;
    }
    tgd_op_row row{};
    row.time = tick();
    row.sequence_nr = static_cast<std::uint64_t>(fn.seqNr());
    row.thread = at::RecordFunction::currentThreadId();
    row.name = kept_name(fn.name());
    row.place = here();
    row.mode = nowhere;
    row.flags = TGD_OP_FUNCTION | flag_if(c10::GradMode::is_enabled(), TGD_OP_GRAD_MODE) |
                flag_if(t.backward > 0, TGD_OP_IN_BACKWARD);
    if (t.backward > 0) {
        note_maker(row);
    }
    row.inside = surroundings(t);
    row.n_in = static_cast<std::uint16_t>(n);
    if (carries) {
        for (std::uint32_t nr = 0; nr < 8; nr++) {
            ids.push_back(tgd_identity_of_output(row.thread, row.sequence_nr, nr));
        }
        row.n_out = 8;
    }
    std::lock_guard<std::mutex> lock(t.log->mutex);
    t.log->make_room();
    row.first_id = static_cast<std::uint32_t>(t.log->now.ids.size());
    t.log->now.ids.insert(t.log->now.ids.end(), ids.begin(), ids.end());
    t.log->now.ops.push_back(row);
}

void op_began(const at::RecordFunction &fn)
{
    thread_state &t = state();
    const op_class *op = op_of(fn);
    if (op == nullptr) {
        if (fn.seqNr() >= 0 && (t.backward == 0 || c10::GradMode::is_enabled()) &&
            fn.scope() == at::RecordScope::FUNCTION && fn.inputs().size() > 0) {
            function_began(fn, t);
        }
        return;
    }
    if (t.depth++ > 0) {
        return;
    }
    t.live = t.carries = false;
    t.ids.clear();
    t.writes.clear();
    t.written.clear();
    bool follow = t.backward == 0 || c10::GradMode::is_enabled();
    if (!follow && op->n_writes == 0) {
        return;
    }
    t.op = tgd_op_row{};
    t.op.sequence_nr = static_cast<std::uint64_t>(at::sequence_number::peek());
    t.op.thread = at::RecordFunction::currentThreadId();
    t.op.name = op->name;
    t.op.place = t.op.mode = nowhere;
    t.op.flags = flag_if(c10::GradMode::is_enabled(), TGD_OP_GRAD_MODE) |
                 flag_if(c10::InferenceMode::is_enabled(), TGD_OP_INFERENCE) |
                 flag_if(t.backward > 0, TGD_OP_IN_BACKWARD);
    t.uncaught = std::uncaught_exceptions();
    if (follow) {
        for (const c10::IValue &value : fn.inputs()) {
            each_tensor(value, [&](c10::TensorImpl *impl) {
                bool grad = false;
                tgd_identity id = t.ids.size() < most_tensors ? identity_of(impl, &grad) : 0;
                if (id != 0) {
                    t.ids.push_back(id);
                    t.carries = t.carries || grad;
                }
            });
        }
    }
    t.op.n_in = static_cast<std::uint16_t>(t.ids.size());
    t.live = !t.ids.empty();
    if (t.live || op->n_writes > 0) {
        t.op.time = tick();
        t.op.place = here();
        t.op.inside = surroundings(t);
    }
    if (t.live && t.backward > 0) {
        note_maker(t.op);
    }
    for (std::uint8_t k = 0; k < op->n_writes; k++) {
        if (op->writes[k] < fn.inputs().size()) {
            std::uint32_t argument = 0;
            each_tensor(fn.inputs()[op->writes[k]], [&](c10::TensorImpl *impl) { note_write(t, impl, argument++); });
        }
    }
    if (!t.writes.empty() && t.op.inside != 0 && t.backward == 0) {
        t.writes[0].flags |= factor_flags(fn, op->name);
    }
}

void outputs_of(const at::RecordFunction &fn, thread_state &t)
{
    std::size_t n_in = t.ids.size();
    bool lost = false;
    for (const c10::IValue &value : fn.outputs()) {
        each_tensor(value, [&](c10::TensorImpl *impl) {
            if (t.ids.size() - n_in >= most_tensors) {
                return;
            }
            bool grad = false;
            tgd_identity id = identity_of(impl, &grad);
            if (!grad) {
                lost = true;
                id = marked(impl, true);
                if (c10::isIntegralType(c10::typeMetaToScalarType(impl->dtype()), true)) {
                    t.op.flags |= TGD_OP_INTEGER_OUT;
                }
            }
            t.ids.push_back(id);
        });
    }
    t.op.n_out = static_cast<std::uint16_t>(t.ids.size() - n_in);
    if (t.carries && (lost || t.op.n_out == 0)) {
        t.op.flags |= TGD_OP_CUT;
        if (!(t.op.flags & TGD_OP_GRAD_MODE)) {
            t.op.mode = mode_place(t, t.op.flags);
        }
    }
}

void op_ended(const at::RecordFunction &fn)
{
    thread_state &t = state();
    if (t.depth == 0 || op_of(fn) == nullptr || --t.depth > 0) {
        return;
    }
    t.op.sequence_end = static_cast<std::uint64_t>(at::sequence_number::peek());
    /* Made of tensors that are wrapped (functorch's): they bear no identity, the node has its place all the same. */
    bool made = !t.live && t.op.name != nullptr && t.op.sequence_end > t.op.sequence_nr && t.backward == 0;
    if (!t.live && t.writes.empty() && !made) {
        return;
    }
    if (made && t.op.time == 0) {
        t.op.time = tick();
        t.op.place = here();
        t.op.inside = surroundings(t);
    }
    bool threw = std::uncaught_exceptions() > t.uncaught;
    if (threw) {
        t.op.flags |= TGD_OP_THREW;
    } else if (t.live) {
        outputs_of(fn, t);
    }
    if (!threw && t.live && t.backward == 0) {
        t.op.flags |= nonfinite_flags(fn);
    }
    if (!threw && t.live && (t.op.flags & TGD_OP_GRAD_MODE) && checksums_wanted()) {
        sum_outputs(t, fn);
    }
    if (t.live || made) {
        std::lock_guard<std::mutex> lock(t.log->mutex);
        t.log->make_room();
        t.op.first_id = static_cast<std::uint32_t>(t.log->now.ids.size());
        t.log->now.ids.insert(t.log->now.ids.end(), t.ids.begin(), t.ids.end());
        t.log->now.ops.push_back(t.op);
    }
    end_writes(t, threw);
    for (std::size_t i = 0; !threw && i < t.writes.size(); i++) {
        gradient_written(t, t.writes[i]);
    }
}

/* ---- backward ---- */

void node_began(const at::RecordFunction &fn)
{
    thread_state &t = state();
    t.backward++;
    int task = torch::autograd::get_current_graph_task_id();
    auto node = torch::autograd::get_current_node();
    if (task < 0 || node == nullptr) {
        return;
    }
    if (task != t.task) {
        t.task = task;
        if (!t.runs.empty()) {
            t.task_run = t.runs.back();
        } else if (latest_run.load() != 0) {
            t.task_run = latest_run.load(); /* a device's thread, at work for another */
        } else {
            t.task_run = add_run(here(), torch::autograd::get_current_graph_task_keep_graph(), false);
        }
    }
    gradients_arrived(t, fn, *node);
    if (node->sequence_nr() == UINT64_MAX) {
        return; /* AccumulateGrad: never freed */
    }
    tgd_taken_row row = {node->sequence_nr(), node->thread_id(), t.task_run};
    std::lock_guard<std::mutex> lock(t.log->mutex);
    t.log->make_room();
    t.log->now.taken.push_back(row);
}

void node_ended()
{
    thread_state &t = state();
    if (t.backward > 0) {
        gradients_left(t);
        t.backward--;
    }
}

/* ---- callbacks: nothing may leave them ---- */
std::unique_ptr<at::ObserverContext> on_op(const at::RecordFunction &fn)
{
    quietly([&] { op_began(fn); });
    return nullptr;
}

void on_op_end(const at::RecordFunction &fn, at::ObserverContext *)
{
    quietly([&] { op_ended(fn); });
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

std::unique_ptr<at::ObserverContext> on_range(const at::RecordFunction &fn)
{
    quietly([&] { note_range(fn.name()); });
    return nullptr;
}

struct session {
    std::mutex mutex;
    int count = 0;
    at::CallbackHandle op = 0, node = 0, range = 0;
};

session &recording()
{
    static session *one = new session();
    return *one;
}

} // namespace
} // namespace tgd

using namespace tgd;

extern "C" tgd_status tgd_observe_start(const tgd_observer *observer, tgd_error *err)
{
    return guarded(err, [&] {
        session &one = recording();
        std::lock_guard<std::mutex> lock(one.mutex);
        if (one.count++ > 0) {
            return;
        }
        hold_observer(observer);
        full_since.store(tick());
        full_on.store(true);
        at::RecordFunctionCallback op(on_op, on_op_end);
        op.needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION});
        one.op = at::addGlobalCallback(op);
        at::RecordFunctionCallback node(on_node, on_node_end);
        node.needsInputs(true).scopes({at::RecordScope::BACKWARD_FUNCTION});
        one.node = at::addGlobalCallback(node);
        at::RecordFunctionCallback range(on_range);
        range.scopes({at::RecordScope::USER_SCOPE});
        one.range = at::addGlobalCallback(range);
    });
}

extern "C" void tgd_observe_stop(void)
{
    (void)guarded(nullptr, [] {
        session &one = recording();
        std::lock_guard<std::mutex> lock(one.mutex);
        if (one.count == 0 || --one.count > 0) {
            return;
        }
        at::removeCallback(one.op);
        at::removeCallback(one.node);
        at::removeCallback(one.range);
        full_on.store(false);
        full_since.store(UINT64_MAX);
        drop_observer();
        tgd_observe_forget_events();
    });
}
