#include "side_panels.h"

#include "boxes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    X = TGD_SIDE_X,
    W = TGD_SIDE_WIDTH,
    FACTS_HEIGHT = 136,
    NOTE_HEIGHT = 78,
    BARS = 9,
    BAR_PITCH = 24,
    FLOW_LEAST = 176,
    FLOW_MOST = 262,
    FEWEST_MEASURED = 3
};

static const tgd_type body_type = {13, TGD_SANS, TGD_COLOUR_INK2};

/* ---- checks, where nothing was found ---- */

static void draw_check(tgd_text *out, double y, bool done, const char *name, tgd_text *words)
{
    tgd_point tick[3] = {{X + 18, y - 4}, {X + 22, y}, {X + 30, y - 9}};
    if (done) {
        tgd_svg_route(out, tick, 3, 0, (tgd_pen){.stroke = TGD_COLOUR_OK_STROKE, .width = 2.4});
    } else {
        tgd_svg_line(out, X + 18, y - 4, X + 30, y - 4, (tgd_pen){TGD_COLOUR_NONE, TGD_COLOUR_EDGE, 2.2, "3 4"});
    }
    tgd_svg_begin_line(out, X + 40, y);
    double used = tgd_svg_piece(out, name, (tgd_type){13, TGD_BOLD, TGD_COLOUR_INK}, 160);
    used += tgd_svg_piece(out, "  ", body_type, 20);
    tgd_svg_piece(out, tgd_text_words(out, words), body_type, W - 60 - used);
    tgd_svg_end_line(out);
    tgd_text_drop(words);
}

enum { CHECKS_HEIGHT = 132 };

static void draw_checks(tgd_text *out, const tgd_report *report, double y)
{
    tgd_summary s;
    tgd_text words;
    tgd_report_summary(report, &s);
    tgd_svg_panel(out, X, y, W, CHECKS_HEIGHT, "Checks", report->measures != NULL ? "of the graph as it was before backward"
                                                                     : "backward was predicted, not run");
    size_t looked_at = 0;
    for (uint32_t i = 0; i < report->graph.n_saved; i++) {
        looked_at += report->graph.saved[i].state == TGD_SAVED_OK;
    }
    tgd_text_init(&words, NULL, NULL);
    tgd_text_count(&words, looked_at);
    tgd_text_str(&words, " looked at, none modified, freed or lost");
    draw_check(out, y + 54, looked_at > 0 || s.n_saved == 0, "Saved tensors", &words);
    tgd_text_init(&words, NULL, NULL);
    tgd_text_count(&words, s.n_executed);
    tgd_text_str(&words, " will run, none of them raises");
    draw_check(out, y + 76, true, "Nodes", &words);
    tgd_text_init(&words, NULL, NULL);
    if (report->has_parameters) {
        tgd_text_count(&words, s.n_parameters_reached);
        tgd_text_str(&words, " of ");
        tgd_text_count(&words, s.n_parameters);
        tgd_text_str(&words, " will get a gradient");
        if (s.n_parameters_frozen > 0) {
            tgd_text_str(&words, ", ");
            tgd_text_count(&words, s.n_parameters_frozen);
            tgd_text_str(&words, " frozen");
        }
    } else {
        tgd_text_str(&words, "not given: params=model names and checks them");
    }
    draw_check(out, y + 98, report->has_parameters, "Parameters", &words);
    tgd_text_init(&words, NULL, NULL);
    if (s.n_unchecked > 0) {
        tgd_text_count(&words, s.n_unchecked);
        tgd_text_str(&words, s.n_unchecked == 1 ? " saved tensor or node" : " saved tensors or nodes");
    } else {
        tgd_text_str(&words, "nothing");
    }
    draw_check(out, y + 120, s.n_unchecked == 0, "Unchecked", &words);
}

/* ---- the graph in numbers ---- */

static void draw_fact(tgd_text *out, int place, double y, const char *name, tgd_text *value)
{
    double x = X + 16 + (place % 2) * (W / 2.0);
    double w = W / 2.0 - 32;
    double at = y + 52 + 24 * (place / 2);
    double used = tgd_svg_label(out, x + w, at, tgd_text_words(out, value), (tgd_type){12.5, TGD_BOLD, TGD_COLOUR_INK},
                                TGD_END, w - 60);
    tgd_svg_label(out, x, at, name, (tgd_type){12.5, TGD_SANS, TGD_COLOUR_INK2}, TGD_START, w - used - 6);
    tgd_text_drop(value);
}

static void count_of(tgd_text *text, size_t n, size_t of)
{
    tgd_text_count(text, n);
    tgd_text_str(text, " of ");
    tgd_text_count(text, of);
}

static void draw_facts(tgd_text *out, const tgd_report *report, double y)
{
    tgd_summary s;
    tgd_report_summary(report, &s);
    tgd_text value[8];
    bool fails = report->root_fails || report->first_error < report->n_executed;
    const char *const names[] = {"nodes",         "depth",     "edges",   "null edges",
                                 "saved tensors", "they hold", report->has_parameters ? "params reached" : "leaves",
                                 fails ? "run first" : "will run"};
    for (int i = 0; i < 8; i++) {
        tgd_text_init(&value[i], NULL, NULL);
    }
    tgd_text_count(&value[0], s.n_nodes);
    tgd_text_count(&value[1], s.depth);
    tgd_text_count(&value[2], s.n_edges);
    tgd_text_count(&value[3], s.n_null_edges);
    tgd_text_count(&value[4], s.n_saved);
    tgd_text_size(&value[5], s.saved_bytes);
    if (report->has_parameters) {
        count_of(&value[6], s.n_parameters_reached, s.n_parameters);
    } else {
        tgd_text_count(&value[6], s.n_leaves);
    }
    if (fails) {
        count_of(&value[7], report->root_fails ? 0 : s.n_executed_to_error, s.n_executed);
    } else {
        tgd_text_count(&value[7], s.n_executed);
        tgd_text_str(&value[7], s.n_executed == 1 ? " node" : " nodes");
    }
    tgd_svg_panel(out, X, y, W, FACTS_HEIGHT, "Graph", "each storage counted once, leaves left out");
    for (int i = 0; i < 8; i++) {
        draw_fact(out, i, y, names[i], &value[i]);
    }
}

/* ---- saved bytes ---- */

typedef struct bar {
    uint32_t key;
    uint64_t bytes;
    bool elsewhere; /* in none of the modules shown */
} bar;

/* The level at which the model divides: down to the module that holds nearly everything. */
static uint32_t dividing_module(const tgd_units *units, uint32_t *count)
{
    uint32_t root = 0;
    for (bool deeper = true; deeper;) {
        deeper = false;
        memset(count, 0, units->n_modules * sizeof *count);
        for (uint32_t u = 0; u < units->n; u++) {
            uint32_t below = tgd_module_below(units, root, units->module[u]);
            count[below == TGD_NONE ? root : below]++;
        }
        for (uint32_t m = root + 1; m < units->n_modules && !deeper; m++) {
            if (units->modules[m].parent == root && units->modules[m].n_children > 0 && count[m] > units->n / 10 * 8) {
                root = m;
                deeper = true;
            }
        }
    }
    return root;
}

/* Length of a module's name without the number of its place in a list: "layer1" of "layer1.0". */
static uint32_t list_length(const tgd_module_row *row)
{
    uint32_t n = row->length;
    while (n > 0 && row->name[n - 1] >= '0' && row->name[n - 1] <= '9') {
        n--;
    }
    return n > 1 && n < row->length && row->name[n - 1] == '.' ? n - 1 : row->length;
}

/* For each module under root, the one that its bytes count to: the first of the list it stands in. Lists may be met in
   turns, one element of each ("down.0", "merge.0", "down.1", ...); they are few. */
static void find_lists(const tgd_units *units, uint32_t root, uint32_t *list)
{
    for (uint32_t m = 0; m < units->n_modules; m++) {
        const tgd_module_row *row = &units->modules[m];
        list[m] = m;
        uint32_t n = list_length(row);
        if (row->parent != root || n == row->length) {
            continue;
        }
        for (uint32_t first = 0; first < m && list[m] == m; first++) {
            const tgd_module_row *other = &units->modules[first];
            if (list[first] == first && other->parent == root && other->length > n && list_length(other) == n &&
                memcmp(row->name, other->name, n) == 0) {
                list[m] = first;
            }
        }
    }
}

/* Does this share stand above the other? Of equals the one whose name comes first: in what order classes were met is
   no fact of the graph. */
static bool is_larger(const tgd_graph *graph, bool by_module, bar share, bar than)
{
    if (share.bytes != than.bytes || by_module) {
        return share.bytes > than.bytes;
    }
    return strcmp(graph->types[share.key].name, graph->types[than.key].name) < 0;
}

/* The largest shares, by module where there are names and by op where not. Returns how many. */
static tgd_status largest_shares(bar *bars, uint32_t *n_bars, const tgd_units *units, bool by_module, bool of_time,
                                 tgd_error *err)
{
    const tgd_graph *graph = &units->report->graph;
    uint32_t n_keys = by_module ? units->n_modules : graph->n_types;
    uint64_t *bytes = calloc(n_keys + 1, sizeof *bytes);
    uint32_t *list = calloc(units->n_modules + 1, sizeof *list);
    uint8_t *seen = calloc(graph->n_storages + 1, sizeof *seen);
    *n_bars = 0;
    if (bytes == NULL || list == NULL || seen == NULL) {
        free(bytes);
        free(list);
        free(seen);
        return tgd_fail_memory(err);
    }
    uint32_t root = by_module ? dividing_module(units, list) : 0;
    find_lists(units, root, list);
    for (uint32_t u = 0; u < units->n; u++) {
        uint32_t below = tgd_module_below(units, root, units->module[u]);
        uint32_t key = by_module ? list[below == TGD_NONE ? root : below] : graph->nodes[units->lead[u]].type;
        bytes[key] += of_time ? units->measured[u].ns : 0;
        for (uint32_t m = units->start[u]; m < units->start[u + 1] && !of_time; m++) {
            const tgd_node_row *row = &graph->nodes[units->members[m]];
            for (uint32_t s = row->first_saved; s < row->first_saved + row->n_saved; s++) {
                uint32_t storage = graph->saved[s].storage;
                if (storage != TGD_NONE && !seen[storage] && graph->storages[storage].leaf == TGD_NONE) {
                    seen[storage] = 1;
                    bytes[key] += graph->storages[storage].bytes;
                }
            }
        }
    }
    for (uint32_t k = 0; k < n_keys; k++) {
        if (bytes[k] == 0) {
            continue;
        }
        const bar share = {k, bytes[k], false};
        uint32_t at = *n_bars < BARS ? (*n_bars)++ : BARS;
        while (at > 0 && is_larger(graph, by_module, share, bars[at - 1])) {
            if (at < BARS) {
                bars[at] = bars[at - 1];
            }
            at--;
        }
        if (at < BARS) {
            bars[at] = share;
        }
    }
    if (by_module) {
        for (uint32_t i = 0; i < *n_bars; i++) {
            bars[i].elsewhere = bars[i].key == root;
        }
    }
    free(bytes);
    free(list);
    free(seen);
    return TGD_OK;
}

static void draw_bars(tgd_text *out, const tgd_units *units, const bar *bars, uint32_t n, bool by_module, bool of_time,
                      double y)
{
    tgd_summary s;
    tgd_text words;
    double name_width = 40;
    tgd_report_summary(units->report, &s);
    tgd_text_init(&words, NULL, NULL);
    if (of_time) {
        tgd_text_duration(&words, units->total_ns);
        tgd_text_str(&words, " in all nodes");
    } else {
        tgd_text_size(&words, s.saved_bytes);
        tgd_text_str(&words, by_module ? " held until the graph is freed" : " held until the graph is freed, by op");
    }
    const char *title = !of_time ? "Saved for backward" : by_module ? "Time per module" : "Time per op";
    tgd_svg_panel(out, X, y, W, 44 + BAR_PITCH * (double)n, title, tgd_text_words(out, &words));
    tgd_text_drop(&words);
    tgd_type name_type = {12.5, TGD_BOLD, TGD_COLOUR_INK};
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < n; i++) {
            double cy = y + 52 + BAR_PITCH * (double)i;
            tgd_text_init(&words, NULL, NULL);
            if (!by_module) {
                tgd_text_str(&words, units->report->graph.types[bars[i].key].name);
            } else if (bars[i].elsewhere) {
                tgd_text_str(&words, "elsewhere");
            } else {
                const tgd_module_row *row = &units->modules[bars[i].key];
                tgd_text_bytes(&words, row->name, list_length(row));
            }
            if (pass == 0) {
                tgd_text fitted;
                tgd_text_init(&fitted, NULL, NULL);
                name_width = fmax(name_width, tgd_style_fit(&fitted, tgd_text_words(out, &words), name_type.size,
                                                            name_type.font, 190));
                tgd_text_drop(&fitted);
            } else {
                double full = W - 32 - name_width - 12 - 90;
                double length = fmax(2, full * (double)bars[i].bytes / (double)bars[0].bytes);
                double bx = X + 16 + name_width + 12;
                tgd_svg_label(out, X + 16, cy + 4, tgd_text_words(out, &words), name_type, TGD_START, name_width + 1);
                tgd_svg_rect(out, bx, cy - 6, length, 12, 2, (tgd_pen){.fill = of_time ? TGD_COLOUR_TIME : TGD_COLOUR_NOTE_STROKE});
                tgd_text amount;
                tgd_text_init(&amount, NULL, NULL);
                if (of_time) {
                    tgd_text_duration(&amount, bars[i].bytes);
                    long percent = lround(100 * (double)bars[i].bytes / (double)units->total_ns);
                    if (percent < 1) {
                        tgd_text_str(&amount, "  <1 %");
                    } else {
                        tgd_text_printf(&amount, "  %ld %%", percent);
                    }
                } else {
                    tgd_text_size(&amount, bars[i].bytes);
                }
                tgd_svg_label(out, bx + length + 8, cy + 4, tgd_text_words(out, &amount),
                              (tgd_type){12, TGD_SANS, TGD_COLOUR_INK2}, TGD_START, 90);
                tgd_text_drop(&amount);
            }
            tgd_text_drop(&words);
        }
    }
}

/* ---- what this sheet cannot know ---- */

static void draw_not_recorded(tgd_text *out, const tgd_report *report, double y)
{
    tgd_svg_rect(out, X, y, W, NOTE_HEIGHT, TGD_RADIUS, (tgd_pen){TGD_COLOUR_BG, TGD_COLOUR_EDGE, 1, "4 4"});
    bool recorded = report->recorded;
    tgd_svg_label(out, X + 16, y + 26,
                  recorded ? "Not in this picture: gradients, time" : "Not in this picture: source lines, gradients, time",
                  (tgd_type){14, TGD_BOLD, TGD_COLOUR_INK}, TGD_START, W - 32);
    tgd_svg_label(out, X + 16, y + 46,
                  recorded ? "For both: let record() also see loss.backward(), then rec.report()."
                           : "For all three: torchgraphdbg.record() around forward and backward.",
                  (tgd_type){12.5, TGD_SANS, TGD_COLOUR_INK2}, TGD_START, W - 32);
    tgd_svg_label(out, X + 16, y + 64,
                  report->has_parameters ? "Modules are guessed from the names of parameters."
                                         : "With params=model, parameters have names and are checked.",
                  (tgd_type){12.5, TGD_SANS, TGD_COLOUR_INK2}, TGD_START, W - 32);
}

/* ---- all of it ---- */

tgd_status tgd_side_panels_draw(tgd_text *out, const tgd_units *units, double y, double end, tgd_error *err)
{
    const tgd_report *report = units->report;
    bar bars[BARS];
    uint32_t n_bars = 0;
    bool by_module = units->n_modules > 2;
    bool measured = units->n_measured >= FEWEST_MEASURED;
    bool of_time = measured && units->total_ns > 0;
    tgd_status status = largest_shares(bars, &n_bars, units, by_module, of_time, err);
    if (status == TGD_OK) {
        bool fails = report->root_fails || report->first_error < report->n_executed;
        double least_bars = 44 + 2 * BAR_PITCH + TGD_GUTTER;
        double fixed = fails && measured ? TGD_GUTTER
                       : measured        ? FLOW_LEAST + TGD_GUTTER + least_bars
                                         : FACTS_HEIGHT + TGD_GUTTER + NOTE_HEIGHT + TGD_GUTTER;
        if (report->n_errors + report->n_warnings == 0) {
            draw_checks(out, report, y);
            y += CHECKS_HEIGHT + TGD_GUTTER;
        }
        if (units->n_numbers > 0) {
            double height = 0;
            status = tgd_findings_panel_draw(out, &height, units, y, end - y - fixed, err);
            if (status != TGD_OK) {
                return status;
            }
            y += height + TGD_GUTTER;
        }
        const tgd_finding_row *first = report->n_findings > 0 ? &report->findings[0] : NULL;
        if (first != NULL && first->kind == TGD_MODIFIED_IN_PLACE && first->saved != TGD_NONE &&
            end - y - fixed >= TGD_STORY_HEIGHT + TGD_GUTTER) {
            tgd_story_panel_draw(out, report, 0, y);
            y += TGD_STORY_HEIGHT + TGD_GUTTER;
        }
        if (measured) {
            double flow = fmin(FLOW_MOST, end - y);
            flow = end - y - flow - TGD_GUTTER < least_bars ? fmin(flow, fmax(FLOW_LEAST, end - y - least_bars)) : flow;
            if (flow >= FLOW_LEAST) {
                tgd_flow_panel_draw(out, units, y, flow);
                y += flow + TGD_GUTTER;
            }
            fixed = -TGD_GUTTER;
        }
        while (n_bars > 0 && end - y - fixed < 44 + BAR_PITCH * (double)n_bars + TGD_GUTTER) {
            n_bars = n_bars > 2 ? n_bars - 1 : 0;
        }
        if (n_bars > 0) {
            draw_bars(out, units, bars, n_bars, by_module, of_time, y);
            y += 44 + BAR_PITCH * (double)n_bars + TGD_GUTTER;
        }
        if (!measured || end - y >= FACTS_HEIGHT) {
            draw_facts(out, report, y);
        }
        if (!measured) {
            draw_not_recorded(out, report, end - NOTE_HEIGHT);
        }
    }
    return status;
}
