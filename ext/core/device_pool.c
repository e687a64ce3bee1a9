#include "device_pool.h"

#include <stdlib.h>

/* A span's word: how often it was used (so that an old token finds nothing), then its phase. */
enum { FREE = 0, TAKEN, OPEN, ENDING, ENDED, PHASES = 8, USES = 1 << 24, INDEX_BITS = 32 };

static uint32_t uses(uint32_t word)
{
    return word / PHASES % USES;
}

static void set_phase(tgd_span *span, uint32_t phase)
{
    uint32_t word = atomic_load_explicit(&span->word, memory_order_relaxed);
    atomic_store_explicit(&span->word, word / PHASES * PHASES + phase, memory_order_release);
}

tgd_device_pool *tgd_device_pool_new(uint32_t capacity)
{
    tgd_device_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        return NULL;
    }
    pool->spans = calloc(capacity, sizeof *pool->spans);
    pool->order = malloc(capacity * sizeof *pool->order);
    if (pool->spans == NULL || pool->order == NULL || pthread_mutex_init(&pool->lock, NULL) != 0) {
        free(pool->spans);
        free(pool->order);
        free(pool);
        return NULL;
    }
    pool->capacity = capacity;
    pool->free = pool->first = pool->last = pool->reference = TGD_NONE;
    return pool;
}

void tgd_device_pool_free(tgd_device_pool *pool, const tgd_device_events *events, int device)
{
    if (pool == NULL) {
        return;
    }
    if (events != NULL) {
        for (uint32_t i = 0; i < pool->used; i++) {
            events->destroy(events->self, device, pool->spans[i].begin);
            events->destroy(events->self, device, pool->spans[i].end);
        }
        for (uint32_t i = 0; i < TGD_REFERENCES; i++) {
            events->destroy(events->self, device, pool->references[i].event);
        }
    }
    /* Not the lock: in a forked child another thread may have held it. It owns nothing. */
    free(pool->spans);
    free(pool->order);
    free(pool);
}

uint32_t tgd_device_pool_idle_reference(const tgd_device_pool *pool)
{
    for (uint32_t i = 0; i < TGD_REFERENCES; i++) {
        if (pool->references[i].spans == 0 && i != pool->reference) {
            return i;
        }
    }
    return TGD_NONE;
}

tgd_span *tgd_device_pool_take(tgd_device_pool *pool)
{
    uint32_t i = pool->free;
    if (i != TGD_NONE) {
        pool->free = pool->spans[i].next;
    } else if (pool->used < pool->capacity) {
        i = pool->used++;
    } else {
        return NULL;
    }
    tgd_span *span = &pool->spans[i];
    span->next = TGD_NONE;
    span->previous = pool->last;
    if (pool->last != TGD_NONE) {
        pool->spans[pool->last].next = i;
    } else {
        pool->first = i;
    }
    pool->last = i;
    span->reference = pool->reference;
    pool->references[pool->reference].spans++;
    uint32_t word = atomic_load_explicit(&span->word, memory_order_relaxed);
    atomic_store_explicit(&span->word, (uses(word) + 1) % USES * PHASES + TAKEN, memory_order_relaxed);
    return span;
}

uint64_t tgd_device_pool_open(tgd_device_pool *pool, tgd_span *span)
{
    set_phase(span, OPEN);
    uint64_t used = uses(atomic_load_explicit(&span->word, memory_order_relaxed));
    return used << INDEX_BITS | (uint64_t)(span - pool->spans);
}

tgd_span *tgd_device_pool_ending(tgd_device_pool *pool, uint64_t token)
{
    uint32_t i = (uint32_t)token, used = (uint32_t)(token >> INDEX_BITS) % USES;
    if (i >= pool->capacity) {
        return NULL;
    }
    tgd_span *span = &pool->spans[i];
    uint32_t word = used * PHASES + OPEN;
    bool won = atomic_compare_exchange_strong(&span->word, &word, used * PHASES + ENDING);
    return won ? span : NULL;
}

void tgd_device_pool_close(tgd_span *span)
{
    set_phase(span, ENDED);
}

bool tgd_device_pool_ended(tgd_span *span)
{
    return atomic_load_explicit(&span->word, memory_order_acquire) % PHASES == ENDED;
}

/* Under the lock. */
static void give_back(tgd_device_pool *pool, tgd_span *span)
{
    uint32_t i = (uint32_t)(span - pool->spans);
    if (span->previous != TGD_NONE) {
        pool->spans[span->previous].next = span->next;
    } else {
        pool->first = span->next;
    }
    if (span->next != TGD_NONE) {
        pool->spans[span->next].previous = span->previous;
    } else {
        pool->last = span->previous;
    }
    pool->references[span->reference].spans--;
    set_phase(span, FREE);
    span->next = pool->free;
    pool->free = i;
}

void tgd_device_pool_abandon(tgd_device_pool *pool, tgd_span *span)
{
    pthread_mutex_lock(&pool->lock);
    give_back(pool, span);
    pthread_mutex_unlock(&pool->lock);
}

void tgd_device_pool_recycle(tgd_device_pool *pool, const uint32_t *indices, size_t n)
{
    pthread_mutex_lock(&pool->lock);
    for (size_t i = n; i > 0; i--) { /* so that the one used longest ago is taken first */
        give_back(pool, &pool->spans[indices[i - 1]]);
    }
    pthread_mutex_unlock(&pool->lock);
}

size_t tgd_device_pool_list(tgd_device_pool *pool)
{
    size_t n = 0;
    pthread_mutex_lock(&pool->lock);
    for (uint32_t i = pool->first; i != TGD_NONE; i = pool->spans[i].next) {
        pool->order[n++] = i;
    }
    pthread_mutex_unlock(&pool->lock);
    return n;
}
