/* Making a report, and the accessors of tgd.h over it. */
#include "judge.h"
#include "triage.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

tgd_status tgd_report_add(tgd_report *report, tgd_finding_row row, tgd_error *err)
{
    tgd_finding_row *rows =
        tgd_grow(report->findings, &report->finding_capacity, (size_t)report->n_findings + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(err);
    }
    report->findings = rows;
    rows[report->n_findings++] = row;
    return TGD_OK;
}

static char *copy_of(const char *text)
{
    size_t size = strlen(text) + 1;
    char *made = malloc(size);
    return made == NULL ? NULL : memcpy(made, text, size);
}

tgd_status tgd_report_fact(tgd_report *report, tgd_fact_row row, const char *name, uint32_t *out, tgd_error *err)
{
    tgd_fact_row *rows = tgd_grow(report->facts, &report->fact_capacity, (size_t)report->n_facts + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(err);
    }
    report->facts = rows;
    row.name = name == NULL ? NULL : copy_of(name);
    if (name != NULL && row.name == NULL) {
        return tgd_fail_memory(err);
    }
    *out = report->n_facts;
    rows[report->n_facts++] = row;
    return TGD_OK;
}

static tgd_status check(const tgd_request *request, tgd_error *err)
{
    if (request == NULL || request->roots == NULL || request->n_roots == 0) {
        return tgd_fail(err, TGD_EINVAL, "roots: expected at least one tensor or node, got none");
    }
    for (size_t r = 0; r < request->n_roots; r++) {
        if ((request->roots[r].tensor == NULL) == (request->roots[r].node == NULL)) {
            return tgd_fail(err, TGD_EINVAL, "roots[%zu]: expected either a tensor or a node", r);
        }
    }
    for (size_t i = 0; i < request->n_parameters && request->parameters != NULL; i++) {
        if (request->parameters[i].name == NULL || request->parameters[i].tensor == NULL) {
            return tgd_fail(err, TGD_EINVAL, "parameters[%zu]: expected a name and a tensor", i);
        }
    }
    if (request->inputs != NULL && request->n_inputs == 0) {
        return tgd_fail(err, TGD_EINVAL, "inputs: expected at least one tensor, got none (backward refuses that too)");
    }
    for (size_t i = 0; i < request->n_inputs && request->inputs != NULL; i++) {
        if (request->inputs[i] == NULL) {
            return tgd_fail(err, TGD_EINVAL, "inputs[%zu]: expected a tensor", i);
        }
    }
    return TGD_OK;
}

static tgd_status read_parameters(tgd_report *report, const tgd_lookup *lookup, const tgd_request *request,
                                  tgd_error *err)
{
    tgd_graph *graph = &report->graph;
    report->leaf_parameter = malloc(((size_t)graph->n_leaves + 1) * sizeof *report->leaf_parameter);
    if (report->leaf_parameter == NULL) {
        return tgd_fail_memory(err);
    }
    for (uint32_t i = 0; i < graph->n_leaves; i++) {
        report->leaf_parameter[i] = TGD_NONE;
    }
    if (request->parameters == NULL || request->n_parameters == 0) {
        return TGD_OK;
    }
    report->parameters = calloc(request->n_parameters, sizeof *report->parameters);
    if (report->parameters == NULL || request->n_parameters >= UINT32_MAX) {
        return tgd_fail_memory(err);
    }
    for (size_t i = 0; i < request->n_parameters; i++) {
        tgd_parameter_row *row = &report->parameters[report->n_parameters];
        tgd_torch_tensor_info tensor;
        tgd_torch_tensor_read(request->parameters[i].tensor, &tensor);
        row->tensor = (uint64_t)(uintptr_t)request->parameters[i].tensor;
        row->leaf = tgd_address_map_find(&lookup->leaves, row->tensor);
        row->node = tgd_address_map_find(&lookup->nodes, (uint64_t)(uintptr_t)tensor.grad_fn);
        row->flags = tensor.flags;
        row->numel = tensor.numel;
        row->identity = tgd_torch_identity(request->parameters[i].tensor);
        row->dtype = tensor.dtype;
        row->device_type = tensor.device_type;
        row->device_index = tensor.device_index;
        row->layout = tensor.layout;
        tgd_status status = tgd_shapes_intern(&graph->shapes, tensor.sizes, tensor.ndim, &row->shape, err);
        if (status != TGD_OK) {
            return status;
        }
        size_t size = strlen(request->parameters[i].name) + 1;
        row->name = malloc(size);
        if (row->name == NULL) {
            return tgd_fail_memory(err);
        }
        memcpy(row->name, request->parameters[i].name, size);
        if (row->leaf != TGD_NONE && report->leaf_parameter[row->leaf] == TGD_NONE) {
            report->leaf_parameter[row->leaf] = report->n_parameters;
        }
        report->n_parameters++;
    }
    return TGD_OK;
}

/* The nodes that backward(inputs=...) must reach: an input's AccumulateGrad, or the grad_fn it came from, which
   runs too unless grad() asks (see GraphTask::init_to_execute). */
static tgd_status mark_end_points(uint8_t **out, tgd_report *report, const tgd_lookup *lookup,
                                  const tgd_request *request, tgd_error *err)
{
    *out = NULL;
    if (request->inputs == NULL || report->graph.n_nodes == 0) {
        return TGD_OK;
    }
    uint8_t *end_points = calloc(report->graph.n_nodes, sizeof *end_points);
    if (end_points == NULL) {
        return tgd_fail_memory(err);
    }
    for (size_t i = 0; i < request->n_inputs; i++) {
        const tgd_torch_node *node;
        uint32_t output_nr;
        tgd_status status = tgd_torch_tensor_node(request->inputs[i], &node, &output_nr, err);
        if (status != TGD_OK) {
            free(end_points);
            return status;
        }
        tgd_node v = tgd_address_map_find(&lookup->nodes, (uint64_t)(uintptr_t)node);
        if (v != TGD_NONE) {
            bool leaf = report->graph.nodes[v].leaf != TGD_NONE;
            end_points[v] = request->captures && !leaf ? TGD_END_TAKES : TGD_END_RUNS;
        } else if (report->lost_input == TGD_NONE && !request->captures) {
            report->lost_input = (uint32_t)i; /* grad(allow_unused=True) may mean it so */
        }
    }
    *out = end_points;
    return TGD_OK;
}

/* Errors, warnings, notes; within each the order in which they were found. */
static tgd_status sort_findings(tgd_report *report, tgd_error *err)
{
    if (report->n_findings == 0) {
        return TGD_OK;
    }
    tgd_finding_row *sorted = malloc(report->n_findings * sizeof *sorted);
    if (sorted == NULL) {
        return tgd_fail_memory(err);
    }
    uint32_t n = 0;
    for (int severity = TGD_ERROR; severity <= TGD_NOTE; severity++) {
        for (uint32_t i = 0; i < report->n_findings; i++) {
            if (report->findings[i].severity == severity) {
                sorted[n++] = report->findings[i];
            }
        }
        size_t *count = severity == TGD_ERROR     ? &report->n_errors
                        : severity == TGD_WARNING ? &report->n_warnings
                                                  : &report->n_notes;
        *count = n - (severity > TGD_ERROR ? report->n_errors : 0) - (severity > TGD_WARNING ? report->n_warnings : 0);
    }
    free(report->findings);
    report->findings = sorted;
    report->finding_capacity = report->n_findings;
    return TGD_OK;
}

static void find_first_error(tgd_report *report)
{
    if (report->root_fails) {
        report->first_error = 0;
        return;
    }
    for (uint32_t i = 0; i < report->n_errors; i++) {
        tgd_node v = report->findings[i].node;
        if (v != TGD_NONE && report->order[v] < report->first_error && !tgd_finding_is_value(report, i) &&
            !tgd_is_triage(&report->findings[i])) {
            report->first_error = report->order[v];
        }
    }
}

static tgd_status write_verdict(tgd_report *report, tgd_error *err)
{
    tgd_text text;
    tgd_text_init(&text, NULL, NULL);
    tgd_verdict_write(&text, report);
    tgd_text_bytes(&text, "", 1);
    if (text.status != TGD_OK) {
        tgd_text_drop(&text);
        return tgd_fail_memory(err);
    }
    report->verdict = text.bytes;
    return TGD_OK;
}

/* Findings, their order and the verdict, over a graph whose backward is simulated. */
static tgd_status judge(tgd_report *report, const tgd_request *request, tgd_error *err)
{
    tgd_status status = tgd_judge_refusal(report, err);
    bool only_refused = report->refused && report->refusal.write != NULL; /* no backward was tried */
    bool done = only_refused || report->ran == TGD_RAN;
    if (status == TGD_OK) {
        status = tgd_judge_values(report, request->values, err);
    }
    if (status == TGD_OK && !done) {
        status = tgd_judge_roots(report, request, err);
    }
    if (status == TGD_OK && !done) {
        status = tgd_judge_nodes(report, err);
    }
    if (status == TGD_OK && !only_refused) {
        status = tgd_judge_parameters(report, err);
    }
    if (status == TGD_OK) {
        status = tgd_judge_record(report, err);
    }
    if (status == TGD_OK && !only_refused) {
        status = tgd_judge_carried(report, request, err);
    }
    if (status == TGD_OK && !only_refused) {
        status = tgd_judge_retained(report, request, err);
    }
    if (status == TGD_OK && !only_refused) {
        status = tgd_judge_weights(report, request, err);
    }
    if (status == TGD_OK && !only_refused) {
        status = tgd_judge_measures(report, err);
    }
    if (status == TGD_OK) {
        tgd_judge_raised(report);
        status = sort_findings(report, err);
    }
    if (status == TGD_OK) {
        find_first_error(report);
        status = write_verdict(report, err);
    }
    return status;
}

static tgd_status make(tgd_report *report, tgd_lookup *lookup, const tgd_request *request, tgd_error *err)
{
    uint8_t *end_points = NULL;
    report->graph.checksum = request->checksum != 0;
    tgd_status status = tgd_graph_walk(&report->graph, lookup, request->roots, request->n_roots, err);
    if (status == TGD_OK) {
        tgd_decide_states(&report->graph, lookup);
        status = read_parameters(report, lookup, request, err);
    }
    if (status == TGD_OK) {
        status = mark_end_points(&end_points, report, lookup, request, err);
    }
    if (status == TGD_OK) {
        status = tgd_engine_simulate(report, end_points, err);
    }
    free(end_points);
    if (status == TGD_OK) {
        status = tgd_read_traces(report, lookup, request, err);
    }
    if (status == TGD_OK) {
        status = tgd_read_operands(report, err);
    }
    if (status == TGD_OK) {
        tgd_graph_seal(&report->graph);
        status = judge(report, request, err);
    }
    return status;
}

static tgd_report *new_report(const tgd_request *request, tgd_error *err)
{
    tgd_report *report = calloc(1, sizeof *report);
    if (report == NULL) {
        tgd_fail_memory(err);
        return NULL;
    }
    report->lost_input = TGD_NONE;
    report->has_parameters = request->parameters != NULL;
    report->has_inputs = request->inputs != NULL;
    report->create_graph = request->create_graph != 0;
    report->captures = request->captures != 0;
    report->attempted = request->attempted != 0;
    report->asked = request->asked;
    return report;
}

tgd_status tgd_report_capture(tgd_report **out, const tgd_request *request, tgd_error *err)
{
    tgd_status status = check(request, err);
    if (status != TGD_OK) {
        return status;
    }
    tgd_report *report = new_report(request, err);
    if (report == NULL) {
        return TGD_ENOMEM;
    }
    report->live = true;
    report->resolve = request->resolve;
    if (request->record != NULL) {
        tgd_record_keep(request->record);
        report->record = request->record;
        report->recorded = true;
    }
    tgd_lookup lookup = {0};
    status = request->refusal == NULL ? TGD_OK : tgd_keep_refusal(report, request->refusal, err);
    if (status == TGD_OK) {
        status = tgd_values_keep(report, request->values, err);
    }
    if (status == TGD_OK) {
        status = make(report, &lookup, request, err);
    }
    tgd_lookup_clear(&lookup);
    report->live = false;
    if (status != TGD_OK) {
        tgd_report_free(report);
        return status;
    }
    *out = report;
    return TGD_OK;
}

static tgd_status copy_order(tgd_report *to, const tgd_report *from, tgd_error *err)
{
    size_t n = from->graph.n_nodes;
    to->n_executed = to->first_error = from->n_executed;
    to->depth = from->depth;
    if (n == 0) {
        return TGD_OK;
    }
    to->order = malloc(n * sizeof *to->order);
    to->sequence = malloc(n * sizeof *to->sequence);
    if (to->order == NULL || to->sequence == NULL) {
        return tgd_fail_memory(err);
    }
    memcpy(to->order, from->order, n * sizeof *to->order);
    memcpy(to->sequence, from->sequence, from->n_executed * sizeof *to->sequence);
    return TGD_OK;
}

/* Where nobody gives others, the parameters stay as they were read: the tensors may be gone. */
static tgd_status copy_parameters(tgd_report *to, const tgd_report *from, tgd_error *err)
{
    size_t n = from->n_parameters, n_leaves = from->graph.n_leaves;
    to->has_parameters = from->has_parameters;
    to->leaf_parameter = malloc((n_leaves + 1) * sizeof *to->leaf_parameter);
    to->parameters = n == 0 ? NULL : malloc(n * sizeof *to->parameters);
    if (to->leaf_parameter == NULL || (to->parameters == NULL && n > 0)) {
        return tgd_fail_memory(err);
    }
    memcpy(to->leaf_parameter, from->leaf_parameter, n_leaves * sizeof *to->leaf_parameter);
    for (uint32_t i = 0; i < n; i++) {
        to->parameters[i] = from->parameters[i];
        to->parameters[i].name = copy_of(from->parameters[i].name);
        if (to->parameters[i].name == NULL) {
            return tgd_fail_memory(err);
        }
        to->n_parameters++;
    }
    return TGD_OK;
}

static tgd_status remake(tgd_report *report, const tgd_report *from, const tgd_request *request, tgd_error *err)
{
    tgd_lookup lookup = {0};
    tgd_status status = copy_order(report, from, err);
    for (uint32_t i = 0; i < report->graph.n_leaves && status == TGD_OK; i++) {
        uint32_t *known = tgd_address_map_at(&lookup.leaves, report->graph.leaves[i].tensor);
        if (known == NULL) {
            status = tgd_fail_memory(err);
        } else {
            *known = i;
        }
    }
    if (status == TGD_OK && request->parameters == NULL) {
        status = copy_parameters(report, from, err);
    } else if (status == TGD_OK) {
        status = read_parameters(report, &lookup, request, err);
    }
    tgd_lookup_clear(&lookup);
    if (status == TGD_OK) {
        status = tgd_copy_traces(report, from, err);
    }
    if (status == TGD_OK) {
        status = tgd_copy_operands(report, from, err);
    }
    return status == TGD_OK ? judge(report, request, err) : status;
}

static tgd_status keep_aftermath(tgd_report *report, const tgd_aftermath *aftermath, tgd_error *err)
{
    if (aftermath->n_events > 0) {
        report->events = malloc(aftermath->n_events * sizeof *report->events);
        if (report->events == NULL) {
            return tgd_fail_memory(err);
        }
        memcpy(report->events, aftermath->events, aftermath->n_events * sizeof *report->events);
        report->n_events = aftermath->n_events;
    }
    return TGD_OK;
}

tgd_status tgd_report_rejudge(tgd_report **out, const tgd_report *report, const tgd_request *request, tgd_error *err)
{
    const tgd_values before = {.ran = report->ran, .raised = report->raised, .occasion = report->occasion};
    const tgd_values *values = request->values == NULL ? &before : request->values;
    tgd_request only = {.parameters = request->parameters, .n_parameters = request->n_parameters,
                        .create_graph = report->create_graph, .captures = report->captures, .asked = report->asked,
                        .attempted = report->attempted, .census = request->census, .values = values};
    tgd_report *made = new_report(&only, err);
    if (made == NULL) {
        return TGD_ENOMEM;
    }
    made->has_inputs = report->has_inputs;
    made->lost_input = report->lost_input;
    made->resolve = report->resolve;
    tgd_status status = tgd_graph_share(&made->graph, &report->graph, err);
    if (status != TGD_OK) {
        tgd_report_free(made);
        return status;
    }
    if (report->record != NULL) {
        tgd_record_keep(report->record);
        made->record = report->record;
        made->recorded = true;
    }
    const tgd_aftermath known = {.events = report->events, .n_events = report->n_events};
    status = keep_aftermath(made, request->aftermath != NULL ? request->aftermath : &known, err);
    if (status == TGD_OK && report->refused) {
        status = tgd_keep_refusal(made, &report->refusal, err);
    }
    if (request->record != NULL) {
        tgd_record_keep(request->record);
        made->later = request->record;
    }
    if (report->measures != NULL) {
        tgd_measures_keep(report->measures);
        made->measures = report->measures;
    }
    if (status == TGD_OK) {
        status = tgd_values_keep(made, values, err);
    }
    if (status == TGD_OK) {
        status = remake(made, report, &only, err);
    }
    if (status != TGD_OK) {
        tgd_report_free(made);
        return status;
    }
    *out = made;
    return TGD_OK;
}

void tgd_report_measure(const tgd_report *report, const tgd_measures *measures)
{
    const tgd_measures *none = NULL;
    tgd_measures_keep(measures);
    if (!__atomic_compare_exchange_n(&((tgd_report *)report)->measures, &none, measures, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        tgd_measures_free(measures);
    }
}

void tgd_report_free(tgd_report *report)
{
    if (report == NULL) {
        return;
    }
    tgd_graph_clear(&report->graph);
    tgd_record_free(report->record);
    tgd_record_free(report->later);
    for (uint32_t i = 0; i < report->n_facts; i++) {
        free(report->facts[i].name);
    }
    free(report->facts);
    tgd_measures_free(report->measures);
    free(report->refused_message);
    tgd_values_clear(report);
    free(report->events);
    for (uint32_t i = 0; i < report->n_sources; i++) {
        free(report->sources[i].file);
        free(report->sources[i].function);
        free(report->sources[i].module);
        free(report->sources[i].module_class);
    }
    free(report->sources);
    free(report->operands);
    free(report->node_forward);
    free(report->node_where);
    free(report->node_op);
    free(report->node_made_by);
    free(report->torch);
    for (uint32_t i = 0; i < report->n_findings && report->words != NULL; i++) {
        free(report->words[i].message);
        free(report->words[i].hint);
    }
    free(report->words);
    for (uint32_t i = 0; i < report->n_parameters; i++) {
        free(report->parameters[i].name);
    }
    free(report->parameters);
    free(report->findings);
    free(report->order);
    free(report->sequence);
    free(report->leaf_parameter);
    free(report->verdict);
    free(report);
}

const char *tgd_report_verdict(const tgd_report *report)
{
    return report->verdict;
}

int tgd_report_ok(const tgd_report *report)
{
    return report->n_errors == 0 && report->n_warnings == 0;
}

void tgd_report_summary(const tgd_report *report, tgd_summary *out)
{
    const tgd_graph *graph = &report->graph;
    *out = (tgd_summary){
        .n_nodes = graph->n_nodes,
        .n_edges = graph->n_edges,
        .n_null_edges = graph->n_null_edges,
        .n_roots = graph->n_roots,
        .n_leaves = graph->n_leaves,
        .depth = report->depth,
        .n_executed = report->n_executed,
        .n_executed_to_error = report->first_error,
        .n_parameters = report->n_parameters,
    };
    for (uint32_t i = 0; i < graph->n_saved; i++) {
        out->n_saved += (graph->saved[i].flags & (TGD_SV_EMPTY | TGD_SV_RELEASED_FLAG)) == 0;
        out->n_unchecked += graph->saved[i].state == TGD_SAVED_HOOKED || graph->saved[i].state == TGD_SAVED_UNCHECKED;
    }
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        out->n_unchecked += (graph->nodes[i].flags & (TGD_ROW_BUSY | TGD_ROW_OPAQUE)) != 0;
    }
    for (uint32_t i = 0; i < graph->n_storages; i++) {
        if (graph->storages[i].leaf != TGD_NONE) {
            out->leaf_bytes += graph->storages[i].bytes;
        } else if (graph->storages[i].saved) {
            out->saved_bytes += graph->storages[i].bytes;
        }
    }
    for (uint32_t i = 0; i < report->n_parameters; i++) {
        const tgd_parameter_row *parameter = &report->parameters[i];
        out->n_parameters_reached += parameter->reached;
        out->n_parameters_frozen += !(parameter->flags & TGD_TENSOR_REQUIRES_GRAD) && parameter->leaf == TGD_NONE;
    }
    out->snapshot_bytes = sizeof *report + tgd_graph_bytes(graph) +
                          2 * (uint64_t)graph->n_nodes * sizeof *report->order +
                          graph->n_leaves * sizeof *report->leaf_parameter +
                          report->n_parameters * sizeof *report->parameters +
                          report->finding_capacity * sizeof *report->findings;
    if (report->snapshot_bytes != 0) {
        out->snapshot_bytes = report->snapshot_bytes;
    }
}

static void describe(const tgd_graph *graph, int dtype, int device_type, int device_index, int layout, uint32_t shape,
                     tgd_tensor_info *out)
{
    *out = (tgd_tensor_info){
        .dtype = tgd_torch_dtype_name(dtype),
        .device = tgd_torch_device_name(device_type),
        .device_index = device_index,
        .layout = tgd_torch_layout_name(layout),
        .contiguous = -1,
    };
    out->sizes = tgd_graph_shape(graph, shape, &out->ndim);
}

size_t tgd_report_n_nodes(const tgd_report *report)
{
    return report->graph.n_nodes;
}

void tgd_report_node(const tgd_report *report, tgd_node node, tgd_node_info *out)
{
    const tgd_graph *graph = &report->graph;
    assert(node < graph->n_nodes);
    const tgd_node_row *row = &graph->nodes[node];
    const tgd_type_row *type = &graph->types[row->type];
    *out = (tgd_node_info){
        .name = type->name,
        .kind = type->kind,
        .inner = row->inner_type == TGD_NONE ? NULL : graph->types[row->inner_type].name,
        .address = row->address,
        .sequence_nr = row->sequence_nr,
        .thread_id = row->thread_id,
        .n_edges = row->n_edges,
        .n_inputs = row->n_inputs,
        .n_saved = row->n_saved,
        .order = report->order[node] == TGD_NONE ? SIZE_MAX : report->order[node],
        .requires_grad = 1,
        .unchecked = (row->flags & (TGD_ROW_BUSY | TGD_ROW_OPAQUE)) != 0,
    };
    if (row->hooks != TGD_NONE) {
        out->n_pre_hooks = graph->hooks[row->hooks].pre;
        out->n_tensor_pre_hooks = graph->hooks[row->hooks].tensor_pre;
        out->n_retain_grad_hooks = graph->hooks[row->hooks].retain_grad;
        out->n_post_hooks = graph->hooks[row->hooks].post;
    }
    if (row->leaf != TGD_NONE) {
        uint32_t parameter = report->leaf_parameter[row->leaf];
        out->parameter = parameter == TGD_NONE ? NULL : report->parameters[parameter].name;
        out->requires_grad = (graph->leaves[row->leaf].flags & TGD_TENSOR_REQUIRES_GRAD) != 0;
    }
}

tgd_edge tgd_report_edge(const tgd_report *report, tgd_node node, size_t k)
{
    assert(node < report->graph.n_nodes && k < report->graph.nodes[node].n_edges);
    return report->graph.edges[report->graph.nodes[node].first_edge + k];
}

void tgd_report_input(const tgd_report *report, tgd_node node, size_t k, tgd_tensor_info *out)
{
    const tgd_graph *graph = &report->graph;
    assert(node < graph->n_nodes && k < graph->nodes[node].n_inputs);
    const tgd_input_row *row = &graph->inputs[graph->nodes[node].first_input + k];
    describe(graph, row->dtype, row->device_type, row->device_index, row->layout, row->shape, out);
}

tgd_node tgd_report_root(const tgd_report *report, size_t r)
{
    assert(r < report->graph.n_roots);
    return report->graph.roots[r].node;
}

void tgd_report_saved(const tgd_report *report, tgd_node node, size_t k, tgd_saved_info *out)
{
    const tgd_graph *graph = &report->graph;
    assert(node < graph->n_nodes && k < graph->nodes[node].n_saved);
    const tgd_saved_row *row = &graph->saved[graph->nodes[node].first_saved + k];
    int64_t numel = tgd_graph_numel(graph, row->shape);
    *out = (tgd_saved_info){
        .name = row->name,
        .index = row->index,
        .state = (tgd_saved_state)row->state,
        .bytes = numel > 0 ? (uint64_t)numel * row->itemsize : 0,
        .saved_version = row->saved_version,
        .current_version = row->version,
        .is_output = (row->flags & TGD_SV_OUTPUT) != 0,
        .is_leaf = (row->flags & TGD_SV_LEAF) != 0,
        .has_hooks = (row->flags & TGD_SV_HOOKS) != 0,
    };
    describe(graph, row->dtype, row->device_type, row->device_index, row->layout, row->shape, &out->tensor);
    int n_strides;
    out->tensor.strides = tgd_graph_shape(graph, row->strides, &n_strides);
    if (row->tensor_flags & TGD_TENSOR_DEFINED && row->strides != TGD_NONE) {
        out->tensor.contiguous = (row->tensor_flags & TGD_TENSOR_CONTIGUOUS) != 0;
    }
    if (row->storage != TGD_NONE) {
        out->storage = graph->storages[row->storage].address;
        out->storage_bytes = graph->storages[row->storage].bytes;
    }
}

size_t tgd_report_n_findings(const tgd_report *report)
{
    return report->n_findings;
}

void tgd_report_finding(const tgd_report *report, size_t i, tgd_finding_info *out)
{
    assert(i < report->n_findings);
    const tgd_finding_row *row = &report->findings[i];
    *out = (tgd_finding_info){
        .kind = (tgd_finding_kind)row->kind,
        .severity = (tgd_severity)row->severity,
        .node = row->node,
        .saved = row->saved == TGD_NONE ? SIZE_MAX : row->saved - report->graph.nodes[row->node].first_saved,
        .parameter = row->parameter == TGD_NONE ? NULL : report->parameters[row->parameter].name,
        .reason = (tgd_reason)row->reason,
        .root = row->root == TGD_NONE ? SIZE_MAX : row->root,
        .group = row->group,
    };
}

static int describe_source(const tgd_report *report, uint32_t where, tgd_source_info *out)
{
    if (where == TGD_NONE) {
        return 0;
    }
    const tgd_source_row *row = &report->sources[where];
    *out = (tgd_source_info){
        .file = row->file,
        .function = row->function,
        .module = row->module,
        .module_class = row->module_class,
        .line = row->line,
    };
    return 1;
}

int tgd_report_finding_where(const tgd_report *report, size_t i, tgd_source_info *out)
{
    assert(i < report->n_findings);
    return describe_source(report, report->findings[i].where, out);
}

const char *tgd_report_finding_op(const tgd_report *report, size_t i)
{
    assert(i < report->n_findings);
    return report->findings[i].op;
}

int tgd_report_node_where(const tgd_report *report, tgd_node node, tgd_source_info *out)
{
    assert(node < report->graph.n_nodes);
    return report->node_where == NULL ? 0 : describe_source(report, report->node_where[node], out);
}

static size_t describe_stack(const tgd_report *report, uint32_t where, tgd_source_info *frames, size_t n)
{
    size_t depth = 0;
    for (; where != TGD_NONE; where = report->sources[where].caller - 1) { /* 0 - 1 is TGD_NONE */
        if (depth < n) {
            describe_source(report, where, &frames[depth]);
        }
        depth++;
    }
    return depth;
}

size_t tgd_report_finding_stack(const tgd_report *report, size_t i, tgd_source_info *frames, size_t n)
{
    assert(i < report->n_findings);
    return describe_stack(report, report->findings[i].where, frames, n);
}

size_t tgd_report_node_stack(const tgd_report *report, tgd_node node, tgd_source_info *frames, size_t n)
{
    assert(node < report->graph.n_nodes);
    return report->node_where == NULL ? 0 : describe_stack(report, report->node_where[node], frames, n);
}

tgd_node tgd_report_node_made_by(const tgd_report *report, tgd_node node)
{
    assert(node < report->graph.n_nodes);
    tgd_node made_by = report->node_made_by == NULL ? TGD_NONE : report->node_made_by[node];
    return made_by == TGD_NODE_ELSEWHERE ? TGD_NONE : made_by;
}

const char *tgd_built_for(void)
{
    return tgd_torch_built_for();
}
