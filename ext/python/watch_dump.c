/* The files of a watch: which, how many, and what is said about them. */
#include "watch.h"

#include "document.h"
#include "dump.h"
#include "note.h"
#include "paths.h"
#include "report_object.h"

#include <unistd.h>

static const char *const suffixes[] = {".txt", ".json", ".svg"}; /* the picture last: it takes longest */
enum { N_SUFFIXES = sizeof suffixes / sizeof suffixes[0], MOST_OF_A_STEP = 1000, NAME = 128 };

/* Is any of the three there already, from this run or an older one? */
static int is_taken(PyObject *stem)
{
    PyObject *path = PyImport_ImportModule("os.path");
    int taken = path == NULL ? -1 : 0;
    for (int i = 0; i < N_SUFFIXES && taken == 0; i++) {
        PyObject *name = PyUnicode_FromFormat("%U%s", stem, suffixes[i]);
        PyObject *there = name == NULL ? NULL : PyObject_CallMethod(path, "lexists", "O", name);
        taken = there == NULL ? -1 : PyObject_IsTrue(there);
        Py_XDECREF(name);
        Py_XDECREF(there);
    }
    Py_XDECREF(path);
    return taken;
}

/* The path without suffix: "tg-out/step-000123", with the rank where torch.distributed is in use, with the process
   where it is a child of the one that armed the watch, with a number where the name is taken. */
static PyObject *free_stem(const tgd_py_watch *self, uint64_t step)
{
    char name[NAME];
    long rank = tgd_py_distributed_rank(), pid = (long)getpid();
    int n = PyOS_snprintf(name, sizeof name, "step-%06llu", (unsigned long long)step);
    if (rank >= 0) {
        n += PyOS_snprintf(name + n, sizeof name - (size_t)n, "-rank%ld", rank);
    }
    if (pid != self->pid) {
        PyOS_snprintf(name + n, sizeof name - (size_t)n, "-pid%ld", pid);
    }
    PyObject *stem = PyUnicode_FromFormat("%U/%s", self->directory, name);
    for (int k = 2; stem != NULL; k++) {
        int taken = is_taken(stem);
        if (taken == 0) {
            break;
        }
        Py_SETREF(stem, taken < 0 || k > MOST_OF_A_STEP ? NULL
                                                        : PyUnicode_FromFormat("%U/%s-%d", self->directory, name, k));
    }
    if (stem == NULL && !PyErr_Occurred()) {
        PyErr_Format(PyExc_OSError, "%U/%s is taken a thousand times", self->directory, name);
    }
    return stem;
}

static int make_directory(PyObject *directory)
{
    PyObject *os = PyImport_ImportModule("os"), *made = NULL;
    PyObject *method = os == NULL ? NULL : PyObject_GetAttrString(os, "makedirs");
    PyObject *args = method == NULL ? NULL : PyTuple_Pack(1, directory);
    PyObject *keywords = args == NULL ? NULL : Py_BuildValue("{s:O}", "exist_ok", Py_True);
    if (keywords != NULL) {
        made = PyObject_Call(method, args, keywords);
    }
    Py_XDECREF(os);
    Py_XDECREF(method);
    Py_XDECREF(args);
    Py_XDECREF(keywords);
    Py_XDECREF(made);
    return made == NULL ? -1 : 0;
}

/* The path of the picture; NULL with an exception. */
static PyObject *write_files(tgd_py_watch *self, PyObject *report, uint64_t step)
{
    const tgd_py_state *state = tgd_py_state_of((PyObject *)self);
    PyObject *stem = make_directory(self->directory) < 0 ? NULL : free_stem(self, step), *name = NULL;
    for (int i = 0; i < N_SUFFIXES && stem != NULL; i++) {
        tgd_py_path path = {0};
        Py_XSETREF(name, PyUnicode_FromFormat("%U%s", stem, suffixes[i]));
        if (name == NULL || tgd_py_path_read(state, &path, "directory", name) < 0 ||
            tgd_py_path_save(state, &path, tgd_py_report_snapshot(report), NULL) < 0) {
            Py_CLEAR(stem);
        }
        tgd_py_path_clear(&path);
    }
    if (stem == NULL) {
        Py_CLEAR(name);
    }
    Py_XDECREF(stem);
    return name;
}

PyObject *tgd_py_watch_dump(tgd_py_watch *self, PyObject *report, uint64_t step)
{
    PyObject *verdict = tgd_py_str(tgd_report_verdict(tgd_py_report_snapshot(report)->report));
    if (verdict == NULL) {
        return NULL;
    }
    if (self->n_dumps >= self->max_dumps) {
        self->n_more++;
        if (!self->more_said) {
            self->more_said = true;
            PySys_FormatStderr("torchgraphdbg: step %llu: %U (not written, nor what follows: max_dumps=%zd)\n",
                               (unsigned long long)step, verdict, self->max_dumps);
        }
        Py_DECREF(verdict);
        return Py_NewRef(Py_None);
    }
    self->n_dumps++;
    PyObject *written = write_files(self, report, step);
    if (written != NULL) {
        PySys_FormatStderr("torchgraphdbg: step %llu: %U -> %U\n", (unsigned long long)step, verdict, written);
    } else {
        self->n_dumps--;
        tgd_py_complain(&self->no_files, "write the watch's dump; training goes on");
        written = Py_NewRef(Py_None);
    }
    Py_DECREF(verdict);
    return written;
}

void tgd_py_watch_say_more(tgd_py_watch *self)
{
    if (self->n_more > 0) {
        PySys_FormatStderr("torchgraphdbg: %zd more fault%s seen that %s not written to %U\n", self->n_more,
                           self->n_more == 1 ? " was" : "s were", self->n_more == 1 ? "is" : "are", self->directory);
        self->n_more = 0;
    }
}
