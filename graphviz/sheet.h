#ifndef TGD_SHEET_H
#define TGD_SHEET_H

#include "fold.h"

/**
 * The whole picture as one SVG element.
 * @param[out] drawn  the boxes of its graph, also after a failure: release with tgd_fold_clear(). With it, the style
 *                    sheet is left to the page around. Or NULL
 * @return TGD_OK, TGD_ENOMEM, TGD_EGRAPHVIZ; a failure of out is out's
 */
tgd_status tgd_sheet_draw(tgd_text *out, const tgd_units *units, tgd_fold *drawn, tgd_error *err);

/* Draws into out, which is empty and has no sink. As tgd_sheet_draw(). */
typedef tgd_status (*tgd_sheet_painter)(tgd_text *out, const tgd_units *units, tgd_error *err);

/* A document that is drawn: all of it goes to the sink, or nothing does. TGD_OK, TGD_ENOMEM, TGD_EIO, TGD_EGRAPHVIZ,
   TGD_EINVAL. */
tgd_status tgd_sheet_write(const tgd_report *report, const tgd_view *view, tgd_sheet_painter draw, tgd_sink sink,
                           void *context, tgd_error *err);

#endif
