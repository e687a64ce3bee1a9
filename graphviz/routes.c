/*
 * Edges from one column to a later one. An edge leaves its box downwards, or to the right, or through the gap below
 * its rank, whichever is free of boxes; runs up or down in the gutter behind its column; passes over other columns
 * along the top; and comes in from above, from the left, or through the gap above. Edges of one box share a lane.
 */
#include "arrange.h"

#include <math.h>
#include <stdlib.h>

typedef enum side { ALONG = 0, ACROSS, GAP } side; /* down or from above; to the right or from the left */

typedef struct route {
    uint32_t edge, from, to;
    uint32_t first_column, last_column;
    side exit, entry;
    bool over;              /* runs along the top */
    double begin, end;      /* of the stretch along the top, in columns */
    uint32_t out_lane, in_lane, top_lane, bottom_lane;
} route;

static const double clear_space = 5;

/* Is the way straight down from a box (or up, for `up`) to the end of its column free? */
static bool free_along(const tgd_arrangement *a, uint32_t box, bool up)
{
    const tgd_box_place *p = &a->places[box];
    for (uint32_t b = 0; b < a->n_places; b++) {
        const tgd_box_place *q = &a->places[b];
        if (b != box && q->column == p->column && fabs(q->x - p->x) < q->w / 2 + clear_space &&
            (up ? q->y < p->y : q->y > p->y)) {
            return false;
        }
    }
    return true;
}

static bool free_across(const tgd_arrangement *a, uint32_t box, bool left)
{
    const tgd_box_place *p = &a->places[box];
    for (uint32_t b = 0; b < a->n_places; b++) {
        const tgd_box_place *q = &a->places[b];
        if (b != box && q->column == p->column && fabs(q->y - p->y) < q->h / 2 + q->behind + clear_space &&
            (left ? q->x < p->x : q->x > p->x)) {
            return false;
        }
    }
    return true;
}

/* Middle of the free band below (above) the rank of a box. */
static double gap_of(const tgd_arrangement *a, uint32_t box, bool above)
{
    const tgd_box_place *p = &a->places[box];
    double sign = above ? -1 : 1;
    double near = sign * p->y + p->h / 2;
    double far = 1e9;
    for (uint32_t b = 0; b < a->n_places; b++) {
        const tgd_box_place *q = &a->places[b];
        if (q->column != p->column) {
            continue;
        }
        if (fabs(q->y - p->y) < 8) {
            near = fmax(near, sign * q->y + q->h / 2 + (above ? q->behind : 0));
        } else if (sign * q->y > sign * p->y) {
            far = fmin(far, sign * q->y - q->h / 2 - (above ? 0 : q->behind));
        }
    }
    return sign * (far < 1e8 ? (near + far) / 2 : near + 8);
}

static bool shares(const route *all, uint32_t n, const route *a, const route *b)
{
    if (a->from == b->from) {
        return true;
    }
    if (a->to != b->to) {
        return false;
    }
    uint32_t others = 0;
    for (uint32_t i = 0; i < n; i++) {
        others += all[i].from == a->from || all[i].from == b->from;
    }
    return others == 2;
}

static uint32_t gutter_lane(const route *all, uint32_t n, uint32_t upto, uint32_t gutter, uint32_t lanes)
{
    for (uint32_t i = 0; i < upto; i++) {
        if (shares(all, n, &all[i], &all[upto])) {
            if (all[i].first_column == gutter) {
                return all[i].out_lane;
            }
        }
    }
    return lanes;
}

/* Everything about the routes that does not need final coordinates. Returns how many there are. */
static uint32_t decide(route *routes, tgd_routes *plan, const tgd_fold *fold, const tgd_arrangement *a,
                       const tgd_extent *columns)
{
    uint32_t n = 0;
    *plan = (tgd_routes){0};
    for (uint32_t e = 0; e < fold->n_edges; e++) {
        uint32_t from = fold->edges[e].from;
        uint32_t to = fold->edges[e].to;
        uint32_t c1 = a->places[from].column;
        uint32_t c2 = a->places[to].column;
        if (c1 >= c2) {
            continue;
        }
        route *r = &routes[n++];
        *r = (route){.edge = e, .from = from, .to = to, .first_column = c1, .last_column = c2};
        r->exit = free_along(a, from, false) ? ALONG : free_across(a, from, false) ? ACROSS : GAP;
        r->entry = free_along(a, to, true) ? ALONG : free_across(a, to, true) ? ACROSS : GAP;
        r->over = r->entry == ALONG || c2 > c1 + 1;
        double width = columns[c2].x1 - columns[c2].x0;
        double share = width > 0 ? (a->places[to].x - columns[c2].x0) / width : 0.5;
        r->begin = c1 + 0.9;
        r->end = r->entry == ALONG ? c2 + 0.1 + 0.7 * share : c2 - 1 + 0.95;
    }
    for (uint32_t i = 0; i < n; i++) {
        route *r = &routes[i];
        r->out_lane = gutter_lane(routes, n, i, r->first_column, plan->gutter[r->first_column]);
        if (r->out_lane == plan->gutter[r->first_column]) {
            plan->gutter[r->first_column]++;
        }
        if (r->entry != ALONG && r->last_column > r->first_column + 1) {
            r->in_lane = plan->gutter[r->last_column - 1]++;
        }
        for (bool taken = r->over; taken;) {
            taken = false;
            for (uint32_t k = 0; k < i && !taken; k++) {
                const route *o = &routes[k];
                taken = o->over && o->top_lane == r->top_lane && o->begin < r->end && r->begin < o->end &&
                        !shares(routes, n, o, r);
            }
            r->top_lane += taken;
        }
        if (r->over && r->top_lane + 1 > plan->top) {
            plan->top = r->top_lane + 1;
        }
        for (uint32_t k = 0; k < n && r->exit == ALONG; k++) {
            bool first_of_box = true;
            for (uint32_t q = 0; q < k && first_of_box; q++) {
                first_of_box = routes[q].from != routes[k].from;
            }
            r->bottom_lane += first_of_box && routes[k].exit == ALONG && routes[k].first_column == r->first_column &&
                              routes[k].from != r->from && a->places[routes[k].from].x > a->places[r->from].x;
        }
        if (r->exit == ALONG && r->bottom_lane + 1 > plan->bottom) {
            plan->bottom = r->bottom_lane + 1;
        }
    }
    return n;
}

tgd_status tgd_routes_plan(tgd_routes *out, const tgd_fold *fold, const tgd_arrangement *a, const tgd_extent *columns,
                           tgd_error *err)
{
    route *routes = calloc(fold->n_edges + 1, sizeof *routes);
    if (routes == NULL) {
        return tgd_fail_memory(err);
    }
    *out = (tgd_routes){0};
    decide(routes, out, fold, a, columns);
    free(routes);
    return TGD_OK;
}

static double gutter_x(const tgd_extent *columns, const tgd_routes *plan, uint32_t gutter, uint32_t lane)
{
    double middle = (columns[gutter].x1 + columns[gutter + 1].x0) / 2;
    return middle + TGD_LANE * ((double)lane - ((double)plan->gutter[gutter] - 1) / 2);
}

tgd_status tgd_routes_draw(tgd_arrangement *a, const tgd_fold *fold, const tgd_extent *columns,
                           const tgd_routes *routes, tgd_error *err)
{
    tgd_routes plan;
    route *all = calloc(fold->n_edges + 1, sizeof *all);
    if (all == NULL) {
        return tgd_fail_memory(err);
    }
    uint32_t n = decide(all, &plan, fold, a, columns);
    plan = *routes;
    for (uint32_t i = 0; i < n; i++) {
        const route *r = &all[i];
        const tgd_box_place *from = &a->places[r->from];
        const tgd_box_place *to = &a->places[r->to];
        tgd_point *p = calloc(12, sizeof *p);
        if (p == NULL) {
            free(all);
            return tgd_fail_memory(err);
        }
        uint32_t k = 0;
        double x = gutter_x(columns, &plan, r->first_column, r->out_lane);
        double y = r->exit == ALONG ? columns[r->first_column].y1 + 11 + TGD_LANE * (double)r->bottom_lane
                   : r->exit == ACROSS ? from->y
                                       : gap_of(a, r->from, false);
        if (r->exit == ACROSS) {
            p[k++] = (tgd_point){from->x + from->w / 2 + from->behind, y};
        } else {
            p[k++] = (tgd_point){from->x, from->y + from->h / 2};
            p[k++] = (tgd_point){from->x, y};
        }
        p[k++] = (tgd_point){x, y};
        double head = to->y - to->h / 2 - to->behind;
        if (r->over) {
            y = columns[r->last_column].y0 - 12 - TGD_LANE * (double)r->top_lane;
            p[k++] = (tgd_point){x, y};
        }
        if (r->over && r->entry != ALONG) {
            x = gutter_x(columns, &plan, r->last_column - 1, r->in_lane);
            p[k++] = (tgd_point){x, y};
        }
        if (r->entry == ACROSS) {
            p[k++] = (tgd_point){x, to->y};
            p[k++] = (tgd_point){to->x - to->w / 2, to->y};
        } else {
            if (r->entry == GAP) {
                y = gap_of(a, r->to, true);
                p[k++] = (tgd_point){x, y};
            }
            p[k++] = (tgd_point){to->x, y};
            p[k++] = (tgd_point){to->x, head};
        }
        a->ways[a->n_ways++] = (tgd_way){.edge = r->edge, .points = p, .n_points = k};
    }
    free(all);
    return TGD_OK;
}
