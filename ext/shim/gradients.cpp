#include "gradients.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "forks.h"
#include "node_class.h"

namespace tgd
{
namespace
{

constexpr std::size_t most_events = 256, most_runs = 64, most_roots = 256;

struct root_storage {
    std::uint64_t run, storage;
};

struct happenings {
    std::mutex mutex;
    std::vector<tgd_event_row> events;
    std::vector<root_storage> roots; /* storages of the gradients that runs were started with */
    std::vector<root_storage> suspects; /* those of them that were written to */
    std::vector<std::uint64_t> writers; /* by which node: beside suspects */
};

happenings &all()
{
    static happenings *one = new happenings();
    return *one;
}

std::atomic<std::size_t> n_suspects{0};
std::atomic<std::uint64_t> last_node{0}, last_run{0};

/* Does a Python object stand for it, and own a reference? */
template <class Slot> auto has_object(const Slot *slot, int) -> decltype(slot->load_pyobj() != nullptr)
{
    return slot->load_pyobj() != nullptr;
}

template <class Slot> bool has_object(const Slot *slot, long)
{
    return slot->_unchecked_untagged_pyobj() != nullptr;
}

const c10::TensorImpl *dense(const c10::IValue &value)
{
    const c10::TensorImpl *impl =
        value.isTensor() && value.toTensor().defined() ? value.toTensor().unsafeGetTensorImpl() : nullptr;
    return impl != nullptr && impl->has_storage() && !impl->is_python_dispatch() ? impl : nullptr;
}

const c10::StorageImpl *storage_of(const c10::TensorImpl *impl)
{
    return impl->unsafe_storage().unsafeGetStorageImpl();
}

/* A view keeps the tensor it is a view of, which nobody else may need. */
std::size_t bases(const c10::TensorImpl *impl)
{
    const auto *meta = static_cast<const torch::autograd::AutogradMeta *>(impl->autograd_meta());
    if (meta == nullptr || !meta->is_view_) {
        return 0;
    }
    const auto *view = static_cast<const torch::autograd::DifferentiableViewMeta *>(meta);
    const at::Tensor *base = view->has_bw_view()   ? &view->get_backward_view().base_
                             : view->has_fw_view() ? &view->get_forward_view().base_
                                                   : nullptr;
    const bool twice = view->has_bw_view() && view->has_fw_view() && !view->shared_view_info();
    return base != nullptr && base->defined() && base->use_count() <= (twice ? 2u : 1u) ? 1 : 0;
}

/* Held by the engine's list and by the observer's copy of it, once for each input that it comes to, and by its own
   Python object. Whoever else counts holds it as well. */
bool is_shared(const at::RecordFunction &fn, const c10::TensorImpl *impl)
{
    std::size_t own = 0;
    for (const c10::IValue &value : fn.inputs()) {
        own += dense(value) == impl ? 2u : 0u;
    }
    own += has_object(impl->pyobj_slot(), 0) ? 1u : 0u;
    return c10::raw::intrusive_ptr::use_count(const_cast<c10::TensorImpl *>(impl)) > own ||
           c10::raw::intrusive_ptr::use_count(const_cast<c10::StorageImpl *>(storage_of(impl))) > 1 + bases(impl);
}

void add(const tgd_event_row &event)
{
    happenings &h = all();
    std::lock_guard<std::mutex> lock(h.mutex);
    if (h.events.size() >= most_events) {
        return;
    }
    h.events.push_back(event);
    const auto same = [&](const root_storage &root) { return root.run == event.run && root.storage == event.storage; };
    if (event.kind == TGD_EVENT_WRITTEN && std::any_of(h.roots.begin(), h.roots.end(), same)) {
        h.events.back().of_root = true;
        h.suspects.push_back({event.run, event.storage});
        h.writers.push_back(event.node);
        n_suspects.store(h.suspects.size());
    }
}

void add_lacked(std::uint64_t run, std::uint64_t node)
{
    tgd_event_row event{};
    event.kind = TGD_EVENT_LACKED;
    event.time = tick();
    event.run = run;
    event.node = node;
    event.place = nowhere;
    add(event);
}

/* A node that got no gradient tells something if a Python node that had all of its own is to blame; so those that had
   not are told with it. */
void look_for_none(thread_state &t, const at::RecordFunction &fn, const Node &node, std::uint64_t address)
{
    std::size_t n = 0, undefined = 0;
    for (const c10::IValue &value : fn.inputs()) {
        n++;
        undefined += value.isTensor() && !value.toTensor().defined() ? 1u : 0u;
    }
    if (undefined == 0) {
        return;
    }
    if (class_of(node).kind == TGD_NODE_PYTHON && t.lacking.size() < most_runs) {
        t.lacking.push_back(address);
    }
    if (undefined == n) {
        for (const std::uint64_t lacking : t.lacking) {
            add_lacked(t.task_run, lacking);
        }
        t.lacking.clear();
        add_lacked(t.task_run, address);
    }
}

/* Does a gradient that was written before come to this node too? */
void meet(std::uint64_t run, std::uint64_t storage, std::uint64_t node)
{
    tgd_event_row event{};
    {
        happenings &h = all();
        std::lock_guard<std::mutex> lock(h.mutex);
        for (std::size_t i = 0; i < h.suspects.size(); i++) {
            if (h.suspects[i].run == run && h.suspects[i].storage == storage && h.writers[i] != node) {
                event.kind = TGD_EVENT_MET;
                event.run = run;
                event.node = node;
                event.storage = storage;
                event.place = nowhere;
                event.time = tick();
            }
        }
    }
    if (event.node != 0) {
        add(event);
    }
}

} // namespace

void lock_gradient_events()
{
    all().mutex.lock();
}

void unlock_gradient_events()
{
    all().mutex.unlock();
}

void gradients_arrived(thread_state &t, const at::RecordFunction &fn, const Node &node)
{
    const auto address = reinterpret_cast<std::uintptr_t>(&node);
    if (t.last_run != t.task_run) {
        t.lacking.clear();
    }
    t.last_node = address;
    t.last_run = t.task_run;
    look_for_none(t, fn, node, address);
    last_node.store(address, std::memory_order_relaxed);
    last_run.store(t.task_run, std::memory_order_relaxed);
    for (const c10::IValue &value : fn.inputs()) {
        const c10::TensorImpl *impl = dense(value);
        if (impl == nullptr) {
            continue;
        }
        const auto storage = reinterpret_cast<std::uintptr_t>(storage_of(impl));
        const bool shared = is_shared(fn, impl);
        t.gradients.push_back({storage, address, t.backward, shared});
        for (const tgd_event_row &written : t.by_hooks) {
            if (shared && written.storage == storage && written.node == address &&
                const_cast<Node &>(node).retains_grad_hooks().empty()) {
                add(written);
            }
        }
        if (n_suspects.load(std::memory_order_relaxed) > 0) {
            meet(t.task_run, storage, address);
        }
    }
    t.by_hooks.clear();
}

void gradients_left(thread_state &t)
{
    while (!t.gradients.empty() && t.gradients.back().level >= t.backward) {
        t.gradients.pop_back();
    }
}

void gradient_written(thread_state &t, const tgd_write_row &write)
{
    tgd_event_row event{};
    event.kind = TGD_EVENT_WRITTEN;
    event.time = write.time;
    event.run = t.task_run;
    event.storage = write.storage;
    event.name = write.name;
    event.place = write.place;
    event.shared = true;
    if (t.backward > 0) {
        for (const arrived_gradient &gradient : t.gradients) {
            if (gradient.level == t.backward && gradient.storage == write.storage && gradient.shared) {
                event.node = gradient.node;
                add(event);
                return;
            }
        }
    } else if (torch::autograd::get_current_graph_task_id() >= 0 && t.by_hooks.size() < most_runs) {
        /* In a hook: it counts when the node begins, and the gradient with it. */
        const auto node = torch::autograd::get_current_node();
        event.node = reinterpret_cast<std::uintptr_t>(node.get());
        event.by_hook = true;
        t.by_hooks.push_back(event);
    }
}

void run_stopped(const thread_state &t, std::uint64_t run)
{
    tgd_event_row event{};
    event.kind = TGD_EVENT_STOPPED;
    event.time = tick();
    event.run = run;
    event.place = nowhere;
    event.node = t.last_run == run ? t.last_node : last_run.load() == run ? last_node.load() : 0;
    if (event.node != 0) {
        add(event);
    }
}

} // namespace tgd

using namespace tgd;

extern "C" void tgd_observe_run_gradient(const tgd_torch_tensor *gradient)
{
    quietly([&] {
        const c10::TensorImpl *impl = impl_of(gradient);
        thread_state &t = state();
        if (t.runs.empty() || !impl->has_storage()) {
            return;
        }
        happenings &h = all();
        std::lock_guard<std::mutex> lock(h.mutex);
        if (h.roots.size() >= most_roots) {
            h.roots.erase(h.roots.begin(), h.roots.begin() + most_roots / 2);
        }
        h.roots.push_back({t.runs.back(), reinterpret_cast<std::uintptr_t>(storage_of(impl))});
    });
}

extern "C" tgd_event_row *tgd_observe_events(uint64_t run, size_t *n)
{
    tgd_event_row *out = nullptr;
    *n = 0;
    quietly([&] {
        happenings &h = all();
        std::lock_guard<std::mutex> lock(h.mutex);
        const auto of_run = [run](const auto &row) { return row.run == run; };
        const auto count = std::count_if(h.events.begin(), h.events.end(), of_run);
        if (count > 0) {
            out = static_cast<tgd_event_row *>(std::malloc(static_cast<std::size_t>(count) * sizeof *out));
        }
        if (out != nullptr) {
            std::copy_if(h.events.begin(), h.events.end(), out, of_run);
            *n = static_cast<std::size_t>(count);
        }
        h.events.erase(std::remove_if(h.events.begin(), h.events.end(), of_run), h.events.end());
        h.roots.erase(std::remove_if(h.roots.begin(), h.roots.end(), of_run), h.roots.end());
        for (std::size_t i = h.suspects.size(); i-- > 0;) {
            if (h.suspects[i].run == run) {
                h.suspects.erase(h.suspects.begin() + static_cast<std::ptrdiff_t>(i));
                h.writers.erase(h.writers.begin() + static_cast<std::ptrdiff_t>(i));
            }
        }
        n_suspects.store(h.suspects.size());
    });
    return out;
}

extern "C" void tgd_observe_forget_events(void)
{
    quietly([] {
        happenings &h = all();
        std::lock_guard<std::mutex> lock(h.mutex);
        h.events.clear();
        h.roots.clear();
        h.suspects.clear();
        h.writers.clear();
        n_suspects.store(0);
    });
}
