/* Boxes in columns that are read from left to right: backward's order, cut where few edges cross. */
#ifndef TGD_ARRANGE_H
#define TGD_ARRANGE_H

#include "fold.h"
#include "svg.h"

typedef struct tgd_box_place {
    double w, h;     /* in: size */
    double behind;   /* in: how far cards behind it stick out at the top */
    double x, y;     /* out: middle */
    uint32_t column; /* out */
} tgd_box_place;

/* One edge as drawn: a spline inside a column, straight pieces between columns. */
typedef struct tgd_way {
    uint32_t edge;     /* in fold.edges */
    bool spline;
    tgd_point *points; /* Owned */
    uint32_t n_points;
} tgd_way;

typedef struct tgd_frame_part {
    uint32_t frame; /* in fold.frames */
    uint32_t column;
    double x, y, w, h;
} tgd_frame_part;

typedef struct tgd_arrangement {
    tgd_box_place *places;      /* Owned, per box */
    tgd_way *ways;          /* Owned */
    tgd_frame_part *frames; /* Owned */
    uint32_t n_places, n_ways, n_frames, n_columns;
    double width, height; /* of everything */
    double scale;         /* that makes it fit */
} tgd_arrangement;

/**
 * How large the boxes could be drawn in width x height, at most `largest`: an estimate without a layout, to choose
 * how much to fold.
 */
double tgd_arrange_estimate(const tgd_fold *fold, const tgd_box_place *places, double width, double height,
                            double largest);

/**
 * Lay the boxes out. Takes over places.
 * @return TGD_OK, TGD_ENOMEM, TGD_EGRAPHVIZ
 */
tgd_status tgd_arrange(tgd_arrangement *out, const tgd_fold *fold, tgd_box_place *places, double width, double height,
                       double largest, tgd_error *err);
void tgd_arrangement_clear(tgd_arrangement *arrangement);

enum {
    TGD_RANK_GAP = 20,
    TGD_NODE_GAP = 16,
    TGD_COLUMN_GAP = 40,
    TGD_LANE = 8,
    TGD_FRAME_PAD = 9,
    TGD_FRAME_TITLE = 26
};

/* ---- between columns.c, arrange.c and routes.c ---- */

typedef struct tgd_columns {
    uint32_t n;
    uint32_t first[TGD_FOLD_BOXES + 1]; /* first box of each column, then n_boxes */
    double scale;                       /* estimated */
} tgd_columns;

void tgd_columns_choose(tgd_columns *out, const tgd_fold *fold, const tgd_box_place *places, double width, double height,
                        double largest);

typedef struct tgd_extent {
    double x0, x1, y0, y1;
} tgd_extent;

/* Room that edges between columns take: bottom and top lanes, and lanes in the gutter behind each column. */
typedef struct tgd_routes {
    uint32_t gutter[TGD_FOLD_BOXES]; /* lanes */
    uint32_t top, bottom;
} tgd_routes;

/* Boxes placed, columns at x = 0: which lanes are needed. TGD_OK, TGD_ENOMEM. */
tgd_status tgd_routes_plan(tgd_routes *out, const tgd_fold *fold, const tgd_arrangement *a, const tgd_extent *columns,
                           tgd_error *err);
/* Boxes in their final places: draw the edges between columns into a->ways. */
tgd_status tgd_routes_draw(tgd_arrangement *a, const tgd_fold *fold, const tgd_extent *columns,
                           const tgd_routes *routes, tgd_error *err);

#endif
