/* Widths in hundredths of an em: for each character the widest of DejaVu Sans and Liberation Sans (Arial), regular
   and bold. Other common fonts are narrower. */
#include "style.h"

#include <string.h>

static const unsigned char regular[] = {
    32, 41, 46, 84, 64, 96, 78, 28, 40, 40, 50, 84, 32, 37, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 34, 34, 84,
    84, 84, 56, 102, 69, 69, 73, 78, 67, 62, 78, 76, 30, 50, 67, 56, 87, 75, 79, 67, 79, 73, 67, 62, 74, 69, 99, 69, 67,
    69, 40, 34, 40, 84, 56, 50, 62, 64, 55, 64, 62, 36, 64, 64, 28, 28, 58, 28, 98, 64, 62, 64, 64, 42, 53, 40, 64, 60,
    82, 60, 60, 53, 64, 34, 64, 84};
static const unsigned char bold[] = {
    35, 46, 53, 84, 70, 101, 88, 31, 46, 46, 53, 84, 38, 42, 38, 37, 70, 70, 70, 70, 70, 70, 70, 70, 70, 70, 40, 40, 84,
    84, 84, 62, 100, 78, 77, 74, 84, 69, 69, 83, 84, 38, 56, 78, 64, 100, 84, 86, 74, 86, 78, 73, 69, 82, 78, 111, 78,
    73, 73, 46, 37, 46, 84, 56, 50, 68, 72, 60, 72, 68, 44, 72, 72, 35, 35, 67, 35, 105, 72, 69, 72, 72, 50, 60, 48, 72,
    66, 93, 65, 66, 59, 72, 37, 72, 84};
enum { MONO = 61, LONGEST_LINE = 4096 };

static int character_width(uint32_t c, tgd_font font)
{
    if (c >= 0x0300 && c <= 0x036F) {
        return 0; /* combining */
    }
    if (c >= 0x20 && c <= 0x7E) {
        return font >= TGD_MONO ? MONO : (font == TGD_BOLD ? bold : regular)[c - 0x20];
    }
    switch (c) {
    case 0x00B7: /* middle dot */
        return font >= TGD_MONO ? MONO : 38;
    case 0x00D7: /* times */
    case 0x2212: /* minus */
        return font >= TGD_MONO ? MONO : 84;
    case 0x2026: /* ellipsis */
    case 0x2192: /* arrow */
        return 100;
    case 0x25C6: /* diamond */
        return 80;
    case 0xFDFD:
        return 1200;
    default:
        break;
    }
    if (c < 0x0250) {
        return 118; /* Latin with accents, up to the widest ligature */
    }
    if ((c >= 0x2E80 && c <= 0xD7FF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0xFF00 && c <= 0xFFEF)) {
        return 105; /* ideographs, kana, hangul, full-width forms */
    }
    return c >= 0x2000 && c <= 0x2BFF ? 190 : 145;
}

double tgd_style_width(const char *s, size_t n, double size, tgd_font font)
{
    double width = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        i += tgd_utf8_next(s + i, n - i, &c);
        width += character_width(c, font);
    }
    return width * size / 100;
}

/* Marks that turn the direction of what follows would reach beyond their label. */
static bool turns_direction(uint32_t c)
{
    return c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

static void drop_direction(tgd_text *line)
{
    size_t kept = 0;
    for (size_t i = 0; i < line->n;) {
        uint32_t c;
        size_t n = tgd_utf8_next(line->bytes + i, line->n - i, &c);
        if (!turns_direction(c)) {
            memmove(line->bytes + kept, line->bytes + i, n);
            kept += n;
        }
        i += n;
    }
    line->n = kept;
}

static size_t character_count(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; count++) {
        uint32_t c;
        i += tgd_utf8_next(s + i, n - i, &c);
    }
    return count;
}

static size_t offset_of(const char *s, size_t n, size_t character)
{
    size_t i = 0;
    while (character-- > 0 && i < n) {
        uint32_t c;
        i += tgd_utf8_next(s + i, n - i, &c);
    }
    return i;
}

double tgd_style_fit(tgd_text *text, const char *s, double size, tgd_font font, double width)
{
    static const char ellipsis[] = "…";
    tgd_text line;
    tgd_text_init(&line, NULL, NULL);
    tgd_text_line(&line, s, LONGEST_LINE);
    if (line.status != TGD_OK) {
        text->status = text->status == TGD_OK ? line.status : text->status;
        tgd_text_drop(&line);
        return 0;
    }
    drop_direction(&line);
    double whole = tgd_style_width(line.bytes, line.n, size, font);
    if (whole <= width) {
        tgd_text_bytes(text, line.bytes, line.n);
        tgd_text_drop(&line);
        return whole;
    }
    /* the most characters, half of them from each end, that fit with the ellipsis between */
    double dots = tgd_style_width(ellipsis, strlen(ellipsis), size, font);
    size_t low = 0;
    size_t high = character_count(line.bytes, line.n);
    size_t n = high;
    while (low < high) {
        size_t keep = (low + high + 1) / 2;
        size_t head = offset_of(line.bytes, line.n, (keep + 1) / 2);
        size_t tail = offset_of(line.bytes, line.n, n - keep / 2);
        double wide = dots + tgd_style_width(line.bytes, head, size, font) +
                      tgd_style_width(line.bytes + tail, line.n - tail, size, font);
        if (keep < n && wide <= width) {
            low = keep;
        } else {
            high = keep - 1;
        }
    }
    size_t head = offset_of(line.bytes, line.n, (low + 1) / 2);
    size_t tail = offset_of(line.bytes, line.n, n - low / 2);
    tgd_text_bytes(text, line.bytes, head);
    tgd_text_str(text, ellipsis);
    tgd_text_bytes(text, line.bytes + tail, line.n - tail);
    double fitted = dots + tgd_style_width(line.bytes, head, size, font) +
                    tgd_style_width(line.bytes + tail, line.n - tail, size, font);
    tgd_text_drop(&line);
    return fitted;
}

const char *tgd_style_path(const char *s, double size, tgd_font font, double width)
{
    const char *best = s;
    const char *end = s + strcspn(s, " ");
    for (const char *at = s; at < end && tgd_style_width(best, strlen(best), size, font) > width;) {
        const char *dot = memchr(at, '.', (size_t)(end - at));
        if (dot == NULL || dot + 1 >= end) {
            break;
        }
        at = dot + 1;
        if (*at < '0' || *at > '9') { /* a number alone names nothing */
            best = at;
        }
    }
    return best;
}

size_t tgd_style_break(const char *s, double size, tgd_font font, double width, size_t *next)
{
    size_t n = strlen(s);
    size_t end = 0;
    size_t space = 0;
    double used = 0;
    while (end < n) {
        uint32_t c;
        size_t step = tgd_utf8_next(s + end, n - end, &c);
        used += character_width(c, font) * size / 100;
        if (c == ' ') {
            space = end;
        }
        if (used > width && c != ' ') {
            break;
        }
        end += step;
    }
    if (end < n && space > 0) {
        end = space;
    } else if (end == 0 && n > 0) {
        uint32_t c;
        end = tgd_utf8_next(s, n, &c);
    }
    *next = end;
    while (s[*next] == ' ') {
        (*next)++;
    }
    return end;
}
