/* The right-hand column of the sheet. */
#ifndef TGD_SIDE_PANELS_H
#define TGD_SIDE_PANELS_H

#include "fold.h"
#include "svg.h"

/* Findings or checks, how the first fault came about, the graph in numbers, what is held in memory: as much as fits
   between y and end. */
tgd_status tgd_side_panels_draw(tgd_text *out, const tgd_units *units, double y, double end, tgd_error *err);

#endif
