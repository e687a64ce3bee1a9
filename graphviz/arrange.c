#include "arrange.h"

#include "layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void tgd_arrangement_clear(tgd_arrangement *a)
{
    for (uint32_t i = 0; i < a->n_ways; i++) {
        free(a->ways[i].points);
    }
    free(a->places);
    free(a->ways);
    free(a->frames);
    *a = (tgd_arrangement){0};
}

/* Boxes of the column on a longest path, so that dot stacks them; boxes beside each other at its end are left to
   stand in the middle. */
static void choose_spine(tgd_layout *layout)
{
    uint32_t length[TGD_FOLD_BOXES] = {0};
    uint32_t next[TGD_FOLD_BOXES];
    uint32_t start = 0;
    uint32_t e = layout->n_edges;
    for (uint32_t v = layout->n_nodes; v > 0; v--) {
        uint32_t b = v - 1;
        length[b] = 1;
        next[b] = TGD_NONE;
        while (e > 0 && layout->edges[e - 1].from == b) {
            e--;
            uint32_t to = layout->edges[e].to;
            if (length[to] + 1 >= length[b]) {
                length[b] = length[to] + 1;
                next[b] = to;
            }
        }
        if (length[b] >= length[start]) {
            start = b;
        }
    }
    for (uint32_t b = start; b != TGD_NONE; b = next[b]) {
        uint32_t ends = 0;
        for (uint32_t i = 0; i < layout->n_edges; i++) {
            ends += layout->edges[i].from == b;
        }
        layout->nodes[b].spine = true;
        if (next[b] != TGD_NONE && next[next[b]] == TGD_NONE && ends > 1) {
            break;
        }
    }
}

/* Edges beside which a longer way leads to the same box. */
static void find_skips(tgd_layout *layout)
{
    uint64_t reach[TGD_FOLD_BOXES] = {0};
    uint32_t e = layout->n_edges;
    for (uint32_t v = layout->n_nodes; v > 0; v--) {
        uint32_t end = e;
        uint64_t beyond = 0;
        while (e > 0 && layout->edges[e - 1].from == v - 1) {
            e--;
            beyond |= reach[layout->edges[e].to];
        }
        for (uint32_t i = e; i < end; i++) {
            layout->edges[i].skip = (beyond >> layout->edges[i].to & 1) != 0;
            reach[v - 1] |= reach[layout->edges[i].to] | (uint64_t)1 << layout->edges[i].to;
        }
    }
}

static tgd_status lay_column(tgd_layout *layout, const tgd_fold *fold, const tgd_box_place *places, uint32_t first,
                             uint32_t end, double rank_gap, tgd_error *err)
{
    *layout = (tgd_layout){.n_nodes = end - first, .rank_gap = rank_gap, .node_gap = TGD_NODE_GAP};
    layout->nodes = calloc(layout->n_nodes, sizeof *layout->nodes);
    layout->edges = calloc(fold->n_edges + 1, sizeof *layout->edges);
    if (layout->nodes == NULL || layout->edges == NULL) {
        return tgd_fail_memory(err);
    }
    uint32_t segment = 0;
    for (uint32_t b = first; b < end; b++) {
        segment += b > first && fold->boxes[b].frame != fold->boxes[b - 1].frame;
        layout->nodes[b - first] =
            (tgd_layout_node){.w = places[b].w, .h = places[b].h + places[b].behind, .segment = segment};
    }
    for (uint32_t e = 0; e < fold->n_edges; e++) {
        const tgd_fold_edge *edge = &fold->edges[e];
        if (edge->from >= first && edge->to < end && edge->from < end) {
            layout->edges[layout->n_edges++] =
                (tgd_layout_edge){.from = edge->from - first, .to = edge->to - first};
        }
    }
    choose_spine(layout);
    find_skips(layout);
    return tgd_layout_run(layout, err);
}

static uint32_t count_ranks(const tgd_layout *layout)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < layout->n_nodes; i++) {
        bool first = true;
        for (uint32_t k = 0; k < i && first; k++) {
            first = fabs(layout->nodes[k].y - layout->nodes[i].y) > 1;
        }
        n += first;
        n += i > 0 && layout->nodes[i].segment != layout->nodes[i - 1].segment;
    }
    return n;
}

/* Take a column's positions over, with y = 0 at its top and x = 0 at its left, frames included. */
static tgd_status take_column(tgd_arrangement *a, tgd_extent *extent, tgd_layout *layout, const tgd_fold *fold,
                              const uint32_t *edge_of, uint32_t first, uint32_t column, tgd_error *err)
{
    uint32_t end = first + layout->n_nodes;
    double top = 1e9;
    double bottom = -1e9;
    double left = 1e9;
    double right = -1e9;
    uint32_t first_frame = a->n_frames;
    for (uint32_t b = first; b < end; b++) {
        tgd_box_place *p = &a->places[b];
        const tgd_layout_node *node = &layout->nodes[b - first];
        p->x = node->x;
        p->y = node->y + p->behind / 2;
        p->column = column;
        uint32_t frame = fold->boxes[b].frame;
        bool framed = frame != TGD_NONE;
        double x0 = p->x - p->w / 2 - (framed ? TGD_FRAME_PAD : 0);
        double x1 = p->x + p->w / 2 + p->behind + (framed ? TGD_FRAME_PAD : 0);
        double y0 = p->y - p->h / 2 - p->behind - (framed ? TGD_FRAME_TITLE : 0);
        double y1 = p->y + p->h / 2 + (framed ? TGD_FRAME_PAD : 0);
        if (framed && (a->n_frames == first_frame || a->frames[a->n_frames - 1].frame != frame)) {
            a->frames[a->n_frames++] = (tgd_frame_part){frame, column, x0, y0, x1 - x0, y1 - y0};
        } else if (framed) {
            tgd_frame_part *part = &a->frames[a->n_frames - 1];
            double far_x = fmax(part->x + part->w, x1);
            double far_y = fmax(part->y + part->h, y1);
            part->x = fmin(part->x, x0);
            part->y = fmin(part->y, y0);
            part->w = far_x - part->x;
            part->h = far_y - part->y;
        }
        top = fmin(top, y0);
        bottom = fmax(bottom, y1);
        left = fmin(left, x0);
        right = fmax(right, x1);
    }
    for (uint32_t e = 0; e < layout->n_edges; e++) {
        for (uint32_t k = 0; k < layout->edges[e].n_points; k++) {
            left = fmin(left, layout->edges[e].points[k].x - 2);
            right = fmax(right, layout->edges[e].points[k].x + 2);
        }
    }
    for (uint32_t b = first; b < end; b++) {
        a->places[b].x -= left;
        a->places[b].y -= top;
    }
    for (uint32_t f = first_frame; f < a->n_frames; f++) {
        a->frames[f].x -= left;
        a->frames[f].y -= top;
    }
    for (uint32_t e = 0; e < layout->n_edges; e++) {
        tgd_layout_edge *edge = &layout->edges[e];
        tgd_way way = {.edge = edge_of[e], .spline = true, .points = edge->points, .n_points = edge->n_points};
        if (way.points == NULL) {
            const tgd_box_place *from = &a->places[first + edge->from];
            const tgd_box_place *to = &a->places[first + edge->to];
            way.points = calloc(2, sizeof *way.points);
            if (way.points == NULL) {
                return tgd_fail_memory(err);
            }
            way.points[0] = (tgd_point){from->x, from->y + from->h / 2};
            way.points[1] = (tgd_point){to->x, to->y - to->h / 2 - to->behind};
            way.n_points = 2;
            way.spline = false;
        }
        for (uint32_t k = 0; k < way.n_points && way.spline; k++) {
            way.points[k].x -= left;
            way.points[k].y -= top;
        }
        edge->points = NULL; /* moved */
        a->ways[a->n_ways++] = way;
    }
    *extent = (tgd_extent){0, right - left, 0, bottom - top};
    return TGD_OK;
}

static void move_column(tgd_arrangement *a, const tgd_fold *fold, uint32_t column, double dx, double dy)
{
    for (uint32_t b = 0; b < a->n_places; b++) {
        if (a->places[b].column == column) {
            a->places[b].x += dx;
            a->places[b].y += dy;
        }
    }
    for (uint32_t f = 0; f < a->n_frames; f++) {
        if (a->frames[f].column == column) {
            a->frames[f].x += dx;
            a->frames[f].y += dy;
        }
    }
    for (uint32_t w = 0; w < a->n_ways; w++) {
        if (a->places[fold->edges[a->ways[w].edge].from].column == column) {
            for (uint32_t k = 0; k < a->ways[w].n_points; k++) {
                a->ways[w].points[k].x += dx;
                a->ways[w].points[k].y += dy;
            }
        }
    }
}

static tgd_status lay_columns(tgd_arrangement *a, const tgd_fold *fold, const tgd_columns *columns, double rank_gap,
                              tgd_extent *extents, uint32_t *ranks, tgd_error *err)
{
    uint32_t *edge_of = calloc(fold->n_edges + 1, sizeof *edge_of);
    if (edge_of == NULL) {
        return tgd_fail_memory(err);
    }
    tgd_status status = TGD_OK;
    *ranks = 1;
    for (uint32_t c = 0; c < columns->n && status == TGD_OK; c++) {
        uint32_t first = columns->first[c];
        uint32_t end = columns->first[c + 1];
        uint32_t n = 0;
        for (uint32_t e = 0; e < fold->n_edges; e++) {
            if (fold->edges[e].from >= first && fold->edges[e].to < end && fold->edges[e].from < end) {
                edge_of[n++] = e;
            }
        }
        tgd_layout layout;
        status = lay_column(&layout, fold, a->places, first, end, rank_gap, err);
        if (status == TGD_OK) {
            uint32_t here = count_ranks(&layout);
            *ranks = here > *ranks ? here : *ranks;
            status = take_column(a, &extents[c], &layout, fold, edge_of, first, c, err);
        }
        tgd_layout_clear(&layout);
    }
    free(edge_of);
    return status;
}

static void forget_columns(tgd_arrangement *a)
{
    for (uint32_t w = 0; w < a->n_ways; w++) {
        free(a->ways[w].points);
    }
    a->n_ways = a->n_frames = 0;
}

static double tallest(const tgd_extent *extents, uint32_t n)
{
    double height = 0;
    for (uint32_t c = 0; c < n; c++) {
        height = fmax(height, extents[c].y1);
    }
    return height;
}

static tgd_status arrange(tgd_arrangement *a, const tgd_fold *fold, double width, double height, double largest,
                          tgd_error *err)
{
    tgd_columns columns;
    tgd_extent extents[TGD_FOLD_BOXES] = {{0}};
    tgd_routes routes;
    uint32_t ranks;
    a->ways = calloc(fold->n_edges + 1, sizeof *a->ways);
    a->frames = calloc(fold->n_boxes + 1, sizeof *a->frames);
    if (a->ways == NULL || a->frames == NULL) {
        return tgd_fail_memory(err);
    }
    tgd_columns_choose(&columns, fold, a->places, width, height, largest);
    a->n_columns = columns.n;
    tgd_status status = lay_columns(a, fold, &columns, TGD_RANK_GAP, extents, &ranks, err);
    if (status == TGD_OK) {
        status = tgd_routes_plan(&routes, fold, a, extents, err);
    }
    if (status != TGD_OK) {
        return status;
    }
    double wide = 0;
    for (uint32_t c = 0; c < columns.n; c++) {
        wide += extents[c].x1 + (c + 1 < columns.n ? TGD_COLUMN_GAP + TGD_LANE * (double)routes.gutter[c] : 0);
    }
    double lanes = 16 + TGD_LANE * (double)(routes.top + routes.bottom);
    double tall = tallest(extents, columns.n);
    double scale = fmin(largest, fmin(width / wide, height / (tall + lanes)));
    double spare = height / scale - tall - lanes - 6;
    if (spare > 12 && ranks > 1) { /* room is left below: spread the ranks */
        double more = fmin(22, spare / (double)(ranks - 1));
        forget_columns(a);
        status = lay_columns(a, fold, &columns, TGD_RANK_GAP + more, extents, &ranks, err);
        if (status == TGD_OK) {
            status = tgd_routes_plan(&routes, fold, a, extents, err);
        }
        if (status != TGD_OK) {
            return status;
        }
        tall = tallest(extents, columns.n);
        scale = fmin(largest, fmin(width / wide, height / (tall + lanes)));
    }
    double slack = columns.n > 1 ? fmin(90, fmax(0, width / scale - wide) / (double)(columns.n - 1)) : 0;
    double x = 0;
    double y = 8 + TGD_LANE * (double)routes.top;
    for (uint32_t c = 0; c < columns.n; c++) {
        move_column(a, fold, c, x, y);
        extents[c] = (tgd_extent){x, x + extents[c].x1, y, y + extents[c].y1};
        x = extents[c].x1 + TGD_COLUMN_GAP + TGD_LANE * (double)routes.gutter[c] + slack;
    }
    a->width = columns.n == 0 ? 0 : extents[columns.n - 1].x1;
    a->height = tall + lanes;
    a->scale = columns.n == 0 ? 1 : fmin(largest, fmin(width / a->width, height / a->height));
    return tgd_routes_draw(a, fold, extents, &routes, err);
}

tgd_status tgd_arrange(tgd_arrangement *out, const tgd_fold *fold, tgd_box_place *places, double width, double height,
                       double largest, tgd_error *err)
{
    tgd_arrangement a = {.places = places, .n_places = fold->n_boxes};
    tgd_status status = arrange(&a, fold, width, height, largest, err);
    if (status != TGD_OK) {
        tgd_arrangement_clear(&a);
        return status;
    }
    *out = a;
    return TGD_OK;
}
