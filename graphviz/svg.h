/* Shapes and text as SVG. Coordinates have one decimal; every string is made one line, shortened and escaped here. */
#ifndef TGD_SVG_H
#define TGD_SVG_H

#include "style.h"

typedef struct tgd_point {
    double x, y;
} tgd_point;

typedef struct tgd_pen {
    tgd_colour fill, stroke; /* TGD_COLOUR_NONE: none */
    double width;
    const char *dash; /* "5 4" or NULL */
} tgd_pen;

typedef enum tgd_anchor { TGD_START = 0, TGD_MIDDLE, TGD_END } tgd_anchor;

typedef struct tgd_type {
    double size;
    tgd_font font;
    tgd_colour colour;
} tgd_type;

void tgd_svg_number(tgd_text *out, double value);
void tgd_svg_rect(tgd_text *out, double x, double y, double w, double h, double radius, tgd_pen pen);
void tgd_svg_circle(tgd_text *out, double x, double y, double radius, tgd_pen pen);
void tgd_svg_polygon(tgd_text *out, const tgd_point *points, size_t n, tgd_pen pen);
/* Straight lines with round corners; round ends. */
void tgd_svg_route(tgd_text *out, const tgd_point *points, size_t n, double radius, tgd_pen pen);
/* A Bezier spline: 1 + 3k points. */
void tgd_svg_spline(tgd_text *out, const tgd_point *points, size_t n, tgd_pen pen);
void tgd_svg_line(tgd_text *out, double x1, double y1, double x2, double y2, tgd_pen pen);
/* Head of an arrow that comes from `from` and ends at `to`. */
void tgd_svg_arrow(tgd_text *out, tgd_point from, tgd_point to, double size, tgd_colour colour);

/* One line, shortened to `most`. Returns its width. */
double tgd_svg_label(tgd_text *out, double x, double y, const char *s, tgd_type type, tgd_anchor anchor, double most);

/* Several pieces of text that follow each other, whatever the font: begin, pieces, end. */
void tgd_svg_begin_line(tgd_text *out, double x, double y);
double tgd_svg_piece(tgd_text *out, const char *s, tgd_type type, double most);
void tgd_svg_end_line(tgd_text *out);

/* Words in at most `lines` lines, the last one shortened. Returns the number of lines; out may be NULL to count. */
size_t tgd_svg_paragraph(tgd_text *out, double x, double y, double leading, const char *s, tgd_type type, double width,
                         size_t lines);

/* A numbered sign whose shape tells the severity: octagon, diamond, circle. */
void tgd_svg_mark(tgd_text *out, double x, double y, uint32_t number, tgd_severity severity, double radius);
/* The big sign of the banner. */
void tgd_svg_icon(tgd_text *out, double x, double y, const tgd_severity *severity, double radius);

/* A card with a title and a word beside it (NULL: none). */
void tgd_svg_panel(tgd_text *out, double x, double y, double w, double h, const char *title, const char *subtitle);

#endif
