/*
 * Why a root or a parameter is cut off: the record of ops is followed forward from the parameter, by identity. An
 * output with a grad_fn carries the gradient on; one without is where it ends, and what is computed from there still
 * carries the value. The earliest cut on the way to a root is the answer; where no way leads to one, the value left
 * torch or its result was dropped, and the earliest dead end is.
 */
#include "evidence.h"

#include <string.h>

enum {
    FLOWS = TGD_NONE - 1, /* the gradient reaches this far */
    MOST_STEPS = 1 << 28  /* of all searches together, so that a report on huge records stays quick */
};

/* Of a search: identity -> FLOWS, or the op that cut the way here. */
typedef struct search {
    tgd_evidence *evidence;
    tgd_address_map reached;
    uint32_t dead_end;  /* op that took the value out of the graph and gave nothing back, or TGD_NONE */
    uint32_t first_cut; /* op whose output lost the gradient, or TGD_NONE */
    uint32_t last_flow; /* last op that carried the gradient, or TGD_NONE */
    uint32_t mode_cut;  /* light: first op that took a tensor some node had made, with grad mode off; or TGD_NONE */
    uint32_t mode_use;  /* light: first op with grad mode switched off inside a module's forward; or TGD_NONE */
    uint64_t steps;
    uint64_t since;     /* ops before are another step's */
} search;

/* Only ops that can end a gradient were recorded: the way on to a root is not in the record. */
static bool is_light(const tgd_record *record)
{
    return record->full_since == UINT64_MAX;
}

static bool any_of(const char *name, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strcmp(name, *names) == 0) {
            return true;
        }
    }
    return false;
}

/* Ops that use a tensor for its sizes or type alone: no value flows, so nothing is cut. */
static bool only_looks(const char *name)
{
    static const char *const names[] = {"is_nonzero", "size", "stride", "numel", "result_type", "can_cast",
                                        "promote_types", "is_same_size", "_has_compatible_shallow_copy_type", "resize_",
                                        "set_", "_local_scalar_dense_like", NULL};
    size_t n = strlen(name);
    return strncmp(name, "new_", 4) == 0 || (n > 5 && strcmp(name + n - 5, "_like") == 0) || any_of(name, names);
}

static bool means_nothing(const tgd_op_row *op)
{
    return (op->flags & TGD_OP_THREW) || (op->place.via & (TGD_VIA_DDP_INIT | TGD_VIA_COMPILE | TGD_VIA_OPTIMIZER)) ||
           only_looks(tgd_bare_name(op->name));
}

/* Numbers given to leaves are small and close together: spread for the map. */
static uint64_t key_of(tgd_identity id)
{
    return id & TGD_IDENTITY_NODE ? id : id << 8;
}

/* What arrives at an op: FLOWS if the gradient does, else the earliest cut, else TGD_NONE. */
static uint32_t arriving(const search *s, const tgd_op_row *op)
{
    const tgd_identity *ids = s->evidence->record->ids + op->first_id;
    uint32_t best = TGD_NONE;
    for (uint32_t i = 0; i < op->n_in; i++) {
        uint32_t here = tgd_address_map_find(&s->reached, key_of(ids[i]));
        if (here == FLOWS) {
            return FLOWS;
        }
        best = here < best ? here : best;
    }
    return best;
}

static tgd_status reach(search *s, tgd_identity id, uint32_t how)
{
    uint32_t *known = id == 0 ? NULL : tgd_address_map_at(&s->reached, key_of(id));
    if (id != 0 && known == NULL) {
        return tgd_fail_memory(s->evidence->err);
    }
    if (known != NULL && (*known == TGD_NONE || how == FLOWS)) {
        *known = how;
    }
    return TGD_OK;
}

/* An op that writes to a leaf in place gives the leaf back: nothing was computed from it. */
static bool gives_back(const tgd_op_row *op, const tgd_identity *ids, tgd_identity output)
{
    for (uint32_t i = 0; i < op->n_in; i++) {
        if (ids[i] == output) {
            return true;
        }
    }
    return false;
}

/* numpy() and tolist() are seen by these alone, which give their input back. */
static bool reads_out(const tgd_op_row *op)
{
    static const char *const names[] = {"resolve_conj", "resolve_neg", NULL};
    return any_of(tgd_bare_name(op->name), names);
}

static bool takes_made(const tgd_op_row *op, const tgd_identity *ids)
{
    for (uint32_t i = 0; i < op->n_in; i++) {
        if (ids[i] & TGD_IDENTITY_NODE) {
            return true;
        }
    }
    return false;
}

/* The model itself switched grad mode off: a validation pass is put around a model. */
static bool is_own(const tgd_op_row *op)
{
    return op->mode.code != TGD_NONE && (op->mode.module != TGD_NONE || (op->mode.via & TGD_VIA_BY_CHECKPOINT));
}

static tgd_status follow_op(search *s, uint32_t i)
{
    const tgd_op_row *op = &s->evidence->record->ops[i];
    uint32_t from = means_nothing(op) ? TGD_NONE : arriving(s, op);
    if (from == TGD_NONE) {
        return TGD_OK;
    }
    const tgd_identity *inputs = s->evidence->record->ids + op->first_id, *outputs = inputs + op->n_in;
    bool flows = from == FLOWS;
    tgd_status status = TGD_OK;
    if (flows && s->mode_cut == TGD_NONE && !(op->flags & TGD_OP_GRAD_MODE) && takes_made(op, inputs)) {
        s->mode_cut = i;
    }
    bool by_mode = is_light(s->evidence->record) && !(op->flags & TGD_OP_GRAD_MODE);
    if (flows && by_mode && s->mode_use == TGD_NONE && is_own(op)) {
        s->mode_use = i;
    }
    if (flows && s->dead_end == TGD_NONE &&
        (by_mode || op->n_out == 0 || (reads_out(op) && gives_back(op, inputs, outputs[0])))) {
        s->dead_end = i;
    }
    for (uint32_t k = 0; k < op->n_out && status == TGD_OK; k++) {
        if (gives_back(op, inputs, outputs[k])) {
            continue;
        }
        bool carries = (outputs[k] & TGD_IDENTITY_NODE) != 0;
        if (flows && !carries && !by_mode && s->first_cut == TGD_NONE) {
            s->first_cut = i;
        }
        if (flows && carries) {
            s->last_flow = i;
        }
        status = reach(s, outputs[k], flows && carries ? FLOWS : flows ? i : from);
    }
    return status;
}

/* Follows one identity, or everything that carries grad where id is 0, until the time given. */
static tgd_status follow(search *s, tgd_identity id)
{
    const tgd_record *record = s->evidence->record;
    tgd_address_map_clear(&s->reached);
    s->dead_end = s->first_cut = s->last_flow = s->mode_cut = s->mode_use = TGD_NONE;
    tgd_status status = reach(s, id, FLOWS);
    for (uint32_t i = 0; i < record->n_ops && status == TGD_OK && s->steps < MOST_STEPS; i++) {
        if (record->ops[i].time < s->since) {
            continue;
        }
        s->steps += record->ops[i].n_in;
        if (id == 0 && (record->ops[i].flags & TGD_OP_CUT)) {
            /* no parameter is asked for: any op that loses a gradient is where one ends */
            const tgd_identity *ids = record->ids + record->ops[i].first_id;
            for (uint32_t k = 0; k < record->ops[i].n_in && status == TGD_OK; k++) {
                if (tgd_address_map_find(&s->reached, key_of(ids[k])) == TGD_NONE) {
                    status = reach(s, ids[k], FLOWS);
                }
            }
        }
        if (status == TGD_OK) {
            status = follow_op(s, i);
        }
    }
    return status;
}

static tgd_identity identity_of_root(const tgd_graph *graph, uint32_t r)
{
    const tgd_root_row *root = &graph->roots[r];
    if (root->node == TGD_NONE || graph->nodes[root->node].leaf != TGD_NONE) {
        return root->identity;
    }
    const tgd_node_row *node = &graph->nodes[root->node];
    return tgd_identity_of_output(node->thread_id, node->sequence_nr, root->output_nr);
}

/* The cut on the way to a root or to a node of its graph, or TGD_NONE. */
static uint32_t cut_before_roots(const search *s)
{
    const tgd_graph *graph = &s->evidence->report->graph;
    uint32_t best = TGD_NONE;
    for (uint32_t r = 0; r < graph->n_roots; r++) {
        uint32_t here = tgd_address_map_find(&s->reached, key_of(identity_of_root(graph, r)));
        if (here != FLOWS && here < best) {
            best = here;
        }
    }
    for (uint32_t i = 0; i < graph->n_marks; i++) { /* nodes above saved it: the value went on into the graph */
        uint32_t here = tgd_address_map_find(&s->reached, key_of(graph->marks[i]));
        if (here != FLOWS && here < best) {
            best = here;
        }
    }
    return best;
}

static bool leaves_torch(const tgd_op_row *op)
{
    static const char *const names[] = {"item", "_local_scalar_dense", "is_nonzero", "resolve_conj", "resolve_neg",
                                        "numpy_T", "to_dlpack", "equal", NULL};
    return op->n_out == 0 || any_of(tgd_bare_name(op->name), names);
}

static tgd_reason reason_of(const tgd_op_row *op)
{
    static const char *const casts[] = {"to", "_to_copy", "type", "type_as", "int", "long", NULL};
    static const char *const detaches[] = {"detach", "detach_", "detach_copy", "alias", "data", "variable_data", NULL};
    const char *name = tgd_bare_name(op->name);
    if (!(op->flags & TGD_OP_GRAD_MODE) || (op->flags & TGD_OP_INFERENCE)) {
        bool told = op->mode.code != TGD_NONE;
        bool checkpoint = told ? op->mode.via & TGD_VIA_BY_CHECKPOINT : op->place.via & TGD_VIA_CHECKPOINT;
        return checkpoint ? TGD_REASON_REENTRANT_CHECKPOINT : TGD_REASON_GRAD_MODE_DISABLED;
    }
    if (op->place.via & TGD_VIA_PARAMETER) {
        return TGD_REASON_REWRAPPED;
    }
    if (any_of(name, detaches)) {
        return TGD_REASON_DETACHED;
    }
    if (leaves_torch(op)) {
        return TGD_REASON_LEFT_TORCH;
    }
    if (any_of(name, casts) && (op->flags & TGD_OP_INTEGER_OUT)) {
        return TGD_REASON_INTEGER_OUTPUT;
    }
    return TGD_REASON_NOT_DIFFERENTIABLE_OP;
}

static tgd_status explain(tgd_evidence *evidence, tgd_finding_row *row, uint32_t cut)
{
    const tgd_op_row *op = &evidence->record->ops[cut];
    row->reason = (uint8_t)reason_of(op);
    row->culprit = true;
    bool by_mode = row->reason == TGD_REASON_GRAD_MODE_DISABLED || row->reason == TGD_REASON_REENTRANT_CHECKPOINT;
    if (by_mode && op->mode.code != TGD_NONE) {
        row->op = NULL;
        return tgd_evidence_source(evidence, &op->mode, &row->where);
    }
    row->op = reads_out(op) ? NULL : tgd_bare_name(op->name);
    return tgd_evidence_source(evidence, &op->place, &row->where);
}

/* When the step that made the roots began: with the last backward before them. What a parameter was used for earlier,
   in another step or for another loss, cuts nothing here. */
static uint64_t step_began(const search *s)
{
    const tgd_record *record = s->evidence->record;
    const tgd_graph *graph = &s->evidence->report->graph;
    uint64_t newest = 0, began = 0;
    for (uint32_t r = 0; r < graph->n_roots; r++) {
        tgd_node v = graph->roots[r].node;
        uint64_t made = v == TGD_NONE ? 0 : tgd_evidence_made(s->evidence, v);
        newest = made > newest ? made : newest;
    }
    newest = newest == 0 && is_light(record) ? UINT64_MAX : newest; /* no root has a node: this step's, then */
    for (uint32_t i = 0; i < record->n_runs && record->runs[i].time < newest; i++) {
        began = record->runs[i].time;
    }
    return began;
}

/* No op that was recorded took the parameter. */
static tgd_status explain_unused(const search *s, tgd_finding_row *row)
{
    const tgd_record *record = s->evidence->record;
    const tgd_report *report = s->evidence->report;
    if (is_light(record)) {
        /* Ops that carry a gradient on are not in the record, but a graph that took the leaf left a trace on it. */
        uint32_t flags = report->parameters[row->parameter].flags;
        row->reason = flags & TGD_TENSOR_HAS_ACCUMULATOR ? TGD_REASON_OUTPUT_DROPPED : TGD_REASON_NEVER_USED;
        row->unsure = true; /* under inference_mode, and through .data, a use leaves none */
        return TGD_OK;
    }
    row->reason = record->dropped == 0 ? TGD_REASON_NEVER_USED : TGD_REASON_NONE;
    return TGD_OK;
}

/* Has any root a node? */
static bool has_rooted(const tgd_graph *graph)
{
    for (uint32_t r = 0; r < graph->n_roots; r++) {
        if (graph->roots[r].node != TGD_NONE) {
            return true;
        }
    }
    return false;
}

/* The value went somewhere, but is not seen to reach a root: it left torch, or what was computed was dropped. Not
   proved, and named as such; a use under no_grad is a validation pass as likely as not, and is not named at all. */
static tgd_status explain_lost(search *s, tgd_finding_row *row)
{
    const tgd_record *record = s->evidence->record;
    uint32_t cut = s->dead_end != TGD_NONE ? s->dead_end : s->first_cut;
    if (is_light(record) && (s->mode_cut != TGD_NONE || s->first_cut != TGD_NONE)) {
        cut = s->mode_cut < s->first_cut ? s->mode_cut : s->first_cut;
    } else if (s->mode_use != TGD_NONE) {
        cut = s->mode_use;
    }
    uint32_t use = cut != TGD_NONE ? cut : s->last_flow;
    if (use == TGD_NONE) {
        return explain_unused(s, row);
    }
    const tgd_op_row *op = &record->ops[use];
    if (op->time < step_began(s)) {
        return TGD_OK;
    }
    row->unsure = true;
    if (cut != TGD_NONE) {
        bool credible = (op->flags & TGD_OP_GRAD_MODE) ||
                        (is_light(record) && (cut == s->mode_cut || cut == s->mode_use ||
                                              !has_rooted(&s->evidence->report->graph)));
        return credible ? explain(s->evidence, row, cut) : TGD_OK;
    }
    row->reason = TGD_REASON_OUTPUT_DROPPED;
    row->op = tgd_bare_name(op->name);
    row->culprit = true;
    return tgd_evidence_source(s->evidence, &op->place, &row->where);
}

static tgd_status explain_parameter(search *s, tgd_finding_row *row, uint32_t *root_cut)
{
    tgd_identity id = s->evidence->report->parameters[row->parameter].identity;
    if (id == 0) { /* no op of the record took it */
        return explain_unused(s, row);
    }
    tgd_status status = follow(s, id);
    if (status != TGD_OK) {
        return status;
    }
    uint32_t cut = cut_before_roots(s);
    if (cut != TGD_NONE) {
        *root_cut = cut < *root_cut ? cut : *root_cut;
        return explain(s->evidence, row, cut);
    }
    return explain_lost(s, row);
}

/* A root without grad_fn: as its parameters say, else the first op on the way to it that lost a gradient. */
static tgd_status explain_root(search *s, tgd_finding_row *row, uint32_t root_cut)
{
    if (root_cut == TGD_NONE) {
        tgd_status status = follow(s, 0);
        if (status != TGD_OK) {
            return status;
        }
        root_cut = cut_before_roots(s);
        if (root_cut == TGD_NONE) {
            row->unsure = is_light(s->evidence->record);
            root_cut = row->unsure && s->first_cut != TGD_NONE ? s->first_cut : s->dead_end;
        }
    }
    if (root_cut != TGD_NONE) {
        return explain(s->evidence, row, root_cut);
    }
    const tgd_report *report = s->evidence->report;
    for (uint32_t i = 0; i < report->n_findings; i++) {
        const tgd_finding_row *other = &report->findings[i];
        if (other->kind == TGD_UNREACHED_PARAMETER && other->culprit) {
            row->reason = other->reason;
            row->op = other->op;
            row->where = other->where;
            row->culprit = true;
            row->unsure = other->unsure;
            break;
        }
    }
    return TGD_OK;
}

static bool wants_reason(const tgd_finding_row *row)
{
    return row->kind == TGD_UNREACHED_PARAMETER &&
           (row->detail == TGD_DETAIL_NOT_IN_GRAPH || row->detail == TGD_DETAIL_ROOT_IS_LEAF);
}

/* Where the graph made it look like a parameter that was replaced: what the record saw comes first. */
static tgd_status explain_replaced(search *s, tgd_finding_row *row, uint32_t *root_cut)
{
    tgd_finding_row seen = *row;
    tgd_status status = TGD_OK;
    if (s->evidence->report->parameters[row->parameter].identity != 0) {
        status = explain_parameter(s, &seen, root_cut);
    }
    if (seen.culprit) {
        seen.detail = TGD_DETAIL_NOT_IN_GRAPH;
        *row = seen;
    }
    return status;
}

tgd_status tgd_find_cuts(tgd_evidence *evidence)
{
    tgd_report *report = evidence->report;
    search s = {.evidence = evidence};
    s.since = is_light(evidence->record) ? step_began(&s) : 0;
    uint32_t root_cut = TGD_NONE;
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < report->n_findings && status == TGD_OK; i++) {
        if (wants_reason(&report->findings[i])) {
            status = explain_parameter(&s, &report->findings[i], &root_cut);
        } else if (report->findings[i].detail == TGD_DETAIL_REPLACED) {
            status = explain_replaced(&s, &report->findings[i], &root_cut);
        }
    }
    for (uint32_t i = 0; i < report->n_findings && status == TGD_OK; i++) {
        tgd_finding_row *row = &report->findings[i];
        if (row->kind == TGD_NO_GRAD_FN && row->reason != TGD_REASON_REQUIRES_GRAD_OFF) {
            status = explain_root(&s, row, root_cut);
        }
    }
    tgd_address_map_clear(&s.reached);
    return status;
}
