/* Who writes into a gradient that somebody else still holds. Only while a backward runs; holds no tensor. */
#ifndef TGD_GRADIENTS_H
#define TGD_GRADIENTS_H

#include "compat.h"
#include "rows.h"

namespace at
{
struct RecordFunction;
}

namespace tgd
{

/* A node is about to run: what gradients came to it, and whether anybody else holds them. */
void gradients_arrived(thread_state &t, const at::RecordFunction &fn, const Node &node);

/* The node has ended. */
void gradients_left(thread_state &t);

/* An op ended well that wrote to this. */
void gradient_written(thread_state &t, const tgd_write_row &write);

/* The run has failed. */
void run_stopped(const thread_state &t, std::uint64_t run);

} // namespace tgd

#endif
