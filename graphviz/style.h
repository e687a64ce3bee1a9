/* Every colour, size and font of the picture, and how wide text is in them. */
#ifndef TGD_STYLE_H
#define TGD_STYLE_H

#include "report.h"

/* Colours by what they are for. The name is also the CSS class: "f-bg" fills, "s-bg" strokes. */
#define TGD_COLOURS(X)                       \
    X(BG, "bg", "f4f6f9", "0b0f15")          \
    X(CARD, "card", "ffffff", "141a22")      \
    X(LINE, "line", "d7dde5", "2a3440")      \
    X(GRID, "grid", "e8ecf1", "212a34")      \
    X(FRAME, "frame", "f3f6fa", "19212b")    \
    X(BEHIND, "behind", "e9eef4", "1f2934")  \
    X(NODE, "node", "ffffff", "202a35")      \
    X(INK, "ink", "18212c", "e9eef4")        \
    X(INK2, "ink2", "445161", "b3bfcc")      \
    X(INK3, "ink3", "566373", "98a5b4")      \
    X(EDGE, "edge", "8795a6", "6d7b8b")      \
    X(MUTE, "mute", "b3bdc9", "46525f")      \
    X(WHITE, "white", "ffffff", "ffffff")    \
    X(ERR_TEXT, "err", "b3300f", "ff9b7d")   \
    X(ERR_STROKE, "errs", "cf4520", "f26b3f") \
    X(ERR_FILL, "errn", "c23c17", "c8451d")  \
    X(ERR_TINT, "errt", "fdeee8", "351a12")  \
    X(WARN_TEXT, "warn", "7a5000", "f0c165") \
    X(WARN_STROKE, "warns", "c98500", "e0a11b") \
    X(WARN_FILL, "warnn", "8f5f00", "9a6a06") \
    X(WARN_TINT, "warnt", "fff5de", "2f2510") \
    X(NOTE_TEXT, "note", "38516f", "a9c3e0") \
    X(NOTE_STROKE, "notes", "6f8fb3", "6f8fb3") \
    X(NOTE_FILL, "noten", "4a6585", "4a6a8e") \
    X(NOTE_TINT, "notet", "edf3fa", "18242f") \
    X(OK_TEXT, "ok", "00664a", "63d8ad")     \
    X(OK_STROKE, "oks", "12946d", "2fae84")  \
    X(OK_FILL, "okn", "0b7d5b", "12805f")    \
    X(OK_TINT, "okt", "e6f6f0", "0f2a22")    \
    X(H0, "h0", "fbfdff", "1b242e")          \
    X(H1, "h1", "e6f1fb", "1b3045")          \
    X(H2, "h2", "cfe4f7", "1c3c5b")          \
    X(H3, "h3", "b4d5f2", "1d4871")          \
    X(H4, "h4", "97c4ec", "1f5588")          \
    X(H5, "h5", "7ab2e4", "21629f")          \
    X(H6, "h6", "5f9fdb", "246eb3")          \
    X(TIME, "time", "a34d86", "d07fb4")      \
    X(TRACK, "track", "eadbe5", "4a2a40")

typedef enum tgd_colour {
    TGD_COLOUR_NONE = 0,
#define X(id, name, light, dark) TGD_COLOUR_##id,
    TGD_COLOURS(X)
#undef X
    TGD_N_COLOURS
} tgd_colour;

const char *tgd_colour_name(tgd_colour colour);
/* "#18212c", for formats that know no dark mode */
const char *tgd_colour_light(tgd_colour colour);

/* The four colours of a severity, or of health. */
typedef struct tgd_tone {
    tgd_colour text, stroke, fill, tint;
} tgd_tone;
tgd_tone tgd_tone_of(tgd_severity severity);
tgd_tone tgd_tone_ok(void);

typedef enum tgd_font { TGD_SANS = 0, TGD_BOLD, TGD_MONO, TGD_MONO_BOLD } tgd_font;

/* The style sheet: classes for both themes, no variables. */
void tgd_style_write(tgd_text *text);
/* The same for a page that can be switched: every colour also as a variable ("--ink"), dark where the root element says
   data-theme="dark", or where the system does and data-theme does not say "light". Rules only, without the element. */
void tgd_style_write_page(tgd_text *text);
/* Family for Graphviz documents. */
extern const char *const tgd_style_gv_font;

/* The sheet. */
enum {
    TGD_SHEET_WIDTH = 1600,
    TGD_SHEET_HEIGHT = 1000,
    TGD_MARGIN = 24,
    TGD_TOP = 20,
    TGD_GUTTER = 16,
    TGD_RADIUS = 10,
    TGD_GRAPH_WIDTH = 1040,
    TGD_SIDE_X = 1080,
    TGD_SIDE_WIDTH = 496,
    TGD_BANNER_HEIGHT = 136,
    TGD_FOOTER_Y = 986,
    TGD_PANELS_END = 962,
    TGD_TIMELINE_HEIGHT = 142
};

/* Boxes of the graph, in its own units. */
enum {
    TGD_BOX_WIDTH = 158,
    TGD_BOX_MORE = 16,    /* wider, where backward was measured */
    TGD_BOX_WIDE = 190,   /* a repeat, or one of many findings */
    TGD_BOX_HEIGHT = 42,
    TGD_BOX_LEAVES = 14,  /* more, where leaves are named */
    TGD_BOX_TIME = 6,     /* more, where backward was timed */
    TGD_FLAG_WIDTH = 232,
    TGD_FLAG_HEIGHT = 92,
    TGD_FLAG_SMALL = 58
};

/**
 * Width of text in the widest of the common fonts, so that what fits here fits everywhere. Never depends on the
 * fonts of this machine.
 */
double tgd_style_width(const char *s, size_t n, double size, tgd_font font);

/* Append s as one line, shortened in the middle until it is at most `width` wide. Returns its width. */
double tgd_style_fit(tgd_text *text, const char *s, double size, tgd_font font, double width);

/* A dotted path without its first parts, as many of them as it takes to fit: "h.11" of "transformer.h.11". Points into
   s. */
const char *tgd_style_path(const char *s, double size, tgd_font font, double width);

/* Bytes of s that fit into `width` and end at a space (or anywhere, for a word that is too long). *next is where the
   next line starts. */
size_t tgd_style_break(const char *s, double size, tgd_font font, double width, size_t *next);

#endif
