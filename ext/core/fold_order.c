/* Backward's order for the whole graph, also for what inputs= or a failing root leave out. */
#include "fold.h"

static bool is_leaf(const tgd_graph *graph, tgd_node v)
{
    return tgd_graph_type(graph, v)->kind == TGD_NODE_ACCUMULATE_GRAD;
}

/* The engine takes the ready node with the highest sequence number; ties go to the one captured first. */
static bool comes_first(const tgd_graph *graph, tgd_node a, tgd_node b)
{
    uint64_t x = graph->nodes[a].sequence_nr;
    uint64_t y = graph->nodes[b].sequence_nr;
    return x != y ? x > y : a < b;
}

static void heap_push(const tgd_graph *graph, tgd_node *heap, uint32_t *n, tgd_node v)
{
    uint32_t i = (*n)++;
    while (i > 0 && comes_first(graph, v, heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = v;
}

static tgd_node heap_pop(const tgd_graph *graph, tgd_node *heap, uint32_t *n)
{
    tgd_node top = heap[0];
    tgd_node v = heap[--*n];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= *n) {
            break;
        }
        if (child + 1 < *n && comes_first(graph, heap[child + 1], heap[child])) {
            child++;
        }
        if (!comes_first(graph, heap[child], v)) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = v;
    return top;
}

uint32_t tgd_fold_order(const tgd_graph *graph, tgd_node *order, uint32_t *waiting, tgd_node *heap)
{
    uint32_t n = 0;
    uint32_t ready = 0;
    for (uint32_t e = 0; e < graph->n_edges; e++) {
        if (graph->edges[e].to != TGD_NONE) {
            waiting[graph->edges[e].to]++;
        }
    }
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        if (waiting[v] == 0) {
            heap_push(graph, heap, &ready, v);
        }
    }
    while (ready > 0) {
        tgd_node v = heap_pop(graph, heap, &ready);
        order[n++] = v;
        const tgd_node_row *row = &graph->nodes[v];
        for (uint32_t k = 0; k < row->n_edges; k++) {
            tgd_node to = graph->edges[row->first_edge + k].to;
            if (to != TGD_NONE && --waiting[to] == 0 && !is_leaf(graph, to)) {
                heap_push(graph, heap, &ready, to);
            }
        }
    }
    return n;
}
