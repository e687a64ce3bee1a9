/* What saved-tensor hooks made of a tensor, without calling them. */
#ifndef TGD_PYTHON_HOOKS_H
#define TGD_PYTHON_HOOKS_H

#include "shim.h"

namespace tgd
{

/* tgd_torch_python.packed. GIL held. Runs no Python code, leaves no exception. */
bool read_packed(const void *hooks, tgd_torch_packed *out);

} // namespace tgd

#endif
