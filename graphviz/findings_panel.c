/* The findings in words, and how the first fault came about. */
#include "side_panels.h"

#include "boxes.h"

#include <stdlib.h>

enum {
    X = TGD_SIDE_X,
    W = TGD_SIDE_WIDTH,
    TEXT_X = X + 54,
    TEXT_W = W - 72,
    MOST_MESSAGE_LINES = 5,
    MOST_HINT_LINES = 6
};

static const tgd_type head_type = {16, TGD_BOLD, TGD_COLOUR_INK};
static const tgd_type body_type = {13, TGD_SANS, TGD_COLOUR_INK2};

/* First findings of the groups, in the order in which the picture numbers them. */
typedef struct groups {
    uint32_t *first; /* Owned, by number - 1 */
    uint32_t *size;  /* Owned, by number - 1 */
} groups;

static tgd_status find_groups(groups *g, const tgd_units *units, tgd_error *err)
{
    g->first = calloc(units->n_numbers + 1, sizeof *g->first);
    g->size = calloc(units->n_numbers + 1, sizeof *g->size);
    if (g->first == NULL || g->size == NULL) {
        return tgd_fail_memory(err);
    }
    for (uint32_t i = 0; i < units->report->n_findings; i++) {
        uint32_t k = units->number[i] - 1;
        g->first[k] = g->size[k]++ == 0 ? i : g->first[k];
    }
    return TGD_OK;
}

static void write_head(tgd_text *text, const tgd_report *report, uint32_t finding, uint32_t size)
{
    const tgd_finding_row *row = &report->findings[finding];
    if (row->kind == TGD_UNREACHED_PARAMETER) {
        if (size > 1) {
            tgd_text_count(text, size);
            tgd_text_str(text, " parameters get no gradient");
        } else {
            tgd_text_line(text, report->parameters[row->parameter].name, 60);
            tgd_text_str(text, " gets no gradient");
        }
        return;
    }
    if (row->saved != TGD_NONE || row->kind == TGD_NOT_DIFFERENTIABLE) {
        tgd_node_phrase(text, report, row->node);
        tgd_text_str(text, ": ");
        tgd_finding_phrase(text, report, finding);
    } else {
        tgd_text_str(text, tgd_finding_statement((tgd_finding_kind)row->kind));
    }
    if (size > 1) {
        tgd_text_str(text, ", and ");
        tgd_text_count(text, size - 1);
        tgd_text_str(text, " more like it");
    }
}

static void write_members(tgd_text *text, const tgd_units *units, uint32_t number, uint32_t size)
{
    const tgd_report *report = units->report;
    uint32_t shown = 0;
    for (uint32_t i = 0; i < report->n_findings && shown < 8; i++) {
        if (units->number[i] == number && report->findings[i].parameter != TGD_NONE) {
            tgd_text_str(text, shown++ > 0 ? ", " : "");
            tgd_text_line(text, report->parameters[report->findings[i].parameter].name, 40);
        }
    }
    if (shown < size && shown > 0) {
        tgd_text_str(text, " and ");
        tgd_text_count(text, size - shown);
        tgd_text_str(text, " more");
    }
}

/* Height of one entry; drawn too unless out is NULL. `full`: every line, else the heading and what to do. */
static double draw_entry(tgd_text *out, tgd_text *failures, const tgd_units *units, const groups *g, uint32_t k,
                         double y, bool full)
{
    const tgd_report *report = units->report;
    uint32_t finding = g->first[k];
    tgd_severity severity = (tgd_severity)report->findings[finding].severity;
    tgd_type hint_type = {13, TGD_BOLD, tgd_tone_of(severity).text};
    double top = y;
    tgd_text words;
    if (out != NULL) {
        tgd_svg_mark(out, X + 30, y + 10, k + 1, severity, 12);
    }
    tgd_text_init(&words, NULL, NULL);
    write_head(&words, report, finding, g->size[k]);
    y += 20 * (double)tgd_svg_paragraph(out, TEXT_X, y + 16, 20, tgd_text_words(failures, &words), head_type, TEXT_W,
                                        full ? 3 : 2);
    tgd_text_drop(&words);
    if (full && report->findings[finding].parameter != TGD_NONE && g->size[k] > 1) {
        tgd_text_init(&words, NULL, NULL);
        write_members(&words, units, k + 1, g->size[k]);
        y += 17 * (double)tgd_svg_paragraph(out, TEXT_X, y + 14, 17, tgd_text_words(failures, &words), body_type,
                                            TEXT_W, MOST_MESSAGE_LINES);
        tgd_text_drop(&words);
    }
    if (full) {
        tgd_text_init(&words, NULL, NULL);
        tgd_message_write(&words, report, finding);
        y += 17 * (double)tgd_svg_paragraph(out, TEXT_X, y + 14, 17, tgd_text_words(failures, &words), body_type,
                                            TEXT_W, MOST_MESSAGE_LINES);
        tgd_text_drop(&words);
    }
    tgd_text_init(&words, NULL, NULL);
    tgd_text_str(&words, "→ ");
    size_t arrow = words.n;
    tgd_hint_write(&words, report, finding);
    if (words.n > arrow || words.status != TGD_OK) { /* tgd_text_words() notes the failure */
        y += 17 * (double)tgd_svg_paragraph(out, TEXT_X, y + 14, 17, tgd_text_words(failures, &words), hint_type,
                                            TEXT_W, full ? MOST_HINT_LINES : 2);
    }
    tgd_text_drop(&words);
    return y - top + 22;
}

/* How many entries fit with the first `n_full` of them in full, and how high they are together. */
static uint32_t fit_entries(tgd_text *failures, const tgd_units *units, const groups *g, uint32_t n_full, double most,
                            double *height)
{
    uint32_t n = units->n_numbers;
    uint32_t shown = 0;
    *height = 44;
    while (shown < n) {
        double h = draw_entry(NULL, failures, units, g, shown, 0, shown < n_full);
        if (shown > 0 && *height + h + (shown + 1 < n ? 24 : 0) > most) {
            break;
        }
        *height += h;
        shown++;
    }
    *height += shown < n ? 20 : -6;
    return shown;
}

static double draw_findings(tgd_text *out, const tgd_units *units, const groups *g, double y, double most)
{
    uint32_t n = units->n_numbers;
    double used = 0;
    uint32_t shown = 0;
    uint32_t n_full = 0;
    for (uint32_t full = 4; full-- > 0;) { /* rather more findings than more words */
        double h;
        uint32_t fits = fit_entries(out, units, g, full, most, &h);
        if (fits > shown || used > most) {
            shown = fits;
            used = h;
            n_full = full;
        }
    }
    tgd_svg_panel(out, X, y, W, used, "Findings", "the numbers stand at the nodes");
    double at = y + 44;
    for (uint32_t k = 0; k < shown; k++) {
        if (k > 0) {
            tgd_svg_line(out, X + 16, at - 9, X + W - 16, at - 9, (tgd_pen){.stroke = TGD_COLOUR_GRID, .width = 1});
        }
        tgd_text_printf(out, "<g class=\"finding\" data-f=\"%lu\">\n", (unsigned long)k + 1);
        at += draw_entry(out, out, units, g, k, at, k < n_full);
        tgd_text_str(out, "</g>\n");
    }
    if (shown < n) {
        tgd_text words;
        tgd_text_init(&words, NULL, NULL);
        tgd_text_str(&words, "and ");
        tgd_text_count(&words, n - shown);
        tgd_text_str(&words, " more: the text report and .json have them all");
        tgd_svg_label(out, TEXT_X, at + 2, tgd_text_words(out, &words), body_type, TGD_START, TEXT_W);
        tgd_text_drop(&words);
    }
    return used;
}

tgd_status tgd_findings_panel_draw(tgd_text *out, double *height, const tgd_units *units, double y, double most,
                                   tgd_error *err)
{
    groups g = {0};
    tgd_status status = find_groups(&g, units, err);
    if (status == TGD_OK) {
        *height = draw_findings(out, units, &g, y, most);
    }
    free(g.first);
    free(g.size);
    return status;
}

/* ---- how it broke ---- */

void tgd_story_panel_draw(tgd_text *out, const tgd_report *report, uint32_t finding, double y)
{
    const tgd_finding_row *row = &report->findings[finding];
    const tgd_saved_row *saved = &report->graph.saved[row->saved];
    tgd_text words[3];
    tgd_text versions[3];
    tgd_text subtitle;
    static const char *const steps[] = {"saved", "overwritten", "needed again"};
    tgd_colour fault = tgd_tone_of((tgd_severity)row->severity).fill;
    const tgd_colour colours[] = {TGD_COLOUR_OK_FILL, fault, fault};
    tgd_text_init(&subtitle, NULL, NULL);
    tgd_text_str(&subtitle, "life of one tensor, ");
    tgd_fold_shape(&subtitle, &report->graph, saved->shape);
    tgd_text_printf(&subtitle, " %s", tgd_torch_dtype_name(saved->dtype));
    tgd_svg_panel(out, X, y, W, TGD_STORY_HEIGHT, "How it broke", tgd_text_words(out, &subtitle));
    tgd_text_drop(&subtitle);
    for (int i = 0; i < 3; i++) {
        tgd_text_init(&words[i], NULL, NULL);
        tgd_text_init(&versions[i], NULL, NULL);
        tgd_text_printf(&versions[i], "v%lu", (unsigned long)(i == 0 ? saved->saved_version : saved->version));
    }
    tgd_node_phrase(&words[0], report, row->node);
    tgd_text_printf(&words[0], saved->flags & TGD_SV_OUTPUT ? " keeps its own %s" : " keeps its %s", saved->name);
    uint32_t made = report->node_where == NULL ? TGD_NONE : report->node_where[row->node];
    if (made != TGD_NONE) {
        tgd_text_str(&words[0], " at ");
        tgd_source_phrase(&words[0], &report->sources[made]);
    }
    uint32_t writes = saved->version - saved->saved_version;
    if (row->culprit && row->where != TGD_NONE) {
        tgd_text_str(&words[1], row->op);
        tgd_text_str(&words[1], " at ");
        tgd_source_phrase(&words[1], &report->sources[row->where]);
        tgd_text_str(&words[1], writes == 1 ? " writes in place" : " writes in place, the first of ");
        if (writes > 1) {
            tgd_text_count(&words[1], writes);
        }
    } else {
        tgd_text_count(&words[1], writes);
        tgd_text_str(&words[1], writes == 1 ? " in-place write; op and line were not recorded"
                                            : " in-place writes; ops and lines were not recorded");
    }
    tgd_text_printf(&words[2], "backward expects v%lu, finds v%lu, %s", (unsigned long)saved->saved_version,
                    (unsigned long)saved->version, row->severity == TGD_ERROR ? "raises" : "may raise");
    tgd_svg_line(out, X + 40, y + 62, X + 40, y + 62 + 2 * 48, (tgd_pen){.stroke = TGD_COLOUR_MUTE, .width = 2});
    for (int i = 0; i < 3; i++) {
        double cy = y + 62 + 48 * i;
        tgd_svg_circle(out, X + 40, cy, 17, (tgd_pen){colours[i], TGD_COLOUR_CARD, 3, NULL});
        double size = versions[i].n <= 2 ? 12.5 : versions[i].n <= 4 ? 11 : 8;
        tgd_svg_label(out, X + 40, cy + size * 0.36, tgd_text_words(out, &versions[i]),
                      (tgd_type){size, TGD_BOLD, TGD_COLOUR_WHITE}, TGD_MIDDLE, 34);
        tgd_svg_label(out, X + 68, cy - 3, steps[i], (tgd_type){14, TGD_BOLD, TGD_COLOUR_INK}, TGD_START, 200);
        tgd_svg_label(out, X + 68, cy + 15, tgd_text_words(out, &words[i]),
                      (tgd_type){12.5, TGD_SANS, TGD_COLOUR_INK2}, TGD_START, W - 84);
        tgd_text_drop(&words[i]);
        tgd_text_drop(&versions[i]);
    }
}
