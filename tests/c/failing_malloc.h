/*
 * Allocations that fail on request, and a count of the blocks alive. Include in one file of a program that is linked
 * with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free: only calls from the objects of that program are
 * seen, not those inside shared libraries.
 */
#ifndef FAILING_MALLOC_H
#define FAILING_MALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *block, size_t size);
void __real_free(void *block);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *block, size_t size);
void __wrap_free(void *block);

static size_t failing_left = SIZE_MAX; /* allocations until one is refused */
static bool failing_on;                /* every one after it is refused as well */
static size_t failing_refused, failing_seen;
static long failing_alive;

/* Refuse the allocation after `left` more, and with `on` all after it. */
static inline void failing_arm(size_t left, bool on)
{
    failing_left = left;
    failing_on = on;
    failing_refused = failing_seen = 0;
}

static inline void failing_disarm(void)
{
    failing_left = SIZE_MAX;
    failing_on = false;
}

static bool failing_refuses(void)
{
    failing_seen++;
    if (failing_left == SIZE_MAX) {
        return false;
    }
    if (failing_left > 0) {
        failing_left--;
        return false;
    }
    if (!failing_on) {
        failing_left = SIZE_MAX;
    }
    failing_refused++;
    return true;
}

void *__wrap_malloc(size_t size)
{
    void *block = failing_refuses() ? NULL : __real_malloc(size);
    failing_alive += block != NULL;
    return block;
}

void *__wrap_calloc(size_t n, size_t size)
{
    void *block = failing_refuses() ? NULL : __real_calloc(n, size);
    failing_alive += block != NULL;
    return block;
}

void *__wrap_realloc(void *block, size_t size)
{
    void *moved = failing_refuses() ? NULL : __real_realloc(block, size);
    failing_alive += block == NULL && moved != NULL;
    return moved;
}

void __wrap_free(void *block)
{
    failing_alive -= block != NULL;
    __real_free(block);
}

#endif
