/*
 * Which run frees a node. Before a run that does not keep its graph, the nodes that it will take are marked in their
 * metadata: walking is some 20 ns a node, asking each node as it runs would be ten times that. Nodes without metadata of
 * ours (made before the light level began) get rows instead.
 */
#include "forks.h"
#include "light.h"

#include <unordered_map>
#include <unordered_set>

namespace tgd
{
namespace
{

enum mark : std::uint64_t { entered = 1, spared = 2, taken = 3 }; /* low bits of a node's mark, below the run's number */

struct frame {
    const Node *node;
    std::uint32_t edge;
    bool wanted;
};

std::mutex &walk_mutex()
{
    static std::mutex *one = new std::mutex();
    return *one;
}

class walker
{
public:
    walker(const run_start &start, std::uint64_t run) : start_(start), run_(run)
    {
        ends_.insert(start.inputs, start.inputs + start.n_inputs);
    }

    void walk()
    {
        for (std::size_t r = 0; r < start_.n_roots; r++) {
            if (start_.roots[r] != nullptr) {
                walk_from(start_.roots[r]);
            }
        }
    }

private:
    /* Depth first, a node's answer after those it leads to; without inputs every node is wanted. */
    void walk_from(const Node *root)
    {
        stack_.clear();
        enter(root);
        while (!stack_.empty()) {
            frame &top = stack_.back();
            const torch::autograd::edge_list &edges = top.node->next_edges();
            if (top.edge < edges.size()) {
                const Node *next = edges[top.edge++].function.get();
                if (next == nullptr) {
                    continue;
                }
                if (ends_.count(next) > 0) {
                    top.wanted = true;
                }
                std::uint64_t known = mark_of(next);
                if (known == 0) {
                    enter(next);
                } else if (known == taken) {
                    top.wanted = true;
                }
                continue;
            }
            frame done = top;
            stack_.pop_back();
            leave(done);
            if (done.wanted && !stack_.empty()) {
                stack_.back().wanted = true;
            }
        }
    }

    std::uint64_t mark_of(const Node *node)
    {
        const node_metadata *metadata = metadata_of(node);
        if (metadata != nullptr) {
            return metadata->visited >> 2 == run_ ? metadata->visited & 3 : 0;
        }
        auto found = others_.find(node);
        return found == others_.end() ? 0 : found->second;
    }

    void set_mark(const Node *node, node_metadata *metadata, mark how)
    {
        if (metadata != nullptr) {
            metadata->visited = run_ << 2 | how;
        } else {
            others_[node] = how;
        }
    }

    void enter(const Node *node)
    {
        if (mark_of(node) != 0) {
            return;
        }
        node_metadata *metadata = metadata_of(node);
        if (node->num_outputs() == 0) { /* AccumulateGrad and the like: never freed, nothing behind */
            set_mark(node, metadata, start_.n_inputs == 0 ? taken : spared);
            return;
        }
        set_mark(node, metadata, entered);
        stack_.push_back({node, 0, start_.n_inputs == 0 || (!start_.captures && ends_.count(node) > 0)});
    }

    void leave(const frame &done)
    {
        node_metadata *metadata = metadata_of(done.node);
        set_mark(done.node, metadata, done.wanted ? taken : spared);
        if (!done.wanted) {
            return;
        }
        if (metadata == nullptr) {
            add_taken({done.node->sequence_nr(), done.node->thread_id(), run_});
            return;
        }
        metadata->first_run = metadata->first_run == 0 ? run_ : metadata->first_run;
        metadata->last_run = run_;
    }

    static void add_taken(const tgd_taken_row &row)
    {
        thread_state &t = state();
        std::lock_guard<std::mutex> lock(t.log->mutex);
        t.log->make_room();
        t.log->now.taken.push_back(row);
    }

    const run_start &start_;
    std::uint64_t run_;
    std::vector<frame> stack_;
    std::unordered_set<const Node *> ends_;
    std::unordered_map<const Node *, std::uint64_t> others_;
};

} // namespace

void lock_walks()
{
    walk_mutex().lock();
}

void unlock_walks()
{
    walk_mutex().unlock();
}

void mark_run(const run_start &start, std::uint64_t run)
{
    std::lock_guard<std::mutex> lock(walk_mutex());
    walker(start, run).walk();
}

} // namespace tgd

using namespace tgd;

extern "C" void tgd_observe_run_takes(const tgd_torch_node *const *roots, size_t n_roots,
                                      const tgd_torch_node *const *inputs, size_t n_inputs, int captures)
{
    quietly([&] {
        if (light_on.load(std::memory_order_relaxed) && !state().runs.empty()) {
            mark_run({reinterpret_cast<const Node *const *>(roots), n_roots,
                      reinterpret_cast<const Node *const *>(inputs), n_inputs, captures != 0},
                     state().runs.back());
        }
    });
}
