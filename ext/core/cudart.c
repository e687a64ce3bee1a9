#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif

#include "cudart.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__)
#include <dlfcn.h>
#include <link.h>
#endif

/* ---- our copies of the types, against the Toolkit's ---- */

#if defined(__has_include)
#if __has_include(<cuda_runtime_api.h>) && __has_include(<crt/host_defines.h>)
#include <cuda_runtime_api.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(TGD_CUDA_SUCCESS, cudaSuccess);
SAME(TGD_CUDA_INVALID_VALUE, cudaErrorInvalidValue);
SAME(TGD_CUDA_UNLOADING, cudaErrorCudartUnloading);
SAME(TGD_CUDA_NOT_READY, cudaErrorNotReady);
SAME(TGD_CUDA_CAPTURED_EVENT, cudaErrorCapturedEvent);
SAME(TGD_CUDA_CAPTURE_FIRST, cudaErrorStreamCaptureUnsupported);
SAME(TGD_CUDA_CAPTURE_LAST, cudaErrorStreamCaptureWrongThread);
SAME(TGD_CUDA_CAPTURE_NONE, cudaStreamCaptureStatusNone);
SAME(TGD_CUDA_CAPTURE_RELAXED, cudaStreamCaptureModeRelaxed);
SAME(TGD_CUDA_EVENT_DEFAULT, cudaEventDefault);
SAME(TGD_CUDA_MEMORY_UNREGISTERED, cudaMemoryTypeUnregistered);
SAME(TGD_CUDA_MEMORY_HOST, cudaMemoryTypeHost);
SAME(TGD_CUDA_MEMORY_DEVICE, cudaMemoryTypeDevice);
SAME(TGD_CUDA_MEMORY_MANAGED, cudaMemoryTypeManaged);

/* Enums are passed as int; events and streams are pointers. */
#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
SAME_SIZE(int, cudaError_t);
SAME_SIZE(int, enum cudaStreamCaptureStatus);
SAME_SIZE(int, enum cudaStreamCaptureMode);
SAME_SIZE(void *, cudaEvent_t);
SAME_SIZE(void *, cudaStream_t);
#define SAME_PLACE(ours, theirs)                                                                                       \
    _Static_assert(offsetof(tgd_cuda_pointer, ours) == offsetof(struct cudaPointerAttributes, theirs), #theirs)
SAME_PLACE(type, type);
SAME_PLACE(device, device);
SAME_PLACE(device_pointer, devicePointer);
SAME_PLACE(host_pointer, hostPointer);
_Static_assert(sizeof(tgd_cuda_pointer) >= sizeof(struct cudaPointerAttributes), "cudaPointerAttributes");

#define SAME_CALL(name, ...)                                                                                           \
    _Static_assert(_Generic(&name, cudaError_t (*)(__VA_ARGS__): 1, default: 0), #name)
SAME_CALL(cudaGetDevice, int *);
SAME_CALL(cudaSetDevice, int);
SAME_CALL(cudaEventCreateWithFlags, cudaEvent_t *, unsigned);
SAME_CALL(cudaEventRecord, cudaEvent_t, cudaStream_t);
SAME_CALL(cudaEventQuery, cudaEvent_t);
SAME_CALL(cudaEventElapsedTime, float *, cudaEvent_t, cudaEvent_t);
SAME_CALL(cudaEventDestroy, cudaEvent_t);
SAME_CALL(cudaStreamIsCapturing, cudaStream_t, enum cudaStreamCaptureStatus *);
SAME_CALL(cudaThreadExchangeStreamCaptureMode, enum cudaStreamCaptureMode *);
SAME_CALL(cudaPointerGetAttributes, struct cudaPointerAttributes *, const void *);
SAME_CALL(cudaGetLastError, void);
SAME_CALL(cudaPeekAtLastError, void);
#endif
#endif

/* ---- finding it ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tgd_cudart found;
static bool have_found;

#if defined(__linux__)

static void *library; /* Owned for ever: what was found stays mapped */

/* dlsym() gives functions as object pointers; POSIX promises that they convert. */
static bool look_up(void *from, const char *name, void *function)
{
    void *symbol = dlsym(from, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Takes the runtime if the library, or one that it is linked to, has all of it. */
static bool take(void *from)
{
    tgd_cudart c;
    memset(&c, 0, sizeof c);
    if (from == NULL || !look_up(from, "cudaGetDevice", &c.get_device) ||
        !look_up(from, "cudaSetDevice", &c.set_device) ||
        !look_up(from, "cudaEventCreateWithFlags", &c.event_create) ||
        !look_up(from, "cudaEventRecord", &c.event_record) || !look_up(from, "cudaEventQuery", &c.event_query) ||
        !look_up(from, "cudaEventElapsedTime", &c.event_elapsed) ||
        !look_up(from, "cudaEventDestroy", &c.event_destroy) ||
        !look_up(from, "cudaStreamIsCapturing", &c.is_capturing) ||
        !look_up(from, "cudaThreadExchangeStreamCaptureMode", &c.exchange_capture_mode) ||
        !look_up(from, "cudaPointerGetAttributes", &c.pointer_attributes) ||
        !look_up(from, "cudaGetLastError", &c.get_last_error) ||
        !look_up(from, "cudaPeekAtLastError", &c.peek_last_error) ||
        !look_up(from, "cudaGetErrorName", &c.error_name) || !look_up(from, "cudaGetErrorString", &c.error_string)) {
        return false;
    }
    found = c;
    library = from;
    return true;
}

enum { PATH_SIZE = 4096 };

typedef struct mapped {
    char torch[PATH_SIZE], cudart[PATH_SIZE]; /* paths, "" = none */
} mapped;

static int see(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    mapped *m = context;
    const char *name = strrchr(info->dlpi_name, '/');
    name = name != NULL ? name + 1 : info->dlpi_name;
    char *out = NULL;
    if (strncmp(name, "libc10_cuda", 11) == 0 || strncmp(name, "libtorch_cuda", 13) == 0) {
        out = m->torch;
    } else if (strncmp(name, "libcudart", 9) == 0) {
        out = m->cudart;
    }
    if (out != NULL && out[0] == '\0' && strlen(info->dlpi_name) < PATH_SIZE) {
        strcpy(out, info->dlpi_name);
    }
    return 0;
}

/* What is mapped already. */
static bool take_mapped(const char *path)
{
    void *from = path[0] != '\0' ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (take(from)) {
        return true;
    }
    if (from != NULL) {
        dlclose(from);
    }
    return false;
}

static tgd_status search(tgd_error *err)
{
    const char *named = getenv("TORCHGRAPHDBG_CUDART");
    if (named != NULL && named[0] != '\0') {
        void *from = dlopen(named, RTLD_NOW | RTLD_LOCAL);
        if (from == NULL) {
            return tgd_fail(err, TGD_EINVAL, "TORCHGRAPHDBG_CUDART: %s", dlerror());
        }
        if (!take(from)) {
            dlclose(from);
            return tgd_fail(err, TGD_EINVAL, "TORCHGRAPHDBG_CUDART: %s is not a CUDA runtime", named);
        }
        return TGD_OK;
    }
    mapped m = {.torch = ""};
    dl_iterate_phdr(see, &m);
    if (take_mapped(m.torch) || take_mapped(m.cudart)) {
        return TGD_OK;
    }
    if (m.torch[0] == '\0') {
        return tgd_fail(err, TGD_ETORCH, "no CUDA runtime is loaded: this torch works without CUDA");
    }
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (take(dlopen(names[i], RTLD_LAZY | RTLD_LOCAL))) {
            return TGD_OK;
        }
    }
    return tgd_fail(err, TGD_ETORCH, "torch's CUDA libraries are loaded, but no libcudart is found beside them");
}

/* The driver may be loaded later than the runtime. A runtime for tests brings its own. */
static void find_driver(void)
{
    if (!look_up(library, "cuDevicePrimaryCtxGetState", &found.context_state)) {
        void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        if (driver != NULL) {
            look_up(driver, "cuDevicePrimaryCtxGetState", &found.context_state);
        }
    }
}

#else

static tgd_status search(tgd_error *err)
{
    return tgd_fail(err, TGD_ETORCH, "CUDA is looked for on Linux only");
}

static void find_driver(void)
{
}

#endif

tgd_status tgd_cudart_find(const tgd_cudart **out, tgd_error *err)
{
    pthread_mutex_lock(&lock);
    tgd_status status = have_found ? TGD_OK : search(err);
    have_found = have_found || status == TGD_OK;
    pthread_mutex_unlock(&lock);
    if (status == TGD_OK) {
        *out = &found;
    }
    return status;
}

int tgd_cudart_active(const tgd_cudart *cudart, int device)
{
    pthread_mutex_lock(&lock);
    if (cudart->context_state == NULL) {
        find_driver();
    }
    int (*state)(int, unsigned *, int *) = found.context_state;
    pthread_mutex_unlock(&lock);
    unsigned flags = 0;
    int active = 0;
    return state != NULL && state(device, &flags, &active) == 0 && active;
}
