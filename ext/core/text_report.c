/* The report that a person reads: the verdict, every group of findings with what to do, and the graph in four
   lines. */
#include "judge.h"

#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 100,
    MOST_GROUPS = 20, /* more than anybody reads; JSON has them all */
    MOST_NAMES = 6,   /* of the members of a group */
    MOST_CALLERS = 4, /* of the frames around the line of the first error */
    INDENT = 4
};

/* Words of `s` from column `column` on, later lines indented. */
static void wrap(tgd_text *text, const char *s, size_t column, size_t indent)
{
    bool begun = false; /* a word stands on this line */
    while (*s != '\0') {
        size_t n = strcspn(s, " "), characters = 0;
        for (size_t i = 0; i < n; characters++) {
            uint32_t c;
            i += tgd_utf8_next(s + i, n - i, &c);
        }
        if (begun && column + 1 + characters > WIDTH) {
            tgd_text_printf(text, "\n%*s", (int)indent, "");
            column = indent;
        } else if (begun) {
            tgd_text_str(text, " ");
            column++;
        }
        tgd_text_bytes(text, s, n);
        column += characters;
        begun = true;
        s += n;
        while (*s == ' ') {
            s++;
        }
    }
    tgd_text_str(text, "\n");
}

typedef void (*phrase)(tgd_text *text, const tgd_report *report, size_t finding);

/* A phrase behind `lead`, wrapped. */
static void paragraph(tgd_text *out, const tgd_report *report, size_t finding, phrase write, const char *lead)
{
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    write(&words, report, finding);
    const char *s = tgd_text_words(out, &words);
    if (s[0] != '\0') {
        tgd_text_printf(out, "%*s%s", INDENT, "", lead);
        wrap(out, s, INDENT + strlen(lead), INDENT + strlen(lead));
    }
    tgd_text_drop(&words);
}

/* The members of a group behind its first: names of parameters, or nodes with their numbers. */
static void member(tgd_text *text, const tgd_report *report, size_t finding)
{
    const tgd_finding_row *row = &report->findings[finding];
    if (row->parameter != TGD_NONE) {
        tgd_text_line(text, report->parameters[row->parameter].name, 60);
        return;
    }
    if (row->node == TGD_NONE) {
        tgd_text_str(text, "another root");
        return;
    }
    tgd_node_phrase(text, report, row->node);
    tgd_text_printf(text, " (node %lu", (unsigned long)row->node);
    if (row->kind == TGD_MODIFIED_IN_PLACE) {
        const tgd_saved_row *saved = &report->graph.saved[row->saved];
        tgd_text_printf(text, ", %s at version %lu; expected %lu", saved->name, (unsigned long)saved->version,
                        (unsigned long)saved->saved_version);
    }
    tgd_text_str(text, ")");
}

typedef struct groups {
    uint32_t *next;  /* Owned, per finding: the next one of its group and severity, or TGD_NONE */
    uint32_t *first; /* Owned, per group and severity */
    uint32_t *size;  /* Owned, per group and severity */
} groups;

static size_t slot(const tgd_finding_row *row)
{
    return (size_t)row->group * 3 + row->severity;
}

static tgd_status collect(groups *g, const tgd_report *report, tgd_error *err)
{
    size_t n_slots = (size_t)report->n_groups * 3 + 1;
    g->next = malloc((report->n_findings + 1) * sizeof *g->next);
    g->first = malloc(n_slots * sizeof *g->first);
    g->size = calloc(n_slots, sizeof *g->size);
    if (g->next == NULL || g->first == NULL || g->size == NULL) {
        return tgd_fail_memory(err);
    }
    for (uint32_t i = report->n_findings; i-- > 0;) {
        size_t s = slot(&report->findings[i]);
        g->next[i] = g->size[s]++ == 0 ? TGD_NONE : g->first[s];
        g->first[s] = i;
    }
    return TGD_OK;
}

/* How the program came to the line of a finding. */
static void write_callers(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    const char *lead = "called from ";
    uint32_t caller = row->where == TGD_NONE ? 0 : report->sources[row->where].caller;
    for (size_t shown = 0; caller != 0 && shown < MOST_CALLERS; shown++) {
        const tgd_source_row *source = &report->sources[caller - 1];
        tgd_text_printf(text, "%*s%s", INDENT, "", lead);
        tgd_source_phrase(text, source);
        if (source->function[0] != '\0' && source->function[0] != '<') {
            tgd_text_str(text, " in ");
            tgd_text_line(text, source->function, 60);
        }
        tgd_text_str(text, "\n");
        caller = source->caller;
        lead = "            ";
    }
    size_t left = 0;
    for (; caller != 0; caller = report->sources[caller - 1].caller) {
        left++;
    }
    if (left > 0) {
        tgd_text_printf(text, "%*s%sand ", INDENT, "", lead);
        tgd_text_count(text, left);
        tgd_text_str(text, " more\n");
    }
}

static void write_group(tgd_text *text, const tgd_report *report, const groups *g, uint32_t leader, size_t number)
{
    const tgd_finding_row *row = &report->findings[leader];
    uint32_t size = g->size[slot(row)];
    tgd_text_printf(text, "\n%2zu. %s: %s", number, tgd_severity_slug((tgd_severity)row->severity),
                    tgd_finding_slug((tgd_finding_kind)row->kind));
    if (size > 1) {
        tgd_text_str(text, ", ");
        tgd_text_count(text, size);
        tgd_text_str(text, row->parameter != TGD_NONE ? " parameters" : " places");
    }
    if (row->reason != TGD_REASON_NONE) {
        tgd_text_printf(text, " (%s)", tgd_reason_slug((tgd_reason)row->reason));
    }
    tgd_text_str(text, "\n");
    paragraph(text, report, leader, tgd_message_write, "");
    if (number == 1 && row->severity == TGD_ERROR) {
        write_callers(text, report, row);
    }
    if (size > 1) {
        tgd_text words;
        tgd_text_init(&words, NULL, NULL);
        tgd_text_str(&words, "the same:");
        uint32_t shown = 0;
        for (uint32_t i = g->next[leader]; i != TGD_NONE && shown < MOST_NAMES; i = g->next[i]) {
            tgd_text_str(&words, shown++ > 0 ? ", " : " ");
            member(&words, report, i);
        }
        if (size - 1 > shown) {
            tgd_text_str(&words, ", and ");
            tgd_text_count(&words, size - 1 - shown);
            tgd_text_str(&words, " more");
        }
        tgd_text_printf(text, "%*s", INDENT, "");
        wrap(text, tgd_text_words(text, &words), INDENT, INDENT);
        tgd_text_drop(&words);
    }
    paragraph(text, report, leader, tgd_hint_write, "-> ");
}

static void write_findings(tgd_text *text, const tgd_report *report, const groups *g)
{
    size_t number = 0, left = 0;
    for (uint32_t i = 0; i < report->n_findings; i++) {
        if (g->first[slot(&report->findings[i])] != i) {
            continue;
        }
        if (number < MOST_GROUPS) {
            write_group(text, report, g, i, ++number);
        } else {
            left++;
        }
    }
    if (left > 0) {
        tgd_text_str(text, "\n    ... and ");
        tgd_text_count(text, left);
        tgd_text_str(text, left == 1 ? " more finding" : " more groups of findings");
        tgd_text_str(text, ": save the report as .json for all of them\n");
    }
}

static void counted(tgd_text *text, size_t n, const char *one, const char *many)
{
    tgd_text_count(text, n);
    tgd_text_str(text, " ");
    tgd_text_str(text, n == 1 ? one : many);
}

static void write_summary(tgd_text *text, const tgd_report *report)
{
    tgd_summary summary;
    tgd_report_summary(report, &summary);
    tgd_text_str(text, "\nGraph: ");
    counted(text, summary.n_nodes, "node", "nodes");
    tgd_text_str(text, ", ");
    counted(text, summary.n_edges, "edge", "edges");
    if (summary.n_null_edges > 0) {
        tgd_text_str(text, " (");
        tgd_text_count(text, summary.n_null_edges);
        tgd_text_str(text, " null)");
    }
    tgd_text_str(text, ", depth ");
    tgd_text_count(text, summary.depth);
    tgd_text_str(text, ", ");
    counted(text, summary.n_roots, "root", "roots");
    tgd_text_str(text, ", ");
    counted(text, summary.n_leaves, "leaf", "leaves");
    tgd_text_str(text, "\nSaved for backward: ");
    counted(text, summary.n_saved, "tensor", "tensors");
    tgd_text_str(text, ", ");
    tgd_text_size(text, summary.saved_bytes);
    tgd_text_str(text, " held beside the leaves, each storage counted once\n");
    if (report->has_parameters) {
        size_t rest = summary.n_parameters - summary.n_parameters_reached - summary.n_parameters_frozen;
        tgd_text_str(text, "Parameters: ");
        counted(text, summary.n_parameters, "given, ", "given, ");
        tgd_text_count(text, summary.n_parameters_reached);
        tgd_text_str(text, " will get a gradient");
        if (summary.n_parameters_frozen > 0) {
            tgd_text_str(text, ", ");
            tgd_text_count(text, summary.n_parameters_frozen);
            tgd_text_str(text, " frozen");
        }
        if (rest > 0 && !report->has_inputs) {
            tgd_text_str(text, ", ");
            tgd_text_count(text, rest);
            tgd_text_str(text, " will not, or may not");
        }
        tgd_text_str(text, "\n");
    }
    if (report->first_error < report->n_executed && !report->root_fails) {
        tgd_text_str(text, "Order: ");
        tgd_text_count(text, summary.n_executed_to_error);
        tgd_text_str(text, " of ");
        counted(text, summary.n_executed, "node", "nodes");
        tgd_text_str(text, " will run before the first error\n");
    }
    if (summary.n_unchecked > 0) {
        tgd_text_str(text, "Unchecked: ");
        counted(text, summary.n_unchecked, "saved tensor or node", "saved tensors or nodes");
        tgd_text_str(text, "\n");
    }
}

tgd_status tgd_text_report_write(const tgd_report *report, tgd_sink sink, void *context, tgd_error *err)
{
    groups g = {0};
    tgd_status status = collect(&g, report, err);
    if (status == TGD_OK) {
        tgd_text text;
        tgd_text_init(&text, sink, context);
        tgd_text_str(&text, "torchgraphdbg: ");
        wrap(&text, report->verdict, strlen("torchgraphdbg: "), INDENT);
        if (report->occasion != NULL) {
            tgd_text_str(&text, "At ");
            wrap(&text, report->occasion, strlen("At "), INDENT);
        }
        write_findings(&text, report, &g);
        write_summary(&text, report);
        tgd_slowest_write(&text, report);
        status = tgd_text_finish(&text, err);
    }
    free(g.next);
    free(g.first);
    free(g.size);
    return status;
}
