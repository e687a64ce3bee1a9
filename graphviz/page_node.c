/* What the page says about one node. Absent members are left out; nothing in it tells one process from another. */
#include "page.h"

#include <string.h>

enum { MOST_NAME = 160, MOST_PATH = 1000, MOST_TENSORS = 12 };

void tgd_page_key(tgd_text *out, bool *first, const char *name)
{
    tgd_text_printf(out, "%s\"%s\":", *first ? "" : ",", name);
    *first = false;
}

void tgd_page_string(tgd_text *out, const char *s, size_t most)
{
    tgd_text line;
    tgd_text_init(&line, NULL, NULL);
    tgd_text_line(&line, s, most);
    tgd_text_bytes(&line, "", 1);
    if (line.status == TGD_OK) {
        tgd_text_json(out, line.bytes);
    } else {
        out->status = out->status == TGD_OK ? line.status : out->status;
    }
    tgd_text_drop(&line);
}

void tgd_page_member(tgd_text *out, bool *first, const char *name, const char *s, size_t most)
{
    if (s != NULL && s[0] != '\0') {
        tgd_page_key(out, first, name);
        tgd_page_string(out, s, most);
    }
}

static void number(tgd_text *out, bool *first, const char *name, uint64_t value)
{
    tgd_page_key(out, first, name);
    tgd_text_printf(out, "%llu", (unsigned long long)value);
}

static void flag(tgd_text *out, bool *first, const char *name, bool value)
{
    if (value) {
        number(out, first, name, 1);
    }
}

uint32_t tgd_page_source(tgd_page_data *data, uint32_t where)
{
    if (data->source_at[where] == 0) {
        const tgd_source_row *row = &data->page->units->report->sources[where];
        size_t length = strlen(row->file);
        bool first = true;
        tgd_text_str(&data->sources, data->n_sources > 0 ? ",\n{" : "{");
        /* a path that had to be shortened leads nowhere: its end alone is no absolute path, and makes no link */
        tgd_page_member(&data->sources, &first, "file",
                        length > MOST_PATH ? row->file + length - MOST_NAME : row->file, MOST_PATH);
        if (length > MOST_PATH) {
            number(&data->sources, &first, "cut", 1);
        }
        if (row->line > 0) {
            number(&data->sources, &first, "line", (uint64_t)row->line);
        }
        tgd_page_member(&data->sources, &first, "function", row->function, MOST_NAME);
        tgd_page_member(&data->sources, &first, "module", row->module, MOST_NAME);
        tgd_page_member(&data->sources, &first, "class", row->module_class, MOST_NAME);
        tgd_text_str(&data->sources, "}");
        data->source_at[where] = ++data->n_sources;
    }
    return data->source_at[where] - 1;
}

static void shape(tgd_text *out, bool *first, const tgd_graph *graph, uint32_t row)
{
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    tgd_fold_shape(&words, graph, row);
    tgd_page_member(out, first, "shape", tgd_text_words(out, &words), MOST_NAME);
    tgd_text_drop(&words);
}

static void kinds(tgd_text *out, bool *first, int dtype, int device, int index, int layout)
{
    const char *name = tgd_torch_layout_name(layout);
    tgd_page_member(out, first, "dtype", tgd_torch_dtype_name(dtype), MOST_NAME);
    tgd_page_member(out, first, "device", tgd_torch_device_name(device), MOST_NAME);
    if (index >= 0 && tgd_torch_device_name(device)[0] != '\0') {
        number(out, first, "index", (uint64_t)index);
    }
    tgd_page_member(out, first, "layout", strcmp(name, "strided") == 0 ? "" : name, MOST_NAME);
}

static void write_gradient(tgd_text *out, bool *first, const tgd_gradient *gradient)
{
    const tgd_statistics *s = &gradient->values;
    if (!gradient->received || !gradient->measured) {
        if (gradient->received) {
            tgd_page_member(out, first, "unchecked", gradient->unchecked == NULL ? "not measured" : gradient->unchecked,
                            MOST_NAME);
        }
        flag(out, first, "none", !gradient->received && gradient->unchecked == NULL);
        return;
    }
    number(out, first, "elements", s->n);
    tgd_page_key(out, first, "rms");
    tgd_text_real(out, tgd_statistics_rms(s));
    tgd_page_key(out, first, "absmax");
    tgd_text_real(out, s->absmax);
    if (s->n_zero > 0) {
        number(out, first, "zeros", s->n_zero);
    }
    if (s->n_nan > 0) {
        number(out, first, "nan", s->n_nan);
    }
    if (s->n_inf > 0) {
        number(out, first, "inf", s->n_inf);
    }
}

static void write_inputs(tgd_text *out, const tgd_report *report, const tgd_node_row *row)
{
    const tgd_graph *graph = &report->graph;
    for (uint32_t k = 0; k < row->n_inputs && k < MOST_TENSORS; k++) {
        const tgd_input_row *input = &graph->inputs[row->first_input + k];
        bool first = true;
        tgd_text_str(out, k > 0 ? ",{" : "{");
        shape(out, &first, graph, input->shape);
        kinds(out, &first, input->dtype, input->device_type, input->device_index, input->layout);
        if (report->measures != NULL && row->first_input + k < report->measures->n_inputs) {
            write_gradient(out, &first, &report->measures->inputs[row->first_input + k]);
        }
        tgd_text_str(out, "}");
    }
}

static void write_saved(tgd_text *out, const tgd_report *report, tgd_node v, size_t n)
{
    const tgd_node_row *row = &report->graph.nodes[v];
    for (size_t k = 0; k < n && k < MOST_TENSORS; k++) {
        const tgd_saved_row *saved = &report->graph.saved[row->first_saved + k];
        tgd_saved_info info;
        bool first = true;
        tgd_report_saved(report, v, k, &info);
        tgd_text_str(out, k > 0 ? ",{" : "{");
        tgd_page_member(out, &first, "name", info.name, MOST_NAME);
        if (info.index >= 0) {
            number(out, &first, "at", (uint64_t)info.index);
        }
        tgd_page_member(out, &first, "state", tgd_saved_state_slug(info.state), MOST_NAME);
        shape(out, &first, &report->graph, saved->shape);
        kinds(out, &first, saved->dtype, saved->device_type, saved->device_index, saved->layout);
        tgd_page_key(out, &first, "v");
        tgd_text_printf(out, "[%lu,%lu]", (unsigned long)info.saved_version, (unsigned long)info.current_version);
        number(out, &first, "bytes", info.bytes);
        flag(out, &first, "output", info.is_output != 0);
        flag(out, &first, "leaf", info.is_leaf != 0);
        flag(out, &first, "hooks", info.has_hooks != 0);
        flag(out, &first, "strided", info.tensor.contiguous == 0);
        tgd_text_str(out, "}");
    }
}

static void write_time(tgd_text *out, const tgd_measure_row *row)
{
    bool first = true;
    tgd_text_str(out, "{");
    number(out, &first, "self", row->self_ns);
    number(out, &first, "total", row->total_ns);
    if (row->on_device.known) {
        number(out, &first, "device", row->on_device.ended - row->on_device.began);
    }
    if (row->repeats > 1) {
        number(out, &first, "median", row->median_self_ns);
        number(out, &first, "repeats", row->repeats);
    }
    flag(out, &first, "first", row->first_use);
    tgd_text_str(out, "}");
}

static void write_leaf(tgd_text *out, const tgd_report *report, uint32_t leaf)
{
    const tgd_leaf_row *row = &report->graph.leaves[leaf];
    bool first = true;
    tgd_text_str(out, "{");
    if (report->leaf_parameter[leaf] != TGD_NONE) {
        tgd_page_member(out, &first, "parameter", report->parameters[report->leaf_parameter[leaf]].name, MOST_NAME);
    }
    shape(out, &first, &report->graph, row->shape);
    kinds(out, &first, row->dtype, row->device_type, row->device_index, row->layout);
    tgd_text_str(out, "}");
}

void tgd_page_node_write(tgd_text *out, tgd_page_data *data, tgd_node v)
{
    const tgd_units *units = data->page->units;
    const tgd_report *report = units->report;
    const tgd_node_row *row = &report->graph.nodes[v];
    const tgd_measures *measures = report->measures;
    const uint32_t at = data->place[v] - 1;
    tgd_node_info info;
    bool first = true;
    tgd_report_node(report, v, &info);
    tgd_text_printf(out, "{\"id\":%lu,\"name\":", (unsigned long)v);
    first = false;
    tgd_page_string(out, info.name, MOST_NAME);
    tgd_page_member(out, &first, "kind", tgd_node_kind_slug(info.kind), MOST_NAME);
    tgd_page_member(out, &first, "inner", info.inner, MOST_NAME);
    if (units->unit_of[v] != TGD_NONE) {
        number(out, &first, "unit", units->unit_of[v]);
    }
    if (info.order != SIZE_MAX) {
        number(out, &first, "order", info.order);
    }
    if (report->node_where != NULL && report->node_where[v] != TGD_NONE) {
        number(out, &first, "where", tgd_page_source(data, report->node_where[v]));
    }
    if (report->node_op != NULL) {
        tgd_page_member(out, &first, "op", report->node_op[v], MOST_NAME);
    }
    flag(out, &first, "unchecked", info.unchecked != 0);
    number(out, &first, "hooks", info.n_pre_hooks + info.n_tensor_pre_hooks + info.n_retain_grad_hooks + info.n_post_hooks);
    if (row->leaf != TGD_NONE) {
        tgd_page_key(out, &first, "leaf");
        write_leaf(out, report, row->leaf);
    }
    tgd_page_key(out, &first, "inputs");
    tgd_text_str(out, "[");
    write_inputs(out, report, row);
    tgd_text_str(out, "]");
    if (info.n_saved > 0) {
        tgd_page_key(out, &first, "saved");
        tgd_text_str(out, "[");
        write_saved(out, report, v, info.n_saved);
        tgd_text_str(out, "]");
        if (info.n_saved > MOST_TENSORS) {
            number(out, &first, "n_saved", info.n_saved);
        }
    }
    tgd_page_key(out, &first, "to");
    tgd_text_str(out, "[");
    for (uint32_t k = 0; k < row->n_edges && k < TGD_PAGE_NEIGHBOURS; k++) {
        tgd_edge edge = report->graph.edges[row->first_edge + k];
        if (edge.to == TGD_NONE) {
            tgd_text_str(out, k > 0 ? ",null" : "null");
        } else {
            tgd_text_printf(out, "%s%lu", k > 0 ? "," : "", (unsigned long)edge.to);
        }
    }
    tgd_text_printf(out, "],\"n_to\":%lu,\"from\":[", (unsigned long)row->n_edges);
    for (uint32_t k = 0; k < data->n_before[at] && k < TGD_PAGE_NEIGHBOURS; k++) {
        tgd_text_printf(out, "%s%lu", k > 0 ? "," : "",
                        (unsigned long)data->before[(size_t)at * TGD_PAGE_NEIGHBOURS + k]);
    }
    tgd_text_printf(out, "],\"n_from\":%lu", (unsigned long)data->n_before[at]);
    if (measures != NULL && v < measures->n_nodes && measures->nodes[v].timed) {
        tgd_text_str(out, ",\"time\":");
        write_time(out, &measures->nodes[v]);
    }
    tgd_text_str(out, "}");
}
