/* Formats: which one a path asks for, and who writes it. */
#include "documents.h"

#include <string.h>

static const struct {
    const char *suffix;
    tgd_format format;
} suffixes[] = {
    {"svg", TGD_FORMAT_SVG},
    {"html", TGD_FORMAT_HTML},
    {"json", TGD_FORMAT_JSON},
    {"gv", TGD_FORMAT_GV},
    {"txt", TGD_FORMAT_TEXT},
};

static bool equals_ignoring_case(const char *s, const char *lower)
{
    for (; *lower != '\0'; s++, lower++) {
        char c = *s >= 'A' && *s <= 'Z' ? (char)(*s - 'A' + 'a') : *s;
        if (c != *lower) {
            return false;
        }
    }
    return *s == '\0';
}

tgd_status tgd_format_of_path(tgd_format *out, const char *path, tgd_error *err)
{
    if (path == NULL) {
        return tgd_fail(err, TGD_EINVAL, "path is NULL");
    }
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    const char *dot = strrchr(name, '.');
    const size_t length = strlen(name), trace = strlen(".trace.json");
    if (length > trace && equals_ignoring_case(name + length - trace, ".trace.json")) {
        *out = TGD_FORMAT_TRACE;
        return TGD_OK;
    }
    if (dot != NULL) {
        for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
            if (equals_ignoring_case(dot + 1, suffixes[i].suffix)) {
                *out = suffixes[i].format;
                return TGD_OK;
            }
        }
    }
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    tgd_text_line(&words, dot == NULL ? name : dot, 40);
    tgd_text_bytes(&words, "", 1);
    tgd_status status;
    if (words.status != TGD_OK) {
        status = tgd_fail_memory(err);
    } else if (dot == NULL) {
        status = tgd_fail(err, TGD_EINVAL, "'%s' has no suffix that names a format: use .svg, .html, .json, .trace.json, .gv or .txt",
                          words.bytes);
    } else {
        status = tgd_fail(err, TGD_EINVAL, "no format has the suffix '%s': use .svg, .html, .json, .trace.json, .gv or .txt", words.bytes);
    }
    tgd_text_drop(&words);
    return status;
}

tgd_status tgd_report_write(const tgd_report *report, tgd_format format, tgd_sink sink, void *context, tgd_error *err)
{
    return tgd_report_write_view(report, format, NULL, sink, context, err);
}

tgd_status tgd_report_write_view(const tgd_report *report, tgd_format format, const tgd_view *view, tgd_sink sink,
                                 void *context, tgd_error *err)
{
    switch (format) {
    case TGD_FORMAT_TEXT:
        return tgd_text_report_write(report, sink, context, err);
    case TGD_FORMAT_JSON:
        return tgd_json_write(report, sink, context, err);
    case TGD_FORMAT_GV:
        return tgd_gv_write(report, view, sink, context, err);
    case TGD_FORMAT_SVG:
        return tgd_svg_write(report, view, sink, context, err);
    case TGD_FORMAT_HTML:
        return tgd_html_write(report, view, sink, context, err);
    case TGD_FORMAT_TRACE:
        return tgd_chrome_trace_write(report, sink, context, err);
    }
    return tgd_fail(err, TGD_EINVAL, "format %d is not one of tgd_format", (int)format);
}
