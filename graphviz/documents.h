/* The documents that graphviz/ writes. */
#ifndef TGD_DOCUMENTS_H
#define TGD_DOCUMENTS_H

#include "report.h"

/* The sheet. TGD_OK, TGD_ENOMEM, TGD_EIO, TGD_EGRAPHVIZ, TGD_EINVAL. */
tgd_status tgd_svg_write(const tgd_report *report, const tgd_view *view, tgd_sink sink, void *context, tgd_error *err);
/* The sheet in a page with all that a browser adds. TGD_OK, TGD_ENOMEM, TGD_EIO, TGD_EGRAPHVIZ, TGD_EINVAL. */
tgd_status tgd_html_write(const tgd_report *report, const tgd_view *view, tgd_sink sink, void *context, tgd_error *err);
/* The folded graph for dot, a statement a line. TGD_OK, TGD_ENOMEM, TGD_EIO. */
tgd_status tgd_gv_write(const tgd_report *report, const tgd_view *view, tgd_sink sink, void *context, tgd_error *err);

#endif
