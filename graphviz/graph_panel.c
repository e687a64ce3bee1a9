#include "graph_panel.h"

#include "boxes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double readable = 0.88; /* smallest scale at which nothing more needs folding */
enum {
    MOST_BOXES = 32,
    FEWEST_BOXES = 12,
    BUDGET_STEP = 4,
    FEW_BOXES = 8,
    HEAD = 42,   /* above the graph */
    LEGEND = 44, /* below it */
    STRIP = 26,  /* more, where parameters are not in the graph */
    MOST_NAMES = 12,
    INSIDE_WIDTH = 860, /* of the graph in an opened fold, at most */
    INSIDE_HEIGHT = 560,
    INSIDE_LEAST = 420
};

/* A fold and where its boxes stand. */
typedef struct picture {
    tgd_fold fold;
    tgd_arrangement arrangement;
} picture;

static void picture_clear(picture *p)
{
    tgd_arrangement_clear(&p->arrangement);
    tgd_fold_clear(&p->fold);
}

/* The largest scale: small graphs may fill the panel. */
static double largest(const tgd_fold *fold)
{
    return fold->n_boxes <= FEW_BOXES ? 1.5 : 1.15;
}

/* Of the whole graph, or of what is inside one box. */
static tgd_status compose(picture *out, const tgd_units *units, const tgd_fold_box *inside, uint32_t budget,
                          bool only_if_readable, double w, double h, tgd_error *err)
{
    *out = (picture){0};
    tgd_status status = inside == NULL ? tgd_fold_make(&out->fold, units, budget, err)
                                       : tgd_fold_make_inside(&out->fold, units, inside, budget, err);
    if (status != TGD_OK) {
        return status;
    }
    tgd_box_place *places = calloc(out->fold.n_boxes + 1, sizeof *places);
    if (places == NULL) {
        status = tgd_fail_memory(err);
    } else {
        tgd_boxes_measure(places, &out->fold);
        if (only_if_readable && tgd_arrange_estimate(&out->fold, places, w, h, largest(&out->fold)) < readable) {
            free(places);
            return TGD_OK;
        }
        status = tgd_arrange(&out->arrangement, &out->fold, places, w, h, largest(&out->fold), err);
    }
    if (status != TGD_OK) {
        tgd_fold_clear(&out->fold);
    }
    return status;
}

/* The least folded picture that can be drawn large enough to read, or the largest there is. */
static tgd_status choose_picture(picture *out, const tgd_units *units, const tgd_fold_box *inside, double w, double h,
                                 tgd_error *err)
{
    picture best = {0};
    if (units->budget > 0 && inside == NULL) { /* asked for: however small it becomes */
        return compose(out, units, NULL, units->budget, false, w, h, err);
    }
    for (uint32_t budget = MOST_BOXES; budget >= FEWEST_BOXES && best.arrangement.scale < readable;
         budget -= BUDGET_STEP) {
        picture next;
        bool last = budget < FEWEST_BOXES + BUDGET_STEP;
        tgd_status status = compose(&next, units, inside, budget, !last, w, h, err);
        if (status != TGD_OK) {
            picture_clear(&best);
            return status;
        }
        if (next.arrangement.scale > best.arrangement.scale + 0.04) {
            picture_clear(&best);
            best = next;
        } else {
            picture_clear(&next);
        }
    }
    *out = best;
    return TGD_OK;
}

/* ---- edges ---- */

static bool fails(const tgd_report *report)
{
    return report->root_fails || report->first_error < report->n_executed;
}

static tgd_pen edge_pen(const tgd_fold *fold, const tgd_fold_edge *edge)
{
    tgd_fold_state from = fold->boxes[edge->from].state;
    tgd_fold_state to = fold->boxes[edge->to].state;
    const char *dash = edge->folded ? "5 4" : NULL;
    if (from == TGD_FOLD_RUNS && to != TGD_FOLD_NEVER) {
        bool hot = fails(fold->units->report);
        return (tgd_pen){.stroke = hot ? TGD_COLOUR_ERR_STROKE : TGD_COLOUR_EDGE,
                         .width = hot ? 3 : 1.5,
                         .dash = hot && dash != NULL ? "7 6" : dash};
    }
    return (tgd_pen){.stroke = TGD_COLOUR_MUTE, .width = 1.3, .dash = dash};
}

static void draw_way(tgd_text *out, const tgd_way *way, tgd_pen pen)
{
    if (way->n_points < 2) {
        return;
    }
    if (way->spline) {
        tgd_svg_spline(out, way->points, way->n_points, pen);
    } else {
        tgd_svg_route(out, way->points, way->n_points, 10, pen);
    }
    tgd_svg_arrow(out, way->points[way->n_points - 2], way->points[way->n_points - 1], 5 + pen.width, pen.stroke);
}

/* ---- frames ---- */

/* Does an edge pass the stretch [x0, x1] at height y? */
static bool edge_passes(const tgd_arrangement *a, double x0, double x1, double y)
{
    for (uint32_t w = 0; w < a->n_ways; w++) {
        const tgd_way *way = &a->ways[w];
        for (uint32_t i = 1; i < way->n_points; i++) {
            tgd_point p = way->points[i - 1];
            tgd_point q = way->points[i];
            double low = fmin(p.y, q.y);
            double high = fmax(p.y, q.y);
            if (high < y - 7 || low > y + 5) {
                continue;
            }
            double t = high - low < 0.1 ? 0 : (fmin(fmax(y, low), high) - p.y) / (q.y - p.y);
            double x = p.x + (q.x - p.x) * t;
            if (high - low < 12 ? fmax(p.x, q.x) > x0 && fmin(p.x, q.x) < x1 : x > x0 && x < x1) {
                return true;
            }
        }
    }
    return false;
}

static void draw_frame_title(tgd_text *out, const tgd_fold *fold, const tgd_arrangement *a, const tgd_frame_part *part)
{
    tgd_type type = {12, TGD_BOLD, TGD_COLOUR_INK2};
    tgd_text path;
    tgd_text_init(&path, NULL, NULL);
    tgd_module_path(&path, fold->units, fold->frames[part->frame].module);
    const char *whole = tgd_text_words(out, &path);
    double y = part->y + 17;
    double left = part->x + 9;
    double right = part->x + part->w - 9;
    double most = part->w - 18;
    const char *title = tgd_style_path(whole, type.size, type.font, most);
    double w = fmin(most, tgd_style_width(title, strlen(title), type.size, type.font));
    tgd_anchor anchor = TGD_START;
    if (edge_passes(a, left - 3, left + w + 3, y - 4)) {
        if (!edge_passes(a, right - w - 3, right + 3, y - 4)) {
            anchor = TGD_END;
        } else { /* an edge in the middle: stay on its left */
            most = most / 2 - 8;
            title = tgd_style_path(whole, type.size, type.font, most);
        }
    }
    tgd_svg_label(out, anchor == TGD_END ? right : left, y, title, type, anchor, most);
    tgd_text_drop(&path);
}

/* ---- legend ---- */

typedef struct legend {
    double x, y, end;
} legend;

static void legend_text(tgd_text *out, legend *l, const char *s)
{
    l->x += 6;
    l->x += 20 + tgd_svg_label(out, l->x, l->y + 4, s, (tgd_type){12, TGD_SANS, TGD_COLOUR_INK2}, TGD_START,
                               fmax(l->end - l->x, 20));
}

static void legend_line(tgd_text *out, legend *l, tgd_pen pen, const char *s)
{
    tgd_svg_line(out, l->x, l->y, l->x + 26, l->y, pen);
    l->x += 26;
    legend_text(out, l, s);
}

static void draw_legend(tgd_text *out, const tgd_fold *fold, double x, double y, double w)
{
    legend l = {x, y, x + w};
    bool hot = false;
    bool dashed = false;
    bool never = false;
    bool folds = false;
    bool leaves = false;
    for (uint32_t e = 0; e < fold->n_edges; e++) {
        tgd_pen pen = edge_pen(fold, &fold->edges[e]);
        hot = hot || pen.stroke == TGD_COLOUR_ERR_STROKE;
        dashed = dashed || pen.dash != NULL;
    }
    for (uint32_t b = 0; b < fold->n_boxes; b++) {
        never = never || fold->boxes[b].state == TGD_FOLD_NEVER;
        folds = folds || fold->boxes[b].form != TGD_FOLD_ONE;
        leaves = leaves || fold->boxes[b].n_leaves > 0;
    }
    if (hot) {
        legend_line(out, &l, (tgd_pen){.stroke = TGD_COLOUR_ERR_STROKE, .width = 3}, "runs, then raises");
    }
    if (never) {
        tgd_svg_rect(out, l.x, y - 7, 22, 13, 3, (tgd_pen){TGD_COLOUR_FRAME, TGD_COLOUR_MUTE, 1, NULL});
        l.x += 22;
        legend_text(out, &l, fails(fold->units->report) ? "never reached" : "not needed for inputs=");
    }
    if (folds) {
        tgd_svg_rect(out, l.x + 4, y - 9, 22, 12, 3, (tgd_pen){TGD_COLOUR_BEHIND, TGD_COLOUR_MUTE, 1, NULL});
        tgd_svg_rect(out, l.x, y - 6, 22, 12, 3, (tgd_pen){TGD_COLOUR_NODE, TGD_COLOUR_EDGE, 1, NULL});
        l.x += 26;
        legend_text(out, &l, "folded");
    }
    if (dashed) {
        tgd_pen pen = {.stroke = TGD_COLOUR_EDGE, .width = 1.5, .dash = "5 4"};
        legend_line(out, &l, pen, "into or out of a fold");
    }
    if (leaves) {
        l.x += tgd_svg_label(out, l.x, y + 4, "◆", (tgd_type){12, TGD_SANS, TGD_COLOUR_INK2}, TGD_START, 20);
        legend_text(out, &l, fold->units->measured != NULL ? "parameter" : "parameter or other leaf, with its elements");
    }
    if (fold->units->n_measured > 0 && fold->units->highest > fold->units->lowest) {
        tgd_type type = {12, TGD_SANS, TGD_COLOUR_INK2};
        l.x += 6 + tgd_svg_label(out, l.x, y + 4, "gradient: small", type, TGD_START, 120);
        for (int shade = 0; shade < 7; shade++) {
            tgd_svg_rect(out, l.x + 15 * shade, y - 7, 15, 13, 0,
                         (tgd_pen){(tgd_colour)(TGD_COLOUR_H0 + shade), TGD_COLOUR_EDGE, 0.6, NULL});
        }
        l.x += 7 * 15 + 6;
        l.x += 20 + tgd_svg_label(out, l.x, y + 4, "large", type, TGD_START, 60);
    }
    if (fold->units->total_ns > 0) {
        tgd_svg_rect(out, l.x, y - 3, 26, 4, 2, (tgd_pen){.fill = TGD_COLOUR_TRACK});
        tgd_svg_rect(out, l.x, y - 3, 16, 4, 2, (tgd_pen){.fill = TGD_COLOUR_TIME});
        l.x += 26;
        legend_text(out, &l, "time");
    }
    if (fold->n_hidden_edges > 0) {
        tgd_text words;
        tgd_text_init(&words, NULL, NULL);
        tgd_text_count(&words, fold->n_hidden_edges);
        tgd_text_str(&words, fold->n_hidden_edges == 1 ? " shortcut edge left out" : " shortcut edges left out");
        l.x -= 6;
        legend_text(out, &l, tgd_text_words(out, &words));
        tgd_text_drop(&words);
    }
}

/* ---- what is not in the graph ---- */

static bool outside(const tgd_finding_row *row)
{
    return row->parameter != TGD_NONE && row->node == TGD_NONE;
}

static bool any_outside(const tgd_report *report)
{
    for (uint32_t i = 0; i < report->n_findings; i++) {
        if (outside(&report->findings[i])) {
            return true;
        }
    }
    return false;
}

static void draw_outside(tgd_text *out, const tgd_units *units, double x, double y, double w)
{
    const tgd_report *report = units->report;
    uint32_t number = 0;
    uint32_t n_marks = 0;
    uint32_t n = 0;
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    tgd_text_str(&words, "Not in this graph:  ");
    for (uint32_t i = 0; i < report->n_findings; i++) {
        const tgd_finding_row *row = &report->findings[i];
        if (!outside(row)) {
            continue;
        }
        if (units->number[i] != number && n_marks < TGD_FOLD_MARKS) {
            number = units->number[i];
            tgd_svg_mark(out, x + 13 + 28 * (double)n_marks++, y - 4, number, (tgd_severity)row->severity, 10);
        }
        if (n < MOST_NAMES) {
            tgd_text_str(&words, n > 0 ? ", " : "");
            tgd_text_line(&words, report->parameters[row->parameter].name, 40);
        }
        n++;
    }
    double begin = x + 8 + 28 * (double)n_marks;
    double more = 0;
    if (n > MOST_NAMES) {
        tgd_text rest;
        tgd_text_init(&rest, NULL, NULL);
        tgd_text_str(&rest, "and ");
        tgd_text_count(&rest, n - MOST_NAMES);
        tgd_text_str(&rest, " more");
        more = 12 + tgd_svg_label(out, x + w, y, tgd_text_words(out, &rest), (tgd_type){13, TGD_SANS, TGD_COLOUR_INK2},
                                  TGD_END, 200);
        tgd_text_drop(&rest);
    }
    /* as a paragraph of one line, so that the end is cut and not the middle */
    tgd_svg_paragraph(out, begin, y, 0, tgd_text_words(out, &words), (tgd_type){13, TGD_BOLD, TGD_COLOUR_INK},
                      x + w - begin - more - 26, 1);
    tgd_text_drop(&words);
}

/* ---- nothing to draw ---- */

static void draw_empty(tgd_text *out, const tgd_units *units, double x, double y, double w, double h)
{
    const tgd_graph *graph = &units->report->graph;
    uint32_t shown = graph->n_roots < 6 ? graph->n_roots : 6;
    double cx = x + w / 2;
    double top = y + h / 2 - 60 - 38 * (double)(shown > 0 ? shown - 1 : 0);
    for (uint32_t r = 0; r < shown; r++) {
        double ry = top + 76 * (double)r;
        const tgd_report *report = units->report;
        uint32_t finding = 0;
        while (finding < report->n_findings && report->findings[finding].root != r) {
            finding++;
        }
        bool found = finding < report->n_findings;
        tgd_severity severity = found ? (tgd_severity)report->findings[finding].severity : TGD_NOTE;
        tgd_tone tone = tgd_tone_of(severity);
        tgd_text words;
        tgd_svg_rect(out, cx - 190, ry, 380, 58, 7, (tgd_pen){tone.tint, tone.stroke, 1.5, "5 4"});
        tgd_text_init(&words, NULL, NULL);
        tgd_text_str(&words, "root");
        if (graph->n_roots > 1) {
            tgd_text_printf(&words, " %lu", (unsigned long)r);
        }
        tgd_text_str(&words, "  ");
        tgd_fold_shape(&words, graph, graph->roots[r].shape);
        tgd_svg_label(out, cx - 176, ry + 24, tgd_text_words(out, &words), (tgd_type){15, TGD_BOLD, TGD_COLOUR_INK},
                      TGD_START, 352);
        tgd_text_drop(&words);
        tgd_svg_label(out, cx - 176, ry + 44, "no grad_fn: nothing leads back from here",
                      (tgd_type){12.5, TGD_BOLD, tone.text}, TGD_START, 352);
        if (found) {
            tgd_svg_mark(out, cx + 188, ry - 2, units->number[finding], severity, 12);
        }
    }
    tgd_svg_label(out, cx, top + 76 * (double)shown + 16, "There is no graph to draw.",
                  (tgd_type){15, TGD_SANS, TGD_COLOUR_INK2}, TGD_MIDDLE, w);
}

/* ---- the panel ---- */

static void draw_graph(tgd_text *out, const picture *p, double x, double y, double w, double h)
{
    const tgd_fold *fold = &p->fold;
    const tgd_arrangement *a = &p->arrangement;
    tgd_text_str(out, "<g transform=\"translate(");
    tgd_svg_number(out, x + fmax(0, (w - a->width * a->scale) / 2));
    tgd_text_str(out, " ");
    tgd_svg_number(out, y + fmax(0, (h - a->height * a->scale) / 3));
    tgd_text_str(out, ") scale(");
    tgd_text_fixed(out, a->scale, 3);
    tgd_text_str(out, ")\">\n");
    for (uint32_t f = 0; f < a->n_frames; f++) {
        tgd_svg_rect(out, a->frames[f].x, a->frames[f].y, a->frames[f].w, a->frames[f].h, 9,
                     (tgd_pen){TGD_COLOUR_FRAME, TGD_COLOUR_LINE, 1, NULL});
    }
    for (int pass = 0; pass < 2; pass++) { /* what runs lies on top of what does not */
        for (uint32_t i = 0; i < a->n_ways; i++) {
            tgd_pen pen = edge_pen(fold, &fold->edges[a->ways[i].edge]);
            if ((pen.stroke == TGD_COLOUR_MUTE) == (pass == 0)) {
                const tgd_fold_edge *edge = &fold->edges[a->ways[i].edge];
                tgd_text_printf(out, "<g class=\"edge\" data-e=\"%lu %lu\">\n", (unsigned long)edge->from,
                                (unsigned long)edge->to);
                draw_way(out, &a->ways[i], pen);
                tgd_text_str(out, "</g>\n");
            }
        }
    }
    for (uint32_t f = 0; f < a->n_frames; f++) {
        draw_frame_title(out, fold, a, &a->frames[f]);
    }
    for (uint32_t b = 0; b < fold->n_boxes; b++) {
        tgd_box_draw(out, fold, b, &a->places[b]);
    }
    tgd_text_str(out, "</g>\n");
}

tgd_status tgd_graph_panel_draw(tgd_text *out, const tgd_units *units, double x, double y, double w, double h,
                                tgd_fold *drawn, tgd_error *err)
{
    const tgd_report *report = units->report;
    if (drawn != NULL) {
        *drawn = (tgd_fold){.units = units};
    }
    bool strip = any_outside(report);
    double foot = strip ? LEGEND + STRIP : LEGEND;
    picture p = {0};
    if (units->n > 0) {
        tgd_status status = choose_picture(&p, units, NULL, w - 36, h - HEAD - foot, err);
        if (status != TGD_OK) {
            return status;
        }
    }
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    if (units->n > 0) {
        tgd_text_str(&words, "gradient runs from the loss (top left) to the inputs;  ");
        tgd_text_count(&words, report->graph.n_nodes);
        tgd_text_str(&words, report->graph.n_nodes == 1 ? " node in " : " nodes in ");
        tgd_text_count(&words, p.fold.n_boxes);
        tgd_text_str(&words, p.fold.n_boxes == 1 ? " box" : " boxes");
    }
    tgd_svg_panel(out, x, y, w, h, "Backward graph", tgd_text_words(out, &words));
    tgd_text_drop(&words);

    if (units->n == 0) {
        draw_empty(out, units, x, y, w, h - foot);
    } else {
        draw_graph(out, &p, x + 18, y + HEAD, w - 36, h - HEAD - foot);
        tgd_svg_line(out, x + 16, y + h - foot + 8, x + w - 16, y + h - foot + 8,
                     (tgd_pen){.stroke = TGD_COLOUR_GRID, .width = 1});
        draw_legend(out, &p.fold, x + 16, y + h - 18, w - 32);
    }
    if (strip) {
        draw_outside(out, units, x + 16, y + h - 39, w - 32);
    }
    if (drawn != NULL && units->n > 0) {
        *drawn = p.fold;
        p.fold = (tgd_fold){0};
    }
    picture_clear(&p);
    return TGD_OK;
}

/* ---- one fold, opened ---- */

tgd_status tgd_graph_inside_draw(tgd_text *out, tgd_fold *drawn, const tgd_units *units, const tgd_fold_box *box,
                                 const char *title, double *w, double *h, tgd_error *err)
{
    picture p = {0};
    tgd_status status = choose_picture(&p, units, box, INSIDE_WIDTH, INSIDE_HEIGHT, err);
    if (status != TGD_OK) {
        return status;
    }
    const tgd_arrangement *a = &p.arrangement;
    double width = fmax(a->width * a->scale, INSIDE_LEAST);
    double height = a->height * a->scale;
    *w = width + 36;
    *h = height + HEAD + 18;
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    tgd_text_count(&words, box->n_nodes);
    tgd_text_str(&words, box->n_nodes == 1 ? " node in " : " nodes in ");
    tgd_text_count(&words, p.fold.n_boxes);
    tgd_text_str(&words, p.fold.n_boxes == 1 ? " box" : " boxes");
    tgd_svg_panel(out, 0, 0, *w, *h, title, NULL);
    tgd_svg_label(out, *w - 48, 26, tgd_text_words(out, &words), (tgd_type){12.5, TGD_SANS, TGD_COLOUR_INK3}, TGD_END,
                  INSIDE_LEAST);
    tgd_text_drop(&words);
    draw_graph(out, &p, 18, HEAD, width, height);
    *drawn = p.fold;
    p.fold = (tgd_fold){0};
    picture_clear(&p);
    return TGD_OK;
}
