/*
 * A report and what was measured of the backward that it was made before. Judging again would ask what the program's
 * tensors are now; what was said before backward stays as it was said.
 */
#include "report.h"

#include <stdlib.h>
#include <string.h>

/* A copy of n rows, never NULL but for want of memory. */
static void *copy_rows(const void *rows, size_t n, size_t size)
{
    void *copy = malloc((n + 1) * size);
    if (copy != NULL && n > 0) {
        memcpy(copy, rows, n * size);
    }
    return copy;
}

/* A copy of a string, or of NULL; false for want of memory. */
static bool copy_string(char **out, const char *string)
{
    *out = string == NULL ? NULL : copy_rows(string, strlen(string) + 1, 1);
    return string == NULL || *out != NULL;
}

static bool copy_parameters(tgd_report *to, const tgd_report *from)
{
    to->parameters = calloc((size_t)from->n_parameters + 1, sizeof *to->parameters);
    if (to->parameters == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < from->n_parameters; i++) {
        to->parameters[i] = from->parameters[i];
        to->n_parameters++;
        if (!copy_string(&to->parameters[i].name, from->parameters[i].name)) {
            return false;
        }
    }
    return true;
}

static bool copy_sources(tgd_report *to, const tgd_report *from)
{
    to->sources = calloc((size_t)from->n_sources + 1, sizeof *to->sources);
    if (to->sources == NULL) {
        return false;
    }
    to->source_capacity = from->n_sources + 1;
    to->n_traced = from->n_traced;
    for (uint32_t i = 0; i < from->n_sources; i++) {
        const tgd_source_row *source = &from->sources[i];
        tgd_source_row *row = &to->sources[to->n_sources++];
        row->line = source->line;
        row->caller = source->caller;
        if (!copy_string(&row->file, source->file) || !copy_string(&row->function, source->function) ||
            !copy_string(&row->module, source->module) || !copy_string(&row->module_class, source->module_class)) {
            return false;
        }
    }
    return true;
}

static bool copy_findings(tgd_report *to, const tgd_report *from)
{
    to->findings = copy_rows(from->findings, from->n_findings, sizeof *from->findings);
    to->words = from->words == NULL ? NULL : calloc((size_t)from->n_findings + 1, sizeof *to->words);
    if (to->findings == NULL || (from->words != NULL && to->words == NULL)) {
        return false;
    }
    to->n_findings = from->n_findings;
    to->finding_capacity = from->n_findings + 1;
    for (uint32_t i = 0; i < from->n_findings && from->words != NULL; i++) {
        if (!copy_string(&to->words[i].message, from->words[i].message) ||
            !copy_string(&to->words[i].hint, from->words[i].hint)) {
            return false;
        }
    }
    return true;
}

static bool copy_values(tgd_report *to, const tgd_report *from)
{
    to->values = calloc((size_t)from->n_values + 1, sizeof *to->values);
    if (to->values == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < from->n_values; i++) {
        to->values[i] = from->values[i];
        to->values[i].module = to->values[i].module_class = NULL;
        to->n_values++;
        if (!copy_string(&to->values[i].module, from->values[i].module) ||
            !copy_string(&to->values[i].module_class, from->values[i].module_class)) {
            return false;
        }
    }
    return copy_string(&to->raised, from->raised) && copy_string(&to->occasion, from->occasion);
}

static bool copy_provenance(tgd_report *to, const tgd_report *from)
{
    const size_t n = from->graph.n_nodes;
    if (from->node_where == NULL) {
        return true;
    }
    to->node_where = copy_rows(from->node_where, n, sizeof *to->node_where);
    to->node_op = from->node_op == NULL ? NULL : copy_rows(from->node_op, n, sizeof *to->node_op);
    to->node_made_by = from->node_made_by == NULL ? NULL : copy_rows(from->node_made_by, n, sizeof *to->node_made_by);
    return to->node_where != NULL && (from->node_op == NULL || to->node_op != NULL) &&
           (from->node_made_by == NULL || to->node_made_by != NULL);
}

static bool copy_rest(tgd_report *to, const tgd_report *from)
{
    to->order = copy_rows(from->order, from->graph.n_nodes, sizeof *to->order);
    to->sequence = copy_rows(from->sequence, from->n_executed, sizeof *to->sequence);
    to->leaf_parameter = copy_rows(from->leaf_parameter, from->graph.n_leaves, sizeof *to->leaf_parameter);
    if (to->order == NULL || to->sequence == NULL || to->leaf_parameter == NULL ||
        !copy_string(&to->verdict, from->verdict) || !copy_string(&to->torch, from->torch) ||
        !copy_string(&to->refused_message, from->refused_message)) {
        return false;
    }
    to->refused_write = from->refused_write;
    to->refusal = from->refusal;
    to->refusal.write = from->refusal.write == NULL ? NULL : &to->refused_write;
    to->refusal.message = to->refused_message;
    return true;
}

static void copy_numbers(tgd_report *to, const tgd_report *from)
{
    to->snapshot_bytes = from->snapshot_bytes;
    to->resolve = from->resolve;
    to->ran = from->ran;
    to->n_executed = from->n_executed;
    to->n_groups = from->n_groups;
    to->first_error = from->first_error;
    to->depth = from->depth;
    to->has_parameters = from->has_parameters;
    to->create_graph = from->create_graph;
    to->has_inputs = from->has_inputs;
    to->lost_input = from->lost_input;
    to->recorded = from->recorded;
    to->refused = from->refused;
    to->root_fails = from->root_fails;
    to->n_errors = from->n_errors;
    to->n_warnings = from->n_warnings;
    to->n_notes = from->n_notes;
}

tgd_status tgd_report_measured(tgd_report **out, const tgd_report *report, const tgd_measures *measures, tgd_error *err)
{
    tgd_report *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return tgd_fail_memory(err);
    }
    tgd_status status = tgd_graph_share(&made->graph, &report->graph, err);
    if (status == TGD_OK && !(copy_parameters(made, report) && copy_sources(made, report) &&
                              copy_findings(made, report) && copy_values(made, report) &&
                              copy_provenance(made, report) && copy_rest(made, report))) {
        status = tgd_fail_memory(err);
    }
    if (status != TGD_OK) {
        tgd_report_free(made);
        return status;
    }
    copy_numbers(made, report);
    if (report->record != NULL) {
        tgd_record_keep(report->record);
        made->record = report->record;
    }
    tgd_measures_keep(measures);
    made->measures = measures;
    *out = made;
    return TGD_OK;
}
