/*
 * Parameters that get a gradient and do not move. What moved is told by the writes of the recorder; who should have
 * moved it, by the optimizers that are alive. Silent wherever another explanation is left: no step was taken, the
 * parameter is written by hand, it belongs to an optimizer that did not step, or to one that is gone.
 */
#include "census.h"
#include "evidence.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS_OF_A_FORGOTTEN_SCHEDULER = 3, STEPS_AT_ZERO = 2 };

typedef struct search {
    tgd_evidence evidence;
    const tgd_census *census;
    tgd_report *report;
    const tgd_record *record;
    uint64_t since;              /* when the backward began that gave the gradients */
    const tgd_write_row *step;   /* the first step of an optimizer after it */
    bool *stepped;               /* Owned, per optimizer: wrote to a parameter of its own after `since` */
    tgd_address_map members;     /* storage -> member */
    tgd_address_map member_tensors; /* the same by tensor: its storage may have been swapped */
    tgd_address_map optimized;   /* storage -> 0: written by an optimizer after `since` */
    tgd_address_map stepped_on;  /* storage -> the step before its first write after `since` */
    tgd_address_map written;     /* storage -> the last write to it, by anybody */
    tgd_address_map used;        /* identity, spread -> the first op that took it */
    bool unknown;                /* an optimizer that nobody holds any more has stepped */
} search;

static bool is_mark(const tgd_write_row *write, const char *of)
{
    return (write->flags & TGD_OP_MARK) && strncmp(write->name, of, strlen(of)) == 0;
}

static bool is_step(const tgd_write_row *write)
{
    return is_mark(write, "Optimizer.step#");
}

/* "Adam" of "Optimizer.step#Adam.step" */
static bool is_class_of(const tgd_write_row *mark, const char *name)
{
    const char *from = strchr(mark->name, '#');
    size_t n = strlen(name);
    return from != NULL && strncmp(from + 1, name, n) == 0 && from[1 + n] == '.';
}

/* ---- when ---- */

/* The backward that the report is about; before one, the newest that a step followed. */
static bool find_run(search *s)
{
    const tgd_record *record = s->record;
    uint64_t step = 0;
    for (uint32_t i = 0; i < record->n_writes; i++) {
        step = is_step(&record->writes[i]) ? record->writes[i].time : step;
    }
    for (uint32_t i = 0; i < record->n_runs; i++) {
        const tgd_run_row *run = &record->runs[i];
        if (s->report->attempted ? run->time >= s->report->asked : !run->failed && run->time < step) {
            s->since = run->time;
            if (s->report->attempted) {
                return !run->failed;
            }
        }
    }
    return s->since > 0;
}

static bool find_step(search *s)
{
    for (uint32_t i = 0; i < s->record->n_writes && s->step == NULL; i++) {
        const tgd_write_row *write = &s->record->writes[i];
        s->step = write->time > s->since && is_step(write) ? write : NULL;
    }
    return s->step != NULL;
}

/* ---- who ---- */

static tgd_status put(search *s, tgd_address_map *map, uint64_t key, uint32_t value)
{
    uint32_t *known = key == 0 ? NULL : tgd_address_map_at(map, key);
    if (key != 0 && known == NULL) {
        return tgd_fail_memory(s->evidence.err);
    }
    if (known != NULL && *known == TGD_NONE) {
        *known = value;
    }
    return TGD_OK;
}

static uint64_t storage_of(const tgd_torch_tensor *tensor)
{
    tgd_torch_tensor_info info;
    tgd_torch_tensor_read(tensor, &info);
    return info.storage;
}

static uint64_t storage_of_parameter(const search *s, uint32_t i)
{
    const tgd_graph *graph = &s->report->graph;
    uint32_t leaf = s->report->parameters[i].leaf;
    uint32_t storage = leaf == TGD_NONE ? TGD_NONE : graph->leaves[leaf].storage;
    return storage == TGD_NONE ? 0 : graph->storages[storage].address;
}

static uint64_t spread(tgd_identity id)
{
    return id * UINT64_C(0x9E3779B97F4A7C15);
}

static tgd_status collect_uses(search *s)
{
    const tgd_record *record = s->record;
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < record->n_ops && status == TGD_OK; i++) {
        const tgd_identity *ids = record->ids + record->ops[i].first_id;
        for (uint32_t k = 0; k < record->ops[i].n_in && status == TGD_OK; k++) {
            status = ids[k] & TGD_IDENTITY_NODE ? TGD_OK : put(s, &s->used, spread(ids[k]), i);
        }
    }
    return status;
}

static const tgd_gradient_row *gradient_of(const search *s, uint32_t parameter)
{
    uint64_t tensor = s->report->parameters[parameter].tensor;
    for (size_t i = 0; i < s->census->n_gradients; i++) {
        if ((uint64_t)(uintptr_t)s->census->gradients[i].leaf == tensor) {
            return &s->census->gradients[i];
        }
    }
    return NULL;
}

/* Was it written to later than that, or given other data? */
static bool moved_since(const search *s, uint32_t parameter, uint64_t time)
{
    const tgd_gradient_row *now = gradient_of(s, parameter);
    uint32_t last = tgd_address_map_find(&s->written, storage_of_parameter(s, parameter));
    return (now != NULL && now->leaf_storage != storage_of_parameter(s, parameter)) ||
           (last != TGD_NONE && s->record->writes[last].time > time);
}

/* The same since the forward first used it: by hand, or by an optimizer that is gone. */
static bool moved(const search *s, uint32_t parameter)
{
    uint32_t first = tgd_address_map_find(&s->used, spread(s->report->parameters[parameter].identity));
    return moved_since(s, parameter, first == TGD_NONE ? 0 : s->record->ops[first].time);
}

static tgd_status collect(search *s)
{
    const tgd_record *record = s->record;
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < s->census->n_members && status == TGD_OK; i++) {
        const tgd_torch_tensor *tensor = s->census->members[i].tensor;
        status = put(s, &s->members, storage_of(tensor), i);
        if (status == TGD_OK) {
            status = put(s, &s->member_tensors, (uint64_t)(uintptr_t)tensor, i);
        }
    }
    uint32_t step = TGD_NONE; /* since the last backward */
    for (uint32_t i = 0; i < record->n_writes && status == TGD_OK; i++) {
        const tgd_write_row *write = &record->writes[i];
        step = is_step(write) ? i : step;
        if (write->storage == 0 || (write->flags & (TGD_OP_MARK | TGD_OP_THREW))) {
            continue;
        }
        uint32_t *last = tgd_address_map_at(&s->written, write->storage);
        if (last == NULL) {
            return tgd_fail_memory(s->evidence.err);
        }
        *last = i;
        if (step != TGD_NONE && write->time > s->since) {
            status = put(s, &s->stepped_on, write->storage, step);
        }
        if (status == TGD_OK && (write->place.via & TGD_VIA_OPTIMIZER) && write->time > s->since) {
            status = put(s, &s->optimized, write->storage, 0);
        }
    }
    for (uint32_t i = 0; i < s->census->n_members; i++) {
        const tgd_member_row *member = &s->census->members[i];
        uint64_t storage = storage_of(member->tensor);
        /* one of the user's own writes in its own code, but not before its step() began */
        uint32_t by = tgd_address_map_find(&s->stepped_on, storage);
        s->stepped[member->optimizer] |=
            tgd_address_map_find(&s->optimized, storage) == 0 ||
            (by != TGD_NONE && is_class_of(&record->writes[by], s->census->optimizers[member->optimizer].name));
    }
    for (uint32_t i = 0; i < s->report->n_parameters; i++) {
        uint64_t storage = storage_of_parameter(s, i);
        s->unknown = s->unknown || (storage != 0 && tgd_address_map_find(&s->optimized, storage) == 0 &&
                                    tgd_address_map_find(&s->members, storage) == TGD_NONE &&
                                    tgd_address_map_find(&s->member_tensors, s->report->parameters[i].tensor) ==
                                        TGD_NONE);
    }
    return status;
}

/* ---- findings ---- */

static tgd_status add(search *s, uint32_t parameter, tgd_detail detail, tgd_severity severity,
                      const tgd_write_row *where, const tgd_member_row *member, uint32_t steps)
{
    const tgd_parameter_row *row = &s->report->parameters[parameter];
    tgd_finding_row finding = {.kind = TGD_NOT_IN_OPTIMIZER, .severity = (uint8_t)severity, .detail = (uint8_t)detail,
                               .node = s->report->graph.leaves[row->leaf].node, .saved = TGD_NONE,
                               .parameter = parameter, .root = TGD_NONE, .where = TGD_NONE};
    tgd_fact_row fact = {.node = TGD_NONE, .where = TGD_NONE, .steps = steps};
    char name[96] = "";
    if (member != NULL) {
        tgd_text text;
        tgd_text_init(&text, NULL, NULL);
        tgd_text_line(&text, s->census->optimizers[member->optimizer].name, 32);
        tgd_text_printf(&text, ", group %lu / param %lu", (unsigned long)member->group, (unsigned long)member->place);
        if (text.status == TGD_OK) {
            size_t n = text.n < sizeof name - 1 ? text.n : sizeof name - 1;
            memcpy(name, text.bytes, n);
            name[n] = '\0';
        }
        tgd_text_drop(&text);
    }
    tgd_status status = tgd_report_fact(s->report, fact, name, &finding.other, s->evidence.err);
    if (status == TGD_OK) {
        status = tgd_evidence_source(&s->evidence, &where->place, &finding.where);
    }
    finding.group = s->report->n_groups;
    for (uint32_t i = 0; i < s->report->n_findings; i++) { /* one cause: one group */
        const tgd_finding_row *before = &s->report->findings[i];
        if (before->kind == finding.kind && before->detail == finding.detail && before->where == finding.where &&
            before->severity == finding.severity) {
            finding.group = before->group;
        }
    }
    s->report->n_groups += finding.group == s->report->n_groups;
    return status == TGD_OK ? tgd_report_add(s->report, finding, s->evidence.err) : status;
}

/* The step came and wrote to nothing that this optimizer has, and it can only have been this one's: there was no
   gradient any more. */
static bool stepped_without(const search *s, const tgd_member_row *member)
{
    size_t of_class = 0;
    for (size_t i = 0; i < s->census->n_optimizers; i++) {
        of_class += is_class_of(s->step, s->census->optimizers[i].name);
        if (s->stepped[i]) {
            return false;
        }
    }
    const tgd_optimizer_row *optimizer = &s->census->optimizers[member->optimizer];
    return of_class == 1 && optimizer->of_torch && is_class_of(s->step, optimizer->name) && s->optimized.n == 0;
}

/* The tensor that an optimizer holds in the place of this parameter: of its shape, and no parameter any more. */
static const tgd_member_row *replaced(const search *s, uint32_t parameter)
{
    const tgd_parameter_row *row = &s->report->parameters[parameter];
    int ndim;
    const int64_t *sizes = tgd_graph_shape(&s->report->graph, row->shape, &ndim);
    for (size_t i = 0; i < s->census->n_members; i++) {
        const tgd_member_row *member = &s->census->members[i];
        tgd_torch_tensor_info tensor;
        tgd_torch_tensor_read(member->tensor, &tensor);
        bool same = ndim >= 0 && tensor.ndim == ndim && tensor.dtype == row->dtype &&
                    (ndim == 0 || memcmp(tensor.sizes, sizes, (size_t)ndim * sizeof *sizes) == 0);
        for (uint32_t k = 0; same && k < s->report->n_parameters; k++) {
            same = s->report->parameters[k].tensor != tensor.address;
        }
        for (uint32_t k = 0; same && k < s->report->graph.n_leaves; k++) {
            same = s->report->graph.leaves[k].tensor != tensor.address;
        }
        if (same && (s->stepped[member->optimizer] || stepped_without(s, member))) {
            return member;
        }
    }
    return NULL;
}

static tgd_status judge_outsider(search *s, uint32_t parameter)
{
    bool some = false;
    for (size_t i = 0; i < s->census->n_optimizers; i++) {
        some = some || s->stepped[i];
    }
    if (s->unknown || moved(s, parameter)) {
        return TGD_OK;
    }
    const tgd_member_row *member = replaced(s, parameter);
    if (member == NULL && !some) {
        return TGD_OK;
    }
    return add(s, parameter, member == NULL ? TGD_DETAIL_NO_OPTIMIZER : TGD_DETAIL_OPTIMIZES_OLD, TGD_WARNING, s->step,
               member, 0);
}

/* Steps after which this storage was written to, in all that was recorded. */
static uint32_t steps_of(const search *s, uint64_t storage)
{
    uint32_t n = 0;
    bool counted = true;
    for (uint32_t i = 0; i < s->record->n_writes; i++) {
        const tgd_write_row *write = &s->record->writes[i];
        counted = counted && !is_step(write);
        if (!counted && write->storage == storage) {
            counted = true;
            n++;
        }
    }
    return n;
}

static tgd_status judge_rate(search *s, uint32_t parameter, const tgd_member_row *member)
{
    uint32_t n = steps_of(s, storage_of_parameter(s, parameter));
    if (member->scheduled && (!member->never_stepped || n < STEPS_OF_A_FORGOTTEN_SCHEDULER)) {
        return TGD_OK; /* a warm-up begins at zero, a decay ends there */
    }
    bool forgotten = member->scheduled && member->never_stepped;
    return add(s, parameter, forgotten ? TGD_DETAIL_NO_SCHEDULER : TGD_DETAIL_RATE_ZERO,
               n >= STEPS_AT_ZERO ? TGD_WARNING : TGD_NOTE, s->step, member, n);
}

/* Was its .grad filled with zeros between the backward and the step? Who did it, or NULL. */
static const tgd_write_row *zeroed(const search *s, uint32_t parameter)
{
    const tgd_gradient_row *now = gradient_of(s, parameter);
    uint64_t storage = now == NULL ? 0 : now->storage;
    uint32_t i = tgd_sorted_from(s->evidence.by_storage, s->record->n_writes, storage, s->since + 1);
    for (; storage != 0 && i < s->record->n_writes && s->evidence.by_storage[i].a == storage; i++) {
        const tgd_write_row *write = &s->record->writes[s->evidence.by_storage[i].row];
        const char *name = tgd_bare_name(write->name);
        if (write->time > s->step->time) {
            break;
        }
        if (strcmp(name, "zero_") == 0 || strcmp(name, "_foreach_zero_") == 0) {
            return write;
        }
    }
    return NULL;
}

static const tgd_write_row *zero_grad_mark(const search *s)
{
    for (uint32_t i = 0; i < s->record->n_writes; i++) {
        const tgd_write_row *write = &s->record->writes[i];
        if (write->time > s->since && write->time < s->step->time && is_mark(write, "Optimizer.zero_grad#")) {
            return write;
        }
    }
    return NULL;
}

/* Another backward before the step may have filled it again. */
static bool is_last_run(const search *s)
{
    for (uint32_t i = 0; i < s->record->n_runs; i++) {
        if (s->record->runs[i].time > s->since && s->record->runs[i].time < s->step->time) {
            return false;
        }
    }
    return true;
}

static tgd_status judge_member(search *s, uint32_t parameter, const tgd_member_row *member)
{
    if (s->stepped[member->optimizer] && member->rate_known && member->rate == 0) {
        return judge_rate(s, parameter, member);
    }
    if (!s->report->attempted || !is_last_run(s)) {
        return TGD_OK;
    }
    const tgd_write_row *by = s->stepped[member->optimizer] ? zeroed(s, parameter) : NULL;
    if (by == NULL && stepped_without(s, member) && !moved_since(s, parameter, s->since)) {
        const tgd_write_row *mark = zero_grad_mark(s);
        by = mark == NULL ? s->step : mark;
    }
    return by == NULL ? TGD_OK
                      : add(s, parameter, by == s->step ? TGD_DETAIL_GRADIENT_GONE : TGD_DETAIL_GRADIENT_ZEROED,
                            TGD_WARNING, by, member, 0);
}

static tgd_status judge_all(search *s)
{
    tgd_status status = collect(s);
    if (status == TGD_OK) {
        status = collect_uses(s);
    }
    for (uint32_t i = 0; i < s->report->n_parameters && status == TGD_OK; i++) {
        const tgd_parameter_row *row = &s->report->parameters[i];
        if (!row->reached || row->leaf == TGD_NONE || s->report->leaf_parameter[row->leaf] != i ||
            !(row->flags & TGD_TENSOR_REQUIRES_GRAD) || (row->flags & (TGD_TENSOR_SUBCLASS | TGD_TENSOR_WRAPPER))) {
            continue;
        }
        uint64_t storage = storage_of_parameter(s, i);
        uint32_t member = tgd_address_map_find(&s->member_tensors, row->tensor);
        member = member == TGD_NONE && storage != 0 ? tgd_address_map_find(&s->members, storage) : member;
        if (storage != 0) {
            status = member == TGD_NONE ? judge_outsider(s, i)
                                        : judge_member(s, i, &s->census->members[member]);
        }
    }
    return status;
}

tgd_status tgd_judge_weights(tgd_report *report, const tgd_request *request, tgd_error *err)
{
    search s = {.report = report, .census = request->census,
                .record = report->later != NULL ? report->later : report->record};
    if (s.census == NULL || !s.census->whole || s.census->n_optimizers == 0 || s.record == NULL || report->captures ||
        !report->has_parameters ||
        !find_run(&s) || !find_step(&s)) {
        return TGD_OK;
    }
    tgd_status status = tgd_evidence_open_record(&s.evidence, report, s.record, err);
    s.stepped = calloc(s.census->n_optimizers, sizeof *s.stepped);
    if (status == TGD_OK && s.stepped == NULL) {
        status = tgd_fail_memory(err);
    }
    if (status == TGD_OK) {
        status = judge_all(&s);
    }
    free(s.stepped);
    tgd_address_map_clear(&s.members);
    tgd_address_map_clear(&s.member_tensors);
    tgd_address_map_clear(&s.optimized);
    tgd_address_map_clear(&s.stepped_on);
    tgd_address_map_clear(&s.written);
    tgd_address_map_clear(&s.used);
    tgd_evidence_close(&s.evidence);
    return status;
}
