/* The boxes of the graph: their words, their sizes, their drawing. */
#ifndef TGD_BOXES_H
#define TGD_BOXES_H

#include "arrange.h"

/* Sizes for every box of a fold. */
void tgd_boxes_measure(tgd_box_place *places, const tgd_fold *fold);

void tgd_box_draw(tgd_text *out, const tgd_fold *fold, uint32_t box, const tgd_box_place *place);

/* A box that stands out because of its finding, not merely numbered. */
bool tgd_box_is_flagged(const tgd_fold *fold, uint32_t box);

/* "saved result v0, now v1": a finding in a few words, as they stand in its box and as its heading. */
void tgd_finding_phrase(tgd_text *text, const tgd_report *report, uint32_t finding);

/* Fill for a gradient of this size: from TGD_COLOUR_H6 (as large as any) down to H0, a decade or more a shade. */
tgd_colour tgd_heat(const tgd_units *units, const tgd_unit_measure *measure);
/* The gradient's size to the right of the title, time below it unless `place` (the words on that line) leaves no room,
   and a bar against the longest. Returns how much of the title's line it takes. */
double tgd_box_measure_draw(tgd_text *out, const tgd_fold *fold, uint32_t box, double x, double y, double w, double h,
                            const char *place, tgd_colour ink);
/* "2.7e-8", "NaN", "0", "" where it is not known */
void tgd_rms_phrase(tgd_text *text, const tgd_unit_measure *measure);

/* "590 k", "11.2 M": a number of elements */
void tgd_quantity(tgd_text *text, int64_t n);

#endif
