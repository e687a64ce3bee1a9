#include "report.h"

enum { MOST_SHOWN = 5, LEAST_PERCENT = 2, NAME_WIDTH = 60 };

/* The slowest nodes, slowest first; how many there are. */
static size_t slowest(const tgd_measures *measures, tgd_node out[MOST_SHOWN], uint64_t *all)
{
    size_t n = 0;
    *all = 0;
    for (tgd_node v = 0; v < measures->n_nodes; v++) {
        if (!measures->nodes[v].timed) {
            continue;
        }
        const uint64_t ns = tgd_measure_own_ns(&measures->nodes[v]);
        *all += ns;
        size_t place = n;
        while (place > 0 && tgd_measure_own_ns(&measures->nodes[out[place - 1]]) < ns) {
            place--;
        }
        if (place == MOST_SHOWN) {
            continue;
        }
        n += n < MOST_SHOWN;
        for (size_t i = n - 1; i > place; i--) {
            out[i] = out[i - 1];
        }
        out[place] = v;
    }
    return n;
}

static void write_node(tgd_text *text, const tgd_report *report, tgd_node v, unsigned percent)
{
    const tgd_measure_row *row = &report->measures->nodes[v];
    const uint32_t leaf = report->graph.nodes[v].leaf;
    const uint32_t parameter = leaf == TGD_NONE ? TGD_NONE : report->leaf_parameter[leaf];
    const uint32_t where = report->node_where == NULL ? TGD_NONE : report->node_where[v];
    const tgd_source_row *source = where == TGD_NONE ? NULL : &report->sources[where];
    const char *place = parameter != TGD_NONE ? report->parameters[parameter].name : source != NULL ? source->module : "";
    tgd_text_printf(text, "  %3u %%  ", percent);
    tgd_text_duration(text, tgd_measure_own_ns(row));
    tgd_text_str(text, "  ");
    tgd_text_line(text, tgd_graph_type(&report->graph, v)->name, NAME_WIDTH);
    if (place[0] != '\0') {
        tgd_text_str(text, " ");
        tgd_text_line(text, place, NAME_WIDTH);
    }
    if (source != NULL) {
        tgd_text_str(text, " (");
        tgd_source_phrase(text, source);
        tgd_text_str(text, ")");
    }
    if (row->repeats > 1) {
        tgd_text_str(text, ", median of ");
        tgd_text_count(text, row->repeats);
        tgd_text_str(text, ": ");
        tgd_text_duration(text, row->median_self_ns);
    }
    if (row->first_use) {
        tgd_text_str(text, row->repeats > 1 ? "; first use" : ", first use: may include one-time costs");
    }
    tgd_text_str(text, "\n");
}

void tgd_slowest_write(tgd_text *text, const tgd_report *report)
{
    const tgd_measures *measures = report->measures;
    tgd_node nodes[MOST_SHOWN];
    uint64_t all;
    const size_t n = measures == NULL ? 0 : slowest(measures, nodes, &all);
    if (n == 0) {
        return;
    }
    tgd_text_str(text, "\nBackward took ");
    tgd_text_duration(text, measures->ended - measures->began - measures->ours);
    tgd_text_str(text, ", measuring itself left out. Slowest nodes, of ");
    tgd_text_duration(text, all);
    tgd_text_str(text, " in all:\n");
    for (size_t i = 0; i < n; i++) {
        const uint64_t ns = tgd_measure_own_ns(&measures->nodes[nodes[i]]);
        const unsigned percent = all == 0 ? 0 : (unsigned)((double)ns / (double)all * 100 + 0.5);
        if (i == 0 || percent >= LEAST_PERCENT) {
            write_node(text, report, nodes[i], percent);
        }
    }
    if (measures->trouble != NULL) {
        tgd_text_str(text, "Devices: ");
        tgd_text_line(text, measures->trouble, 0);
        tgd_text_str(text, "\n");
    }
    if (measures->dropped > 0) {
        tgd_text_count(text, measures->dropped);
        tgd_text_str(text, " more nodes ran than there was room for: they were not timed\n");
    }
}
