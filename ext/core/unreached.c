/* Parameters that backward will leave without a gradient, and why, as far as the graph alone proves it. */
#include "judge.h"

#include <stdlib.h>
#include <string.h>

typedef struct judge {
    tgd_report *report;
    tgd_error *err;
    bool hidden;        /* a node runs a backward of its own, on a graph we do not see */
    bool sharded;       /* gradients are put in place by the hooks of a sharded module */
    bool root_is_leaf;  /* every root is a leaf: nothing can be reached */
    bool inference;     /* a root was made under inference_mode */
    bool *candidates;   /* Owned, per leaf: a Parameter that nobody names; NULL where there is none */
    uint32_t n_hidden, first_hiding;
    uint32_t groups[TGD_DETAIL_HIDDEN + 1];
} judge;

static bool is_reached(const judge *j, const tgd_parameter_row *parameter)
{
    const tgd_report *report = j->report;
    if (parameter->leaf != TGD_NONE) {
        return report->order[report->graph.leaves[parameter->leaf].node] != TGD_NONE &&
               (parameter->flags & TGD_TENSOR_REQUIRES_GRAD);
    }
    if (!(parameter->flags & TGD_TENSOR_LEAF)) {
        return (parameter->flags & TGD_TENSOR_RETAINS_GRAD) && parameter->node != TGD_NONE &&
               report->order[parameter->node] != TGD_NONE;
    }
    for (uint32_t r = 0; r < report->graph.n_roots; r++) {
        /* backward() on a leaf fills its own grad, and needs no node for it */
        if (report->graph.roots[r].tensor == parameter->tensor && (parameter->flags & TGD_TENSOR_REQUIRES_GRAD)) {
            return true;
        }
    }
    return false;
}

/* A leaf that no graph has ever used. */
static bool is_fresh(const tgd_parameter_row *parameter)
{
    uint32_t fresh = TGD_TENSOR_LEAF | TGD_TENSOR_REQUIRES_GRAD;
    return parameter->shape != TGD_NONE && (parameter->flags & (fresh | TGD_TENSOR_HAS_ACCUMULATOR)) == fresh;
}

/* By content: a sealed graph lists a shape anew for parameters that come late. */
static bool is_same_shape(const tgd_graph *graph, uint32_t a, uint32_t b)
{
    int n, m;
    const int64_t *x = tgd_graph_shape(graph, a, &n), *y = tgd_graph_shape(graph, b, &m);
    return n == m && n >= 0 && (n == 0 || memcmp(x, y, (size_t)n * sizeof *x) == 0);
}

/* A Parameter of the graph that nobody names, with the same sizes and dtype as one that no graph uses: the module
   got a new Parameter after its forward. Several of one shape are matched in order. */
static uint32_t replaced_by(judge *j, const tgd_parameter_row *parameter)
{
    const tgd_graph *graph = &j->report->graph;
    if (j->candidates == NULL || !is_fresh(parameter)) {
        return TGD_NONE;
    }
    for (uint32_t i = 0; i < graph->n_leaves; i++) {
        const tgd_leaf_row *leaf = &graph->leaves[i];
        if (j->candidates[i] && is_same_shape(graph, leaf->shape, parameter->shape) && leaf->dtype == parameter->dtype &&
            leaf->device_type == parameter->device_type && leaf->device_index == parameter->device_index) {
            j->candidates[i] = false;
            return i;
        }
    }
    return TGD_NONE;
}

/* Asked while they live, and kept: the report may be judged again when they do not. */
static void learn_parameters(tgd_report *report)
{
    const tgd_torch_python *python = tgd_torch_get_python();
    if (!report->live || python == NULL || python->is_parameter == NULL || python->begin == NULL ||
        (report->n_parameters == 0 && report->record == NULL)) {
        return;
    }
    void *token;
    python->begin(&token);
    for (uint32_t i = 0; i < report->graph.n_leaves; i++) {
        tgd_leaf_row *leaf = &report->graph.leaves[i];
        leaf->flags |= python->is_parameter((const tgd_torch_tensor *)(uintptr_t)leaf->tensor) == 1
                           ? TGD_TENSOR_PARAMETER : 0u;
    }
    python->end(token);
}

static tgd_status find_candidates(judge *j)
{
    const tgd_report *report = j->report;
    if (report->graph.n_leaves == 0) {
        return TGD_OK;
    }
    bool *candidates = calloc(report->graph.n_leaves, sizeof *candidates);
    if (candidates == NULL) {
        return tgd_fail_memory(j->err);
    }
    uint32_t n_candidates = 0, n_fresh = 0;
    for (uint32_t i = 0; i < report->n_parameters; i++) {
        n_fresh += is_fresh(&report->parameters[i]);
    }
    for (uint32_t i = 0; i < report->graph.n_leaves; i++) {
        candidates[i] = report->leaf_parameter[i] == TGD_NONE && (report->graph.leaves[i].flags & TGD_TENSOR_PARAMETER);
        n_candidates += candidates[i];
    }
    /* More than were replaced: the caller names only some of the Parameters, and these may be the others. */
    if (n_candidates > 0 && n_candidates <= n_fresh) {
        j->candidates = candidates;
    } else {
        free(candidates);
    }
    return TGD_OK;
}

static tgd_status add(judge *j, uint32_t parameter, tgd_detail detail, tgd_reason reason, uint32_t other)
{
    tgd_report *report = j->report;
    if (j->groups[detail] == TGD_NONE) {
        j->groups[detail] = report->n_groups++;
    }
    tgd_finding_row row = {.kind = TGD_UNREACHED_PARAMETER, .severity = TGD_WARNING, .detail = (uint8_t)detail,
                           .reason = (uint8_t)reason, .node = TGD_NONE, .saved = TGD_NONE, .parameter = parameter,
                           .root = TGD_NONE, .other = other, .where = TGD_NONE, .group = j->groups[detail]};
    uint32_t leaf = report->parameters[parameter].leaf;
    if (leaf != TGD_NONE) {
        row.node = report->graph.leaves[leaf].node;
    }
    return tgd_report_add(report, row, j->err);
}

static tgd_status judge_one(judge *j, uint32_t i)
{
    tgd_parameter_row *parameter = &j->report->parameters[i];
    parameter->reached = is_reached(j, parameter);
    if (parameter->reached) {
        return TGD_OK;
    }
    if (!(parameter->flags & TGD_TENSOR_REQUIRES_GRAD)) {
        bool used = parameter->leaf != TGD_NONE &&
                    j->report->order[j->report->graph.leaves[parameter->leaf].node] != TGD_NONE;
        return used ? add(j, i, TGD_DETAIL_TURNED_OFF, TGD_REASON_REQUIRES_GRAD_OFF, TGD_NONE) : TGD_OK;
    }
    if (j->hidden || (j->sharded && (parameter->flags & TGD_TENSOR_SUBCLASS))) {
        j->n_hidden++;
        return TGD_OK;
    }
    if (!(parameter->flags & TGD_TENSOR_LEAF)) {
        return add(j, i, TGD_DETAIL_NOT_A_LEAF, TGD_REASON_NONE, TGD_NONE);
    }
    if (j->root_is_leaf) {
        return add(j, i, TGD_DETAIL_ROOT_IS_LEAF, TGD_REASON_ROOT_IS_LEAF, TGD_NONE);
    }
    uint32_t replacement = replaced_by(j, parameter);
    if (replacement != TGD_NONE) {
        return add(j, i, TGD_DETAIL_REPLACED, TGD_REASON_REWRAPPED, replacement);
    }
    return add(j, i, TGD_DETAIL_NOT_IN_GRAPH, j->inference ? TGD_REASON_GRAD_MODE_DISABLED : TGD_REASON_NONE, TGD_NONE);
}

static void look_around(judge *j)
{
    const tgd_report *report = j->report;
    const tgd_graph *graph = &report->graph;
    for (uint32_t i = 0; i < report->n_executed; i++) {
        uint32_t flags = tgd_graph_type(graph, report->sequence[i])->python_flags;
        if ((flags & (TGD_PY_HIDES_GRAPH | TGD_PY_HIDES_PARAMETERS)) && j->first_hiding == TGD_NONE) {
            j->first_hiding = report->sequence[i];
        }
        j->hidden = j->hidden || (flags & TGD_PY_HIDES_GRAPH);
        j->sharded = j->sharded || (flags & TGD_PY_HIDES_PARAMETERS);
    }
    j->root_is_leaf = true;
    for (uint32_t r = 0; r < graph->n_roots; r++) {
        const tgd_root_row *root = &graph->roots[r];
        bool leaf = root->node == TGD_NONE || tgd_graph_type(graph, root->node)->kind == TGD_NODE_ACCUMULATE_GRAD;
        j->root_is_leaf = j->root_is_leaf && leaf && (root->flags & TGD_TENSOR_REQUIRES_GRAD);
        j->hidden = j->hidden || (root->flags & TGD_ROOT_WRAPS_GRAD);
        j->inference = j->inference || (root->flags & TGD_TENSOR_INFERENCE);
    }
}

tgd_status tgd_judge_parameters(tgd_report *report, tgd_error *err)
{
    judge j = {.report = report, .err = err, .first_hiding = TGD_NONE};
    learn_parameters(report);
    if (report->has_inputs) { /* backward was asked to fill only some */
        for (uint32_t i = 0; i < report->n_parameters; i++) {
            report->parameters[i].reached = is_reached(&j, &report->parameters[i]);
        }
        return TGD_OK;
    }
    for (size_t d = 0; d < sizeof j.groups / sizeof *j.groups; d++) {
        j.groups[d] = TGD_NONE;
    }
    look_around(&j);
    tgd_status status = find_candidates(&j);
    for (uint32_t i = 0; i < report->n_parameters && status == TGD_OK; i++) {
        status = judge_one(&j, i);
    }
    if (status == TGD_OK && j.n_hidden > 0 && j.first_hiding != TGD_NONE) {
        tgd_finding_row row = {.kind = TGD_OPAQUE_NODE, .severity = TGD_NOTE, .detail = TGD_DETAIL_HIDDEN,
                               .node = j.first_hiding, .saved = TGD_NONE, .parameter = TGD_NONE, .root = TGD_NONE,
                               .other = j.n_hidden, .where = TGD_NONE, .group = report->n_groups++};
        status = tgd_report_add(report, row, err);
    }
    free(j.candidates);
    return status;
}
