#include "cuda_events.h"
#include "cudart.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* Errors that come from work on the device and end its context. */
static bool lost(int code)
{
    static const int codes[] = {TGD_CUDA_UNLOADING,
                                214, /* cudaErrorECCUncorrectable */
                                220, /* cudaErrorNvlinkUncorrectable */
                                226, /* cudaErrorContained */
                                700, /* cudaErrorIllegalAddress */
                                702, /* cudaErrorLaunchTimeout */
                                709, /* cudaErrorContextIsDestroyed */
                                710, /* cudaErrorAssert */
                                714, /* cudaErrorHardwareStackError */
                                715, /* cudaErrorIllegalInstruction */
                                716, /* cudaErrorMisalignedAddress */
                                717, /* cudaErrorInvalidAddressSpace */
                                718, /* cudaErrorInvalidPc */
                                719, /* cudaErrorLaunchFailure */
                                721, /* cudaErrorTensorMemoryLeak */
                                810, /* cudaErrorMpsClientTerminated */
                                911}; /* cudaErrorExternalDevice */
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (codes[i] == code) {
            return true;
        }
    }
    return false;
}

/* What a code of ours means. The thread's last error was clear before the call. */
static tgd_events_status judge(const tgd_cudart *cuda, const char *call, int code, tgd_error *err)
{
    if (code == TGD_CUDA_SUCCESS) {
        return TGD_EVENTS_OK;
    }
    const char *name = cuda->error_name(code), *text = cuda->error_string(code);
    tgd_fail(err, TGD_ETORCH, "%s returned %s (%s)", call, name != NULL ? name : "an unknown error",
             text != NULL ? text : "no description");
    if (lost(code)) {
        return TGD_EVENTS_LOST;
    }
    (void)cuda->get_last_error();
    return TGD_EVENTS_FAILED;
}

static bool about_capture(int code)
{
    return code >= TGD_CUDA_CAPTURE_FIRST && code <= TGD_CUDA_CAPTURE_LAST;
}

/* The same of a call that a capture may refuse. */
static tgd_events_status judge_captured(const tgd_cudart *cuda, const char *call, int code, tgd_error *err)
{
    if (about_capture(code)) {
        (void)cuda->get_last_error();
        return TGD_EVENTS_CAPTURING;
    }
    return judge(cuda, call, code, err);
}

/* The same of a call that reads an event. */
static tgd_events_status judge_read(const tgd_cudart *cuda, const char *call, int code, tgd_error *err)
{
    if (code == TGD_CUDA_NOT_READY) {
        (void)cuda->get_last_error();
        return TGD_EVENTS_PENDING;
    }
    tgd_events_status status = judge_captured(cuda, call, code, err);
    /* The event itself went into a graph, or a capture elsewhere forbids to look now. */
    return status == TGD_EVENTS_CAPTURING && code != TGD_CUDA_CAPTURED_EVENT ? TGD_EVENTS_ASIDE : status;
}

/* The result of a step, once the call that puts the thread's state back has given this code. */
static tgd_events_status after(const tgd_cudart *cuda, tgd_events_status status, const char *call, int code,
                               tgd_error *err)
{
    if (code == TGD_CUDA_SUCCESS || status == TGD_EVENTS_LOST) {
        return status;
    }
    tgd_error mine;
    tgd_events_status worse = judge(cuda, call, code, &mine);
    if (err != NULL && (worse == TGD_EVENTS_LOST || status != TGD_EVENTS_FAILED)) {
        *err = mine;
    }
    return worse;
}

static bool clear(const tgd_cudart *cuda)
{
    return cuda->peek_last_error() == TGD_CUDA_SUCCESS;
}

/* ---- the thread's current device ---- */

enum { NOT_MOVED = -1 };

/* Makes the device the current one; *before: what it was, or NOT_MOVED. */
static tgd_events_status enter(const tgd_cudart *cuda, int device, int *before, tgd_error *err)
{
    int current = 0;
    *before = NOT_MOVED;
    tgd_events_status status = judge(cuda, "cudaGetDevice", cuda->get_device(&current), err);
    if (status != TGD_EVENTS_OK || current == device) {
        return status;
    }
    if (!tgd_cudart_active(cuda, current) || !tgd_cudart_active(cuda, device)) {
        return TGD_EVENTS_ASIDE;
    }
    status = judge(cuda, "cudaSetDevice", cuda->set_device(device), err);
    if (status == TGD_EVENTS_OK) {
        *before = current;
    }
    return status;
}

static tgd_events_status leave(const tgd_cudart *cuda, int before, tgd_events_status status, tgd_error *err)
{
    return before == NOT_MOVED ? status : after(cuda, status, "cudaSetDevice", cuda->set_device(before), err);
}

/* ---- the thread's capture mode ---- */

static const char exchange[] = "cudaThreadExchangeStreamCaptureMode";

static tgd_events_status relax(const tgd_cudart *cuda, int *mode, tgd_error *err)
{
    *mode = TGD_CUDA_CAPTURE_RELAXED;
    return judge(cuda, exchange, cuda->exchange_capture_mode(mode), err);
}

static tgd_events_status unrelax(const tgd_cudart *cuda, int mode, tgd_events_status status, tgd_error *err)
{
    return after(cuda, status, exchange, cuda->exchange_capture_mode(&mode), err);
}

/* ---- events ---- */

static tgd_events_status record_here(const tgd_cudart *cuda, void *stream, void **event, tgd_error *err)
{
    int capture = TGD_CUDA_CAPTURE_NONE, mode;
    tgd_events_status status = judge_captured(cuda, "cudaStreamIsCapturing", cuda->is_capturing(stream, &capture), err);
    if (status == TGD_EVENTS_OK && capture != TGD_CUDA_CAPTURE_NONE) {
        return TGD_EVENTS_CAPTURING;
    }
    if (status == TGD_EVENTS_OK && *event == NULL) {
        status = relax(cuda, &mode, err);
        if (status == TGD_EVENTS_OK) {
            void *made = NULL;
            int code = cuda->event_create(&made, TGD_CUDA_EVENT_DEFAULT);
            status = judge_captured(cuda, "cudaEventCreateWithFlags", code, err);
            if (status == TGD_EVENTS_OK) {
                *event = made;
            }
            status = unrelax(cuda, mode, status, err);
        }
    }
    if (status == TGD_EVENTS_OK) {
        status = judge_captured(cuda, "cudaEventRecord", cuda->event_record(*event, stream), err);
    }
    return status;
}

static tgd_events_status record(const void *self, int device, uint64_t stream, void **event, tgd_error *err)
{
    const tgd_cudart *cuda = self;
    if (!clear(cuda)) {
        return TGD_EVENTS_ASIDE;
    }
    int before;
    tgd_events_status status = enter(cuda, device, &before, err);
    if (status == TGD_EVENTS_OK) {
        status = record_here(cuda, (void *)(uintptr_t)stream, event, err); /* NOLINT: a handle */
    }
    return leave(cuda, before, status, err);
}

/* Events are read and given back from any device, but every call makes a context on the current one if it has none. */
static tgd_events_status settled(const tgd_cudart *cuda, int device, tgd_error *err)
{
    int current = 0;
    tgd_events_status status = judge(cuda, "cudaGetDevice", cuda->get_device(&current), err);
    if (status == TGD_EVENTS_OK && current != device && !tgd_cudart_active(cuda, current)) {
        return TGD_EVENTS_ASIDE;
    }
    return status;
}

/* Before an event is read. */
static tgd_events_status begin_read(const tgd_cudart *cuda, int device, int *mode, tgd_error *err)
{
    tgd_events_status status = clear(cuda) ? settled(cuda, device, err) : TGD_EVENTS_ASIDE;
    return status == TGD_EVENTS_OK ? relax(cuda, mode, err) : status;
}

static tgd_events_status query(const void *self, int device, void *event, tgd_error *err)
{
    const tgd_cudart *cuda = self;
    int mode;
    tgd_events_status status = begin_read(cuda, device, &mode, err);
    if (status == TGD_EVENTS_OK) {
        status = judge_read(cuda, "cudaEventQuery", cuda->event_query(event), err);
        status = unrelax(cuda, mode, status, err);
    }
    return status;
}

static tgd_events_status elapsed(const void *self, int device, void *from, void *to, int64_t *ns, tgd_error *err)
{
    const tgd_cudart *cuda = self;
    float ms = 0;
    int mode;
    tgd_events_status status = begin_read(cuda, device, &mode, err);
    if (status == TGD_EVENTS_OK) {
        status = judge_read(cuda, "cudaEventElapsedTime", cuda->event_elapsed(&ms, from, to), err);
        status = unrelax(cuda, mode, status, err);
    }
    if (status == TGD_EVENTS_OK) {
        if (!isfinite(ms) || fabsf(ms) > 1e12F) {
            tgd_fail(err, TGD_ETORCH, "cudaEventElapsedTime gave %g ms", (double)ms);
            return TGD_EVENTS_FAILED;
        }
        *ns = (int64_t)llround((double)ms * 1e6);
    }
    return status;
}

/* Also while an error of the program's stands: giving back an event fails only where the context is lost. Not where it
   would make a context on the current device; the event goes with its own context then. */
static void destroy(const void *self, int device, void *event)
{
    const tgd_cudart *cuda = self;
    if (event == NULL) {
        return;
    }
    int current = 0;
    bool was_clear = clear(cuda);
    int code = cuda->get_device(&current);
    if (code == TGD_CUDA_SUCCESS && (current == device || tgd_cudart_active(cuda, current))) {
        code = cuda->event_destroy(event);
    }
    if (code != TGD_CUDA_SUCCESS && was_clear && !lost(code)) {
        (void)cuda->get_last_error();
    }
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tgd_device_events events = {.name = "cuda",
                                   .native_stream = true,
                                   .record = record,
                                   .query = query,
                                   .elapsed = elapsed,
                                   .destroy = destroy};

tgd_status tgd_cuda_events(const tgd_device_events **out, tgd_error *err)
{
    const tgd_cudart *cuda;
    tgd_status status = tgd_cudart_find(&cuda, err);
    if (status == TGD_OK) {
        pthread_mutex_lock(&lock);
        if (events.self == NULL) {
            events.self = cuda;
        }
        pthread_mutex_unlock(&lock);
        *out = &events;
    }
    return status;
}

/* ---- pointers ---- */

static tgd_pointer_state state_of(const tgd_cuda_pointer *found, int device)
{
    switch (found->type) {
    case TGD_CUDA_MEMORY_DEVICE:
        return found->device == device ? TGD_POINTER_OK : TGD_POINTER_OTHER_DEVICE;
    case TGD_CUDA_MEMORY_HOST: /* the device reaches it where it is mapped */
        return found->device_pointer != NULL ? TGD_POINTER_OK : TGD_POINTER_UNKNOWN;
    case TGD_CUDA_MEMORY_MANAGED:
        return TGD_POINTER_OK;
    case TGD_CUDA_MEMORY_UNREGISTERED:
        return TGD_POINTER_UNKNOWN;
    default:
        return TGD_POINTER_UNCHECKED;
    }
}

tgd_pointer_state tgd_device_pointer_state(const void *pointer, int device)
{
    const tgd_cudart *cuda;
    if (pointer == NULL || device < 0 || tgd_cudart_find(&cuda, NULL) != TGD_OK || !tgd_cudart_active(cuda, device) ||
        !clear(cuda)) {
        return TGD_POINTER_UNCHECKED;
    }
    int before, mode;
    tgd_events_status status = enter(cuda, device, &before, NULL);
    tgd_pointer_state state = TGD_POINTER_UNCHECKED;
    if (status == TGD_EVENTS_OK) {
        status = relax(cuda, &mode, NULL);
        if (status == TGD_EVENTS_OK) {
            tgd_cuda_pointer found;
            memset(&found, 0, sizeof found);
            int code = cuda->pointer_attributes(&found, pointer);
            status = judge(cuda, "cudaPointerGetAttributes", code, NULL);
            if (status == TGD_EVENTS_OK) {
                state = state_of(&found, device);
            } else if (code == TGD_CUDA_INVALID_VALUE) {
                state = TGD_POINTER_UNKNOWN;
            }
            status = unrelax(cuda, mode, status, NULL);
        }
    }
    (void)leave(cuda, before, status, NULL);
    return state;
}
