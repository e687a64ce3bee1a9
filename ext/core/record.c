#include "record.h"

#include <stdlib.h>

void tgd_record_keep(const tgd_record *record)
{
    __atomic_add_fetch(&((tgd_record *)record)->shares, 1, __ATOMIC_RELAXED);
}

void tgd_record_free(const tgd_record *record)
{
    tgd_record *owned = (tgd_record *)record;
    if (owned == NULL || __atomic_sub_fetch(&owned->shares, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    free(owned->ops);
    free(owned->writes);
    free(owned->runs);
    free(owned->taken);
    free(owned->sums);
    free(owned->ids);
    free(owned);
}
