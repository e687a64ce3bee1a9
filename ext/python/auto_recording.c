#include "auto_recording.h"

#include "attempt.h"
#include "raise.h"
#include "report_object.h"

/* Under the GIL, for the process. */
static bool on;
static PyObject *owner;   /* Owned while it is on: the module that switched it on */
static PyObject *refused; /* Owned: the report on the newest in-place op that PyTorch refused meanwhile; or NULL */

bool tgd_py_auto_recording(void)
{
    return on;
}

const char tgd_py_auto_start_doc[] =
    "auto_start($module, /)\n--\n\n"
    "Start the light recording of this process, unless it is on. torchgraphdbg.auto is the way to it.";

PyObject *tgd_py_auto_start(PyObject *module, PyObject *args)
{
    (void)args;
    if (on) {
        Py_RETURN_NONE;
    }
    if (tgd_py_patches_watch(tgd_py_attempt_watcher()) < 0) {
        return NULL;
    }
    const tgd_observer *observer = tgd_py_attempt_observer();
    tgd_error err = {.status = TGD_OK};
    tgd_status status;
    owner = Py_NewRef(module);
    on = true; /* at once: another thread may ask for the same while this one waits for the GIL */
    Py_BEGIN_ALLOW_THREADS
    status = tgd_observe_start_light(observer, &err);
    Py_END_ALLOW_THREADS
    if (status != TGD_OK) {
        on = false;
        Py_CLEAR(owner);
        tgd_py_patches_unwatch();
        return tgd_py_raise(PyModule_GetState(module), status, &err, NULL);
    }
    Py_RETURN_NONE;
}

const char tgd_py_auto_stop_doc[] = "auto_stop($module, /)\n--\n\n"
                                    "Stop what auto_start() started, if it is on.";

PyObject *tgd_py_auto_stop(PyObject *module, PyObject *args)
{
    (void)module;
    (void)args;
    if (on) {
        on = false;
        Py_BEGIN_ALLOW_THREADS
        tgd_observe_stop_light();
        Py_END_ALLOW_THREADS
        tgd_py_patches_unwatch();
        Py_CLEAR(owner);
        Py_CLEAR(refused);
    }
    Py_RETURN_NONE;
}

void tgd_py_auto_note_refusal(const tgd_root *root, const tgd_refusal *refusal)
{
    if (!on) {
        return;
    }
    const tgd_request request = {.roots = root, .n_roots = 1, .refusal = refusal};
    PyObject *report = tgd_py_report_new(PyModule_GetState(owner), &request, TGD_PY_BY_A_STEP);
    PyErr_Clear(); /* PyTorch's own exception is on its way, and says the same in fewer words */
    Py_XSETREF(refused, report);
}

const char tgd_py_auto_refused_doc[] =
    "auto_refused($module, /)\n--\n\n"
    "The report on the newest in-place operation that PyTorch refused since auto_start(), or None.";

PyObject *tgd_py_auto_refused(PyObject *module, PyObject *args)
{
    (void)module;
    (void)args;
    return Py_NewRef(refused == NULL ? Py_None : refused);
}
