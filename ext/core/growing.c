/*
 * Graphs that grow over steps. Everything that Python holds is walked as one graph, and each of its nodes is dated by
 * the op that made it. A line where a new node is put on a graph that an earlier backward has used up, step after step,
 * is where something grows (total += loss); a line whose results of several steps are all alive is where something is
 * kept (losses.append(loss)).
 */
#include "retained.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 /* that it takes to speak of growth */ };

typedef enum built {
    BUILT_FRESH = 0, /* on nothing that a backward went through */
    BUILT_ON_KEPT,   /* on a graph that a backward went through and kept */
    BUILT_ON_SPENT   /* on one that a backward has freed, or that an optimizer's step has left behind */
} built;

typedef struct lives {
    tgd_evidence *evidence;
    const tgd_record *record;
    tgd_graph graph;
    tgd_lookup lookup;
    tgd_node *sequence;       /* Owned, like all here: consumers first */
    const tgd_op_row **op;    /* per node: what made it, or NULL */
    uint64_t *spent;          /* per node: when a backward first freed something that it leads to; 0 = never */
    uint64_t *touched;        /* the same for any backward */
    uint32_t *run, *oldest;   /* per node: backwards before it was made; before the oldest that it leads to */
    bool *reached;            /* scratch of measure() */
    tgd_sorted *rows;         /* of nodes: place, run */
    uint32_t n_sequence, n_rows;
} lives;

static tgd_status make_room(lives *l)
{
    size_t n = (size_t)l->graph.n_nodes + 1;
    l->sequence = malloc(n * sizeof *l->sequence);
    l->op = calloc(n, sizeof *l->op);
    l->spent = calloc(n, sizeof *l->spent);
    l->touched = calloc(n, sizeof *l->touched);
    l->run = malloc(n * sizeof *l->run);
    l->oldest = malloc(n * sizeof *l->oldest);
    l->reached = calloc(n, sizeof *l->reached);
    l->rows = malloc((n + l->graph.n_roots) * sizeof *l->rows);
    bool all = l->sequence != NULL && l->op != NULL && l->spent != NULL && l->touched != NULL && l->run != NULL &&
               l->oldest != NULL && l->reached != NULL && l->rows != NULL;
    return all ? TGD_OK : tgd_fail_memory(l->evidence->err);
}

static void drop(lives *l)
{
    tgd_graph_clear(&l->graph);
    tgd_lookup_clear(&l->lookup);
    free(l->sequence);
    free(l->op);
    free(l->spent);
    free(l->touched);
    free(l->run);
    free(l->oldest);
    free(l->reached);
    free(l->rows);
}

/* Every node after all that lead to it. */
static tgd_status put_in_order(lives *l)
{
    const tgd_graph *graph = &l->graph;
    uint32_t *waiting = calloc((size_t)graph->n_nodes + 1, sizeof *waiting);
    if (waiting == NULL) {
        return tgd_fail_memory(l->evidence->err);
    }
    for (uint32_t e = 0; e < graph->n_edges; e++) {
        if (graph->edges[e].to != TGD_NONE) {
            waiting[graph->edges[e].to]++;
        }
    }
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        if (waiting[v] == 0) {
            l->sequence[l->n_sequence++] = v;
        }
    }
    for (uint32_t i = 0; i < l->n_sequence; i++) {
        const tgd_node_row *row = &graph->nodes[l->sequence[i]];
        for (uint32_t e = row->first_edge; e < row->first_edge + row->n_edges; e++) {
            tgd_node to = graph->edges[e].to;
            if (to != TGD_NONE && --waiting[to] == 0) {
                l->sequence[l->n_sequence++] = to;
            }
        }
    }
    free(waiting);
    return TGD_OK;
}

/* ---- dates ---- */

static uint32_t runs_before(const tgd_record *record, uint64_t time)
{
    uint32_t low = 0, high = record->n_runs;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (record->runs[middle].time < time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void earlier(uint64_t *time, uint64_t other)
{
    if (other != 0 && (*time == 0 || other < *time)) {
        *time = other;
    }
}

static void date(lives *l, tgd_node v)
{
    const tgd_node_row *node = &l->graph.nodes[v];
    l->op[v] = node->leaf != TGD_NONE ? NULL : tgd_evidence_maker(l->evidence, node->thread_id, node->sequence_nr);
    l->run[v] = l->op[v] == NULL ? UINT32_MAX : runs_before(l->record, l->op[v]->time);
    l->oldest[v] = l->run[v];
    const tgd_sorted *taken = l->evidence->taken;
    uint32_t i = tgd_sorted_from(taken, l->record->n_taken, node->thread_id, node->sequence_nr);
    for (; i < l->record->n_taken && taken[i].a == node->thread_id && taken[i].b == node->sequence_nr; i++) {
        uint32_t r = runs_before(l->record, taken[i].c);
        if (r < l->record->n_runs && l->record->runs[r].time == taken[i].c && !l->record->runs[r].failed) {
            earlier(&l->touched[v], taken[i].c);
            earlier(&l->spent[v], l->record->runs[r].keep_graph ? 0 : taken[i].c);
        }
    }
    for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges; e++) {
        tgd_node to = l->graph.edges[e].to;
        if (to != TGD_NONE) {
            earlier(&l->touched[v], l->touched[to]);
            earlier(&l->spent[v], l->spent[to]);
            l->oldest[v] = l->oldest[to] < l->oldest[v] ? l->oldest[to] : l->oldest[v];
        }
    }
}

static bool optimizer_stepped(const tgd_record *record, uint64_t after, uint64_t before)
{
    uint32_t low = 0, high = record->n_writes;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (record->writes[middle].time <= after) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < record->n_writes && record->writes[low].time < before; low++) {
        const tgd_write_row *write = &record->writes[low];
        if ((write->flags & TGD_OP_MARK) && strncmp(write->name, "Optimizer.step#", 15) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- lines ---- */

static uint64_t key_of(const tgd_place *place)
{
    return (uint64_t)place->code << 32 | (uint32_t)place->lasti;
}

static int compare(const void *left, const void *right)
{
    const tgd_sorted *x = left, *y = right;
    if (x->a != y->a) {
        return x->a < y->a ? -1 : 1;
    }
    return x->b != y->b ? (x->b < y->b ? -1 : 1) : (x->row > y->row) - (x->row < y->row);
}

static void add_row(lives *l, tgd_node v)
{
    /* whatever op it is: total += loss is add the first time, and add_ from then on */
    l->rows[l->n_rows++] = (tgd_sorted){key_of(&l->op[v]->place), l->run[v], 0, v};
}

/* Rows of one line, from `first` on; counts the steps among them. */
static uint32_t one_line(const lives *l, uint32_t first, uint32_t *steps)
{
    uint32_t end = first;
    *steps = 0;
    while (end < l->n_rows && l->rows[end].a == l->rows[first].a) {
        *steps += end == first || l->rows[end].b != l->rows[end - 1].b;
        end++;
    }
    return end;
}

/* What is held below these rows' nodes, and was made before the newest of them. */
static tgd_status measure(lives *l, uint32_t first, uint32_t end, tgd_fact_row *fact)
{
    const tgd_graph *graph = &l->graph;
    uint32_t newest = (uint32_t)l->rows[end - 1].b;
    tgd_address_map counted = {0};
    tgd_status status = TGD_OK;
    memset(l->reached, 0, graph->n_nodes * sizeof *l->reached);
    for (uint32_t i = first; i < end; i++) {
        l->reached[l->rows[i].row] = true;
    }
    for (uint32_t i = 0; i < l->n_sequence && status == TGD_OK; i++) {
        tgd_node v = l->sequence[i];
        const tgd_node_row *node = &graph->nodes[v];
        if (!l->reached[v] || node->leaf != TGD_NONE) {
            continue;
        }
        for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges; e++) {
            if (graph->edges[e].to != TGD_NONE) {
                l->reached[graph->edges[e].to] = true;
            }
        }
        if (l->run[v] < newest) {
            status = tgd_retained_measure(graph, v, &counted, fact, l->evidence->err);
        }
    }
    tgd_address_map_clear(&counted);
    return status;
}

static tgd_status tell(lives *l, uint32_t first, uint32_t end, uint32_t steps, tgd_detail detail, bool proved)
{
    const tgd_op_row *op = l->op[l->rows[end - 1].row];
    tgd_fact_row fact = {.count = end - first, .steps = steps, .where = TGD_NONE, .node = TGD_NONE};
    tgd_status status = measure(l, first, end, &fact);
    bool warn = proved && (detail == TGD_DETAIL_GROWS || fact.bytes > 0);
    const tgd_finding_row row = {.severity = (uint8_t)(warn ? TGD_WARNING : TGD_NOTE), .detail = (uint8_t)detail,
                                 .node = TGD_NONE, .parameter = TGD_NONE, .where = TGD_NONE,
                                 .op = tgd_bare_name(op->name), .culprit = true};
    return status == TGD_OK ? tgd_retained_add(l->evidence, row, &fact, NULL, &op->place) : status;
}

/* ---- what grows ---- */

static built built_on(const lives *l, tgd_node u, tgd_node v)
{
    uint64_t made = l->op[u]->time;
    if (l->run[v] >= l->run[u] || l->touched[v] == 0 || l->touched[v] >= made) {
        return BUILT_FRESH;
    }
    bool left_behind = optimizer_stepped(l->record, l->op[v]->time, made);
    return (l->spent[v] != 0 && l->spent[v] < made) || left_behind ? BUILT_ON_SPENT : BUILT_ON_KEPT;
}

static tgd_status find_chains(lives *l, built least, bool proved)
{
    const tgd_graph *graph = &l->graph;
    l->n_rows = 0;
    for (tgd_node u = 0; u < graph->n_nodes; u++) {
        const tgd_node_row *node = &graph->nodes[u];
        bool crosses = false;
        if (l->op[u] == NULL || (l->op[u]->flags & TGD_OP_IN_BACKWARD)) {
            continue;
        }
        for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges && !crosses; e++) {
            tgd_node v = graph->edges[e].to;
            crosses = v != TGD_NONE && l->op[v] != NULL && built_on(l, u, v) >= least;
        }
        if (crosses) {
            add_row(l, u);
        }
    }
    qsort(l->rows, l->n_rows, sizeof *l->rows, compare);
    tgd_status status = TGD_OK;
    uint32_t steps;
    for (uint32_t first = 0, end; first < l->n_rows && status == TGD_OK; first = end) {
        end = one_line(l, first, &steps);
        /* one chain, and not as many short ones: the newest reaches back beyond the first */
        if (steps >= STEPS && l->oldest[l->rows[end - 1].row] <= l->rows[first].b) {
            status = tell(l, first, end, steps, TGD_DETAIL_GROWS, proved);
        }
    }
    return status;
}

/* ---- what is kept ---- */

/* Python holds them itself. Proved useless where a backward has freed what they lead to. */
static tgd_status find_kept(lives *l)
{
    const tgd_graph *graph = &l->graph;
    l->n_rows = 0;
    for (uint32_t r = 0; r < graph->n_roots; r++) {
        tgd_node v = graph->roots[r].node;
        if (v != TGD_NONE && l->op[v] != NULL && !(l->op[v]->flags & TGD_OP_IN_BACKWARD)) {
            add_row(l, v);
        }
    }
    qsort(l->rows, l->n_rows, sizeof *l->rows, compare);
    tgd_status status = TGD_OK;
    uint32_t steps;
    for (uint32_t first = 0, end; first < l->n_rows && status == TGD_OK; first = end) {
        end = one_line(l, first, &steps);
        uint32_t spent = 0;
        for (uint32_t i = first; i < end; i++) {
            spent += l->spent[l->rows[i].row] != 0 && (i == first || l->rows[i].b != l->rows[i - 1].b);
        }
        if (steps >= STEPS && spent + 1 >= steps) {
            status = tell(l, first, end, steps, TGD_DETAIL_KEPT, spent >= STEPS);
        }
    }
    return status;
}

tgd_status tgd_find_growing(tgd_evidence *evidence, const tgd_census *census)
{
    if (census->n_kept == 0 || evidence->record->n_runs == 0) {
        return TGD_OK;
    }
    lives l = {.evidence = evidence, .record = evidence->record};
    tgd_report *report = evidence->report;
    uint32_t before = report->n_findings;
    bool cycles = false;
    for (uint32_t i = 0; i < before; i++) {
        cycles = cycles || report->findings[i].detail == TGD_DETAIL_CYCLE;
    }
    tgd_status status = tgd_graph_walk(&l.graph, &l.lookup, census->kept, census->n_kept, evidence->err);
    if (status == TGD_OK) {
        status = make_room(&l);
    }
    if (status == TGD_OK) {
        status = put_in_order(&l);
    }
    for (uint32_t i = l.n_sequence; status == TGD_OK && i-- > 0;) {
        date(&l, l.sequence[i]);
    }
    if (status == TGD_OK) {
        status = find_chains(&l, BUILT_ON_SPENT, true);
    }
    if (status == TGD_OK && report->n_findings == before) {
        status = find_chains(&l, BUILT_ON_KEPT, false);
    }
    if (status == TGD_OK && report->n_findings == before && !cycles) { /* a cycle says it better */
        status = find_kept(&l);
    }
    drop(&l);
    return status;
}
