/* Whatever CUDA call fails, with whatever code, whenever: the program goes on, sees no error of ours and keeps each of
   its own, and after the device is lost it is not called again. And what CUDA says of a pointer. */
#include "cudart_probe.h"

enum { MS = 1000000, US = 1000 };

static probe_spans got;

static const char *const functions[] = {
    "cudaGetDevice",        "cudaSetDevice",    "cudaEventCreateWithFlags", "cudaEventRecord",
    "cudaEventQuery",       "cudaEventDestroy", "cudaStreamIsCapturing",    "cudaThreadExchangeStreamCaptureMode",
    "cudaEventElapsedTime",
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

static const int codes[] = {1,   2,   3,   4,   35,  46,  100, 101, 201, 214, 220, 304, 400, 401, 700, 701, 702,
                            709, 710, 714, 715, 716, 717, 718, 719, 721, 800, 801, 802, 804, 810, 900, 901, 902,
                            903, 904, 905, 906, 907, 908, 909, 911, 999};
enum { CODES = sizeof codes / sizeof codes[0] };

static bool is_loss(int code)
{
    static const int losses[] = {4, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911};
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        if (losses[i] == code) {
            return true;
        }
    }
    return false;
}

/* A bit of everything: two devices, default and other streams, collecting while work is under way and afterwards. */
static size_t scenario(tgd_device_clock *clock)
{
    uint64_t s = fake->stream(0), t = fake->stream(1);
    size_t n = 0;
    for (uint64_t i = 0; i < 3; i++) {
        probe_node(clock, 0, s, i, 50 * US);
        probe_node(clock, 1, 0, i, 50 * US);
        probe_node(clock, 1, t, i, 50 * US);
        (void)probe_collect(clock, &got);
        n += got.n;
        fake->advance(700 * MS);
    }
    (void)probe_collect(clock, &got);
    return n + got.n;
}

static bool restores(const char *function)
{
    return strcmp(function, "cudaSetDevice") == 0 ||
           strcmp(function, "cudaThreadExchangeStreamCaptureMode") == 0;
}

/* False once the function is not called that often. */
static bool survive(const char *function, unsigned long nth, int code, bool lasting)
{
    probe_reset(2);
    tgd_device_clock *clock = probe_open(16);
    fake->inject(function, nth, code, lasting);
    size_t n = scenario(clock);
    bool happened = fake->injected(), capture = code >= 900 && code <= 908;
    tgd_device_clock_counts counts = tgd_device_clock_count(clock);
    CHECK_INT(counts.timed, n);
    if (!happened) {
        CHECK_INT(n, 9);
        CHECK(tgd_device_clock_trouble(clock) == NULL);
    } else if (!capture || restores(function)) {
        const char *trouble = tgd_device_clock_trouble(clock);
        CHECK_INT(counts.errors > 0, trouble != NULL);
        if (CHECK(trouble != NULL)) {
            CHECK_HAS(trouble, lasting ? "cuda" : function);
            CHECK_HAS(trouble, "the times of cuda nodes are not recorded any more: ");
            CHECK_LACKS(trouble, "(null)");
        }
        CHECK(n < 9 || nth > 0);
        unsigned long calls = fake->counts->calls;
        CHECK_INT(tgd_device_span_begin(clock, 0, 0, 9), 0);
        CHECK_INT(fake->counts->calls, calls);
        if (is_loss(code)) {
            CHECK_INT(probe_collect(clock, &got), 0);
            CHECK_INT(fake->counts->calls, calls);
        }
    }
    /* The program's own error stays, where the loss is one; nothing of ours does. */
    CHECK_INT(fake->last_error(), happened && is_loss(code) ? code : 0);
    if (!happened || !restores(function)) {
        CHECK_INT(fake->current_device(), lasting && happened ? fake->current_device() : 0);
        CHECK_INT(fake->capture_mode(), lasting && happened ? fake->capture_mode() : 0);
    }
    unsigned long calls = fake->counts->calls;
    tgd_device_clock_close(clock);
    if (happened && is_loss(code)) {
        CHECK_INT(fake->counts->calls, calls);
    } else {
        bool refused = !happened && fake->injected(); /* while an event was given back, which stays then */
        CHECK(refused && lasting ? fake->counts->events > 0 : fake->counts->events == refused);
        CHECK_INT(fake->last_error(), refused && is_loss(code) ? code : 0);
    }
    CHECK_INT(fake->counts->syncs + fake->counts->broken + fake->counts->misused + fake->counts->contexts, 0);
    return happened;
}

static void each_call_fails_once(void)
{
    for (size_t f = 0; f < FUNCTIONS; f++) {
        unsigned long most = 0;
        for (size_t c = 0; c < CODES; c++) {
            unsigned long nth = 0;
            while (survive(functions[f], nth, codes[c], false) && nth < 400) {
                nth += check_quick() ? 13 : nth < 12 ? 1 : 7;
            }
            most = nth > most ? nth : most;
        }
        CHECK(most > 0 || strcmp(functions[f], "cudaEventDestroy") == 0);
    }
}

static void the_device_is_lost_for_good(void)
{
    for (size_t f = 0; f < FUNCTIONS; f++) {
        for (size_t c = 0; c < CODES; c++) {
            if (is_loss(codes[c])) {
                for (unsigned long nth = 0; nth < 20; nth += 3) {
                    (void)survive(functions[f], nth, codes[c], true);
                }
            }
        }
    }
}

static void the_message_says_what_happened(void)
{
    probe_reset(1);
    tgd_device_clock *clock = probe_open(0);
    fake->inject("cudaEventCreateWithFlags", 1, 2, false);
    probe_node(clock, 0, 0, 1, US);
    CHECK_STR(tgd_device_clock_trouble(clock),
              "the times of cuda nodes are not recorded any more: cudaEventCreateWithFlags returned "
              "cudaErrorMemoryAllocation (out of memory); the program itself is not affected");
    CHECK_INT(tgd_device_clock_count(clock).errors, 1);
    probe_end(clock);
}

/* What was timed before the clock switched itself off is still read. */
static void earlier_spans_are_delivered(void)
{
    probe_reset(1);
    tgd_device_clock *clock = probe_open(0);
    probe_node(clock, 0, 0, 1, US);
    fake->inject("cudaEventRecord", 0, 400, false);
    probe_node(clock, 0, 0, 2, US);
    probe_node(clock, 0, 0, 3, US);
    fake->advance(MS);
    CHECK_INT(probe_collect(clock, &got), 0);
    CHECK_INT(got.n, 1);
    CHECK_INT(got.spans[0].key, 1);
    probe_end(clock);
}

static void an_error_of_the_program_stays(void)
{
    probe_reset(1);
    tgd_device_clock *clock = probe_open(0);
    probe_node(clock, 0, 0, 1, US);
    tgd_span_token open = tgd_device_span_begin(clock, 0, 0, 2);
    fake->advance(MS);
    fake->leave_error(9); /* a kernel launched with a bad configuration; nobody has looked yet */
    CHECK_INT(tgd_device_span_begin(clock, 0, 0, 3), 0);
    tgd_device_span_end(clock, open);
    CHECK_INT(probe_collect(clock, &got), 1);
    CHECK_INT(got.n, 0);
    CHECK_INT(tgd_device_pointer_state(&got, 0), TGD_POINTER_UNCHECKED);
    CHECK_INT(fake->last_error(), 9);
    CHECK_INT(tgd_device_clock_count(clock).aside, 1);
    CHECK_INT(tgd_device_clock_count(clock).dropped, 1);
    fake->leave_error(0); /* the program has looked */
    CHECK_INT(probe_collect(clock, &got), 0);
    CHECK_INT(got.n, 1);
    fake->leave_error(9);
    tgd_device_clock_close(clock);
    CHECK_INT(fake->last_error(), 9);
    CHECK_INT(fake->counts->events, 0);
}

static void pointers(void)
{
    static char here[8];
    probe_reset(3);
    fake->context(2, false);
    fake->memory(&here[0], 2, 0, true);
    fake->memory(&here[1], 2, 1, true);
    fake->memory(&here[2], 3, 1, true);
    fake->memory(&here[3], 1, 0, true);
    fake->memory(&here[4], 1, 0, false);
    CHECK_INT(tgd_device_pointer_state(&here[0], 0), TGD_POINTER_OK);
    CHECK_INT(tgd_device_pointer_state(&here[0], 1), TGD_POINTER_OTHER_DEVICE);
    CHECK_INT(tgd_device_pointer_state(&here[1], 1), TGD_POINTER_OK);
    CHECK_INT(tgd_device_pointer_state(&here[2], 0), TGD_POINTER_OK);
    CHECK_INT(tgd_device_pointer_state(&here[3], 0), TGD_POINTER_OK);
    CHECK_INT(tgd_device_pointer_state(&here[4], 0), TGD_POINTER_UNKNOWN);
    CHECK_INT(tgd_device_pointer_state(&here[5], 0), TGD_POINTER_UNKNOWN);
    CHECK_INT(tgd_device_pointer_state(NULL, 0), TGD_POINTER_UNCHECKED);
    CHECK_INT(tgd_device_pointer_state(&here[0], 2), TGD_POINTER_UNCHECKED); /* no context there */
    CHECK_INT(tgd_device_pointer_state(&here[0], 7), TGD_POINTER_UNCHECKED);
    CHECK_INT(tgd_device_pointer_state(&here[0], -1), TGD_POINTER_UNCHECKED);
    uint64_t s = fake->stream(0);
    fake->capture(s, 0, true, true);
    CHECK_INT(tgd_device_pointer_state(&here[0], 0), TGD_POINTER_OK); /* and the capture goes on */
    fake->capture(s, 0, false, false);
    for (size_t c = 0; c < CODES; c++) {
        fake->inject("cudaPointerGetAttributes", 0, codes[c], false);
        CHECK_INT(tgd_device_pointer_state(&here[0], 1),
                  codes[c] == 1 ? TGD_POINTER_UNKNOWN : TGD_POINTER_UNCHECKED); /* 1: what CUDA before 11 said */
        CHECK_INT(fake->last_error(), is_loss(codes[c]) ? codes[c] : 0);
        fake->leave_error(0);
    }
    fake->inject(NULL, 0, 0, false);
    probe_end(NULL);
}

CHECK_MAIN(TEST(each_call_fails_once), TEST(the_device_is_lost_for_good), TEST(the_message_says_what_happened),
           TEST(earlier_spans_are_delivered), TEST(an_error_of_the_program_stays), TEST(pointers))
