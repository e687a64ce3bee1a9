#include "python_code.h"

#include <cstring>

#include "python_shim.h"

namespace tgd
{
namespace
{

std::uint32_t (*meet_code)(PyObject *, PyObject *); /* set once, under the GIL */

/* A reference of our own. */
class owned
{
public:
    explicit owned(PyObject *object) : object_(object)
    {
    }
    ~owned()
    {
        Py_XDECREF(object_);
    }
    owned(const owned &) = delete;
    owned &operator=(const owned &) = delete;
    PyObject *get() const
    {
        return object_;
    }

private:
    PyObject *object_;
};

PyObject *dict_get(PyObject *dict, const char *name)
{
    PyObject *found = dict != nullptr && PyDict_Check(dict) ? PyDict_GetItemString(dict, name) : nullptr;
    PyErr_Clear();
    return found;
}

/* What a class or its bases have under this name, as it stands in their dicts; borrowed, or NULL. No descriptor and
   no metaclass is asked. */
PyObject *type_lookup(PyTypeObject *type, const char *name)
{
    PyObject *found = nullptr;
    for (Py_ssize_t i = 0; type->tp_mro != nullptr && i < PyTuple_GET_SIZE(type->tp_mro) && found == nullptr; i++) {
        PyObject *base = PyTuple_GET_ITEM(type->tp_mro, i);
        found = PyType_Check(base) ? dict_get(reinterpret_cast<PyTypeObject *>(base)->tp_dict, name) : nullptr;
    }
    return found;
}

/* A name in a module that is loaded already; borrowed, or NULL. */
PyObject *module_get(const char *module, const char *name)
{
    PyObject *loaded = dict_get(PyImport_GetModuleDict(), module);
    return loaded != nullptr && PyModule_Check(loaded) ? dict_get(PyModule_GetDict(loaded), name) : nullptr;
}

bool is_named(PyObject *string, const char *name)
{
    return PyUnicode_Check(string) && PyUnicode_CompareWithASCIIString(string, name) == 0;
}

/* ---- what the code of a backward speaks of ---- */

constexpr int most_nested = 16; /* functions in functions, wrappers around wrappers */

struct words {
    PyObject *once;    /* once_differentiable()'s own code, borrowed, or NULL */
    PyObject *globals; /* of the function being read, borrowed, or NULL */
    bool found, saved, helper, autograd, backward, run_backward, once_differentiable, refuses_second;
};

/* Could this name stand for code of the user's own, which may be handed ctx? A module cannot; of the builtins only
   those can that reach attributes in another way. */
bool is_helper(PyObject *name, PyObject *globals)
{
    PyObject *found = globals == nullptr ? nullptr : PyDict_GetItem(globals, name);
    if (found != nullptr) {
        return !PyModule_Check(found);
    }
    return is_named(name, "getattr") || is_named(name, "super") || is_named(name, "vars") || is_named(name, "eval") ||
           is_named(name, "exec");
}

void read_code(PyCodeObject *code, words *out, int depth);

void read_constant(PyObject *constant, words *out, int depth)
{
    if (PyCode_Check(constant)) {
        read_code(reinterpret_cast<PyCodeObject *>(constant), out, depth + 1);
    } else if (PyUnicode_Check(constant)) {
        const char *text = PyUnicode_AsUTF8(constant);
        out->refuses_second |= text != nullptr && std::strstr(text, "does not currently support double backward");
        PyErr_Clear();
    }
}

void read_code(PyCodeObject *code, words *out, int depth)
{
    if (depth > most_nested) {
        return;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_names); i++) {
        PyObject *name = PyTuple_GET_ITEM(code->co_names, i);
        out->saved |= is_named(name, "saved_tensors") || is_named(name, "saved_variables");
        out->autograd |= is_named(name, "autograd");
        out->backward |= is_named(name, "backward");
        out->run_backward |= is_named(name, "run_backward");
        out->helper |= is_helper(name, out->globals);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); i++) {
        read_constant(PyTuple_GET_ITEM(code->co_consts, i), out, depth);
    }
}

/* once_differentiable() returns a function whose code is a constant of its own code. */
bool is_constant_of(PyObject *function, PyObject *code)
{
    if (function == nullptr || !PyFunction_Check(function)) {
        return false;
    }
    PyObject *constants = reinterpret_cast<PyCodeObject *>(PyFunction_GET_CODE(function))->co_consts;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); i++) {
        if (PyTuple_GET_ITEM(constants, i) == code) {
            return true;
        }
    }
    return false;
}

/* A function, a static or class method around one, and what functools.wraps() says it wraps. */
void read_callable(PyObject *callable, words *out)
{
    if (callable == nullptr) {
        return;
    }
    owned inside(PyObject_TypeCheck(callable, &PyStaticMethod_Type) || PyObject_TypeCheck(callable, &PyClassMethod_Type)
                     ? PyObject_GenericGetAttr(callable, owned(PyUnicode_FromString("__func__")).get())
                     : nullptr);
    PyErr_Clear();
    PyObject *function = inside.get() == nullptr ? callable : inside.get();
    for (int i = 0; i < most_nested && function != nullptr && PyFunction_Check(function); i++) {
        PyObject *code = PyFunction_GET_CODE(function);
        out->globals = PyFunction_GET_GLOBALS(function);
        out->found = true;
        out->helper |= PyFunction_GET_CLOSURE(function) != nullptr;
        out->once_differentiable |= is_constant_of(out->once, code);
        read_code(reinterpret_cast<PyCodeObject *>(code), out, 0);
        function = dict_get(reinterpret_cast<PyFunctionObject *>(function)->func_dict, "__wrapped__");
    }
}

} // namespace

PyObject *loaded_name(const char *module, const char *name)
{
    return module_get(module, name);
}

std::uint32_t function_flags(PyTypeObject *type)
{
    /* The class that the user wrote; `type` was made from it. */
    PyObject *forward = type_lookup(type, "_forward_cls");
    if (forward == nullptr || !PyType_Check(forward)) {
        return 0;
    }
    auto *written = reinterpret_cast<PyTypeObject *>(forward);
    words found = {};
    found.once = module_get("torch.autograd.function", "once_differentiable");
    read_callable(type_lookup(written, "backward"), &found);
    read_callable(type_lookup(written, "vjp"), &found);

    const char *name = std::strrchr(written->tp_name, '.');
    name = name == nullptr ? written->tp_name : name + 1;
    std::uint32_t flags = 0;
    const auto set = [&flags](std::uint32_t flag, bool on) { flags |= on ? flag : 0u; };
    /* Every class of torch.compile's carries its number. */
    const bool of_compile = type_lookup(written, "_aot_id") != nullptr;
    if (of_compile && (found.refuses_second || std::strcmp(name, "CompiledFunctionBackward") == 0)) {
        set(TGD_PY_RAISES, true);
    } else if (of_compile || std::strcmp(name, "CompiledFunction") == 0) {
        /* Its backward reads the saved tensors in generated code. */
        set(TGD_PY_COMPILED | TGD_PY_READS_SAVED, true);
    } else {
        set(TGD_PY_HIDES_GRAPH, found.run_backward || (found.autograd && found.backward));
    }
    set(TGD_PY_ONCE_DIFFERENTIABLE, found.once_differentiable);
    /* Or it may: ctx can be handed on, and code that is not Python's cannot be read. */
    set(TGD_PY_READS_SAVED, found.saved || found.helper || !found.found);
    set(TGD_PY_HIDES_PARAMETERS, std::strcmp(name, "RegisterPostBackwardFunction") == 0);
    return flags;
}

std::uint32_t backward_code(PyTypeObject *type)
{
    PyObject *forward = type_lookup(type, "_forward_cls");
    if (meet_code == nullptr || forward == nullptr || !PyType_Check(forward)) {
        return TGD_NONE;
    }
    PyObject *function = type_lookup(reinterpret_cast<PyTypeObject *>(forward), "backward");
    owned inside(function != nullptr && PyObject_TypeCheck(function, &PyStaticMethod_Type)
                     ? PyObject_GenericGetAttr(function, owned(PyUnicode_FromString("__func__")).get())
                     : nullptr);
    PyErr_Clear();
    function = inside.get() == nullptr ? function : inside.get();
    for (int i = 0; i < most_nested && function != nullptr && PyFunction_Check(function); i++) {
        PyObject *wrapped = dict_get(reinterpret_cast<PyFunctionObject *>(function)->func_dict, "__wrapped__");
        if (wrapped == nullptr) {
            return meet_code(PyFunction_GET_CODE(function), PyFunction_GET_GLOBALS(function));
        }
        function = wrapped;
    }
    return TGD_NONE;
}

bool is_function(PyObject *object)
{
    PyObject *base = module_get("torch._C", "_FunctionBase");
    return base != nullptr && PyType_Check(base) && PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject *>(base));
}

bool is_cpp_function(PyObject *object)
{
    /* Every such class is made by one function of torch, which gives them one destructor; the check of torch's own
       is not exported by all versions. */
    PyObject *functions = module_get("torch._C", "_functions");
    PyObject *leaf = functions != nullptr && PyModule_Check(functions)
                         ? dict_get(PyModule_GetDict(functions), "AccumulateGrad")
                         : nullptr;
    return leaf != nullptr && PyType_Check(leaf) &&
           Py_TYPE(object)->tp_dealloc == reinterpret_cast<PyTypeObject *>(leaf)->tp_dealloc;
}

int is_parameter_object(PyObject *object)
{
    PyObject *parameter = module_get("torch.nn.parameter", "Parameter");
    if (parameter != nullptr && PyType_Check(parameter) &&
        PyType_IsSubtype(Py_TYPE(object), reinterpret_cast<PyTypeObject *>(parameter))) {
        return 1;
    }
    /* nn.Parameter(subclass) leaves the class and sets this instead. */
    owned key(PyUnicode_FromString("_is_param"));
    owned mark(key.get() == nullptr ? nullptr : PyObject_GenericGetAttr(object, key.get()));
    PyErr_Clear();
    return mark.get() == Py_True;
}

} // namespace tgd

extern "C" void tgd_torch_set_code_table(uint32_t (*meet)(PyObject *code, PyObject *globals))
{
    tgd::meet_code = meet;
}
