/*
 * A watch from the inside, shared by the watch_*.c files. All of it under the GIL; an own look (tgd_py_look) belongs
 * to one backward and so to one thread.
 */
#ifndef TGD_PY_WATCH_H
#define TGD_PY_WATCH_H

#include "watch_object.h"
#include "watch_places.h"

/* What went wrong in a step that a GradScaler may yet skip. */
typedef struct tgd_py_pending {
    PyObject *report; /* Owned, or NULL: nothing is pending */
    uint64_t step;
} tgd_py_pending;

/* The first output of a module that was not finite since the last backward. */
typedef struct tgd_py_output {
    PyObject *path, *class_name; /* Owned, path may be None; or NULL: none was */
    int64_t numel, n_nan, n_inf;
} tgd_py_output;

/* A number that is on its way from a device. */
typedef struct tgd_py_aboard {
    uint64_t tensor; /* address of the parameter whose gradient it is of; 0: of a root */
    uint32_t root;
    int64_t numel;
} tgd_py_aboard;

typedef struct tgd_py_flight {
    PyObject *host, *event; /* Owned: where it will be, and when (None: at once); or NULL */
    tgd_py_aboard *aboard;  /* Owned (PyMem) */
    size_t n, capacity;     /* under way, 0 = none; numbers that host has room for */
    uint64_t step;
    bool given_up;
} tgd_py_flight;

typedef struct tgd_py_watch {
    PyObject_HEAD
    PyObject *params;    /* Owned: as given, an iterator as a list; or None */
    PyObject *directory; /* Owned str: absolute */
    Py_ssize_t every, max_dumps;
    bool forward, on, light, full;
    bool complained, no_files; /* has warned of a failure of its own; of a file it could not write */
    bool ill;       /* the last look found values that are not finite: that is not said again */
    bool ill_fully; /* nor once more with full evidence */
    bool more_said;
    tgd_py_places places;
    uint64_t n_backwards, n_changes; /* begun; times that parameters had changed when one began */
    uint64_t versions;               /* sum over the parameters when the last one began */
    uint64_t full_since;             /* n_backwards when full recording was switched on */
    unsigned turn;                   /* of the looks at values */
    PyObject *said;                  /* Owned set of str: verdicts that were dumped */
    PyObject *said_fully;            /* Owned set of str: the same with full evidence */
    Py_ssize_t n_dumps, n_more;      /* dumps written, faults seen beyond */
    long pid;                        /* of the process that armed it */
    tgd_py_pending pending;
    tgd_py_output nan, inf;
    PyObject *scaler;        /* Owned weak reference: the GradScaler that was found last; or NULL */
    PyObject *hook;          /* Owned: the handle of the forward hook, or NULL */
    tgd_py_flight flight;
    struct tgd_py_watch *next; /* Owned reference, while it is on */
} tgd_py_watch;

/* ---- watch_object.c ---- */

/* Borrowed: the newest watch that is on, or NULL. */
tgd_py_watch *tgd_py_watch_first(void);
/* Switches it off and undoes all it did. Leaves no exception. */
void tgd_py_watch_remove(tgd_py_watch *self);
/* A failure of our own, with the exception set: one warning, and the watch steps aside; a KeyboardInterrupt comes again
   for the program. Leaves no exception. */
void tgd_py_watch_fail(tgd_py_watch *self);

/* ---- watch_look.c ---- */

/* The step the watch is in. */
uint64_t tgd_py_watch_step(const tgd_py_watch *self);
/* No watch is on any more: gives memory back. */
void tgd_py_watch_idle(void);
/* A pending report becomes an alarm where the parameters themselves are not finite now. Leaves no exception. */
void tgd_py_watch_settle(tgd_py_watch *self);

/* ---- watch_dump.c ---- */

/* Writes a report and says so in one line on stderr, unless max_dumps were written. Returns the path of the picture, or
   None where nothing was written (a file that cannot be written is one warning); NULL with an exception. */
PyObject *tgd_py_watch_dump(tgd_py_watch *self, PyObject *report, uint64_t step);
/* At the end: how many faults were seen beyond max_dumps. */
void tgd_py_watch_say_more(tgd_py_watch *self);

/* ---- watch_values.c ---- */

typedef struct tgd_py_findings {
    tgd_value *rows; /* Owned (PyMem) */
    size_t n, capacity;
    bool nan_root;
} tgd_py_findings;
void tgd_py_findings_clear(tgd_py_findings *findings);
/* 0, or -1 with MemoryError. */
int tgd_py_findings_add(tgd_py_findings *findings, tgd_value value);

/* The sum of the versions of all parameters. */
uint64_t tgd_py_watch_versions(const tgd_py_watch *self);
/* Looks at gradients; adds those that are not finite. 0, or -1 with an exception. */
int tgd_py_watch_gradients(tgd_py_watch *self, tgd_py_findings *findings);
/* The same for the roots of backward. */
int tgd_py_watch_roots(PyObject *roots, unsigned turn, tgd_py_findings *findings);
/* Adds the modules whose outputs were the first that were not finite. Strings are borrowed from the watch. */
int tgd_py_watch_outputs(tgd_py_watch *self, tgd_py_findings *findings);
void tgd_py_watch_forget_outputs(tgd_py_watch *self);
/* Are all parameters themselves finite? */
bool tgd_py_watch_params_finite(const tgd_py_watch *self);
/* The global forward hook: (module, args, output). self is the watch. */
PyObject *tgd_py_watch_on_forward(PyObject *self, PyObject *args);

/* ---- watch_device.c ---- */

/* Is it on a device that is only asked, never waited for? */
bool tgd_py_is_far(const tgd_torch_tensor_info *tensor);
/* Asks for gradients and roots that are far. Are answers under way? Leaves no exception. */
bool tgd_py_flight_launch(tgd_py_watch *self, PyObject *roots, uint64_t step);
/* 1: they came (of step flight.step), and what is not finite was added; 0: not yet, or none were; -1 with an exception.
   Roots beyond n_roots are left out. */
int tgd_py_flight_land(tgd_py_watch *self, Py_ssize_t n_roots, tgd_py_findings *findings);
void tgd_py_flight_drop(tgd_py_watch *self);
/* _watch_pretend(flag), for the tests: what is on the CPU counts as far. */
PyObject *tgd_py_watch_pretend(PyObject *module, PyObject *flag);

/* ---- watch_scaler.c ---- */

/* Is a torch.amp.GradScaler at work, which may skip a step whose gradients are not finite? *reference is a weak one to
   the scaler found last (Owned), or NULL. Leaves no exception. */
bool tgd_py_scaler_at_work(PyObject **reference);

#endif
