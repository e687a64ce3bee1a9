#ifndef TGD_TIMELINE_PANEL_H
#define TGD_TIMELINE_PANEL_H

#include "fold.h"
#include "svg.h"

/* Was anything timed that a timeline could show? */
bool tgd_timeline_shows(const tgd_units *units);
/* Backward in time, TGD_TIMELINE_HEIGHT high, as wide as the sheet. */
void tgd_timeline_panel_draw(tgd_text *out, const tgd_units *units, double y);

#endif
