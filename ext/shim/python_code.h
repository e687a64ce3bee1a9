/* What Python's own objects tell of a class of nodes. Plain CPython API; runs no Python code, keeps no reference,
   leaves no exception. GIL held. */
#ifndef TGD_PYTHON_CODE_H
#define TGD_PYTHON_CODE_H

#include <Python.h>

#include <cstdint>

namespace tgd
{

/* TGD_PY_* of a class of nodes (the class of a grad_fn that is a torch.autograd.Function). */
std::uint32_t function_flags(PyTypeObject *type);

/* The code of its backward, as an index in tgd_place (see tgd_torch_set_code_table), or TGD_NONE. */
std::uint32_t backward_code(PyTypeObject *type);

/* A name in a module that is loaded already; borrowed, or NULL. */
PyObject *loaded_name(const char *module, const char *name);

/* Is it an instance of torch._C._FunctionBase: a torch.autograd.Function's node? */
bool is_function(PyObject *object);

/* Is it the wrapper of a node written in C++? */
bool is_cpp_function(PyObject *object);

/* 1: a torch.nn.Parameter, or something that says so (_is_param); 0: not. */
int is_parameter_object(PyObject *object);

} // namespace tgd

#endif
