/* Which folds to open, and the boxes, edges and frames that come of it. */
#include "fold_cut.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PIECES = 12, FEW_PIECES = 5, SMALL_FOLD = 24 };

/* ---- which folds to open ---- */

/* Put `with` in the place of items[at]. */
static tgd_status replace(tgd_items *items, uint32_t at, const tgd_items *with, tgd_error *err)
{
    uint32_t tail = items->n - at - 1;
    for (uint32_t i = 0; i + 1 < with->n; i++) {
        tgd_status status = tgd_items_add(items, (tgd_item){0}, err);
        if (status != TGD_OK) {
            return status;
        }
    }
    memmove(&items->rows[at + with->n], &items->rows[at + 1], tail * sizeof *items->rows);
    memcpy(&items->rows[at], with->rows, with->n * sizeof *with->rows);
    return TGD_OK;
}

/* Open every fold that hides a unit that must be shown. */
static tgd_status show_must(tgd_items *items, tgd_items *scratch, const tgd_units *units, uint32_t budget,
                            tgd_error *err)
{
    for (uint32_t i = 0; i < items->n;) {
        if (items->rows[i].form == TGD_FOLD_ONE || !tgd_item_has_must(units, &items->rows[i])) {
            i++;
            continue;
        }
        uint32_t most = items->n + MOST_PIECES <= budget ? MOST_PIECES : FEW_PIECES;
        tgd_status status = tgd_item_open(scratch, units, &items->rows[i], most, err);
        if (status == TGD_OK) {
            status = replace(items, i, scratch, err);
        }
        if (status != TGD_OK) {
            return status;
        }
        if (items->n > TGD_FOLD_BOXES - FEW_PIECES - 10) {
            break;
        }
    }
    return TGD_OK;
}

/* How far item i is from where the reader looks: the flagged items, else both ends. */
static uint32_t distance(const tgd_items *items, const bool *flagged, bool any, uint32_t i)
{
    if (!any) {
        return i < items->n - 1 - i ? 2 * i : 2 * (items->n - 1 - i) + 1;
    }
    for (uint32_t d = 0; d < items->n; d++) {
        if ((i >= d && flagged[i - d]) || (i + d < items->n && flagged[i + d])) {
            return d;
        }
    }
    return items->n;
}

static tgd_status open_more(tgd_items *items, tgd_items *scratch, const tgd_units *units, uint32_t budget,
                            tgd_error *err)
{
    while (items->n < budget && items->n <= TGD_FOLD_BOXES) {
        bool flagged[TGD_FOLD_BOXES];
        bool any = false;
        uint32_t best = TGD_NONE;
        uint32_t best_distance = UINT32_MAX;
        for (uint32_t i = 0; i < items->n; i++) {
            flagged[i] = items->rows[i].form == TGD_FOLD_ONE && units->finding[items->rows[i].a] != TGD_NONE &&
                         tgd_item_has_must(units, &items->rows[i]);
            any = any || flagged[i];
        }
        for (uint32_t i = 0; i < items->n; i++) {
            const tgd_item *item = &items->rows[i];
            if (item->form == TGD_FOLD_ONE || item->closed) {
                continue;
            }
            /* a repeat says little until its first and last copies stand out; a bare run says least */
            uint32_t far = distance(items, flagged, any, i) * 4;
            far = item->form == TGD_FOLD_REPEAT ? 0 : item->form == TGD_FOLD_RUN ? far + 2 : far;
            if (far < best_distance) {
                best_distance = far;
                best = i;
            }
        }
        if (best == TGD_NONE) {
            break;
        }
        uint32_t room = budget - items->n + 1;
        tgd_status status = tgd_item_open(scratch, units, &items->rows[best], room < SMALL_FOLD ? room : SMALL_FOLD,
                                          err);
        /* bits of a small fold say less than the fold */
        bool tells = items->rows[best].form == TGD_FOLD_REPEAT ||
                     (scratch->n > 3 && items->rows[best].b - items->rows[best].a > SMALL_FOLD);
        for (uint32_t i = 0; i < scratch->n && !tells; i++) {
            if (scratch->rows[i].form == TGD_FOLD_RUN) {
                break;
            }
            tells = i + 1 == scratch->n;
        }
        if (status == TGD_OK && scratch->n > 1 && scratch->n <= room && tells) {
            status = replace(items, best, scratch, err);
        } else {
            items->rows[best].closed = true;
        }
        if (status != TGD_OK) {
            return status;
        }
    }
    return TGD_OK;
}

/* ---- boxes ---- */

static tgd_fold_state node_state(const tgd_report *report, tgd_node v)
{
    uint32_t order = report->order[v];
    if (order == TGD_NONE || report->root_fails || order > report->first_error) {
        return TGD_FOLD_NEVER;
    }
    return order == report->first_error ? TGD_FOLD_RAISES : TGD_FOLD_RUNS;
}

static void count_leaf(tgd_fold_box *box, const tgd_graph *graph, uint32_t leaf)
{
    if (box->n_leaves < TGD_FOLD_LEAVES) {
        box->leaves[box->n_leaves] = leaf;
    }
    box->n_leaves++;
    int64_t numel = graph->leaves[leaf].numel;
    box->n_elements += numel > 0 && box->n_elements < INT64_MAX / 2 ? numel : 0;
}

/* stamp: per leaf, the last box that counted it, plus 1 */
static void fill_box(tgd_fold_box *box, const tgd_units *units, const tgd_item *item, uint32_t *stamp, uint32_t id)
{
    const tgd_report *report = units->report;
    const tgd_graph *graph = &report->graph;
    *box = (tgd_fold_box){.first_unit = item->a,
                          .n_units = item->b - item->a,
                          .copies = item->copies,
                          .identical = item->identical,
                          .form = item->form,
                          .lead = units->lead[item->a],
                          .context = item->context,
                          .module = item->module,
                          .last_module = TGD_NONE,
                          .frame = TGD_NONE,
                          .finding = TGD_NONE};
    if (item->form == TGD_FOLD_REPEAT && item->module != TGD_NONE) {
        uint32_t module = tgd_module_below(units, item->context, units->module[item->b - 1]);
        box->last_module = module == TGD_NONE ? item->module : module;
    }
    box->state = node_state(report, box->lead);
    for (uint32_t u = item->a; u < item->b; u++) {
        box->finding = units->finding[u] < box->finding ? units->finding[u] : box->finding;
        for (uint32_t m = units->start[u]; m < units->start[u + 1]; m++) {
            tgd_node v = units->members[m];
            const tgd_node_row *row = &graph->nodes[v];
            box->n_nodes += row->leaf == TGD_NONE;
            if (node_state(report, v) == TGD_FOLD_RAISES) {
                box->state = TGD_FOLD_RAISES;
            }
            if (row->leaf != TGD_NONE && stamp[row->leaf] != id + 1) {
                stamp[row->leaf] = id + 1;
                count_leaf(box, graph, row->leaf);
            }
            for (uint32_t k = 0; k < row->n_edges; k++) {
                tgd_node to = graph->edges[row->first_edge + k].to;
                uint32_t leaf = to == TGD_NONE || units->unit_of[to] != TGD_NONE ? TGD_NONE : graph->nodes[to].leaf;
                if (leaf == TGD_NONE) {
                    continue;
                }
                if (report->first_error < report->n_executed && node_state(report, to) == TGD_FOLD_RAISES) {
                    box->state = TGD_FOLD_RAISES;
                }
                if (stamp[leaf] != id + 1) {
                    stamp[leaf] = id + 1;
                    count_leaf(box, graph, leaf);
                }
            }
        }
    }
}

static uint32_t box_of_unit(const tgd_fold *fold, uint32_t unit)
{
    uint32_t low = 0;
    uint32_t high = fold->n_boxes;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (fold->boxes[middle].first_unit <= unit) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static void add_mark(tgd_fold_box *box, uint32_t number, tgd_severity severity)
{
    for (uint32_t i = 0; i < box->n_marks; i++) {
        if (box->marks[i] == number) {
            return;
        }
    }
    if (box->n_marks < TGD_FOLD_MARKS) {
        box->marks[box->n_marks] = number;
        box->severity[box->n_marks++] = severity;
    }
}

/* A finding about a leaf stands at the first box that uses the leaf: units->finding knows which. */
static void mark_boxes(tgd_fold *fold)
{
    const tgd_units *units = fold->units;
    const tgd_report *report = units->report;
    for (uint32_t i = 0; i < report->n_findings; i++) {
        tgd_node v = report->findings[i].node;
        uint32_t unit = v == TGD_NONE ? TGD_NONE : units->unit_of[v];
        if (unit != TGD_NONE && fold->n_boxes > 0 && unit >= fold->boxes[0].first_unit &&
            unit < fold->boxes[fold->n_boxes - 1].first_unit + fold->boxes[fold->n_boxes - 1].n_units) {
            add_mark(&fold->boxes[box_of_unit(fold, unit)], units->number[i], report->findings[i].severity);
        }
    }
    for (uint32_t b = 0; b < fold->n_boxes; b++) {
        if (fold->boxes[b].finding != TGD_NONE) {
            const tgd_finding_row *row = &report->findings[fold->boxes[b].finding];
            add_mark(&fold->boxes[b], units->number[fold->boxes[b].finding], row->severity);
        }
    }
}

/* ---- edges ---- */

static tgd_status collect_edges(tgd_fold *fold, tgd_error *err)
{
    const tgd_units *units = fold->units;
    const tgd_graph *graph = &units->report->graph;
    uint32_t n = fold->n_boxes;
    uint32_t *count = calloc((size_t)n * n + 1, sizeof *count);
    if (count == NULL) {
        return tgd_fail_memory(err);
    }
    uint32_t n_edges = 0;
    uint32_t behind = n == 0 ? 0 : fold->boxes[n - 1].first_unit + fold->boxes[n - 1].n_units;
    for (uint32_t b = 0; b < n; b++) {
        uint32_t first = fold->boxes[b].first_unit;
        uint32_t end = first + fold->boxes[b].n_units;
        for (uint32_t m = units->start[first]; m < units->start[end]; m++) {
            const tgd_node_row *row = &graph->nodes[units->members[m]];
            for (uint32_t k = 0; k < row->n_edges; k++) {
                tgd_node to = graph->edges[row->first_edge + k].to;
                uint32_t unit = to == TGD_NONE ? TGD_NONE : units->unit_of[to];
                if (unit == TGD_NONE || unit < end || unit >= behind) {
                    continue;
                }
                uint32_t *c = &count[b * n + box_of_unit(fold, unit)];
                n_edges += *c == 0;
                (*c)++;
            }
        }
    }
    fold->edges = calloc(n_edges == 0 ? 1 : n_edges, sizeof *fold->edges);
    if (fold->edges == NULL) {
        free(count);
        return tgd_fail_memory(err);
    }
    for (uint32_t b = 0; b < n; b++) {
        for (uint32_t c = b + 1; c < n; c++) {
            if (count[b * n + c] > 0) {
                bool folded = fold->boxes[b].form != TGD_FOLD_ONE || fold->boxes[c].form != TGD_FOLD_ONE;
                fold->edges[fold->n_edges++] =
                    (tgd_fold_edge){.from = b, .to = c, .count = count[b * n + c], .folded = folded};
            }
        }
    }
    free(count);
    return TGD_OK;
}

/* In a graph where nearly everything leads to everything, keep only the edges that no other way replaces. */
static void thin_edges(tgd_fold *fold)
{
    if (fold->n_edges <= 2 * fold->n_boxes + 8) {
        return;
    }
    uint64_t reach[TGD_FOLD_BOXES] = {0}; /* boxes that can be got to, by kept edges */
    uint32_t kept_at_end = fold->n_edges;
    uint32_t e = fold->n_edges;
    /* from the last box up: an edge is kept unless a box nearer by already leads to its end */
    for (uint32_t b = fold->n_boxes; b > 0; b--) {
        uint32_t end = e;
        while (e > 0 && fold->edges[e - 1].from == b - 1) {
            e--;
        }
        for (uint32_t i = e; i < end; i++) {
            uint32_t to = fold->edges[i].to;
            if ((reach[b - 1] >> to & 1) != 0) {
                fold->edges[i].count = 0;
                fold->n_hidden_edges++;
            } else {
                reach[b - 1] |= reach[to] | (uint64_t)1 << to;
            }
        }
    }
    fold->n_edges = 0;
    for (uint32_t i = 0; i < kept_at_end; i++) {
        if (fold->edges[i].count > 0) {
            fold->edges[fold->n_edges++] = fold->edges[i];
        }
    }
}

/* ---- frames ---- */

/* Every box goes into the outermost opened module that holds at least two boxes and not nearly all of them. */
static tgd_status make_frames(tgd_fold *fold, tgd_error *err)
{
    const tgd_units *units = fold->units;
    fold->frames = calloc(fold->n_boxes + 1, sizeof *fold->frames);
    uint32_t *holds = calloc(units->n_modules, sizeof *holds);
    if (fold->frames == NULL || holds == NULL) {
        free(holds);
        return tgd_fail_memory(err);
    }
    for (uint32_t b = 0; b < fold->n_boxes; b++) {
        for (uint32_t m = fold->boxes[b].context; m != TGD_NONE; m = units->modules[m].parent) {
            holds[m]++;
        }
    }
    uint32_t most = fold->n_boxes <= 6 ? fold->n_boxes : (fold->n_boxes * 6) / 10;
    uint32_t last = TGD_NONE;
    for (uint32_t b = 0; b < fold->n_boxes; b++) {
        uint32_t module = TGD_NONE;
        for (uint32_t m = fold->boxes[b].context; m != TGD_NONE && m != 0; m = units->modules[m].parent) {
            module = holds[m] >= 2 && holds[m] <= most ? m : module;
        }
        if (module != TGD_NONE && module != last) {
            fold->frames[fold->n_frames++] = (tgd_fold_frame){.module = module, .first_box = b};
        }
        if (module != TGD_NONE) {
            fold->boxes[b].frame = fold->n_frames - 1;
            fold->frames[fold->n_frames - 1].n_boxes++;
        }
        last = module;
    }
    free(holds);
    return TGD_OK;
}

/* ---- all of it ---- */

static tgd_status choose(tgd_items *items, tgd_items *scratch, const tgd_units *units, const tgd_item *root,
                         uint32_t budget, tgd_error *err)
{
    uint32_t n = root->b - root->a;
    if (n == 0) {
        return TGD_OK;
    }
    if (n == 1) {
        return tgd_items_add(items, *root, err);
    }
    if (units->budget >= units->n) { /* there are no folds, and so no insides of them */
        return tgd_items_all(items, units, err);
    }
    uint32_t most = n <= budget ? n : budget * 5 / 8;
    tgd_status status = tgd_item_open(items, units, root, most, err);
    if (status == TGD_OK) {
        status = show_must(items, scratch, units, budget, err);
    }
    if (status == TGD_OK) {
        status = open_more(items, scratch, units, budget, err);
    }
    if (status == TGD_OK) {
        status = tgd_items_spread(items, units, budget, err);
    }
    if (status == TGD_OK && items->n > TGD_FOLD_BOXES) { /* many units that must be shown, far apart in one module */
        tgd_item *last = &items->rows[TGD_FOLD_BOXES - 1];
        *last = (tgd_item){.a = last->a, .b = root->b, .module = TGD_NONE, .copies = 1, .form = TGD_FOLD_RUN};
        items->n = TGD_FOLD_BOXES;
    }
    return status;
}

static tgd_status build(tgd_fold *fold, const tgd_items *items, tgd_error *err)
{
    const tgd_units *units = fold->units;
    uint32_t n_leaves = units->report->graph.n_leaves;
    uint32_t *stamp = calloc(n_leaves == 0 ? 1 : n_leaves, sizeof *stamp);
    fold->boxes = calloc(items->n == 0 ? 1 : items->n, sizeof *fold->boxes);
    if (stamp == NULL || fold->boxes == NULL) {
        free(stamp);
        return tgd_fail_memory(err);
    }
    for (uint32_t i = 0; i < items->n; i++) {
        fill_box(&fold->boxes[fold->n_boxes++], units, &items->rows[i], stamp, i);
    }
    free(stamp);
    mark_boxes(fold);
    tgd_status status = collect_edges(fold, err);
    if (status == TGD_OK) {
        thin_edges(fold);
        status = make_frames(fold, err);
    }
    return status;
}

static tgd_status make(tgd_fold *out, const tgd_units *units, const tgd_item *root, uint32_t budget, tgd_error *err)
{
    tgd_fold fold = {.units = units};
    tgd_items items = {0};
    tgd_items scratch = {0};
    if (budget > TGD_FOLD_BOXES - 16) {
        budget = TGD_FOLD_BOXES - 16;
    }
    tgd_status status = choose(&items, &scratch, units, root, budget, err);
    if (status == TGD_OK) {
        status = build(&fold, &items, err);
    }
    tgd_items_clear(&items);
    tgd_items_clear(&scratch);
    if (status != TGD_OK) {
        tgd_fold_clear(&fold);
        return status;
    }
    *out = fold;
    return TGD_OK;
}

tgd_status tgd_fold_make(tgd_fold *out, const tgd_units *units, uint32_t budget, tgd_error *err)
{
    tgd_item root = {.b = units->n, .module = TGD_NONE, .copies = 1};
    root.form = units->n == 1 ? TGD_FOLD_ONE : TGD_FOLD_RUN;
    return make(out, units, &root, budget, err);
}

tgd_status tgd_fold_make_inside(tgd_fold *out, const tgd_units *units, const tgd_fold_box *box, uint32_t budget,
                                tgd_error *err)
{
    tgd_item root = {.a = box->first_unit,
                     .b = box->first_unit + box->n_units,
                     .context = box->context,
                     .module = box->module,
                     .copies = box->copies,
                     .identical = box->identical,
                     .form = box->form};
    return make(out, units, &root, budget, err);
}

void tgd_fold_clear(tgd_fold *fold)
{
    free(fold->boxes);
    free(fold->edges);
    free(fold->frames);
    *fold = (tgd_fold){0};
}
