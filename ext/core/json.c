/* The report as JSON, schema "torchgraphdbg/report" version 1 (README, "JSON"). Everything that the accessors of
   tgd.h show is in it; absent values are null. Streamed: memory does not grow with the graph. */
#include "json_measures.h"
#include "judge.h"

enum { SCHEMA_VERSION = 1 };

/* `first` is true before the first member of an object or array. */
static void key(tgd_text *text, bool *first, const char *name)
{
    tgd_text_str(text, *first ? "" : ", ");
    *first = false;
    tgd_text_json(text, name);
    tgd_text_str(text, ": ");
}

static void string(tgd_text *text, bool *first, const char *name, const char *value)
{
    key(text, first, name);
    if (value == NULL) {
        tgd_text_str(text, "null");
    } else {
        tgd_text_json(text, value);
    }
}

static void number(tgd_text *text, bool *first, const char *name, uint64_t value)
{
    key(text, first, name);
    tgd_text_printf(text, "%llu", (unsigned long long)value);
}

static void number_or_null(tgd_text *text, bool *first, const char *name, uint64_t value, bool present)
{
    if (present) {
        number(text, first, name, value);
    } else {
        key(text, first, name);
        tgd_text_str(text, "null");
    }
}

/* An identity that may not fit the 53 bits which every JSON reader keeps exactly: then a string of its digits. */
static void identity(tgd_text *text, bool *first, const char *name, uint64_t value)
{
    const char *quote = value > UINT64_C(1) << 53 ? "\"" : "";
    key(text, first, name);
    if (value == 0) {
        tgd_text_str(text, "null");
    } else {
        tgd_text_printf(text, "%s%llu%s", quote, (unsigned long long)value, quote);
    }
}

static void boolean(tgd_text *text, bool *first, const char *name, bool value)
{
    key(text, first, name);
    tgd_text_str(text, value ? "true" : "false");
}

static void list(tgd_text *text, bool *first, const char *name, const int64_t *numbers, int n)
{
    key(text, first, name);
    if (n < 0 || (numbers == NULL && n > 0)) {
        tgd_text_str(text, "null");
        return;
    }
    tgd_text_str(text, "[");
    for (int i = 0; i < n; i++) {
        tgd_text_printf(text, "%s%lld", i > 0 ? ", " : "", (long long)numbers[i]);
    }
    tgd_text_str(text, "]");
}

static void tensor(tgd_text *text, bool *first, const tgd_tensor_info *info)
{
    list(text, first, "shape", info->sizes, info->ndim);
    string(text, first, "dtype", info->dtype[0] != '\0' ? info->dtype : NULL);
    key(text, first, "device");
    if (info->device[0] == '\0') {
        tgd_text_str(text, "null");
    } else if (info->device_index >= 0) {
        tgd_text_printf(text, "\"%s:%d\"", info->device, info->device_index);
    } else {
        tgd_text_printf(text, "\"%s\"", info->device);
    }
    string(text, first, "layout", info->layout[0] != '\0' ? info->layout : NULL);
}

/* A place in the source, or null where no recorder saw it. Its caller is a row of "sources". */
static void source(tgd_text *text, const tgd_report *report, uint32_t where)
{
    if (where == TGD_NONE) {
        tgd_text_str(text, "null");
        return;
    }
    const tgd_source_row *row = &report->sources[where];
    bool first = true;
    tgd_text_str(text, "{");
    string(text, &first, "file", row->file);
    number_or_null(text, &first, "line", (uint64_t)row->line, row->line > 0);
    string(text, &first, "function", row->function[0] != '\0' ? row->function : NULL);
    string(text, &first, "module", row->module[0] != '\0' ? row->module : NULL);
    string(text, &first, "module_class", row->module_class[0] != '\0' ? row->module_class : NULL);
    number_or_null(text, &first, "caller", (uint64_t)row->caller - 1, row->caller != 0);
    tgd_text_str(text, "}");
}

static void write_saved(tgd_text *text, const tgd_report *report, tgd_node v, size_t k)
{
    tgd_saved_info saved;
    tgd_report_saved(report, v, k, &saved);
    bool first = true;
    tgd_text_str(text, k > 0 ? ", {" : "{");
    string(text, &first, "name", saved.name);
    number_or_null(text, &first, "index", (uint64_t)saved.index, saved.index >= 0);
    string(text, &first, "state", tgd_saved_state_slug(saved.state));
    tensor(text, &first, &saved.tensor);
    list(text, &first, "strides", saved.tensor.strides, saved.tensor.strides == NULL ? -1 : saved.tensor.ndim);
    key(text, &first, "contiguous");
    tgd_text_str(text, saved.tensor.contiguous < 0 ? "null" : saved.tensor.contiguous ? "true" : "false");
    number(text, &first, "bytes", saved.bytes);
    identity(text, &first, "storage", saved.storage);
    number_or_null(text, &first, "storage_bytes", saved.storage_bytes, saved.storage != 0);
    number(text, &first, "saved_version", saved.saved_version);
    number(text, &first, "version", saved.current_version);
    boolean(text, &first, "is_output", saved.is_output != 0);
    boolean(text, &first, "is_leaf", saved.is_leaf != 0);
    boolean(text, &first, "has_hooks", saved.has_hooks != 0);
    const tgd_node_row *node = &report->graph.nodes[v];
    boolean(text, &first, "is_mark", (report->graph.saved[node->first_saved + k].flags & TGD_SV_RELEASED_FLAG) != 0);
    tgd_text_str(text, "}");
}

/* The leaf behind an AccumulateGrad as it is now; null for any other node. */
static void write_leaf(tgd_text *text, const tgd_graph *graph, uint32_t leaf)
{
    if (leaf == TGD_NONE) {
        tgd_text_str(text, "null");
        return;
    }
    const tgd_leaf_row *row = &graph->leaves[leaf];
    tgd_tensor_info info = {.dtype = tgd_torch_dtype_name(row->dtype), .device = tgd_torch_device_name(row->device_type),
                            .device_index = row->device_index, .layout = tgd_torch_layout_name(row->layout)};
    info.sizes = tgd_graph_shape(graph, row->shape, &info.ndim);
    const tgd_storage_row *storage = row->storage == TGD_NONE ? NULL : &graph->storages[row->storage];
    bool first = true;
    tgd_text_str(text, "{");
    tensor(text, &first, &info);
    number_or_null(text, &first, "elements", (uint64_t)row->numel, row->numel >= 0);
    identity(text, &first, "storage", storage == NULL ? 0 : storage->address);
    number_or_null(text, &first, "storage_bytes", storage == NULL ? 0 : storage->bytes, storage != NULL);
    tgd_text_str(text, "}");
}

static void write_node(tgd_text *text, const tgd_report *report, tgd_node v)
{
    tgd_node_info node;
    tgd_report_node(report, v, &node);
    bool first = true;
    tgd_text_str(text, v > 0 ? ",\n  {" : "\n  {");
    string(text, &first, "name", node.name);
    string(text, &first, "kind", tgd_node_kind_slug(node.kind));
    string(text, &first, "inner", node.inner);
    number_or_null(text, &first, "sequence_nr", node.sequence_nr, node.sequence_nr != UINT64_MAX);
    number(text, &first, "thread", node.thread_id);
    number_or_null(text, &first, "order", node.order, node.order != SIZE_MAX);
    string(text, &first, "parameter", node.parameter);
    key(text, &first, "where");
    source(text, report, report->node_where == NULL ? TGD_NONE : report->node_where[v]);
    tgd_node made_by = tgd_report_node_made_by(report, v);
    number_or_null(text, &first, "made_by", made_by, made_by != TGD_NONE);
    boolean(text, &first, "requires_grad", node.requires_grad != 0);
    boolean(text, &first, "unchecked", node.unchecked != 0);
    key(text, &first, "hooks");
    tgd_text_printf(text, "[%zu, %zu, %zu, %zu]", node.n_pre_hooks, node.n_tensor_pre_hooks, node.n_retain_grad_hooks,
                    node.n_post_hooks);
    key(text, &first, "edges");
    tgd_text_str(text, "[");
    for (size_t k = 0; k < node.n_edges; k++) {
        tgd_edge edge = tgd_report_edge(report, v, k);
        if (edge.to == TGD_NONE) {
            tgd_text_str(text, k > 0 ? ", null" : "null");
        } else {
            tgd_text_printf(text, "%s[%lu, %lu]", k > 0 ? ", " : "", (unsigned long)edge.to,
                            (unsigned long)edge.input_nr);
        }
    }
    tgd_text_str(text, "]");
    key(text, &first, "inputs");
    tgd_text_str(text, "[");
    for (size_t k = 0; k < node.n_inputs; k++) {
        tgd_tensor_info input;
        bool first_input = true;
        tgd_report_input(report, v, k, &input);
        tgd_text_str(text, k > 0 ? ", {" : "{");
        tensor(text, &first_input, &input);
        tgd_text_str(text, "}");
    }
    tgd_text_str(text, "]");
    key(text, &first, "saved");
    tgd_text_str(text, "[");
    for (size_t k = 0; k < node.n_saved; k++) {
        write_saved(text, report, v, k);
    }
    tgd_text_str(text, "]");
    key(text, &first, "leaf");
    write_leaf(text, &report->graph, report->graph.nodes[v].leaf);
    tgd_text_str(text, "}");
}

typedef void (*phrase)(tgd_text *text, const tgd_report *report, size_t finding);

static void sentence(tgd_text *text, bool *first, const char *name, const tgd_report *report, size_t i, phrase write)
{
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    write(&words, report, i);
    const char *s = tgd_text_words(text, &words);
    string(text, first, name, s[0] != '\0' ? s : NULL);
    tgd_text_drop(&words);
}

static void write_finding(tgd_text *text, const tgd_report *report, size_t i)
{
    tgd_finding_info finding;
    tgd_report_finding(report, i, &finding);
    bool first = true, has_saved = finding.saved != SIZE_MAX;
    tgd_saved_info saved = {.index = -1};
    if (has_saved) {
        tgd_report_saved(report, finding.node, finding.saved, &saved);
    }
    tgd_text_str(text, i > 0 ? ",\n  {" : "\n  {");
    string(text, &first, "kind", tgd_finding_slug(finding.kind));
    string(text, &first, "severity", tgd_severity_slug(finding.severity));
    sentence(text, &first, "message", report, i, tgd_message_write);
    sentence(text, &first, "hint", report, i, tgd_hint_write);
    number_or_null(text, &first, "node", finding.node, finding.node != TGD_NONE);
    string(text, &first, "saved", has_saved ? saved.name : NULL);
    number_or_null(text, &first, "saved_index", (uint64_t)saved.index, saved.index >= 0);
    string(text, &first, "parameter", finding.parameter);
    string(text, &first, "reason", tgd_reason_slug(finding.reason));
    number_or_null(text, &first, "root", finding.root, finding.root != SIZE_MAX);
    number(text, &first, "group", finding.group);
    string(text, &first, "op", tgd_report_finding_op(report, i));
    key(text, &first, "where");
    source(text, report, report->findings[i].where);
    boolean(text, &first, "culprit", report->findings[i].culprit);
    boolean(text, &first, "unsure", report->findings[i].unsure);
    number_or_null(text, &first, "saved_place", finding.saved, has_saved);
    tgd_text_str(text, "}");
}

static void write_summary(tgd_text *text, const tgd_report *report)
{
    tgd_summary summary;
    tgd_report_summary(report, &summary);
    bool first = true;
    tgd_text_str(text, "{");
    number(text, &first, "nodes", summary.n_nodes);
    number(text, &first, "edges", summary.n_edges);
    number(text, &first, "null_edges", summary.n_null_edges);
    number(text, &first, "roots", summary.n_roots);
    number(text, &first, "leaves", summary.n_leaves);
    number(text, &first, "depth", summary.depth);
    number(text, &first, "saved_tensors", summary.n_saved);
    number(text, &first, "saved_bytes", summary.saved_bytes);
    number(text, &first, "leaf_bytes", summary.leaf_bytes);
    number(text, &first, "executed", summary.n_executed);
    number(text, &first, "executed_to_error", summary.n_executed_to_error);
    number(text, &first, "parameters", summary.n_parameters);
    number(text, &first, "parameters_reached", summary.n_parameters_reached);
    number(text, &first, "parameters_frozen", summary.n_parameters_frozen);
    number(text, &first, "unchecked", summary.n_unchecked);
    number(text, &first, "snapshot_bytes", summary.snapshot_bytes);
    tgd_text_str(text, "}");
}

/* What the report was asked for. */
static void write_asked(tgd_text *text, const tgd_report *report)
{
    bool first = true;
    tgd_text_str(text, "{");
    boolean(text, &first, "params", report->has_parameters);
    boolean(text, &first, "inputs", report->has_inputs);
    boolean(text, &first, "create_graph", report->create_graph);
    tgd_text_str(text, "}");
}

static void write_root(tgd_text *text, const tgd_report *report, uint32_t r)
{
    const tgd_root_row *root = &report->graph.roots[r];
    bool first = true;
    tgd_text_str(text, r > 0 ? ", {" : "{");
    number_or_null(text, &first, "node", root->node, root->node != TGD_NONE);
    number(text, &first, "output_nr", root->output_nr);
    int ndim;
    const int64_t *sizes = tgd_graph_shape(&report->graph, root->shape, &ndim);
    list(text, &first, "shape", sizes, ndim);
    const char *dtype = tgd_torch_dtype_name(root->dtype);
    string(text, &first, "dtype", dtype[0] != '\0' ? dtype : NULL);
    tgd_text_str(text, "}");
}

static void write_parameter(tgd_text *text, const tgd_report *report, uint32_t i)
{
    const tgd_parameter_row *row = &report->parameters[i];
    bool first = true;
    tgd_text_str(text, i > 0 ? ",\n  {" : "\n  {");
    string(text, &first, "name", row->name);
    int ndim;
    const int64_t *sizes = tgd_graph_shape(&report->graph, row->shape, &ndim);
    list(text, &first, "shape", sizes, ndim);
    boolean(text, &first, "requires_grad", (row->flags & TGD_TENSOR_REQUIRES_GRAD) != 0);
    boolean(text, &first, "reached", row->reached);
    number_or_null(text, &first, "node", row->leaf == TGD_NONE ? 0 : report->graph.leaves[row->leaf].node,
                   row->leaf != TGD_NONE);
    tgd_text_str(text, "}");
}

tgd_status tgd_json_write(const tgd_report *report, tgd_sink sink, void *context, tgd_error *err)
{
    tgd_text text;
    bool first = true;
    tgd_text_init(&text, sink, context);
    tgd_text_str(&text, "{");
    string(&text, &first, "schema", "torchgraphdbg/report");
    number(&text, &first, "schema_version", SCHEMA_VERSION);
    string(&text, &first, "torch", report->torch != NULL ? report->torch : tgd_torch_built_for());
    string(&text, &first, "verdict", report->verdict);
    boolean(&text, &first, "ok", tgd_report_ok(report) != 0);
    string(&text, &first, "raised", report->raised);
    string(&text, &first, "occasion", report->occasion);
    boolean(&text, &first, "recorded", report->recorded);
    boolean(&text, &first, "roots_refused", report->root_fails);
    key(&text, &first, "asked");
    write_asked(&text, report);
    key(&text, &first, "summary");
    write_summary(&text, report);
    tgd_text_str(&text, ",\n \"findings\": [");
    for (size_t i = 0; i < report->n_findings; i++) {
        write_finding(&text, report, i);
    }
    tgd_text_str(&text, "],\n \"parameters\": [");
    for (uint32_t i = 0; i < report->n_parameters; i++) {
        write_parameter(&text, report, i);
    }
    tgd_text_str(&text, "],\n \"roots\": [");
    for (uint32_t r = 0; r < report->graph.n_roots; r++) {
        write_root(&text, report, r);
    }
    tgd_text_str(&text, "],\n \"sources\": [");
    for (uint32_t i = 0; i < report->n_sources; i++) {
        tgd_text_str(&text, i > 0 ? ",\n  " : "\n  ");
        source(&text, report, i);
    }
    tgd_text_str(&text, "],\n \"nodes\": [");
    for (tgd_node v = 0; v < report->graph.n_nodes; v++) {
        write_node(&text, report, v);
    }
    tgd_text_str(&text, "],\n \"measures\": ");
    tgd_json_measures(&text, report);
    tgd_text_str(&text, "}\n");
    return tgd_text_finish(&text, err);
}
