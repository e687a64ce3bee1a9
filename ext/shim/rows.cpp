#include "rows.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "compat.h"
#include "forks.h"

namespace tgd
{

std::atomic<const tgd_observer *> active{nullptr};
std::atomic<std::uint64_t> latest_run{0}, failures{0}, failed_at{0}, full_since{UINT64_MAX};
std::atomic<bool> full_on{false}, light_on{false};

namespace
{

constexpr std::size_t most_runs = 1u << 12;

struct all_logs {
    std::mutex mutex;
    std::vector<std::shared_ptr<thread_log>> logs;
    std::vector<tgd_run_row> runs;
    std::uint64_t dropped_runs = 0, dropped_at = 0; /* runs that did not fit, and when the last of them was */
};

all_logs &logs()
{
    static all_logs *all = new all_logs();
    return *all;
}

std::atomic<std::uint64_t> clock_of_rows{1};

template <class Row> Row *copy_rows(const std::vector<Row> &rows)
{
    auto *copy = static_cast<Row *>(std::malloc((rows.size() + 1) * sizeof(Row)));
    if (copy == nullptr) {
        throw std::bad_alloc();
    }
    if (!rows.empty()) {
        std::memcpy(copy, rows.data(), rows.size() * sizeof(Row));
    }
    return copy;
}

/* A thread's rows come in the order of their times, but for a few that overlap: from a little before on. */
template <class Row, class Time>
typename std::vector<Row>::const_iterator from(const std::vector<Row> &rows, std::uint64_t since, Time time)
{
    auto first = std::lower_bound(rows.begin(), rows.end(), since,
                                  [&](const Row &row, std::uint64_t wanted) { return time(row) < wanted; });
    constexpr std::ptrdiff_t overlap = 64;
    return first - std::min<std::ptrdiff_t>(first - rows.begin(), since == 0 ? 0 : overlap);
}

void gather(generation &all, const generation &part, std::uint64_t since)
{
    auto time = [](const auto &row) { return row.time; };
    for (auto row = from(part.ops, since, time); row != part.ops.end(); ++row) {
        if (row->time >= since) {
            auto first = part.ids.begin() + row->first_id;
            all.ops.push_back(*row);
            all.ops.back().first_id = static_cast<std::uint32_t>(all.ids.size());
            all.ids.insert(all.ids.end(), first, first + row->n_in + row->n_out);
        }
    }
    for (auto row = from(part.writes, since, time); row != part.writes.end(); ++row) {
        if (row->time >= since) {
            all.writes.push_back(*row);
        }
    }
    for (auto row = from(part.sums, since, time); row != part.sums.end(); ++row) {
        if (row->time >= since) {
            all.sums.push_back(*row);
        }
    }
    auto run = [](const tgd_taken_row &row) { return row.run; };
    for (auto row = from(part.taken, since, run); row != part.taken.end(); ++row) {
        if (row->run >= since) {
            all.taken.push_back(*row);
        }
    }
}

} // namespace

std::uint64_t tick()
{
    return clock_of_rows.fetch_add(1, std::memory_order_relaxed);
}

thread_state &state()
{
    thread_local thread_state mine;
    if (!mine.log) {
        auto log = std::make_shared<thread_log>();
        std::lock_guard<std::mutex> lock(logs().mutex);
        logs().logs.push_back(log);
        mine.log = std::move(log);
    }
    return mine;
}

tgd_place here()
{
    tgd_place place = nowhere;
    const tgd_observer *observer = active.load(std::memory_order_acquire);
    if (observer != nullptr) {
        observer->frames.here(&place);
    }
    return place;
}

tgd_place near()
{
    tgd_place place = nowhere;
    const tgd_observer *observer = active.load(std::memory_order_acquire);
    if (observer != nullptr) {
        (observer->frames.near != nullptr ? observer->frames.near : observer->frames.here)(&place);
    }
    return place;
}

tgd_place mode_place(const thread_state &t, std::uint32_t flags)
{
    tgd_place place = nowhere;
    const tgd_observer *observer = active.load(std::memory_order_acquire);
    if (observer == nullptr) {
        return place;
    }
    if ((flags & TGD_OP_INFERENCE) && !t.inference.empty()) {
        if (t.inference.back().via & TGD_VIA_DECORATOR) {
            observer->frames.decorated(&place);
        }
        return place.code != TGD_NONE ? place : t.inference.back();
    }
    if (t.mode_off.via & TGD_VIA_DECORATOR) {
        observer->frames.decorated(&place);
    } else if (t.mode_off.via & TGD_VIA_BY_CHECKPOINT) {
        observer->frames.checkpoint(&place);
    }
    return place.code != TGD_NONE ? place : t.mode_off;
}

std::uint64_t add_run(const tgd_place &place, bool keep_graph, bool create_graph)
{
    tgd_run_row row{};
    row.time = tick();
    row.place = place;
    row.keep_graph = keep_graph;
    row.create_graph = create_graph;
    std::lock_guard<std::mutex> lock(logs().mutex);
    if (logs().runs.size() >= most_runs) {
        logs().dropped_at = logs().runs[most_runs / 2 - 1].time;
        logs().runs.erase(logs().runs.begin(), logs().runs.begin() + most_runs / 2);
        logs().dropped_runs += most_runs / 2;
    }
    logs().runs.push_back(row);
    return row.time;
}

void end_run(std::uint64_t run, bool failed)
{
    std::lock_guard<std::mutex> lock(logs().mutex);
    for (std::size_t i = logs().runs.size(); i-- > 0;) {
        if (logs().runs[i].time == run) {
            logs().runs[i].failed = failed;
            break;
        }
    }
}

namespace
{

unsigned n_levels; /* under the lock of logs() */

void forget_rows()
{
    for (const std::shared_ptr<thread_log> &log : logs().logs) {
        std::lock_guard<std::mutex> own(log->mutex);
        log->now = generation();
        log->before = generation();
        log->dropped = log->dropped_at = 0;
    }
    auto dead = [](const std::shared_ptr<thread_log> &log) { return log->dead; };
    auto &list = logs().logs;
    list.erase(std::remove_if(list.begin(), list.end(), dead), list.end());
    logs().runs.clear();
    logs().dropped_runs = logs().dropped_at = 0;
    failures.store(0);
    latest_run.store(0);
}

} // namespace

void lock_rows()
{
    logs().mutex.lock();
    for (const std::shared_ptr<thread_log> &log : logs().logs) {
        log->mutex.lock();
    }
}

void unlock_rows()
{
    for (const std::shared_ptr<thread_log> &log : logs().logs) {
        log->mutex.unlock();
    }
    logs().mutex.unlock();
}

void hold_observer(const tgd_observer *observer)
{
    watch_forks();
    std::lock_guard<std::mutex> all(logs().mutex);
    n_levels++;
    active.store(observer, std::memory_order_release);
}

void drop_observer()
{
    std::lock_guard<std::mutex> all(logs().mutex);
    if (--n_levels == 0) {
        active.store(nullptr, std::memory_order_release);
        forget_rows();
    }
}

} // namespace tgd

using namespace tgd;

extern "C" tgd_status tgd_observe_take(tgd_record **out, uint64_t since, tgd_error *err)
{
    return guarded(err, [&] {
        generation all;
        std::vector<tgd_run_row> runs;
        std::uint64_t dropped = 0;
        {
            std::lock_guard<std::mutex> lock(logs().mutex);
            for (const std::shared_ptr<thread_log> &log : logs().logs) {
                std::lock_guard<std::mutex> own(log->mutex);
                gather(all, log->before, since);
                gather(all, log->now, since);
                dropped += log->dropped_at >= since ? log->dropped : 0;
            }
            runs = logs().runs;
            dropped += logs().dropped_at >= since ? logs().dropped_runs : 0;
            dropped += failed_at.load() >= since ? failures.load() : 0;
        }
        auto earlier = [](const auto &a, const auto &b) { return a.time < b.time; };
        std::stable_sort(all.ops.begin(), all.ops.end(), earlier);
        std::stable_sort(all.writes.begin(), all.writes.end(), earlier);
        auto *made = static_cast<tgd_record *>(std::calloc(1, sizeof(tgd_record)));
        if (made == nullptr) {
            throw std::bad_alloc();
        }
        made->shares = 1;
        std::unique_ptr<tgd_record, void (*)(const tgd_record *)> record(made, tgd_record_free);
        record->ops = copy_rows(all.ops);
        record->writes = copy_rows(all.writes);
        record->runs = copy_rows(runs);
        record->taken = copy_rows(all.taken);
        record->sums = copy_rows(all.sums);
        record->n_sums = static_cast<std::uint32_t>(all.sums.size());
        record->ids = copy_rows(all.ids);
        record->n_ops = static_cast<std::uint32_t>(all.ops.size());
        record->n_writes = static_cast<std::uint32_t>(all.writes.size());
        record->n_runs = static_cast<std::uint32_t>(runs.size());
        record->n_taken = static_cast<std::uint32_t>(all.taken.size());
        record->n_ids = static_cast<std::uint32_t>(all.ids.size());
        record->dropped = dropped;
        record->began = since;
        record->full_since = full_since.load();
        *out = record.release();
    });
}

extern "C" uint64_t tgd_observe_now(void)
{
    return clock_of_rows.load();
}

extern "C" uint64_t tgd_observe_recent(size_t n_runs)
{
    std::uint64_t since = 0;
    quietly([&] {
        std::lock_guard<std::mutex> lock(logs().mutex);
        std::size_t n = logs().runs.size();
        since = n > n_runs ? logs().runs[n - n_runs].time : 0;
    });
    return since;
}
