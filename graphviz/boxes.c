#include "boxes.h"

#include <math.h>
#include <string.h>

enum { MOST_BIG_FLAGS = 4 };

void tgd_quantity(tgd_text *text, int64_t n)
{
    static const struct {
        int64_t unit;
        const char *name;
    } units[] = {{1000000000, " G"}, {1000000, " M"}, {1000, " k"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        int64_t unit = units[i].unit;
        if (n >= unit && (unit > 1000 || n >= 10000)) {
            tgd_text_printf(text, "%lld", (long long)(n / unit));
            if (n < 100 * unit && unit > 1000) {
                tgd_text_printf(text, ".%lld", (long long)(n % unit / (unit / 10)));
            }
            tgd_text_str(text, units[i].name);
            return;
        }
    }
    tgd_text_printf(text, "%lld", (long long)n);
}

/* "saved result", "saved_tensors[0]" */
static void saved_name(tgd_text *text, const tgd_saved_row *saved)
{
    if (saved == NULL) {
        tgd_text_str(text, "saved tensor");
        return;
    }
    tgd_text_str(text, strncmp(saved->name, "saved", 5) == 0 ? "" : "saved ");
    tgd_text_str(text, saved->name);
    if (saved->index >= 0) {
        tgd_text_printf(text, "[%ld]", (long)saved->index);
    }
}

void tgd_finding_phrase(tgd_text *text, const tgd_report *report, uint32_t finding)
{
    const tgd_finding_row *row = &report->findings[finding];
    const tgd_saved_row *saved = row->saved == TGD_NONE ? NULL : &report->graph.saved[row->saved];
    switch ((tgd_finding_kind)row->kind) {
    case TGD_MODIFIED_IN_PLACE:
        if (saved != NULL) {
            saved_name(text, saved);
            tgd_text_printf(text, " is v%lu, now v%lu", (unsigned long)saved->saved_version,
                            (unsigned long)saved->version);
            return;
        }
        break;
    case TGD_DETACHED_IN_PLACE:
        saved_name(text, saved);
        tgd_text_str(text, " was detached");
        return;
    case TGD_GRAPH_FREED:
        tgd_text_str(text, "freed by an earlier backward");
        return;
    case TGD_STORAGE_FREED:
        saved_name(text, saved);
        tgd_text_str(text, " has no data");
        return;
    case TGD_STORAGE_CHANGED:
        saved_name(text, saved);
        tgd_text_str(text, " changed its size");
        return;
    case TGD_NOT_DIFFERENTIABLE:
        tgd_text_str(text, row->severity == TGD_ERROR ? "has no derivative" : "not differentiable twice");
        return;
    case TGD_OPAQUE_NODE:
        tgd_text_str(text, "could not be looked into");
        return;
    case TGD_CHECK_OFF:
        tgd_text_str(text, "version check is off");
        return;
    case TGD_UNREACHED_PARAMETER:
        tgd_text_str(text, "gets no gradient");
        return;
    default:
        break;
    }
    tgd_text_str(text, tgd_finding_statement((tgd_finding_kind)row->kind));
}

static tgd_severity worst(const tgd_fold_box *box)
{
    tgd_severity severity = TGD_NOTE;
    for (uint32_t i = 0; i < box->n_marks; i++) {
        severity = box->severity[i] < severity ? box->severity[i] : severity;
    }
    return severity;
}

/* Everything that an earlier backward freed has the same story: it is told once. */
static bool is_told(const tgd_fold *fold, uint32_t finding)
{
    const tgd_finding_row *rows = fold->units->report->findings;
    const uint32_t *number = fold->units->number;
    if (rows[finding].kind != TGD_GRAPH_FREED) {
        return false;
    }
    for (uint32_t i = 0; i < finding; i++) {
        if (number[i] == number[finding]) {
            return true;
        }
    }
    return false;
}

bool tgd_box_is_flagged(const tgd_fold *fold, uint32_t index)
{
    const tgd_fold_box *box = &fold->boxes[index];
    return box->form == TGD_FOLD_ONE && box->n_marks > 0 && worst(box) != TGD_NOTE &&
           (box->finding == TGD_NONE || !is_told(fold, box->finding));
}

static bool big_flags(const tgd_fold *fold)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < fold->n_boxes; b++) {
        n += tgd_box_is_flagged(fold, b);
    }
    return n <= MOST_BIG_FLAGS;
}

void tgd_boxes_measure(tgd_box_place *places, const tgd_fold *fold)
{
    bool big = big_flags(fold);
    for (uint32_t b = 0; b < fold->n_boxes; b++) {
        const tgd_fold_box *box = &fold->boxes[b];
        tgd_box_place *place = &places[b];
        *place = (tgd_box_place){.w = TGD_BOX_WIDTH, .h = TGD_BOX_HEIGHT};
        if (tgd_box_is_flagged(fold, b)) {
            place->w = big ? TGD_FLAG_WIDTH : TGD_BOX_WIDE;
            place->h = (big ? TGD_FLAG_HEIGHT : TGD_FLAG_SMALL) + (big && box->n_leaves > 0 ? TGD_BOX_LEAVES : 0);
        } else if (box->form == TGD_FOLD_REPEAT) {
            place->w = TGD_BOX_WIDE;
            place->h += 4;
            place->behind = 8;
        } else if (box->form != TGD_FOLD_ONE) {
            place->h += 4;
            place->behind = 4;
        } else if (box->n_leaves > 0) {
            place->h += TGD_BOX_LEAVES;
        }
        tgd_unit_measure measure;
        if (tgd_fold_box_measure(&measure, fold, b) && (measure.rms >= 0 || measure.ns > 0) &&
            !tgd_box_is_flagged(fold, b)) {
            place->w = fmax(place->w, TGD_BOX_WIDTH + TGD_BOX_MORE);
            place->h += TGD_BOX_TIME + (box->form != TGD_FOLD_ONE ? TGD_BOX_LEAVES : 0);
        }
    }
}

/* "weight bias", "leaf 3×4", "100,000 leaves" */
static void leaf_names(tgd_text *text, const tgd_fold *fold, const tgd_fold_box *box)
{
    const tgd_report *report = fold->units->report;
    bool named = false;
    for (uint32_t i = 0; i < box->n_leaves && i < TGD_FOLD_LEAVES; i++) {
        named = named || report->leaf_parameter[box->leaves[i]] != TGD_NONE;
    }
    if (box->n_leaves > 4 || (box->n_leaves > 1 && !named)) {
        tgd_text_count(text, box->n_leaves);
        tgd_text_str(text, named ? " parameters" : " leaves");
        return;
    }
    for (uint32_t i = 0; i < box->n_leaves; i++) {
        tgd_text_str(text, i > 0 ? " " : "");
        tgd_fold_leaf(text, fold->units, box->leaves[i]);
    }
}

static void count_nodes(tgd_text *text, uint32_t n, const char *after)
{
    tgd_text_count(text, n);
    tgd_text_str(text, n == 1 ? " node" : " nodes");
    tgd_text_str(text, after);
}

/* The second line of a box: where the forward made it; without a recorder, what comes in. */
static void lead_shape(tgd_text *text, const tgd_fold *fold, const tgd_fold_box *box)
{
    const tgd_report *report = fold->units->report;
    const tgd_graph *graph = &report->graph;
    const tgd_node_row *row = &graph->nodes[box->lead];
    if (report->node_where != NULL && report->node_where[box->lead] != TGD_NONE) {
        tgd_source_phrase(text, &report->sources[report->node_where[box->lead]]);
    } else if (row->n_inputs > 0) {
        tgd_fold_shape(text, graph, graph->inputs[row->first_input].shape);
    }
}

/* The line with the diamond: names to the left, number of elements to the right. */
static void draw_leaves(tgd_text *out, const tgd_fold *fold, const tgd_fold_box *box, double x, double y, double w,
                        tgd_colour colour)
{
    tgd_text names;
    tgd_text amount;
    tgd_text_init(&names, NULL, NULL);
    tgd_text_init(&amount, NULL, NULL);
    tgd_text_str(&names, "◆ ");
    leaf_names(&names, fold, box);
    tgd_quantity(&amount, box->n_elements);
    tgd_type type = {11, TGD_SANS, colour};
    double used = tgd_svg_label(out, x + w, y, tgd_text_words(out, &amount), type, TGD_END, w / 2);
    tgd_svg_label(out, x, y, tgd_text_words(out, &names), type, TGD_START, w - used - 8);
    tgd_text_drop(&names);
    tgd_text_drop(&amount);
}

static void draw_marks(tgd_text *out, const tgd_fold_box *box, double x, double y, double radius)
{
    for (uint32_t i = 0; i < box->n_marks; i++) {
        tgd_svg_mark(out, x + 26 * (double)i, y, box->marks[i], box->severity[i], radius);
    }
}

/* In smaller type, then without the outer modules, before it is shortened. */
static void draw_title(tgd_text *out, double x, double y, const char *s, tgd_colour ink, double w)
{
    double size = 13.5;
    while (size > 11 && tgd_style_width(s, strlen(s), size, TGD_BOLD) > w) {
        size -= 1.25;
    }
    s = tgd_style_path(s, size, TGD_BOLD, w);
    tgd_svg_label(out, x, y, s, (tgd_type){size, TGD_BOLD, ink}, TGD_START, w);
}

/* "written by add_ at net.py:31", nothing where that is not known */
static void culprit_phrase(tgd_text *text, const tgd_report *report, uint32_t finding)
{
    const tgd_finding_row *row = &report->findings[finding];
    if (!row->culprit || row->where == TGD_NONE) {
        return;
    }
    bool write = row->kind == TGD_MODIFIED_IN_PLACE || row->kind == TGD_SILENTLY_MODIFIED;
    tgd_text_str(text, write ? "written by " : "by ");
    tgd_text_str(text, row->op != NULL ? row->op : row->kind == TGD_GRAPH_FREED ? "backward" : "code");
    tgd_text_str(text, " at ");
    tgd_source_phrase(text, &report->sources[row->where]);
}

/* Has a flagged box a name that says more than its op? */
static bool units_name_it(const tgd_fold *fold, uint32_t index)
{
    return fold->units->named[fold->boxes[index].first_unit] != 0;
}

static void draw_flagged(tgd_text *out, const tgd_fold *fold, uint32_t index, const tgd_box_place *place)
{
    const tgd_fold_box *box = &fold->boxes[index];
    const tgd_report *report = fold->units->report;
    const tgd_graph *graph = &report->graph;
    tgd_tone tone = tgd_tone_of(worst(box));
    bool raises = box->state == TGD_FOLD_RAISES;
    double x = place->x - place->w / 2;
    double y = place->y - place->h / 2;
    double w = place->w - 20;
    double marks = 22 + 26 * (double)(box->n_marks - 1);
    tgd_svg_rect(out, x, y, place->w, place->h, 7, (tgd_pen){tone.tint, tone.stroke, raises ? 3 : 1.5, NULL});
    draw_marks(out, box, x + 18, y + 16, 10);
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    if (box->module != TGD_NONE && units_name_it(fold, index)) {
        tgd_fold_title(&words, fold, index);
    } else {
        tgd_node_phrase(&words, report, box->lead);
    }
    draw_title(out, x + 10 + marks, y + 21, tgd_text_words(out, &words), TGD_COLOUR_INK, w - marks);
    tgd_text_drop(&words);

    tgd_text_init(&words, NULL, NULL);
    tgd_finding_phrase(&words, report, box->finding);
    const char *phrase_words = tgd_text_words(out, &words);
    tgd_type phrase = {12.5, TGD_BOLD, tone.text};
    while (phrase.size > 10.5 && tgd_style_width(phrase_words, strlen(phrase_words), phrase.size, TGD_BOLD) > w) {
        phrase.size -= 0.5;
    }
    if (place->h < TGD_FLAG_HEIGHT) {
        tgd_svg_label(out, x + 10, y + 38, phrase_words, phrase, TGD_START, w);
        tgd_text_drop(&words);
        if (box->n_leaves > 0) {
            draw_leaves(out, fold, box, x + 10, y + 52, w, TGD_COLOUR_INK2);
        } else {
            tgd_text_init(&words, NULL, NULL);
            culprit_phrase(&words, report, box->finding);
            tgd_svg_label(out, x + 10, y + 52, tgd_text_words(out, &words), (tgd_type){11, TGD_SANS, TGD_COLOUR_INK},
                          TGD_START, w);
            tgd_text_drop(&words);
        }
        return;
    }
    tgd_svg_label(out, x + 10, y + 55, phrase_words, phrase, TGD_START, w);
    tgd_text_drop(&words);

    const tgd_finding_row *row = &report->findings[box->finding];
    tgd_text_init(&words, NULL, NULL);
    if (row->saved != TGD_NONE && graph->saved[row->saved].shape != TGD_NONE) {
        tgd_fold_shape(&words, graph, graph->saved[row->saved].shape);
        tgd_text_printf(&words, " %s", tgd_torch_dtype_name(graph->saved[row->saved].dtype));
    } else {
        lead_shape(&words, fold, box);
    }
    tgd_svg_label(out, x + 10, y + 38, tgd_text_words(out, &words), (tgd_type){11, TGD_MONO, TGD_COLOUR_INK2},
                  TGD_START, w);
    tgd_text_drop(&words);

    tgd_text arrives;
    tgd_text_init(&arrives, NULL, NULL);
    const char *why = "see the numbered finding";
    if (row->kind == TGD_UNREACHED_PARAMETER) {
        why = "its grad will stay None";
    } else if (raises) {
        why = row->kind == TGD_MODIFIED_IN_PLACE && box->n_leaves == 0 ? "changed in place, so backward raises here"
                                                                       : "backward raises here";
    } else if (fold->units->measured != NULL && fold->units->measured[box->first_unit].rms >= 0) {
        tgd_unit_measure measure;
        tgd_fold_box_measure(&measure, fold, index);
        tgd_text_str(&arrives, "a gradient of rms ");
        tgd_rms_phrase(&arrives, &measure);
        tgd_text_str(&arrives, " arrives here");
        why = tgd_text_words(out, &arrives);
    } else if (row->severity == TGD_ERROR) {
        why = "would raise too, if backward got here";
    } else if (row->saved != TGD_NONE) {
        why = "backward may raise here";
    }
    tgd_text_init(&words, NULL, NULL);
    culprit_phrase(&words, report, box->finding);
    if (words.n == 0) {
        tgd_text_str(&words, why);
    }
    tgd_svg_paragraph(out, x + 10, y + 70, 14, tgd_text_words(out, &words), (tgd_type){11.5, TGD_SANS, TGD_COLOUR_INK}, w,
                      2);
    tgd_text_drop(&words);
    tgd_text_drop(&arrives);
    if (box->n_leaves > 0) {
        draw_leaves(out, fold, box, x + 10, y + 99, w, TGD_COLOUR_INK2);
    }
}

static void draw_pill(tgd_text *out, double right, double y, const char *s, tgd_colour stroke, tgd_colour ink,
                      double *left)
{
    double w = tgd_style_width(s, strlen(s), 11.5, TGD_BOLD) + 10;
    *left = right - w;
    tgd_svg_rect(out, *left, y, w, 16, 8, (tgd_pen){TGD_COLOUR_CARD, stroke, 1, NULL});
    tgd_svg_label(out, *left + w / 2, y + 12, s, (tgd_type){11.5, TGD_BOLD, ink}, TGD_MIDDLE, w);
}

static void draw_plain(tgd_text *out, const tgd_fold *fold, uint32_t index, const tgd_box_place *place)
{
    const tgd_fold_box *box = &fold->boxes[index];
    bool never = box->state == TGD_FOLD_NEVER;
    tgd_colour stroke = never ? TGD_COLOUR_MUTE : TGD_COLOUR_EDGE;
    tgd_colour ink = never ? TGD_COLOUR_INK3 : TGD_COLOUR_INK;
    tgd_unit_measure measure;
    bool heated = tgd_fold_box_measure(&measure, fold, index);
    /* on a heated fill only ink has the contrast to be read */
    tgd_colour ink2 = never ? TGD_COLOUR_INK3 : heated ? TGD_COLOUR_INK : TGD_COLOUR_INK2;
    double x = place->x - place->w / 2;
    double y = place->y - place->h / 2;
    double w = place->w - 20;
    for (double card = place->behind; card > 0; card -= 4) {
        tgd_svg_rect(out, x + card, y - card, place->w, place->h, 7,
                     (tgd_pen){TGD_COLOUR_BEHIND, TGD_COLOUR_MUTE, 1, NULL});
    }
    tgd_svg_rect(out, x, y, place->w, place->h, 7,
                 (tgd_pen){never ? TGD_COLOUR_FRAME : heated ? tgd_heat(fold->units, &measure) : TGD_COLOUR_NODE, stroke, 1,
                           NULL});
    tgd_text where;
    tgd_text_init(&where, NULL, NULL);
    lead_shape(&where, fold, box);
    double taken = tgd_box_measure_draw(out, fold, index, x, y, w, place->h, tgd_text_words(out, &where), ink);
    tgd_text_drop(&where);
    double right = x + 10 + w - taken;
    if (box->form == TGD_FOLD_REPEAT) {
        tgd_text pill;
        tgd_text_init(&pill, NULL, NULL);
        tgd_text_str(&pill, "×");
        tgd_text_count(&pill, box->copies);
        draw_pill(out, right, y + 6, tgd_text_words(out, &pill), stroke, ink, &right);
        tgd_text_drop(&pill);
        right -= 6;
    }
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    tgd_fold_title(&words, fold, index);
    draw_title(out, x + 10, y + 18, tgd_text_words(out, &words), ink, right - x - 10);
    tgd_text_drop(&words);

    tgd_text_init(&words, NULL, NULL);
    double used = 0;
    if (box->form == TGD_FOLD_ONE) {
        lead_shape(&words, fold, box);
        tgd_svg_label(out, x + 10, y + 33, tgd_text_words(out, &words), (tgd_type){11, TGD_MONO, ink2}, TGD_START,
                      w);
    } else {
        if (box->n_elements > 0) {
            tgd_text amount;
            tgd_text_init(&amount, NULL, NULL);
            tgd_text_str(&amount, "◆ ");
            tgd_quantity(&amount, box->n_elements);
            used = 8 + tgd_svg_label(out, x + 10 + w, y + 35, tgd_text_words(out, &amount),
                                     (tgd_type){11, TGD_SANS, ink2}, TGD_END, w / 2);
            tgd_text_drop(&amount);
        }
        tgd_type type = {11, TGD_SANS, ink2};
        count_nodes(&words, box->n_nodes, "");
        size_t total = words.n;
        if (box->form == TGD_FOLD_REPEAT) {
            tgd_text_printf(&words, ", %lu each", (unsigned long)(box->n_nodes / box->copies));
            if (words.status == TGD_OK && tgd_style_width(words.bytes, words.n, type.size, type.font) > w - used) {
                words.n = total;
            }
        }
        tgd_svg_label(out, x + 10, y + 35, tgd_text_words(out, &words), type, TGD_START, w - used);
    }
    tgd_text_drop(&words);
    if (box->form == TGD_FOLD_ONE && box->n_leaves > 0) {
        draw_leaves(out, fold, box, x + 10, y + 47, w, ink2);
    }
    draw_marks(out, box, x + place->w - 1 - 26 * (double)(box->n_marks > 0 ? box->n_marks - 1 : 0),
               y - place->behind / 2 - 4, 11);
}

void tgd_box_draw(tgd_text *out, const tgd_fold *fold, uint32_t index, const tgd_box_place *place)
{
    tgd_text_printf(out, "<g class=\"node\" data-b=\"%lu\">\n", (unsigned long)index);
    if (tgd_box_is_flagged(fold, index)) {
        draw_flagged(out, fold, index, place);
    } else {
        draw_plain(out, fold, index, place);
    }
    tgd_text_str(out, "</g>\n");
}
