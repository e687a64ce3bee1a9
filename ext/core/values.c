#include "values.h"

#include "words.h"

#include <stdlib.h>
#include <string.h>

/* ---- taking them up ---- */

static tgd_status copy(char **out, const char *s, tgd_error *err)
{
    *out = NULL;
    if (s == NULL) {
        return TGD_OK;
    }
    size_t size = strlen(s) + 1;
    *out = malloc(size);
    if (*out == NULL) {
        return tgd_fail_memory(err);
    }
    memcpy(*out, s, size);
    return TGD_OK;
}

tgd_status tgd_values_keep(tgd_report *report, const tgd_values *values, tgd_error *err)
{
    if (values == NULL) {
        return TGD_OK;
    }
    report->ran = values->ran;
    tgd_status status = copy(&report->raised, values->raised, err);
    if (status == TGD_OK) {
        status = copy(&report->occasion, values->occasion, err);
    }
    if (status != TGD_OK || values->n == 0) {
        return status;
    }
    report->values = calloc(values->n, sizeof *report->values);
    if (report->values == NULL || values->n >= UINT32_MAX) {
        return tgd_fail_memory(err);
    }
    for (; report->n_values < values->n && status == TGD_OK; report->n_values++) {
        const tgd_value *from = &values->rows[report->n_values];
        tgd_value_row *to = &report->values[report->n_values];
        to->numel = from->numel;
        to->n_nan = from->n_nan;
        to->n_inf = from->n_inf;
        to->counted = from->counted;
        status = copy(&to->module, from->of == TGD_VALUE_OUTPUT ? from->module : NULL, err);
        if (status == TGD_OK) {
            status = copy(&to->module_class, from->of == TGD_VALUE_OUTPUT ? from->module_class : "", err);
        }
    }
    return status;
}

void tgd_values_clear(tgd_report *report)
{
    for (uint32_t i = 0; i < report->n_values; i++) {
        free(report->values[i].module);
        free(report->values[i].module_class);
    }
    free(report->values);
    free(report->raised);
    free(report->occasion);
}

/* ---- findings ---- */

typedef struct judge {
    tgd_report *report;
    tgd_address_map parameters; /* tensor -> the first parameter with it */
    uint32_t groups[2];         /* of gradients: infinite, NaN */
    tgd_error *err;
} judge;

static tgd_status add(judge *j, const tgd_value *value, uint32_t place)
{
    tgd_report *report = j->report;
    bool nan = value->n_nan > 0, gradient = value->of == TGD_VALUE_GRADIENT;
    tgd_finding_row row = {
        .kind = (uint8_t)(gradient ? (nan ? TGD_NAN_GRADIENT : TGD_INF_GRADIENT)
                                   : (nan ? TGD_NAN_FORWARD : TGD_INF_FORWARD)),
        .severity = TGD_ERROR,
        .detail = TGD_DETAIL_VALUE,
        .node = TGD_NONE,
        .saved = TGD_NONE,
        .parameter = TGD_NONE,
        .root = TGD_NONE,
        .where = TGD_NONE,
        .other = place,
    };
    if (value->of == TGD_VALUE_ROOT) {
        row.root = value->root;
        row.node = report->graph.roots[value->root].node;
    } else if (gradient) {
        row.parameter = tgd_address_map_find(&j->parameters, value->tensor);
        if (row.parameter == TGD_NONE) {
            return TGD_OK; /* the parameters were replaced meanwhile */
        }
        uint32_t leaf = report->parameters[row.parameter].leaf;
        row.node = leaf == TGD_NONE ? TGD_NONE : report->graph.leaves[leaf].node;
    }
    if (!gradient) {
        row.group = report->n_groups++;
    } else {
        if (j->groups[nan] == TGD_NONE) {
            j->groups[nan] = report->n_groups++;
        }
        row.group = j->groups[nan];
    }
    return tgd_report_add(report, row, j->err);
}

typedef struct ranked {
    uint64_t rank;
    tgd_finding_row row;
} ranked;

/* Modules first, in the order they ran, then roots, then gradients: those that backward reached first are nearest to
   where they went wrong. */
static uint64_t rank_of(const tgd_report *report, const tgd_finding_row *row)
{
    uint64_t rank = row->root != TGD_NONE ? 1 : 0;
    if (row->parameter != TGD_NONE) {
        rank = 2 + (uint64_t)(row->node == TGD_NONE ? TGD_NONE : report->order[row->node]);
    }
    return rank << 32 | row->other;
}

static int by_rank(const void *a, const void *b)
{
    uint64_t x = ((const ranked *)a)->rank, y = ((const ranked *)b)->rank;
    return (x > y) - (x < y);
}

static tgd_status sort_from(tgd_report *report, uint32_t first, tgd_error *err)
{
    uint32_t n = report->n_findings - first;
    ranked *all = malloc(((size_t)n + 1) * sizeof *all);
    if (all == NULL) {
        return tgd_fail_memory(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        all[i].row = report->findings[first + i];
        all[i].rank = rank_of(report, &all[i].row);
    }
    qsort(all, n, sizeof *all, by_rank);
    for (uint32_t i = 0; i < n; i++) {
        report->findings[first + i] = all[i].row;
    }
    free(all);
    return TGD_OK;
}

tgd_status tgd_judge_values(tgd_report *report, const tgd_values *values, tgd_error *err)
{
    if (values == NULL || values->n == 0) {
        return TGD_OK;
    }
    judge j = {.report = report, .groups = {TGD_NONE, TGD_NONE}, .err = err};
    tgd_status status = TGD_OK;
    uint32_t first = report->n_findings;
    for (uint32_t i = 0; i < report->n_parameters && status == TGD_OK; i++) {
        uint32_t *known = tgd_address_map_at(&j.parameters, report->parameters[i].tensor);
        if (known == NULL) {
            status = tgd_fail_memory(err);
        } else if (*known == TGD_NONE) {
            *known = i;
        }
    }
    for (uint32_t i = 0; i < report->n_values && status == TGD_OK; i++) {
        status = add(&j, &values->rows[i], i);
    }
    tgd_address_map_clear(&j.parameters);
    return status == TGD_OK ? sort_from(report, first, err) : status;
}

/* ---- what backward raised ---- */

/* The kind that PyTorch's own text speaks of; TGD_N_FINDING_KINDS: it is not one of those that only one kind has. */
static tgd_finding_kind kind_of_text(const char *raised)
{
    static const struct {
        const char *text;
        tgd_finding_kind kind;
    } texts[] = {
        {"modified by an inplace operation", TGD_MODIFIED_IN_PLACE},
        {"that has been detached in-place", TGD_DETACHED_IN_PLACE},
        {"backward through the graph a second time", TGD_GRAPH_FREED},
        {"after they have already been freed", TGD_GRAPH_FREED},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strstr(raised, texts[i].text) != NULL) {
            return texts[i].kind;
        }
    }
    return TGD_N_FINDING_KINDS;
}

/* Does the text name these versions? */
static bool has_versions(const tgd_report *report, const tgd_finding_row *row)
{
    const tgd_saved_row *saved = &report->graph.saved[row->saved];
    tgd_text text;
    tgd_text_init(&text, NULL, NULL);
    tgd_text_printf(&text, "is at version %lu; expected version %lu", (unsigned long)saved->version,
                    (unsigned long)saved->saved_version);
    tgd_text_bytes(&text, "", 1);
    bool has = text.status == TGD_OK && strstr(report->raised, text.bytes) != NULL;
    tgd_text_drop(&text);
    return has;
}

/* Could this finding, for certain or not, be what was raised? */
static bool may_explain(const tgd_report *report, const tgd_finding_row *row)
{
    tgd_finding_kind kind = kind_of_text(report->raised);
    if (kind != TGD_N_FINDING_KINDS) {
        return row->kind == kind && (kind != TGD_MODIFIED_IN_PLACE || has_versions(report, row));
    }
    switch ((tgd_finding_kind)row->kind) {
    case TGD_STORAGE_FREED:
    case TGD_STORAGE_CHANGED:
    case TGD_NO_GRAD_FN:
    case TGD_BAD_ROOT:
    case TGD_NOT_DIFFERENTIABLE:
    case TGD_CUSTOM_FUNCTION:
        return row->severity == TGD_ERROR;
    default:
        return false;
    }
}

void tgd_judge_raised(tgd_report *report)
{
    if (report->raised == NULL || kind_of_text(report->raised) == TGD_N_FINDING_KINDS) {
        return;
    }
    for (uint32_t i = 0; i < report->n_findings; i++) {
        tgd_finding_row *row = &report->findings[i];
        if (row->severity == TGD_ERROR || !may_explain(report, row)) {
            continue;
        }
        row->severity = TGD_ERROR;
        if (row->detail == TGD_DETAIL_CUSTOM || row->detail == TGD_DETAIL_UNREAD) {
            row->detail = TGD_DETAIL_SAVED; /* it did read what it saved */
        }
        return; /* the first in backward's order */
    }
}

size_t tgd_report_explains(const tgd_report *report)
{
    for (uint32_t i = 0; report->raised != NULL && i < report->n_errors; i++) {
        if (may_explain(report, &report->findings[i])) {
            return i;
        }
    }
    return SIZE_MAX;
}

bool tgd_report_knows_raised(const tgd_report *report)
{
    return report->raised != NULL;
}

/* ---- words ---- */

bool tgd_finding_is_value(const tgd_report *report, size_t finding)
{
    return report->findings[finding].detail == TGD_DETAIL_VALUE;
}

static bool is_nan(const tgd_finding_row *row)
{
    return row->kind == TGD_NAN_GRADIENT || row->kind == TGD_NAN_FORWARD;
}

/* "NaN", "infinite, 3 of 12 elements NaN" */
static void counts(tgd_text *text, const tgd_value_row *value)
{
    if (!value->counted) {
        tgd_text_str(text, value->n_nan > 0 ? "some of its elements are NaN" : "some of its elements are infinite");
        return;
    }
    if (value->numel == 1) {
        tgd_text_str(text, value->n_nan > 0 ? "it is NaN" : "it is infinite");
        return;
    }
    tgd_text_printf(text, "of its ");
    tgd_text_count(text, (uint64_t)value->numel);
    tgd_text_str(text, " elements ");
    if (value->n_nan > 0) {
        tgd_text_count(text, (uint64_t)value->n_nan);
        tgd_text_str(text, value->n_nan == 1 ? " is NaN" : " are NaN");
    }
    if (value->n_inf > 0) {
        tgd_text_str(text, value->n_nan > 0 ? " and " : "");
        tgd_text_count(text, (uint64_t)value->n_inf);
        tgd_text_str(text, value->n_inf == 1 ? " is infinite" : " are infinite");
    }
}

/* How many parameters the findings about gradients name. */
static uint32_t n_gradients(const tgd_report *report)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < report->n_findings; i++) {
        n += tgd_finding_is_value(report, i) && report->findings[i].parameter != TGD_NONE;
    }
    return n;
}

static void module_phrase(tgd_text *text, const tgd_value_row *value)
{
    if (value->module != NULL && value->module[0] != '\0') {
        tgd_name_phrase(text, value->module);
        tgd_text_str(text, " (");
        tgd_name_phrase(text, value->module_class);
        tgd_text_str(text, ")");
    } else {
        tgd_text_str(text, value->module == NULL ? "a module of class " : "the model, ");
        tgd_name_phrase(text, value->module_class);
    }
}

void tgd_value_message(tgd_text *text, const tgd_report *report, size_t finding)
{
    const tgd_finding_row *row = &report->findings[finding];
    const tgd_value_row *value = &report->values[row->other];
    if (row->parameter != TGD_NONE) {
        const tgd_parameter_row *parameter = &report->parameters[row->parameter];
        tgd_name_phrase(text, parameter->name);
        tgd_text_str(text, " (");
        tgd_report_tensor_phrase(text, &report->graph, parameter->dtype, parameter->shape);
        tgd_text_str(text, ") has a gradient that is not finite: ");
        counts(text, value);
        uint32_t n = n_gradients(report);
        tgd_text_str(text, "; so ");
        tgd_text_str(text, n == 1 ? "is this parameter's alone" : n < report->n_parameters ? "are those of " : "are all ");
        if (n > 1) {
            tgd_text_count(text, n);
            tgd_text_str(text, n < report->n_parameters ? " of " : "");
        }
        if (n > 1 && n < report->n_parameters) {
            tgd_text_count(text, report->n_parameters);
        }
        tgd_text_str(text, n > 1 ? " parameters" : "");
    } else if (row->root != TGD_NONE) {
        tgd_root_phrase(text, report, row->root);
        tgd_text_str(text, ", where backward starts, is not finite: ");
        counts(text, value);
    } else {
        tgd_text_str(text, "the output of ");
        module_phrase(text, value);
        tgd_text_str(text, " is the first of a module's that is not finite: ");
        counts(text, value);
    }
}

void tgd_value_verdict(tgd_text *text, const tgd_report *report, size_t finding)
{
    const tgd_finding_row *row = &report->findings[finding];
    const tgd_value_row *value = &report->values[row->other];
    const char *what = is_nan(row) ? "NaN" : "infinite";
    uint32_t n = n_gradients(report);
    if (row->parameter != TGD_NONE) {
        tgd_text_str(text, "gradients are ");
        tgd_text_str(text, what);
        tgd_text_str(text, " in ");
        tgd_text_count(text, n);
        tgd_text_str(text, " of ");
        tgd_text_count(text, report->n_parameters);
        tgd_text_str(text, report->n_parameters == 1 ? " parameter: " : " parameters, in backward's order first in ");
        tgd_name_phrase(text, report->parameters[row->parameter].name);
        return;
    }
    if (row->root != TGD_NONE) {
        tgd_root_phrase(text, report, row->root);
    } else {
        tgd_text_str(text, "the output of ");
        module_phrase(text, value);
    }
    tgd_text_str(text, " is ");
    tgd_text_str(text, what);
    if (n > 0) {
        tgd_text_str(text, ", and so are gradients of ");
        tgd_text_count(text, n);
        tgd_text_str(text, n == 1 ? " parameter" : " parameters");
    }
}

const char *tgd_value_hint(const tgd_report *report, size_t finding)
{
    const tgd_finding_row *row = &report->findings[finding];
    if (row->parameter == TGD_NONE && row->root == TGD_NONE) {
        return "look in this module's forward for a division by zero, log or sqrt of what may be 0 or less, exp of large "
               "numbers, or half precision; or in what it was given";
    }
    for (uint32_t i = 0; i < report->n_findings && row->parameter != TGD_NONE; i++) {
        if (tgd_finding_is_value(report, i) && report->findings[i].root != TGD_NONE) {
            return "it follows from the root, which is not finite itself: mend that first";
        }
    }
    return row->parameter == TGD_NONE
               ? "look in the forward for a division by zero, log or sqrt of what may be 0 or less, exp of large numbers, "
                 "a bad batch, or weights that grew; watch(..., forward=True) names the first module"
               : "the forward is finite and a derivative is not: look for sqrt, norm or pow at 0, a division by a number "
                 "close to 0, log(softmax(x)) instead of log_softmax(x), or a where() that hides an infinite branch";
}
