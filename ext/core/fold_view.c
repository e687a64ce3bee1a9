/* What a view asks for: how many boxes, and which units must be among them. */
#include "fold.h"

#include <string.h>

enum { MOST_SHOWN = 30, AROUND = 6, MOST_NAMES = 8, NAME_LENGTH = 60 };

static bool is_called(const tgd_module_row *row, const char *name)
{
    return strlen(name) == row->length && memcmp(row->name, name, row->length) == 0;
}

static bool is_within(const tgd_units *units, uint32_t module, uint32_t of)
{
    while (module != of && module != TGD_NONE) {
        module = units->modules[module].parent;
    }
    return module == of;
}

static tgd_status refuse_module(const tgd_units *units, const char *name, tgd_error *err)
{
    tgd_text words;
    tgd_text asked;
    tgd_text_init(&words, NULL, NULL);
    tgd_text_init(&asked, NULL, NULL);
    uint32_t n = 0;
    for (uint32_t m = 1; m < units->n_modules; m++) {
        if (units->modules[m].depth > 1) {
            continue; /* the outermost ones */
        }
        if (n < MOST_NAMES) {
            tgd_text part;
            tgd_text_init(&part, NULL, NULL);
            tgd_text_bytes(&part, units->modules[m].name, units->modules[m].length);
            tgd_text_bytes(&part, "", 1);
            tgd_text_str(&words, n > 0 ? ", " : "");
            tgd_text_line(&words, part.status == TGD_OK ? part.bytes : "?", NAME_LENGTH);
            tgd_text_drop(&part);
        }
        n++;
    }
    tgd_text_str(&words, n > MOST_NAMES ? ", ..." : "");
    tgd_text_bytes(&words, "", 1);
    tgd_text_line(&asked, name, NAME_LENGTH);
    tgd_text_bytes(&asked, "", 1);
    tgd_status status;
    if (words.status != TGD_OK || asked.status != TGD_OK) {
        status = tgd_fail_memory(err);
    } else if (n == 0) {
        status = tgd_fail(err, TGD_EINVAL, "focus: no module '%s' is known here: give params=model, which names them",
                          asked.bytes);
    } else {
        status = tgd_fail(err, TGD_EINVAL, "focus: no module '%s' in this graph; it has %s", asked.bytes, words.bytes);
    }
    tgd_text_drop(&words);
    tgd_text_drop(&asked);
    return status;
}

static tgd_status focus_module(tgd_units *units, const char *name, tgd_error *err)
{
    for (uint32_t m = 0; m < units->n_modules; m++) {
        if (!is_called(&units->modules[m], name)) {
            continue;
        }
        uint32_t shown = 0;
        for (uint32_t u = 0; u < units->n && shown < MOST_SHOWN; u++) {
            if (is_within(units, units->module[u], m)) {
                units->must[u] = 1;
                shown++;
            }
        }
        if (shown > 0) {
            return TGD_OK;
        }
    }
    return refuse_module(units, name, err);
}

/* The unit that shows a node: its own, or for a leaf the first that uses it. */
static uint32_t unit_that_shows(const tgd_units *units, tgd_node node)
{
    const tgd_graph *graph = &units->report->graph;
    if (units->unit_of[node] != TGD_NONE) {
        return units->unit_of[node];
    }
    for (uint32_t u = 0; u < units->n; u++) {
        for (uint32_t m = units->start[u]; m < units->start[u + 1]; m++) {
            const tgd_node_row *row = &graph->nodes[units->members[m]];
            for (uint32_t k = 0; k < row->n_edges; k++) {
                if (graph->edges[row->first_edge + k].to == node) {
                    return u;
                }
            }
        }
    }
    return TGD_NONE;
}

tgd_status tgd_units_view(tgd_units *units, const tgd_view *view, tgd_error *err)
{
    if (view == NULL) {
        return TGD_OK;
    }
    if (view->boxes == SIZE_MAX && units->n > TGD_VIEW_MOST) {
        return tgd_fail(err, TGD_EINVAL,
                        "detail='all' draws up to %d ops, more could not be read, and this graph has %lu: give a number of "
                        "boxes, focus= on a module, or save as .json",
                        TGD_VIEW_MOST, (unsigned long)units->n);
    }
    if (view->boxes != SIZE_MAX && view->boxes > TGD_VIEW_MOST) {
        return tgd_fail(err, TGD_EINVAL, "detail=%zu: at most %d boxes are drawn", view->boxes, TGD_VIEW_MOST);
    }
    units->budget = view->boxes == SIZE_MAX ? TGD_VIEW_MOST : (uint32_t)view->boxes;
    if (view->module != NULL || view->node != TGD_NONE) {
        memset(units->must, 0, units->n * sizeof *units->must);
    }
    if (view->node != TGD_NONE) {
        if (view->node >= units->report->graph.n_nodes) {
            return tgd_fail(err, TGD_EINVAL, "focus: node %lu is not in this graph", (unsigned long)view->node);
        }
        uint32_t unit = unit_that_shows(units, view->node);
        for (uint32_t u = 0; u < units->n && unit != TGD_NONE; u++) {
            units->must[u] = u + AROUND >= unit && u <= unit + AROUND;
        }
    }
    return view->module != NULL ? focus_module(units, view->module, err) : TGD_OK;
}
