#ifndef TGD_GRAPH_PANEL_H
#define TGD_GRAPH_PANEL_H

#include "fold.h"
#include "svg.h"

/* The graph in its panel, with its legend. TGD_OK, TGD_ENOMEM, TGD_EGRAPHVIZ. */
tgd_status tgd_graph_panel_draw(tgd_text *out, const tgd_units *units, double x, double y, double w, double h,
                                tgd_error *err);

#endif
