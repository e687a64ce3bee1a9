#include "load.h"

#include "load_measures.h"
#include "load_members.h"
#include "report_object.h"
#include <string.h>

enum { SCHEMA_VERSION = 1 };

const char tgd_py_load_doc[] =
    "load($module, /, path)\n--\n\n"
    "A report back from the .json file that it was saved to.\n\n"
    "It answers all that the report answered which was saved, and can be saved in every format. Raises OSError\n"
    "where the file cannot be read, and ValueError, which says what is wrong with it, where it is not such a\n"
    "file or a newer torchgraphdbg wrote it.";

/* What one document is put together with. */
typedef struct loader {
    tgd_py_document_reader in;
    tgd_restorer *out; /* Owned */
    tgd_error err;
} loader;

/* 0, or -1 with what the core refused as an exception. */
static int told(const loader *l, tgd_status status)
{
    return status == TGD_OK ? 0 : tgd_py_refused(&l->in, status, &l->err);
}

/* ---- words ---- */

static const char *kind_word(int i)
{
    return tgd_finding_slug((tgd_finding_kind)i);
}

static const char *severity_word(int i)
{
    return tgd_severity_slug((tgd_severity)i);
}

static const char *reason_word(int i)
{
    const char *slug = tgd_reason_slug((tgd_reason)i);
    return slug == NULL ? "" : slug;
}

static const char *node_kind_word(int i)
{
    return tgd_node_kind_slug((tgd_node_kind)i);
}

static const char *state_word(int i)
{
    return tgd_saved_state_slug((tgd_saved_state)i);
}

static int load_source(loader *l, PyObject *item)
{
    tgd_restored_source source;
    if (tgd_py_source_members(&l->in, item, &source) < 0) {
        return -1;
    }
    return told(l, tgd_restore_add_source(l->out, &source, &l->err));
}

/* ---- nodes ---- */

static int load_edge(loader *l, PyObject *item)
{
    tgd_edge edge = {.to = TGD_NONE};
    uint64_t to, input_nr;
    if (item != Py_None) {
        if (!PyList_Check(item) || PyList_GET_SIZE(item) != 2) {
            return tgd_py_wrong(&l->in, NULL, "[node, input_nr] or null", item);
        }
        if (tgd_py_item_number(&l->in, PyList_GET_ITEM(item, 0), NULL, TGD_NONE - 1, &to) < 0 ||
            tgd_py_item_number(&l->in, PyList_GET_ITEM(item, 1), NULL, UINT32_MAX, &input_nr) < 0) {
            return -1;
        }
        edge.to = (uint32_t)to;
        edge.input_nr = (uint32_t)input_nr;
    }
    return told(l, tgd_restore_edge(l->out, edge, &l->err));
}

static int load_input(loader *l, PyObject *item)
{
    tgd_restored_tensor tensor;
    return tgd_py_tensor_members(&l->in, item, true, &tensor) < 0
               ? -1
               : told(l, tgd_restore_input(l->out, &tensor, &l->err));
}

static int load_saved(loader *l, PyObject *item)
{
    tgd_restored_saved saved;
    uint64_t index, saved_version, version;
    int state;
    if (tgd_py_member_text(&l->in, item, "name", false, &saved.name) < 0 ||
        tgd_py_member_number_or(&l->in, item, "index", INT32_MAX, UINT64_MAX, &index) < 0 ||
        tgd_py_member_word(&l->in, item, "state", state_word, TGD_SAVED_UNCHECKED + 1, &state) < 0 ||
        tgd_py_tensor_members(&l->in, item, true, &saved.tensor) < 0 ||
        tgd_py_strides_member(&l->in, item, &saved.tensor) < 0 ||
        tgd_py_member_number(&l->in, item, "bytes", UINT64_MAX, &saved.bytes) < 0 ||
        tgd_py_member_identity(&l->in, item, "storage", &saved.storage) < 0 ||
        tgd_py_member_number_or(&l->in, item, "storage_bytes", UINT64_MAX, 0, &saved.storage_bytes) < 0 ||
        tgd_py_member_number(&l->in, item, "saved_version", UINT32_MAX, &saved_version) < 0 ||
        tgd_py_member_number(&l->in, item, "version", UINT32_MAX, &version) < 0 ||
        tgd_py_member_flag(&l->in, item, "is_output", &saved.is_output) < 0 ||
        tgd_py_member_flag(&l->in, item, "is_leaf", &saved.is_leaf) < 0 ||
        tgd_py_member_flag(&l->in, item, "has_hooks", &saved.has_hooks) < 0 ||
        tgd_py_member_flag(&l->in, item, "is_mark", &saved.is_mark) < 0) {
        return -1;
    }
    PyObject *contiguous = tgd_py_member(&l->in, item, "contiguous");
    if (contiguous == NULL || (contiguous != Py_None && !PyBool_Check(contiguous))) {
        return contiguous == NULL ? -1 : tgd_py_wrong(&l->in, "contiguous", "true, false or null", contiguous);
    }
    saved.index = index == UINT64_MAX ? -1 : (int64_t)index;
    saved.state = (tgd_saved_state)state;
    saved.contiguous = contiguous == Py_None ? -1 : contiguous == Py_True;
    saved.saved_version = (uint32_t)saved_version;
    saved.version = (uint32_t)version;
    return told(l, tgd_restore_saved(l->out, &saved, &l->err));
}

/* NULL for a node that is no AccumulateGrad; `room` holds it. */
static int load_leaf(loader *l, PyObject *node, tgd_restored_leaf *room, const tgd_restored_leaf **out)
{
    PyObject *leaf;
    uint64_t elements;
    *out = NULL;
    if (tgd_py_member_object(&l->in, node, "leaf", true, &leaf) < 0) {
        return -1;
    }
    if (leaf == NULL) {
        return 0;
    }
    if (tgd_py_tensor_members(&l->in, leaf, true, &room->tensor) < 0 ||
        tgd_py_member_number_or(&l->in, leaf, "elements", INT64_MAX, UINT64_MAX, &elements) < 0 ||
        tgd_py_member_identity(&l->in, leaf, "storage", &room->storage) < 0 ||
        tgd_py_member_number_or(&l->in, leaf, "storage_bytes", UINT64_MAX, 0, &room->storage_bytes) < 0) {
        return -1;
    }
    room->elements = elements == UINT64_MAX ? -1 : (int64_t)elements;
    *out = room;
    return 0;
}

static int load_hooks(loader *l, PyObject *node, uint32_t counts[4])
{
    PyObject *hooks;
    if (tgd_py_member_list(&l->in, node, "hooks", &hooks) < 0) {
        return -1;
    }
    if (PyList_GET_SIZE(hooks) != 4) {
        return tgd_py_wrong(&l->in, "hooks", "four numbers", hooks);
    }
    for (Py_ssize_t i = 0; i < 4; i++) {
        uint64_t count;
        if (tgd_py_item_number(&l->in, PyList_GET_ITEM(hooks, i), "hooks", UINT32_MAX, &count) < 0) {
            return -1;
        }
        counts[i] = (uint32_t)count;
    }
    return 0;
}

/* A list within a node. */
static int load_inner(loader *l, PyObject *node, const char *key, int (*load_item)(loader *, PyObject *))
{
    PyObject *items;
    if (tgd_py_member_list(&l->in, node, key, &items) < 0) {
        return -1;
    }
    int result = 0;
    l->in.inner = key;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items) && result == 0; i++) {
        l->in.inner_index = i;
        result = load_item(l, PyList_GET_ITEM(items, i));
    }
    l->in.inner = NULL;
    return result;
}

static int load_node(loader *l, PyObject *item)
{
    tgd_restored_node node;
    tgd_restored_leaf leaf;
    tgd_restored_source where;
    int kind;
    if (tgd_py_member_text(&l->in, item, "name", false, &node.name) < 0 ||
        tgd_py_member_word(&l->in, item, "kind", node_kind_word, TGD_NODE_OTHER + 1, &kind) < 0 ||
        tgd_py_member_text(&l->in, item, "inner", true, &node.inner) < 0 ||
        tgd_py_member_number_or(&l->in, item, "sequence_nr", UINT64_MAX, UINT64_MAX, &node.sequence_nr) < 0 ||
        tgd_py_member_number(&l->in, item, "thread", UINT64_MAX, &node.thread) < 0 ||
        tgd_py_member_index(&l->in, item, "order", &node.order) < 0 ||
        tgd_py_member_source(&l->in, item, "where", &where, &node.where) < 0 ||
        tgd_py_member_index(&l->in, item, "made_by", &node.made_by) < 0 ||
        tgd_py_member_flag(&l->in, item, "requires_grad", &node.requires_grad) < 0 ||
        tgd_py_member_flag(&l->in, item, "unchecked", &node.unchecked) < 0 || load_hooks(l, item, node.hooks) < 0 ||
        load_leaf(l, item, &leaf, &node.leaf) < 0) {
        return -1;
    }
    node.kind = (tgd_node_kind)kind;
    return told(l, tgd_restore_node(l->out, &node, &l->err)) < 0 || load_inner(l, item, "edges", load_edge) < 0 ||
                   load_inner(l, item, "inputs", load_input) < 0 || load_inner(l, item, "saved", load_saved) < 0
               ? -1
               : 0;
}

/* ---- what is beside them ---- */

static int load_root(loader *l, PyObject *item)
{
    tgd_restored_tensor tensor;
    uint32_t node;
    uint64_t output_nr;
    if (tgd_py_member_index(&l->in, item, "node", &node) < 0 ||
        tgd_py_member_number(&l->in, item, "output_nr", UINT32_MAX, &output_nr) < 0 ||
        tgd_py_tensor_members(&l->in, item, false, &tensor) < 0 ||
        tgd_py_member_text(&l->in, item, "dtype", true, &tensor.dtype) < 0) {
        return -1;
    }
    return told(l, tgd_restore_root(l->out, node, (uint32_t)output_nr, &tensor, &l->err));
}

static int load_parameter(loader *l, PyObject *item)
{
    tgd_restored_tensor tensor;
    const char *name;
    bool requires_grad, reached;
    uint32_t node;
    if (tgd_py_member_text(&l->in, item, "name", false, &name) < 0 ||
        tgd_py_tensor_members(&l->in, item, false, &tensor) < 0 ||
        tgd_py_member_flag(&l->in, item, "requires_grad", &requires_grad) < 0 ||
        tgd_py_member_flag(&l->in, item, "reached", &reached) < 0 ||
        tgd_py_member_index(&l->in, item, "node", &node) < 0) {
        return -1;
    }
    return told(l, tgd_restore_parameter(l->out, name, &tensor, requires_grad, reached, node, &l->err));
}

static int load_finding(loader *l, PyObject *item)
{
    tgd_restored_finding finding;
    tgd_restored_source where;
    const char *reason;
    uint64_t group;
    int kind, severity, why = TGD_REASON_NONE;
    if (tgd_py_member_word(&l->in, item, "kind", kind_word, TGD_N_FINDING_KINDS, &kind) < 0 ||
        tgd_py_member_word(&l->in, item, "severity", severity_word, TGD_NOTE + 1, &severity) < 0 ||
        tgd_py_member_text(&l->in, item, "message", true, &finding.message) < 0 ||
        tgd_py_member_text(&l->in, item, "hint", true, &finding.hint) < 0 ||
        tgd_py_member_index(&l->in, item, "node", &finding.node) < 0 ||
        tgd_py_member_index(&l->in, item, "saved_place", &finding.saved) < 0 ||
        tgd_py_member_text(&l->in, item, "parameter", true, &finding.parameter) < 0 ||
        tgd_py_member_text(&l->in, item, "reason", true, &reason) < 0 ||
        tgd_py_member_index(&l->in, item, "root", &finding.root) < 0 ||
        tgd_py_member_number(&l->in, item, "group", TGD_NONE - 1, &group) < 0 ||
        tgd_py_member_text(&l->in, item, "op", true, &finding.op) < 0 ||
        tgd_py_member_source(&l->in, item, "where", &where, &finding.where) < 0 ||
        tgd_py_member_flag(&l->in, item, "culprit", &finding.culprit) < 0 ||
        tgd_py_member_flag(&l->in, item, "unsure", &finding.unsure) < 0 ||
        (reason != NULL && tgd_py_member_word(&l->in, item, "reason", reason_word, TGD_N_REASONS, &why) < 0)) {
        return -1;
    }
    finding.message = finding.message == NULL ? "" : finding.message;
    finding.kind = (tgd_finding_kind)kind;
    finding.severity = (tgd_severity)severity;
    finding.reason = (tgd_reason)why;
    finding.group = (uint32_t)group;
    return told(l, tgd_restore_finding(l->out, &finding, &l->err));
}

static int load_list(loader *l, PyObject *document, const char *key, int (*load_item)(loader *, PyObject *))
{
    PyObject *items;
    if (tgd_py_member_list(&l->in, document, key, &items) < 0) {
        return -1;
    }
    int result = 0;
    l->in.list = key;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items) && result == 0; i++) {
        l->in.index = i;
        result = load_item(l, PyList_GET_ITEM(items, i));
    }
    l->in.list = NULL;
    return result;
}

/* Is it one of ours, and one that we can read? */
static int check_schema(loader *l, PyObject *document)
{
    PyObject *schema = PyDict_Check(document) ? PyDict_GetItemString(document, "schema") : NULL;
    uint64_t version;
    if (schema == NULL || !PyUnicode_Check(schema) || PyUnicode_CompareWithASCIIString(schema, "torchgraphdbg/report") != 0) {
        PyErr_Format(PyExc_ValueError, "%R is not a report: expected JSON that torchgraphdbg saved, with \"schema\": "
                                       "\"torchgraphdbg/report\"", l->in.file);
        return -1;
    }
    if (tgd_py_member_number(&l->in, document, "schema_version", UINT32_MAX, &version) < 0) {
        return -1;
    }
    if (version != SCHEMA_VERSION) {
        PyErr_Format(PyExc_ValueError, "%R was written by a newer torchgraphdbg: it has schema version %llu, and this one "
                                       "reads %d", l->in.file, (unsigned long long)version, SCHEMA_VERSION);
        return -1;
    }
    return 0;
}

static int load_document(loader *l, PyObject *document, tgd_report **out)
{
    tgd_restored_head head;
    PyObject *summary, *asked;
    uint64_t depth, first_error;
    if (check_schema(l, document) < 0 || tgd_py_member_text(&l->in, document, "verdict", false, &head.verdict) < 0 ||
        tgd_py_member_text(&l->in, document, "torch", false, &head.torch) < 0 ||
        tgd_py_member_text(&l->in, document, "raised", true, &head.raised) < 0 ||
        tgd_py_member_text(&l->in, document, "occasion", true, &head.occasion) < 0 ||
        tgd_py_member_flag(&l->in, document, "recorded", &head.recorded) < 0 ||
        tgd_py_member_flag(&l->in, document, "roots_refused", &head.roots_refused) < 0 ||
        tgd_py_member_object(&l->in, document, "asked", false, &asked) < 0 ||
        tgd_py_member_flag(&l->in, asked, "params", &head.has_parameters) < 0 ||
        tgd_py_member_flag(&l->in, asked, "inputs", &head.has_inputs) < 0 ||
        tgd_py_member_flag(&l->in, asked, "create_graph", &head.create_graph) < 0 ||
        tgd_py_member_object(&l->in, document, "summary", false, &summary) < 0 ||
        tgd_py_member_number(&l->in, summary, "depth", TGD_NONE - 1, &depth) < 0 ||
        tgd_py_member_number(&l->in, summary, "executed_to_error", TGD_NONE - 1, &first_error) < 0 ||
        tgd_py_member_number(&l->in, summary, "snapshot_bytes", UINT64_MAX, &head.snapshot_bytes) < 0 ||
        load_list(l, document, "sources", load_source) < 0 || load_list(l, document, "nodes", load_node) < 0 || load_list(l, document, "roots", load_root) < 0 ||
        load_list(l, document, "parameters", load_parameter) < 0 ||
        load_list(l, document, "findings", load_finding) < 0 || tgd_py_load_measures(&l->in, document, l->out) < 0) {
        return -1;
    }
    head.depth = (uint32_t)depth;
    head.first_error = (uint32_t)first_error;
    return told(l, tgd_restore_end(l->out, &head, out, &l->err));
}

/* ---- the file ---- */

/* io.open(path, "rb").read(), a new reference. */
static PyObject *read_file(PyObject *path)
{
    PyObject *io = PyImport_ImportModule("io");
    PyObject *file = io == NULL ? NULL : PyObject_CallMethod(io, "open", "Os", path, "rb");
    PyObject *bytes = file == NULL ? NULL : PyObject_CallMethod(file, "read", NULL);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *closed = file == NULL ? NULL : PyObject_CallMethod(file, "close", NULL);
    if (type != NULL) {
        PyErr_Clear();
        PyErr_Restore(type, value, traceback);
    } else if (file != NULL && closed == NULL) {
        Py_CLEAR(bytes);
    }
    Py_XDECREF(io);
    Py_XDECREF(file);
    Py_XDECREF(closed);
    return bytes;
}

/* The document; a new reference. */
static PyObject *parse(PyObject *bytes, PyObject *file)
{
    PyObject *json = PyImport_ImportModule("json");
    PyObject *document = json == NULL ? NULL : PyObject_CallMethod(json, "loads", "O", bytes);
    Py_XDECREF(json);
    if (document == NULL && (PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_RecursionError))) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        PyErr_Format(PyExc_ValueError, "%R is not JSON: %S", file, value == NULL ? Py_None : value);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    }
    return document;
}

PyObject *tgd_py_load(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"path", NULL};
    PyObject *path, *file = NULL, *bytes = NULL, *document = NULL, *result = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O:load", names, &path)) {
        return NULL;
    }
    if (!PyUnicode_FSDecoder(path, &file)) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Format(PyExc_TypeError, "path: expected a str, bytes or os.PathLike, got %.200s",
                         Py_TYPE(path)->tp_name);
        }
        return NULL;
    }
    loader l = {.in = {.state = PyModule_GetState(module), .file = file}, .out = tgd_restore_new()};
    if (l.out == NULL) {
        PyErr_NoMemory();
    } else if ((bytes = read_file(file)) != NULL && (document = parse(bytes, file)) != NULL) {
        tgd_report *report = NULL;
        if (load_document(&l, document, &report) == 0) {
            result = tgd_py_report_wrap(l.in.state, report);
        }
    }
    tgd_restore_free(l.out);
    PyMem_Free(l.in.sizes);
    PyMem_Free(l.in.strides);
    Py_XDECREF(bytes);
    Py_XDECREF(document);
    Py_DECREF(file);
    return result;
}
