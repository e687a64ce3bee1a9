// The queue of torch's engine (ReadyQueue), with the standard library's own priority_queue: what the simulation must
// agree with to the last tie.
#include "engine_queue.h"

#include <queue>
#include <vector>

namespace
{
struct task {
    uint64_t sequence_nr;
    uint32_t node;
};
struct later {
    bool operator()(const task &a, const task &b) const
    {
        return a.sequence_nr < b.sequence_nr;
    }
};
std::priority_queue<task, std::vector<task>, later> tasks;
} // namespace

void engine_queue_clear(void)
{
    tasks = {};
}

void engine_queue_push(uint32_t node, uint64_t sequence_nr)
{
    tasks.push({sequence_nr, node});
}

bool engine_queue_pop(uint32_t *node)
{
    if (tasks.empty()) {
        return false;
    }
    *node = tasks.top().node;
    tasks.pop();
    return true;
}
