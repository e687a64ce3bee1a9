/*
 * The code objects that frames were seen to run: what each of them means to a recorder, and what it is called.
 * Reading needs no GIL and no lock; a code object is added under the GIL, once, and is then kept for ever, so that its
 * index means the same as long as the process lives. At most 16,384 of them.
 */
#ifndef TGD_PY_CODE_TABLE_H
#define TGD_PY_CODE_TABLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "record.h"
#include <stdatomic.h>

enum {
    TGD_CODE_LIBRARY = 1u << 0,     /* not the user's: torch, Python's own library, this package */
    TGD_CODE_MODULE_CALL = 1u << 1, /* nn.Module's __call__: its first argument is the module */
    TGD_CODE_CHECKPOINT = 1u << 2,  /* the forward of a reentrant checkpoint */
    TGD_CODE_DECORATOR = 1u << 3,   /* calls a function that is decorated with no_grad or the like */
    TGD_CODE_PARAMETER = 1u << 4,   /* nn.Parameter's constructor */
    TGD_CODE_OPTIMIZER = 1u << 5,   /* Optimizer.step */
    TGD_CODE_DDP_INIT = 1u << 6,    /* DistributedDataParallel's constructor */
    TGD_CODE_TRACING = 1u << 7,     /* torch.compile or torch.export at work: nothing it calls really runs */
    TGD_CODE_RESTORE = 1u << 8,     /* the end of a block of no_grad or the like */
    TGD_CODE_REGIONS = 1u << 9,     /* what torch.compile made of a function of the user's: calls regions, has no lines */
    TGD_CODE_IN_REGION = 1u << 10,  /* torch.compile's own way into a region */
    TGD_CODE_WRAPPER = 1u << 11     /* it looks like what a decorator puts in a function's place */
};

/* Once, GIL held, before the first look-up: learns where torch and the libraries are. 0, or -1 with an exception. */
int tgd_py_code_table_init(PyObject *module);

/* A hash table that only grows, at most half full. For the process and not for a module's state: it is read where no
   GIL is held. Written under the GIL, in code_table.c alone. */
enum { TGD_CODE_SLOTS = 1 << 15 };
typedef struct tgd_py_code_slot {
    PyCodeObject *_Atomic code; /* Owned for ever; written last, NULL: free */
    uint32_t flags;
} tgd_py_code_slot;
extern tgd_py_code_slot tgd_py_code_slots[TGD_CODE_SLOTS];

static inline uint32_t tgd_py_code_slot_of(const PyCodeObject *code)
{
    return (uint32_t)(((uint64_t)(uintptr_t)code >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 49);
}

/* Adds a code object. Takes the GIL. TGD_NONE where the table is full or Python is going away. */
uint32_t tgd_py_code_meet(PyCodeObject *code, PyObject *globals, uint32_t *flags);

/* The index of a code object that a frame of this thread runs, and its flags; as tgd_py_code_meet() where it was never
   met. */
static inline uint32_t tgd_py_code_find(PyCodeObject *code, PyObject *globals, uint32_t *flags)
{
    uint32_t i = tgd_py_code_slot_of(code);
    for (const PyCodeObject *known;
         (known = atomic_load_explicit(&tgd_py_code_slots[i].code, memory_order_acquire)) != NULL;
         i = (i + 1) % TGD_CODE_SLOTS) {
        if (known == code) {
            *flags = tgd_py_code_slots[i].flags;
            return i;
        }
    }
    return tgd_py_code_meet(code, globals, flags);
}

typedef struct tgd_py_code_words {
    const char *file, *function; /* borrowed for ever */
    int line;
} tgd_py_code_words;

/* GIL held. lasti < 0: the line of the decorator that changes grad mode, or the function's first. 0 where there is no such code object. */
int tgd_py_code_describe(uint32_t index, int lasti, tgd_py_code_words *out);

/* Is a line of this file torch's, Python's or ours, and not the user's? Where there is no code object to ask about. */
bool tgd_py_is_library_file(const char *file, const char *function);

/* GIL held. Borrowed for ever; NULL where there is none. */
PyCodeObject *tgd_py_code_at(uint32_t index);

/* May the GIL be taken? Not while Python is going away. */
int tgd_py_may_lock(void);

#endif
