/*
 * The only place where torch is changed, and only while somebody watches:
 *
 *   torch._C._set_grad_enabled              the C function behind the builtin
 *   torch._C._InferenceMode.__enter__, __exit__ the C functions behind the methods
 *   torch._C._ImperativeEngine.run_backward the C function behind the method
 *   torch._C.StorageBase.resize_            the C function behind the method
 *   torch._C.TensorBase.data                the C function that sets the attribute
 *   torch.autograd._make_grads              the name in the module
 *
 * In all but the last only the pointer to the C function changes: the objects, their names, signatures and whoever holds
 * or compares them stay as they are, and no frame is added to a traceback. Each calls the real thing with the same
 * arguments and hands on its result or its exception untouched.
 */
#ifndef TGD_PY_PATCHES_H
#define TGD_PY_PATCHES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Called with the GIL held and no exception set; must leave none. */
typedef struct tgd_py_watcher {
    /* Grad mode was set on this thread. */
    void (*grad_mode)(int enabled);
    /* A block of inference_mode (on or off) began on this thread, or ended. */
    void (*inference)(int began);
    /* This storage (an UntypedStorage) is about to be resized. Borrowed. */
    void (*resizing)(PyObject *storage);
    /* This tensor's .data was set. Borrowed. */
    void (*swapped)(PyObject *tensor);
    /* run_backward(*args, **keywords) is about to run. What it returns is handed to `ended`. */
    void *(*backward)(PyObject *args, PyObject *keywords);
    /* It is over; exception is what it raised, or NULL. Borrowed. */
    void (*ended)(void *token, PyObject *exception);
    /* _make_grads(*args, **keywords) raised this: backward does not begin. */
    void (*refused)(PyObject *args, PyObject *keywords, PyObject *exception);
} tgd_py_watcher;

/* GIL held. Counted: every watch is undone by one unwatch. The watcher is borrowed for ever; there is one.
   0, or -1 with an exception and nothing changed. */
int tgd_py_patches_watch(const tgd_py_watcher *watcher);
void tgd_py_patches_unwatch(void);

#endif
