#include "style.h"

#include <string.h>

static const char *const names[] = {
    NULL,
#define X(id, name, light, dark) name,
    TGD_COLOURS(X)
#undef X
};

static const char *const lights[] = {
    NULL,
#define X(id, name, light, dark) "#" light,
    TGD_COLOURS(X)
#undef X
};

static const char *const darks[] = {
    NULL,
#define X(id, name, light, dark) "#" dark,
    TGD_COLOURS(X)
#undef X
};

const char *const tgd_style_gv_font = "Helvetica,Arial,sans-serif";

const char *tgd_colour_name(tgd_colour colour)
{
    return names[colour];
}

const char *tgd_colour_light(tgd_colour colour)
{
    return lights[colour];
}

tgd_tone tgd_tone_of(tgd_severity severity)
{
    switch (severity) {
    case TGD_ERROR:
        return (tgd_tone){TGD_COLOUR_ERR_TEXT, TGD_COLOUR_ERR_STROKE, TGD_COLOUR_ERR_FILL, TGD_COLOUR_ERR_TINT};
    case TGD_WARNING:
        return (tgd_tone){TGD_COLOUR_WARN_TEXT, TGD_COLOUR_WARN_STROKE, TGD_COLOUR_WARN_FILL, TGD_COLOUR_WARN_TINT};
    case TGD_NOTE:
        break;
    }
    return (tgd_tone){TGD_COLOUR_NOTE_TEXT, TGD_COLOUR_NOTE_STROKE, TGD_COLOUR_NOTE_FILL, TGD_COLOUR_NOTE_TINT};
}

tgd_tone tgd_tone_ok(void)
{
    return (tgd_tone){TGD_COLOUR_OK_TEXT, TGD_COLOUR_OK_STROKE, TGD_COLOUR_OK_FILL, TGD_COLOUR_OK_TINT};
}

static void write_fonts(tgd_text *text)
{
    tgd_text_str(text, "text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;unicode-bidi:isolate}"
                       ".m{font-family:ui-monospace,SFMono-Regular,Consolas,'DejaVu Sans Mono',monospace}"
                       ".b{font-weight:700}\n");
}

static void write_variables(tgd_text *text, const char *const *colours)
{
    for (int colour = 1; colour < TGD_N_COLOURS; colour++) {
        tgd_text_printf(text, "--%s:%s;", names[colour], colours[colour]);
    }
}

void tgd_style_write_page(tgd_text *text)
{
    write_fonts(text);
    tgd_text_str(text, ":root{color-scheme:light;");
    write_variables(text, lights);
    tgd_text_str(text, "}\n:root[data-theme=dark]{color-scheme:dark;");
    write_variables(text, darks);
    tgd_text_str(text, "}\n@media (prefers-color-scheme:dark){:root:not([data-theme=light]){color-scheme:dark;");
    write_variables(text, darks);
    tgd_text_str(text, "}}\n");
    for (int colour = 1; colour < TGD_N_COLOURS; colour++) {
        tgd_text_printf(text, ".f-%s{fill:var(--%s)}.s-%s{stroke:var(--%s)}", names[colour], names[colour],
                        names[colour], names[colour]);
    }
    tgd_text_str(text, "\n");
}

void tgd_style_write(tgd_text *text)
{
    tgd_text_str(text, "<style>");
    write_fonts(text);
    for (int colour = 1; colour < TGD_N_COLOURS; colour++) {
        tgd_text_printf(text, ".f-%s{fill:%s}.s-%s{stroke:%s}", names[colour], lights[colour], names[colour],
                        lights[colour]);
    }
    tgd_text_str(text, "\n@media (prefers-color-scheme:dark){");
    for (int colour = 1; colour < TGD_N_COLOURS; colour++) {
        if (strcmp(lights[colour], darks[colour]) != 0) {
            tgd_text_printf(text, ".f-%s{fill:%s}.s-%s{stroke:%s}", names[colour], darks[colour], names[colour],
                            darks[colour]);
        }
    }
    tgd_text_str(text, "}</style>\n");
}
