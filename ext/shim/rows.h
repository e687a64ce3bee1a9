/*
 * The rows that are being recorded. Each thread has its own, under a lock that only tgd_observe_take() ever contends
 * for; all are bounded.
 */
#ifndef TGD_ROWS_H
#define TGD_ROWS_H

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "observe.h"

namespace c10
{
struct TensorImpl;
}

namespace tgd
{

/* Rows of a kind in each of a thread's two generations. The light level runs for days: 6 MB a thread that writes. */
struct row_limits {
    std::size_t ops, writes, taken, ids, sums;
};
constexpr row_limits full_limits = {1u << 17, 1u << 17, 1u << 17, 1u << 20, 1u << 17};
constexpr row_limits light_limits = {1u << 11, 1u << 14, 1u << 12, 1u << 15, 0};
constexpr tgd_place nowhere = {TGD_NONE, -1, TGD_NONE, 0, 0};

/* Which levels are on. */
extern std::atomic<bool> full_on, light_on;

struct generation {
    std::vector<tgd_op_row> ops;
    std::vector<tgd_write_row> writes;
    std::vector<tgd_taken_row> taken;
    std::vector<tgd_sum_row> sums;
    std::vector<tgd_identity> ids;

    bool full() const
    {
        const row_limits &most = full_on.load(std::memory_order_relaxed) ? full_limits : light_limits;
        return ops.size() >= most.ops || writes.size() >= most.writes || taken.size() >= most.taken ||
               ids.size() >= most.ids || (most.sums > 0 && sums.size() >= most.sums);
    }
    std::size_t rows() const
    {
        return ops.size() + writes.size() + taken.size();
    }
    /* Time of the last row. */
    std::uint64_t newest() const
    {
        std::uint64_t time = ops.empty() ? 0 : ops.back().time;
        time = writes.empty() ? time : std::max(time, writes.back().time);
        return taken.empty() ? time : std::max(time, taken.back().run);
    }
};

struct thread_log {
    std::mutex mutex;
    generation now, before;
    std::uint64_t dropped = 0, dropped_at = 0; /* rows, and when the last of them did not fit any more */
    bool dead = false;

    void make_room()
    {
        if (now.full()) {
            if (before.rows() > 0) {
                dropped += before.rows();
                dropped_at = before.newest();
            }
            before = std::move(now);
            now = generation();
        }
    }
};

/* A gradient that came to a node that runs. */
struct arrived_gradient {
    std::uint64_t storage, node;
    int level; /* of thread_state.backward */
    bool shared;
};

/* What a thread is in the middle of. */
struct thread_state {
    std::shared_ptr<thread_log> log;
    int depth = 0;    /* ops within ops */
    int light_depth = 0; /* the same, as the light level sees them */
    int backward = 0; /* backward nodes within one another */
    bool live = false, carries = false;
    int uncaught = 0;
    tgd_op_row op{};
    std::vector<tgd_identity> ids;
    std::vector<tgd_write_row> writes; /* of the outermost op, until it has ended well or badly */
    std::vector<c10::TensorImpl *> written;
    tgd_op_row cut{}; /* the light level's: an op that may lose a gradient, until it has ended */
    std::vector<tgd_identity> cut_ids;
    std::uint64_t no_grad_callback = 0; /* at::CallbackHandle, while it watches ops with grad mode off */
    int mode_depth = 0;     /* ops within ops, as that callback sees them */
    bool mode_live = false; /* cut is the row of the outermost of them */
    unsigned lingers = 0;   /* ops that it still looks at after grad mode is on again */
    tgd_place mode_off = nowhere;
    std::vector<tgd_place> inference; /* where the blocks of inference_mode around us began, outermost first */
    std::vector<tgd_place> modes; /* what mode_off was in the blocks around this one, outermost first */
    std::vector<std::uint64_t> runs; /* of this thread, innermost last */
    int task = -2;
    std::uint64_t task_run = 0;
    std::vector<arrived_gradient> gradients; /* of the nodes that run, innermost last */
    std::vector<tgd_event_row> by_hooks;     /* writes since the last node began, by hooks of the next one */
    std::uint64_t last_node = 0, last_run = 0;
    std::vector<std::uint64_t> lacking;      /* nodes written in Python that did not get all gradients in last_run */

    ~thread_state()
    {
        if (log) {
            log->dead = true;
        }
    }
};

/* The calling thread's. May throw bad_alloc the first time. */
thread_state &state();

/* The next moment: one count for all threads. */
std::uint64_t tick();

/* Who records, or NULL. */
extern std::atomic<const tgd_observer *> active;
/* One more level is on, or one less; with the last one everything that was recorded is forgotten. */
void hold_observer(const tgd_observer *observer);
void drop_observer();

/* Where the calling thread is in the user's program. */
tgd_place here();
/* The same with less: for what happens at every node. */
tgd_place near();
/* Where grad mode was switched off, for an op with these flags that loses the gradient because of it. */
tgd_place mode_place(const thread_state &t, std::uint32_t flags);

/* A new run; its number. */
std::uint64_t add_run(const tgd_place &place, bool keep_graph, bool create_graph);
/* The run that was started last and has not ended, or 0. */
extern std::atomic<std::uint64_t> latest_run;
void end_run(std::uint64_t run, bool failed);

/* A range with this name began on this thread. May throw bad_alloc. */
void note_range(const char *name);

/* When full recording began, UINT64_MAX while it is off. */
extern std::atomic<std::uint64_t> full_since;

/* How many callbacks failed, and when the last did. */
extern std::atomic<std::uint64_t> failures, failed_at;

/* Nothing may leave a callback. */
template <class Body> void quietly(Body body) noexcept
{
    try {
        body();
    } catch (...) {
        failures.fetch_add(1, std::memory_order_relaxed);
        failed_at.store(tick(), std::memory_order_relaxed);
    }
}

inline std::uint32_t flag_if(bool on, std::uint32_t flag)
{
    return on ? flag : 0u;
}

} // namespace tgd

#endif
