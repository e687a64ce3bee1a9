/* The device timeline over a CUDA runtime whose clock is simulated: what is called, in which order and in which stream,
   that nothing waits, and that the times that come out are the true ones within what is stated. */
#include "cudart_probe.h"
#include "failing_malloc.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MS = 1000000, US = 1000 };

static probe_spans got;

/* The nth record of the log. */
static const fake_call *record(size_t n)
{
    for (unsigned i = 0; i < fake->counts->n_calls; i++) {
        if (fake->counts->log[i].what == 'r' && n-- == 0) {
            return &fake->counts->log[i];
        }
    }
    return NULL;
}

static void one_after_the_other(void)
{
    probe_reset(1);
    tgd_device_clock *clock = probe_open(0);
    CHECK_INT(fake->counts->calls, 0); /* opening starts no driver */
    uint64_t s = fake->stream(0);
    for (uint64_t i = 0; i < 3; i++) {
        probe_node(clock, 0, s, 100 + i, (i + 1) * MS);
    }
    char order[32] = "";
    for (unsigned i = 0; i < fake->counts->n_calls; i++) {
        order[i] = fake->counts->log[i].what;
        CHECK(order[i] != 'r' || fake->counts->log[i].stream == s);
    }
    CHECK_STR(order, "crcrcrcrcrcrcr"); /* the reference, then begin and end of each */
    CHECK_INT(probe_collect(clock, &got), 3);
    CHECK_INT(got.n, 0);
    fake->advance(MS + 500 * US); /* the first has run, the second not */
    CHECK_INT(probe_collect(clock, &got), 2);
    CHECK_INT(got.n, 1);
    CHECK_INT(got.spans[0].key, 100);
    CHECK_INT(tgd_device_clock_count(clock).timed, 1);
    fake->advance(10 * MS);
    CHECK_INT(probe_collect(clock, &got), 0);
    CHECK_INT(got.n, 2);
    for (size_t i = 0; i < got.n; i++) {
        const tgd_device_span *span = &got.spans[i];
        CHECK_INT(span->key, 101 + i);
        CHECK_INT(span->number, 1 + i);
        CHECK_INT(span->stream, s);
        CHECK_INT(span->device, 0);
        uint64_t truth = record(1 + 2 * (i + 1))->ran, length = record(2 + 2 * (i + 1))->ran - truth;
        CHECK(span->device_begin <= truth && truth <= span->device_begin + span->uncertainty);
        CHECK_INT((span->device_end - span->device_begin + US) / US / 2, (length + US) / US / 2);
        CHECK(span->host_begin < span->host_end && span->host_begin <= span->device_begin);
    }
    /* Asked for at once, run after what was before: the wait is seen. */
    CHECK(got.spans[1].device_begin - got.spans[1].host_begin > 2 * MS);
    CHECK(got.spans[1].host_end < got.spans[1].device_begin);
    CHECK(tgd_device_clock_trouble(clock) == NULL);
    probe_end(clock);
}

static void events_are_used_again(void)
{
    probe_reset(1);
    tgd_device_clock *clock = probe_open(0);
    uint64_t s = fake->stream(0);
    for (uint64_t i = 0; i < 500; i++) {
        probe_node(clock, 0, s, i, 10 * US);
        fake->advance(100 * US);
        CHECK_INT(probe_collect(clock, &got), 0);
        CHECK_INT(got.n, 1);
        CHECK_INT(got.spans[0].key, i);
    }
    CHECK_INT(fake->counts->events, 3); /* one span's, and the reference */
    probe_end(clock);
}

static void a_full_pool_drops(void)
{
    probe_reset(1);
    tgd_device_clock *clock = probe_open(4);
    for (uint64_t i = 0; i < 6; i++) {
        probe_node(clock, 0, 0, i, US);
    }
    CHECK_INT(tgd_device_clock_count(clock).dropped, 2);
    fake->advance(MS);
    CHECK_INT(probe_collect(clock, &got), 0);
    CHECK_INT(got.n, 4);
    probe_node(clock, 0, 0, 7, US);
    CHECK_INT(tgd_device_clock_count(clock).dropped, 2);
    CHECK_INT(fake->counts->events, 9);
    probe_end(clock);
}

static void spans_nest_and_end_once(void)
{
    probe_reset(1);
    tgd_device_clock *clock = probe_open(0);
    uint64_t s = fake->stream(0);
    tgd_span_token outer = tgd_device_span_begin(clock, 0, s, 1);
    tgd_span_token inner = tgd_device_span_begin(clock, 0, s, 2);
    CHECK(outer != 0 && inner != 0 && outer != inner);
    fake->launch(s, 0, 5 * US);
    tgd_device_span_end(clock, inner);
    tgd_device_span_end(clock, outer);
    unsigned long calls = fake->counts->calls;
    tgd_device_span_end(clock, outer);
    tgd_device_span_end(clock, 0);
    tgd_device_span_end(clock, UINT64_MAX);
    tgd_device_span_end(clock, inner + 1000);
    CHECK_INT(fake->counts->calls, calls);
    fake->advance(MS);
    CHECK_INT(probe_collect(clock, &got), 0);
    CHECK_INT(got.n, 2);
    CHECK(got.spans[0].key == 1 && got.spans[1].key == 2);
    CHECK(got.spans[0].device_begin <= got.spans[1].device_begin);
    tgd_device_span_end(clock, outer); /* the place has been given back */
    CHECK_INT(tgd_device_span_begin(clock, -1, s, 0), 0);
    CHECK_INT(tgd_device_span_begin(clock, 128, s, 0), 0);
    CHECK_INT(tgd_device_clock_count(clock).dropped, 2);
    probe_end(clock);
}

static void capture_is_left_alone(void)
{
    probe_reset(1);
    tgd_device_clock *clock = probe_open(0);
    uint64_t s = fake->stream(0), other = fake->stream(0);
    probe_node(clock, 0, s, 1, US);
    fake->advance(MS);
    tgd_span_token across = tgd_device_span_begin(clock, 0, s, 2);
    fake->capture(s, 0, true, true);
    tgd_device_span_end(clock, across); /* not into the graph: this one has no end */
    CHECK_INT(tgd_device_span_begin(clock, 0, s, 3), 0);
    CHECK_INT(tgd_device_span_begin(clock, 0, 0, 3), 0); /* the default stream is unusable meanwhile */
    CHECK_INT(tgd_device_clock_count(clock).captured, 3);
    probe_node(clock, 0, other, 4, US); /* makes an event, which the capture would not survive unrelaxed */
    fake->advance(MS);
    CHECK_INT(probe_collect(clock, &got), 0); /* asks for events, likewise */
    CHECK_INT(got.n, 2);
    CHECK(got.spans[0].key == 1 && got.spans[1].key == 4);
    fake->capture(s, 0, false, false);
    probe_node(clock, 0, s, 5, US);
    fake->advance(MS);
    CHECK_INT(probe_collect(clock, &got), 0);
    CHECK_INT(got.n, 1);
    CHECK_INT(tgd_device_clock_count(clock).captured, 3);
    CHECK(tgd_device_clock_trouble(clock) == NULL);
    probe_end(clock);
}

static void capture_from_the_start(void)
{
    probe_reset(1);
    tgd_device_clock *clock = probe_open(0);
    uint64_t s = fake->stream(0);
    fake->capture(s, 0, true, false);
    probe_node(clock, 0, s, 1, US);
    CHECK_INT(tgd_device_clock_count(clock).captured, 1);
    CHECK_INT(probe_collect(clock, &got), 0);
    fake->capture(s, 0, false, false);
    probe_node(clock, 0, s, 2, US);
    fake->advance(MS);
    CHECK_INT(probe_collect(clock, &got), 0);
    CHECK_INT(got.n, 1);
    probe_end(clock);
}

static void devices_and_default_streams(void)
{
    probe_reset(3);
    fake->context(2, false);
    tgd_device_clock *clock = probe_open(0);
    uint64_t s = fake->stream(1);
    probe_node(clock, 0, 0, 1, MS);
    probe_node(clock, 1, 0, 2, 2 * MS);
    probe_node(clock, 1, s, 3, 3 * MS);
    CHECK_INT(fake->current_device(), 0);
    for (unsigned i = 0; i < fake->counts->n_calls; i++) {
        CHECK(i < 6 ? fake->counts->log[i].device == 0 : fake->counts->log[i].device <= 1);
    }
    CHECK_INT(tgd_device_span_begin(clock, 2, 0, 4), 0); /* would make a context there */
    CHECK_INT(tgd_device_clock_count(clock).aside, 1);
    fake->choose_device(2); /* leaving this one and coming back would make one */
    CHECK_INT(tgd_device_span_begin(clock, 0, 0, 4), 0);
    CHECK_INT(tgd_device_span_begin(clock, 1, s, 4), 0);
    CHECK_INT(tgd_device_clock_count(clock).aside, 3);
    fake->advance(10 * MS);
    CHECK_INT(probe_collect(clock, &got), 3); /* so would looking at an event */
    CHECK_INT(got.n, 0);
    fake->choose_device(0);
    CHECK_INT(probe_collect(clock, &got), 0);
    CHECK_INT(got.n, 3);
    for (size_t i = 0; i < got.n; i++) {
        CHECK_INT(got.spans[i].device, i > 0);
        CHECK_INT((got.spans[i].device_end - got.spans[i].device_begin + MS / 2) / MS, i + 1);
    }
    CHECK(tgd_device_clock_trouble(clock) == NULL);
    probe_end(clock);
}

/* A long run with a device whose clock is off by this much: the truth lies within what is stated, which is little. */
static void align(int ppm)
{
    probe_reset(1);
    fake->drift(ppm);
    tgd_device_clock *clock = probe_open(0);
    uint64_t streams[2] = {fake->stream(0), fake->stream(0)};
    uint32_t random = 1;
    uint64_t truths[64], worst = 0;
    size_t seen = 0;
    for (int step = 0; step < 400; step++) {
        uint64_t n = 0;
        for (int i = 0; i < 8; i++) {
            random = random * 1664525 + 1013904223;
            fake->advance((random >> 8) % (20 * US));
            fake->counts->n_calls = 0;
            tgd_span_token token = tgd_device_span_begin(clock, 0, streams[random >> 31], n);
            unsigned last = fake->counts->n_calls - 1; /* a reference may stand before it */
            CHECK(token != 0);
            truths[n++] = fake->counts->log[last].ran;
            fake->launch(streams[random >> 31], 0, (random >> 12) % (300 * US));
            tgd_device_span_end(clock, token);
        }
        fake->advance(step % 7 == 0 ? 40 * MS : 5 * MS);
        CHECK_INT(probe_collect(clock, &got), 0);
        CHECK_INT(got.n, n);
        for (size_t i = 0; i < got.n; i++, seen++) {
            const tgd_device_span *span = &got.spans[i];
            uint64_t truth = truths[span->key];
            CHECK(truth + 100 * US + US >= span->device_begin && truth <= span->device_begin + span->uncertainty);
            worst = span->uncertainty > worst ? span->uncertainty : worst;
        }
    }
    CHECK_INT(seen, 3200);
    CHECK(worst < 300 * US);
    probe_end(clock);
}

static void times_are_true_within_what_is_stated(void)
{
    align(0);
    align(80);
    align(-80);
}

static void a_device_behind_is_aligned_too(void)
{
    probe_reset(1);
    tgd_device_clock *clock = probe_open(0);
    uint64_t s = fake->stream(0);
    fake->launch(s, 0, 200 * MS);
    for (uint64_t i = 0; i < 60; i++) { /* never idle: no event runs soon after it was asked for */
        probe_node(clock, 0, s, i, 20 * MS);
        fake->advance(5 * MS);
    }
    fake->advance(2000 * MS);
    CHECK_INT(probe_collect(clock, &got), 0);
    CHECK_INT(got.n, 60);
    uint64_t truth = record(1)->ran;
    CHECK(got.spans[0].device_begin <= truth && truth <= got.spans[0].device_begin + got.spans[0].uncertainty);
    CHECK(got.spans[0].uncertainty < 6 * MS); /* as often as somebody passed by, not the 200 of the queue */
    probe_end(clock);
}

enum { THREADS = 4, ROUNDS = 300 };

typedef struct task {
    tgd_device_clock *clock;
    uint64_t stream;
    int device;
} task;

static void *work(void *argument)
{
    const task *t = argument;
    fake->choose_device(t->device);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        probe_node(t->clock, t->device, t->stream, i, US);
    }
    return NULL;
}

static size_t visited;

static void visit(void *context, const tgd_device_span *span)
{
    (void)context;
    visited += span->device_end >= span->device_begin;
}

static void many_threads(void)
{
    probe_reset(2);
    tgd_device_clock *clock = probe_open(64);
    pthread_t threads[THREADS];
    task tasks[THREADS];
    uint64_t shared = fake->stream(0);
    visited = 0;
    for (int i = 0; i < THREADS; i++) {
        tasks[i] = (task){clock, i < 2 ? shared : fake->stream(1), i < 2 ? 0 : 1};
        if (!CHECK_INT(pthread_create(&threads[i], NULL, work, &tasks[i]), 0)) {
            abort();
        }
    }
    for (int i = 0; i < 200; i++) {
        fake->advance(MS);
        tgd_device_clock_collect(clock, visit, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    fake->advance(1000 * MS);
    CHECK_INT(tgd_device_clock_collect(clock, visit, NULL), 0);
    tgd_device_clock_counts counts = tgd_device_clock_count(clock);
    CHECK_INT(counts.timed, visited);
    CHECK_INT(counts.timed + counts.dropped, THREADS * ROUNDS);
    CHECK(counts.timed >= 4 * 32);
    CHECK_INT(counts.errors + counts.captured + counts.aside, 0);
    probe_end(clock);
}

static void a_forked_child_does_nothing(void)
{
    probe_reset(1);
    tgd_device_clock *clock = probe_open(0);
    probe_node(clock, 0, 0, 1, US);
    tgd_span_token token = tgd_device_span_begin(clock, 0, 0, 2);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        unsigned long calls = fake->counts->calls;
        size_t wrong = tgd_device_span_begin(clock, 0, 0, 3) != 0;
        tgd_device_span_end(clock, token);
        wrong += tgd_device_clock_collect(clock, visit, NULL) != 0;
        tgd_device_clock_close(clock);
        wrong += fake->counts->calls != calls;
        _exit(wrong == 0 ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    tgd_device_span_end(clock, token);
    fake->advance(MS);
    CHECK_INT(probe_collect(clock, &got), 0);
    CHECK_INT(got.n, 2);
    probe_end(clock);
}

static void without_memory(void)
{
    long alive = failing_alive;
    const tgd_device_events *events = NULL;
    probe_reset(1);
    CHECK_INT(tgd_cuda_events(&events, NULL), TGD_OK);
    for (size_t k = 0;; k++) {
        tgd_device_clock *clock = NULL;
        tgd_error err = {.status = TGD_OK};
        probe_reset(1);
        failing_arm(k, false);
        tgd_status status = tgd_device_clock_open(&clock, events, 8, &err);
        if (status == TGD_OK) {
            probe_node(clock, 0, 0, 1, US);
        }
        bool refused = failing_refused != 0;
        failing_disarm();
        CHECK_INT(status, k == 0 ? TGD_ENOMEM : TGD_OK);
        if (status == TGD_OK) {
            CHECK_INT(tgd_device_clock_count(clock).dropped, refused);
            probe_node(clock, 0, 0, 2, US); /* there is memory again */
            fake->advance(MS);
            CHECK_INT(probe_collect(clock, &got), 0);
            CHECK_INT(got.n, refused ? 1 : 2);
        }
        probe_end(clock);
        CHECK_INT(failing_alive, alive);
        if (!refused) {
            CHECK_INT(k, 4);
            break;
        }
    }
    tgd_device_clock *none = NULL;
    tgd_error err;
    CHECK_INT(tgd_device_clock_open(&none, events, (1 << 20) + 1, &err), TGD_EINVAL);
    CHECK_STR(err.message, "max_spans is 1048577, the most is 1048576");
    CHECK(none == NULL);
}

CHECK_MAIN(TEST(one_after_the_other), TEST(events_are_used_again), TEST(a_full_pool_drops),
           TEST(spans_nest_and_end_once), TEST(capture_is_left_alone), TEST(capture_from_the_start),
           TEST(devices_and_default_streams), TEST(times_are_true_within_what_is_stated),
           TEST(a_device_behind_is_aligned_too), TEST(many_threads), TEST(a_forked_child_does_nothing),
           TEST(without_memory))
