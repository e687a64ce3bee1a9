/* The clocks of the devices that nodes ran on, and the spans that they delivered. */
#include "measure_run.h"

#include <unordered_map>

namespace tgd
{
namespace
{

constexpr int most_types = 32;
constexpr std::size_t most_delivered = 1u << 18; /* that nobody has asked for */

/* Opened when the first node runs there, never closed: it costs nothing then. */
struct device_clocks {
    std::mutex mutex;
    std::atomic<tgd_device_clock *> clocks[most_types];
    const tgd_device_events *events[most_types];
    bool tried[most_types];
    std::unordered_map<std::uint64_t, tgd_device_span> delivered;
};

device_clocks &devices()
{
    static device_clocks *one = new device_clocks();
    return *one;
}

void deliver(void *context, const tgd_device_span *span)
{
    auto &delivered = *static_cast<std::unordered_map<std::uint64_t, tgd_device_span> *>(context);
    try {
        if (delivered.size() >= most_delivered) {
            delivered.clear();
        }
        delivered[span->key] = *span;
    } catch (...) { /* not known, then */
    }
}

} // namespace

tgd_device_clock *device_clock_of(int device_type)
{
    if (device_type < 0 || device_type >= most_types) {
        return nullptr;
    }
    tgd_device_clock *clock = devices().clocks[device_type].load(std::memory_order_acquire);
    if (clock != nullptr) {
        return clock;
    }
    std::lock_guard<std::mutex> lock(devices().mutex);
    if (!devices().tried[device_type]) {
        devices().tried[device_type] = true;
        if (tgd_torch_device_events(&devices().events[device_type], device_type, nullptr) == TGD_OK &&
            tgd_device_clock_open(&clock, devices().events[device_type], 0, nullptr) == TGD_OK) {
            devices().clocks[device_type].store(clock, std::memory_order_release);
        }
    }
    return devices().clocks[device_type].load(std::memory_order_acquire);
}

std::uint64_t device_stream_word(const tgd_torch_stream &stream)
{
    return tgd_torch_stream_word(devices().events[stream.device_type], &stream);
}

std::uint64_t next_device_key()
{
    static std::atomic<std::uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
}

const char *device_trouble(const tgd_device_clock *clock)
{
    const char *trouble = tgd_device_clock_trouble(clock);
    if (trouble != nullptr) {
        return trouble;
    }
    return tgd_device_clock_count(clock).captured > 0
               ? "what was captured into a CUDA graph was not timed"
               : nullptr;
}

std::size_t collect_device_times(const std::vector<measured_row> &wants, tgd_span *spans)
{
    std::size_t missing = 0;
    std::lock_guard<std::mutex> lock(devices().mutex);
    for (std::atomic<tgd_device_clock *> &clock : devices().clocks) {
        if (tgd_device_clock *one = clock.load(std::memory_order_acquire)) {
            tgd_device_clock_collect(one, deliver, &devices().delivered);
        }
    }
    for (std::size_t i = 0; i < wants.size(); i++) {
        if (wants[i].key == 0 || spans[i].on_device.known) {
            continue;
        }
        auto found = devices().delivered.find(wants[i].key);
        if (found == devices().delivered.end()) {
            missing += tgd_device_clock_trouble(wants[i].clock) == nullptr;
            continue;
        }
        const tgd_device_span &span = found->second;
        spans[i].on_device = {span.device_begin, span.device_end,
                              span.device_begin > span.host_begin ? span.device_begin - span.host_begin : 0,
                              span.uncertainty, span.stream, span.device, true};
        devices().delivered.erase(found);
    }
    return missing;
}

} // namespace tgd
