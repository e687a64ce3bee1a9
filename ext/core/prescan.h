/* Is anything at all wrong with a graph? Much cheaper than a report, which is only worth making where this says yes. */
#ifndef TGD_PRESCAN_H
#define TGD_PRESCAN_H

#include "address_map.h"
#include "shim.h"

/* Memory that one look leaves to the next, so that a loop of them allocates nothing. */
typedef struct tgd_prescan {
    tgd_address_map seen;
    const tgd_torch_node **queue; /* Owned */
    uint32_t capacity;
} tgd_prescan;

/**
 * Walk the graph as tgd_report_capture() would and stop at the first thing that a report could call an error or a
 * warning about nodes, saved tensors or roots. Never says no where there is one; a yes is for a report to judge.
 * Holds, needs and runs what a capture does.
 * @return 1, 0, or a negative tgd_status
 */
int tgd_prescan_look(tgd_prescan *scan, const tgd_request *request, tgd_error *err);

void tgd_prescan_clear(tgd_prescan *scan);

#endif
