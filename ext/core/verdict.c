/* One sentence that says whether backward will work, and if not, where and why. */
#include "triage.h"
#include "words.h"

#include <string.h>


static void verdict_of_saved(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    const tgd_saved_row *saved = &report->graph.saved[row->saved];
    const char *parameter = tgd_saved_parameter(report, saved);
    if (row->kind == TGD_GRAPH_FREED) {
        tgd_text_str(text, "an earlier backward already used and freed this part of the graph");
        return;
    }
    if (parameter != NULL) {
        tgd_text_str(text, "parameter ");
        tgd_name_phrase(text, parameter);
    } else {
        tgd_text_str(text, strcmp(saved->name, "saved_tensors") == 0 ? "its " : "its saved ");
        tgd_saved_name_phrase(text, saved);
    }
    switch ((tgd_finding_kind)row->kind) {
    case TGD_SILENTLY_MODIFIED:
        tgd_text_str(text, " was changed where the version check does not see it");
        break;
    case TGD_MODIFIED_IN_PLACE:
        tgd_text_str(text, parameter != NULL ? " was changed in place after the forward used it"
                                             : " was changed in place");
        break;
    case TGD_DETACHED_IN_PLACE:
        tgd_text_str(text, " was cut off by detach_()");
        break;
    case TGD_STORAGE_FREED:
        tgd_text_str(text, " has lost its data");
        break;
    default:
        tgd_text_str(text, " has another size than in the forward");
    }
}

/* " by add_ at net.py:31" */
static void verdict_culprit(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    if (row->culprit && !row->unsure && row->where != TGD_NONE) {
        tgd_text_str(text, row->op != NULL ? " by " : "");
        tgd_text_str(text, row->op != NULL ? row->op : "");
        tgd_text_str(text, " at ");
        tgd_source_phrase(text, &report->sources[row->where]);
    }
}

static void verdict_of_custom(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    bool written = row->kind == TGD_GRADIENT_MODIFIED, kept = row->detail == TGD_DETAIL_CONSTANT;
    if (row->detail == TGD_DETAIL_GRADIENT_NONE) {
        tgd_text_str(text, "backward() runs, but ");
        tgd_node_phrase(text, report, row->node);
        tgd_text_str(text, " returns None for an input that requires grad");
        verdict_culprit(text, report, row);
        return;
    }
    tgd_text_str(text, written ? "a gradient is wrong, without an error: "
                       : kept  ? "a second derivative will be wrong, without an error: "
                               : "backward() raises at ");
    tgd_node_phrase(text, report, row->node);
    tgd_text_str(text, written ? row->detail == TGD_DETAIL_GRADIENT_HOOK ? "'s hook wrote into a gradient in use"
                                                                         : " wrote into a gradient in use"
                       : kept  ? " takes what its forward computed for a constant"
                               : ", which returned the wrong gradients");
    verdict_culprit(text, report, row);
}

static void verdict_of_fault(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    bool certain = row->severity == TGD_ERROR;
    if (row->kind == TGD_SILENTLY_MODIFIED) {
        tgd_text_str(text, certain ? "a gradient will be wrong at " : "a gradient may be wrong at ");
        tgd_node_phrase(text, report, row->node);
        tgd_text_str(text, ", without an error: ");
        if (row->saved == TGD_NONE) {
            tgd_text_str(text, "its checkpoint will read a tensor that was changed");
        } else {
            verdict_of_saved(text, report, row);
        }
        verdict_culprit(text, report, row);
        return;
    }
    if (row->kind == TGD_GRADIENT_MODIFIED || row->kind == TGD_CUSTOM_FUNCTION) {
        verdict_of_custom(text, report, row);
        return;
    }
    if (row->detail == TGD_DETAIL_REFUSED_WRITE) {
        tgd_text_str(text, "PyTorch refused an in-place op in the forward:");
        tgd_text_str(text, row->where == TGD_NONE ? " " : "");
        tgd_text_str(text, row->where == TGD_NONE ? row->op : "");
        verdict_culprit(text, report, row);
        return;
    }
    if (row->detail == TGD_DETAIL_REFUSED_ROOT) {
        tgd_text_str(text, "backward() was refused: ");
        tgd_text_line(text, report->refused_message == NULL ? "" : report->refused_message, 80);
        return;
    }
    bool crash = row->kind == TGD_STORAGE_FREED || row->kind == TGD_STORAGE_CHANGED;
    tgd_text_str(text, "backward() ");
    if (report->raised != NULL && certain) {
        tgd_text_str(text, "raised");
    } else {
        tgd_text_str(text, certain ? "will " : "may ");
        tgd_text_str(text, crash ? "raise or crash" : "raise");
    }
    if (row->node != TGD_NONE && row->root == TGD_NONE) {
        tgd_text_str(text, " at ");
        tgd_node_phrase(text, report, row->node);
    }
    tgd_text_str(text, ": ");
    if (row->saved != TGD_NONE) {
        verdict_of_saved(text, report, row);
        verdict_culprit(text, report, row);
    } else if (row->kind == TGD_NO_GRAD_FN) {
        tgd_root_phrase(text, report, row->root);
        tgd_text_str(text, " has no grad_fn");
        tgd_text_str(text, row->culprit && !row->unsure ? ": cut" : "");
        verdict_culprit(text, report, row);
    } else if (row->detail == TGD_DETAIL_ROOT_LOST) {
        tgd_root_phrase(text, report, row->root);
        tgd_text_str(text, " is a view that PyTorch has lost track of");
    } else if (row->detail == TGD_DETAIL_ROOT_RESHAPED) {
        tgd_root_phrase(text, report, row->root);
        tgd_text_str(text, " has another shape than its grad_fn knows");
    } else if (row->kind == TGD_BAD_ROOT) {
        tgd_text_printf(text, "inputs[%lu] does not require grad", (unsigned long)row->other);
    } else if (row->detail == TGD_DETAIL_LEAF_RESHAPED) {
        tgd_text_str(text, "the leaf has another shape or dtype than in the forward");
    } else {
        tgd_text_str(text, row->severity == TGD_ERROR ? "this node has no derivative"
                                                      : "its gradient cannot be differentiated again");
    }
}

static void verdict_of_unreached(tgd_text *text, const tgd_report *report, uint32_t first)
{
    uint32_t n = 0;
    for (uint32_t i = first; i < report->n_findings; i++) {
        n += report->findings[i].kind == TGD_UNREACHED_PARAMETER;
    }
    tgd_text_str(text, "backward() runs, but ");
    if (n > 1) {
        tgd_text_count(text, n);
        tgd_text_str(text, " parameters get no gradient: ");
    }
    for (uint32_t i = first, shown = 0; i < report->n_findings && shown < 2; i++) {
        if (report->findings[i].kind == TGD_UNREACHED_PARAMETER) {
            tgd_text_str(text, shown++ > 0 ? ", " : "");
            tgd_text_line(text, report->parameters[report->findings[i].parameter].name, 48);
        }
    }
    tgd_text_str(text, n > 2 ? ", ..." : n == 1 ? " gets no gradient" : "");
    if (report->findings[first].culprit && !report->findings[first].unsure) {
        tgd_text_str(text, ": cut");
        verdict_culprit(text, report, &report->findings[first]);
    }
}

/* Is there nothing to see but what vmap wrapped? */
static bool all_wrapped(const tgd_report *report)
{
    bool all = report->graph.n_nodes == 0;
    for (uint32_t r = 0; r < report->graph.n_roots; r++) {
        all = all && (report->graph.roots[r].flags & TGD_ROOT_WRAPS_GRAD);
    }
    return all;
}

static void verdict_of_health(tgd_text *text, const tgd_report *report)
{
    tgd_summary summary;
    tgd_report_summary(report, &summary);
    if (all_wrapped(report)) {
        tgd_text_str(text, "unchecked: inside torch.vmap this tensor does not show its graph");
        return;
    }
    tgd_text_str(text, "no fault found: backward() will run ");
    tgd_text_count(text, summary.n_executed);
    tgd_text_str(text, summary.n_executed == 1 ? " node" : " nodes");
    if (summary.n_parameters_reached > 0) {
        bool all = summary.n_parameters_reached == summary.n_parameters;
        tgd_text_str(text, all ? " and reach all " : " and reach ");
        tgd_text_count(text, summary.n_parameters_reached);
        if (!all) {
            tgd_text_str(text, " of ");
            tgd_text_count(text, summary.n_parameters);
        }
        tgd_text_str(text, summary.n_parameters == 1 ? " parameter" : " parameters");
    }
    if (report->has_parameters && !report->has_inputs && summary.n_parameters > 0 &&
        summary.n_parameters_frozen == summary.n_parameters && summary.n_leaves > 0) {
        tgd_text_str(text, "; none of the given parameters requires grad");
    }
    if (report->lost_input != TGD_NONE) {
        tgd_text_printf(text, "; inputs[%lu] is not in this graph and gets no gradient",
                        (unsigned long)report->lost_input);
    }
    for (uint32_t i = 0; i < report->n_findings; i++) {
        if (report->findings[i].detail == TGD_DETAIL_NOT_SCALAR) {
            tgd_text_str(text, "; it must be given a gradient, for the root is not a scalar");
            break;
        }
    }
    if (summary.n_unchecked > 0) {
        tgd_text_str(text, "; ");
        tgd_text_count(text, summary.n_unchecked);
        tgd_text_str(text, summary.n_unchecked == 1 ? " thing is unchecked" : " things are unchecked");
    }
}

/* What backward raised, where no finding explains it. */
static void verdict_of_raised(tgd_text *text, const tgd_report *report)
{
    tgd_text_str(text, "backward() raised ");
    tgd_text_line(text, report->raised, 160);
    if (report->n_errors > 0) {
        tgd_text_str(text, ". Beside that: ");
        tgd_text_str(text, tgd_finding_is_value(report, 0) ? "" : tgd_finding_statement((tgd_finding_kind)report->findings[0].kind));
        if (tgd_finding_is_value(report, 0)) {
            tgd_value_verdict(text, report, 0);
        }
    } else {
        tgd_text_str(text, "; the graph itself shows no fault");
    }
}

void tgd_verdict_write(tgd_text *text, const tgd_report *report)
{
    size_t explains = tgd_report_explains(report);
    if (report->raised != NULL && explains == SIZE_MAX) {
        verdict_of_raised(text, report);
        return;
    }
    if (report->n_errors + report->n_warnings == 0) {
        verdict_of_health(text, report);
        return;
    }
    const tgd_finding_row *first = &report->findings[explains == SIZE_MAX ? 0 : explains];
    if (first->detail == TGD_DETAIL_VALUE) {
        tgd_value_verdict(text, report, 0);
        return;
    }
    if (tgd_is_triage(first)) {
        tgd_text_str(text, tgd_triage_verdict(report, first));
    } else if (first->detail == TGD_DETAIL_LEAF_ROOT) {
        tgd_text_str(text, "backward() fills only the root's own grad: ");
        tgd_root_phrase(text, report, first->root);
        tgd_text_str(text, " is a leaf");
    } else if (first->kind == TGD_UNREACHED_PARAMETER) {
        verdict_of_unreached(text, report, 0);
    } else if (tgd_is_of_steps(first)) {
        tgd_steps_verdict(text, report, first);
    } else {
        verdict_of_fault(text, report, first);
    }
    if (report->n_errors > 1) {
        tgd_text_str(text, " (and ");
        tgd_text_count(text, report->n_errors - 1);
        tgd_text_str(text, report->n_errors == 2 ? " more error)" : " more errors)");
    }
}
