/*
 * The light level of recording, which runs for days: every node keeps where it was made, ops that write are seen, and
 * of the rest only what can end a gradient. observe.h has its entry points.
 */
#ifndef TGD_LIGHT_H
#define TGD_LIGHT_H

#include <memory>

#include <torch/csrc/autograd/anomaly_mode.h>

#include "compat.h"
#include "rows.h"

namespace tgd
{

using node_pointer = decltype(torch::autograd::Edge::function);
using torch::autograd::AnomalyMetadata;

/* What a node keeps while the light level is on: where and when it was made, and which runs took it. Lives and dies
   with the node. */
class node_metadata final : public AnomalyMetadata
{
public:
    /* Must be first: where torch's own metadata has its dict, since `node.metadata` casts to that without asking.
       Borrowed from `theirs`. */
    void *dict = nullptr;
    /* torch's own: while the user's anomaly mode is on, and where somebody asks for node.metadata. Owned. */
    std::unique_ptr<AnomalyMetadata> theirs;
    tgd_place place = nowhere;
    std::uint64_t time = 0;
    /* Of runs that free what they take: the first one, and the newest. 0 = none. Under the lock of mark_run(). */
    std::uint64_t first_run = 0, last_run = 0;
    std::uint64_t visited = 0; /* a walk's own mark; the same lock */

    void store_stack() override;
    void print_stack(const std::string &current_node_name) override;
    void assign_parent(const node_pointer &parent) override;
    /* Makes `theirs`. */
    void complete();
};

/* A node's metadata if it is ours, else NULL. Allocates none. */
node_metadata *metadata_of(const Node *node) noexcept;

/* ---- light_node.cpp: the engine stub that gives nodes their metadata ---- */
void start_nodes();
void stop_nodes() noexcept;
/* Somebody may have switched the flag off from C++ meanwhile. */
void rearm_nodes() noexcept;

/* ---- light_kernel.cpp: ops that write ---- */
/* Once, and then for ever. Later calls register ops that were defined meanwhile. */
void register_kernels();
/* Makes the calling thread's ops visible, or invisible again. */
void join_thread() noexcept;
void leave_thread() noexcept;
/* Quick where nothing was defined since. */
void register_later_ops();

/* ---- light_runs.cpp: what a run takes ---- */
struct run_start {
    const Node *const *roots;
    std::size_t n_roots;
    const Node *const *inputs; /* where the gradient is wanted; none: everywhere */
    std::size_t n_inputs;
    bool captures; /* the gradients of the inputs are handed out before these run */
};
/* Marks the nodes that a run which frees them will take. */
void mark_run(const run_start &start, std::uint64_t run);

} // namespace tgd

#endif
