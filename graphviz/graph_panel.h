#ifndef TGD_GRAPH_PANEL_H
#define TGD_GRAPH_PANEL_H

#include "fold.h"
#include "svg.h"

/**
 * The graph in its panel, with its legend.
 * @param[out] drawn  the boxes, release with tgd_fold_clear(); or NULL
 * @return TGD_OK, TGD_ENOMEM, TGD_EGRAPHVIZ
 */
tgd_status tgd_graph_panel_draw(tgd_text *out, const tgd_units *units, double x, double y, double w, double h,
                                tgd_fold *drawn, tgd_error *err);

/* What one box holds, as a card of its own with its corner at 0, 0. *w and *h are how large it became. */
tgd_status tgd_graph_inside_draw(tgd_text *out, tgd_fold *drawn, const tgd_units *units, const tgd_fold_box *box,
                                 const char *title, double *w, double *h, tgd_error *err);

#endif
