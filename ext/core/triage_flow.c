/*
 * Gradients that lose or gain many decades on their way. Counted along the way of the largest gradient, behind the
 * first linear layer (a loss has derivatives of any size), and not where the number of elements changes.
 */
#include "triage.h"

#include "words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VANISHED (-5.0)         /* decades: a hundred-thousandth of what the last layers get */
#define EXPLODED 4.0
#define JUMPED 6.0              /* decades at one node, and never lost again */
#define FORGOTTEN (-20.0)       /* over time steps, which share their weights */
#define LEAST_STEPS 16

enum { MOST_CLASSES = 32 };

/* What the nodes of one class did on a way. */
typedef struct share {
    const char *name;
    double decades;
    uint32_t n;
    tgd_node worst;
    double worst_gain;
} share;

/* What one node on the way did, where that counts. */
static bool gain_at(const tgd_triage *t, tgd_node v, double *gain)
{
    const tgd_flow_row *row = &t->flow[v];
    if (row->from == TGD_NONE || row->leaf_side) {
        return false;
    }
    *gain = row->level - t->flow[row->from].level;
    return *gain != 0;
}

/* The class of nodes that did the most of it, on the way from the roots to v. */
static share blame(const tgd_triage *t, tgd_node v, double sign)
{
    share shares[MOST_CLASSES], *best = NULL;
    size_t n = 0;
    for (; v != TGD_NONE && t->flow[v].from != TGD_NONE; v = t->flow[v].from) {
        const tgd_node by = t->flow[v].from;
        const char *name = tgd_node_class(t->report, by);
        double gain;
        if (!gain_at(t, v, &gain)) {
            continue;
        }
        size_t i = 0;
        while (i < n && strcmp(shares[i].name, name) != 0) {
            i++;
        }
        if (i == n) {
            if (n == MOST_CLASSES) {
                continue;
            }
            shares[n++] = (share){.name = name, .worst = by, .worst_gain = gain};
        }
        shares[i].decades += gain;
        shares[i].n++;
        if (gain * sign > shares[i].worst_gain * sign) {
            shares[i].worst = by;
            shares[i].worst_gain = gain;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (best == NULL || shares[i].decades * sign > best->decades * sign) {
            best = &shares[i];
        }
    }
    return best == NULL ? (share){.worst = TGD_NONE} : *best;
}

static void write_decades(tgd_text *text, double decades)
{
    tgd_text_fixed(text, fabs(decades), fabs(decades) < 10 ? 1 : 0);
    tgd_text_str(text, decades < 0 ? " decades lost" : " decades gained");
}

static const char *hint_of(const share *by, bool vanishes, bool time)
{
    if (time) {
        return vanishes ? "the gradient fades over the time steps: use an LSTM or GRU, an orthogonal recurrent weight, "
                          "LayerNorm, shorter sequences, or a loss at more steps"
                        : "the gradient grows with every time step: clip it (clip_grad_norm_), use an orthogonal recurrent "
                          "weight, an LSTM or GRU, or shorter sequences";
    }
    if (!vanishes) {
        return "use a smaller initialisation (kaiming for relu, xavier for tanh), normalise (BatchNorm, LayerNorm), scale "
               "down what skip connections add, or clip the gradient (clip_grad_norm_)";
    }
    return strstr(by->name, "Sigmoid") != NULL || strstr(by->name, "Tanh") != NULL
               ? "this function's derivative is below one at every layer: use relu or gelu, normalise (BatchNorm, LayerNorm), "
                 "or add skip connections"
               : "use a larger initialisation (kaiming for relu, xavier for tanh), normalise (BatchNorm, LayerNorm), or add "
                 "skip connections";
}

static tgd_status add(tgd_triage *t, const share *by, uint32_t leaf, uint32_t n, double decades, bool time, bool warn)
{
    const bool vanishes = decades < 0;
    const tgd_report *report = t->report;
    tgd_triage_words words;
    tgd_triage_words_init(&words);
    tgd_text_str(&words.verdict, vanishes ? "the gradient vanishes " : "the gradient explodes ");
    tgd_text_str(&words.verdict, time ? "over the time steps, " : "on its way back, ");
    write_decades(&words.verdict, decades);
    tgd_text_str(&words.verdict, ", most of it at ");
    tgd_made_phrase(&words.verdict, report, by->worst);
    tgd_leaf_phrase(&words.message, report, leaf);
    if (n > 1) {
        tgd_text_printf(&words.message, " (and %lu more)", (unsigned long)n - 1);
    }
    tgd_text_str(&words.message, time ? ": what its first use gets has " : ": what the layers after it send has ");
    write_decades(&words.message, decades);
    tgd_text_str(&words.message, time ? " against the last (time steps that share it)" : " since the last layer");
    tgd_text_str(&words.message, "; ");
    write_decades(&words.message, by->decades);
    tgd_text_printf(&words.message, " at %lu nodes of class ", (unsigned long)by->n);
    tgd_text_str(&words.message, by->name);
    tgd_text_str(&words.message, " (told from ");
    tgd_text_fixed(&words.message, fabs(time ? FORGOTTEN : vanishes ? VANISHED : EXPLODED), 0);
    tgd_text_str(&words.message, " decades on)");
    tgd_text_str(&words.hint, hint_of(by, vanishes, time));
    tgd_status status = tgd_triage_add(t, vanishes ? TGD_VANISHING_GRADIENT : TGD_EXPLODING_GRADIENT,
                                       warn ? TGD_WARNING : TGD_NOTE, by->worst, by->worst,
                                       report->leaf_parameter[leaf], &words);
    tgd_triage_words_drop(&words);
    return status;
}

static tgd_status add_jump(tgd_triage *t, tgd_node v, double decades, uint32_t leaf, uint32_t n)
{
    tgd_triage_words words;
    tgd_triage_words_init(&words);
    tgd_text_str(&words.verdict, "the gradient explodes at one node, ");
    write_decades(&words.verdict, decades);
    tgd_text_str(&words.verdict, " at ");
    tgd_made_phrase(&words.verdict, t->report, v);
    tgd_text_str(&words.message, "a gradient of rms ");
    tgd_number_phrase(&words.message, t->flow[v].rms);
    tgd_text_str(&words.message, " goes into ");
    tgd_text_str(&words.message, tgd_node_class(t->report, v));
    tgd_text_str(&words.message, " and one of ");
    tgd_number_phrase(&words.message, t->flow[v].rms * pow(10, decades));
    tgd_text_str(&words.message, " comes out; it reaches ");
    tgd_leaf_phrase(&words.message, t->report, leaf);
    if (n > 1) {
        tgd_text_printf(&words.message, " and %lu more", (unsigned long)n - 1);
    }
    tgd_text_str(&words.message, " (told from 6 decades on)");
    tgd_text_str(&words.hint, "it divides by a number close to zero, or has a pole there: put a larger epsilon inside the "
                              "norm, root, log or denominator, or leave out rows that are all zero");
    tgd_status status = tgd_triage_add(t, TGD_EXPLODING_GRADIENT, TGD_WARNING, v, v, t->report->leaf_parameter[leaf],
                                       &words);
    tgd_triage_words_drop(&words);
    return status;
}

/* ---- leaves ---- */

typedef struct extreme {
    double decades;
    uint32_t leaf, n;
} extreme;

static void note(extreme *e, uint32_t leaf, double decades)
{
    if (e->n == 0 || fabs(decades) > fabs(e->decades)) {
        e->leaf = leaf;
        e->decades = decades;
    }
    e->n++;
}

static tgd_status judge_leaves(tgd_triage *t)
{
    const tgd_graph *graph = &t->report->graph;
    extreme lost = {0}, grown = {0}, jumped = {0};
    for (uint32_t l = 0; l < graph->n_leaves; l++) {
        const tgd_node v = graph->leaves[l].node;
        const tgd_flow_row *row = &t->flow[v];
        if (!tgd_leaf_counts(t->report, l) || row->from == TGD_NONE) {
            continue;
        }
        if (row->level <= VANISHED) {
            note(&lost, l, row->level);
        }
        if (row->level >= EXPLODED) {
            note(&grown, l, row->level);
        } else if (row->jump != TGD_NONE && row->gain >= JUMPED && row->rms > 0 &&
                   log10(row->rms / t->flow[row->jump].rms) >= JUMPED) {
            note(&jumped, l, row->gain);
        }
    }
    tgd_status status = TGD_OK;
    if (lost.n > 0) {
        const share by = blame(t, graph->leaves[lost.leaf].node, -1);
        status = by.worst == TGD_NONE ? TGD_OK : add(t, &by, lost.leaf, lost.n, lost.decades, false, true);
    }
    if (grown.n > 0 && status == TGD_OK) {
        const share by = blame(t, graph->leaves[grown.leaf].node, 1);
        status = by.worst == TGD_NONE ? TGD_OK : add(t, &by, grown.leaf, grown.n, grown.decades, false, true);
    }
    if (jumped.n > 0 && status == TGD_OK) {
        const tgd_flow_row *row = &t->flow[graph->leaves[jumped.leaf].node];
        status = add_jump(t, row->jump, row->gain, jumped.leaf, jumped.n);
    }
    return status;
}

/* ---- time steps ---- */

typedef struct uses {
    double first, last;    /* levels of the earliest use and of the best */
    tgd_node at;           /* the earliest use */
    uint32_t n;
} uses;

/* Leaves that many nodes along one way use: what the uses far from the loss get against the ones near to it. */
static tgd_status judge_time(tgd_triage *t)
{
    const tgd_report *report = t->report;
    const tgd_graph *graph = &report->graph;
    uses *of = calloc((size_t)graph->n_leaves + 1, sizeof *of);
    if (of == NULL) {
        return tgd_fail_memory(t->err);
    }
    for (uint32_t i = 0; i < report->n_executed; i++) {
        const tgd_node v = report->sequence[i];
        const tgd_node_row *node = &graph->nodes[v];
        for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges && !t->flow[v].leaf_side; e++) {
            tgd_node to = graph->edges[e].to;
            while (to != TGD_NONE && graph->nodes[to].leaf == TGD_NONE && t->flow[to].leaf_side) {
                tgd_node next = TGD_NONE;
                for (uint32_t k = 0; k < graph->nodes[to].n_edges && next == TGD_NONE; k++) {
                    next = graph->edges[graph->nodes[to].first_edge + k].to;
                }
                to = next;
            }
            if (to == TGD_NONE || graph->nodes[to].leaf == TGD_NONE) {
                continue;
            }
            uses *use = &of[graph->nodes[to].leaf];
            use->last = use->n == 0 || t->flow[v].level > use->last ? t->flow[v].level : use->last;
            use->first = t->flow[v].level; /* in backward's order: the last one comes first */
            use->at = v;
            use->n++;
        }
    }
    uint32_t worst = TGD_NONE, n = 0;
    for (uint32_t l = 0; l < graph->n_leaves; l++) {
        if (!tgd_leaf_counts(report, l) || of[l].n < LEAST_STEPS || of[l].first - of[l].last > FORGOTTEN) {
            continue;
        }
        n++;
        if (worst == TGD_NONE || of[l].first - of[l].last < of[worst].first - of[worst].last) {
            worst = l;
        }
    }
    tgd_status status = TGD_OK;
    if (worst != TGD_NONE) {
        const share by = blame(t, of[worst].at, -1);
        const bool gated = by.worst != TGD_NONE && strncmp(by.name, "Mul", 3) == 0; /* an LSTM that forgets, as it may */
        if (by.worst != TGD_NONE) {
            status = add(t, &by, worst, n, of[worst].first - of[worst].last, true, !gated);
        }
    }
    free(of);
    return status;
}

tgd_status tgd_triage_flow(tgd_triage *t)
{
    const uint32_t before = t->report->n_findings;
    tgd_status status = judge_leaves(t);
    if (status == TGD_OK && t->report->n_findings == before) {
        status = judge_time(t);
    }
    return status;
}
