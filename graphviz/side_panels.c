#include "side_panels.h"

#include "boxes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    X = TGD_SIDE_X,
    W = TGD_SIDE_WIDTH,
    TEXT_X = X + 54,
    TEXT_W = W - 72,
    FACTS_HEIGHT = 136,
    STORY_HEIGHT = 188,
    NOTE_HEIGHT = 78,
    BARS = 5,
    BAR_PITCH = 24,
    MOST_MESSAGE_LINES = 5,
    MOST_HINT_LINES = 4
};

static const tgd_type head_type = {16, TGD_BOLD, TGD_COLOUR_INK};
static const tgd_type body_type = {13, TGD_SANS, TGD_COLOUR_INK2};

/* ---- findings ---- */

/* First findings of the groups, in the order in which the picture numbers them. */
typedef struct groups {
    uint32_t *first; /* Owned, by number - 1 */
    uint32_t *size;  /* Owned, by number - 1 */
} groups;

static tgd_status find_groups(groups *g, const tgd_units *units, tgd_error *err)
{
    g->first = calloc(units->n_numbers + 1, sizeof *g->first);
    g->size = calloc(units->n_numbers + 1, sizeof *g->size);
    if (g->first == NULL || g->size == NULL) {
        return tgd_fail_memory(err);
    }
    for (uint32_t i = 0; i < units->report->n_findings; i++) {
        uint32_t k = units->number[i] - 1;
        g->first[k] = g->size[k]++ == 0 ? i : g->first[k];
    }
    return TGD_OK;
}

static void write_head(tgd_text *text, const tgd_report *report, uint32_t finding, uint32_t size)
{
    const tgd_finding_row *row = &report->findings[finding];
    if (row->kind == TGD_UNREACHED_PARAMETER) {
        if (size > 1) {
            tgd_text_count(text, size);
            tgd_text_str(text, " parameters get no gradient");
        } else {
            tgd_text_line(text, report->parameters[row->parameter].name, 60);
            tgd_text_str(text, " gets no gradient");
        }
        return;
    }
    if (row->saved != TGD_NONE || row->kind == TGD_NOT_DIFFERENTIABLE) {
        tgd_node_phrase(text, report, row->node);
        tgd_text_str(text, ": ");
        tgd_finding_phrase(text, report, finding);
    } else {
        tgd_text_str(text, tgd_finding_statement((tgd_finding_kind)row->kind));
    }
    if (size > 1) {
        tgd_text_str(text, ", and ");
        tgd_text_count(text, size - 1);
        tgd_text_str(text, " more like it");
    }
}

static void write_members(tgd_text *text, const tgd_units *units, uint32_t number, uint32_t size)
{
    const tgd_report *report = units->report;
    uint32_t shown = 0;
    for (uint32_t i = 0; i < report->n_findings && shown < 8; i++) {
        if (units->number[i] == number && report->findings[i].parameter != TGD_NONE) {
            tgd_text_str(text, shown++ > 0 ? ", " : "");
            tgd_text_line(text, report->parameters[report->findings[i].parameter].name, 40);
        }
    }
    if (shown < size && shown > 0) {
        tgd_text_str(text, " and ");
        tgd_text_count(text, size - shown);
        tgd_text_str(text, " more");
    }
}

/* Height of one entry; drawn too unless out is NULL. `full`: every line, else the heading and what to do. */
static double draw_entry(tgd_text *out, tgd_text *failures, const tgd_units *units, const groups *g, uint32_t k,
                         double y, bool full)
{
    const tgd_report *report = units->report;
    uint32_t finding = g->first[k];
    tgd_severity severity = (tgd_severity)report->findings[finding].severity;
    tgd_type hint_type = {13, TGD_BOLD, tgd_tone_of(severity).text};
    double top = y;
    tgd_text words;
    if (out != NULL) {
        tgd_svg_mark(out, X + 30, y + 10, k + 1, severity, 12);
    }
    tgd_text_init(&words, NULL, NULL);
    write_head(&words, report, finding, g->size[k]);
    y += 20 * (double)tgd_svg_paragraph(out, TEXT_X, y + 16, 20, tgd_svg_words(failures, &words), head_type, TEXT_W,
                                        full ? 3 : 2);
    tgd_text_drop(&words);
    if (full && report->findings[finding].parameter != TGD_NONE && g->size[k] > 1) {
        tgd_text_init(&words, NULL, NULL);
        write_members(&words, units, k + 1, g->size[k]);
        y += 17 * (double)tgd_svg_paragraph(out, TEXT_X, y + 14, 17, tgd_svg_words(failures, &words), body_type,
                                            TEXT_W, MOST_MESSAGE_LINES);
        tgd_text_drop(&words);
    }
    if (full) {
        tgd_text_init(&words, NULL, NULL);
        tgd_message_write(&words, report, finding);
        y += 17 * (double)tgd_svg_paragraph(out, TEXT_X, y + 14, 17, tgd_svg_words(failures, &words), body_type,
                                            TEXT_W, MOST_MESSAGE_LINES);
        tgd_text_drop(&words);
    }
    tgd_text_init(&words, NULL, NULL);
    tgd_text_str(&words, "→ ");
    size_t arrow = words.n;
    tgd_hint_write(&words, report, finding);
    if (words.n > arrow || words.status != TGD_OK) { /* tgd_svg_words() notes the failure */
        y += 17 * (double)tgd_svg_paragraph(out, TEXT_X, y + 14, 17, tgd_svg_words(failures, &words), hint_type,
                                            TEXT_W, full ? MOST_HINT_LINES : 2);
    }
    tgd_text_drop(&words);
    return y - top + 22;
}

/* Returns the height; draws unless out is NULL. */
static double draw_findings(tgd_text *out, tgd_text *failures, const tgd_units *units, const groups *g, double y,
                            double most)
{
    uint32_t n = units->n_numbers;
    double used = 44;
    uint32_t shown = 0;
    bool full[3] = {false, false, false};
    /* the first three in full if they fit, the others shortened, the rest counted */
    for (uint32_t k = 0; k < n; k++) {
        double rest = k + 1 < n ? 24 : 0;
        bool whole = k < 3;
        double h = draw_entry(NULL, failures, units, g, k, 0, whole);
        if (whole && used + h + rest > most) {
            whole = false;
            h = draw_entry(NULL, failures, units, g, k, 0, false);
        }
        if (used + h + rest > most && k > 0) {
            break;
        }
        if (k < 3) {
            full[k] = whole;
        }
        used += h;
        shown++;
    }
    used += shown < n ? 20 : -6;
    if (out == NULL) {
        return used;
    }
    tgd_svg_panel(out, X, y, W, used, "Findings", "the numbers stand at the nodes");
    double at = y + 44;
    for (uint32_t k = 0; k < shown; k++) {
        if (k > 0) {
            tgd_svg_line(out, X + 16, at - 9, X + W - 16, at - 9, (tgd_pen){.stroke = TGD_COLOUR_GRID, .width = 1});
        }
        at += draw_entry(out, failures, units, g, k, at, k < 3 && full[k]);
    }
    if (shown < n) {
        tgd_text words;
        tgd_text_init(&words, NULL, NULL);
        tgd_text_str(&words, "and ");
        tgd_text_count(&words, n - shown);
        tgd_text_str(&words, " more: the text report and .json have them all");
        tgd_svg_label(out, TEXT_X, at + 2, tgd_svg_words(out, &words), body_type, TGD_START, TEXT_W);
        tgd_text_drop(&words);
    }
    return used;
}

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
    tgd_svg_piece(out, tgd_svg_words(out, words), body_type, W - 60 - used);
    tgd_svg_end_line(out);
    tgd_text_drop(words);
}

enum { CHECKS_HEIGHT = 132 };

static void draw_checks(tgd_text *out, const tgd_report *report, double y)
{
    tgd_summary s;
    tgd_text words;
    tgd_report_summary(report, &s);
    tgd_svg_panel(out, X, y, W, CHECKS_HEIGHT, "Checks", "backward was predicted, not run");
    tgd_text_init(&words, NULL, NULL);
    tgd_text_count(&words, s.n_saved);
    tgd_text_str(&words, " looked at, none modified, freed or lost");
    draw_check(out, y + 54, true, "Saved tensors", &words);
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

/* ---- how it broke ---- */

static void draw_story(tgd_text *out, const tgd_report *report, const tgd_finding_row *row, double y)
{
    const tgd_saved_row *saved = &report->graph.saved[row->saved];
    tgd_text words[3];
    tgd_text versions[3];
    tgd_text subtitle;
    static const char *const steps[] = {"saved", "overwritten", "needed again"};
    static const tgd_colour colours[] = {TGD_COLOUR_OK_FILL, TGD_COLOUR_ERR_FILL, TGD_COLOUR_ERR_FILL};
    tgd_text_init(&subtitle, NULL, NULL);
    tgd_text_str(&subtitle, "life of one tensor, ");
    tgd_fold_shape(&subtitle, &report->graph, saved->shape);
    tgd_text_printf(&subtitle, " %s", tgd_torch_dtype_name(saved->dtype));
    tgd_svg_panel(out, X, y, W, STORY_HEIGHT, "How it broke", tgd_svg_words(out, &subtitle));
    tgd_text_drop(&subtitle);
    for (int i = 0; i < 3; i++) {
        tgd_text_init(&words[i], NULL, NULL);
        tgd_text_init(&versions[i], NULL, NULL);
        tgd_text_printf(&versions[i], "v%lu", (unsigned long)(i == 0 ? saved->saved_version : saved->version));
    }
    tgd_node_phrase(&words[0], report, row->node);
    tgd_text_printf(&words[0], saved->flags & TGD_SV_OUTPUT ? " keeps its own %s" : " keeps its %s", saved->name);
    uint32_t writes = saved->version - saved->saved_version;
    tgd_text_count(&words[1], writes);
    tgd_text_str(&words[1], writes == 1 ? " in-place write; op and line were not recorded"
                                        : " in-place writes; ops and lines were not recorded");
    tgd_text_printf(&words[2], "backward expects v%lu, finds v%lu, raises", (unsigned long)saved->saved_version,
                    (unsigned long)saved->version);
    tgd_svg_line(out, X + 40, y + 62, X + 40, y + 62 + 2 * 48, (tgd_pen){.stroke = TGD_COLOUR_MUTE, .width = 2});
    for (int i = 0; i < 3; i++) {
        double cy = y + 62 + 48 * i;
        tgd_svg_circle(out, X + 40, cy, 17, (tgd_pen){colours[i], TGD_COLOUR_CARD, 3, NULL});
        double size = versions[i].n <= 2 ? 12.5 : versions[i].n <= 4 ? 11 : 8;
        tgd_svg_label(out, X + 40, cy + size * 0.36, tgd_svg_words(out, &versions[i]),
                      (tgd_type){size, TGD_BOLD, TGD_COLOUR_WHITE}, TGD_MIDDLE, 34);
        tgd_svg_label(out, X + 68, cy - 3, steps[i], (tgd_type){14, TGD_BOLD, TGD_COLOUR_INK}, TGD_START, 200);
        tgd_svg_label(out, X + 68, cy + 15, tgd_svg_words(out, &words[i]),
                      (tgd_type){12.5, TGD_SANS, TGD_COLOUR_INK2}, TGD_START, W - 84);
        tgd_text_drop(&words[i]);
        tgd_text_drop(&versions[i]);
    }
}

/* ---- the graph in numbers ---- */

static void draw_fact(tgd_text *out, int place, double y, const char *name, tgd_text *value)
{
    double x = X + 16 + (place % 2) * (W / 2.0);
    double at = y + 52 + 24 * (place / 2);
    tgd_svg_label(out, x, at, name, (tgd_type){12.5, TGD_SANS, TGD_COLOUR_INK2}, TGD_START, 130);
    tgd_svg_label(out, x + W / 2.0 - 32, at, tgd_svg_words(out, value), (tgd_type){12.5, TGD_BOLD, TGD_COLOUR_INK},
                  TGD_END, 140);
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
    static const char *const names[] = {"nodes",         "depth",     "edges (null)", "leaves",
                                        "saved tensors", "they hold", "parameters reached", "run before an error"};
    for (int i = 0; i < 8; i++) {
        tgd_text_init(&value[i], NULL, NULL);
    }
    tgd_text_count(&value[0], s.n_nodes);
    tgd_text_count(&value[1], s.depth);
    tgd_text_count(&value[2], s.n_edges);
    tgd_text_str(&value[2], " (");
    tgd_text_count(&value[2], s.n_null_edges);
    tgd_text_str(&value[2], ")");
    tgd_text_count(&value[3], s.n_leaves);
    tgd_text_count(&value[4], s.n_saved);
    tgd_text_size(&value[5], s.saved_bytes);
    if (report->has_parameters) {
        count_of(&value[6], s.n_parameters_reached, s.n_parameters);
    } else {
        tgd_text_str(&value[6], "not given");
    }
    count_of(&value[7], report->root_fails ? 0 : s.n_executed_to_error, s.n_executed);
    tgd_svg_panel(out, X, y, W, FACTS_HEIGHT, "Graph", "each storage counted once, leaves left out");
    for (int i = 0; i < 8; i++) {
        draw_fact(out, i, y, names[i], &value[i]);
    }
}

/* ---- saved bytes ---- */

typedef struct bar {
    uint32_t key;
    uint64_t bytes;
} bar;

/* The module whose share a unit counts to: the first level at which the model divides. */
static uint32_t share_of(const tgd_units *units, uint32_t unit, uint32_t root)
{
    uint32_t module = tgd_module_below(units, root, units->module[unit]);
    return module == TGD_NONE ? root : module;
}

static uint32_t dividing_module(const tgd_units *units)
{
    uint32_t root = 0;
    while (units->modules[root].n_children == 1) {
        uint32_t child = TGD_NONE;
        for (uint32_t m = 1; m < units->n_modules && child == TGD_NONE; m++) {
            child = units->modules[m].parent == root ? m : TGD_NONE;
        }
        if (child == TGD_NONE || units->modules[child].n_children == 0) {
            break;
        }
        root = child;
    }
    return root;
}

/* The largest shares, by module where there are names and by op where not. Returns how many. */
static tgd_status largest_shares(bar *bars, uint32_t *n_bars, const tgd_units *units, uint32_t root, bool by_module,
                                 tgd_error *err)
{
    const tgd_graph *graph = &units->report->graph;
    uint32_t n_keys = by_module ? units->n_modules : graph->n_types;
    uint64_t *bytes = calloc(n_keys + 1, sizeof *bytes);
    uint8_t *seen = calloc(graph->n_storages + 1, sizeof *seen);
    *n_bars = 0;
    if (bytes == NULL || seen == NULL) {
        free(bytes);
        free(seen);
        return tgd_fail_memory(err);
    }
    for (uint32_t u = 0; u < units->n; u++) {
        uint32_t key = by_module ? share_of(units, u, root) : graph->nodes[units->lead[u]].type;
        for (uint32_t m = units->start[u]; m < units->start[u + 1]; m++) {
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
        uint32_t at = *n_bars < BARS ? (*n_bars)++ : BARS;
        while (at > 0 && bars[at - 1].bytes < bytes[k]) {
            if (at < BARS) {
                bars[at] = bars[at - 1];
            }
            at--;
        }
        if (at < BARS) {
            bars[at] = (bar){k, bytes[k]};
        }
    }
    free(bytes);
    free(seen);
    return TGD_OK;
}

static void draw_bars(tgd_text *out, const tgd_units *units, const bar *bars, uint32_t n, bool by_module, double y)
{
    tgd_summary s;
    tgd_text words;
    double name_width = 40;
    tgd_report_summary(units->report, &s);
    tgd_text_init(&words, NULL, NULL);
    tgd_text_size(&words, s.saved_bytes);
    tgd_text_str(&words, by_module ? " held until the graph is freed" : " held until the graph is freed, by op");
    tgd_svg_panel(out, X, y, W, 44 + BAR_PITCH * (double)n, "Saved for backward", tgd_svg_words(out, &words));
    tgd_text_drop(&words);
    tgd_type name_type = {12.5, TGD_BOLD, TGD_COLOUR_INK};
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < n; i++) {
            double cy = y + 52 + BAR_PITCH * (double)i;
            tgd_text_init(&words, NULL, NULL);
            if (!by_module) {
                tgd_text_str(&words, units->report->graph.types[bars[i].key].name);
            } else if (bars[i].key == 0) {
                tgd_text_str(&words, "outside of modules");
            } else {
                tgd_module_path(&words, units, bars[i].key);
            }
            if (pass == 0) {
                tgd_text fitted;
                tgd_text_init(&fitted, NULL, NULL);
                name_width = fmax(name_width, tgd_style_fit(&fitted, tgd_svg_words(out, &words), name_type.size,
                                                            name_type.font, 190));
                tgd_text_drop(&fitted);
            } else {
                double full = W - 32 - name_width - 12 - 90;
                double length = fmax(2, full * (double)bars[i].bytes / (double)bars[0].bytes);
                double bx = X + 16 + name_width + 12;
                tgd_svg_label(out, X + 16, cy + 4, tgd_svg_words(out, &words), name_type, TGD_START, name_width + 1);
                tgd_svg_rect(out, bx, cy - 6, length, 12, 2, (tgd_pen){.fill = TGD_COLOUR_NOTE_STROKE});
                tgd_text amount;
                tgd_text_init(&amount, NULL, NULL);
                tgd_text_size(&amount, bars[i].bytes);
                tgd_svg_label(out, bx + length + 8, cy + 4, tgd_svg_words(out, &amount),
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
    tgd_svg_label(out, X + 16, y + 26, "Not in this picture: source lines, gradients, time",
                  (tgd_type){14, TGD_BOLD, TGD_COLOUR_INK}, TGD_START, W - 32);
    tgd_svg_label(out, X + 16, y + 46, "The graph alone was read; nothing was run or recorded.",
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
    groups g = {0};
    bar bars[BARS];
    uint32_t n_bars = 0;
    uint32_t root = dividing_module(units);
    bool by_module = units->n_modules > 2;
    tgd_status status = find_groups(&g, units, err);
    if (status == TGD_OK) {
        status = largest_shares(bars, &n_bars, units, root, by_module, err);
    }
    if (status == TGD_OK) {
        double fixed = FACTS_HEIGHT + TGD_GUTTER + NOTE_HEIGHT + TGD_GUTTER;
        if (report->n_errors + report->n_warnings == 0) {
            draw_checks(out, report, y);
            y += CHECKS_HEIGHT + TGD_GUTTER;
        }
        if (units->n_numbers > 0) {
            y += draw_findings(out, out, units, &g, y, end - y - fixed) + TGD_GUTTER;
        }
        const tgd_finding_row *first = report->n_findings > 0 ? &report->findings[0] : NULL;
        if (first != NULL && first->kind == TGD_MODIFIED_IN_PLACE && first->saved != TGD_NONE &&
            end - y - fixed >= STORY_HEIGHT + TGD_GUTTER) {
            draw_story(out, report, first, y);
            y += STORY_HEIGHT + TGD_GUTTER;
        }
        while (n_bars > 0 && end - y - fixed < 44 + BAR_PITCH * (double)n_bars + TGD_GUTTER) {
            n_bars = n_bars > 3 ? n_bars - 1 : 0;
        }
        if (n_bars > 0) {
            draw_bars(out, units, bars, n_bars, by_module, y);
            y += 44 + BAR_PITCH * (double)n_bars + TGD_GUTTER;
        }
        draw_facts(out, report, y);
        draw_not_recorded(out, report, end - NOTE_HEIGHT);
    }
    free(g.first);
    free(g.size);
    return status;
}
