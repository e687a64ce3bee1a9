/*
 * What saved tensors hold, looked at before a backward frees them: which are not finite, and which zeros matter. And
 * from that, where the forward made a NaN.
 */
#include "triage.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMENTS = 1 << 24 /* looked at in one tensor */ };

static bool element_of(int dtype, tgd_element *out)
{
    static const struct {
        const char *name;
        tgd_element is;
    } all[] = {{"float32", TGD_FLOAT32},     {"float64", TGD_FLOAT64},     {"float16", TGD_FLOAT16},
               {"bfloat16", TGD_BFLOAT16},   {"complex64", TGD_COMPLEX64}, {"complex128", TGD_COMPLEX128}};
    const char *name = tgd_torch_dtype_name(dtype);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) == 0) {
            *out = all[i].is;
            return true;
        }
    }
    return false;
}

/* Where its elements are, if they can be read: in this process's memory, and all of them. */
static bool elements_at(const tgd_graph *graph, const tgd_saved_row *saved, tgd_strided *out)
{
    int ndim, n_strides;
    if (saved->storage == TGD_NONE || saved->state != TGD_SAVED_OK || saved->shape == TGD_NONE ||
        saved->strides == TGD_NONE || saved->storage_offset == INT32_MAX ||
        (saved->flags & (TGD_SV_HOOKS | TGD_ROW_RESHAPED)) ||
        (saved->tensor_flags & (TGD_TENSOR_SUBCLASS | TGD_TENSOR_WRAPPER)) ||
        strcmp(tgd_torch_device_name(saved->device_type), "cpu") != 0 || !element_of(saved->dtype, &out->element)) {
        return false;
    }
    const tgd_storage_row *storage = &graph->storages[saved->storage];
    const int64_t numel = tgd_graph_numel(graph, saved->shape);
    out->sizes = tgd_graph_shape(graph, saved->shape, &ndim);
    out->strides = tgd_graph_shape(graph, saved->strides, &n_strides);
    const uint64_t end = tgd_saved_end(graph, saved);
    if (storage->data == 0 || numel <= 0 || numel > MOST_ELEMENTS || ndim != n_strides || ndim > TGD_MOST_DIMENSIONS ||
        end == 0 || end > storage->bytes) {
        return false;
    }
    out->ndim = (size_t)ndim;
    out->data = (const char *)(uintptr_t)storage->data + (int64_t)saved->storage_offset * saved->itemsize;
    return true;
}

static uint8_t look(const tgd_graph *graph, const tgd_saved_row *saved, bool zeros)
{
    tgd_strided values = {0};
    tgd_statistics s;
    if (!elements_at(graph, saved, &values) || (!zeros && !tgd_strided_nonfinite(&values))) {
        return values.data == NULL ? 0 : TGD_OPERAND_FINITE;
    }
    if (!tgd_statistics_of(&s, &values, NULL)) {
        return 0;
    }
    return (uint8_t)((s.n_nan > 0 ? TGD_OPERAND_NAN : 0) | (s.n_inf > 0 ? TGD_OPERAND_INF : 0) |
                     (s.n_zero > 0 ? TGD_OPERAND_ZERO : 0) |
                     (s.n_nan == 0 && s.n_inf == 0 ? TGD_OPERAND_FINITE : 0));
}

tgd_status tgd_read_operands(tgd_report *report, tgd_error *err)
{
    const tgd_graph *graph = &report->graph;
    if (!report->live || !report->attempted || !report->recorded || graph->n_saved == 0) {
        return TGD_OK;
    }
    report->operands = calloc(graph->n_saved, 1);
    if (report->operands == NULL) {
        return tgd_fail_memory(err);
    }
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        const tgd_node_row *node = &graph->nodes[v];
        if (report->order[v] == TGD_NONE || node->n_saved == 0) {
            continue;
        }
        const bool zeros = tgd_minds_zeros(report, v);
        for (uint32_t s = node->first_saved; s < node->first_saved + node->n_saved; s++) {
            report->operands[s] = look(graph, &graph->saved[s], zeros);
        }
    }
    return TGD_OK;
}

tgd_status tgd_copy_operands(tgd_report *to, const tgd_report *from, tgd_error *err)
{
    if (from->operands == NULL) {
        return TGD_OK;
    }
    to->operands = malloc((size_t)from->graph.n_saved + 1);
    if (to->operands == NULL) {
        return tgd_fail_memory(err);
    }
    memcpy(to->operands, from->operands, from->graph.n_saved);
    return TGD_OK;
}

uint8_t tgd_operands_of(const tgd_report *report, tgd_node v, bool results)
{
    const tgd_graph *graph = &report->graph;
    const tgd_node_row *node = &graph->nodes[v];
    uint8_t all = 0;
    for (uint32_t s = node->first_saved; s < node->first_saved + node->n_saved && report->operands != NULL; s++) {
        if (((graph->saved[s].flags & TGD_SV_OUTPUT) != 0) == results) {
            all |= report->operands[s];
        }
    }
    return all;
}

tgd_status tgd_forward_birth(tgd_node *out, const tgd_report *report, tgd_node v, uint8_t what, tgd_error *err)
{
    const tgd_graph *graph = &report->graph;
    *out = TGD_NONE;
    if (report->operands == NULL) {
        return TGD_OK;
    }
    uint8_t *seen = calloc((size_t)graph->n_nodes + 1, 1);
    if (seen == NULL) {
        return tgd_fail_memory(err);
    }
    seen[v] = 1;
    for (uint32_t i = report->order[v]; i < report->n_executed; i++) { /* what it was computed from runs later */
        const tgd_node at = report->sequence[i];
        const tgd_node_row *node = &graph->nodes[at];
        if (!seen[at]) {
            continue;
        }
        if ((tgd_operands_of(report, at, true) | tgd_operands_of(report, at, false)) & what) {
            *out = at;
        }
        for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges; e++) {
            if (graph->edges[e].to != TGD_NONE) {
                seen[graph->edges[e].to] = 1;
            }
        }
    }
    free(seen);
    return TGD_OK;
}
