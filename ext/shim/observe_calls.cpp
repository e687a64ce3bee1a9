/* What the patched functions tell (ext/python/patches.c): grad mode, storages, and the start of a backward. */
#include <cstring>

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "compat.h"
#include "gradients.h"
#include "light.h"
#include "light_cuts.h"
#include "op_table.h"
#include "rows.h"

using namespace tgd;

namespace
{

constexpr std::size_t most_modes = 64; /* blocks of no_grad and the like within one another */

/* Grad mode became what it is now, by a call at this place. */
void note_mode(thread_state &t, const tgd_place &place, bool enabled)
{
    tgd_place before = nowhere;
    if (place.via & TGD_VIA_RESTORE) {
        if (!t.modes.empty()) {
            before = t.modes.back();
            t.modes.pop_back();
        }
        t.mode_off = enabled ? nowhere : before;
        return;
    }
    if (t.modes.size() >= most_modes) { /* set, and never restored */
        t.modes.erase(t.modes.begin(), t.modes.begin() + most_modes / 2);
    }
    t.modes.push_back(t.mode_off);
    t.mode_off = enabled ? nowhere : place;
}

/* What the light level has to do on every thread, at the next occasion. */
void keep_up()
{
    if (light_on.load(std::memory_order_relaxed)) {
        join_thread();
        rearm_nodes();
        register_later_ops();
    }
}

} // namespace

extern "C" void tgd_observe_grad_mode(int enabled)
{
    quietly([&] {
        if (active.load() != nullptr) {
            thread_state &t = state();
            tgd_place place = here();
            note_mode(t, place, enabled != 0);
            keep_up();
            watch_no_grad(t, light_on.load(std::memory_order_relaxed) && !enabled &&
                                 !(place.via & (TGD_VIA_OPTIMIZER | TGD_VIA_COMPILE)));
        }
    });
}

extern "C" void tgd_observe_inference(int began)
{
    quietly([&] {
        if (active.load() == nullptr) {
            return;
        }
        thread_state &t = state();
        if (began == 0) {
            if (!t.inference.empty()) {
                t.inference.pop_back();
            }
        } else {
            if (t.inference.size() >= most_modes) { /* begun, and never ended */
                t.inference.erase(t.inference.begin(), t.inference.begin() + most_modes / 2);
            }
            t.inference.push_back(c10::InferenceMode::is_enabled() ? here() : nowhere);
        }
        watch_no_grad(t, light_on.load(std::memory_order_relaxed) && !c10::GradMode::is_enabled());
    });
}

/* A storage that was given another size, or (tensor not 0) to a tensor, by no op. */
static void note_storage(const char *name, std::uint64_t storage, std::uint64_t tensor)
{
    thread_state &t = state();
    tgd_write_row row{};
    row.time = tick();
    row.thread = at::RecordFunction::currentThreadId();
    row.tensor = tensor;
    row.storage = storage;
    row.name = name;
    row.place = here();
    row.flags = TGD_OP_RESIZED;
    std::lock_guard<std::mutex> lock(t.log->mutex);
    t.log->make_room();
    t.log->now.writes.push_back(row);
}

extern "C" void tgd_observe_resize(uint64_t storage)
{
    quietly([&] {
        if (active.load() != nullptr) {
            note_storage("resize_", storage, 0);
        }
    });
}

extern "C" void tgd_observe_swap(const tgd_torch_tensor *tensor)
{
    quietly([&] {
        const c10::TensorImpl *impl = impl_of(tensor);
        if (active.load() != nullptr && impl->has_storage()) {
            note_storage("set_data", reinterpret_cast<std::uintptr_t>(impl->unsafe_storage().unsafeGetStorageImpl()),
                         reinterpret_cast<std::uintptr_t>(impl));
        }
    });
}

/* Ranges that torch's optimizers open: "Optimizer.step#Adam.step", "Optimizer.zero_grad#Adam.zero_grad". */
void tgd::note_range(const char *name)
{
    if (std::strncmp(name, "Optimizer.", 10) != 0) {
        return;
    }
    thread_state &t = state();
    tgd_write_row row{};
    row.time = tick();
    row.thread = at::RecordFunction::currentThreadId();
    row.name = kept_name(name);
    row.place = here();
    row.flags = TGD_OP_MARK;
    std::lock_guard<std::mutex> lock(t.log->mutex);
    t.log->make_room();
    t.log->now.writes.push_back(row);
}

extern "C" void tgd_observe_run(int keep_graph, int create_graph)
{
    quietly([&] {
        if (active.load() != nullptr) {
            std::uint64_t run = add_run(here(), keep_graph != 0, create_graph != 0);
            state().runs.push_back(run);
            latest_run.store(run);
            keep_up();
        }
    });
}

extern "C" uint64_t tgd_observe_run_ended(int failed)
{
    std::uint64_t ended = 0;
    quietly([&] {
        thread_state &t = state();
        if (t.runs.empty()) {
            return;
        }
        std::uint64_t run = t.runs.back();
        t.runs.pop_back();
        latest_run.store(t.runs.empty() ? 0 : t.runs.back());
        end_run(run, failed != 0);
        ended = run;
        if (failed != 0) {
            run_stopped(t, run);
        }
    });
    return ended;
}
