/* Colour for a text report that goes to a terminal. The words stay as they are: take the escapes out, and the plain
   report is left. */
#include "report.h"

#include <stdlib.h>
#include <string.h>

#define RESET "\x1b[0m"
#define BOLD "\x1b[1m"

static const char *colour_of(tgd_severity severity)
{
    switch (severity) {
    case TGD_ERROR:
        return "\x1b[1;31m";
    case TGD_WARNING:
        return "\x1b[1;33m";
    case TGD_NOTE:
        break;
    }
    return "\x1b[1;36m";
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* The source that "net.py:31" stands for, or NULL. */
static const tgd_source_row *source_of(const tgd_report *report, const char *name, size_t n, int line)
{
    for (uint32_t i = 0; i < report->n_sources; i++) {
        const tgd_source_row *row = &report->sources[i];
        const char *base = base_name(row->file);
        if (row->line == line && row->file[0] == '/' && strlen(base) == n && memcmp(base, name, n) == 0) {
            return row;
        }
    }
    return NULL;
}

/* A path inside a URL. */
static void write_path(tgd_text *out, const char *path)
{
    static const char plain[] = "/-._~ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    for (; *path != '\0'; path++) {
        if (strchr(plain, *path) != NULL) {
            tgd_text_bytes(out, path, 1);
        } else {
            tgd_text_printf(out, "%%%02X", (unsigned)(unsigned char)*path);
        }
    }
}

/* Words of a line; "net.py:31" becomes a link to the file. */
static void write_linked(tgd_text *out, const tgd_report *report, const char *s, size_t n)
{
    size_t done = 0;
    for (size_t i = 1; i + 1 < n; i++) {
        if (s[i] != ':' || s[i + 1] < '0' || s[i + 1] > '9') {
            continue;
        }
        size_t from = i;
        while (from > done && s[from - 1] != ' ' && s[from - 1] != '(') {
            from--;
        }
        size_t to = i + 1;
        int line = 0;
        while (to < n && s[to] >= '0' && s[to] <= '9' && line < 100000000) {
            line = 10 * line + (s[to++] - '0');
        }
        const tgd_source_row *source = source_of(report, s + from, i - from, line);
        if (source != NULL) {
            tgd_text_bytes(out, s + done, from - done);
            tgd_text_str(out, "\x1b]8;;file://");
            write_path(out, source->file);
            tgd_text_printf(out, "#%d\x1b\\", line);
            tgd_text_bytes(out, s + from, to - from);
            tgd_text_str(out, "\x1b]8;;\x1b\\");
            done = to;
        }
    }
    tgd_text_bytes(out, s + done, n - done);
}

/* Is it a finding's first line, " 1. error: modified-in-place"? */
static bool is_heading(const char *s, size_t n, tgd_severity *severity)
{
    size_t i = 0;
    while (i < n && (s[i] == ' ' || (s[i] >= '0' && s[i] <= '9'))) {
        i++;
    }
    if (i == 0 || i + 2 > n || s[i] != '.' || s[i + 1] != ' ') {
        return false;
    }
    for (int k = TGD_ERROR; k <= TGD_NOTE; k++) {
        const char *slug = tgd_severity_slug((tgd_severity)k);
        size_t length = strlen(slug);
        if (i + 2 + length < n && memcmp(s + i + 2, slug, length) == 0 && s[i + 2 + length] == ':') {
            *severity = (tgd_severity)k;
            return true;
        }
    }
    return false;
}

void tgd_text_colour(tgd_text *out, const tgd_report *report, const char *plain)
{
    const char *verdict = report->n_errors > 0     ? colour_of(TGD_ERROR)
                          : report->n_warnings > 0 ? colour_of(TGD_WARNING)
                                                   : "\x1b[1;32m";
    bool head = true;  /* the verdict, up to the first empty line */
    bool hint = false; /* what to do, up to the next empty line */
    while (*plain != '\0') {
        size_t n = strcspn(plain, "\n");
        tgd_severity severity = TGD_NOTE;
        const char *colour = NULL;
        head = head && n > 0;
        hint = n > 0 && (hint || strncmp(plain, "    -> ", 7) == 0);
        if (head) {
            colour = verdict;
        } else if (is_heading(plain, n, &severity)) {
            colour = colour_of(severity);
        } else if (hint) {
            colour = BOLD;
        }
        tgd_text_str(out, colour != NULL ? colour : "");
        write_linked(out, report, plain, n);
        tgd_text_str(out, colour != NULL ? RESET : "");
        plain += n;
        if (*plain == '\n') {
            tgd_text_str(out, "\n");
            plain++;
        }
    }
}
