#ifndef TGD_SHEET_H
#define TGD_SHEET_H

#include "fold.h"

/* What a report is drawn from, for one view (NULL: as it comes). TGD_OK, TGD_ENOMEM, TGD_EINVAL; release with
   tgd_units_clear() after TGD_OK alone. */
tgd_status tgd_sheet_units(tgd_units *out, const tgd_report *report, const tgd_view *view, tgd_error *err);

/**
 * The whole picture as one SVG element.
 * @param[out] drawn  the boxes of its graph, also after a failure: release with tgd_fold_clear(). With it, the style
 *                    sheet is left to the page around. Or NULL
 * @return TGD_OK, TGD_ENOMEM, TGD_EGRAPHVIZ; a failure of out is out's
 */
tgd_status tgd_sheet_draw(tgd_text *out, const tgd_units *units, tgd_fold *drawn, tgd_error *err);

#endif
