/* A hash table from addresses (or any 64-bit keys but 0) to 32-bit indices. Keys that differ only in their low six
   bits are looked through one by one: spread small numbers first. */
#ifndef TGD_ADDRESS_MAP_H
#define TGD_ADDRESS_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tgd_address_map {
    struct tgd_address_slot {
        uint64_t key;
        uint32_t value;
    } *slots; /* Owned */
    size_t mask, n;
} tgd_address_map;

/* Where the key's value is, inserted as TGD_NONE if it was not there; NULL when out of memory. The pointer holds
   until the next insertion. */
uint32_t *tgd_address_map_at(tgd_address_map *map, uint64_t key);

/* The value, or TGD_NONE. */
uint32_t tgd_address_map_find(const tgd_address_map *map, uint64_t key);

/* Asks for the key's slot ahead of its use. */
void tgd_address_map_prefetch(const tgd_address_map *map, uint64_t key);

void tgd_address_map_clear(tgd_address_map *map);

/* Room for `need` elements of `size` bytes: the array, moved if need be and at least doubled, or NULL with the old
   one untouched when there is no memory or more than 2^32 - 2 elements are asked for. */
void *tgd_grow(void *array, uint32_t *capacity, size_t need, size_t size);

#endif
