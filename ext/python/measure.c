#include "measure.h"

#include "measuring.h"
#include "python_shim.h"
#include "raise.h"
#include "tensor_statistics.h"

#include <string.h>

const char tgd_py_statistics_doc[] =
    "_statistics($module, tensor, /, *, by=\"memory\", repeat=1)\n--\n\n"
    "What a tensor's values are like: a dict, or the reason why they were not looked at.\n\n"
    "by      \"memory\": at once, on the CPU; \"portable\": likewise, without AVX2; \"nonfinite\": only whether there\n"
    "        is a NaN or an infinity; \"operations\": as on a device\n"
    "repeat  do it that often, to be timed";

static PyObject *as_dict(const tgd_statistics *s)
{
    return Py_BuildValue("{sKsKsKsKsKsdsdsdsdsdsdsd}", "n", (unsigned long long)s->n, "nan",
                         (unsigned long long)s->n_nan, "inf", (unsigned long long)s->n_inf, "zero",
                         (unsigned long long)s->n_zero, "subnormal", (unsigned long long)s->n_subnormal, "sum", s->sum,
                         "sum_imaginary", s->sum_imaginary, "norm", s->norm, "absmax", s->absmax, "absmin", s->absmin,
                         "mean", tgd_statistics_mean(s), "rms", tgd_statistics_rms(s));
}

static tgd_unchecked by_operations(const tgd_torch_tensor *tensor, tgd_statistics *out)
{
    tgd_later *later;
    tgd_unchecked why = tgd_torch_statistics_later(tensor, true, &later);
    if (why == TGD_CHECKED) {
        while (tgd_later_ready(later) == 0) {
            /* what a recorder would come back for */
        }
        why = tgd_later_read(later, out);
        tgd_later_free(later);
    }
    return why;
}

PyObject *tgd_py_statistics(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "by", "repeat", NULL};
    PyObject *object;
    const char *by = "memory";
    Py_ssize_t repeat = 1;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$sn:_statistics", names, &object, &by, &repeat)) {
        return NULL;
    }
    const tgd_torch_tensor *tensor;
    const tgd_torch_node *node;
    if (tgd_torch_object(object, &tensor, &node) != TGD_OBJECT_TENSOR) {
        return PyErr_Format(PyExc_TypeError, "tensor: expected a torch.Tensor, got %.200s", Py_TYPE(object)->tp_name);
    }
    const bool memory = strcmp(by, "memory") == 0, portable = strcmp(by, "portable") == 0;
    const bool nonfinite = strcmp(by, "nonfinite") == 0;
    if (!memory && !portable && !nonfinite && strcmp(by, "operations") != 0) {
        return PyErr_Format(PyExc_ValueError,
                            "by: expected 'memory', 'portable', 'nonfinite' or 'operations', got %.200s", by);
    }
    tgd_unchecked why = TGD_CHECKED;
    tgd_statistics s = {0};
    bool found = false;
    Py_BEGIN_ALLOW_THREADS
    const bool was_portable = portable && tgd_statistics_portable(true);
    for (Py_ssize_t i = 0; i < repeat; i++) {
        why = nonfinite           ? tgd_torch_nonfinite(tensor, &found)
              : memory || portable ? tgd_torch_statistics(tensor, &s)
                                   : by_operations(tensor, &s);
    }
    if (portable) {
        tgd_statistics_portable(was_portable);
    }
    Py_END_ALLOW_THREADS
    if (why != TGD_CHECKED) {
        return PyUnicode_FromString(tgd_torch_unchecked_name(why));
    }
    return nonfinite ? PyBool_FromLong(found) : as_dict(&s);
}

PyObject *tgd_py_measure(PyObject *module, PyObject *on)
{
    static unsigned what;
    const unsigned long wanted = PyLong_AsUnsignedLong(on);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (what != 0) {
        tgd_measure_stop(what);
    }
    what = wanted == 0 ? 0u : wanted > 1 ? TGD_MEASURE_TIME | TGD_MEASURE_GRADIENTS : TGD_MEASURE_TIME;
    tgd_error err = {.status = TGD_OK};
    if (what != 0 && tgd_measure_start(what, &err) != TGD_OK) {
        what = 0;
        return tgd_py_raise(PyModule_GetState(module), err.status, &err, NULL);
    }
    Py_RETURN_NONE;
}
