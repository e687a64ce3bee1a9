/* One column of boxes laid out by dot, inside this process. */
#ifndef TGD_LAYOUT_H
#define TGD_LAYOUT_H

#include "svg.h"

typedef struct tgd_layout_node {
    double w, h;
    uint32_t segment; /* ascending; a later segment stands wholly below an earlier one */
    bool spine;       /* keep these above each other */
    double x, y;      /* out: middle, y downwards */
} tgd_layout_node;

typedef struct tgd_layout_edge {
    uint32_t from, to;
    bool skip;         /* there is a longer way too: let it bend */
    tgd_point *points; /* out: Owned, a spline of 1 + 3k points */
    uint32_t n_points;
} tgd_layout_edge;

typedef struct tgd_layout {
    tgd_layout_node *nodes; /* Owned */
    tgd_layout_edge *edges; /* Owned */
    uint32_t n_nodes, n_edges;
    double rank_gap, node_gap;
    double width, height; /* out */
} tgd_layout;

/**
 * Fill in every out field. Any thread; one layout at a time in a process, under a lock that survives fork().
 * Writes nothing to stderr and does not depend on the locale.
 * @return TGD_OK, TGD_ENOMEM, TGD_EGRAPHVIZ with Graphviz's own words
 */
tgd_status tgd_layout_run(tgd_layout *layout, tgd_error *err);
void tgd_layout_clear(tgd_layout *layout);

#endif
