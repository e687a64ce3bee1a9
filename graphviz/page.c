/* The HTML: the sheet, its data and its script in one file that asks nobody for anything. */
#include "page.h"

#include "documents.h"
#include "sheet.h"
#include "style.h"

#include <string.h>

/* What folds may take of the bytes that the sheet leaves: the rest is for nodes. */
static const double share_of_folds = 0.5;
enum { FRAME_BYTES = 9000 /* the elements below, and the style sheet's colours */ };

static void begin_page(tgd_text *out, const tgd_report *report)
{
    /* The policy is the second lock: no label can load anything or run, whatever the escapes let through. */
    tgd_text_str(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; script-src '");
    tgd_text_str(out, tgd_page_script_hash);
    tgd_text_str(out, "'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                      "<meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n<title>");
    tgd_text_xml(out, report->verdict);
    tgd_text_str(out, "</title>\n<style>\n");
    tgd_style_write_page(out);
    tgd_text_str(out, tgd_page_style);
    tgd_text_str(out,
                 "</style>\n</head>\n<body>\n<header>\n<b class=\"name\">torchgraphdbg</b>\n"
                 "<div class=\"find\" role=\"search\"><input id=\"search\" type=\"search\" autocomplete=\"off\" "
                 "spellcheck=\"false\" placeholder=\"Search: op, module, file:line, parameter\" "
                 "aria-label=\"Search nodes\" role=\"combobox\" aria-expanded=\"false\" aria-controls=\"results\">"
                 "<kbd>/</kbd><ul id=\"results\" role=\"listbox\" hidden></ul></div>\n"
                 "<div class=\"findings\"><button id=\"next\" type=\"button\" hidden></button></div>\n"
                 "<div class=\"view\"><button id=\"smaller\" type=\"button\" aria-label=\"Zoom out\" title=\"Zoom out "
                 "(-)\">−</button><button id=\"fit\" type=\"button\" title=\"Show all (0)\">100 %</button>"
                 "<button id=\"larger\" type=\"button\" aria-label=\"Zoom in\" title=\"Zoom in (+)\">+</button></div>\n"
                 "<button id=\"theme\" type=\"button\" title=\"Light or dark (d)\"></button>\n"
                 "<button id=\"keys\" type=\"button\" aria-label=\"Keys and limits\" title=\"Keys and limits (?)\" "
                 "aria-expanded=\"false\">?</button>\n</header>\n"
                 "<noscript><p>Search, details and folds need scripts, which are off here. The picture is "
                 "complete.</p></noscript>\n<main id=\"stage\" tabindex=\"-1\">\n");
}

static void end_page(tgd_text *out, const tgd_page *page)
{
    tgd_text_str(out, "</main>\n<aside id=\"card\" role=\"dialog\" aria-label=\"Details\" hidden></aside>\n"
                      "<aside id=\"help\" role=\"dialog\" aria-label=\"Keys and limits\" hidden></aside>\n");
    for (uint32_t p = 1; p < page->n_pictures; p++) {
        tgd_text_printf(out, "<template id=\"inside-%lu\"><svg>", (unsigned long)p);
        tgd_text_bytes(out, page->pictures[p].drawing.bytes, page->pictures[p].drawing.n);
        tgd_text_str(out, "</svg></template>\n");
    }
    tgd_text_str(out, "<script id=\"data\" type=\"application/json\">");
}

static tgd_status write_page(tgd_text *out, const tgd_units *units, tgd_error *err)
{
    tgd_page page = {.units = units};
    tgd_fold sheet = {0};
    const size_t script = strlen(tgd_page_script);
    begin_page(out, units->report);
    tgd_status status = tgd_sheet_draw(out, units, &sheet, err);
    size_t used = out->n + script + FRAME_BYTES;
    if (status == TGD_OK) {
        size_t room = used < TGD_PAGE_BYTES ? TGD_PAGE_BYTES - used : 0;
        status = tgd_page_open_folds(&page, &sheet, (size_t)((double)room * share_of_folds), err);
    }
    if (status == TGD_OK) {
        end_page(out, &page);
        used = out->n + script + FRAME_BYTES;
        status = tgd_page_data_write(out, &page, used < TGD_PAGE_BYTES ? TGD_PAGE_BYTES - used : 0, err);
    }
    tgd_text_str(out, "</script>\n<script>");
    tgd_text_str(out, tgd_page_script);
    tgd_text_str(out, "</script>\n</body>\n</html>\n");
    tgd_fold_clear(&sheet);
    tgd_page_clear(&page);
    return status;
}

tgd_status tgd_html_write(const tgd_report *report, const tgd_view *view, tgd_sink sink, void *context, tgd_error *err)
{
    return tgd_sheet_write(report, view, write_page, sink, context, err);
}
