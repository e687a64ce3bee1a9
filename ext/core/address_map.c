#if !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE /* madvise */
#endif

#include "address_map.h"

#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "torchgraphdbg/tgd.h"

enum { FIRST_SIZE = 1024, FIRST_ROWS = 256, HUGE_PAGE = 1 << 21, HUGE_FROM = 1 << 22 };

/* Objects made one after the other lie near each other, and are met one after the other: keeping their order within
   four megabytes keeps the table in cache. Those are scattered (2^64 / golden ratio), or large aligned strides would
   all fall on a few slots. What is looked up by address here is never smaller than 64 bytes. */
static size_t slot_of(const tgd_address_map *map, uint64_t key)
{
    return (size_t)((key >> 6) + ((key >> 22) * 0x9E3779B97F4A7C15u >> 24)) & map->mask;
}

void tgd_address_map_prefetch(const tgd_address_map *map, uint64_t key)
{
#if defined(__GNUC__)
    if (map->slots != NULL) {
        __builtin_prefetch(&map->slots[slot_of(map, key)], 1);
    }
#else
    (void)map;
    (void)key;
#endif
}

static struct tgd_address_slot *look(const tgd_address_map *map, uint64_t key)
{
    size_t i = slot_of(map, key);
    while (map->slots[i].key != 0 && map->slots[i].key != key) {
        i = (i + 1) & map->mask;
    }
    return &map->slots[i];
}

/* Zeroed slots. A large table is met at random: huge pages, where the system has them to give, save most of the page
   faults and of the walks through page tables. */
static struct tgd_address_slot *new_slots(size_t n)
{
    struct tgd_address_slot *slots;
    size_t bytes = n * sizeof *slots;
#if defined(__linux__)
    if (bytes >= HUGE_FROM) {
        slots = aligned_alloc(HUGE_PAGE, bytes); /* bytes is a power of two, so a multiple */
        if (slots != NULL) {
            madvise(slots, bytes, MADV_HUGEPAGE);
            memset(slots, 0, bytes);
        }
        return slots;
    }
#endif
    slots = calloc(n, sizeof *slots);
    return slots;
}

static bool enlarge(tgd_address_map *map)
{
    size_t size = map->slots == NULL ? FIRST_SIZE : (map->mask + 1) * 2;
    tgd_address_map larger = {.slots = new_slots(size), .mask = size - 1, .n = map->n};
    if (larger.slots == NULL) {
        return false;
    }
    for (size_t i = 0; map->slots != NULL && i <= map->mask; i++) {
        if (map->slots[i].key != 0) {
            *look(&larger, map->slots[i].key) = map->slots[i];
        }
    }
    free(map->slots);
    *map = larger;
    return true;
}

uint32_t *tgd_address_map_at(tgd_address_map *map, uint64_t key)
{
    if ((map->slots == NULL || (map->n + 1) * 2 > map->mask + 1) && !enlarge(map)) {
        return NULL;
    }
    struct tgd_address_slot *slot = look(map, key);
    if (slot->key == 0) {
        slot->key = key;
        slot->value = TGD_NONE;
        map->n++;
    }
    return &slot->value;
}

uint32_t tgd_address_map_find(const tgd_address_map *map, uint64_t key)
{
    if (map->slots == NULL || key == 0) {
        return TGD_NONE;
    }
    const struct tgd_address_slot *slot = look(map, key);
    return slot->key == 0 ? TGD_NONE : slot->value;
}

void tgd_address_map_clear(tgd_address_map *map)
{
    free(map->slots);
    *map = (tgd_address_map){0};
}

void *tgd_grow(void *array, uint32_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity) {
        return array;
    }
    if (need >= UINT32_MAX) {
        return NULL;
    }
    size_t larger = *capacity < FIRST_ROWS ? FIRST_ROWS : *capacity > UINT32_MAX / 2 ? UINT32_MAX - 1 : (size_t)*capacity * 2;
    if (larger < need) {
        larger = need;
    }
    if (larger > SIZE_MAX / size) {
        return NULL;
    }
    void *moved = realloc(array, larger * size);
    if (moved != NULL) {
        *capacity = (uint32_t)larger;
    }
    return moved;
}
