#include "fake_cudart.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 4, STREAMS = 64, FIRST_STREAM = 0x1000, MEMORIES = 16, MAGIC = 0x5eed };
enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_DEVICE = 101, INVALID_HANDLE = 400, NOT_READY = 600, UNSUPPORTED = 900,
       IMPLICIT = 906, CAPTURED_EVENT = 907, RELAXED = 2 };

typedef struct event {
    unsigned magic;
    int device;
    bool recorded, captured;
    uint64_t ran;
    struct event *next; /* all that were ever made: use after destruction is seen */
} event;

typedef struct stream {
    int device;
    uint64_t done; /* when all that was put into it has run */
    bool capturing, global;
} stream;

typedef struct memory {
    const void *pointer;
    int type, device;
    bool mapped;
} memory;

static event *all_events; /* Owned */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_counts counts;
static uint64_t now_ns, call_cost, launch_cost;
static int devices, drift_ppm, n_streams, n_memories;
static bool active[DEVICES];
static stream defaults[DEVICES], streams[STREAMS];
static memory memories[MEMORIES];
static char injected_function[64];
static unsigned long injected_left;
static int injected_code;
static bool injected_lasting, injected_happened;
static _Thread_local int thread_error, thread_device, thread_mode;

/* ---- the CUDA side ---- */

/* Under the lock: a call begins. Returns what it must return at once, or SUCCESS. */
static int enter(const char *function)
{
    pthread_mutex_lock(&lock);
    counts.calls++;
    now_ns += call_cost;
    if (injected_happened && injected_lasting) {
        return injected_code;
    }
    if (injected_code != SUCCESS && !injected_happened &&
        (injected_function[0] == '\0' || strcmp(function, injected_function) == 0) && injected_left-- == 0) {
        injected_happened = true;
        return injected_code;
    }
    return SUCCESS;
}

static void make_context(int device)
{
    if (!active[device]) {
        active[device] = true;
        counts.contexts++;
    }
}

/* The same of a call that needs a context, and makes one. */
static int enter_context(const char *function)
{
    int code = enter(function);
    if (code == SUCCESS) {
        make_context(thread_device);
    }
    return code;
}

static int leave(int code)
{
    pthread_mutex_unlock(&lock);
    if (code != SUCCESS) {
        thread_error = code;
    }
    return code;
}

static stream *find(void *handle, int device)
{
    uintptr_t h = (uintptr_t)handle;
    if (h <= 2) {
        return &defaults[device];
    }
    return h >= FIRST_STREAM && h < FIRST_STREAM + (uintptr_t)n_streams ? &streams[h - FIRST_STREAM] : NULL;
}

static fake_call *note(char what, uint64_t of, void *e)
{
    static fake_call lost;
    fake_call *call = counts.n_calls < FAKE_CALLS ? &counts.log[counts.n_calls++] : &lost;
    *call = (fake_call){.what = what, .device = thread_device, .stream = of, .event = e};
    return call;
}

/* A call that a capture in the global mode forbids, unless the thread's mode is relaxed. */
static bool forbidden(void)
{
    bool global = false;
    for (int i = 0; i < n_streams; i++) {
        global = global || (streams[i].capturing && streams[i].global);
    }
    if (global && thread_mode != RELAXED) {
        counts.broken++;
        return true;
    }
    return false;
}

static bool alive(const event *e)
{
    if (e == NULL || e->magic != MAGIC) {
        counts.misused++;
        return false;
    }
    return true;
}

int cudaGetDevice(int *device);
int cudaGetDevice(int *device)
{
    int code = enter("cudaGetDevice");
    if (code == SUCCESS) {
        *device = thread_device;
    }
    return leave(code);
}

int cudaSetDevice(int device);
int cudaSetDevice(int device)
{
    int code = enter("cudaSetDevice");
    if (code == SUCCESS && (device < 0 || device >= devices)) {
        code = INVALID_DEVICE;
    }
    if (code == SUCCESS) {
        make_context(device);
        thread_device = device;
    }
    return leave(code);
}

int cudaEventCreateWithFlags(void **out, unsigned flags);
int cudaEventCreateWithFlags(void **out, unsigned flags)
{
    int code = enter_context("cudaEventCreateWithFlags");
    if (code == SUCCESS && forbidden()) {
        code = UNSUPPORTED;
    }
    event *e = code == SUCCESS ? calloc(1, sizeof *e) : NULL;
    if (code == SUCCESS && (flags != 0 || e == NULL)) {
        abort(); /* without timing it is of no use */
    }
    if (code == SUCCESS) {
        *e = (event){.magic = MAGIC, .device = thread_device, .next = all_events};
        all_events = e;
        counts.events++;
        note('c', 0, e);
        *out = e;
    }
    return leave(code);
}

int cudaEventRecord(void *handle, void *stream_handle);
int cudaEventRecord(void *handle, void *stream_handle)
{
    int code = enter_context("cudaEventRecord");
    event *e = handle;
    stream *s = find(stream_handle, thread_device);
    if (code == SUCCESS && (!alive(e) || s == NULL || e->device != s->device)) {
        counts.misused++;
        code = INVALID_HANDLE;
    }
    if (code == SUCCESS) {
        if (s->capturing) {
            counts.broken++;
        }
        uint64_t start = now_ns + launch_cost;
        s->done = s->done > start ? s->done : start;
        e->recorded = true;
        e->captured = s->capturing;
        e->ran = s->done;
        note('r', (uint64_t)(uintptr_t)stream_handle, e)->ran = e->ran;
    }
    return leave(code);
}

int cudaEventQuery(void *handle);
int cudaEventQuery(void *handle)
{
    int code = enter_context("cudaEventQuery");
    const event *e = handle;
    if (code == SUCCESS && forbidden()) {
        code = UNSUPPORTED;
    }
    if (code == SUCCESS && !alive(e)) {
        code = INVALID_HANDLE;
    }
    if (code == SUCCESS && e->captured) {
        counts.broken++;
        code = CAPTURED_EVENT;
    }
    if (code == SUCCESS && e->recorded && e->ran > now_ns) {
        code = NOT_READY;
    }
    return leave(code);
}

int cudaEventElapsedTime(float *ms, void *from, void *to);
int cudaEventElapsedTime(float *ms, void *from, void *to)
{
    int code = enter_context("cudaEventElapsedTime");
    const event *a = from, *b = to;
    if (code == SUCCESS && (!alive(a) || !alive(b) || a->device != b->device || !a->recorded || !b->recorded)) {
        code = INVALID_HANDLE;
    }
    if (code == SUCCESS && (a->ran > now_ns || b->ran > now_ns)) {
        code = NOT_READY;
    }
    if (code == SUCCESS) {
        double ns = ((double)b->ran - (double)a->ran) * (1 + drift_ppm * 1e-6);
        int64_t steps = (int64_t)(ns / 500); /* the real one counts in half microseconds */
        *ms = (float)((double)steps * 500e-6);
    }
    return leave(code);
}

int cudaEventDestroy(void *handle);
int cudaEventDestroy(void *handle)
{
    int code = enter_context("cudaEventDestroy");
    event *e = handle;
    if (code == SUCCESS && !alive(e)) {
        code = INVALID_HANDLE;
    }
    if (code == SUCCESS) {
        note('d', 0, e);
        counts.events--;
        e->magic = 0;
    }
    return leave(code);
}

int cudaStreamIsCapturing(void *handle, int *status);
int cudaStreamIsCapturing(void *handle, int *status)
{
    int code = enter_context("cudaStreamIsCapturing");
    const stream *s = find(handle, thread_device);
    if (code == SUCCESS && s == NULL) {
        code = INVALID_HANDLE;
    }
    for (int i = 0; i < n_streams && code == SUCCESS; i++) {
        if ((uintptr_t)handle <= 1 && streams[i].capturing && streams[i].device == thread_device) {
            code = IMPLICIT; /* all streams here are blocking ones */
        }
    }
    if (code == SUCCESS) {
        *status = s->capturing;
    }
    return leave(code);
}

int cudaThreadExchangeStreamCaptureMode(int *mode);
int cudaThreadExchangeStreamCaptureMode(int *mode)
{
    int code = enter("cudaThreadExchangeStreamCaptureMode");
    if (code == SUCCESS) {
        int before = thread_mode;
        thread_mode = *mode;
        *mode = before;
    }
    return leave(code);
}

typedef struct attributes {
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[8];
} attributes;

int cudaPointerGetAttributes(attributes *out, const void *pointer);
int cudaPointerGetAttributes(attributes *out, const void *pointer)
{
    int code = enter_context("cudaPointerGetAttributes");
    if (code == SUCCESS && forbidden()) {
        code = UNSUPPORTED;
    }
    if (code == SUCCESS) {
        *out = (attributes){.type = 0, .device = -2, .host_pointer = (void *)(uintptr_t)pointer};
        for (int i = 0; i < n_memories; i++) {
            if (memories[i].pointer == pointer) {
                out->type = memories[i].type;
                out->device = memories[i].device;
                out->device_pointer = memories[i].mapped ? (void *)(uintptr_t)pointer : NULL;
            }
        }
    }
    return leave(code);
}

/* Not injected into: it is how errors are read. */
int cudaGetLastError(void);
int cudaGetLastError(void)
{
    int code = thread_error;
    thread_error = SUCCESS;
    return code;
}

int cudaPeekAtLastError(void);
int cudaPeekAtLastError(void)
{
    return thread_error;
}

const char *cudaGetErrorName(int code);
const char *cudaGetErrorName(int code)
{
    return code == 2 ? "cudaErrorMemoryAllocation" : code == 700 ? "cudaErrorIllegalAddress" : "cudaErrorOther";
}

const char *cudaGetErrorString(int code);
const char *cudaGetErrorString(int code)
{
    return code == 2 ? "out of memory" : code == 700 ? "an illegal memory access was encountered" : "another error";
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active);
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active)
{
    pthread_mutex_lock(&lock);
    int code = device < 0 || device >= devices ? INVALID_DEVICE : SUCCESS;
    *flags = 0;
    *is_active = code == SUCCESS && active[device];
    pthread_mutex_unlock(&lock);
    return code;
}

static int waited(void)
{
    pthread_mutex_lock(&lock);
    counts.syncs++;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cudaEventSynchronize(void *e);
int cudaEventSynchronize(void *e)
{
    (void)e;
    return waited();
}

int cudaStreamSynchronize(void *s);
int cudaStreamSynchronize(void *s)
{
    (void)s;
    return waited();
}

int cudaStreamWaitEvent(void *s, void *e, unsigned flags);
int cudaStreamWaitEvent(void *s, void *e, unsigned flags)
{
    (void)s, (void)e, (void)flags;
    return waited();
}

int cudaDeviceSynchronize(void);
int cudaDeviceSynchronize(void)
{
    return waited();
}

/* ---- the test's side ---- */

static void reset(int n)
{
    pthread_mutex_lock(&lock);
    while (all_events != NULL) {
        event *e = all_events;
        all_events = e->next;
        free(e);
    }
    memset(&counts, 0, sizeof counts);
    memset(streams, 0, sizeof streams);
    now_ns = UINT64_C(1000000000000);
    call_cost = 1000;
    launch_cost = 4000;
    devices = n;
    drift_ppm = n_streams = n_memories = 0;
    for (int i = 0; i < DEVICES; i++) {
        active[i] = i < n;
        defaults[i] = (stream){.device = i};
    }
    injected_code = SUCCESS;
    injected_happened = injected_lasting = false;
    pthread_mutex_unlock(&lock);
    thread_error = thread_device = thread_mode = 0;
}

static uint64_t now(void)
{
    pthread_mutex_lock(&lock);
    uint64_t t = now_ns;
    pthread_mutex_unlock(&lock);
    return t;
}

static void advance(uint64_t ns)
{
    pthread_mutex_lock(&lock);
    now_ns += ns;
    pthread_mutex_unlock(&lock);
}

static void drift(int ppm)
{
    drift_ppm = ppm;
}

static void set_context(int device, bool is_active)
{
    active[device] = is_active;
}

static uint64_t new_stream(int device)
{
    pthread_mutex_lock(&lock);
    if (n_streams == STREAMS) {
        abort();
    }
    streams[n_streams] = (stream){.device = device};
    uint64_t handle = FIRST_STREAM + (uint64_t)n_streams++;
    pthread_mutex_unlock(&lock);
    return handle;
}

static void launch(uint64_t handle, int device, uint64_t duration)
{
    pthread_mutex_lock(&lock);
    stream *s = find((void *)(uintptr_t)handle, device);
    now_ns += call_cost;
    uint64_t start = now_ns + launch_cost;
    s->done = (s->done > start ? s->done : start) + duration;
    pthread_mutex_unlock(&lock);
}

static void capture(uint64_t handle, int device, bool on, bool global)
{
    pthread_mutex_lock(&lock);
    stream *s = find((void *)(uintptr_t)handle, device);
    s->capturing = on;
    s->global = global;
    pthread_mutex_unlock(&lock);
}

static void inject(const char *function, unsigned long nth, int code, bool lasting)
{
    pthread_mutex_lock(&lock);
    strncpy(injected_function, function != NULL ? function : "", sizeof injected_function - 1);
    injected_left = nth;
    injected_code = code;
    injected_lasting = lasting;
    injected_happened = false;
    pthread_mutex_unlock(&lock);
}

static bool injected(void)
{
    return injected_happened;
}

static void leave_error(int code)
{
    thread_error = code;
}

static int current_device(void)
{
    return thread_device;
}

static void choose_device(int device)
{
    thread_device = device;
}

static int capture_mode(void)
{
    return thread_mode;
}

static void add_memory(const void *pointer, int type, int device, bool mapped)
{
    if (n_memories == MEMORIES) {
        abort();
    }
    memories[n_memories++] = (memory){pointer, type, device, mapped};
}

const fake_cudart_control *fake_cudart(void);
const fake_cudart_control *fake_cudart(void)
{
    static const fake_cudart_control control = {.reset = reset,
                                                .counts = &counts,
                                                .call_cost = &call_cost,
                                                .launch_cost = &launch_cost,
                                                .now = now,
                                                .advance = advance,
                                                .drift = drift,
                                                .context = set_context,
                                                .stream = new_stream,
                                                .launch = launch,
                                                .capture = capture,
                                                .inject = inject,
                                                .injected = injected,
                                                .leave_error = leave_error,
                                                .last_error = cudaPeekAtLastError,
                                                .current_device = current_device,
                                                .choose_device = choose_device,
                                                .capture_mode = capture_mode,
                                                .memory = add_memory};
    return &control;
}
