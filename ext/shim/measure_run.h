/* What is being measured: each thread's open spans and rows, and which backward is inside which (measure.h). */
#ifndef TGD_MEASURE_RUN_H
#define TGD_MEASURE_RUN_H

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device_clock.h"
#include "device_stream.h"
#include "measure.h"
#include "measure_recent.h"
#include "measuring.h"
#include "tensor_statistics.h"

namespace tgd
{

struct measured_gradient {
    tgd_gradient gradient;
    std::shared_ptr<tgd_later> later; /* where a device is at work on it */
};

struct measured_row {
    tgd_span span;
    std::uint64_t entered, left; /* span.began and ended with what we did before and after */
    std::size_t first_gradient;
    tgd_device_clock *clock; /* NULL: not on a device */
    std::uint64_t key;
};

/* Rows of backwards that have not ended. */
struct measured_log {
    std::mutex mutex;
    std::vector<measured_row> rows;
    std::vector<measured_gradient> gradients;
    std::uint64_t dropped = 0;
    std::atomic<bool> dead{false};
};

/* A node that runs, or a backward that a node has called. */
struct open_span {
    tgd_span span;
    std::uint64_t entered;
    std::uint64_t children; /* what nodes and backwards inside it took */
    std::uint64_t ours;     /* what we took inside it */
    std::size_t first_gradient;
    tgd_device_clock *clock;
    tgd_span_token token;
    std::uint64_t key;
    int uncaught;
    bool is_run, of_node;
    bool of_others; /* a hook or a node that is not torch's own runs in it */
};

struct measured_thread {
    std::shared_ptr<measured_log> log;
    std::vector<open_span> open; /* outermost first */
    std::vector<measured_gradient> gradients; /* of the open spans */
    recent_gradients recent;
    std::uint64_t session = 0;
    std::uint64_t known_run = 0, known_outermost = 0;
    int lost = 0; /* nodes that began without memory to say so */

    ~measured_thread()
    {
        if (log) {
            log->dead = true;
        }
    }
};

/* The calling thread's. May throw bad_alloc. */
measured_thread &measured_state();

bool is_measuring();
void set_measuring(bool on);
bool looks_at_gradients();
void set_looks_at_gradients(bool on);
void forget_measured();

/* Takes the innermost open span away; what it took goes to the one around it. */
void close_span(measured_thread &thread, std::uint64_t ended);

/* A backward of the calling thread, by its number; the outermost one around it, or itself. */
void begin_run(std::uint64_t run);
std::uint64_t outermost_of(measured_thread &thread, std::uint64_t run);

/* ---- devices (measure_device.cpp) ---- */

/* The clock of a kind of device, for ever; NULL: it cannot be timed. */
tgd_device_clock *device_clock_of(int device_type);
std::uint64_t device_stream_word(const tgd_torch_stream &stream);
std::uint64_t next_device_key();
/* Why it switched itself off, or what it left out, for ever; NULL: nothing. */
const char *device_trouble(const tgd_device_clock *clock);
/* Fills the spans' times; wants[i] is the key of span i, 0 = none. Returns how many have not run yet. */
std::size_t collect_device_times(const std::vector<measured_row> &wants, tgd_span *spans);

} // namespace tgd

#endif
