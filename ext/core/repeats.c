/* How long the same node usually takes: the median over the steps that a recorder saw, which the first use of a kernel
   or a moment when the machine was busy does not change. */
#include "report.h"

#include <stdlib.h>
#include <string.h>

/* One node that was timed. The strings are those of its report. */
typedef struct sample {
    const char *name, *module, *file;
    int line;
    uint64_t ns;
    tgd_node node; /* in the report to be filled, else TGD_NONE */
} sample;

static int compare(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    int by = strcmp(x->name, y->name);
    by = by != 0 ? by : strcmp(x->module, y->module);
    by = by != 0 ? by : x->line - y->line;
    by = by != 0 ? by : strcmp(x->file, y->file);
    return by != 0 ? by : (x->ns > y->ns) - (x->ns < y->ns);
}

static bool same(const sample *a, const sample *b)
{
    return a->line == b->line && strcmp(a->name, b->name) == 0 && strcmp(a->module, b->module) == 0 &&
           strcmp(a->file, b->file) == 0;
}

static size_t gather(sample *out, const tgd_report *report, const tgd_measures *measures, bool fills)
{
    static const tgd_source_row nowhere = {.file = "", .module = ""};
    size_t n = 0;
    for (tgd_node v = 0; v < measures->n_nodes; v++) {
        const tgd_measure_row *row = &measures->nodes[v];
        if (!row->timed) {
            continue;
        }
        const uint32_t where = report->node_where == NULL ? TGD_NONE : report->node_where[v];
        const tgd_source_row *source = where == TGD_NONE ? &nowhere : &report->sources[where];
        const uint32_t leaf = report->graph.nodes[v].leaf;
        const uint32_t parameter = leaf == TGD_NONE ? TGD_NONE : report->leaf_parameter[leaf];
        out[n++] = (sample){
            .name = tgd_graph_type(&report->graph, v)->name,
            .module = parameter == TGD_NONE ? source->module : report->parameters[parameter].name,
            .file = source->file,
            .line = source->line,
            .ns = tgd_measure_own_ns(row),
            .node = fills ? v : TGD_NONE,
        };
    }
    return n;
}

tgd_status tgd_measures_repeat(tgd_measures *const *measures, const tgd_report *const *reports, size_t n, size_t which,
                               tgd_error *err)
{
    size_t most = 0, n_samples = 0;
    for (size_t i = 0; i < n; i++) {
        most += measures[i] == NULL ? 0 : measures[i]->n_nodes;
    }
    sample *samples = malloc((most + 1) * sizeof *samples);
    if (samples == NULL) {
        return tgd_fail_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        if (measures[i] != NULL) {
            n_samples += gather(samples + n_samples, reports[i], measures[i], i == which);
        }
    }
    qsort(samples, n_samples, sizeof *samples, compare);
    for (size_t first = 0, end; first < n_samples; first = end) {
        for (end = first + 1; end < n_samples && same(&samples[first], &samples[end]); end++) {
        }
        const size_t count = end - first, middle = first + count / 2;
        const uint64_t high = samples[middle].ns, low = samples[count % 2 == 1 ? middle : middle - 1].ns;
        for (size_t i = first; i < end; i++) {
            if (samples[i].node != TGD_NONE) {
                tgd_measure_row *row = &measures[which]->nodes[samples[i].node];
                row->repeats = (uint32_t)count;
                row->median_self_ns = low + (high - low) / 2;
            }
        }
    }
    free(samples);
    return TGD_OK;
}
