/* Cutting backward's order into columns: a dynamic program over the cuts, for every number of columns. */
#include "arrange.h"

#include <math.h>
#include <string.h>

enum { MOST_COLUMNS = 7, N = TGD_FOLD_BOXES };

typedef struct size {
    double w, h;
} size;

/* Size of boxes i .. j as one column, ranks by longest path; frames stand apart from what is around them. */
static size column_size(const tgd_fold *fold, const tgd_box_place *places, uint32_t i, uint32_t j)
{
    uint32_t rank[N] = {0};
    double rank_width[N + 1] = {0};
    double rank_height[N + 1] = {0};
    uint32_t base = 0;
    uint32_t last = 0;
    double extra = 0;
    uint32_t e = 0;
    while (e < fold->n_edges && fold->edges[e].from < i) {
        e++;
    }
    for (uint32_t b = i; b <= j; b++) {
        uint32_t frame = fold->boxes[b].frame;
        if (b > i && frame != fold->boxes[b - 1].frame) {
            base = last + 1;
            extra += TGD_RANK_GAP;
        } else if (b == i && frame != TGD_NONE) {
            extra += TGD_FRAME_TITLE + TGD_FRAME_PAD;
        }
        rank[b] = rank[b] < base ? base : rank[b];
        last = rank[b] > last ? rank[b] : last;
        rank_width[rank[b]] += places[b].w + TGD_NODE_GAP;
        rank_height[rank[b]] = fmax(rank_height[rank[b]], places[b].h);
        for (; e < fold->n_edges && fold->edges[e].from == b; e++) {
            uint32_t to = fold->edges[e].to;
            if (to > j) {
                continue;
            }
            for (uint32_t between = rank[b] + 1; between < rank[to]; between++) {
                rank_width[between] += TGD_NODE_GAP;
            }
            rank[to] = rank[to] <= rank[b] ? rank[b] + 1 : rank[to];
        }
    }
    size out = {0, extra + TGD_RANK_GAP * (double)last};
    for (uint32_t r = 0; r <= last; r++) {
        out.w = fmax(out.w, rank_width[r] - TGD_NODE_GAP);
        out.h += rank_height[r];
    }
    out.w += 2 * TGD_FRAME_PAD;
    return out;
}

/* Lines that a cut behind box p meets; edges that share a box count once. */
static uint32_t crossings(const tgd_fold *fold, uint32_t p)
{
    bool tails[N] = {false};
    bool heads[N] = {false};
    uint32_t n_tails = 0;
    uint32_t n_heads = 0;
    for (uint32_t e = 0; e < fold->n_edges; e++) {
        const tgd_fold_edge *edge = &fold->edges[e];
        if (edge->from <= p && edge->to > p) {
            n_tails += !tails[edge->from];
            n_heads += !heads[edge->to];
            tails[edge->from] = heads[edge->to] = true;
        }
    }
    return n_tails < n_heads ? n_tails : n_heads;
}

static bool same_frame(const tgd_fold *fold, uint32_t a, uint32_t b)
{
    return fold->boxes[a].frame != TGD_NONE && fold->boxes[a].frame == fold->boxes[b].frame;
}

/* A cut before box i leaves one box of a frame alone. */
static bool leaves_one(const tgd_fold *fold, uint32_t i)
{
    if (!same_frame(fold, i - 1, i)) {
        return false;
    }
    bool alone_below = i + 1 >= fold->n_boxes || !same_frame(fold, i, i + 1);
    bool alone_above = i < 2 || !same_frame(fold, i - 2, i - 1);
    return alone_below || alone_above;
}

/* What a cut before box i costs in the reader's attention. */
static double cut_cost(const tgd_fold *fold, const uint32_t *cross, uint32_t i)
{
    double more = cross[i - 1] > 0 ? (double)cross[i - 1] - 1 : 0;
    return 0.06 * more + (same_frame(fold, i - 1, i) ? 0.05 : 0) + (leaves_one(fold, i) ? 0.05 : 0);
}

void tgd_columns_choose(tgd_columns *out, const tgd_fold *fold, const tgd_box_place *places, double width, double height,
                        double largest)
{
    uint32_t n = fold->n_boxes;
    static const double cost_scale = 420; /* cut costs against the heights' fourth powers */
    size sizes[N][N];
    double best[MOST_COLUMNS + 1][N];
    uint32_t from[MOST_COLUMNS + 1][N];
    uint32_t cross[N];
    *out = (tgd_columns){.n = n == 0 ? 0 : 1, .scale = largest};
    out->first[1] = n;
    double best_score = -1e9;
    for (uint32_t j = 0; j < n; j++) {
        cross[j] = crossings(fold, j);
        for (uint32_t i = 0; i <= j; i++) {
            sizes[i][j] = column_size(fold, places, i, j);
        }
        best[1][j] = pow(sizes[0][j].h / 200, 4) * 6;
        from[1][j] = 0;
    }
    for (uint32_t k = 1; k <= MOST_COLUMNS && k <= n; k++) {
        for (uint32_t j = k - 1; j < n && k > 1; j++) {
            best[k][j] = 1e18;
            from[k][j] = k - 1;
            for (uint32_t i = k - 1; i <= j; i++) {
                double cost = best[k - 1][i - 1] + pow(sizes[i][j].h / 200, 4) * 6 +
                              cost_scale * cut_cost(fold, cross, i);
                if (cost < best[k][j]) {
                    best[k][j] = cost;
                    from[k][j] = i;
                }
            }
        }
        tgd_columns columns = {.n = k};
        double wide = TGD_COLUMN_GAP * (double)(k - 1);
        double tall = 0;
        double cost = 0;
        uint32_t end = n;
        for (uint32_t c = k; c > 0; c--) {
            uint32_t i = from[c][end - 1];
            columns.first[c] = end;
            columns.first[c - 1] = i;
            wide += sizes[i][end - 1].w;
            tall = fmax(tall, sizes[i][end - 1].h);
            cost += i > 0 ? cut_cost(fold, cross, i) : 0;
            end = i;
        }
        tall += 28;
        columns.scale = fmin(largest, fmin(width / wide, height / tall));
        if (columns.scale - cost > best_score + 0.02) {
            best_score = columns.scale - cost;
            *out = columns;
        }
    }
}

double tgd_arrange_estimate(const tgd_fold *fold, const tgd_box_place *places, double width, double height,
                            double largest)
{
    tgd_columns columns;
    tgd_columns_choose(&columns, fold, places, width, height, largest);
    return columns.scale;
}
