/* Cutting a row of units into intervals: what fold_choose.c decides with. */
#ifndef TGD_FOLD_CUT_H
#define TGD_FOLD_CUT_H

#include "fold.h"

typedef struct tgd_item {
    uint32_t a, b;    /* units a .. b - 1 */
    uint32_t context; /* module that was opened to see it */
    uint32_t module;  /* TGD_FOLD_MODULE: which */
    uint32_t copies;  /* TGD_FOLD_REPEAT, else 1 */
    bool identical;   /* TGD_FOLD_REPEAT */
    bool closed;      /* not to be opened any further */
    tgd_fold_form form;
} tgd_item;

typedef struct tgd_items {
    tgd_item *rows; /* Owned */
    uint32_t n, capacity;
} tgd_items;

tgd_status tgd_items_add(tgd_items *items, tgd_item item, tgd_error *err);
void tgd_items_clear(tgd_items *items);

static inline bool tgd_item_has_must(const tgd_units *units, const tgd_item *item)
{
    for (uint32_t u = item->a; u < item->b; u++) {
        if (units->must[u]) {
            return true;
        }
    }
    return false;
}

/**
 * What an item consists of, in at most about `most` items that cover the same units (more only where each holds a
 * unit that must be shown).
 * @param[out] out  emptied first
 */
tgd_status tgd_item_open(tgd_items *out, const tgd_units *units, const tgd_item *item, uint32_t most, tgd_error *err);

/* Where gradients lose or gain much, or a number of boxes was asked for, a repeat says too little: cut it into several
   with fewer copies, in all at most about `budget` items. */
tgd_status tgd_items_spread(tgd_items *items, const tgd_units *units, uint32_t budget, tgd_error *err);
/* Every unit by itself. */
tgd_status tgd_items_all(tgd_items *items, const tgd_units *units, tgd_error *err);

#endif
