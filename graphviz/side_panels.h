/* The right-hand column of the sheet. */
#ifndef TGD_SIDE_PANELS_H
#define TGD_SIDE_PANELS_H

#include "fold.h"
#include "svg.h"

/* Findings or checks, how the first fault came about, the graph in numbers, what is held in memory: as much as fits
   between y and end. */
tgd_status tgd_side_panels_draw(tgd_text *out, const tgd_units *units, double y, double end, tgd_error *err);

/* The gradient's size over the units; needs units->n_measured > 0. */
void tgd_flow_panel_draw(tgd_text *out, const tgd_units *units, double y, double h);

/* ---- between side_panels.c and findings_panel.c ---- */

enum { TGD_STORY_HEIGHT = 188 };

/* As many findings as fit into `most`, the first ones in full. *height is what they took. */
tgd_status tgd_findings_panel_draw(tgd_text *out, double *height, const tgd_units *units, double y, double most,
                                   tgd_error *err);
/* Saved, overwritten, needed again: a finding of kind TGD_MODIFIED_IN_PLACE with its saved tensor. */
void tgd_story_panel_draw(tgd_text *out, const tgd_report *report, uint32_t finding, double y);

#endif
