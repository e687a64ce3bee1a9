#include "forks.h"

#include <mutex>

#include <pthread.h>

#include <ATen/record_function.h>

#include "rows.h"

namespace tgd
{
namespace
{

void before()
{
    if (active.load() != nullptr) {
        /* A thread's first op after we came copies torch's list of callbacks, under a lock of torch's that another
           thread may hold at the fork: done here, the child has no need to. */
        (void)at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
    }
    lock_walks();
    lock_gradient_events();
    lock_measures();
    lock_rows();
}

void after()
{
    unlock_rows();
    unlock_measures();
    unlock_gradient_events();
    unlock_walks();
}

} // namespace

void watch_forks()
{
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(before, after, after); }); /* out of memory: forks are as they were */
}

} // namespace tgd
