/* Ops that can end a gradient, as the light level sees them. */
#ifndef TGD_LIGHT_CUTS_H
#define TGD_LIGHT_CUTS_H

#include <ATen/core/stack.h>

#include "op_table.h"
#include "rows.h"

namespace tgd
{

/* Is this an op that may give something without a gradient for something with one? */
bool can_cut(const char *name);

/* Before such an op runs: does one of its arguments, the last n of the stack, carry a gradient? Then its row is begun.
   May throw bad_alloc. */
bool cut_begins(thread_state &t, const op_class &op, const torch::jit::Stack &stack, std::size_t n_arguments);

/* It has ended well: with what it returned, the last n of the stack, its row is complete, and kept if it cut. */
void cut_ends(thread_state &t, const torch::jit::Stack &stack, std::size_t n_returns);

/* While grad mode is off on this thread, every op that takes something with a gradient cuts. */
void watch_no_grad(thread_state &t, bool off);

} // namespace tgd

#endif
