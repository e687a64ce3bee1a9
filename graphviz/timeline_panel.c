/* Backward in time: a lane for each thread and stream, a bar for each node, coloured as in the graph. */
#include "timeline_panel.h"

#include "boxes.h"

#include <math.h>
#include <stdlib.h>

enum {
    X = TGD_MARGIN,
    W = TGD_SHEET_WIDTH - 2 * TGD_MARGIN,
    LEFT = X + 150,
    RIGHT = X + W - 24,
    MOST_LANES = 3,
    LANES_HEIGHT = 72,
    LANE_GAP = 6,
    MOST_HEIGHT = 40,
    MOST_BARS = 1200 /* a lane */
};

typedef struct lane {
    uint64_t thread, stream;
    int device; /* -1: a thread */
    uint64_t busy;
} lane;

typedef struct timeline {
    const tgd_units *units;
    const tgd_measures *measures;
    uint64_t began, ended;
    lane lanes[MOST_LANES];
    uint32_t n_lanes, n_more;
    uint32_t slowest; /* in spans, or TGD_NONE */
    double pitch, height; /* of a lane */
} timeline;

static bool in_lane(const lane *l, const tgd_span *span)
{
    return l->device < 0 ? span->thread == l->thread
                         : span->on_device.known && span->on_device.device == l->device && span->on_device.stream == l->stream;
}

static uint64_t own_ns(const tgd_span *span)
{
    return span->on_device.known ? span->on_device.ended - span->on_device.began : span->self_ns;
}

static void add_lane(timeline *t, lane found, uint64_t busy, const tgd_span *span)
{
    for (uint32_t i = 0; i < t->n_lanes; i++) {
        if ((t->lanes[i].device < 0) == (found.device < 0) && in_lane(&t->lanes[i], span)) {
            t->lanes[i].busy += busy;
            return;
        }
    }
    if (t->n_lanes < MOST_LANES) {
        found.busy = busy;
        t->lanes[t->n_lanes++] = found;
    } else {
        t->n_more++;
    }
}

static void look(timeline *t)
{
    t->began = t->measures->began;
    t->ended = t->measures->ended;
    t->slowest = TGD_NONE;
    for (uint32_t s = 0; s < t->measures->n_spans; s++) {
        const tgd_span *span = &t->measures->spans[s];
        t->ended = span->ended > t->ended ? span->ended : t->ended;
        add_lane(t, (lane){.thread = span->thread, .device = -1}, span->self_ns, span);
        if (span->on_device.known) {
            t->ended = span->on_device.ended > t->ended ? span->on_device.ended : t->ended;
            add_lane(t, (lane){.stream = span->on_device.stream, .device = span->on_device.device}, own_ns(span), span);
        }
        if (t->slowest == TGD_NONE || own_ns(span) > own_ns(&t->measures->spans[t->slowest])) {
            t->slowest = s;
        }
    }
}

static double at(const timeline *t, uint64_t ns)
{
    uint64_t since = ns > t->began ? ns - t->began : 0;
    return LEFT + (RIGHT - LEFT) * (double)since / (double)(t->ended - t->began);
}

static tgd_colour colour_of(const timeline *t, const tgd_span *span)
{
    uint32_t unit = span->in_graph == TGD_NONE ? TGD_NONE : t->units->unit_of[span->in_graph];
    return unit == TGD_NONE ? TGD_COLOUR_MUTE : tgd_heat(t->units, &t->units->measured[unit]);
}

static void draw_lane(tgd_text *out, const timeline *t, const lane *l, double y)
{
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    if (l->device < 0) {
        tgd_text_printf(&words, "thread %lu", (unsigned long)l->thread);
    } else {
        tgd_text_printf(&words, "device %d, stream %lx", l->device, (unsigned long)l->stream);
    }
    tgd_svg_label(out, LEFT - 12, y + t->height / 2 + 4, tgd_text_words(out, &words), (tgd_type){12, TGD_SANS, TGD_COLOUR_INK2}, TGD_END,
                  LEFT - X - 28);
    tgd_text_drop(&words);
    tgd_svg_rect(out, LEFT, y, RIGHT - LEFT, t->height, 3, (tgd_pen){.fill = TGD_COLOUR_FRAME});
    double least = (double)(RIGHT - LEFT) / MOST_BARS;
    double reached = LEFT - 1;
    for (uint32_t s = 0; s < t->measures->n_spans; s++) {
        const tgd_span *span = &t->measures->spans[s];
        if (!in_lane(l, span) || (l->device < 0 && span->depth > 0)) {
            continue;
        }
        double x0 = at(t, l->device < 0 ? span->began : span->on_device.began);
        double x1 = at(t, l->device < 0 ? span->ended : span->on_device.ended);
        if (x0 < reached) { /* what is too narrow to be seen beside its neighbour is part of it */
            if (x1 < reached) {
                continue;
            }
            x0 = reached;
        }
        x1 = fmax(x1, x0 + least);
        tgd_svg_rect(out, x0, y, x1 - x0, t->height, x1 - x0 > 6 ? 2 : 0,
                     (tgd_pen){colour_of(t, span), x1 - x0 > 6 ? TGD_COLOUR_EDGE : TGD_COLOUR_NONE, 1, NULL});
        reached = x1;
        if (x1 - x0 > 40) {
            size_t n = tgd_fold_op_length(span->name);
            tgd_type type = {11, TGD_SANS, TGD_COLOUR_INK};
            if (tgd_style_width(span->name, n, type.size, type.font) < x1 - x0 - 8) {
                tgd_text op;
                tgd_text_init(&op, NULL, NULL);
                tgd_text_bytes(&op, span->name, n);
                tgd_svg_label(out, (x0 + x1) / 2, y + t->height / 2 + 4, tgd_text_words(out, &op), type, TGD_MIDDLE, x1 - x0);
                tgd_text_drop(&op);
            }
        }
    }
}

/* The slowest node, framed and named below its lane. */
static void draw_slowest(tgd_text *out, const timeline *t, double top, double title_y)
{
    const tgd_report *report = t->units->report;
    const tgd_span *span = &t->measures->spans[t->slowest];
    bool device = span->on_device.known;
    uint32_t i = 0;
    while (i < t->n_lanes && !((t->lanes[i].device >= 0) == device && in_lane(&t->lanes[i], span))) {
        i++;
    }
    if (i == t->n_lanes) {
        return;
    }
    double x0 = at(t, device ? span->on_device.began : span->began);
    double x1 = fmax(x0 + 2, at(t, device ? span->on_device.ended : span->ended));
    double y = top + t->pitch * (double)i;
    tgd_svg_rect(out, x0 - 1, y - 1, x1 - x0 + 2, t->height + 2, 3, (tgd_pen){TGD_COLOUR_NONE, TGD_COLOUR_TIME, 2.4, NULL});
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    tgd_text_str(&words, "slowest: ");
    if (span->in_graph != TGD_NONE) {
        tgd_node_phrase(&words, report, span->in_graph);
        uint32_t where = report->node_where == NULL ? TGD_NONE : report->node_where[span->in_graph];
        if (where != TGD_NONE) {
            tgd_text_str(&words, " at ");
            tgd_source_phrase(&words, &report->sources[where]);
        }
    } else {
        tgd_text_line(&words, span->name, 60);
    }
    tgd_text_str(&words, ", ");
    tgd_text_duration(&words, own_ns(span));
    if (span->first_use) {
        tgd_text_str(&words, ", first use of its kind");
    }
    tgd_svg_label(out, RIGHT, title_y, tgd_text_words(out, &words), (tgd_type){12.5, TGD_BOLD, TGD_COLOUR_TIME}, TGD_END,
                  700);
    tgd_text_drop(&words);
}

static void draw_axis(tgd_text *out, const timeline *t, double y)
{
    double span = (double)(t->ended - t->began);
    double step = pow(10, floor(log10(span / 4)));
    while (span / step > 9) {
        step *= span / step > 22 ? 5 : 2;
    }
    for (double ns = 0; ns <= span * 0.985; ns += step) {
        double x = at(t, t->began + (uint64_t)ns);
        tgd_text words;
        tgd_text_init(&words, NULL, NULL);
        tgd_text_duration(&words, (uint64_t)ns);
        tgd_svg_line(out, x, y - 12, x, y - 8, (tgd_pen){.stroke = TGD_COLOUR_EDGE, .width = 1});
        tgd_svg_label(out, x, y + 3, ns == 0 ? "0" : tgd_text_words(out, &words), (tgd_type){11.5, TGD_SANS, TGD_COLOUR_INK2},
                      TGD_MIDDLE, 80);
        tgd_text_drop(&words);
    }
}

bool tgd_timeline_shows(const tgd_units *units)
{
    const tgd_measures *m = units->report->measures;
    return units->measured != NULL && m->n_spans > 0 && m->ended > m->began && units->total_ns > 0;
}

void tgd_timeline_panel_draw(tgd_text *out, const tgd_units *units, double y)
{
    timeline t = {.units = units, .measures = units->report->measures};
    look(&t);
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    tgd_text_str(&words, "backward took ");
    tgd_text_duration(&words, t.measures->ended - t.measures->began - t.measures->ours);
    tgd_text_str(&words, ", measuring left out;  ");
    tgd_text_count(&words, t.measures->n_spans);
    tgd_text_str(&words, t.measures->n_spans == 1 ? " node" : " nodes");
    if (t.n_more > 0) {
        tgd_text_str(&words, ", some of them on threads or streams that are not drawn");
    }
    tgd_svg_panel(out, X, y, W, TGD_TIMELINE_HEIGHT, "Timeline", tgd_text_words(out, &words));
    tgd_text_drop(&words);
    t.pitch = fmin(MOST_HEIGHT + LANE_GAP, LANES_HEIGHT / (double)t.n_lanes);
    t.height = t.pitch - LANE_GAP;
    double top = y + 42 + (LANES_HEIGHT - t.pitch * (double)t.n_lanes) / 2;
    for (uint32_t i = 0; i < t.n_lanes; i++) {
        draw_lane(out, &t, &t.lanes[i], top + t.pitch * (double)i);
    }
    if (t.slowest != TGD_NONE) {
        draw_slowest(out, &t, top, y + 26);
    }
    draw_axis(out, &t, top + t.pitch * (double)t.n_lanes + 12);
}
