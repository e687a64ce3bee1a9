/* Optimizers as they stand: groups, learning rates, and whether a scheduler changes these. */
#include "living_parts.h"

#include "arguments.h"
#include <string.h>

static bool as_number(PyObject *object, double *out)
{
    if (object == NULL || !(PyFloat_Check(object) || PyLong_Check(object))) {
        return false;
    }
    *out = PyFloat_AsDouble(object);
    bool is = !(*out == -1.0 && PyErr_Occurred());
    PyErr_Clear();
    return is;
}

static int add_group(tgd_py_living *living, PyObject *group, uint32_t number, bool never_stepped)
{
    PyObject *params = PyDict_Check(group) ? PyDict_GetItemString(group, "params") : NULL;
    double initial = 0;
    tgd_member_row row = {.optimizer = (uint32_t)living->census.n_optimizers, .group = number,
                          .never_stepped = never_stepped};
    if (params == NULL || !PyList_Check(params)) {
        return 0;
    }
    row.rate_known = as_number(PyDict_GetItemString(group, "lr"), &row.rate);
    row.scheduled = as_number(PyDict_GetItemString(group, "initial_lr"), &initial) && initial != 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); i++) {
        PyObject *param = PyList_GET_ITEM(params, i);
        row.tensor = tgd_py_tensor_of(param);
        row.place = (uint32_t)i;
        if (row.tensor == NULL) {
            continue;
        }
        if (PyList_Append(living->kept, param) < 0 ||
            tgd_py_reserve((void **)&living->members, &living->member_capacity, living->census.n_members,
                           sizeof row) < 0) {
            return -1;
        }
        living->members[living->census.n_members++] = row;
    }
    return 0;
}

/* Does each of its schedulers, and at least one, stand where it began? */
static bool is_never_stepped(PyObject *optimizer, PyObject *schedulers)
{
    bool any = false, all = true;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(schedulers); i++) {
        PyObject *dict = tgd_py_own_dict(PyList_GET_ITEM(schedulers, i));
        double epoch = 1;
        if (dict != NULL && PyDict_GetItemString(dict, "optimizer") == optimizer) {
            any = true;
            all = all && as_number(PyDict_GetItemString(dict, "last_epoch"), &epoch) && epoch <= 0;
        }
        Py_XDECREF(dict);
    }
    return any && all;
}

/* Written by torch's authors: its step() writes to every parameter that has a gradient. */
static bool is_of_torch(PyTypeObject *type)
{
    PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
    const char *name = module != NULL && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : NULL;
    bool is = name != NULL && strncmp(name, "torch.optim.", strlen("torch.optim.")) == 0;
    Py_XDECREF(module);
    PyErr_Clear();
    return is;
}

int tgd_py_living_add_optimizer(tgd_py_living *living, PyObject *optimizer, PyObject *schedulers)
{
    const char *name = Py_TYPE(optimizer)->tp_name, *last = strrchr(name, '.');
    PyObject *dict = tgd_py_own_dict(optimizer);
    PyObject *groups = dict == NULL ? NULL : PyDict_GetItemString(dict, "param_groups");
    PyObject *text = PyBytes_FromString(last == NULL ? name : last + 1);
    bool never_stepped = is_never_stepped(optimizer, schedulers);
    int failed = text == NULL || PyList_Append(living->kept, text) < 0 ||
                 tgd_py_reserve((void **)&living->optimizers, &living->optimizer_capacity, living->census.n_optimizers,
                                sizeof *living->optimizers) < 0;
    Py_XINCREF(groups);
    for (Py_ssize_t i = 0; !failed && groups != NULL && PyList_Check(groups) && i < PyList_GET_SIZE(groups); i++) {
        failed = add_group(living, PyList_GET_ITEM(groups, i), (uint32_t)i, never_stepped) < 0;
    }
    if (!failed) {
        living->optimizers[living->census.n_optimizers++] =
            (tgd_optimizer_row){.name = PyBytes_AS_STRING(text), .of_torch = is_of_torch(Py_TYPE(optimizer))};
    }
    Py_XDECREF(groups);
    Py_XDECREF(dict);
    Py_XDECREF(text);
    return failed ? -1 : 0;
}
