/*
 * Backward's order, by the rules of torch/csrc/autograd/engine.cpp: a node is ready when every edge into it has
 * been served, and of the ready ones the one with the highest sequence_nr runs first (AccumulateGrad carries the
 * highest there is). With end points, as in backward(inputs=...), only nodes on a way to one of them run.
 * One queue, as on the CPU; the engine keeps one per device, so across devices the order may differ.
 */
#include "report.h"

#include <stdlib.h>
#include <string.h>

typedef struct queue {
    tgd_node *heap; /* Owned */
    uint32_t n;
    const tgd_node_row *nodes; /* Borrowed */
} queue;

/* Does the engine's comparison put a after b? Threads number their nodes each from 0 and every AccumulateGrad has
   the same number, so equals are common: which of them comes first is up to the heap. */
static bool after(const queue *q, tgd_node a, tgd_node b)
{
    return q->nodes[a].sequence_nr < q->nodes[b].sequence_nr;
}

/* push and pop are step by step those of std::priority_queue, so that equals come in the engine's order too. */
static void rise(queue *q, uint32_t i, tgd_node v)
{
    while (i > 0 && after(q, q->heap[(i - 1) / 2], v)) {
        q->heap[i] = q->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    q->heap[i] = v;
}

static void push(queue *q, tgd_node v)
{
    rise(q, q->n++, v);
}

static tgd_node pop(queue *q)
{
    tgd_node top = q->heap[0], last = q->heap[--q->n];
    uint32_t i = 0, child = 2; /* the hole sinks to the bottom, then the last one rises from there */
    for (; child < q->n; child = 2 * i + 2) {
        if (after(q, q->heap[child], q->heap[child - 1])) {
            child--;
        }
        q->heap[i] = q->heap[child];
        i = child;
    }
    if (child == q->n) {
        q->heap[i] = q->heap[child - 1];
        i = child - 1;
    }
    rise(q, i, last);
    return top;
}

/* The nodes in the order the engine takes them: all, or those needed. waiting is zeroed. */
static uint32_t run(const tgd_graph *graph, const bool *needed, uint32_t *waiting, queue *q, uint32_t *sequence)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < graph->n_edges; e++) {
        if (graph->edges[e].to != TGD_NONE) {
            waiting[graph->edges[e].to]++;
        }
    }
    /* A node runs before all roots, with an edge to each: one given twice is ready at its second turn. */
    for (uint32_t r = 0; r < graph->n_roots; r++) {
        if (graph->roots[r].node != TGD_NONE) {
            waiting[graph->roots[r].node]++;
        }
    }
    for (uint32_t r = 0; r < graph->n_roots; r++) {
        tgd_node v = graph->roots[r].node;
        if (v != TGD_NONE && --waiting[v] == 0 && (needed == NULL || needed[v])) {
            push(q, v);
        }
    }
    while (q->n > 0) {
        tgd_node v = pop(q);
        sequence[n++] = v;
        const tgd_node_row *row = &graph->nodes[v];
        for (uint32_t e = row->first_edge; e < row->first_edge + row->n_edges; e++) {
            tgd_node to = graph->edges[e].to;
            if (to != TGD_NONE && --waiting[to] == 0 && (needed == NULL || needed[to])) {
                push(q, to);
            }
        }
    }
    return n;
}

/* Marks those that lead to an end point, and the end points that run themselves. */
static void mark(const tgd_graph *graph, const uint8_t *end_points, const uint32_t *sequence, uint32_t n, bool *needed)
{
    for (uint32_t i = n; i-- > 0;) {
        tgd_node v = sequence[i];
        const tgd_node_row *row = &graph->nodes[v];
        needed[v] = end_points[v] == TGD_END_RUNS;
        for (uint32_t e = row->first_edge; e < row->first_edge + row->n_edges && !needed[v]; e++) {
            tgd_node to = graph->edges[e].to;
            needed[v] = to != TGD_NONE && (needed[to] || end_points[to] != TGD_END_NONE);
        }
    }
}

/* Nodes on the longest way from a root; sequence holds every node after all that lead to it. */
static uint32_t longest(const tgd_graph *graph, const uint32_t *sequence, uint32_t n, uint32_t *depth)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        tgd_node v = sequence[i];
        const tgd_node_row *row = &graph->nodes[v];
        uint32_t here = depth[v] + 1;
        most = here > most ? here : most;
        for (uint32_t e = row->first_edge; e < row->first_edge + row->n_edges; e++) {
            tgd_node to = graph->edges[e].to;
            if (to != TGD_NONE && depth[to] < here) {
                depth[to] = here;
            }
        }
    }
    return most;
}

tgd_status tgd_engine_simulate(tgd_report *report, const uint8_t *end_points, tgd_error *err)
{
    const tgd_graph *graph = &report->graph;
    size_t n = graph->n_nodes;
    if (n == 0) {
        return TGD_OK;
    }
    uint32_t *order = malloc(n * sizeof *order), *sequence = malloc(n * sizeof *sequence);
    uint32_t *numbers = calloc(n, sizeof *numbers); /* edges still to be served, then depths */
    bool *needed = end_points == NULL ? NULL : calloc(n, sizeof *needed);
    queue q = {.heap = malloc(n * sizeof *q.heap), .nodes = graph->nodes};
    tgd_status status = TGD_OK;
    if (order == NULL || sequence == NULL || numbers == NULL || q.heap == NULL ||
        (end_points != NULL && needed == NULL)) {
        status = tgd_fail_memory(err);
        goto done;
    }
    uint32_t n_run = run(graph, NULL, numbers, &q, sequence);
    memset(numbers, 0, n * sizeof *numbers);
    report->depth = longest(graph, sequence, n_run, numbers);
    if (end_points != NULL) {
        mark(graph, end_points, sequence, n_run, needed);
        memset(numbers, 0, n * sizeof *numbers);
        n_run = run(graph, needed, numbers, &q, sequence);
    }
    for (size_t v = 0; v < n; v++) {
        order[v] = TGD_NONE;
    }
    for (uint32_t i = 0; i < n_run; i++) {
        order[sequence[i]] = i;
    }
    report->order = order;
    report->sequence = sequence;
    report->n_executed = report->first_error = n_run;
    order = sequence = NULL;
done:
    free(order);
    free(sequence);
    free(numbers);
    free(needed);
    free(q.heap);
    return status;
}
