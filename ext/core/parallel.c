/*
 * Like parts of a graph that wait side by side until somebody runs backward: the outputs of an evaluation that were
 * collected without no_grad, many crops in one loss, losses added up. Made by one line, disjoint, of one size.
 */
#include "retained.h"

#include <stdlib.h>

enum { LEAST_PARTS = 4, LEAST_SIZE = 3, MOST_LINES = 64, MOST_TRIED = 8 };

typedef struct line {
    uint32_t first, end; /* in rows */
    uint32_t order;      /* place in backward's order of the first of its nodes */
} line;

typedef struct search {
    tgd_evidence *evidence;
    const tgd_report *report;
    tgd_sorted *rows;   /* Owned: type, source line, order, node */
    uint32_t *owner;    /* Owned, per node: which part it is in */
    tgd_node *stack;    /* Owned */
    uint32_t n_rows, n_inner;
    line lines[MOST_LINES];
    uint32_t n_lines;
} search;

static int compare(const void *left, const void *right)
{
    const tgd_sorted *x = left, *y = right;
    if (x->a != y->a) {
        return x->a < y->a ? -1 : 1;
    }
    if (x->b != y->b) {
        return x->b < y->b ? -1 : 1;
    }
    return (x->c > y->c) - (x->c < y->c);
}

static int compare_lines(const void *left, const void *right)
{
    const line *x = left, *y = right;
    return (x->order > y->order) - (x->order < y->order);
}

static void collect(search *s)
{
    const tgd_report *report = s->report;
    for (uint32_t i = 0; i < report->n_executed; i++) {
        tgd_node v = report->sequence[i];
        if (report->graph.nodes[v].leaf != TGD_NONE) {
            continue;
        }
        s->n_inner++;
        if (report->node_where[v] != TGD_NONE) {
            s->rows[s->n_rows++] = (tgd_sorted){report->graph.nodes[v].type, report->node_where[v], i, v};
        }
    }
    qsort(s->rows, s->n_rows, sizeof *s->rows, compare);
    for (uint32_t first = 0, end; first < s->n_rows; first = end) {
        end = first + 1;
        while (end < s->n_rows && s->rows[end].a == s->rows[first].a && s->rows[end].b == s->rows[first].b) {
            end++;
        }
        if (end - first >= LEAST_PARTS && s->n_lines < MOST_LINES) {
            s->lines[s->n_lines++] = (line){first, end, (uint32_t)s->rows[first].c};
        }
    }
    qsort(s->lines, s->n_lines, sizeof *s->lines, compare_lines);
}

/* Marks what the part leads to; its size, or 0 where it meets another part. */
static uint32_t mark(search *s, uint32_t part, tgd_node head)
{
    const tgd_graph *graph = &s->report->graph;
    uint32_t n = 0, size = 0;
    s->stack[n++] = head;
    while (n > 0) {
        const tgd_node_row *row = &graph->nodes[s->stack[--n]];
        size++;
        for (uint32_t e = row->first_edge; e < row->first_edge + row->n_edges; e++) {
            tgd_node to = graph->edges[e].to;
            if (to == TGD_NONE || graph->nodes[to].leaf != TGD_NONE || s->owner[to] == part) {
                continue;
            }
            if (s->owner[to] != TGD_NONE) {
                return 0;
            }
            s->owner[to] = part;
            s->stack[n++] = to;
        }
    }
    return size;
}

/* Are these disjoint parts of one size, and most of the graph? */
static bool are_parts(search *s, const line *at)
{
    uint32_t parts = at->end - at->first, size = 0;
    for (tgd_node v = 0; v < s->report->graph.n_nodes; v++) {
        s->owner[v] = TGD_NONE;
    }
    for (uint32_t k = 0; k < parts; k++) {
        s->owner[s->rows[at->first + k].row] = k;
    }
    for (uint32_t k = 0; k < parts; k++) {
        uint32_t here = mark(s, k, s->rows[at->first + k].row);
        if (here < LEAST_SIZE || (k > 0 && here != size)) {
            return false;
        }
        size = here;
    }
    return (uint64_t)parts * size * 2 >= s->n_inner;
}

static tgd_status measure(const search *s, tgd_fact_row *fact)
{
    const tgd_graph *graph = &s->report->graph;
    tgd_address_map counted = {0};
    tgd_status status = TGD_OK;
    for (tgd_node v = 0; v < graph->n_nodes && status == TGD_OK; v++) {
        if (s->owner[v] != TGD_NONE) {
            status = tgd_retained_measure(graph, v, &counted, fact, s->evidence->err);
        }
    }
    tgd_address_map_clear(&counted);
    return status;
}

/* The node whose line joins them one after the other (total += loss), or one of the parts themselves. */
static tgd_node culprit(const search *s, const line *at)
{
    const tgd_report *report = s->report;
    tgd_node found = TGD_NONE;
    uint32_t joins = 0;
    for (uint32_t i = 0; i < report->n_executed; i++) {
        tgd_node u = report->sequence[i];
        const tgd_node_row *row = &report->graph.nodes[u];
        bool joins_one = false;
        for (uint32_t e = row->first_edge; e < row->first_edge + row->n_edges && s->owner[u] == TGD_NONE; e++) {
            tgd_node v = report->graph.edges[e].to;
            joins_one = joins_one || (v != TGD_NONE && s->owner[v] != TGD_NONE);
        }
        if (joins_one && (found == TGD_NONE || report->node_where[u] == report->node_where[found])) {
            found = u;
            joins++;
        }
    }
    bool all = joins + 1 >= at->end - at->first && report->node_where[found] != TGD_NONE;
    return all ? found : s->rows[at->first].row;
}

tgd_status tgd_find_parallel(tgd_evidence *evidence)
{
    tgd_report *report = evidence->report;
    search s = {.evidence = evidence, .report = report};
    size_t n = (size_t)report->graph.n_nodes + 1;
    s.rows = malloc(n * sizeof *s.rows);
    s.owner = malloc(n * sizeof *s.owner);
    s.stack = malloc(n * sizeof *s.stack);
    tgd_status status = TGD_OK;
    if (s.rows == NULL || s.owner == NULL || s.stack == NULL) {
        status = tgd_fail_memory(evidence->err);
    } else {
        collect(&s);
    }
    uint32_t i = 0;
    while (status == TGD_OK && i < s.n_lines && i < MOST_TRIED && !are_parts(&s, &s.lines[i])) {
        i++;
    }
    if (status == TGD_OK && i < s.n_lines && i < MOST_TRIED) {
        tgd_fact_row fact = {.count = s.lines[i].end - s.lines[i].first, .where = TGD_NONE, .node = TGD_NONE};
        tgd_node by = culprit(&s, &s.lines[i]);
        const tgd_finding_row row = {.severity = TGD_NOTE, .detail = TGD_DETAIL_PARALLEL,
                                     .node = s.rows[s.lines[i].first].row, .parameter = TGD_NONE,
                                     .where = report->node_where[by], .op = report->node_op[by], .culprit = true};
        status = measure(&s, &fact);
        if (status == TGD_OK && fact.bytes > 0) {
            status = tgd_retained_add(evidence, row, &fact, NULL, NULL);
        }
    }
    free(s.rows);
    free(s.owner);
    free(s.stack);
    return status;
}
