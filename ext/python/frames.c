#include "interpreter_frame.h"

#include "frames.h"

#include "code_table.h"
#include "module_table.h"
#include "stack_table.h"
#include "returns.h"
#include <string.h>

enum { MOST_FRAMES = 200, MOST_OUTER = 16 };

static const tgd_place nowhere = {.code = TGD_NONE, .lasti = -1, .module = TGD_NONE};

/* A frame of the calling thread, from the innermost one outwards. */
typedef struct walk {
    const tgd_py_frame *frame;
    PyCodeObject *code;
    uint32_t index, flags; /* of the code; TGD_NONE and TGD_CODE_LIBRARY where the table is full */
    int n;
} walk;

/* The next frame that runs code; false at the end. Inlined, it costs 5 ns instead of 7. */
__attribute__((always_inline)) static inline bool step(walk *w)
{
    for (; w->n < MOST_FRAMES; w->n++) {
        if (w->n == 0) {
            /* Not the current thread state: that is another thread's while this one does without the GIL. */
            const PyThreadState *thread = PyGILState_GetThisThreadState();
            w->frame = thread == NULL ? NULL : tgd_py_frame_innermost(thread);
        } else {
            w->frame = tgd_py_frame_outer(w->frame);
        }
        if (w->frame == NULL) {
            return false;
        }
        w->code = tgd_py_frame_code(w->frame);
        if (w->code != NULL) {
            w->flags = TGD_CODE_LIBRARY;
            w->index = tgd_py_code_find(w->code, tgd_py_frame_globals(w->frame), &w->flags);
            w->n++;
            return true;
        }
    }
    return false;
}

static void set_place(tgd_place *place, const walk *w)
{
    place->code = w->index;
    place->lasti = tgd_py_frame_lasti(w->frame);
}

/* ---- modules ---- */

/* The module whose __call__ this frame is. Borrowed from the frame. */
static PyObject *module_of(const walk *w)
{
    PyObject *self = tgd_py_frame_first_local(w->frame);
    if (self != NULL && Py_IS_TYPE(self, &PyCell_Type)) {
        self = ((PyCellObject *)self)->ob_ref;
    }
    return self;
}

/* Adds the module of a frame that was not met before, and first those whose forward called it. */
static uint32_t add_module(walk w)
{
    PyObject *modules[MOST_OUTER] = {module_of(&w)};
    size_t n = 1;
    while (n < MOST_OUTER && step(&w)) {
        PyObject *outer = (w.flags & TGD_CODE_MODULE_CALL) ? module_of(&w) : NULL;
        if (outer != NULL && outer != modules[n - 1]) {
            modules[n++] = outer;
        }
    }
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    uint32_t index = TGD_NONE;
    for (size_t k = n; k-- > 0;) {
        index = tgd_py_module_find(modules[k]);
        if (index == TGD_NONE) {
            index = tgd_py_module_add(modules[k], modules + k + 1, n - k - 1);
        }
    }
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(gil);
    return index;
}

static uint32_t module_index(const walk *w)
{
    const PyObject *module = module_of(w);
    if (module == NULL) {
        return TGD_NONE;
    }
    uint32_t index = tgd_py_module_find(module);
    if (index == TGD_NONE && tgd_py_module_table_has_room() && tgd_py_may_lock()) {
        index = add_module(*w);
    }
    return index;
}

/* ---- callers ---- */

/* Frames of the user's, innermost first. */
typedef struct callers {
    tgd_py_caller frames[TGD_PY_MOST_CALLERS];
    size_t n;
} callers;

static inline void add_caller(callers *c, const walk *w)
{
    if (c->n < TGD_PY_MOST_CALLERS) {
        c->frames[c->n++] = (tgd_py_caller){.code = w->index, .lasti = tgd_py_frame_lasti(w->frame)};
    }
}

/* The frames outside this one. */
static uint32_t stack_around(walk w)
{
    callers around;
    around.n = 0;
    while (step(&w)) {
        if (!(w.flags & TGD_CODE_LIBRARY)) {
            add_caller(&around, &w);
        }
    }
    return tgd_py_stack_find(around.frames, around.n);
}

/* ---- the reader ---- */

/* What a frame says of those that it called. */
static uint32_t via_of(uint32_t flags, bool met_user)
{
    uint32_t via = flags & TGD_CODE_CHECKPOINT ? TGD_VIA_CHECKPOINT : 0;
    via |= flags & TGD_CODE_TRACING ? TGD_VIA_COMPILE : 0;
    if (!met_user) {
        via |= flags & TGD_CODE_DECORATOR ? TGD_VIA_DECORATOR : 0;
        via |= flags & TGD_CODE_PARAMETER ? TGD_VIA_PARAMETER : 0;
        via |= flags & TGD_CODE_OPTIMIZER ? TGD_VIA_OPTIMIZER : 0;
        via |= flags & TGD_CODE_DDP_INIT ? TGD_VIA_DDP_INIT : 0;
        via |= flags & TGD_CODE_RESTORE ? TGD_VIA_RESTORE : 0;
        via |= flags & TGD_CODE_CHECKPOINT ? TGD_VIA_BY_CHECKPOINT : 0;
    }
    return via;
}

/* In a region of torch.compile's the frames within it, and the one that calls it, have no lines of the user's: the line
   is that of whoever called the compiled function. */
static bool is_users(const walk *w, uint32_t *inside)
{
    if (w->flags & TGD_CODE_LIBRARY) {
        *inside |= w->flags & TGD_CODE_IN_REGION;
        return false;
    }
    *inside |= w->flags & TGD_CODE_REGIONS;
    return *inside != (TGD_CODE_IN_REGION | TGD_CODE_REGIONS) || !(w->flags & TGD_CODE_REGIONS);
}

static void read_here(tgd_place *out)
{
    tgd_place place = nowhere;
    walk w = {0};
    callers around;
    bool met_user = false;
    uint32_t inside = 0;
    around.n = 0;
    while (step(&w)) {
        if (w.index == TGD_NONE) { /* whose it is cannot be told any more: name nobody rather than the wrong line */
            met_user = true;
        }
        if (w.flags & ~(uint32_t)TGD_CODE_LIBRARY) {
            place.via |= via_of(w.flags, met_user);
            if ((w.flags & TGD_CODE_MODULE_CALL) && place.module == TGD_NONE) {
                place.module = module_index(&w);
            }
        }
        if (met_user) {
            if (!(w.flags & TGD_CODE_LIBRARY)) {
                add_caller(&around, &w);
            }
        } else if (is_users(&w, &inside)) {
            set_place(&place, &w);
            met_user = true;
        }
    }
    place.stack = tgd_py_stack_find(around.frames, around.n);
    *out = place;
}

static void read_near(tgd_place *out)
{
    tgd_place place = nowhere;
    walk w = {0};
    while ((place.code == TGD_NONE || place.module == TGD_NONE) && step(&w)) {
        if (w.index == TGD_NONE) {
            break; /* whose it is cannot be told any more */
        }
        if (place.module == TGD_NONE && (w.flags & TGD_CODE_MODULE_CALL)) {
            place.module = module_index(&w);
        }
        if (place.code == TGD_NONE && !(w.flags & TGD_CODE_LIBRARY)) {
            set_place(&place, &w);
        }
    }
    *out = place;
}

static void read_checkpoint(tgd_place *out)
{
    walk w = {0};
    bool inside = true;
    *out = nowhere;
    while (step(&w)) {
        if (w.flags & TGD_CODE_CHECKPOINT) {
            inside = false;
        } else if (!inside && !(w.flags & TGD_CODE_LIBRARY)) {
            set_place(out, &w);
            out->via = TGD_VIA_CHECKPOINT | TGD_VIA_BY_CHECKPOINT;
            out->stack = stack_around(w);
            return;
        }
    }
}

static void read_decorated(tgd_place *out)
{
    walk w = {0};
    walk inner = {.index = TGD_NONE, .flags = TGD_CODE_LIBRARY}, within = inner;
    *out = nowhere;
    while (step(&w)) {
        if (w.flags & TGD_CODE_DECORATOR) {
            if ((inner.flags & TGD_CODE_WRAPPER) && !(within.flags & TGD_CODE_LIBRARY)) {
                inner = within; /* decorated twice: the other decorator's own function is not what has the line */
            }
            if (!(inner.flags & TGD_CODE_LIBRARY)) {
                out->code = inner.index;
                out->via = TGD_VIA_DECORATOR | TGD_FIRST_LINE;
                out->stack = stack_around(w);
            }
            return;
        }
        within = inner;
        inner = w;
    }
}

const tgd_frame_reader *tgd_py_frames(void)
{
    static const tgd_frame_reader reader = {.here = read_here, .checkpoint = read_checkpoint,
                                            .decorated = read_decorated, .near = read_near};
    return &reader;
}

uint32_t tgd_py_frames_code(PyObject *code, PyObject *globals)
{
    uint32_t flags;
    return tgd_py_code_find((PyCodeObject *)code, globals, &flags);
}

int tgd_py_frames_init(PyObject *module)
{
    return tgd_py_code_table_init(module);
}

/* ---- words ---- */

static _Thread_local struct {
    char file[4096], function[512], module[512], module_class[256];
} words;

/* A cut falls between characters. */
static const char *copy(char *to, size_t size, const char *text)
{
    size_t n = strlen(text);
    if (n >= size) {
        n = size - 1;
        while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) {
            n--;
        }
    }
    memcpy(to, text, n);
    to[n] = '\0';
    return to;
}

int tgd_py_resolve_place(const tgd_place *place, tgd_source *out)
{
    *out = (tgd_source){.file = "", .function = "", .module = "", .module_class = ""};
    if ((place->code == TGD_NONE && place->module == TGD_NONE) || !tgd_py_may_lock()) {
        return 0;
    }
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    tgd_py_code_words code;
    const char *path, *class_name;
    int known = 0;
    if (place->code != TGD_NONE &&
        tgd_py_code_describe(place->code, place->via & (TGD_FIRST_LINE | TGD_AT_RETURN) ? -1 : place->lasti, &code)) {
        int returns = place->via & TGD_AT_RETURN ? tgd_py_return_line(tgd_py_code_at(place->code), place->lasti) : 0;
        code.line = returns > 0 ? returns : code.line;
        out->file = copy(words.file, sizeof words.file, code.file);
        out->function = copy(words.function, sizeof words.function, code.function);
        out->line = code.line;
        known = 1;
    }
    tgd_py_caller caller;
    uint32_t outer;
    if (tgd_py_stack_read(place->stack, &caller, &outer)) {
        out->called = true;
        out->caller = (tgd_place){.code = caller.code, .lasti = caller.lasti, .module = TGD_NONE, .stack = outer};
    }
    if (place->module != TGD_NONE && tgd_py_module_describe(place->module, &path, &class_name)) {
        out->module = copy(words.module, sizeof words.module, path);
        out->module_class = copy(words.module_class, sizeof words.module_class, class_name);
        known = 1;
    }
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(gil);
    return known;
}
