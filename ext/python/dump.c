#include "dump.h"

#include "document.h"
#include "paths.h"
#include "recorder_object.h"
#include "report.h"
#include "report_object.h"
#include "view.h"

#include <stdlib.h>
#include <string.h>

const char tgd_py_dump_doc[] =
    "dump($module, root, path='torchgraphdbg.svg', *, params=None,\n"
    "     inputs=None, create_graph=False, file=None, quiet=False,\n"
    "     redact=False, detail='auto', focus=None)\n--\n\n"
    "Inspect a graph, print the report, save it to a file, and return it.\n\n"
    "The arguments of inspect(), and:\n\n"
    "path    where to save it; the suffix picks the format: .svg, .html, .json, .gv or .txt. A str, bytes or\n"
    "        os.PathLike, a list of them, or None for no file. Where torch.distributed is initialised\n"
    "        the default name carries the rank: torchgraphdbg.rank3.svg.\n"
    "file    where to print the report; sys.stderr by default.\n"
    "quiet   print nothing.\n"
    "redact  save and print it as Report.save(redact=True) does: of paths only file names are left. The\n"
    "        report that is returned is whole.\n"
    "detail  how many boxes a picture has: 'auto' (as many as can be read), 'all' (up to 64 ops) or a number.\n"
    "focus   path of a module that a picture must show; Report.save() also takes a Node or a Finding.\n\n"
    "Never runs backward and never touches .grad. On a broken graph it succeeds; what is wrong is in the\n"
    "report. Raises OSError where a file cannot be written, after the report has been printed.";

/* ---- where to save ---- */

typedef struct targets {
    tgd_py_path *paths; /* Owned */
    size_t n, capacity;
} targets;

static int add_target(const tgd_py_state *state, targets *to, PyObject *path)
{
    if (tgd_py_reserve((void **)&to->paths, &to->capacity, to->n, sizeof *to->paths) < 0 ||
        tgd_py_path_read(state, &to->paths[to->n], "path", path) < 0) {
        return -1;
    }
    to->n++;
    return 0;
}

static void clear_targets(targets *to)
{
    for (size_t i = 0; i < to->n; i++) {
        tgd_py_path_clear(&to->paths[i]);
    }
    PyMem_Free(to->paths);
}

long tgd_py_distributed_rank(void)
{
    PyObject *name = PyUnicode_FromString("torch.distributed");
    PyObject *distributed = name == NULL ? NULL : PyImport_GetModule(name);
    PyObject *answer = NULL;
    long rank = -1;
    Py_XDECREF(name);
    const char *const questions[] = {"is_available", "is_initialized"};
    int initialised = distributed != NULL;
    for (size_t k = 0; initialised == 1 && k < sizeof questions / sizeof questions[0]; k++) {
        answer = PyObject_CallMethod(distributed, questions[k], NULL);
        initialised = answer == NULL ? 0 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
    }
    if (initialised == 1) {
        answer = PyObject_CallMethod(distributed, "get_rank", NULL);
        rank = answer == NULL ? -1 : PyLong_AsLong(answer);
        Py_XDECREF(answer);
    }
    Py_XDECREF(distributed);
    PyErr_Clear(); /* a name without the rank is better than no report */
    return rank;
}

/* path is NULL where the user gave none. */
static int read_targets(const tgd_py_state *state, targets *to, PyObject *path)
{
    if (path == NULL) {
        long rank = tgd_py_distributed_rank();
        PyObject *name = rank < 0 ? PyUnicode_FromString("torchgraphdbg.svg")
                                  : PyUnicode_FromFormat("torchgraphdbg.rank%ld.svg", rank);
        int result = name == NULL ? -1 : add_target(state, to, name);
        Py_XDECREF(name);
        return result;
    }
    if (path == Py_None) {
        return 0;
    }
    if (!PyList_Check(path) && !PyTuple_Check(path)) {
        return add_target(state, to, path);
    }
    for (Py_ssize_t i = 0; i < PySequence_Size(path); i++) {
        PyObject *item = PySequence_GetItem(path, i);
        int result = item == NULL ? -1 : add_target(state, to, item);
        Py_XDECREF(item);
        if (result < 0) {
            return -1;
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- where to print ---- */

typedef struct printer {
    PyObject *file;    /* Owned, NULL: print nothing */
    int is_default;    /* nobody chose it, so failing to print is no reason to fail */
} printer;

static int open_printer(printer *to, PyObject *file, int quiet)
{
    if (file != Py_None) {
        PyObject *write = PyObject_GetAttrString(file, "write");
        int callable = write != NULL && PyCallable_Check(write);
        Py_XDECREF(write);
        if (!callable) {
            if (write == NULL && !PyErr_ExceptionMatches(PyExc_AttributeError)) {
                return -1;
            }
            PyErr_Format(PyExc_TypeError, "file: expected an object with a write method, got %.200s",
                         Py_TYPE(file)->tp_name);
            return -1;
        }
        to->file = quiet ? NULL : Py_NewRef(file);
        return 0;
    }
    to->is_default = 1;
    return 0;
}

/* text.encode(encoding, "backslashreplace").decode(encoding), for a stream that cannot show every character. */
static PyObject *within_encoding(PyObject *file, PyObject *text)
{
    PyObject *encoding = PyObject_GetAttrString(file, "encoding");
    const char *name = encoding != NULL && PyUnicode_Check(encoding) ? PyUnicode_AsUTF8(encoding) : NULL;
    if (name == NULL) {
        PyErr_Clear();
        name = "ascii";
    }
    PyObject *encoded = PyUnicode_AsEncodedString(text, name, "backslashreplace");
    PyObject *result = encoded == NULL ? NULL : PyUnicode_Decode(PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded),
                                                                 name, "replace");
    Py_XDECREF(encoded);
    Py_XDECREF(encoding);
    return result;
}

static int write_text(PyObject *file, PyObject *text)
{
    PyObject *written = PyObject_CallMethod(file, "write", "O", text);
    if (written == NULL && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        PyErr_Clear();
        PyObject *shown = within_encoding(file, text);
        written = shown == NULL ? NULL : PyObject_CallMethod(file, "write", "O", shown);
        Py_XDECREF(shown);
    }
    Py_XDECREF(written);
    return written == NULL ? -1 : 0;
}

static int print_text(const printer *to, PyObject *text)
{
    if (to->file == NULL || write_text(to->file, text) == 0) {
        return 0;
    }
    /* A closed or broken sys.stderr: nobody can be told, and the file matters more. */
    if (to->is_default && (PyErr_ExceptionMatches(PyExc_OSError) || PyErr_ExceptionMatches(PyExc_ValueError))) {
        PyErr_Clear();
        return 0;
    }
    return -1;
}

/* A terminal, and nothing in the environment that says no (https://no-color.org). No exception is left. */
static bool wants_colour(PyObject *file)
{
    const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if ((no != NULL && no[0] != '\0') || terminal == NULL || strcmp(terminal, "dumb") == 0) {
        return false;
    }
    PyObject *answer = PyObject_CallMethod(file, "isatty", NULL);
    int yes = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    PyErr_Clear();
    return yes == 1;
}

/* New reference, or NULL with an exception set. */
static PyObject *coloured(const tgd_py_snapshot *snapshot, PyObject *text)
{
    const char *plain = PyUnicode_AsUTF8(text);
    if (plain == NULL) {
        return NULL;
    }
    tgd_text out;
    tgd_text_init(&out, NULL, NULL);
    tgd_text_colour(&out, snapshot->report, plain);
    PyObject *result = out.status == TGD_OK ? PyUnicode_DecodeUTF8(out.bytes, (Py_ssize_t)out.n, NULL) : PyErr_NoMemory();
    tgd_text_drop(&out);
    return result;
}

static int print_report(const tgd_py_state *state, const printer *to, const tgd_py_snapshot *snapshot)
{
    if (to->file == NULL) {
        return 0;
    }
    PyObject *text = tgd_py_document_str(state, snapshot, TGD_FORMAT_TEXT);
    if (text != NULL && wants_colour(to->file)) {
        Py_SETREF(text, coloured(snapshot, text));
    }
    int result = text == NULL ? -1 : print_text(to, text);
    Py_XDECREF(text);
    return result;
}

static int print_saved(const printer *to, const tgd_py_path *path, int redact)
{
    PyObject *shown = to->file == NULL ? NULL : tgd_py_path_shown(path);
    if (redact && shown != NULL) {
        Py_ssize_t n = PyUnicode_GET_LENGTH(shown), slash = PyUnicode_FindChar(shown, '/', 0, n, -1);
        Py_SETREF(shown, PyUnicode_Substring(shown, slash + 1, n));
    }
    PyObject *line = shown == NULL ? NULL : PyUnicode_FromFormat("saved to %U\n", shown);
    int result = line != NULL ? print_text(to, line) : to->file == NULL ? 0 : -1;
    Py_XDECREF(shown);
    Py_XDECREF(line);
    return result;
}

/* ---- the function ---- */

PyObject *tgd_py_dump(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"root", "path", "params", "inputs", "create_graph", "file", "quiet", "redact",
                            "detail", "focus", NULL};
    PyObject *detail = NULL, *focus = NULL;
    tgd_view view;
    PyObject *root, *path = NULL, *params = Py_None, *inputs = Py_None, *file = Py_None;
    int create_graph = 0, quiet = 0, redact = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O$OOpOppOO:dump", names, &root, &path, &params, &inputs,
                                     &create_graph, &file, &quiet, &redact, &detail, &focus)) {
        return NULL;
    }
    const tgd_py_state *state = PyModule_GetState(module);
    targets to = {0};
    printer out = {0};
    tgd_py_arguments arguments = {0};
    PyObject *report = NULL;
    int failed = tgd_py_view_read(state, &view, detail, focus, NULL) < 0 ||
                 read_targets(state, &to, path) < 0 || open_printer(&out, file, quiet) < 0 ||
                 tgd_py_arguments_read(&arguments, root, params, inputs, create_graph) < 0 ||
                 (tgd_py_recording() && tgd_py_arguments_look_around(&arguments) < 0);
    if (!failed) {
        report = tgd_py_report_new(state, &arguments.request, TGD_PY_BY_A_PERSON);
    }
    tgd_py_arguments_clear(&arguments);
    failed = report == NULL;
    tgd_py_snapshot redacted = {.report = NULL};
    if (!failed && redact && tgd_py_snapshot_redact(&redacted, state, tgd_py_report_snapshot(report)) < 0) {
        Py_CLEAR(report);
        failed = 1;
    }
    const tgd_py_snapshot *snapshot = failed ? NULL : redact ? &redacted : tgd_py_report_snapshot(report);
    if (!failed && out.is_default && !quiet) {
        PyObject *error_stream = PySys_GetObject("stderr"); /* borrowed */
        out.file = error_stream == NULL || error_stream == Py_None ? NULL : Py_NewRef(error_stream);
    }
    /* The files first: whatever becomes of the printing, they are on disk. What fails first is what is raised. */
    size_t n_saved = 0;
    while (!failed && n_saved < to.n) {
        failed = tgd_py_path_save(state, &to.paths[n_saved], snapshot, &view) < 0;
        n_saved += !failed;
    }
    if (report != NULL) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        int printed = print_report(state, &out, snapshot);
        for (size_t i = 0; printed == 0 && i < n_saved; i++) {
            printed = print_saved(&out, &to.paths[i], redact);
        }
        if (type != NULL) {
            PyErr_Clear();
            PyErr_Restore(type, value, traceback);
        }
        failed = failed || printed < 0;
    }
    tgd_report_free(redacted.report);
    clear_targets(&to);
    Py_XDECREF(out.file);
    if (failed) {
        Py_CLEAR(report);
    }
    return report;
}
