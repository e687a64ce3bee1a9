#include "report.h"

#include <stdlib.h>

tgd_status tgd_measures_critical_path(const tgd_report *report, tgd_node **path, uint32_t *n, tgd_error *err)
{
    const tgd_graph *graph = &report->graph;
    const tgd_measures *measures = report->measures;
    uint64_t *longest = calloc((size_t)graph->n_nodes + 1, sizeof *longest); /* from a node on, with it */
    tgd_node *next = malloc(((size_t)graph->n_nodes + 1) * sizeof *next);
    *path = malloc(((size_t)report->n_executed + 1) * sizeof **path);
    *n = 0;
    if (longest == NULL || next == NULL || *path == NULL) {
        free(longest);
        free(next);
        free(*path);
        *path = NULL;
        return tgd_fail_memory(err);
    }
    tgd_node first = TGD_NONE;
    /* A node comes before all that it leads to. */
    for (uint32_t i = report->n_executed; i-- > 0;) {
        const tgd_node v = report->sequence[i];
        const tgd_node_row *row = &graph->nodes[v];
        next[v] = TGD_NONE;
        if (!measures->nodes[v].timed) {
            continue;
        }
        for (uint32_t e = row->first_edge; e < row->first_edge + row->n_edges; e++) {
            const tgd_node to = graph->edges[e].to;
            if (to != TGD_NONE && longest[to] > 0 && (next[v] == TGD_NONE || longest[to] > longest[next[v]])) {
                next[v] = to;
            }
        }
        const tgd_measure_row *measured = &measures->nodes[v];
        longest[v] = 1 + (measured->on_device.known ? tgd_measure_own_ns(measured) : measured->total_ns) +
                     (next[v] == TGD_NONE ? 0 : longest[next[v]]);
        first = first == TGD_NONE || longest[v] >= longest[first] ? v : first;
    }
    for (tgd_node v = first; v != TGD_NONE; v = next[v]) {
        (*path)[(*n)++] = v;
    }
    free(longest);
    free(next);
    return TGD_OK;
}
