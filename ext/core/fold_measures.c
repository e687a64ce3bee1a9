/* What was measured of the units of a fold, and of its boxes: gradients as they arrive, and time. */
#include "fold.h"

#include <math.h>
#include <stdlib.h>

/* Adds the leaves that stand in unit u, each to the first unit that uses it. */
static void add_leaves(tgd_unit_measure *out, const tgd_units *units, uint32_t u, bool *seen)
{
    const tgd_report *report = units->report;
    const tgd_graph *graph = &report->graph;
    for (uint32_t m = units->start[u]; m < units->start[u + 1]; m++) {
        const tgd_node_row *row = &graph->nodes[units->members[m]];
        for (uint32_t k = 0; k < row->n_edges; k++) {
            tgd_node to = graph->edges[row->first_edge + k].to;
            if (to == TGD_NONE || units->unit_of[to] != TGD_NONE || seen[to]) {
                continue;
            }
            const tgd_measure_row *leaf = &report->measures->nodes[to];
            seen[to] = true;
            out->ns += leaf->timed ? tgd_measure_own_ns(leaf) : 0;
            if (leaf->measured) {
                out->leaf_rms = fmax(out->leaf_rms, tgd_statistics_rms(&leaf->gradient));
                out->nan = out->nan || leaf->gradient.n_nan > 0;
                out->inf = out->inf || leaf->gradient.n_inf > 0;
            }
        }
    }
}

tgd_status tgd_units_measure(tgd_units *units, tgd_error *err)
{
    const tgd_report *report = units->report;
    const tgd_measures *measures = report->measures;
    if (measures == NULL || units->n == 0 || measures->n_nodes != report->graph.n_nodes) {
        return TGD_OK;
    }
    bool *seen = calloc(measures->n_nodes + 1, sizeof *seen);
    units->measured = calloc(units->n, sizeof *units->measured);
    if (seen == NULL || units->measured == NULL) {
        free(seen);
        return tgd_fail_memory(err);
    }
    units->lowest = INFINITY;
    units->highest = -INFINITY;
    for (uint32_t u = 0; u < units->n; u++) {
        tgd_unit_measure *out = &units->measured[u];
        *out = (tgd_unit_measure){.rms = -1, .leaf_rms = -1};
        for (uint32_t m = units->start[u]; m < units->start[u + 1]; m++) {
            const tgd_measure_row *row = &measures->nodes[units->members[m]];
            out->ns += row->timed ? tgd_measure_own_ns(row) : 0;
            if (row->measured && (out->rms < 0 || units->members[m] == units->lead[u])) {
                out->rms = tgd_statistics_rms(&row->gradient);
            }
            out->nan = out->nan || (row->measured && row->gradient.n_nan > 0);
            out->inf = out->inf || (row->measured && row->gradient.n_inf > 0);
        }
        add_leaves(out, units, u, seen);
        units->total_ns += out->ns;
        if (out->rms >= 0 || out->nan || out->inf) {
            units->n_measured++;
        }
        for (int which = 0; which < 2; which++) {
            double rms = which == 0 ? out->rms : out->leaf_rms;
            if (rms > 0 && isfinite(rms)) {
                units->lowest = fmin(units->lowest, log10(rms));
                units->highest = fmax(units->highest, log10(rms));
            }
        }
    }
    free(seen);
    if (units->highest < units->lowest) {
        units->lowest = units->highest = 0;
    }
    return TGD_OK;
}

bool tgd_fold_box_measure(tgd_unit_measure *out, const tgd_fold *fold, uint32_t index)
{
    const tgd_units *units = fold->units;
    const tgd_fold_box *box = &fold->boxes[index];
    *out = (tgd_unit_measure){.rms = -1, .leaf_rms = -1};
    if (units->measured == NULL) {
        return false;
    }
    double far = -1;
    for (uint32_t u = box->first_unit; u < box->first_unit + box->n_units; u++) {
        const tgd_unit_measure *unit = &units->measured[u];
        out->ns += unit->ns;
        out->nan = out->nan || unit->nan;
        out->inf = out->inf || unit->inf;
        out->leaf_rms = fmax(out->leaf_rms, unit->leaf_rms);
        if (unit->rms < 0) {
            continue;
        }
        /* the worst is the one farthest from the size that gradients begin with */
        double away = unit->rms > 0 && isfinite(unit->rms) ? fabs(log10(unit->rms) - units->highest) : 400;
        if (away > far) {
            far = away;
            out->rms = unit->rms;
        }
    }
    return true;
}
