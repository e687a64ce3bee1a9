/* A custom Function whose ctx keeps an output of its own node: a cycle that nobody frees. */
#include "living_parts.h"

#include "arguments.h"
#include "code_table.h"
#include "python_shim.h"

/* Where a method of the Function's class stores this attribute, found by the standard library's disassembler. False,
   with or without an exception, where it does not. */
static bool find_store(PyObject *function_class, const char *method, PyObject *name, tgd_place *out)
{
    PyObject *function = PyObject_GetAttrString(function_class, method);
    PyObject *code = function == NULL ? NULL : PyObject_GetAttrString(function, "__code__");
    PyObject *globals = code == NULL ? NULL : PyObject_GetAttrString(function, "__globals__");
    PyObject *dis = globals == NULL || !PyCode_Check(code) ? NULL : PyImport_ImportModule("dis");
    PyObject *all = dis == NULL ? NULL : PyObject_CallMethod(dis, "get_instructions", "O", code);
    PyObject *each = all == NULL ? NULL : PyObject_GetIter(all), *instruction;
    bool found = false;
    while (each != NULL && !found && (instruction = PyIter_Next(each)) != NULL) {
        PyObject *op = PyObject_GetAttrString(instruction, "opname");
        PyObject *what = PyObject_GetAttrString(instruction, "argval");
        PyObject *offset = PyObject_GetAttrString(instruction, "offset");
        found = op != NULL && what != NULL && offset != NULL && PyUnicode_Check(op) && PyUnicode_Check(what) &&
                PyUnicode_CompareWithASCIIString(op, "STORE_ATTR") == 0 && PyUnicode_Compare(what, name) == 0;
        if (found) {
            uint32_t flags;
            out->code = tgd_py_code_find((PyCodeObject *)code, globals, &flags);
            out->lasti = (int32_t)PyLong_AsLong(offset) / (int32_t)sizeof(uint16_t); /* of a code unit */
        }
        Py_XDECREF(op);
        Py_XDECREF(what);
        Py_XDECREF(offset);
        Py_DECREF(instruction);
    }
    Py_XDECREF(function);
    Py_XDECREF(code);
    Py_XDECREF(globals);
    Py_XDECREF(dis);
    Py_XDECREF(all);
    Py_XDECREF(each);
    PyErr_Clear();
    return found;
}

static tgd_place place_of_store(PyObject *ctx, PyObject *name)
{
    tgd_place place = {.code = TGD_NONE, .lasti = -1, .module = TGD_NONE};
    PyObject *function_class = PyObject_GetAttrString((PyObject *)Py_TYPE(ctx), "_forward_cls");
    if (function_class != NULL && !find_store(function_class, "forward", name, &place)) {
        (void)find_store(function_class, "setup_context", name, &place);
    }
    Py_XDECREF(function_class);
    PyErr_Clear();
    return place;
}

static int add_cycle(tgd_py_living *living, PyObject *ctx, PyObject *name, const tgd_torch_node *node)
{
    PyObject *encoded = PyUnicode_AsEncodedString(name, "utf-8", "replace");
    int failed = encoded == NULL || PyList_Append(living->kept, encoded) < 0 ||
                 tgd_py_reserve((void **)&living->cycles, &living->cycle_capacity, living->census.n_cycles,
                                sizeof *living->cycles) < 0;
    if (!failed) {
        tgd_torch_node_info info;
        tgd_torch_node_read(node, &info);
        living->cycles[living->census.n_cycles++] =
            (tgd_cycle_row){.name = PyBytes_AS_STRING(encoded), .thread = info.thread_id,
                            .sequence_nr = info.sequence_nr, .place = place_of_store(ctx, name)};
    }
    Py_XDECREF(encoded);
    return failed ? -1 : 0;
}

int tgd_py_living_add_cycles(tgd_py_living *living, PyObject *ctx)
{
    const tgd_torch_node *node = tgd_py_node_of(ctx);
    PyObject *dict = node == NULL ? NULL : tgd_py_own_dict(ctx);
    PyObject *items = dict == NULL ? NULL : PyDict_Items(dict);
    int failed = dict != NULL && items == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; items != NULL && i < PyList_GET_SIZE(items) && failed == 0; i++) {
        PyObject *key = PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 0);
        if (PyUnicode_Check(key) && tgd_py_grad_fn_of(PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 1)) == node) {
            failed = add_cycle(living, ctx, key, node);
        }
    }
    Py_XDECREF(items);
    Py_XDECREF(dict);
    return failed;
}
