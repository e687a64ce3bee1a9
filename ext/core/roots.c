/* What backward checks before it runs a node: torch/autograd/__init__.py (_make_grads) and
   torch/csrc/autograd/python_engine.cpp. */
#include "judge.h"

static tgd_status add(tgd_report *report, tgd_finding_kind kind, tgd_severity severity, tgd_detail detail,
                      tgd_reason reason, uint32_t root, uint32_t other, tgd_error *err)
{
    tgd_finding_row row = {.kind = (uint8_t)kind, .severity = (uint8_t)severity, .detail = (uint8_t)detail,
                           .reason = (uint8_t)reason, .node = TGD_NONE, .saved = TGD_NONE, .parameter = TGD_NONE,
                           .root = root, .other = other, .where = TGD_NONE, .group = report->n_groups++};
    if (root != TGD_NONE) {
        row.node = report->graph.roots[root].node;
    }
    return tgd_report_add(report, row, err);
}

/* Why a root requires no grad, as far as the tensors themselves prove it. */
static tgd_reason why_no_grad(const tgd_report *report, const tgd_root_row *root)
{
    if (root->flags & TGD_TENSOR_INFERENCE) {
        return TGD_REASON_GRAD_MODE_DISABLED;
    }
    bool frozen = report->n_parameters > 0;
    for (uint32_t i = 0; i < report->n_parameters && frozen; i++) {
        frozen = !(report->parameters[i].flags & TGD_TENSOR_REQUIRES_GRAD);
    }
    return frozen ? TGD_REASON_REQUIRES_GRAD_OFF : TGD_REASON_NONE;
}

static tgd_status judge_root(tgd_report *report, uint32_t r, tgd_error *err)
{
    const tgd_root_row *root = &report->graph.roots[r];
    if (root->flags == 0) {
        return TGD_OK; /* given as a node */
    }
    if (root->refused) {
        report->root_fails = true;
        return add(report, TGD_BAD_ROOT, TGD_ERROR, TGD_DETAIL_ROOT_LOST, TGD_REASON_NONE, r, TGD_NONE, err);
    }
    /* A view whose base changed since has no grad_fn of its own until it is asked for one: it is no leaf. A leaf
       whose requires_grad was turned off may still have its AccumulateGrad. */
    bool leaf = root->node == TGD_NONE || tgd_graph_type(&report->graph, root->node)->kind == TGD_NODE_ACCUMULATE_GRAD;
    if (leaf && (root->flags & TGD_ROOT_WRAPS_GRAD)) {
        return add(report, TGD_OPAQUE_NODE, TGD_NOTE, TGD_DETAIL_ROOT_WRAPPED, TGD_REASON_NONE, r, TGD_NONE, err);
    }
    if (leaf && !(root->flags & TGD_TENSOR_REQUIRES_GRAD)) {
        report->root_fails = true;
        return add(report, TGD_NO_GRAD_FN, TGD_ERROR, TGD_DETAIL_NO_GRAD, why_no_grad(report, root), r, TGD_NONE, err);
    }
    tgd_status status = TGD_OK;
    if (leaf) {
        status = add(report, TGD_NO_GRAD_FN, TGD_WARNING, TGD_DETAIL_LEAF_ROOT, TGD_REASON_ROOT_IS_LEAF, r, TGD_NONE,
                     err);
    }
    if (status == TGD_OK && root->numel >= 0 && root->numel != 1) {
        status = add(report, TGD_BAD_ROOT, TGD_NOTE, TGD_DETAIL_NOT_SCALAR, TGD_REASON_NONE, r, TGD_NONE, err);
    } else if (status == TGD_OK && (root->flags & TGD_TENSOR_COMPLEX)) {
        status = add(report, TGD_BAD_ROOT, TGD_NOTE, TGD_DETAIL_COMPLEX_ROOT, TGD_REASON_NONE, r, TGD_NONE, err);
    }
    return status;
}

/* Would the engine refuse a gradient of the root's own sizes? It takes one that the sizes of old expand to. */
static bool is_reshaped(const tgd_report *report, const tgd_root_row *root)
{
    const tgd_graph *graph = &report->graph;
    const uint32_t foreign = TGD_TENSOR_SUBCLASS | TGD_TENSOR_WRAPPER | TGD_TENSOR_NESTED | TGD_TENSOR_SYMBOLIC;
    if (root->node == TGD_NONE || root->flags == 0 || (root->flags & foreign) ||
        root->output_nr >= graph->nodes[root->node].n_inputs) {
        return false;
    }
    const tgd_input_row *made = &graph->inputs[graph->nodes[root->node].first_input + root->output_nr];
    if (made->shape == TGD_NONE || root->shape == TGD_NONE || made->subclass || made->nested) {
        return false;
    }
    int n_made, n_now;
    const int64_t *then = tgd_graph_shape(graph, made->shape, &n_made);
    const int64_t *now = tgd_graph_shape(graph, root->shape, &n_now);
    for (int i = 1; i <= n_made && i <= n_now; i++) {
        int64_t size = then[n_made - i];
        if (size >= 0 && size != 1 && size != now[n_now - i]) {
            return true;
        }
    }
    return n_made > n_now;
}

tgd_status tgd_judge_roots(tgd_report *report, const tgd_request *request, tgd_error *err)
{
    tgd_status status = TGD_OK;
    for (uint32_t r = 0; r < report->graph.n_roots && status == TGD_OK; r++) {
        status = judge_root(report, r, err);
    }
    for (uint32_t r = 0; r < report->graph.n_roots && status == TGD_OK; r++) {
        if (is_reshaped(report, &report->graph.roots[r])) {
            report->root_fails = true;
            status = add(report, TGD_BAD_ROOT, TGD_ERROR, TGD_DETAIL_ROOT_RESHAPED, TGD_REASON_DATA_SWAPPED, r,
                         TGD_NONE, err);
        }
    }
    for (size_t i = 0; i < request->n_inputs && request->inputs != NULL && status == TGD_OK; i++) {
        tgd_torch_tensor_info tensor;
        tgd_torch_tensor_read(request->inputs[i], &tensor);
        if (!(tensor.flags & TGD_TENSOR_REQUIRES_GRAD)) {
            report->root_fails = true;
            status = add(report, TGD_BAD_ROOT, TGD_ERROR, TGD_DETAIL_INPUT_NO_GRAD, TGD_REASON_NONE, TGD_NONE,
                         (uint32_t)i, err);
        }
    }
    if (status == TGD_OK && report->lost_input != TGD_NONE && !report->root_fails) {
        status = add(report, TGD_BAD_ROOT, TGD_NOTE, TGD_DETAIL_INPUT_UNUSED, TGD_REASON_NONE, TGD_NONE,
                     report->lost_input, err);
    }
    return status;
}
