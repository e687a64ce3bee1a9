/* From the first node of a backward to the rows of all of it. */
#include "measure_run.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <unordered_map>

#include "clock.h"
#include "compat.h"
#include "forks.h"
#include "rows.h"

struct tgd_pending_run {
    std::vector<tgd::measured_row> rows;
    std::vector<tgd::measured_gradient> gradients;
    tgd_measured_run run;
    std::mutex mutex; /* of settled */
    const tgd_measured_run *settled;
};

namespace tgd
{
namespace
{

struct run_under_way {
    std::uint64_t outermost, began;
};

struct all_measured {
    std::mutex mutex;
    std::vector<std::shared_ptr<measured_log>> logs;
    std::unordered_map<std::uint64_t, run_under_way> runs;
};

all_measured &all()
{
    static all_measured *one = new all_measured();
    return *one;
}

std::atomic<bool> measuring_now{false}, gradients_too{false};
std::atomic<std::uint64_t> sessions{0};

/* Takes the rows of a backward out of a thread's log; out NULL: nobody wants them. The log keeps its memory. */
void take_from(measured_log &log, std::uint64_t outermost, tgd_pending_run *out)
{
    std::lock_guard<std::mutex> lock(log.mutex);
    std::vector<measured_row> &rows = log.rows;
    std::size_t kept = 0, kept_gradients = 0;
    if (out != nullptr && out->rows.empty()) {
        out->rows.reserve(rows.size());
        out->gradients.reserve(log.gradients.size());
    }
    for (std::size_t i = 0; i < rows.size(); i++) {
        measured_row &row = rows[i];
        const auto first = log.gradients.begin() + static_cast<std::ptrdiff_t>(row.first_gradient);
        const auto last = first + static_cast<std::ptrdiff_t>(row.span.n_gradients);
        if (row.span.outermost != outermost) {
            const auto to = log.gradients.begin() + static_cast<std::ptrdiff_t>(kept_gradients);
            row.first_gradient = kept_gradients;
            kept_gradients += row.span.n_gradients;
            if (to != first) {
                std::move(first, last, to);
            }
            rows[kept++] = row;
        } else if (out != nullptr) {
            row.first_gradient = out->gradients.size();
            out->gradients.insert(out->gradients.end(), std::make_move_iterator(first), std::make_move_iterator(last));
            out->rows.push_back(row);
        }
    }
    rows.resize(kept);
    log.gradients.resize(kept_gradients);
    if (out != nullptr) {
        out->run.dropped += log.dropped;
    }
    log.dropped = 0;
}

/* What the engine does for a node once it has run, up to the next one or the end: hooks, checks, sums of gradients,
   memory given back. On the thread of the call alone: others wait for work meanwhile. */
void fill_gaps(std::vector<measured_row> &rows, std::uint64_t run, std::uint64_t thread, std::uint64_t ended)
{
    std::unordered_map<std::uint64_t, measured_row *> before; /* of each run */
    auto until = [](measured_row *row, std::uint64_t time) {
        if (row != nullptr && time > row->left) {
            row->span.after_ns = time - row->left;
            row->span.self_ns += row->span.after_ns;
            row->span.total_ns += row->span.after_ns;
        }
    };
    for (measured_row &row : rows) {
        if (row.span.thread == thread) {
            measured_row *&last = before[row.span.run];
            until(last, row.entered);
            last = &row;
        }
    }
    until(before[run], ended);
}

/* From the first node's beginning on; before that we did nothing. */
std::uint64_t ours_of(const std::vector<measured_row> &rows, std::uint64_t run, std::uint64_t thread, std::uint64_t ended)
{
    std::uint64_t ours = 0, first = 0;
    for (const measured_row &row : rows) {
        if (row.span.run == run && row.span.thread == thread) {
            first = first == 0 ? row.entered : first;
            ours += (row.left - row.entered) - row.span.total_ns;
        }
    }
    return first == 0 || ours > ended - first ? 0 : ours;
}

void take_from_all(std::uint64_t run, tgd_pending_run *out)
{
    std::lock_guard<std::mutex> lock(all().mutex);
    for (const std::shared_ptr<measured_log> &log : all().logs) {
        take_from(*log, run, out);
    }
}

tgd_pending_run *take(std::uint64_t run, std::uint64_t began, std::uint64_t ended)
{
    auto out = std::make_unique<tgd_pending_run>();
    out->run.shares = 1;
    out->run.run = run;
    out->run.began = began;
    out->run.ended = ended;
    out->run.thread = at::RecordFunction::currentThreadId();
    out->run.statistics = looks_at_gradients();
    take_from_all(run, out.get());
    std::stable_sort(out->rows.begin(), out->rows.end(),
                     [](const measured_row &a, const measured_row &b) { return a.span.began < b.span.began; });
    out->run.ours = ours_of(out->rows, run, out->run.thread, ended);
    fill_gaps(out->rows, run, out->run.thread, ended);
    return out.release();
}

template <class Row> Row *new_rows(std::size_t n)
{
    auto *rows = static_cast<Row *>(std::calloc(n + 1, sizeof(Row)));
    if (rows == nullptr) {
        throw std::bad_alloc();
    }
    return rows;
}

/* Waits a little at a time: a device has no way to call us. */
template <class Done> void wait_for(unsigned wait_ms, Done done)
{
    const std::uint64_t until = tgd_clock_now() + std::uint64_t{wait_ms} * 1000000;
    while (!done() && tgd_clock_now() < until) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
}

void read_gradient(measured_gradient &from, tgd_gradient &to, unsigned wait_ms)
{
    to = from.gradient;
    if (!from.later) {
        return;
    }
    int ready = 0;
    wait_for(wait_ms, [&] { return (ready = tgd_later_ready(from.later.get())) != 0; });
    const tgd_unchecked why = ready == 1 ? tgd_later_read(from.later.get(), &to.values) : TGD_UNCHECKED_FAILED;
    to.measured = why == TGD_CHECKED;
    to.unchecked = to.measured ? nullptr : ready == 0 ? "device still at work" : tgd_torch_unchecked_name(why);
    from.later.reset();
}

const tgd_measured_run *settle(tgd_pending_run &pending, unsigned wait_ms)
{
    std::unique_ptr<tgd_measured_run, void (*)(const tgd_measured_run *)> run(new_rows<tgd_measured_run>(0),
                                                                              tgd_measured_run_free);
    *run = pending.run;
    run->spans = new_rows<tgd_span>(pending.rows.size());
    run->gradients = new_rows<tgd_gradient>(pending.gradients.size());
    run->n_spans = static_cast<std::uint32_t>(pending.rows.size());
    run->n_gradients = static_cast<std::uint32_t>(pending.gradients.size());
    for (std::size_t i = 0; i < pending.rows.size(); i++) {
        run->spans[i] = pending.rows[i].span;
        run->spans[i].first_gradient = static_cast<std::uint32_t>(pending.rows[i].first_gradient);
        if (pending.rows[i].clock != nullptr && run->trouble == nullptr) {
            run->trouble = device_trouble(pending.rows[i].clock);
        }
    }
    wait_for(wait_ms, [&] { return collect_device_times(pending.rows, run->spans) == 0; });
    for (std::size_t i = 0; i < pending.gradients.size(); i++) {
        read_gradient(pending.gradients[i], run->gradients[i], wait_ms);
    }
    return run.release();
}

} // namespace

measured_thread &measured_state()
{
    thread_local measured_thread mine;
    if (!mine.log) {
        auto log = std::make_shared<measured_log>();
        std::lock_guard<std::mutex> lock(all().mutex);
        all().logs.push_back(log);
        mine.log = std::move(log);
    }
    const std::uint64_t session = sessions.load(std::memory_order_acquire);
    if (mine.session != session) {
        mine.session = session;
        mine.open.clear();
        mine.gradients.clear();
        mine.recent.forget();
        mine.lost = 0;
        mine.known_run = 0;
    }
    return mine;
}

bool is_measuring()
{
    return measuring_now.load(std::memory_order_acquire);
}

void set_measuring(bool on)
{
    if (on && !measuring_now.load()) {
        sessions.fetch_add(1);
    }
    measuring_now.store(on, std::memory_order_release);
}

bool looks_at_gradients()
{
    return gradients_too.load(std::memory_order_acquire);
}

void set_looks_at_gradients(bool on)
{
    gradients_too.store(on, std::memory_order_release);
}

void lock_measures()
{
    all().mutex.lock();
    for (const std::shared_ptr<measured_log> &log : all().logs) {
        log->mutex.lock();
    }
}

void unlock_measures()
{
    for (const std::shared_ptr<measured_log> &log : all().logs) {
        log->mutex.unlock();
    }
    all().mutex.unlock();
}

void forget_measured()
{
    std::lock_guard<std::mutex> lock(all().mutex);
    for (const std::shared_ptr<measured_log> &log : all().logs) {
        std::lock_guard<std::mutex> own(log->mutex);
        log->rows = {};
        log->gradients = {};
        log->dropped = 0;
    }
    auto &logs = all().logs;
    logs.erase(std::remove_if(logs.begin(), logs.end(), [](const auto &log) { return log->dead.load(); }), logs.end());
    all().runs.clear();
}

void close_span(measured_thread &thread, std::uint64_t ended)
{
    const open_span &open = thread.open.back();
    if (thread.open.size() > 1) {
        open_span &around = thread.open[thread.open.size() - 2];
        const std::uint64_t whole = ended - open.span.began;
        around.children += whole > open.ours ? whole - open.ours : 0;
        around.ours += open.ours + (open.span.began - open.entered);
    }
    thread.open.pop_back();
}

void begin_run(std::uint64_t run)
{
    measured_thread &t = measured_state();
    t.recent.forget();
    std::uint64_t outermost = run;
    if (!t.open.empty()) {
        outermost = t.open.back().span.outermost;
        open_span open{};
        open.is_run = true;
        open.span.outermost = outermost;
        open.entered = open.span.began = tgd_clock_now();
        t.open.push_back(open);
    }
    std::lock_guard<std::mutex> lock(all().mutex);
    all().runs[run] = {outermost, tgd_clock_now()};
}

std::uint64_t outermost_of(measured_thread &thread, std::uint64_t run)
{
    if (thread.known_run != run) {
        std::lock_guard<std::mutex> lock(all().mutex);
        auto found = all().runs.find(run);
        thread.known_outermost = found == all().runs.end() ? run : found->second.outermost;
        thread.known_run = run;
    }
    return thread.known_outermost;
}

} // namespace tgd

using namespace tgd;

extern "C" tgd_pending_run *tgd_measure_run_ended(int wanted)
{
    tgd_pending_run *out = nullptr;
    quietly([&] {
        const std::uint64_t ended = tgd_clock_now();
        if (!is_measuring() || state().runs.empty()) {
            return;
        }
        const std::uint64_t run = state().runs.back();
        measured_thread &t = measured_state();
        if (!t.open.empty() && t.open.back().is_run) {
            close_span(t, ended);
        }
        run_under_way known{};
        {
            std::lock_guard<std::mutex> lock(all().mutex);
            auto found = all().runs.find(run);
            if (found == all().runs.end()) {
                return; /* it began before we did */
            }
            known = found->second;
            all().runs.erase(found);
        }
        if (known.outermost == run && wanted) {
            out = take(run, known.began, ended);
        } else if (known.outermost == run) {
            take_from_all(run, nullptr);
        }
    });
    return out;
}

extern "C" const tgd_measured_run *tgd_pending_settle(tgd_pending_run *pending, unsigned wait_ms)
{
    quietly([&] {
        std::lock_guard<std::mutex> lock(pending->mutex);
        if (pending->settled == nullptr) {
            pending->settled = settle(*pending, wait_ms);
        }
    });
    return pending->settled;
}

extern "C" void tgd_pending_free(tgd_pending_run *pending)
{
    if (pending != nullptr) {
        tgd_measured_run_free(pending->settled);
        delete pending;
    }
}
