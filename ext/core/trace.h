/* Where a node was made, as the program's own anomaly mode wrote it down (torch.autograd.set_detect_anomaly). */
#ifndef TGD_TRACE_H
#define TGD_TRACE_H

#include "record.h"
#include "shim.h"

/* Filled by tgd_request.trace, which is called with the GIL held, on a node of the graph that has metadata or on one
   that made such a node. It returns 0 where nothing is known; what it points to is good until its next call on this
   thread. */
typedef struct tgd_trace {
    const tgd_source *frames; /* the user's, innermost first; without module and caller */
    size_t n;
    bool only_calls; /* the first of them only called backward */
    const tgd_torch_node *made_by; /* the node that was running, or NULL; lives as long as the node asked about */
} tgd_trace;

#endif
