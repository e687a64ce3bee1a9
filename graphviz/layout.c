/*
 * Graphviz keeps its state in globals: one context for the process, made once and never freed, and one lock. Text
 * is not measured by Graphviz, so no font and no config file is looked at. Frames are not clusters (dot 2.42 leaks
 * memory for each): an invisible node between two segments keeps them apart.
 */
#define _POSIX_C_SOURCE 200809L /* uselocale, pthread_atfork */

#include "layout.h"

#include <gvc.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

extern gvplugin_library_t gvplugin_dot_layout_LTX_library;
extern gvplugin_library_t gvplugin_core_LTX_library;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static GVC_t *context;      /* under lock; for ever */
static locale_t c_locale;   /* under lock; for ever: making one takes a lock of libc that fork() does not see to */
static char complaint[256]; /* under lock: the first thing Graphviz said */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    /* without memory for this a child forked during a layout would wait for ever: nothing better can be done */
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static int note_complaint(char *message)
{
    if (complaint[0] == '\0') {
        snprintf(complaint, sizeof complaint, "%s", message);
        size_t n = strcspn(complaint, "\r\n");
        complaint[n] = '\0';
    }
    return 0;
}

static GVC_t *get_context(void)
{
    static lt_symlist_t plugins[] = {
        {"gvplugin_dot_layout_LTX_library", &gvplugin_dot_layout_LTX_library},
        {"gvplugin_core_LTX_library", &gvplugin_core_LTX_library},
        {0, 0},
    };
    if (context == NULL) {
        context = gvContextPlugins(plugins, 0);
    }
    return context;
}

/* ---- building the graph ---- */

/* cgraph takes char *, and writes to none of them. */
static char *plain(const char *s)
{
    return (char *)(uintptr_t)s;
}

static void set_number(void *object, const char *name, double value)
{
    char digits[48];
    long units = lround(value * 10000);
    snprintf(digits, sizeof digits, "%ld.%04ld", units / 10000, labs(units % 10000));
    agsafeset(object, plain(name), digits, plain(""));
}

static void set_defaults(Agraph_t *g, const tgd_layout *layout)
{
    static const struct {
        int kind;
        const char *name, *value;
    } defaults[] = {
        {AGRAPH, "rankdir", "TB"},   {AGRAPH, "splines", "true"}, {AGRAPH, "label", ""},  {AGNODE, "shape", "box"},
        {AGNODE, "fixedsize", "true"}, {AGNODE, "label", ""},     {AGNODE, "group", ""},  {AGNODE, "width", "0.1"},
        {AGNODE, "height", "0.1"},   {AGEDGE, "arrowhead", "none"}, {AGEDGE, "weight", "1"},
    };
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        agattr(g, defaults[i].kind, plain(defaults[i].name), plain(defaults[i].value));
    }
    set_number(g, "nodesep", layout->node_gap / 72);
    set_number(g, "ranksep", layout->rank_gap / 72);
}

static bool has_edge_within(const tgd_layout *layout, uint32_t v, bool out)
{
    for (uint32_t e = 0; e < layout->n_edges; e++) {
        const tgd_layout_edge *edge = &layout->edges[e];
        if ((out ? edge->from : edge->to) == v &&
            layout->nodes[edge->from].segment == layout->nodes[edge->to].segment) {
            return true;
        }
    }
    return false;
}

/* Hold segments apart: the ends of one, an invisible node, the beginnings of the next. */
static bool separate_segments(Agraph_t *g, const tgd_layout *layout, Agnode_t **nodes)
{
    for (uint32_t i = 1; i < layout->n_nodes; i++) {
        if (layout->nodes[i].segment == layout->nodes[i - 1].segment) {
            continue;
        }
        char name[24];
        snprintf(name, sizeof name, "between%u", i);
        Agnode_t *between = agnode(g, name, 1);
        if (between == NULL) {
            return false;
        }
        set_number(between, "width", 0.02);
        set_number(between, "height", 0.02);
        for (uint32_t v = 0; v < layout->n_nodes; v++) {
            bool above = layout->nodes[v].segment == layout->nodes[i - 1].segment && !has_edge_within(layout, v, true);
            bool below = layout->nodes[v].segment == layout->nodes[i].segment && !has_edge_within(layout, v, false);
            Agedge_t *edge = NULL;
            if (above) {
                edge = agedge(g, nodes[v], between, NULL, 1);
            } else if (below) {
                edge = agedge(g, between, nodes[v], NULL, 1);
            }
            if ((above || below) && edge == NULL) {
                return false;
            }
            if (edge != NULL) {
                agsafeset(edge, plain("weight"), plain("0"), plain(""));
            }
        }
    }
    return true;
}

static bool build(Agraph_t *g, const tgd_layout *layout, Agnode_t **nodes, Agedge_t **edges)
{
    set_defaults(g, layout);
    for (uint32_t i = 0; i < layout->n_nodes; i++) {
        char name[24];
        snprintf(name, sizeof name, "box%u", i);
        nodes[i] = agnode(g, name, 1);
        if (nodes[i] == NULL) {
            return false;
        }
        set_number(nodes[i], "width", layout->nodes[i].w / 72);
        set_number(nodes[i], "height", layout->nodes[i].h / 72);
        if (layout->nodes[i].spine) {
            agsafeset(nodes[i], plain("group"), plain("spine"), plain(""));
        }
    }
    for (uint32_t i = 0; i < layout->n_edges; i++) {
        edges[i] = agedge(g, nodes[layout->edges[i].from], nodes[layout->edges[i].to], NULL, 1);
        if (edges[i] == NULL) {
            return false;
        }
        agsafeset(edges[i], plain("weight"), plain(layout->edges[i].skip ? "0" : "20"), plain(""));
    }
    return separate_segments(g, layout, nodes);
}

/* ---- reading the result ---- */

static tgd_status read_edge(tgd_layout_edge *edge, Agedge_t *e, double top, tgd_error *err)
{
    const splines *found = ED_spl(e);
    if (found == NULL || found->size < 1 || found->list[0].size < 4) {
        return TGD_OK; /* the caller draws a straight line */
    }
    const bezier *curve = &found->list[0];
    tgd_point *points = malloc((size_t)curve->size * sizeof *points);
    if (points == NULL) {
        return tgd_fail_memory(err);
    }
    for (int i = 0; i < (int)curve->size; i++) {
        points[i] = (tgd_point){curve->list[i].x, top - curve->list[i].y};
    }
    edge->points = points;
    edge->n_points = (uint32_t)curve->size;
    return TGD_OK;
}

static tgd_status read_back(tgd_layout *layout, Agraph_t *g, Agnode_t **nodes, Agedge_t **edges, tgd_error *err)
{
    boxf bounds = GD_bb(g);
    layout->width = bounds.UR.x;
    layout->height = bounds.UR.y;
    for (uint32_t i = 0; i < layout->n_nodes; i++) {
        layout->nodes[i].x = ND_coord(nodes[i]).x;
        layout->nodes[i].y = bounds.UR.y - ND_coord(nodes[i]).y;
    }
    for (uint32_t i = 0; i < layout->n_edges; i++) {
        tgd_status status = read_edge(&layout->edges[i], edges[i], bounds.UR.y, err);
        if (status != TGD_OK) {
            return status;
        }
    }
    return TGD_OK;
}

/* ---- all of it ---- */

static tgd_status failed(tgd_error *err)
{
    return tgd_fail(err, TGD_EGRAPHVIZ, "Graphviz: %s", complaint[0] != '\0' ? complaint : "no layout");
}

static tgd_status run_locked(tgd_layout *layout, Agnode_t **nodes, Agedge_t **edges, tgd_error *err)
{
    Agraph_t *g = NULL;
    complaint[0] = '\0';
    agusererrf before = agseterrf(note_complaint);
    tgd_status status = TGD_OK;
    if (get_context() == NULL || (g = agopen(plain("column"), Agdirected, NULL)) == NULL) {
        status = failed(err);
    } else if (!build(g, layout, nodes, edges) || gvLayout(context, g, "dot") != 0) {
        status = failed(err);
    } else {
        status = read_back(layout, g, nodes, edges, err);
        gvFreeLayout(context, g);
    }
    if (g != NULL) {
        agclose(g);
    }
    agseterrf(before);
    return status;
}

tgd_status tgd_layout_run(tgd_layout *layout, tgd_error *err)
{
    if (layout->n_nodes == 0) {
        return TGD_OK;
    }
    Agnode_t **nodes = calloc(layout->n_nodes, sizeof *nodes);
    Agedge_t **edges = calloc(layout->n_edges + 1, sizeof *edges);
    tgd_status status = TGD_ENOMEM;
    if (nodes == NULL || edges == NULL) {
        tgd_fail_memory(err);
    } else {
        pthread_once(&fork_once, watch_forks);
        pthread_mutex_lock(&lock);
        if (c_locale == (locale_t)0) {
            c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        }
        if (c_locale == (locale_t)0) {
            tgd_fail_memory(err);
        } else {
            locale_t before = uselocale(c_locale);
            status = run_locked(layout, nodes, edges, err);
            uselocale(before);
        }
        pthread_mutex_unlock(&lock);
    }
    free(nodes);
    free(edges);
    return status;
}

void tgd_layout_clear(tgd_layout *layout)
{
    for (uint32_t i = 0; i < layout->n_edges; i++) {
        free(layout->edges[i].points);
    }
    free(layout->edges);
    free(layout->nodes);
    *layout = (tgd_layout){0};
}
