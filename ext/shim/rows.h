/*
 * The rows that are being recorded. Each thread has its own, under a lock that only tgd_observe_take() ever contends
 * for; all are bounded.
 */
#ifndef TGD_ROWS_H
#define TGD_ROWS_H

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

constexpr std::size_t most_rows = 1u << 17; /* of a kind, in each of a thread's two generations */
constexpr std::size_t most_ids = 1u << 20;  /* the same, for ids */
constexpr tgd_place nowhere = {TGD_NONE, -1, TGD_NONE, 0, 0};

struct generation {
    std::vector<tgd_op_row> ops;
    std::vector<tgd_write_row> writes;
    std::vector<tgd_taken_row> taken;
    std::vector<tgd_sum_row> sums;
    std::vector<tgd_identity> ids;

    bool full() const
    {
        return ops.size() >= most_rows || writes.size() >= most_rows || taken.size() >= most_rows ||
               sums.size() >= most_rows ||
               ids.size() >= most_ids;
    }
    std::size_t rows() const
    {
        return ops.size() + writes.size() + taken.size();
    }
};

struct thread_log {
    std::mutex mutex;
    generation now, before;
    std::uint64_t dropped = 0;
    bool dead = false;

    void make_room()
    {
        if (now.full()) {
            dropped += before.rows();
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
    int backward = 0; /* backward nodes within one another */
    bool live = false, carries = false;
    int uncaught = 0;
    tgd_op_row op{};
    std::vector<tgd_identity> ids;
    std::vector<tgd_write_row> writes; /* of the outermost op, until it has ended well or badly */
    std::vector<c10::TensorImpl *> written;
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

/* Where the calling thread is in the user's program. */
tgd_place here();

/* A new run; its number. */
std::uint64_t add_run(const tgd_place &place, bool keep_graph, bool create_graph);
/* The run that was started last and has not ended, or 0. */
extern std::atomic<std::uint64_t> latest_run;
void end_run(std::uint64_t run, bool failed);

/* A range with this name began on this thread. May throw bad_alloc. */
void note_range(const char *name);

/* Forgets everything that was recorded. */
void forget_rows();

extern std::atomic<std::uint64_t> failures;

/* Nothing may leave a callback. */
template <class Body> void quietly(Body body) noexcept
{
    try {
        body();
    } catch (...) {
        failures.fetch_add(1, std::memory_order_relaxed);
    }
}

inline std::uint32_t flag_if(bool on, std::uint32_t flag)
{
    return on ? flag : 0u;
}

} // namespace tgd

#endif
