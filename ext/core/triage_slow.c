/* Nodes that take much of a backward for a reason that can be told from their shapes. */
#include "triage.h"

#include "words.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_SHARE 0.2          /* of the time of all nodes */
#define LEAST_WASTE 2000000u     /* bytes written that no gradient needed */
#define LEAST_NS 200000u
#define LEAST_ELEMENTS 50000u    /* for a time of each to mean anything */
#define SLOW_NS_AN_ELEMENT 0.5   /* moving one takes less */

typedef enum evidence {
    WASTES,  /* writes much more than it received */
    REDUCES, /* receives much more than it sends */
    SORTS,   /* takes longer for each element than moving it does */
    STRIDED  /* a gradient comes through a permutation */
} evidence;

typedef struct known {
    const char *stem;
    evidence by;
    const char *what, *hint;
} known;

static const known all_known[] = {
    {"Embedding", WASTES, "it fills a dense gradient of the whole table for a few rows",
     "nn.Embedding(..., sparse=True) with SparseAdam or SGD, or a smaller table"},
    {"EmbeddingBag", WASTES, "it fills a dense gradient of the whole table for a few rows",
     "nn.EmbeddingBag(..., sparse=True) with SparseAdam or SGD, or a smaller table"},
    {"Select", WASTES, "each selection's gradient is a tensor of zeros as large as the whole",
     "take all rows at once: x.unbind(0), or one op over the whole tensor instead of a loop"},
    {"Slice", WASTES, "each slice's gradient is a tensor of zeros as large as the whole",
     "take all pieces at once: x.split(...) or x.chunk(...), or one op over the whole tensor"},
    {"Narrow", WASTES, "each slice's gradient is a tensor of zeros as large as the whole",
     "take all pieces at once: x.split(...) or x.chunk(...)"},
    {"AsStrided", WASTES, "each view's gradient is a tensor of zeros as large as the whole", "use split() or unbind()"},
    {"Diagonal", WASTES, "its gradient is a tensor of zeros as large as the whole", "multiply by the diagonal instead"},
    {"Index", WASTES, "each selection's gradient is a tensor of zeros as large as the whole",
     "select once for all rows, or use index_select"},
    {"Index", SORTS, "its gradient is summed by index, one element after the other",
     "index once and not at every step, use index_select or gather where that does, or a slice if the indices are in "
     "order"},
    {"IndexSelect", WASTES, "its gradient is a tensor of zeros as large as the whole", "select once for all rows"},
    {"IndexSelect", SORTS, "its gradient is summed by index", "select once and not at every step"},
    {"Gather", WASTES, "its gradient is a tensor of zeros as large as the whole",
     "gather once for all, or use sparse_grad=True"},
    {"Gather", SORTS, "its gradient is summed by index", "gather once and not at every step, or use sparse_grad=True"},
    {"CopySlices", WASTES, "each write to a part copies the gradient of the whole",
     "collect the parts in a list and join them once: torch.stack or torch.cat"},
    {"Repeat", REDUCES, "it sums over the copies that repeat made", "use expand (no copy), or let the op broadcast"},
    {"RepeatInterleave", REDUCES, "it sums over the copies", "use expand and reshape"},
    {"Unfold", REDUCES, "it adds overlapping windows one by one", "use a convolution, or F.unfold"},
    {"UnfoldBackward", REDUCES, "it adds overlapping windows one by one", "use a convolution, or F.unfold"},
    {"AccumulateGrad", STRIDED,
     "the gradient comes in another memory order than the leaf has, and is laid out anew",
     "keep the leaf in the order in which it is used, or permute it once outside the training step"},
};

/* The nodes of one class at one line. */
typedef struct group {
    const char *name;
    uint32_t where;
    tgd_node first, slowest, made;
    uint32_t n;
    uint64_t ns, bytes_in, bytes_out;
    uint64_t elements;
    bool strided;
} group;

static uint64_t elements_of(const tgd_graph *graph, tgd_node v)
{
    uint64_t n = 0;
    const tgd_node_row *node = &graph->nodes[v];
    for (uint32_t i = node->first_input; i < node->first_input + node->n_inputs; i++) {
        const int64_t numel = tgd_graph_numel(graph, graph->inputs[i].shape);
        n += numel > 0 ? (uint64_t)numel : 0;
    }
    return n;
}

/* The largest of what it sends. */
static uint64_t elements_sent(const tgd_graph *graph, tgd_node v)
{
    uint64_t most = 0;
    const tgd_node_row *node = &graph->nodes[v];
    for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges; e++) {
        const tgd_node to = graph->edges[e].to;
        if (to == TGD_NONE || graph->edges[e].input_nr >= graph->nodes[to].n_inputs) {
            continue;
        }
        const int64_t numel = tgd_graph_numel(graph, graph->inputs[graph->nodes[to].first_input +
                                                                   graph->edges[e].input_nr].shape);
        most = numel > 0 && (uint64_t)numel > most ? (uint64_t)numel : most;
    }
    return most;
}

/* Does a gradient come to it through a permutation? */
static bool is_permuted(const tgd_triage *t, tgd_node v)
{
    const tgd_node from = t->flow[v].from;
    const char *name = from == TGD_NONE ? "" : tgd_node_class(t->report, from);
    return strncmp(name, "Permute", 7) == 0 || strncmp(name, "Transpose", 9) == 0 || strncmp(name, "TBackward", 9) == 0;
}

static void take(const tgd_triage *t, group *g, tgd_node v)
{
    const tgd_measure_row *row = &t->measures->nodes[v];
    const tgd_graph *graph = &t->report->graph;
    if (g->n == 0) {
        *g = (group){.name = tgd_graph_type(graph, v)->name, .first = v, .slowest = v, .made = v};
        g->where = t->report->node_where == NULL ? TGD_NONE : t->report->node_where[v];
    }
    const uint64_t ns = tgd_measure_own_ns(row);
    g->ns += ns;
    g->slowest = ns > tgd_measure_own_ns(&t->measures->nodes[g->slowest]) ? v : g->slowest;
    g->bytes_in += 4 * elements_of(graph, v);
    g->bytes_out += 4 * elements_sent(graph, v);
    g->elements += elements_of(graph, v);
    if (graph->nodes[v].leaf != TGD_NONE && is_permuted(t, v)) {
        g->strided = true;
        g->made = t->flow[v].from;
    }
    g->n++;
}

static const known *explain(const group *g)
{
    const char *end = strstr(g->name, "Backward");
    const size_t n = end == NULL ? strlen(g->name) : (size_t)(end - g->name);
    for (size_t i = 0; i < sizeof all_known / sizeof *all_known; i++) {
        const known *k = &all_known[i];
        if (strncmp(k->stem, g->name, n) != 0 || k->stem[n] != '\0') {
            continue;
        }
        const bool wastes = g->bytes_out > 8 * g->bytes_in && g->bytes_out - g->bytes_in >= LEAST_WASTE;
        const bool copies = strcmp(g->name, "CopySlices") == 0 && g->n >= 8 && g->bytes_out >= LEAST_WASTE;
        const bool slow = g->elements >= LEAST_ELEMENTS && (double)g->ns / (double)g->elements > SLOW_NS_AN_ELEMENT;
        const bool reduces = g->bytes_in > 8 * g->bytes_out && g->bytes_in - g->bytes_out >= LEAST_WASTE;
        if ((k->by == WASTES && (wastes || copies)) || (k->by == REDUCES && reduces) || (k->by == SORTS && slow) ||
            (k->by == STRIDED && g->strided && slow)) {
            return k;
        }
    }
    return NULL;
}

static tgd_status add(tgd_triage *t, const group *g, const known *k, uint64_t total)
{
    const unsigned percent = (unsigned)((double)g->ns * 100 / (double)total);
    tgd_triage_words words;
    tgd_triage_words_init(&words);
    tgd_text_printf(&words.verdict, "%u %% of backward's time goes into ", percent);
    tgd_made_phrase(&words.verdict, t->report, g->slowest);
    tgd_text_str(&words.verdict, ": ");
    tgd_text_str(&words.verdict, k->what);
    if (g->n > 1) {
        tgd_text_printf(&words.message, "%lu nodes ", (unsigned long)g->n);
    }
    tgd_node_phrase(&words.message, t->report, g->slowest);
    tgd_text_str(&words.message, g->n > 1 ? " take " : " takes ");
    tgd_text_duration(&words.message, g->ns);
    tgd_text_printf(&words.message, ", %u %% of backward (told from %u %% on): ", percent,
                    (unsigned)(100 * LEAST_SHARE));
    tgd_text_str(&words.message, k->what);
    if (k->by == WASTES) {
        tgd_text_str(&words.message, "; ");
        tgd_text_size(&words.message, g->bytes_out);
        tgd_text_str(&words.message, " written for ");
        tgd_text_size(&words.message, g->bytes_in);
        tgd_text_str(&words.message, " of gradient");
    } else {
        tgd_text_str(&words.message, "; ");
        tgd_text_fixed(&words.message, (double)g->ns / (double)g->elements, 1);
        tgd_text_str(&words.message, " ns an element");
    }
    tgd_text_str(&words.hint, k->hint);
    const uint32_t leaf = t->report->graph.nodes[g->slowest].leaf;
    tgd_status status = tgd_triage_add(t, TGD_SLOW_NODE, TGD_WARNING, g->slowest, g->made,
                                       leaf == TGD_NONE ? TGD_NONE : t->report->leaf_parameter[leaf], &words);
    tgd_triage_words_drop(&words);
    return status;
}

tgd_status tgd_triage_slow(tgd_triage *t)
{
    const tgd_report *report = t->report;
    const tgd_graph *graph = &report->graph;
    uint64_t total = 0;
    uint32_t n = 0;
    tgd_address_map places = {0};
    group *groups = calloc((size_t)graph->n_nodes + 1, sizeof *groups);
    if (groups == NULL) {
        return tgd_fail_memory(t->err);
    }
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < report->n_executed && status == TGD_OK; i++) {
        const tgd_node v = report->sequence[i];
        const tgd_node_row *node = &graph->nodes[v];
        const uint32_t where = report->node_where == NULL ? TGD_NONE : report->node_where[v];
        const bool alone = where == TGD_NONE || node->leaf != TGD_NONE;
        const uint64_t apart = alone ? v + (UINT64_C(1) << 33) : where + UINT64_C(1);
        uint32_t *place = tgd_address_map_at(&places, (apart << 16 | (node->type & 0xFFFF)) + 1);
        if (place == NULL) {
            status = tgd_fail_memory(t->err);
            break;
        }
        *place = *place == TGD_NONE ? n++ : *place;
        take(t, &groups[*place], v);
        total += tgd_measure_own_ns(&t->measures->nodes[v]);
    }
    for (uint32_t i = 0; i < n && status == TGD_OK; i++) {
        const known *k = groups[i].ns >= LEAST_NS && (double)groups[i].ns >= LEAST_SHARE * (double)total
                             ? explain(&groups[i])
                             : NULL;
        status = k == NULL ? TGD_OK : add(t, &groups[i], k, total);
    }
    tgd_address_map_clear(&places);
    free(groups);
    return status;
}
