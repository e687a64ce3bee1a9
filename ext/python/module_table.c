#include "module_table.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { N_SLOTS = 1 << 15, MOST_MODULES = N_SLOTS / 2, MOST_LEVELS = 32, SEARCH_LEVELS = 6 };

typedef struct entry {
    PyObject *weak;     /* Owned, NULL once the module is dead */
    char *path;         /* Owned, like class_name; NULL in an entry that was never used */
    char *class_name;
    uint32_t slot;      /* in slots, while the module lives */
    uint32_t next_dead; /* an entry to use again, oldest first */
    uint16_t generation;
    bool given;         /* its path is what the program was told to call it, not what was guessed */
} entry;

/* Where an address stands. The index is written before the address, and a slot whose module lives never changes. */
typedef struct slot {
    const PyObject *_Atomic address; /* NULL: never used; TOMB: used once */
    _Atomic uint32_t index;
} slot;

/* For the process and not for a module's state: it is read where no GIL is held. Written under the GIL. */
static slot slots[N_SLOTS];
static entry entries[MOST_MODULES];
static _Atomic uint32_t n_used, n_dead;
static uint32_t first_dead = TGD_NONE, last_dead = TGD_NONE;

#define TOMB ((const PyObject *)&slots)

static size_t slot_of(const void *module)
{
    return (size_t)(((uint64_t)(uintptr_t)module >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 49);
}

static uint32_t index_of(uint32_t at)
{
    return (uint32_t)entries[at].generation << 16 | at;
}

uint32_t tgd_py_module_find(const PyObject *module)
{
    size_t i = slot_of(module);
    for (size_t k = 0; k < N_SLOTS; k++, i = (i + 1) % N_SLOTS) {
        const PyObject *known = atomic_load_explicit(&slots[i].address, memory_order_acquire);
        if (known == module) {
            return atomic_load_explicit(&slots[i].index, memory_order_relaxed);
        }
        if (known == NULL) {
            break;
        }
    }
    return TGD_NONE;
}

int tgd_py_module_table_has_room(void)
{
    return atomic_load_explicit(&n_used, memory_order_relaxed) < MOST_MODULES ||
           atomic_load_explicit(&n_dead, memory_order_relaxed) > 0;
}

/* ---- life and death ---- */

static PyObject *retire(PyObject *number, PyObject *weak)
{
    size_t at = PyLong_AsSize_t(number);
    if (at < MOST_MODULES && entries[at].weak == weak) {
        entry *e = &entries[at];
        atomic_store_explicit(&slots[e->slot].address, TOMB, memory_order_release);
        e->weak = NULL;
        e->next_dead = TGD_NONE;
        *(last_dead == TGD_NONE ? &first_dead : &entries[last_dead].next_dead) = (uint32_t)at;
        last_dead = (uint32_t)at;
        atomic_fetch_add_explicit(&n_dead, 1, memory_order_relaxed);
        Py_DECREF(weak);
    }
    Py_RETURN_NONE;
}

static PyMethodDef retire_definition = {"retire", retire, METH_O, NULL};

/* TGD_NONE where every entry's module lives. */
static uint32_t take_entry(void)
{
    uint32_t used = atomic_load_explicit(&n_used, memory_order_relaxed);
    if (used < MOST_MODULES) {
        atomic_store_explicit(&n_used, used + 1, memory_order_relaxed);
        return used;
    }
    uint32_t at = first_dead;
    if (at != TGD_NONE) {
        first_dead = entries[at].next_dead;
        last_dead = first_dead == TGD_NONE ? TGD_NONE : last_dead;
        atomic_fetch_sub_explicit(&n_dead, 1, memory_order_relaxed);
        entries[at].generation++;
    }
    return at;
}

static void give_back(uint32_t at)
{
    entries[at].next_dead = first_dead;
    last_dead = first_dead == TGD_NONE ? at : last_dead;
    first_dead = at;
    atomic_fetch_add_explicit(&n_dead, 1, memory_order_relaxed);
}

static char *kept(const char *text)
{
    char *copy = PyMem_RawMalloc(strlen(text) + 1);
    return copy == NULL ? NULL : strcpy(copy, text);
}

/* What torch.compile wraps a module in is no level of the model. */
static void leave_out_wrappers(char *path)
{
    static const char wrapper[] = "_orig_mod";
    size_t n = sizeof wrapper - 1;
    char *to = path;
    for (const char *from = path; *from != '\0';) {
        size_t part = strcspn(from, ".");
        if (part != n || memcmp(from, wrapper, n) != 0) {
            to += to > path ? (*to = '.', 1) : 0;
            memmove(to, from, part);
            to += part;
        }
        from += from[part] == '.' ? part + 1 : part;
    }
    *to = '\0';
}

static void set_path(entry *e, const char *path)
{
    char *copy = kept(path);
    if (copy != NULL) {
        leave_out_wrappers(copy);
        PyMem_RawFree(e->path);
        e->path = copy;
    }
}

/* "torch.nn.modules.linear.Linear" and "Linear" are both told as tp_name, by C types and by Python's. */
static const char *class_of(PyObject *module)
{
    const char *name = Py_TYPE(module)->tp_name, *last = strrchr(name, '.');
    return last == NULL ? name : last + 1;
}

/* The entry of a module, made where there is none. TGD_NONE with an exception, or without where there is no room. */
static uint32_t enter(PyObject *module)
{
    uint32_t known = tgd_py_module_find(module);
    if (known != TGD_NONE) {
        return known & 0xFFFF;
    }
    uint32_t at = take_entry();
    if (at == TGD_NONE) {
        return TGD_NONE;
    }
    PyObject *number = PyLong_FromSize_t(at);
    PyObject *callback = number == NULL ? NULL : PyCFunction_New(&retire_definition, number);
    PyObject *weak = callback == NULL ? NULL : PyWeakref_NewRef(module, callback);
    char *class_name = weak == NULL ? NULL : kept(class_of(module)), *path = class_name == NULL ? NULL : kept("");
    Py_XDECREF(number);
    Py_XDECREF(callback);
    known = tgd_py_module_find(module); /* what was allocated may have let another thread in */
    if (path == NULL || known != TGD_NONE) {
        Py_XDECREF(weak);
        PyMem_RawFree(class_name);
        PyMem_RawFree(path);
        give_back(at);
        return known == TGD_NONE ? TGD_NONE : known & 0xFFFF;
    }
    entry *e = &entries[at];
    PyMem_RawFree(e->path);
    PyMem_RawFree(e->class_name);
    e->weak = weak;
    e->class_name = class_name;
    e->path = path;
    e->given = false;
    size_t i = slot_of(module);
    for (const PyObject *there; (there = atomic_load_explicit(&slots[i].address, memory_order_relaxed)) != NULL &&
                                there != TOMB;) {
        i = (i + 1) % N_SLOTS;
    }
    e->slot = (uint32_t)i;
    atomic_store_explicit(&slots[i].index, index_of(at), memory_order_relaxed);
    atomic_store_explicit(&slots[i].address, module, memory_order_release);
    return at;
}

/* ---- paths ---- */

/* A new reference to module._modules, without running code of the user's; NULL where there is none. */
static PyObject *children_of(PyObject *module)
{
    PyObject *fields = PyObject_GenericGetDict(module, NULL);
    PyObject *children = fields == NULL ? NULL : Py_XNewRef(PyDict_GetItemString(fields, "_modules"));
    Py_XDECREF(fields);
    PyErr_Clear();
    if (children != NULL && !PyDict_Check(children)) {
        Py_CLEAR(children);
    }
    return children;
}

static PyObject *joined(const char *prefix, PyObject *key)
{
    return prefix[0] == '\0' ? PyUnicode_FromFormat("%U", key) : PyUnicode_FromFormat("%s.%U", prefix, key);
}

/* "layers.0" where `wanted` is exactly `levels` below `from`; NULL where it is not, or with an exception. */
static PyObject *path_to(PyObject *from, const PyObject *wanted, int levels)
{
    PyObject *children = children_of(from), *key, *child, *path = NULL;
    Py_ssize_t at = 0;
    while (children != NULL && path == NULL && !PyErr_Occurred() && PyDict_Next(children, &at, &key, &child)) {
        if (!PyUnicode_Check(key) || child == Py_None) {
            continue;
        }
        if (levels == 1) {
            path = child == wanted ? Py_NewRef(key) : NULL;
            continue;
        }
        Py_INCREF(key);
        Py_INCREF(child);
        PyObject *rest = path_to(child, wanted, levels - 1);
        if (rest != NULL) {
            path = PyUnicode_FromFormat("%U.%U", key, rest);
            Py_DECREF(rest);
        }
        Py_DECREF(key);
        Py_DECREF(child);
    }
    Py_XDECREF(children);
    return path;
}

static void find_path(uint32_t at, PyObject *module, PyObject *outer)
{
    uint32_t above = tgd_py_module_find(outer);
    PyObject *below = NULL;
    for (int levels = 1; above != TGD_NONE && below == NULL && levels <= SEARCH_LEVELS; levels++) {
        below = path_to(outer, module, levels);
    }
    PyObject *path = below == NULL ? NULL : joined(entries[above & 0xFFFF].path, below);
    const char *bytes = path == NULL ? NULL : PyUnicode_AsUTF8(path);
    if (bytes != NULL) {
        set_path(&entries[at], bytes);
    }
    Py_XDECREF(below);
    Py_XDECREF(path);
    PyErr_Clear();
}

static void name_all(PyObject *module, const char *path, int levels, PyObject *seen, bool given)
{
    PyObject *address = PyLong_FromVoidPtr(module);
    int known = address == NULL ? -1 : PySet_Contains(seen, address);
    if (known == 0 && PySet_Add(seen, address) == 0) {
        uint32_t at = enter(module);
        if (at != TGD_NONE && (given || !entries[at].given)) {
            set_path(&entries[at], path);
            entries[at].given = given;
        }
        PyObject *children = levels > 0 ? children_of(module) : NULL, *key, *child;
        Py_ssize_t next = 0;
        while (children != NULL && at != TGD_NONE && PyDict_Next(children, &next, &key, &child)) {
            if (!PyUnicode_Check(key) || child == Py_None) {
                continue;
            }
            Py_INCREF(child);
            PyObject *below = joined(path, key);
            const char *bytes = below == NULL ? NULL : PyUnicode_AsUTF8(below);
            if (bytes != NULL) {
                name_all(child, bytes, levels - 1, seen, given);
            }
            Py_XDECREF(below);
            Py_DECREF(child);
        }
        Py_XDECREF(children);
    }
    Py_XDECREF(address);
    PyErr_Clear();
}

static void name_from(PyObject *root, bool given)
{
    PyObject *seen = PySet_New(NULL);
    if (seen != NULL) {
        name_all(root, "", MOST_LEVELS, seen, given);
        Py_DECREF(seen);
    }
    PyErr_Clear();
}

void tgd_py_module_name_all(PyObject *root)
{
    name_from(root, true);
}

uint32_t tgd_py_module_add(PyObject *module, PyObject *const *outer, size_t n_outer)
{
    uint32_t at = enter(module);
    PyErr_Clear();
    if (at == TGD_NONE) {
        return TGD_NONE;
    }
    if (n_outer == 0 && !entries[at].given) {
        name_from(module, false);
    }
    for (size_t k = 0; k < n_outer && entries[at].path[0] == '\0'; k++) {
        find_path(at, module, outer[k]);
    }
    return index_of(at);
}

int tgd_py_module_describe(uint32_t index, const char **path, const char **class_name)
{
    uint32_t at = index & 0xFFFF;
    if (at >= atomic_load_explicit(&n_used, memory_order_relaxed) || entries[at].path == NULL ||
        index_of(at) != index) {
        return 0;
    }
    *path = entries[at].path;
    *class_name = entries[at].class_name;
    return 1;
}
