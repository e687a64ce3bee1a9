/* The numbers a watch looks at: gradients, roots, outputs of modules. */
#include "watch.h"

#include "finite.h"
#include "grad_state.h"
#include "python_shim.h"

enum { MOST_NESTING = 4 }; /* of tuples, lists and dicts in what a module returns */

void tgd_py_findings_clear(tgd_py_findings *findings)
{
    PyMem_Free(findings->rows);
    *findings = (tgd_py_findings){0};
}

int tgd_py_findings_add(tgd_py_findings *findings, tgd_value value)
{
    if (tgd_py_reserve((void **)&findings->rows, &findings->capacity, findings->n, sizeof *findings->rows) < 0) {
        return -1;
    }
    findings->rows[findings->n++] = value;
    return 0;
}

uint64_t tgd_py_watch_versions(const tgd_py_watch *self)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < self->places.n; i++) {
        const tgd_torch_tensor *tensor = tgd_py_place_tensor(&self->places.rows[i]);
        sum += tensor == NULL ? 0 : tgd_torch_tensor_version(tensor);
    }
    return sum;
}

/* ---- gradients ---- */

typedef struct gradient_look {
    unsigned turn;
    tgd_value value;
} gradient_look;

static int look_at_gradient(void *context, const tgd_torch_tensor *gradient)
{
    gradient_look *look = context;
    tgd_torch_tensor_info info;
    tgd_torch_tensor_read(gradient, &info);
    if (tgd_py_is_far(&info) || tgd_finite_look(&info, look->turn) != TGD_NOT_FINITE) {
        return 0;
    }
    tgd_finite_count(&info, &look->value.n_nan, &look->value.n_inf);
    look->value.numel = info.numel;
    return 1;
}

/* Tied weights are met more than once. */
static bool is_known(const tgd_py_findings *findings, uint64_t tensor)
{
    for (size_t i = 0; i < findings->n; i++) {
        if (findings->rows[i].of == TGD_VALUE_GRADIENT && findings->rows[i].tensor == tensor) {
            return true;
        }
    }
    return false;
}

int tgd_py_watch_gradients(tgd_py_watch *self, tgd_py_findings *findings)
{
    gradient_look look = {.turn = self->turn++};
    for (size_t i = 0; i < self->places.n; i++) {
        const tgd_torch_tensor *tensor = tgd_py_place_tensor(&self->places.rows[i]);
        look.value = (tgd_value){.of = TGD_VALUE_GRADIENT, .tensor = (uint64_t)(uintptr_t)tensor, .counted = true};
        if (tensor != NULL && tgd_torch_tensor_gradient(tensor, look_at_gradient, &look) != 0 &&
            !is_known(findings, look.value.tensor) && tgd_py_findings_add(findings, look.value) < 0) {
            return -1;
        }
    }
    return 0;
}

bool tgd_py_watch_params_finite(const tgd_py_watch *self)
{
    for (size_t i = 0; i < self->places.n; i++) {
        const tgd_torch_tensor *tensor = tgd_py_place_tensor(&self->places.rows[i]);
        tgd_torch_tensor_info info;
        if (tensor == NULL) {
            continue;
        }
        tgd_torch_tensor_read(tensor, &info);
        for (unsigned turn = 0; turn < 16; turn++) {
            if (tgd_finite_look(&info, turn) == TGD_NOT_FINITE) {
                return false;
            }
        }
    }
    return true;
}

/* ---- roots ---- */

int tgd_py_watch_roots(PyObject *roots, unsigned turn, tgd_py_findings *findings)
{
    for (Py_ssize_t r = 0; r < PyTuple_GET_SIZE(roots); r++) {
        const tgd_torch_tensor *tensor;
        const tgd_torch_node *node;
        tgd_torch_tensor_info info;
        if (tgd_torch_object(PyTuple_GET_ITEM(roots, r), &tensor, &node) != TGD_OBJECT_TENSOR) {
            continue;
        }
        tgd_torch_tensor_read(tensor, &info);
        if (tgd_py_is_far(&info) || tgd_finite_look(&info, turn) != TGD_NOT_FINITE) {
            continue;
        }
        tgd_value value = {.of = TGD_VALUE_ROOT, .root = (uint32_t)r, .numel = info.numel, .counted = true};
        tgd_finite_count(&info, &value.n_nan, &value.n_inf);
        findings->nan_root = findings->nan_root || value.n_nan > 0;
        if (tgd_py_findings_add(findings, value) < 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- outputs of modules ---- */

void tgd_py_watch_forget_outputs(tgd_py_watch *self)
{
    Py_CLEAR(self->nan.path);
    Py_CLEAR(self->nan.class_name);
    Py_CLEAR(self->inf.path);
    Py_CLEAR(self->inf.class_name);
}

static int add_output(const tgd_py_output *output, tgd_py_findings *findings)
{
    if (output->class_name == NULL) {
        return 0;
    }
    const char *class_name = PyUnicode_AsUTF8(output->class_name);
    const char *path = output->path == Py_None ? NULL : PyUnicode_AsUTF8(output->path);
    if (class_name == NULL || (path == NULL && output->path != Py_None)) {
        return -1;
    }
    return tgd_py_findings_add(findings, (tgd_value){.of = TGD_VALUE_OUTPUT, .module = path, .module_class = class_name,
                                     .numel = output->numel, .n_nan = output->n_nan, .n_inf = output->n_inf,
                                     .counted = true});
}

/* Infinite outputs are common where all is well (masks); they are named only where nothing turned NaN. */
int tgd_py_watch_outputs(tgd_py_watch *self, tgd_py_findings *findings)
{
    return add_output(self->nan.class_name != NULL ? &self->nan : &self->inf, findings);
}

/* The tensors in what a module returned: those that are not finite add to the counts. */
static void look_within(PyObject *object, unsigned turn, int depth, tgd_py_output *found)
{
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    if (tgd_torch_object(object, &tensor, &node) == TGD_OBJECT_TENSOR) {
        tgd_torch_tensor_info info;
        tgd_torch_tensor_read(tensor, &info);
        if (tgd_finite_look(&info, turn) == TGD_NOT_FINITE) {
            int64_t n_nan, n_inf;
            tgd_finite_count(&info, &n_nan, &n_inf);
            found->numel += info.numel;
            found->n_nan += n_nan;
            found->n_inf += n_inf;
        }
    } else if (depth < MOST_NESTING && PyTuple_Check(object)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) {
            look_within(PyTuple_GET_ITEM(object, i), turn, depth + 1, found);
        }
    } else if (depth < MOST_NESTING && PyList_Check(object)) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); i++) {
            look_within(PyList_GET_ITEM(object, i), turn, depth + 1, found);
        }
    } else if (depth < MOST_NESTING && PyDict_Check(object)) {
        PyObject *key, *value;
        Py_ssize_t at = 0;
        while (PyDict_Next(object, &at, &key, &value)) {
            look_within(value, turn, depth + 1, found);
        }
    }
}

/* The module's path within what is watched: a str, or None. */
static PyObject *path_of(PyObject *params, PyObject *wanted)
{
    PyObject *found = NULL, *pair;
    PyObject *modules = tgd_py_is_instance(params, "torch.nn", "Module") == 1
                            ? PyObject_CallMethod(params, "named_modules", NULL)
                            : NULL;
    PyObject *iterator = modules == NULL ? NULL : PyObject_GetIter(modules);
    while (iterator != NULL && found == NULL && (pair = PyIter_Next(iterator)) != NULL) {
        if (PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2 && PyTuple_GET_ITEM(pair, 1) == wanted &&
            PyUnicode_Check(PyTuple_GET_ITEM(pair, 0))) {
            found = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
        }
        Py_DECREF(pair);
    }
    Py_XDECREF(modules);
    Py_XDECREF(iterator);
    PyErr_Clear();
    return found == NULL ? Py_NewRef(Py_None) : found;
}

PyObject *tgd_py_watch_on_forward(PyObject *object, PyObject *args)
{
    tgd_py_watch *self = (tgd_py_watch *)object;
    PyObject *module, *given, *output;
    if (!PyArg_UnpackTuple(args, "forward_hook", 3, 3, &module, &given, &output)) {
        return NULL;
    }
    /* Modules end after those within them, so the first to be met is the innermost. */
    if (self->on && self->nan.class_name == NULL && tgd_torch_grad_mode() && !tgd_torch_in_backward()) {
        tgd_py_output found = {0};
        look_within(output, self->turn, 0, &found);
        tgd_py_output *first = found.n_nan > 0 ? &self->nan : &self->inf;
        if (found.n_nan + found.n_inf > 0 && first->class_name == NULL) {
            found.class_name = PyUnicode_FromString(Py_TYPE(module)->tp_name);
            found.path = found.class_name == NULL ? NULL : path_of(self->params, module);
            *first = found;
            PyErr_Clear();
        }
    }
    Py_RETURN_NONE; /* the output stays what it is */
}
