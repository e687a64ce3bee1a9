/*
 * A report for strangers: of every path the file's name alone, in places of the source and in sentences. What the model
 * is called (parameters, modules, classes, functions) stays, or the report would say nothing.
 */
#include "report.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- paths in sentences ---- */

static bool is_slash(char c)
{
    return c == '/' || c == '\\';
}

static bool is_quote(char c)
{
    return c == '"' || c == '\'' || c == '`';
}

/* Could a path begin behind this character? */
static bool may_begin_after(char c)
{
    return c == '\0' || is_quote(c) || strchr(" \t\n([{<=,;|:", c) != NULL;
}

/* Does an absolute path begin here, or one from a home or the current directory? */
static bool begins_path(const char *s)
{
    if (s[0] == '~') {
        size_t n = strcspn(s, " /\\\"'");
        return is_slash(s[n]);
    }
    if (s[0] == '.') {
        return is_slash(s[1]) || (s[1] == '.' && is_slash(s[2]));
    }
    if (isalpha((unsigned char)s[0]) && s[1] == ':') {
        return is_slash(s[2]);
    }
    return strncmp(s, "file://", 7) == 0 || (s[0] == '/' && s[1] != '\0' && strchr(" \t\n", s[1]) == NULL) ||
           (s[0] == '\\' && s[1] == '\\');
}

/* Bytes of the word here: up to its closing quote where one stands before it. */
static size_t word_length(const char *s, char before)
{
    const char *closing = is_quote(before) ? strchr(s, before) : NULL;
    return closing != NULL ? (size_t)(closing - s) : strcspn(s, " \t\n\"'`,;()<>[]{}|");
}

static bool ends_with(const char *s, size_t n, const char *end)
{
    size_t m = strlen(end);
    return n >= m && memcmp(s + n - m, end, m) == 0;
}

/* The file's name at the end of a path without its line number, or n where it is a directory's, or may be. */
static size_t file_name(const char *path, size_t n)
{
    size_t name = n, slashes = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_slash(path[i])) {
            name = i + 1;
            slashes++;
        }
    }
    bool of_home = slashes <= 2 && (strncmp(path, "/home/", 6) == 0 || strncmp(path, "/Users/", 7) == 0);
    bool named = name < n && memchr(path + name, '.', n - name) != NULL && path[name] != '.';
    return named && !of_home ? name : n;
}

/* A path relative to somewhere, told by its ending: names of parameters have slashes too. */
static bool is_relative_path(const char *s, size_t n)
{
    size_t colon = n;
    while (colon > 0 && (isdigit((unsigned char)s[colon - 1]) || s[colon - 1] == ':')) {
        colon--;
    }
    return (memchr(s, '/', n) != NULL || memchr(s, '\\', n) != NULL) &&
           (ends_with(s, colon, ".py") || ends_with(s, colon, ".ipynb"));
}

static void write_without_paths(tgd_text *text, const char *s)
{
    char before = '\0';
    while (*s != '\0') {
        size_t n = may_begin_after(before) ? word_length(s, before) : 0;
        if (n > 0 && (begins_path(s) || is_relative_path(s, n))) {
            size_t name = file_name(s, n);
            tgd_text_str(text, name == n ? "..." : "");
            tgd_text_bytes(text, s + name, n - name);
            before = s[n - 1];
            s += n;
            continue;
        }
        before = *s;
        tgd_text_bytes(text, s++, 1);
    }
}

/* ---- the copy ---- */

typedef void (*phrase)(tgd_text *text, const tgd_report *report, size_t finding);

/* What this phrase or, without one, this string says, without paths; NULL for NULL. */
static tgd_status sentence(char **out, const tgd_report *report, size_t finding, phrase write, const char *string,
                           tgd_error *err)
{
    *out = NULL;
    if (write == NULL && string == NULL) {
        return TGD_OK;
    }
    tgd_text whole, redacted;
    tgd_text_init(&whole, NULL, NULL);
    tgd_text_init(&redacted, NULL, NULL);
    if (write != NULL) {
        write(&whole, report, finding);
        tgd_text_bytes(&whole, "", 1);
        string = whole.status == TGD_OK ? whole.bytes : "";
    }
    write_without_paths(&redacted, string);
    tgd_text_bytes(&redacted, "", 1);
    bool failed = whole.status != TGD_OK || redacted.status != TGD_OK;
    tgd_text_drop(&whole);
    if (failed) {
        tgd_text_drop(&redacted);
        return tgd_fail_memory(err);
    }
    *out = redacted.bytes;
    return TGD_OK;
}

/* A copy of n rows, never NULL but for want of memory. */
static void *copy_rows(const void *rows, size_t n, size_t size)
{
    void *copy = malloc((n + 1) * size);
    if (copy != NULL && n > 0) {
        memcpy(copy, rows, n * size);
    }
    return copy;
}

static tgd_status copy_parameters(tgd_report *to, const tgd_report *from, tgd_error *err)
{
    to->parameters = calloc((size_t)from->n_parameters + 1, sizeof *to->parameters);
    if (to->parameters == NULL) {
        return tgd_fail_memory(err);
    }
    for (uint32_t i = 0; i < from->n_parameters; i++) {
        to->parameters[i] = from->parameters[i];
        to->parameters[i].name = copy_rows(from->parameters[i].name, strlen(from->parameters[i].name) + 1, 1);
        to->n_parameters++;
        if (to->parameters[i].name == NULL) {
            return tgd_fail_memory(err);
        }
    }
    return TGD_OK;
}

static tgd_status copy_sources(tgd_report *to, const tgd_report *from, tgd_error *err)
{
    to->sources = calloc((size_t)from->n_sources + 1, sizeof *to->sources);
    if (to->sources == NULL) {
        return tgd_fail_memory(err);
    }
    to->source_capacity = from->n_sources + 1;
    for (uint32_t i = 0; i < from->n_sources; i++) {
        const tgd_source_row *source = &from->sources[i];
        tgd_source_row *row = &to->sources[to->n_sources++];
        const char *file = source->file;
        for (const char *c = file; *c != '\0'; c++) {
            file = is_slash(*c) ? c + 1 : file;
        }
        row->line = source->line;
        row->caller = source->caller;
        row->file = copy_rows(file, strlen(file) + 1, 1);
        row->function = copy_rows(source->function, strlen(source->function) + 1, 1);
        row->module = copy_rows(source->module, strlen(source->module) + 1, 1);
        row->module_class = copy_rows(source->module_class, strlen(source->module_class) + 1, 1);
        if (row->file == NULL || row->function == NULL || row->module == NULL || row->module_class == NULL) {
            return tgd_fail_memory(err);
        }
    }
    return TGD_OK;
}

static tgd_status copy_findings(tgd_report *to, const tgd_report *from, tgd_error *err)
{
    to->words = calloc((size_t)from->n_findings + 1, sizeof *to->words);
    to->findings = copy_rows(from->findings, from->n_findings, sizeof *from->findings);
    if (to->words == NULL || to->findings == NULL) {
        return tgd_fail_memory(err);
    }
    to->finding_capacity = from->n_findings + 1;
    to->n_findings = from->n_findings;
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < from->n_findings && status == TGD_OK; i++) {
        status = sentence(&to->words[i].message, from, i, tgd_message_write, NULL, err);
        if (status == TGD_OK) {
            status = sentence(&to->words[i].hint, from, i, tgd_hint_write, NULL, err);
        }
    }
    return status;
}

static tgd_status copy_rest(tgd_report *to, const tgd_report *from, tgd_error *err)
{
    const tgd_graph *graph = &from->graph;
    to->order = copy_rows(from->order, graph->n_nodes, sizeof *to->order);
    to->sequence = copy_rows(from->sequence, from->n_executed, sizeof *to->sequence);
    to->leaf_parameter = copy_rows(from->leaf_parameter, graph->n_leaves, sizeof *to->leaf_parameter);
    if (to->order == NULL || to->sequence == NULL || to->leaf_parameter == NULL) {
        return tgd_fail_memory(err);
    }
    if (from->node_where != NULL) {
        to->node_where = copy_rows(from->node_where, graph->n_nodes, sizeof *to->node_where);
        if (to->node_where == NULL) {
            return tgd_fail_memory(err);
        }
    }
    if (from->node_made_by != NULL) {
        to->node_made_by = copy_rows(from->node_made_by, graph->n_nodes, sizeof *to->node_made_by);
        if (to->node_made_by == NULL) {
            return tgd_fail_memory(err);
        }
    }
    tgd_status status = sentence(&to->verdict, from, 0, NULL, from->verdict, err);
    if (status == TGD_OK) {
        status = sentence(&to->raised, from, 0, NULL, from->raised, err);
    }
    if (status == TGD_OK) {
        status = sentence(&to->occasion, from, 0, NULL, from->occasion, err);
    }
    return status == TGD_OK ? sentence(&to->torch, from, 0, NULL, from->torch, err) : status;
}

tgd_status tgd_report_redact(tgd_report **out, const tgd_report *report, tgd_error *err)
{
    tgd_summary summary;
    tgd_report *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return tgd_fail_memory(err);
    }
    tgd_status status = tgd_graph_share(&made->graph, &report->graph, err);
    if (status == TGD_OK) {
        status = copy_parameters(made, report, err);
    }
    if (status == TGD_OK) {
        status = copy_sources(made, report, err);
    }
    if (status == TGD_OK) {
        status = copy_findings(made, report, err);
    }
    if (status == TGD_OK) {
        status = copy_rest(made, report, err);
    }
    if (status != TGD_OK) {
        tgd_report_free(made);
        return status;
    }
    if (report->measures != NULL) {
        tgd_measures_keep(report->measures);
        made->measures = report->measures;
    }
    tgd_report_summary(report, &summary);
    made->snapshot_bytes = summary.snapshot_bytes;
    made->n_executed = report->n_executed;
    made->first_error = report->first_error;
    made->depth = report->depth;
    made->n_groups = report->n_groups;
    made->n_errors = report->n_errors;
    made->n_warnings = report->n_warnings;
    made->n_notes = report->n_notes;
    made->has_parameters = report->has_parameters;
    made->has_inputs = report->has_inputs;
    made->create_graph = report->create_graph;
    made->lost_input = report->lost_input;
    made->root_fails = report->root_fails;
    made->recorded = report->recorded;
    *out = made;
    return TGD_OK;
}
