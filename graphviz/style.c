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

void tgd_style_write(tgd_text *text)
{
    tgd_text_str(text, "<style>text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;unicode-bidi:isolate}"
                       ".m{font-family:ui-monospace,SFMono-Regular,Consolas,'DejaVu Sans Mono',monospace}"
                       ".b{font-weight:700}\n");
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
