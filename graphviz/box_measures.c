/* What was measured, in a box: how large its gradient is, and how long it took. */
#include "boxes.h"

#include <math.h>
#include <string.h>

tgd_colour tgd_heat(const tgd_units *units, const tgd_unit_measure *measure)
{
    if (measure->rms <= 0 || !isfinite(measure->rms) || measure->nan || measure->inf) {
        return measure->rms == 0 ? TGD_COLOUR_H0 : TGD_COLOUR_NODE;
    }
    double step = fmax(1, (units->highest - units->lowest) / 6);
    double shades = floor((units->highest - log10(measure->rms)) / step + 0.25);
    return (tgd_colour)(TGD_COLOUR_H6 - (int)fmin(6, fmax(0, shades)));
}

void tgd_rms_phrase(tgd_text *text, const tgd_unit_measure *measure)
{
    if (measure->nan || measure->inf) {
        tgd_text_str(text, measure->nan ? "NaN" : "inf");
    } else if (measure->rms > 0 && isfinite(measure->rms)) {
        int exponent = (int)floor(log10(measure->rms));
        long tenths = lround(measure->rms / pow(10, exponent) * 10);
        if (tenths >= 100) {
            tenths = 10;
            exponent++;
        }
        tgd_text_printf(text, "%ld.%lde%d", tenths / 10, tenths % 10, exponent);
    } else if (measure->rms == 0) {
        tgd_text_str(text, "0");
    }
}

/* Beside the line of code, which matters more? */
static bool time_fits(const char *place, uint64_t ns, double w)
{
    tgd_text time;
    tgd_text_init(&time, NULL, NULL);
    tgd_text_duration(&time, ns);
    bool fits = time.status == TGD_OK && tgd_style_width(place, strlen(place), 11, TGD_MONO) +
                                                 tgd_style_width(time.bytes, time.n, 11, TGD_SANS) + 6 <=
                                             w;
    tgd_text_drop(&time);
    return fits;
}

double tgd_box_measure_draw(tgd_text *out, const tgd_fold *fold, uint32_t index, double x, double y, double w, double h,
                            const char *place, tgd_colour ink)
{
    tgd_unit_measure measure;
    tgd_text words;
    const tgd_fold_box *box = &fold->boxes[index];
    if (!tgd_fold_box_measure(&measure, fold, index)) {
        return 0;
    }
    uint64_t longest = 1;
    for (uint32_t b = 0; b < fold->n_boxes; b++) {
        tgd_unit_measure other;
        tgd_fold_box_measure(&other, fold, b);
        longest = other.ns > longest ? other.ns : longest;
    }
    bool one = box->form == TGD_FOLD_ONE;
    tgd_colour size_ink = measure.nan || measure.inf ? TGD_COLOUR_ERR_TEXT : ink;
    tgd_text_init(&words, NULL, NULL);
    tgd_rms_phrase(&words, &measure);
    double used = 0;
    if (words.n > 0 && one) {
        used = 8 + tgd_svg_label(out, x + 10 + w, y + 18, tgd_text_words(out, &words),
                                 (tgd_type){11, TGD_MONO, size_ink}, TGD_END, 60);
    } else if (words.n > 0) {
        tgd_text line;
        tgd_text_init(&line, NULL, NULL);
        tgd_text_str(&line, "worst ");
        tgd_text_str(&line, tgd_text_words(out, &words));
        tgd_svg_label(out, x + 10, y + 49, tgd_text_words(out, &line), (tgd_type){11, TGD_SANS, size_ink}, TGD_START, w - 56);
        tgd_text_drop(&line);
    }
    tgd_text_drop(&words);
    if (measure.ns > 0) {
        if (!one || time_fits(place, measure.ns, w)) {
            tgd_text_init(&words, NULL, NULL);
            tgd_text_duration(&words, measure.ns);
            tgd_svg_label(out, x + 10 + w, one ? y + 33 : y + 49, tgd_text_words(out, &words),
                          (tgd_type){11, TGD_SANS, ink}, TGD_END, w / 2);
            tgd_text_drop(&words);
        }
        tgd_svg_rect(out, x + 10, y + h - 9, w, 4, 2, (tgd_pen){.fill = TGD_COLOUR_TRACK});
        tgd_svg_rect(out, x + 10, y + h - 9, fmax(2, w * (double)measure.ns / (double)longest), 4, 2,
                     (tgd_pen){.fill = TGD_COLOUR_TIME});
    }
    return used;
}
