/*
 * Gradients and roots on a CUDA device, without ever waiting for it: after backward the largest magnitude of each is
 * asked for (NaN and infinity come through), copied to pinned memory behind an event, and read by a later look, when
 * the event says that it is there. One such flight is under way at a time. On any other device nothing is done.
 */
#include "watch.h"

#include "finite.h"
#include "note.h"
#include "python_shim.h"

#include <float.h>
#include <string.h>

/* For the project's own tests: tensors of the CPU are treated as if they were far away. */
static bool cpu_is_far;

PyObject *tgd_py_watch_pretend(PyObject *module, PyObject *flag)
{
    (void)module;
    int is = PyObject_IsTrue(flag);
    if (is < 0) {
        return NULL;
    }
    cpu_is_far = is;
    Py_RETURN_NONE;
}

bool tgd_py_is_far(const tgd_torch_tensor_info *tensor)
{
    const uint32_t foreign = TGD_TENSOR_SUBCLASS | TGD_TENSOR_WRAPPER | TGD_TENSOR_NESTED | TGD_TENSOR_SYMBOLIC;
    const char *device = tgd_torch_device_name(tensor->device_type);
    return (tensor->flags & TGD_TENSOR_FLOATING) && !(tensor->flags & foreign) && tensor->strides != NULL &&
           tensor->numel > 0 && strcmp(device, cpu_is_far ? "cpu" : "cuda") == 0;
}

/* ---- what is asked for ---- */

typedef struct boarding {
    PyObject *tensors; /* Owned list */
    tgd_py_aboard *rows;
    size_t n, capacity;
    int device_index; /* of the first: the others' devices are left unchecked */
} boarding;

static int board(boarding *b, PyObject *object, tgd_py_aboard row)
{
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    tgd_torch_tensor_info info;
    if (tgd_torch_object(object, &tensor, &node) != TGD_OBJECT_TENSOR) {
        return 0;
    }
    tgd_torch_tensor_read(tensor, &info);
    if (!tgd_py_is_far(&info) || (b->n > 0 && info.device_index != b->device_index)) {
        return 0;
    }
    b->device_index = info.device_index;
    row.numel = info.numel;
    if (tgd_py_reserve((void **)&b->rows, &b->capacity, b->n, sizeof *b->rows) < 0 ||
        PyList_Append(b->tensors, object) < 0) {
        return -1;
    }
    b->rows[b->n++] = row;
    return 0;
}

/* Of a tensor in a graph, another that is in none and shares its memory. */
static int board_detached(boarding *b, PyObject *tensor, tgd_py_aboard row)
{
    PyObject *detached = PyObject_CallMethod(tensor, "detach", NULL);
    int result = detached == NULL ? -1 : board(b, detached, row);
    Py_XDECREF(detached);
    return result;
}

static int board_all(boarding *b, const tgd_py_watch *self, PyObject *roots)
{
    for (Py_ssize_t r = 0; r < PyTuple_GET_SIZE(roots); r++) {
        PyObject *root = PyTuple_GET_ITEM(roots, r);
        const tgd_torch_tensor *tensor;
        const tgd_torch_node *node;
        tgd_torch_tensor_info info = {.flags = 0};
        if (tgd_torch_object(root, &tensor, &node) == TGD_OBJECT_TENSOR) {
            tgd_torch_tensor_read(tensor, &info);
        }
        if (tgd_py_is_far(&info) && board_detached(b, root, (tgd_py_aboard){.root = (uint32_t)r}) < 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < self->places.n; i++) {
        PyObject *parameter = tgd_py_place_object(&self->places.rows[i]);
        const tgd_torch_tensor *tensor = tgd_py_place_tensor(&self->places.rows[i]);
        tgd_torch_tensor_info info = {.flags = 0};
        if (tensor != NULL) {
            tgd_torch_tensor_read(tensor, &info);
        }
        if (!tgd_py_is_far(&info)) {
            continue;
        }
        Py_INCREF(parameter);
        PyObject *gradient = PyObject_GetAttrString(parameter, "grad");
        int result = gradient == NULL ? -1
                     : gradient == Py_None
                         ? 0
                         : board_detached(b, gradient, (tgd_py_aboard){.tensor = (uint64_t)(uintptr_t)tensor});
        Py_XDECREF(gradient);
        Py_DECREF(parameter);
        if (result < 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- there and back ---- */

/* A mode of the user's would see our ops, and a graph under capture would keep them. */
static int is_bad_moment(PyObject *torch)
{
    static const char *const depths[] = {"_len_torch_dispatch_stack", "_len_torch_function_stack"};
    PyObject *c = PyObject_GetAttrString(torch, "_C");
    int bad = c == NULL ? -1 : 0;
    for (int i = 0; i < 2 && bad == 0; i++) {
        PyObject *depth = PyObject_CallMethod(c, depths[i], NULL);
        bad = depth == NULL ? -1 : PyObject_IsTrue(depth);
        Py_XDECREF(depth);
    }
    Py_XDECREF(c);
    if (bad == 0 && !cpu_is_far) {
        PyObject *cuda = PyObject_GetAttrString(torch, "cuda");
        PyObject *capturing = cuda == NULL ? NULL : PyObject_CallMethod(cuda, "is_current_stream_capturing", NULL);
        bad = capturing == NULL ? -1 : PyObject_IsTrue(capturing);
        Py_XDECREF(cuda);
        Py_XDECREF(capturing);
    }
    return bad;
}

/* Memory that the device can write to while we go on; made once for as many numbers, since making it may wait. */
static PyObject *host_memory(PyObject *torch, const tgd_py_watch *self, size_t n)
{
    if (self->flight.host != NULL && self->flight.capacity == n) {
        return Py_NewRef(self->flight.host);
    }
    PyObject *empty = PyObject_GetAttrString(torch, "empty");
    PyObject *dtype = empty == NULL ? NULL : PyObject_GetAttrString(torch, "float64");
    PyObject *args = dtype == NULL ? NULL : Py_BuildValue("(n)", (Py_ssize_t)n);
    PyObject *keywords =
        args == NULL ? NULL : Py_BuildValue("{s:O,s:O}", "dtype", dtype, "pin_memory", cpu_is_far ? Py_False : Py_True);
    PyObject *host = keywords == NULL ? NULL : PyObject_Call(empty, args, keywords);
    Py_XDECREF(empty);
    Py_XDECREF(dtype);
    Py_XDECREF(args);
    Py_XDECREF(keywords);
    return host;
}

/* The event behind what was queued; None where there is none to wait for. */
static PyObject *record_event(PyObject *torch)
{
    if (cpu_is_far) {
        return Py_NewRef(Py_None);
    }
    PyObject *cuda = PyObject_GetAttrString(torch, "cuda");
    PyObject *event = cuda == NULL ? NULL : PyObject_CallMethod(cuda, "Event", NULL);
    PyObject *recorded = event == NULL ? NULL : PyObject_CallMethod(event, "record", NULL);
    if (recorded == NULL) {
        Py_CLEAR(event);
    }
    Py_XDECREF(cuda);
    Py_XDECREF(recorded);
    return event;
}

/* Queues the ops. 0, or -1 with an exception. */
static int take_off(tgd_py_watch *self, PyObject *torch, PyObject *tensors, size_t n)
{
    PyObject *norms = PyObject_CallMethod(torch, "_foreach_norm", "Od", tensors, (double)Py_HUGE_VAL);
    PyObject *stacked = norms == NULL ? NULL : PyObject_CallMethod(torch, "stack", "(O)", norms);
    PyObject *host = stacked == NULL ? NULL : host_memory(torch, self, n);
    PyObject *copied = host == NULL ? NULL : PyObject_CallMethod(host, "copy_", "OO", stacked, Py_True);
    PyObject *event = copied == NULL ? NULL : record_event(torch);
    Py_XDECREF(norms);
    Py_XDECREF(stacked);
    Py_XDECREF(copied);
    if (event == NULL) {
        Py_XDECREF(host);
        return -1;
    }
    Py_XSETREF(self->flight.host, host);
    Py_XSETREF(self->flight.event, event);
    self->flight.capacity = n;
    return 0;
}

bool tgd_py_flight_launch(tgd_py_watch *self, PyObject *roots, uint64_t step)
{
    PyObject *torch = tgd_py_state_of((PyObject *)self)->torch;
    if (self->flight.n > 0 || self->flight.given_up) {
        return self->flight.n > 0;
    }
    boarding b = {.tensors = PyList_New(0)};
    int bad = b.tensors == NULL || board_all(&b, self, roots) < 0 ? -1 : b.n == 0 ? 1 : is_bad_moment(torch);
    if (bad == 0) {
        bad = take_off(self, torch, b.tensors, b.n);
    }
    if (bad == 0) {
        PyMem_Free(self->flight.aboard);
        self->flight.aboard = b.rows;
        self->flight.n = b.n;
        self->flight.step = step;
        b.rows = NULL;
    } else if (bad < 0) {
        self->flight.given_up = true;
        tgd_py_complain(&self->complained, "look at gradients on this device");
    }
    PyMem_Free(b.rows);
    Py_XDECREF(b.tensors);
    return bad == 0;
}

/* Has the event happened? -1 with an exception. */
static int is_there(PyObject *event)
{
    if (event == Py_None) {
        return 1;
    }
    PyObject *answer = PyObject_CallMethod(event, "query", NULL);
    int there = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return there;
}

int tgd_py_flight_land(tgd_py_watch *self, Py_ssize_t n_roots, tgd_py_findings *findings)
{
    const tgd_torch_tensor *host;
    const tgd_torch_node *node;
    tgd_torch_tensor_info info;
    int there = self->flight.n == 0 ? 0 : is_there(self->flight.event);
    if (there <= 0) {
        return there;
    }
    size_t n = self->flight.n;
    self->flight.n = 0;
    tgd_torch_object(self->flight.host, &host, &node);
    tgd_torch_tensor_read(host, &info);
    for (size_t i = 0; i < n && tgd_finite_readable(&info); i++) {
        const tgd_py_aboard *row = &self->flight.aboard[i];
        double largest;
        memcpy(&largest, (const char *)(uintptr_t)info.data + i * sizeof largest, sizeof largest);
        bool nan = largest != largest, gradient = row->tensor != 0;
        if ((!nan && largest <= DBL_MAX) || (!gradient && (Py_ssize_t)row->root >= n_roots)) {
            continue;
        }
        tgd_value value = {.of = gradient ? TGD_VALUE_GRADIENT : TGD_VALUE_ROOT, .root = row->root,
                           .tensor = row->tensor, .numel = row->numel, .n_nan = nan, .n_inf = !nan};
        findings->nan_root = findings->nan_root || (nan && !gradient);
        if (tgd_py_findings_add(findings, value) < 0) {
            return -1;
        }
    }
    return 1;
}

void tgd_py_flight_drop(tgd_py_watch *self)
{
    Py_CLEAR(self->flight.host);
    Py_CLEAR(self->flight.event);
    PyMem_Free(self->flight.aboard);
    self->flight = (tgd_py_flight){.given_up = self->flight.given_up};
}
