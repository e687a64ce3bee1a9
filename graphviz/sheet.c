/* The SVG: a sheet of fixed size in landscape, readable on any background, without scripts, links or fonts. */
#include "sheet.h"

#include "documents.h"
#include "graph_panel.h"
#include "side_panels.h"
#include "timeline_panel.h"

#include <math.h>
#include <string.h>

enum { BANNER_W = TGD_SHEET_WIDTH - 2 * TGD_MARGIN, TEXT_X = TGD_MARGIN + 116, TEXT_W = BANNER_W - 132 };

static void count(tgd_text *text, size_t n, const char *one, const char *many)
{
    tgd_text_count(text, n);
    tgd_text_str(text, " ");
    tgd_text_str(text, n == 1 ? one : many);
}

/* "1 error, 2 warnings" */
static void count_findings(tgd_text *text, const tgd_report *report)
{
    const char *between = "";
    if (report->n_errors > 0) {
        count(text, report->n_errors, "error", "errors");
        between = ", ";
    }
    if (report->n_warnings > 0) {
        tgd_text_str(text, between);
        count(text, report->n_warnings, "warning", "warnings");
        between = ", ";
    }
    if (report->n_notes > 0) {
        tgd_text_str(text, between);
        count(text, report->n_notes, "note", "notes");
        between = ", ";
    }
    if (between[0] == '\0') {
        tgd_text_str(text, "nothing to report");
    }
}

static void write_action(tgd_text *text, const tgd_report *report)
{
    size_t before = text->n;
    if (report->n_errors + report->n_warnings > 0) {
        tgd_hint_write(text, report, 0);
        if (text->n > before && text->status == TGD_OK && text->bytes[before] >= 'a' && text->bytes[before] <= 'z') {
            text->bytes[before] = (char)(text->bytes[before] - 'a' + 'A');
        }
        return;
    }
    tgd_summary summary;
    tgd_report_summary(report, &summary);
    tgd_text_str(text, "Nothing to change.");
    if (summary.n_unchecked > 0) {
        tgd_text_str(text, " Not everything could be checked: ");
        count(text, summary.n_unchecked, "saved tensor or node.", "saved tensors or nodes.");
    }
}

/* Of the verdict without "(and 2 more errors)": the line above it counts them. */
static size_t verdict_length(const char *verdict)
{
    size_t n = strlen(verdict);
    const char *more = NULL;
    for (const char *at = strstr(verdict, " (and "); at != NULL; at = strstr(at + 1, " (and ")) {
        more = at;
    }
    bool counted = more != NULL && n > 0 && verdict[n - 1] == ')' && strchr(more, ')') == verdict + n - 1 &&
                   strstr(more, " more") != NULL;
    return counted ? (size_t)(more - verdict) : n;
}

/* Returns the banner's height. */
static double draw_banner(tgd_text *out, const tgd_report *report)
{
    bool error = report->n_errors > 0;
    bool healthy = !error && report->n_warnings == 0;
    tgd_severity severity = error ? TGD_ERROR : TGD_WARNING;
    tgd_tone tone = healthy ? tgd_tone_ok() : tgd_tone_of(severity);
    double x = TGD_MARGIN;
    double y = TGD_TOP;
    double size = 34;
    tgd_text said;
    tgd_text_init(&said, NULL, NULL);
    tgd_text_bytes(&said, report->verdict, verdict_length(report->verdict));
    const char *verdict = tgd_text_words(out, &said);
    size_t n = strlen(verdict);
    while (size > 30 && tgd_style_width(verdict, n, size, TGD_BOLD) > TEXT_W) {
        size -= 2;
    }
    tgd_type verdict_type = {size, TGD_BOLD, TGD_COLOUR_INK};
    size_t verdict_lines = tgd_svg_paragraph(NULL, 0, 0, 0, verdict, verdict_type, TEXT_W, 2);
    tgd_text action;
    tgd_text_init(&action, NULL, NULL);
    write_action(&action, report);
    const char *words = tgd_text_words(out, &action);
    tgd_type action_type = {19, TGD_SANS, TGD_COLOUR_INK};
    size_t action_lines = tgd_svg_paragraph(NULL, 0, 0, 0, words, action_type, TEXT_W - 24, 2);
    double h = TGD_BANNER_HEIGHT + 38 * (double)(verdict_lines > 1) + 25 * (double)(action_lines > 1);

    tgd_svg_rect(out, x, y, BANNER_W, h, TGD_RADIUS, (tgd_pen){tone.tint, tone.stroke, 1, NULL});
    tgd_svg_rect(out, x, y, 12, h, 6, (tgd_pen){.fill = tone.fill});
    tgd_svg_icon(out, x + 62, y + h / 2, healthy ? NULL : &severity, 30);
    tgd_text over;
    tgd_text_init(&over, NULL, NULL);
    tgd_text_str(&over, report->measures != NULL ? report->n_errors > 0 ? "seen in this backward   ·   "
                                                              : "measured in this backward   ·   "
                        : report->attempted      ? "seen before this backward   ·   "
                                                 : "predicted without running backward   ·   ");
    count_findings(&over, report);
    tgd_svg_begin_line(out, TEXT_X, y + 31);
    tgd_svg_piece(out, healthy ? "OK" : error ? "ERROR" : "WARNING", (tgd_type){14, TGD_BOLD, tone.text},
                  300);
    tgd_svg_piece(out, "   ", (tgd_type){14, TGD_SANS, TGD_COLOUR_INK2}, 30);
    tgd_svg_piece(out, tgd_text_words(out, &over), (tgd_type){14, TGD_SANS, TGD_COLOUR_INK2}, 900);
    tgd_svg_end_line(out);
    tgd_text_drop(&over);
    tgd_svg_paragraph(out, TEXT_X, y + 72, 38, verdict, verdict_type, TEXT_W, 2);
    tgd_text_drop(&said);
    double at = y + 112 + 38 * (double)(verdict_lines > 1);
    if (!healthy) {
        tgd_svg_label(out, TEXT_X, at, "→", (tgd_type){19, TGD_BOLD, tone.text}, TGD_START, 24);
    }
    tgd_svg_paragraph(out, TEXT_X + (healthy ? 0 : 26), at, 25, words, action_type, TEXT_W - 24, 2);
    tgd_text_drop(&action);
    return h;
}

/* Devices and dtypes of the leaves, as many different ones as one line carries. */
static void write_kinds(tgd_text *text, const tgd_graph *graph)
{
    int seen[6] = {-1, -1, -1, -1, -1, -1};
    for (int what = 0; what < 2; what++) {
        int n = 0;
        for (uint32_t i = 0; i < graph->n_leaves && n < 3; i++) {
            int kind = what == 0 ? graph->leaves[i].device_type : graph->leaves[i].dtype;
            bool is_new = kind >= 0;
            for (int k = 0; k < n; k++) {
                is_new = is_new && seen[what * 3 + k] != kind;
            }
            if (is_new) {
                seen[what * 3 + n++] = kind;
                tgd_text_str(text, n > 1 ? ", " : "   ·   ");
                tgd_text_str(text, what == 0 ? tgd_torch_device_name(kind) : tgd_torch_dtype_name(kind));
            }
        }
    }
}

static void draw_footer(tgd_text *out, const tgd_report *report)
{
    const char *built = tgd_built_for();
    tgd_type quiet = {12.5, TGD_SANS, TGD_COLOUR_INK3};
    tgd_summary s;
    tgd_report_summary(report, &s);
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    tgd_text_str(&words, "   torch ");
    tgd_text_bytes(&words, built, strcspn(built, " "));
    write_kinds(&words, &report->graph);
    tgd_text_str(&words, "   ·   ");
    count(&words, s.n_nodes, "node", "nodes");
    tgd_text_str(&words, "   ·   ");
    count(&words, s.n_leaves, "leaf", "leaves");
    tgd_text_str(&words, "   ·   ");
    tgd_text_size(&words, s.saved_bytes);
    tgd_text_str(&words, " saved");
    tgd_svg_begin_line(out, TGD_MARGIN, TGD_FOOTER_Y);
    tgd_svg_piece(out, "torchgraphdbg", (tgd_type){12.5, TGD_BOLD, TGD_COLOUR_INK}, 200);
    tgd_svg_piece(out, tgd_text_words(out, &words), quiet, 1100);
    tgd_svg_end_line(out);
    tgd_text_drop(&words);
}

tgd_status tgd_sheet_draw(tgd_text *out, const tgd_units *units, tgd_fold *drawn, tgd_error *err)
{
    const tgd_report *report = units->report;
    tgd_text_printf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                    "role=\"img\" aria-labelledby=\"tgd-title\"><title id=\"tgd-title\">torchgraphdbg: ",
                    TGD_SHEET_WIDTH, TGD_SHEET_HEIGHT, TGD_SHEET_WIDTH, TGD_SHEET_HEIGHT);
    tgd_text_xml(out, report->verdict);
    tgd_text_str(out, "</title>\n");
    if (drawn == NULL) { /* else the page has the style sheet */
        tgd_style_write(out);
    }
    tgd_svg_rect(out, 0, 0, TGD_SHEET_WIDTH, TGD_SHEET_HEIGHT, 0, (tgd_pen){.fill = TGD_COLOUR_BG});
    double y = TGD_TOP + draw_banner(out, report) + TGD_GUTTER;
    /* where backward raised there is more to see in the graph */
    bool fails = report->root_fails || report->first_error < report->n_executed;
    bool timeline = !fails && tgd_timeline_shows(units);
    double end = TGD_PANELS_END - (timeline ? TGD_TIMELINE_HEIGHT + TGD_GUTTER : 0);
    tgd_status status = tgd_graph_panel_draw(out, units, TGD_MARGIN, y, TGD_GRAPH_WIDTH, end - y, drawn, err);
    if (status == TGD_OK) {
        status = tgd_side_panels_draw(out, units, y, end, err);
    }
    if (status == TGD_OK && timeline) {
        tgd_timeline_panel_draw(out, units, end + TGD_GUTTER);
    }
    draw_footer(out, report);
    tgd_text_str(out, "</svg>\n");
    return status;
}

tgd_status tgd_sheet_write(const tgd_report *report, const tgd_view *view, tgd_sheet_painter draw, tgd_sink sink,
                           void *context, tgd_error *err)
{
    tgd_units units;
    tgd_text out;
    tgd_status status = tgd_units_make(&units, report, err);
    if (status != TGD_OK) {
        return status;
    }
    tgd_text_init(&out, NULL, NULL); /* a picture that fails half way is not begun */
    status = tgd_units_view(&units, view, err);
    if (status == TGD_OK) {
        status = draw(&out, &units, err);
    }
    tgd_units_clear(&units);
    if (status != TGD_OK) {
        tgd_text_drop(&out);
        return status;
    }
    out.sink = sink;
    out.context = context;
    return tgd_text_finish(&out, err);
}

static tgd_status draw_alone(tgd_text *out, const tgd_units *units, tgd_error *err)
{
    return tgd_sheet_draw(out, units, NULL, err);
}

tgd_status tgd_svg_write(const tgd_report *report, const tgd_view *view, tgd_sink sink, void *context, tgd_error *err)
{
    return tgd_sheet_write(report, view, draw_alone, sink, context, err);
}
