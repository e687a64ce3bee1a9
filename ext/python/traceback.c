#include "traceback.h"

#include "code_table.h"
#include "python_shim.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_FRAMES = 64 };

/* Of one node, until the next is asked about on this thread. */
static _Thread_local struct {
    tgd_source frames[MOST_FRAMES];
    char text[MOST_FRAMES][2][512]; /* file and function of each */
} found;

/* Copies up to `end`; false where it does not fit. */
static bool take(char (*to)[512], const char *from, const char *end)
{
    size_t n = (size_t)(end - from);
    if (n >= sizeof *to) {
        return false;
    }
    memcpy(*to, from, n);
    (*to)[n] = '\0';
    return true;
}

/* One entry of traceback.format_stack(): "  File \"net.py\", line 3, in forward\n    return x\n". */
static bool parse(const char *entry, char (*file)[512], int *line, char (*function)[512])
{
    static const char before[] = "  File \"", between[] = "\", line ", last[] = ", in ";
    if (strncmp(entry, before, sizeof before - 1) != 0) {
        return false;
    }
    const char *path = entry + sizeof before - 1, *quote = strstr(path, between);
    if (quote == NULL || !take(file, path, quote)) {
        return false;
    }
    char *rest;
    long number = strtol(quote + sizeof between - 1, &rest, 10);
    if (number <= 0 || number > INT_MAX || strncmp(rest, last, sizeof last - 1) != 0) {
        return false;
    }
    *line = (int)number;
    const char *name = rest + sizeof last - 1;
    return take(function, name, name + strcspn(name, "\n"));
}

static void read_frames(PyObject *entries, tgd_trace *out)
{
    bool met_engine = false;
    for (Py_ssize_t i = PyList_GET_SIZE(entries); i-- > 0 && out->n < MOST_FRAMES;) {
        PyObject *entry = PyList_GET_ITEM(entries, i);
        const char *text = PyUnicode_Check(entry) ? PyUnicode_AsUTF8(entry) : NULL;
        tgd_source *frame = &found.frames[out->n];
        char(*words)[512] = found.text[out->n];
        int line;
        if (text == NULL || !parse(text, &words[0], &line, &words[1])) {
            PyErr_Clear();
            continue;
        }
        if (tgd_py_is_library_file(words[0], words[1])) {
            met_engine = met_engine || strcmp(words[1], "_engine_run_backward") == 0;
            continue;
        }
        *frame = (tgd_source){.file = words[0], .function = words[1], .module = "", .module_class = "", .line = line};
        out->only_calls = out->n++ == 0 ? met_engine : out->only_calls;
    }
}

int tgd_py_trace(const tgd_torch_node *node, tgd_trace *out)
{
    PyObject *metadata = tgd_torch_node_metadata(node);
    if (metadata == NULL || !PyDict_CheckExact(metadata)) {
        return 0;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *entries = PyDict_GetItemString(metadata, "traceback_"), *parent = PyDict_GetItemString(metadata, "parent_");
    const tgd_torch_tensor *tensor;
    *out = (tgd_trace){.frames = found.frames};
    if (parent != NULL) {
        tgd_torch_object(parent, &tensor, &out->made_by);
    }
    if (entries != NULL && PyList_CheckExact(entries)) {
        read_frames(entries, out);
    }
    PyErr_Restore(type, value, traceback);
    out->only_calls = out->only_calls || out->n == 0;
    return out->n > 0 || out->made_by != NULL;
}
