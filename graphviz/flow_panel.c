/* How large the gradient is on its way from the loss to the input: a point for each op, a diamond for its parameters. */
#include "boxes.h"
#include "side_panels.h"

#include <math.h>
#include <string.h>

enum { X = TGD_SIDE_X, W = TGD_SIDE_WIDTH, LEFT = X + 62, RIGHT = X + W - 20, MOST_MARKS = 6, LEAST_DECADES = 8, BIN = 2 };

typedef struct axes {
    double top, bottom;
    int low, high; /* decades */
    uint32_t n;    /* units */
} axes;

static double at_unit(const axes *a, uint32_t u)
{
    return LEFT + 6 + (RIGHT - LEFT - 12) * (a->n > 1 ? (double)u / (double)(a->n - 1) : 0.5);
}

static double at_rms(const axes *a, double rms)
{
    double share = (a->high - log10(rms)) / (double)(a->high - a->low);
    return a->top + (a->bottom - a->top) * fmin(1, fmax(0, share));
}

static void draw_axes(tgd_text *out, const axes *a)
{
    int step = (a->high - a->low + 4) / 5;
    for (int decade = a->high; decade >= a->low; decade -= step) {
        double y = a->top + (a->bottom - a->top) * (a->high - decade) / (double)(a->high - a->low);
        tgd_text words;
        tgd_text_init(&words, NULL, NULL);
        tgd_text_printf(&words, "1e%d", decade);
        tgd_svg_line(out, LEFT, y, RIGHT, y, (tgd_pen){.stroke = TGD_COLOUR_GRID, .width = 1});
        tgd_svg_label(out, LEFT - 8, y + 4, tgd_text_words(out, &words), (tgd_type){11.5, TGD_SANS, TGD_COLOUR_INK2},
                      TGD_END, 46);
        tgd_text_drop(&words);
    }
}

/* The name of the module at a third and at two thirds of the way. */
static void draw_places(tgd_text *out, const tgd_units *units, const axes *a)
{
    tgd_type type = {11.5, TGD_SANS, TGD_COLOUR_INK2};
    double y = a->bottom + 16;
    tgd_svg_label(out, LEFT, y, "loss", type, TGD_START, 40);
    tgd_svg_label(out, RIGHT, y, "input", type, TGD_END, 40);
    for (uint32_t k = 1; k <= 3 && a->n >= 8; k++) {
        uint32_t u = (uint32_t)((uint64_t)(a->n - 1) * k / 4);
        tgd_text path;
        tgd_text_init(&path, NULL, NULL);
        tgd_module_path(&path, units, units->module[u]);
        const char *whole = tgd_text_words(out, &path);
        const char *name = tgd_style_path(whole, type.size, type.font, 84);
        if (name[0] != '\0') {
            tgd_svg_label(out, at_unit(a, u), y, name, type, TGD_MIDDLE, 84);
            tgd_svg_line(out, at_unit(a, u), a->bottom, at_unit(a, u), a->bottom + 4,
                         (tgd_pen){.stroke = TGD_COLOUR_EDGE, .width = 1});
        }
        tgd_text_drop(&path);
    }
}

static void draw_point(tgd_text *out, double x, double y, bool parameter)
{
    if (parameter) {
        tgd_point diamond[4] = {{x, y - 3.6}, {x + 3.6, y}, {x, y + 3.6}, {x - 3.6, y}};
        tgd_svg_polygon(out, diamond, 4, (tgd_pen){TGD_COLOUR_NONE, TGD_COLOUR_INK2, 1, NULL});
    } else {
        tgd_svg_circle(out, x, y, 2.3, (tgd_pen){.fill = TGD_COLOUR_NOTE_STROKE});
    }
}

/* At most the highest and the lowest point of each stretch of the axis, so that a million nodes are some hundred. */
static void draw_points(tgd_text *out, const tgd_units *units, const axes *a, bool parameter)
{
    uint32_t u = 0;
    while (u < a->n) {
        double begin = at_unit(a, u);
        double least = INFINITY;
        double most = -INFINITY;
        for (; u < a->n && at_unit(a, u) < begin + (parameter ? 4 * BIN : BIN); u++) {
            double rms = parameter ? units->measured[u].leaf_rms : units->measured[u].rms;
            if (rms > 0 && isfinite(rms)) {
                least = fmin(least, rms);
                most = fmax(most, rms);
            }
        }
        if (most > 0) {
            draw_point(out, begin, at_rms(a, least), parameter);
            if (at_rms(a, least) - at_rms(a, most) > 3) {
                draw_point(out, begin, at_rms(a, most), parameter);
            }
        }
    }
}

/* Where the first value is NaN, infinite, or exactly zero: in words at the edge of the plot. */
static void draw_first(tgd_text *out, const tgd_units *units, const axes *a)
{
    bool said[3] = {false};
    static const char *const words[] = {"NaN", "inf", "exactly 0"};
    for (uint32_t u = 0; u < a->n; u++) {
        const tgd_unit_measure *m = &units->measured[u];
        int what = m->nan ? 0 : m->inf ? 1 : m->rms == 0 ? 2 : -1;
        if (what < 0) {
            continue;
        }
        double x = at_unit(a, u);
        double y = what == 2 ? a->bottom : a->top;
        tgd_colour colour = what == 2 ? TGD_COLOUR_WARN_TEXT : TGD_COLOUR_ERR_TEXT;
        if (u == 0 || !said[what] || at_unit(a, u - 1) < x) {
            tgd_svg_line(out, x, y - 3, x, y + 3, (tgd_pen){.stroke = colour, .width = 1.6});
        }
        if (!said[what]) {
            bool left = x > (LEFT + RIGHT) / 2.0;
            tgd_svg_label(out, left ? x - (what == 2 ? 40 : 5) : x + 5,
                          what == 2 ? y - 6 - 14 * (double)said[0] : y + 14 + 14 * (double)what,
                          words[what], (tgd_type){11.5, TGD_BOLD, colour}, left ? TGD_END : TGD_START, 80);
            said[what] = true;
        }
    }
}

/* Findings that stand at a unit of the plot: a line, and their number above it. */
static void draw_findings(tgd_text *out, const tgd_units *units, const axes *a)
{
    const tgd_report *report = units->report;
    double last = -100;
    uint32_t n = 0;
    uint32_t number = 0;
    for (uint32_t i = 0; i < report->n_findings && n < MOST_MARKS; i++) {
        const tgd_finding_row *row = &report->findings[i];
        uint32_t u = row->node == TGD_NONE || row->node >= report->graph.n_nodes ? TGD_NONE : units->unit_of[row->node];
        if (u == TGD_NONE || units->number[i] == number || row->severity == TGD_NOTE) {
            continue;
        }
        double x = at_unit(a, u);
        if (fabs(x - last) < 24) {
            continue;
        }
        number = units->number[i];
        last = x;
        n++;
        tgd_tone tone = tgd_tone_of((tgd_severity)row->severity);
        tgd_svg_line(out, x, a->top - 6, x, a->bottom, (tgd_pen){.stroke = tone.stroke, .width = 1.4, .dash = "4 3"});
        tgd_svg_mark(out, x, a->top - 10, number, (tgd_severity)row->severity, 9);
    }
}

void tgd_flow_panel_draw(tgd_text *out, const tgd_units *units, double y, double h)
{
    axes a = {.top = y + 64, .bottom = y + h - 46, .n = units->n};
    a.high = (int)ceil(units->highest);
    a.low = (int)floor(units->lowest);
    if (a.high - a.low < LEAST_DECADES) { /* so that a healthy flow looks flat */
        int more = LEAST_DECADES - (a.high - a.low);
        a.low -= more - more / 2;
        a.high += more / 2;
    }
    tgd_svg_panel(out, X, y, W, h, "Gradient flow", "rms that arrives at each op, from loss to input");
    draw_axes(out, &a);
    draw_places(out, units, &a);
    draw_points(out, units, &a, true);
    draw_points(out, units, &a, false);
    draw_first(out, units, &a);
    draw_findings(out, units, &a);
    tgd_type type = {11.5, TGD_SANS, TGD_COLOUR_INK2};
    double x = X + 16;
    draw_point(out, x + 4, y + h - 14, false);
    x += 14 + tgd_svg_label(out, x + 12, y + h - 10, "at an op", type, TGD_START, 120) + 20;
    draw_point(out, x + 4, y + h - 14, true);
    tgd_svg_label(out, x + 12, y + h - 10, "its parameters' own gradient", type, TGD_START, 220);
}
