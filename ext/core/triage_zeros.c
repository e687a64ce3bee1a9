/* Gradients that end in exact zeros: the nodes that a non-zero gradient enters and only zeros leave. */
#include "triage.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CUTS = 8 };
#define LEAST_HALF 2.98e-8 /* half of the smallest float16: what is below becomes zero */
#define FADED 1e-30 /* near the smallest float32: no cut, the end of a long way down */

static bool zero(const tgd_statistics *s)
{
    return s->n > 0 && s->n_zero == s->n;
}

static bool any_alive(const tgd_triage *t)
{
    const tgd_graph *graph = &t->report->graph;
    for (uint32_t l = 0; l < graph->n_leaves; l++) {
        const tgd_measure_row *row = &t->measures->nodes[graph->leaves[l].node];
        if (row->measured && !zero(&row->gradient)) {
            return true;
        }
    }
    return false;
}

/* Where the zeros that each node receives begin: the node whose input is not zero, the last one to send. */
static void find_origins(const tgd_triage *t, tgd_node *origin)
{
    const tgd_graph *graph = &t->report->graph;
    for (uint32_t v = 0; v < graph->n_nodes; v++) {
        origin[v] = TGD_NONE;
    }
    for (uint32_t i = 0; i < t->report->n_executed; i++) {
        const tgd_node v = t->report->sequence[i];
        const tgd_measure_row *row = &t->measures->nodes[v];
        const tgd_node_row *node = &graph->nodes[v];
        for (uint32_t k = 0; row->measured && k < node->n_edges; k++) {
            bool alone;
            const tgd_gradient *sent = tgd_measures_sent(t->report, v, k, &alone);
            if (sent == NULL || !sent->measured || !zero(&sent->values)) {
                continue;
            }
            const tgd_node to = graph->edges[node->first_edge + k].to, from = zero(&row->gradient) ? origin[v] : v;
            if (from != TGD_NONE && (origin[to] == TGD_NONE ||
                                     (tgd_node_role(t->report, from) & TGD_ROLE_SELECT) != 0)) {
                origin[to] = from;
            }
        }
    }
}

/* The dtype of what v sends, where that is narrower than what it receives: a cast to half. */
static bool narrows(const tgd_triage *t, tgd_node v)
{
    const tgd_graph *graph = &t->report->graph;
    const tgd_node_row *node = &graph->nodes[v];
    const tgd_node to = node->n_edges == 0 ? TGD_NONE : graph->edges[node->first_edge].to;
    if (to == TGD_NONE || graph->nodes[to].n_inputs == 0 || node->n_inputs == 0) {
        return false;
    }
    const char *from_name = tgd_torch_dtype_name(graph->inputs[node->first_input].dtype);
    const char *to_name = tgd_torch_dtype_name(graph->inputs[graph->nodes[to].first_input].dtype);
    return strcmp(from_name, to_name) != 0 && (strcmp(to_name, "float16") == 0 || strstr(to_name, "float8") != NULL ||
                                               strcmp(to_name, "bfloat16") == 0);
}

typedef struct cut {
    tgd_node v;
    uint32_t n;    /* leaves behind it */
    uint32_t leaf; /* the first of them */
} cut;

static void write_leaves(tgd_text *text, const tgd_triage *t, const cut *c)
{
    tgd_leaf_phrase(text, t->report, c->leaf);
    if (c->n > 1) {
        tgd_text_printf(text, " and %lu more", (unsigned long)c->n - 1);
    }
}

static const char *hint_of(const char *name, bool underflow, bool squash)
{
    if (underflow) {
        return "multiply the loss before backward and divide the gradients after it (torch.amp.GradScaler), use bfloat16, "
               "or keep the small factor out of the loss";
    }
    if (strncmp(name, "Softmax", 7) == 0) {
        return "it is constant, for a dimension of size 1 (check dim=) or because the logits lie so far apart that one takes "
               "all: divide them by sqrt(d) or a temperature, or normalise them";
    }
    if (strncmp(name, "Mul", 3) == 0) {
        return "the tensor that it is multiplied with is zero everywhere: check how that mask or weight is made";
    }
    if (squash) {
        return "the inputs are so large that this function is flat: normalise them (LayerNorm, BatchNorm), use smaller "
               "weights, or a loss on logits";
    }
    if (strstr(name, "Round") || strstr(name, "Sign") || strstr(name, "Floor") || strstr(name, "Ceil") ||
        strstr(name, "Trunc") || strstr(name, "Heaviside") || strstr(name, "Sgn")) {
        return "its derivative is zero everywhere: use a straight-through estimator (x + (f(x) - x).detach()) or a smooth "
               "stand-in";
    }
    if (strstr(name, "Clamp") || strstr(name, "Hard")) {
        return "every value lies outside the limits: check the scale of the input, or use a soft limit (tanh, sigmoid)";
    }
    if (strstr(name, "Relu") || strstr(name, "Threshold")) {
        return "every input is negative, so no unit fires: lower the learning rate, check the biases before it, or use "
               "leaky_relu or gelu; on an output, softplus or exp";
    }
    return "look at what this op selects: here it lets none of the values through";
}

/* Did an op that draws at random fill this tensor: a layer that is dropped for one step? */
static bool is_drawn(const tgd_report *report, const tgd_saved_row *saved)
{
    const uint64_t storage = saved->storage == TGD_NONE ? 0 : report->graph.storages[saved->storage].address;
    for (uint32_t i = 0; report->record != NULL && storage != 0 && i < report->record->n_writes; i++) {
        const tgd_write_row *write = &report->record->writes[i];
        if (write->storage == storage &&
            (strstr(write->name, "bernoulli_") != NULL || strstr(write->name, "floor_") != NULL)) {
            return true;
        }
    }
    return false;
}

/* Does v send float16, and what it receives is so small that a mean, or a product with a number, is below the type? */
static bool fades_in_half(const tgd_triage *t, tgd_node v)
{
    const tgd_graph *graph = &t->report->graph;
    const tgd_node_row *node = &graph->nodes[v];
    const char *name = tgd_node_class(t->report, v);
    const tgd_node to = node->n_edges == 0 ? TGD_NONE : graph->edges[node->first_edge].to;
    if (to == TGD_NONE || graph->nodes[to].n_inputs == 0 ||
        strcmp(tgd_torch_dtype_name(graph->inputs[graph->nodes[to].first_input].dtype), "float16") != 0) {
        return false;
    }
    const double most = t->measures->nodes[v].gradient.absmax;
    const int64_t n = tgd_graph_numel(graph, graph->inputs[graph->nodes[to].first_input].shape);
    return strncmp(name, "MeanBackward", 12) == 0 && n > 0 && most / (double)n < LEAST_HALF;
}

/* A product with a tensor of zeros that nobody learns: a mask that lets nothing through. */
static bool is_mask(const tgd_triage *t, tgd_node v)
{
    const tgd_graph *graph = &t->report->graph;
    const tgd_node_row *node = &graph->nodes[v];
    const char *op = t->report->node_op == NULL ? NULL : t->report->node_op[v];
    const bool drops = op != NULL && strstr(op, "dropout") != NULL; /* dropout(p=1) multiplies by one zero */
    bool other = false, learns = false;
    for (uint32_t s = node->first_saved; s < node->first_saved + node->n_saved; s++) {
        const tgd_saved_row *saved = &graph->saved[s];
        const bool several = tgd_graph_numel(graph, saved->shape) > 1;
        other = other || (saved->tensor != 0 && (several || drops) && !is_drawn(t->report, saved));
    }
    for (uint32_t k = 1; k < node->n_edges; k++) {
        learns = learns || (graph->edges[node->first_edge].to != TGD_NONE &&
                            graph->edges[node->first_edge + k].to != TGD_NONE);
    }
    return strncmp(tgd_node_class(t->report, v), "MulBackward", 11) == 0 && other && !learns;
}

static tgd_status judge_cut(tgd_triage *t, const cut *c, bool alive)
{
    const tgd_statistics *in = &t->measures->nodes[c->v].gradient;
    const char *name = tgd_node_class(t->report, c->v);
    const uint32_t role = tgd_node_role(t->report, c->v);
    const bool squash = (role & TGD_ROLE_SQUASH) != 0;
    const bool underflow = narrows(t, c->v) || fades_in_half(t, c->v);
    if (!underflow && in->absmax < FADED) {
        return TGD_OK; /* it had grown so small on its way: triage_flow.c */
    }
    /* a hinge that is satisfied ends its gradient with exact zeros, and so does a product with zeros: both are meant */
    const bool mask = alive && !t->flow[c->v].plain && is_mask(t, c->v);
    const bool meant = (!alive && t->flow[c->v].plain) || !((role & TGD_ROLE_SELECT) || squash || underflow || mask);
    if (meant && !(role & TGD_ROLE_SELECT)) {
        return TGD_OK;
    }
    tgd_triage_words words;
    tgd_triage_words_init(&words);
    tgd_text_str(&words.verdict, underflow ? "the gradient is too small for its dtype and becomes zero before "
                                           : "no gradient gets past ");
    if (!underflow) {
        tgd_made_phrase(&words.verdict, t->report, c->v);
        tgd_text_str(&words.verdict, ": it is exactly zero in ");
    }
    write_leaves(&words.verdict, t, c);
    tgd_text_str(&words.message, "a gradient of rms ");
    tgd_number_phrase(&words.message, tgd_statistics_rms(in));
    tgd_text_str(&words.message, " goes into ");
    tgd_text_str(&words.message, name);
    tgd_text_str(&words.message, underflow ? " and exactly zero comes out, for it is too small for the dtype: "
                                           : " and exactly zero comes out: ");
    tgd_text_count(&words.message, in->n);
    tgd_text_str(&words.message, " of ");
    tgd_text_count(&words.message, in->n);
    tgd_text_str(&words.message, " elements, so that the whole gradient of ");
    write_leaves(&words.message, t, c);
    tgd_text_str(&words.message, " is zero (not None)");
    tgd_text_str(&words.hint, hint_of(name, underflow, squash));
    const tgd_finding_kind kind = underflow ? TGD_GRADIENT_UNDERFLOW : TGD_ZERO_GRADIENT;
    tgd_status status = tgd_triage_add(t, kind, meant ? TGD_NOTE : TGD_WARNING, c->v, c->v,
                                       t->report->leaf_parameter[c->leaf], &words);
    tgd_triage_words_drop(&words);
    return status;
}

tgd_status tgd_triage_zeros(tgd_triage *t)
{
    const tgd_graph *graph = &t->report->graph;
    tgd_node *origin = malloc((size_t)graph->n_nodes * sizeof *origin);
    cut cuts[MOST_CUTS];
    uint32_t n = 0;
    if (origin == NULL) {
        return tgd_fail_memory(t->err);
    }
    find_origins(t, origin);
    for (uint32_t l = 0; l < graph->n_leaves; l++) {
        const tgd_node v = graph->leaves[l].node;
        const tgd_measure_row *row = &t->measures->nodes[v];
        if (!tgd_leaf_counts(t->report, l) || !row->measured || !zero(&row->gradient) || origin[v] == TGD_NONE) {
            continue;
        }
        uint32_t i = 0;
        while (i < n && cuts[i].v != origin[v]) {
            i++;
        }
        if (i == n && n < MOST_CUTS) {
            cuts[n++] = (cut){.v = origin[v], .leaf = l};
        }
        if (i < n) {
            cuts[i].leaf = t->report->leaf_parameter[l] < t->report->leaf_parameter[cuts[i].leaf] ? l : cuts[i].leaf;
            cuts[i].n++;
        }
    }
    free(origin);
    const bool alive = any_alive(t);
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < n && status == TGD_OK; i++) {
        status = judge_cut(t, &cuts[i], alive);
    }
    return status;
}
