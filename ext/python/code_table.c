#include "code_table.h"

#include <string.h>

enum { MOST_CODES = TGD_CODE_SLOTS / 2, CODE_UNIT = 2 /* bytes */ };

tgd_py_code_slot tgd_py_code_slots[TGD_CODE_SLOTS];
static _Atomic uint32_t n_codes;

/* What IPython calls the code's file, once somebody has asked. Under the GIL. */
static struct {
    const char *name; /* "Cell In[3]", Owned for ever, or NULL */
    bool looked;
} cells[TGD_CODE_SLOTS];

/* Folders with their final slash; Owned for ever. */
static struct {
    char *torch, *functorch, *package, *library, *platform_library;
} folders;

int tgd_py_may_lock(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsInitialized() && !Py_IsFinalizing();
#else
    return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

/* ---- what a code object is ---- */

static const char *utf8(PyObject *text)
{
    const char *bytes = text != NULL && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : NULL;
    if (bytes == NULL) {
        PyErr_Clear();
        return "?";
    }
    return bytes;
}

static bool starts(const char *text, const char *with)
{
    return with != NULL && strncmp(text, with, strlen(with)) == 0;
}

static bool ends(const char *text, const char *with)
{
    size_t n = strlen(text), m = strlen(with);
    return n >= m && memcmp(text + n - m, with, m) == 0;
}

static bool same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool is_main(PyObject *globals)
{
    PyObject *name = globals != NULL && PyDict_Check(globals) ? PyDict_GetItemString(globals, "__name__") : NULL;
    return name != NULL && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "__main__") == 0;
}

static const char *qualified_name(const PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030B0000
    return utf8(code->co_qualname);
#else
    return utf8(code->co_name);
#endif
}

/* A name like <stdin> is no file. Some are what a person typed, most are what a library generated. */
static bool is_prompt(const char *file)
{
    static const char *const typed[] = {"<stdin>", "<ipython-input", "<console>", "<python-input", "<doctest "};
    for (size_t k = 0; k < sizeof typed / sizeof typed[0]; k++) {
        if (starts(file, typed[k])) {
            return true;
        }
    }
    return false;
}

static bool is_typed(const char *file, const PyCodeObject *code, PyObject *globals)
{
    if (is_prompt(file)) {
        return true;
    }
    static const char *const generated[] = {"<frozen ", "<eval_with_key>", "<attrs generated", "<decorator-gen",
                                            "<__array_function__"};
    for (size_t k = 0; k < sizeof generated / sizeof generated[0]; k++) {
        if (starts(file, generated[k])) {
            return false;
        }
    }
    /* python -c; but a dataclass of the user's has methods that are called the same. */
    return is_main(globals) && !starts(qualified_name(code), "__create_fn__");
}

static uint32_t torch_flags(const char *file, const PyCodeObject *code)
{
    const char *name = utf8(code->co_name);
    if (ends(file, "/nn/modules/module.py")) {
        return same(name, "_wrapped_call_impl") || same(name, "_call_impl") ? TGD_CODE_MODULE_CALL : 0;
    }
    if (ends(file, "/utils/checkpoint.py")) {
        return same(name, "forward") ? TGD_CODE_CHECKPOINT : 0;
    }
    if (ends(file, "/utils/_contextlib.py")) {
        return same(name, "decorate_context") || same(name, "generator_context") ? TGD_CODE_DECORATOR : 0;
    }
    if (ends(file, "/nn/parameter.py")) {
        return same(name, "__new__") ? TGD_CODE_PARAMETER : 0;
    }
    if (ends(file, "/nn/parallel/distributed.py")) {
        return same(name, "__init__") ? TGD_CODE_DDP_INIT : 0;
    }
    const char *within = file + strlen(folders.torch);
    if (same(within, "autograd/grad_mode.py")) {
        return same(name, "__exit__") ? TGD_CODE_RESTORE : 0;
    }
    if (starts(within, "optim/")) {
        return same(name, "step") ? TGD_CODE_OPTIMIZER : 0;
    }
    if (same(within, "_dynamo/eval_frame.py") || starts(within, "_functorch/_aot_autograd/")) {
        return TGD_CODE_IN_REGION;
    }
    if (same(within, "_dynamo/convert_frame.py")) {
        return TGD_CODE_TRACING;
    }
    if (same(within, "_dynamo/compiled_autograd.py")) {
        /* The rest of it records the graph; these run it. */
        bool runs = same(name, "_enable") || same(name, "_disable") || same(name, "runtime_wrapper");
        return runs ? 0 : TGD_CODE_TRACING;
    }
    if (same(within, "fx/experimental/proxy_tensor.py")) {
        return same(name, "dispatch_trace") ? TGD_CODE_TRACING : 0;
    }
    return 0;
}

/* Dynamo gives its code the file and the name of the function it was made from, and all calls of regions the line of
   the def. */
static bool calls_regions(const PyCodeObject *code)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_names); i++) {
        const char *name = utf8(PyTuple_GET_ITEM(code->co_names, i));
        if (starts(name, "__compiled_fn_") || starts(name, "__resume_at_")) {
            return true;
        }
    }
    return false;
}

static uint32_t user_flags(const PyCodeObject *code)
{
    int any_arguments = code->co_flags & (CO_VARARGS | CO_VARKEYWORDS);
    return (calls_regions(code) ? TGD_CODE_REGIONS : 0u) |
           (any_arguments && (code->co_flags & CO_NESTED) ? TGD_CODE_WRAPPER : 0u);
}

static bool is_standard_library(const char *file)
{
    return (starts(file, folders.library) || starts(file, folders.platform_library)) &&
           strstr(file, "/site-packages/") == NULL && strstr(file, "/dist-packages/") == NULL;
}

static uint32_t classify(const PyCodeObject *code, PyObject *globals)
{
    const char *file = utf8(code->co_filename);
    if (file[0] == '<') {
        return is_typed(file, code, globals)      ? user_flags(code)
               : starts(file, "<eval_with_key>") ? TGD_CODE_LIBRARY | TGD_CODE_IN_REGION
                                                 : TGD_CODE_LIBRARY;
    }
    if (starts(file, folders.torch)) {
        return TGD_CODE_LIBRARY | torch_flags(file, code);
    }
    if (starts(file, folders.functorch) || starts(file, folders.package) || is_standard_library(file)) {
        return TGD_CODE_LIBRARY;
    }
    return user_flags(code);
}

bool tgd_py_is_library_file(const char *file, const char *function)
{
    if (file[0] == '<') { /* python -c has no more than a module's code and functions that somebody wrote */
        return !is_prompt(file) && !(same(file, "<string>") && !starts(function, "__"));
    }
    return starts(file, folders.torch) || starts(file, folders.functorch) || starts(file, folders.package) ||
           is_standard_library(file);
}

/* ---- the table ---- */

/* GIL held. */
static uint32_t add(PyCodeObject *code, PyObject *globals, uint32_t *flags)
{
    uint32_t i = tgd_py_code_slot_of(code);
    for (const PyCodeObject *known;
         (known = atomic_load_explicit(&tgd_py_code_slots[i].code, memory_order_relaxed)) != NULL;
         i = (i + 1) % TGD_CODE_SLOTS) {
        if (known == code) {
            *flags = tgd_py_code_slots[i].flags;
            return i;
        }
    }
    if (atomic_load_explicit(&n_codes, memory_order_relaxed) >= MOST_CODES) {
        return TGD_NONE;
    }
    atomic_fetch_add_explicit(&n_codes, 1, memory_order_relaxed);
    *flags = tgd_py_code_slots[i].flags = classify(code, globals);
    Py_INCREF(code);
    atomic_store_explicit(&tgd_py_code_slots[i].code, code, memory_order_release);
    return i;
}

uint32_t tgd_py_code_meet(PyCodeObject *code, PyObject *globals, uint32_t *flags)
{
    if (atomic_load_explicit(&n_codes, memory_order_relaxed) >= MOST_CODES || !tgd_py_may_lock()) {
        return TGD_NONE;
    }
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    uint32_t index = add(code, globals, flags);
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(gil);
    return index;
}

/* ---- words ---- */

/* IPython's number for the cell that was compiled under this name, or NULL. A new reference; no exception is left. */
static PyObject *cell_number(PyObject *file)
{
    PyObject *name = PyUnicode_FromString("IPython");
    PyObject *ipython = name == NULL ? NULL : PyImport_GetModule(name);
    PyObject *shell = ipython == NULL ? NULL : PyObject_CallMethod(ipython, "get_ipython", NULL);
    PyObject *compile = shell == NULL || shell == Py_None ? NULL : PyObject_GetAttrString(shell, "compile");
    PyObject *numbers = compile == NULL ? NULL : PyObject_GetAttrString(compile, "_filename_map");
    PyObject *number = NULL;
    if (numbers != NULL && PyDict_Check(numbers)) {
        number = Py_XNewRef(PyDict_GetItemWithError(numbers, file));
    }
    Py_XDECREF(name);
    Py_XDECREF(ipython);
    Py_XDECREF(shell);
    Py_XDECREF(compile);
    Py_XDECREF(numbers);
    PyErr_Clear();
    return number;
}

static const char *cell_of(uint32_t index, const PyCodeObject *code)
{
    if (!cells[index].looked) {
        PyObject *number = cell_number(code->co_filename);
        PyObject *text = number == NULL ? NULL : PyUnicode_FromFormat("Cell In[%S]", number);
        const char *bytes = text == NULL ? NULL : PyUnicode_AsUTF8(text);
        char *kept = bytes == NULL ? NULL : PyMem_RawMalloc(strlen(bytes) + 1);
        if (kept != NULL) {
            strcpy(kept, bytes);
        }
        Py_XDECREF(number);
        Py_XDECREF(text);
        PyErr_Clear();
        cells[index].name = kept;
        cells[index].looked = true;
    }
    return cells[index].name;
}

/* Of several decorators, the line of the one that changes grad mode, by the source as it can be read now; otherwise
   the first line. GIL held. */
static int decorator_line(const PyCodeObject *code)
{
    static const char *const words[] = {"no_grad", "inference_mode", "set_grad_enabled"};
    PyObject *linecache = PyImport_ImportModule("linecache");
    for (int line = code->co_firstlineno; linecache != NULL; line++) {
        PyObject *source = PyObject_CallMethod(linecache, "getline", "Oi", code->co_filename, line);
        const char *text = source == NULL ? NULL : utf8(source);
        const char *first = text == NULL ? "" : text + strspn(text, " \t");
        bool found = false, more = first[0] == '@';
        for (size_t k = 0; more && k < sizeof words / sizeof words[0]; k++) {
            found = found || strstr(first, words[k]) != NULL;
        }
        Py_XDECREF(source);
        if (found || !more) {
            Py_DECREF(linecache);
            PyErr_Clear();
            return found ? line : code->co_firstlineno;
        }
    }
    PyErr_Clear();
    return code->co_firstlineno;
}

PyCodeObject *tgd_py_code_at(uint32_t index)
{
    return index < TGD_CODE_SLOTS ? atomic_load_explicit(&tgd_py_code_slots[index].code, memory_order_acquire) : NULL;
}

int tgd_py_code_describe(uint32_t index, int lasti, tgd_py_code_words *out)
{
    PyCodeObject *code = tgd_py_code_at(index);
    if (code == NULL) {
        return 0;
    }
    const char *cell = cell_of(index, code);
    out->file = cell != NULL ? cell : utf8(code->co_filename);
    out->function = qualified_name(code);
    int line = lasti < 0 ? decorator_line(code) : PyCode_Addr2Line(code, lasti * CODE_UNIT);
    out->line = line > 0 ? line : 0;
    return 1;
}

/* ---- where the libraries are ---- */

/* The folder of a module's __file__, or of a path, for ever. NULL without an exception where there is none. */
static char *kept_folder(PyObject *path, bool of_file)
{
    const char *bytes = path != NULL && PyUnicode_Check(path) ? PyUnicode_AsUTF8(path) : NULL;
    const char *last = bytes != NULL && of_file ? strrchr(bytes, '/') : NULL;
    size_t n = bytes == NULL ? 0 : last != NULL ? (size_t)(last - bytes) : of_file ? 0 : strlen(bytes);
    char *folder = n == 0 ? NULL : PyMem_RawMalloc(n + 2);
    if (folder != NULL) {
        memcpy(folder, bytes, n);
        memcpy(folder + n, "/", 2);
    }
    PyErr_Clear();
    return folder;
}

static char *folder_of_module(PyObject *module)
{
    PyObject *file = module == NULL ? NULL : PyObject_GetAttrString(module, "__file__");
    char *folder = kept_folder(file, true);
    Py_XDECREF(file);
    PyErr_Clear();
    return folder;
}

static char *folder_of_library(const char *which)
{
    PyObject *sysconfig = PyImport_ImportModule("sysconfig");
    PyObject *path = sysconfig == NULL ? NULL : PyObject_CallMethod(sysconfig, "get_path", "s", which);
    char *folder = kept_folder(path, false);
    Py_XDECREF(sysconfig);
    Py_XDECREF(path);
    PyErr_Clear();
    return folder;
}

/* The package that stands beside torch. */
static char *beside_torch(const char *name)
{
    size_t n = strlen(folders.torch) - strlen("torch/");
    char *folder = PyMem_RawMalloc(n + strlen(name) + 1);
    if (folder != NULL) {
        memcpy(folder, folders.torch, n);
        strcpy(folder + n, name);
    }
    return folder;
}

int tgd_py_code_table_init(PyObject *module)
{
    if (folders.torch != NULL) {
        return 0;
    }
    PyObject *torch = PyImport_ImportModule("torch");
    if (torch == NULL) {
        return -1;
    }
    char *found = folder_of_module(torch);
    Py_DECREF(torch);
    if (found == NULL) {
        PyErr_SetString(PyExc_ImportError, "torchgraphdbg: torch does not say where it is installed");
        return -1;
    }
    folders.torch = found;
    folders.functorch = ends(found, "/torch/") ? beside_torch("functorch/") : NULL;
    folders.package = folder_of_module(module);
    folders.library = folder_of_library("stdlib");
    folders.platform_library = folder_of_library("platstdlib");
    return 0;
}
