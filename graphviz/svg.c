#include "svg.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

void tgd_svg_number(tgd_text *out, double value)
{
    long tenths = lround(value * 10);
    const char *sign = tenths < 0 ? "-" : "";
    long size = tenths < 0 ? -tenths : tenths;
    if (size % 10 == 0) {
        tgd_text_printf(out, "%s%ld", sign, size / 10);
    } else {
        tgd_text_printf(out, "%s%ld.%ld", sign, size / 10, size % 10);
    }
}

static void attribute(tgd_text *out, const char *name, double value)
{
    tgd_text_printf(out, " %s=\"", name);
    tgd_svg_number(out, value);
    tgd_text_str(out, "\"");
}

static void point(tgd_text *out, char command, tgd_point p)
{
    if (command != '\0') {
        tgd_text_printf(out, "%c", command);
    }
    tgd_svg_number(out, p.x);
    tgd_text_str(out, " ");
    tgd_svg_number(out, p.y);
}

static void pen_attributes(tgd_text *out, tgd_pen pen)
{
    tgd_text_str(out, " class=\"");
    if (pen.fill != TGD_COLOUR_NONE) {
        tgd_text_printf(out, "f-%s%s", tgd_colour_name(pen.fill), pen.stroke != TGD_COLOUR_NONE ? " " : "");
    }
    if (pen.stroke != TGD_COLOUR_NONE) {
        tgd_text_printf(out, "s-%s", tgd_colour_name(pen.stroke));
    }
    tgd_text_str(out, "\"");
    if (pen.fill == TGD_COLOUR_NONE) {
        tgd_text_str(out, " fill=\"none\"");
    }
    if (pen.stroke != TGD_COLOUR_NONE && pen.width != 1) {
        attribute(out, "stroke-width", pen.width);
    }
    if (pen.dash != NULL) {
        tgd_text_printf(out, " stroke-dasharray=\"%s\"", pen.dash);
    }
}

void tgd_svg_rect(tgd_text *out, double x, double y, double w, double h, double radius, tgd_pen pen)
{
    tgd_text_str(out, "<rect");
    attribute(out, "x", x);
    attribute(out, "y", y);
    attribute(out, "width", w);
    attribute(out, "height", h);
    if (radius > 0) {
        attribute(out, "rx", radius);
    }
    pen_attributes(out, pen);
    tgd_text_str(out, "/>\n");
}

void tgd_svg_circle(tgd_text *out, double x, double y, double radius, tgd_pen pen)
{
    tgd_text_str(out, "<circle");
    attribute(out, "cx", x);
    attribute(out, "cy", y);
    attribute(out, "r", radius);
    pen_attributes(out, pen);
    tgd_text_str(out, "/>\n");
}

void tgd_svg_polygon(tgd_text *out, const tgd_point *points, size_t n, tgd_pen pen)
{
    tgd_text_str(out, "<path d=\"");
    for (size_t i = 0; i < n; i++) {
        point(out, i == 0 ? 'M' : 'L', points[i]);
    }
    tgd_text_str(out, "Z\" stroke-linejoin=\"round\"");
    pen_attributes(out, pen);
    tgd_text_str(out, "/>\n");
}

void tgd_svg_route(tgd_text *out, const tgd_point *points, size_t n, double radius, tgd_pen pen)
{
    tgd_text_str(out, "<path d=\"");
    point(out, 'M', points[0]);
    for (size_t i = 1; i + 1 < n; i++) {
        tgd_point p = points[i];
        double a = hypot(p.x - points[i - 1].x, p.y - points[i - 1].y);
        double b = hypot(points[i + 1].x - p.x, points[i + 1].y - p.y);
        double r = fmin(radius, fmin(a, b) / 2);
        if (a < 0.1 || b < 0.1) {
            continue;
        }
        point(out, 'L', (tgd_point){p.x + (points[i - 1].x - p.x) * r / a, p.y + (points[i - 1].y - p.y) * r / a});
        point(out, 'Q', p);
        point(out, ' ', (tgd_point){p.x + (points[i + 1].x - p.x) * r / b, p.y + (points[i + 1].y - p.y) * r / b});
    }
    point(out, 'L', points[n - 1]);
    tgd_text_str(out, "\" stroke-linecap=\"round\" stroke-linejoin=\"round\"");
    pen_attributes(out, pen);
    tgd_text_str(out, "/>\n");
}

void tgd_svg_spline(tgd_text *out, const tgd_point *points, size_t n, tgd_pen pen)
{
    tgd_text_str(out, "<path d=\"");
    point(out, 'M', points[0]);
    for (size_t i = 1; i < n; i++) {
        point(out, i == 1 ? 'C' : ' ', points[i]);
    }
    tgd_text_str(out, "\" stroke-linecap=\"round\"");
    pen_attributes(out, pen);
    tgd_text_str(out, "/>\n");
}

void tgd_svg_line(tgd_text *out, double x1, double y1, double x2, double y2, tgd_pen pen)
{
    tgd_svg_route(out, (tgd_point[]){{x1, y1}, {x2, y2}}, 2, 0, pen);
}

void tgd_svg_arrow(tgd_text *out, tgd_point from, tgd_point to, double size, tgd_colour colour)
{
    double angle = atan2(to.y - from.y, to.x - from.x);
    tgd_point head[3] = {{to.x + 1.5 * cos(angle), to.y + 1.5 * sin(angle)},
                         {to.x - size * cos(angle - 0.42), to.y - size * sin(angle - 0.42)},
                         {to.x - size * cos(angle + 0.42), to.y - size * sin(angle + 0.42)}};
    tgd_svg_polygon(out, head, 3, (tgd_pen){.fill = colour});
}

/* ---- text ---- */

static void type_attributes(tgd_text *out, tgd_type type)
{
    tgd_text_printf(out, " class=\"f-%s%s%s\"", tgd_colour_name(type.colour), type.font >= TGD_MONO ? " m" : "",
                    type.font == TGD_BOLD || type.font == TGD_MONO_BOLD ? " b" : "");
    attribute(out, "font-size", type.size);
}

/* s fitted and escaped */
static double fitted(tgd_text *out, const char *s, tgd_type type, double most)
{
    tgd_text line;
    tgd_text_init(&line, NULL, NULL);
    double width = tgd_style_fit(&line, s, type.size, type.font, most);
    tgd_text_xml(out, tgd_text_words(out, &line));
    tgd_text_drop(&line);
    return width;
}

double tgd_svg_label(tgd_text *out, double x, double y, const char *s, tgd_type type, tgd_anchor anchor, double most)
{
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    tgd_text_str(out, "<text");
    attribute(out, "x", x);
    attribute(out, "y", y);
    type_attributes(out, type);
    tgd_text_str(out, anchors[anchor]);
    tgd_text_str(out, ">");
    double width = fitted(out, s, type, most);
    tgd_text_str(out, "</text>\n");
    return width;
}

void tgd_svg_begin_line(tgd_text *out, double x, double y)
{
    tgd_text_str(out, "<text");
    attribute(out, "x", x);
    attribute(out, "y", y);
    tgd_text_str(out, " xml:space=\"preserve\">");
}

double tgd_svg_piece(tgd_text *out, const char *s, tgd_type type, double most)
{
    tgd_text_str(out, "<tspan");
    type_attributes(out, type);
    tgd_text_str(out, ">");
    double width = fitted(out, s, type, most);
    tgd_text_str(out, "</tspan>");
    return width;
}

void tgd_svg_end_line(tgd_text *out)
{
    tgd_text_str(out, "</text>\n");
}

size_t tgd_svg_paragraph(tgd_text *out, double x, double y, double leading, const char *s, tgd_type type, double width,
                         size_t lines)
{
    size_t n = 0;
    while (*s != '\0' && n < lines) {
        size_t next;
        size_t end = tgd_style_break(s, type.size, type.font, width, &next);
        bool cut = n + 1 == lines && s[next] != '\0';
        if (cut) { /* room for the sign that something is missing */
            end = tgd_style_break(s, type.size, type.font, width - 1.4 * type.size, &next);
        }
        if (out != NULL) {
            tgd_text line;
            tgd_text_init(&line, NULL, NULL);
            tgd_text_bytes(&line, s, end);
            tgd_text_str(&line, cut ? " …" : "");
            tgd_svg_label(out, x, y + leading * (double)n, tgd_text_words(out, &line), type, TGD_START,
                          width + 2 * type.size);
            tgd_text_drop(&line);
        }
        s += next;
        n++;
    }
    return n;
}

/* ---- signs ---- */

static void octagon(tgd_text *out, double x, double y, double radius, tgd_pen pen)
{
    tgd_point corners[8];
    for (int i = 0; i < 8; i++) {
        double angle = pi / 8 + i * pi / 4;
        corners[i] = (tgd_point){x + radius * cos(angle), y + radius * sin(angle)};
    }
    tgd_svg_polygon(out, corners, 8, pen);
}

void tgd_svg_mark(tgd_text *out, double x, double y, uint32_t number, tgd_severity severity, double radius)
{
    tgd_pen pen = {.fill = tgd_tone_of(severity).fill, .stroke = TGD_COLOUR_CARD, .width = 2};
    double r = radius * 1.25;
    switch (severity) {
    case TGD_ERROR:
        octagon(out, x, y, radius * 1.06, pen);
        break;
    case TGD_WARNING:
        tgd_svg_polygon(out, (tgd_point[]){{x, y - r}, {x + r, y}, {x, y + r}, {x - r, y}}, 4, pen);
        break;
    case TGD_NOTE:
        tgd_svg_circle(out, x, y, radius, pen);
        break;
    }
    char digits[16];
    size_t n = 0;
    for (uint32_t rest = number; n == 0 || rest > 0; rest /= 10) {
        memmove(digits + 1, digits, n);
        digits[0] = (char)('0' + rest % 10);
        n++;
    }
    digits[n] = '\0';
    double size = radius * (n < 2 ? 1.08 : n == 2 ? 0.9 : 0.66);
    tgd_svg_label(out, x, y + size * 0.36, digits, (tgd_type){size, TGD_BOLD, TGD_COLOUR_WHITE}, TGD_MIDDLE, 99);
}

void tgd_svg_icon(tgd_text *out, double x, double y, const tgd_severity *severity, double radius)
{
    double r = radius;
    tgd_tone tone = severity == NULL ? tgd_tone_ok() : tgd_tone_of(*severity);
    tgd_pen white = {.stroke = TGD_COLOUR_WHITE, .width = r * 0.17};
    if (severity == NULL) {
        tgd_svg_circle(out, x, y, r, (tgd_pen){.fill = tone.fill});
        tgd_point tick[3] = {{x - r * 0.42, y + r * 0.02}, {x - r * 0.1, y + r * 0.34}, {x + r * 0.44, y - r * 0.32}};
        tgd_svg_route(out, tick, 3, 0, white);
    } else if (*severity == TGD_ERROR) {
        double k = r * 0.36;
        octagon(out, x, y, r, (tgd_pen){.fill = tone.fill});
        tgd_svg_line(out, x - k, y - k, x + k, y + k, white);
        tgd_svg_line(out, x + k, y - k, x - k, y + k, white);
    } else if (*severity == TGD_WARNING) {
        tgd_point corners[3] = {{x, y - r * 0.98}, {x + r * 1.08, y + r * 0.86}, {x - r * 1.08, y + r * 0.86}};
        tgd_svg_polygon(out, corners, 3, (tgd_pen){.fill = tone.fill, .stroke = tone.fill, .width = r * 0.2});
        tgd_svg_line(out, x, y - r * 0.38, x, y + r * 0.25, white);
        tgd_svg_circle(out, x, y + r * 0.6, r * 0.11, (tgd_pen){.fill = TGD_COLOUR_WHITE});
    } else {
        tgd_svg_circle(out, x, y, r, (tgd_pen){.fill = tone.fill});
        tgd_svg_line(out, x, y - r * 0.05, x, y + r * 0.45, white);
        tgd_svg_circle(out, x, y - r * 0.42, r * 0.11, (tgd_pen){.fill = TGD_COLOUR_WHITE});
    }
}

void tgd_svg_panel(tgd_text *out, double x, double y, double w, double h, const char *title, const char *subtitle)
{
    tgd_svg_rect(out, x, y, w, h, TGD_RADIUS, (tgd_pen){TGD_COLOUR_CARD, TGD_COLOUR_LINE, 1, NULL});
    tgd_svg_begin_line(out, x + 16, y + 26);
    double used = tgd_svg_piece(out, title, (tgd_type){15, TGD_BOLD, TGD_COLOUR_INK}, w - 32);
    if (subtitle != NULL) {
        tgd_type quiet = {12.5, TGD_SANS, TGD_COLOUR_INK3};
        used += tgd_svg_piece(out, "   ", quiet, 99);
        tgd_svg_piece(out, subtitle, quiet, w - 32 - used);
    }
    tgd_svg_end_line(out);
}
