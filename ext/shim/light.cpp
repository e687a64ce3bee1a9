/* The light level's beginning and end. */
#include "light.h"

#include "light_cuts.h"
#include "light_python.h"

namespace tgd
{
namespace
{

struct session {
    std::mutex mutex;
    int count = 0;
};

session &recording()
{
    static session *one = new session();
    return *one;
}

std::atomic<const tgd_light_patches *> patches{nullptr};

} // namespace
} // namespace tgd

using namespace tgd;

extern "C" void tgd_light_set_patches(const tgd_light_patches *given)
{
    patches.store(given, std::memory_order_release);
}

extern "C" tgd_status tgd_observe_start_light(const tgd_observer *observer, tgd_error *err)
{
    const tgd_light_patches *python = patches.load(std::memory_order_acquire);
    if (python != nullptr && python->install(err) < 0) {
        return TGD_ETORCH;
    }
    tgd_status status = guarded(err, [&] {
        session &one = recording();
        std::lock_guard<std::mutex> lock(one.mutex);
        if (one.count == 0) {
            register_kernels();
            hold_observer(observer);
            light_on.store(true);
            try {
                start_nodes();
            } catch (...) {
                light_on.store(false);
                drop_observer();
                throw;
            }
        }
        one.count++;
        join_thread();
    });
    if (status != TGD_OK && python != nullptr) {
        python->restore();
    }
    return status;
}

extern "C" void tgd_observe_stop_light(void)
{
    bool ended = false;
    (void)guarded(nullptr, [&] {
        session &one = recording();
        std::lock_guard<std::mutex> lock(one.mutex);
        if (one.count == 0) {
            return;
        }
        ended = true;
        if (--one.count > 0) {
            return;
        }
        stop_nodes();
        light_on.store(false);
        leave_thread();
        watch_no_grad(state(), false);
        drop_observer();
    });
    const tgd_light_patches *python = patches.load(std::memory_order_acquire);
    if (ended && python != nullptr) {
        python->restore();
    }
}

extern "C" int tgd_observe_on(void)
{
    return active.load() != nullptr;
}
