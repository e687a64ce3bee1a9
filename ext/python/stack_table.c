#include "stack_table.h"

#include <stdatomic.h>
#include <string.h>

enum { SLOT_BITS = 17, N_SLOTS = 1 << SLOT_BITS, MOST_STACKS = N_SLOTS / 2, LASTI_BITS = 30, CODE_BITS = 16 };

/* A stack's number is its slot + 1. A slot never changes once it is taken; 0 is free. For the process and not for a
   module's state: it is read where no GIL is held. */
static _Atomic uint64_t slots[N_SLOTS];
static _Atomic uint32_t n_stacks;

/* The last stack of this thread: most ops are called from the same lines as the one before. */
static _Thread_local struct {
    tgd_py_caller callers[TGD_PY_MOST_CALLERS];
    size_t n;
    uint32_t stack;
} last;

/* Never 0, as the code's index is counted from 1 in it. 0 where something does not fit. */
static uint64_t pack(tgd_py_caller caller, uint32_t outer)
{
    uint64_t code = (uint64_t)caller.code + 1, lasti = (uint64_t)((int64_t)caller.lasti + 1);
    if (code >> CODE_BITS != 0 || lasti >> LASTI_BITS != 0) {
        return 0;
    }
    return (uint64_t)outer << (CODE_BITS + LASTI_BITS) | code << LASTI_BITS | lasti;
}

static uint32_t add(tgd_py_caller caller, uint32_t outer)
{
    uint64_t wanted = pack(caller, outer);
    if (wanted == 0) {
        return 0;
    }
    uint32_t i = (uint32_t)(wanted * UINT64_C(0x9E3779B97F4A7C15) >> (64 - SLOT_BITS));
    for (;; i = (i + 1) % N_SLOTS) {
        uint64_t known = atomic_load_explicit(&slots[i], memory_order_relaxed);
        if (known == 0) {
            if (atomic_load_explicit(&n_stacks, memory_order_relaxed) >= MOST_STACKS) {
                return 0;
            }
            if (atomic_compare_exchange_strong_explicit(&slots[i], &known, wanted, memory_order_relaxed,
                                                        memory_order_relaxed)) {
                atomic_fetch_add_explicit(&n_stacks, 1, memory_order_relaxed);
                return i + 1;
            }
        }
        if (known == wanted) {
            return i + 1;
        }
    }
}

uint32_t tgd_py_stack_find(const tgd_py_caller *callers, size_t n)
{
    if (n == last.n && memcmp(callers, last.callers, n * sizeof *callers) == 0) {
        return last.stack;
    }
    uint32_t stack = 0;
    for (size_t k = n; k-- > 0;) {
        stack = add(callers[k], stack);
        if (stack == 0) {
            return 0;
        }
    }
    memcpy(last.callers, callers, n * sizeof *callers);
    last.n = n;
    last.stack = stack;
    return stack;
}

int tgd_py_stack_read(uint32_t stack, tgd_py_caller *caller, uint32_t *outer)
{
    uint64_t packed = stack == 0 || stack > N_SLOTS ? 0 : atomic_load_explicit(&slots[stack - 1], memory_order_relaxed);
    if (packed == 0) {
        return 0;
    }
    caller->code = (uint32_t)(packed >> LASTI_BITS & ((1u << CODE_BITS) - 1)) - 1;
    caller->lasti = (int32_t)(packed & ((1u << LASTI_BITS) - 1)) - 1;
    *outer = (uint32_t)(packed >> (CODE_BITS + LASTI_BITS));
    return 1;
}
