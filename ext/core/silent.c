/*
 * Changes that no version check sees because saved-tensor hooks stand between a node and its tensor. A hook that keeps
 * the tensor itself hands back what was written to it since. A non-reentrant checkpoint runs its function again, as far
 * as the last tensor that it saves: what is written after that save is not written again, and does no harm; and what
 * the function reads is read as it is by then. A tensor that hooks packed is known by the node that made it, which never
 * comes again, and a view by the op that took it.
 */
#include "evidence.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_VIEWS = 32, OWN = 0 };

typedef struct frame {
    uint64_t hook;
    uint64_t last;              /* when the last of its known tensors was saved */
    uint32_t last_place;        /* the highest of the known ones */
    uint32_t n_places;
    bool no_stop;
} frame;

typedef struct search {
    tgd_evidence *evidence;
    tgd_sorted *written; /* Owned: identity, time; c = how many views lay between the written tensor and this one */
    uint32_t n_written, capacity;
    frame *frames; /* Owned */
    uint32_t n_frames;
    bool *told; /* Owned, per leaf */
} search;

static bool any_of(const char *name, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strcmp(name, *names) == 0) {
            return true;
        }
    }
    return false;
}

static bool takes_view(const char *name)
{
    static const char *const names[] = {"select", "slice", "view", "transpose", "t", "permute", "expand", "expand_as",
                                        "squeeze", "unsqueeze", "chunk", "split", "split_with_sizes", "tensor_split",
                                        "narrow", "unbind", "as_strided", "diagonal", "detach", "alias", "unfold",
                                        "view_as", "movedim", "swapaxes", "unflatten", "real", "imag",
                                        "view_as_real", "view_as_complex", "numpy_T", "matrix_H", "mT", "mH",
                                        "hsplit", "vsplit", "dsplit", NULL};
    return any_of(name, names);
}

static bool may_take_view(const char *name)
{
    static const char *const names[] = {"reshape", "flatten", "reshape_as", "ravel", "contiguous", "to", NULL};
    return any_of(name, names);
}

/* The op that made a tensor, or NULL. */
static const tgd_op_row *maker(const tgd_evidence *evidence, tgd_identity id)
{
    if (!(id & TGD_IDENTITY_NODE)) {
        return NULL;
    }
    uint64_t thread = id >> 48 & 0x7FFF, sequence_nr = id >> 8 & UINT64_C(0xFFFFFFFFFF);
    uint32_t i = tgd_sorted_from(evidence->ops, evidence->record->n_ops, thread, sequence_nr + 1);
    return i == 0 || evidence->ops[i - 1].a != thread ? NULL : &evidence->record->ops[evidence->ops[i - 1].row];
}

/* The tensor that a tensor is a view of, 0 where it is none. `is_view`: that is known of it. */
static tgd_identity viewed(const tgd_evidence *evidence, tgd_identity id, bool is_view)
{
    const tgd_op_row *op = maker(evidence, id);
    if (op == NULL || op->n_in == 0) {
        return 0;
    }
    const char *name = tgd_bare_name(op->name);
    return takes_view(name) || (is_view && may_take_view(name)) ? evidence->record->ids[op->first_id] : 0;
}

/* ---- what was written ---- */

static tgd_status add_written(search *s, tgd_identity id, uint64_t time, uint64_t views, uint32_t row)
{
    tgd_sorted *rows = tgd_grow(s->written, &s->capacity, (size_t)s->n_written + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(s->evidence->err);
    }
    s->written = rows;
    rows[s->n_written++] = (tgd_sorted){id, time, views, row};
    return TGD_OK;
}

static int earlier(const void *left, const void *right)
{
    const tgd_sorted *x = left, *y = right;
    if (x->a != y->a) {
        return x->a < y->a ? -1 : 1;
    }
    return x->b < y->b ? -1 : x->b > y->b;
}

static tgd_status find_written(search *s)
{
    const tgd_record *record = s->evidence->record;
    for (uint32_t i = 0; i < record->n_writes; i++) {
        const tgd_write_row *write = &record->writes[i];
        if (write->flags & (TGD_OP_THREW | TGD_OP_RESIZED | TGD_OP_IN_BACKWARD)) {
            continue;
        }
        tgd_identity id = write->identity;
        for (uint64_t views = OWN; id != 0 && views < MOST_VIEWS; views++) {
            tgd_status status = add_written(s, id, write->time, views, i);
            if (status != TGD_OK) {
                return status;
            }
            id = viewed(s->evidence, id, views == OWN && write->view);
        }
    }
    if (s->n_written > 1) {
        qsort(s->written, s->n_written, sizeof *s->written, earlier);
    }
    return TGD_OK;
}

/* ---- checkpoints ---- */

static frame *frame_of(const search *s, uint64_t hook)
{
    for (uint32_t f = s->n_frames; f-- > 0;) { /* rows of one frame mostly come together */
        if (s->frames[f].hook == hook) {
            return &s->frames[f];
        }
    }
    return NULL;
}

static tgd_status find_frames(search *s)
{
    const tgd_graph *graph = &s->evidence->report->graph;
    s->frames = calloc((size_t)graph->n_packed + 1, sizeof *s->frames);
    s->told = calloc((size_t)graph->n_leaves + 1, sizeof *s->told);
    if (s->frames == NULL || s->told == NULL) {
        return tgd_fail_memory(s->evidence->err);
    }
    for (uint32_t i = 0; i < graph->n_packed; i++) {
        const tgd_packed_row *packed = &graph->packed[i];
        const tgd_op_row *op = tgd_evidence_op(s->evidence, packed->node);
        if (!(packed->flags & TGD_PACKED_CHECKPOINT) || op == NULL) {
            continue;
        }
        frame *f = frame_of(s, packed->hook);
        if (f == NULL) {
            f = &s->frames[s->n_frames++];
            *f = (frame){.hook = packed->hook, .n_places = packed->n_places};
            f->no_stop = (packed->flags & TGD_PACKED_NO_STOP) != 0;
        }
        f->last = op->time > f->last ? op->time : f->last;
        f->last_place = packed->place != TGD_NONE && packed->place > f->last_place ? packed->place : f->last_place;
    }
    return TGD_OK;
}

/* Was one of the frame's tensors saved after the write? An op that saves its own result does so when it has written. */
static bool saved_after(const search *s, const frame *f, const tgd_write_row *write)
{
    const tgd_graph *graph = &s->evidence->report->graph;
    if (f->last > write->time) {
        return true;
    }
    for (uint32_t i = 0; f->last == write->time && i < graph->n_packed; i++) {
        const tgd_packed_row *packed = &graph->packed[i];
        const tgd_op_row *op = packed->hook == f->hook ? tgd_evidence_op(s->evidence, packed->node) : NULL;
        if (op != NULL && op->time == write->time && (graph->saved[packed->saved].flags & TGD_SV_OUTPUT)) {
            return true;
        }
    }
    return false;
}

/* Did the frame save more, of which this graph does not know, and may have done so after the write? */
static bool saved_after_unseen(const search *s, const frame *f, const tgd_write_row *write)
{
    static const char *const saves_nothing[] = {"add", "add_", "sub", "sub_", "neg", "sum", "cat", "stack", "clone",
                                                "reshape", "flatten", "to", "detach", NULL};
    const tgd_record *record = s->evidence->record;
    if (f->last_place + 1 >= f->n_places) {
        return false;
    }
    for (uint32_t i = 0; i < record->n_ops; i++) {
        const tgd_op_row *op = &record->ops[i];
        const char *name = tgd_bare_name(op->name);
        bool makes_node = op->n_out > 0 && (op->flags & TGD_OP_GRAD_MODE) &&
                          (record->ids[op->first_id + op->n_in] & TGD_IDENTITY_NODE);
        if (op->time > write->time && op->inside == f->hook && makes_node && !takes_view(name) &&
            !any_of(name, saves_nothing)) {
            return true;
        }
    }
    return false;
}

/* ---- values that no gradient reads ---- */

/* Does it only replace values, so that no gradient passes where it wrote? */
static bool overwrites(const char *name)
{
    static const char *const names[] = {"copy_", "fill_", "zero_", "masked_fill_", "index_fill_", "index_copy_",
                                        "masked_scatter_", "index_put_", "scatter_", "fill_diagonal_", NULL};
    return any_of(name, names);
}

/* Does the formula of a node that saved its own result read only the sign of it, or each value for its own gradient
   alone? */
static bool reads_sign(const char *node)
{
    static const char *const names[] = {"ReluBackward0", NULL};
    return any_of(node, names);
}

static bool reads_alone(const char *node)
{
    static const char *const names[] = {"SigmoidBackward0", "TanhBackward0", "ExpBackward0", "Exp2Backward0",
                                        "SqrtBackward0", "RsqrtBackward0", "ReciprocalBackward0", "Expm1Backward0",
                                        NULL};
    return reads_sign(node) || any_of(node, names);
}

/* Is the gradient that reaches node v the gradient of what this write left, and nothing else? */
static bool only_consumer(const tgd_evidence *evidence, tgd_node v, uint64_t time)
{
    const tgd_report *report = evidence->report;
    bool found = false;
    for (uint32_t i = 0; i < report->n_executed; i++) {
        tgd_node u = report->sequence[i];
        const tgd_node_row *node = &report->graph.nodes[u];
        for (uint32_t e = node->first_edge; e < node->first_edge + node->n_edges; e++) {
            if (report->graph.edges[e].to == v) {
                const tgd_op_row *op = tgd_evidence_op(evidence, u);
                if (op == NULL || op->time != time) {
                    return false;
                }
                found = true;
            }
        }
    }
    return found;
}

/* A write to the node's own result after which its gradient is the same: what was replaced gets no gradient, or only
   the sign counts and stays. Such writes may follow one another. */
static bool is_unread(const tgd_evidence *evidence, tgd_node v, const tgd_write_row *write)
{
    const char *node = tgd_graph_type(&evidence->report->graph, v)->name, *name = tgd_bare_name(write->name);
    bool sign = reads_sign(node) && ((write->flags & TGD_OP_KEEPS_SIGN) || strcmp(name, "relu_") == 0 ||
                                     strcmp(name, "dropout_") == 0 || strcmp(name, "feature_dropout_") == 0);
    return sign || (reads_alone(node) && (overwrites(name) || (write->flags & TGD_OP_MASKS)));
}

typedef enum harm { HARMLESS, MAY_HARM, HARMS } harm;

/* Of a tensor made in the frame. */
static harm harm_within(const search *s, const frame *f, const tgd_write_row *write)
{
    if (saved_after(s, f, write) || (f->no_stop && write->inside == f->hook)) {
        return HARMS;
    }
    return saved_after_unseen(s, f, write) ? MAY_HARM : HARMLESS;
}

static tgd_identity identity_of(const tgd_graph *graph, const tgd_packed_row *packed)
{
    const tgd_node_row *node = &graph->nodes[packed->node];
    return graph->saved[packed->saved].flags & TGD_SV_OUTPUT
               ? tgd_identity_of_output(node->thread_id, node->sequence_nr, packed->output_nr)
               : packed->identity;
}

/* The first write after `since` to this tensor, or through a view of it, that does harm. */
static const tgd_write_row *harmful(const search *s, const frame *f, tgd_identity id, uint64_t since, bool own_only,
                                    bool within, tgd_node maker_node, harm *out)
{
    const tgd_write_row *found = NULL;
    bool unread = maker_node != TGD_NONE, first = true;
    uint32_t i = tgd_sorted_from(s->written, s->n_written, id, since + 1);
    for (*out = HARMLESS; *out != HARMS && i < s->n_written && s->written[i].a == id; i++) {
        const tgd_write_row *write = &s->evidence->record->writes[s->written[i].row];
        if (own_only && s->written[i].c != OWN) {
            continue;
        }
        unread = unread && is_unread(s->evidence, maker_node, write) &&
                 (!first || only_consumer(s->evidence, maker_node, write->time));
        first = false;
        if (unread) {
            continue;
        }
        harm h = within ? harm_within(s, f, write)
                 : write->time > f->last && write->inside != f->hook ? HARMS
                 : saved_after(s, f, write)                           ? HARMS
                                                                      : HARMLESS;
        if (h > *out) {
            *out = h;
            found = write;
        }
    }
    return found;
}

static const tgd_write_row *write_in_checkpoint(const search *s, const tgd_packed_row *packed, harm *out)
{
    const tgd_evidence *evidence = s->evidence;
    const frame *f = frame_of(s, packed->hook);
    const tgd_op_row *made = tgd_evidence_op(evidence, packed->node);
    tgd_identity id = identity_of(&evidence->report->graph, packed);
    *out = HARMLESS;
    if (f == NULL || made == NULL) {
        return NULL;
    }
    for (int views = 0; id != 0 && views < MOST_VIEWS; views++) {
        const tgd_op_row *producer = maker(evidence, id);
        bool within = producer != NULL && producer->inside == f->hook;
        bool own = views == 0 && (evidence->report->graph.saved[packed->saved].flags & TGD_SV_OUTPUT);
        const tgd_write_row *write =
            producer == NULL
                ? NULL
                : harmful(s, f, id, made->time, views > 0, within, own ? packed->node : TGD_NONE, out);
        if (write != NULL) {
            return write;
        }
        id = viewed(evidence, id, false);
    }
    return NULL;
}

/* ---- hooks that keep the tensor ---- */

static const tgd_write_row *write_to_packed(const search *s, const tgd_packed_row *packed)
{
    const tgd_evidence *evidence = s->evidence;
    const tgd_op_row *made = tgd_evidence_op(evidence, packed->node);
    if (made == NULL || packed->storage == 0) {
        return NULL;
    }
    bool unread = (evidence->report->graph.saved[packed->saved].flags & TGD_SV_OUTPUT) != 0, first = true;
    uint32_t i = tgd_sorted_from(evidence->by_storage, evidence->record->n_writes, packed->storage, made->time + 1);
    for (; i < evidence->record->n_writes && evidence->by_storage[i].a == packed->storage; i++) {
        const tgd_write_row *write = &evidence->record->writes[evidence->by_storage[i].row];
        if ((write->flags & (TGD_OP_THREW | TGD_OP_RESIZED)) || write->first_byte >= packed->end_byte ||
            packed->first_byte >= write->end_byte) {
            continue;
        }
        unread = unread && is_unread(evidence, packed->node, write) &&
                 (!first || only_consumer(evidence, packed->node, write->time));
        first = false;
        if (!unread) {
            return write;
        }
    }
    return NULL;
}

/* ---- findings ---- */

static tgd_status add_finding(search *s, tgd_node v, uint32_t saved, uint32_t leaf, tgd_detail detail,
                              const tgd_write_row *write)
{
    tgd_report *report = s->evidence->report;
    tgd_finding_row row = {.kind = TGD_SILENTLY_MODIFIED,
                           .severity = detail == TGD_DETAIL_MAY_RECOMPUTE ? TGD_WARNING : TGD_ERROR,
                           .detail = (uint8_t)detail, .node = v, .saved = saved, .parameter = TGD_NONE,
                           .root = TGD_NONE, .other = leaf, .where = TGD_NONE, .op = tgd_bare_name(write->name),
                           .culprit = true, .group = report->n_groups++};
    tgd_status status = tgd_evidence_source(s->evidence, &write->place, &row.where);
    return status == TGD_OK ? tgd_report_add(report, row, s->evidence->err) : status;
}

static tgd_status judge_packed(search *s, const tgd_packed_row *packed)
{
    const tgd_report *report = s->evidence->report;
    harm h = HARMLESS;
    tgd_detail detail = TGD_DETAIL_PACKED;
    const tgd_write_row *write = NULL;
    if (report->order[packed->node] == TGD_NONE || report->graph.saved[packed->saved].state != TGD_SAVED_HOOKED ||
        tgd_saved_is_custom(&report->graph, packed->node) || !tgd_saved_needed(report, packed->node, packed->saved)) {
        return TGD_OK;
    }
    if (packed->flags & TGD_PACKED_CHECKPOINT) {
        write = write_in_checkpoint(s, packed, &h);
        detail = h == MAY_HARM ? TGD_DETAIL_MAY_RECOMPUTE : TGD_DETAIL_RECOMPUTED;
    } else {
        write = write_to_packed(s, packed);
    }
    return write == NULL ? TGD_OK : add_finding(s, packed->node, packed->saved, TGD_NONE, detail, write);
}

/* A leaf that the checkpointed function read before its last save, and that was written to when it had ended. */
static const tgd_write_row *write_to_leaf(const search *s, const frame *f, uint32_t leaf)
{
    const tgd_evidence *evidence = s->evidence;
    const tgd_graph *graph = &evidence->report->graph;
    if (graph->leaves[leaf].storage == TGD_NONE) {
        return NULL;
    }
    uint64_t storage = graph->storages[graph->leaves[leaf].storage].address;
    uint32_t i = tgd_sorted_from(evidence->by_storage, evidence->record->n_writes, storage, f->last + 1);
    for (; i < evidence->record->n_writes && evidence->by_storage[i].a == storage; i++) {
        const tgd_write_row *write = &evidence->record->writes[evidence->by_storage[i].row];
        if (!(write->flags & (TGD_OP_THREW | TGD_OP_RESIZED | TGD_OP_IN_BACKWARD)) && write->inside != f->hook &&
            write->end_byte > write->first_byte) {
            return write;
        }
    }
    return NULL;
}

static tgd_status judge_leaf(search *s, const frame *f, tgd_node v, uint32_t leaf, uint32_t saved)
{
    const tgd_write_row *write = s->told[leaf] ? NULL : write_to_leaf(s, f, leaf);
    if (write == NULL) {
        return TGD_OK;
    }
    s->told[leaf] = true;
    return add_finding(s, v, saved, leaf, TGD_DETAIL_RECOMPUTED_LEAF, write);
}

/* What the op that made node v was given by ops outside of its checkpoint, and was written to when that had ended. */
static tgd_status judge_given(search *s, const frame *f, tgd_node v, const tgd_op_row *op)
{
    const tgd_evidence *evidence = s->evidence;
    for (uint32_t k = 0; k < op->n_in && s->n_written > 0; k++) {
        tgd_identity id = evidence->record->ids[op->first_id + k];
        const tgd_op_row *producer = maker(evidence, id);
        harm h;
        const tgd_write_row *write = producer == NULL || producer->inside == f->hook
                                         ? NULL
                                         : harmful(s, f, id, f->last, false, false, TGD_NONE, &h);
        if (write != NULL) {
            return add_finding(s, v, TGD_NONE, TGD_NONE, TGD_DETAIL_RECOMPUTED_INPUT, write);
        }
    }
    return TGD_OK;
}

/* The leaves that lead into node v, and what else its op read. */
static tgd_status judge_leaves_of(search *s, tgd_node v)
{
    const tgd_report *report = s->evidence->report;
    const tgd_node_row *node = &report->graph.nodes[v];
    const tgd_op_row *op = tgd_evidence_op(s->evidence, v);
    const frame *f = op == NULL || op->inside == 0 || (op->flags & TGD_OP_IN_BACKWARD) ? NULL : frame_of(s, op->inside);
    if (f == NULL || op->time >= f->last) {
        return TGD_OK;
    }
    tgd_status status = judge_given(s, f, v, op);
    for (uint32_t e = node->first_edge; status == TGD_OK && e < node->first_edge + node->n_edges; e++) {
        tgd_node to = report->graph.edges[e].to;
        if (to != TGD_NONE && report->graph.nodes[to].leaf != TGD_NONE) {
            status = judge_leaf(s, f, v, report->graph.nodes[to].leaf, TGD_NONE);
        }
    }
    return status;
}

static uint32_t leaf_at(const tgd_graph *graph, uint64_t address)
{
    for (uint32_t i = 0; address != 0 && i < graph->n_leaves; i++) {
        if (graph->leaves[i].tensor == address) {
            return i;
        }
    }
    return TGD_NONE;
}

static tgd_status judge_all(search *s)
{
    const tgd_report *report = s->evidence->report;
    const tgd_graph *graph = &report->graph;
    tgd_status status = TGD_OK;
    for (uint32_t i = 0; i < graph->n_packed && status == TGD_OK; i++) {
        const tgd_packed_row *packed = &graph->packed[i];
        status = judge_packed(s, packed);
        const frame *f = packed->flags & TGD_PACKED_CHECKPOINT ? frame_of(s, packed->hook) : NULL;
        uint32_t leaf = f == NULL ? TGD_NONE : leaf_at(graph, packed->leaf);
        if (status == TGD_OK && leaf != TGD_NONE && report->order[packed->node] != TGD_NONE &&
            tgd_saved_needed(report, packed->node, packed->saved)) {
            status = judge_leaf(s, f, packed->node, leaf, packed->saved);
        }
    }
    for (uint32_t i = 0; s->n_frames > 0 && i < report->n_executed && status == TGD_OK; i++) {
        status = judge_leaves_of(s, report->sequence[i]);
    }
    return status;
}

tgd_status tgd_find_packed(tgd_evidence *evidence)
{
    search s = {.evidence = evidence};
    tgd_status status = TGD_OK;
    if (evidence->report->graph.n_packed > 0) {
        status = find_written(&s);
        if (status == TGD_OK) {
            status = find_frames(&s);
        }
        if (status == TGD_OK) {
            status = judge_all(&s);
        }
    }
    free(s.written);
    free(s.frames);
    free(s.told);
    return status;
}

/* ---- what a formula reads ---- */

bool tgd_saved_needed(const tgd_report *report, tgd_node v, uint32_t saved)
{
    /* A saved tensor that only the gradients along these edges are computed from. */
    static const struct {
        const char *node, *saved;
        uint32_t edges; /* bit k */
    } only[] = {
        {"MulBackward0", "self", 2},     {"MulBackward0", "other", 1},   {"DivBackward0", "self", 2},
        {"MmBackward0", "self", 2},      {"MmBackward0", "mat2", 1},     {"BmmBackward0", "self", 2},
        {"BmmBackward0", "mat2", 1},     {"MvBackward0", "self", 2},     {"MvBackward0", "vec", 1},
        {"DotBackward0", "self", 2},     {"DotBackward0", "tensor", 1},  {"AddmmBackward0", "mat1", 4},
        {"AddmmBackward0", "mat2", 2},   {"BaddbmmBackward0", "batch1", 4}, {"BaddbmmBackward0", "batch2", 2},
        {"AddcmulBackward0", "tensor1", 4}, {"AddcmulBackward0", "tensor2", 2},
        {"ConvolutionBackward0", "input", 2}, {"ConvolutionBackward0", "weight", 1},
    };
    const tgd_graph *graph = &report->graph;
    const tgd_node_row *node = &graph->nodes[v];
    const char *name = tgd_graph_type(graph, v)->name;
    for (size_t i = 0; i < sizeof only / sizeof only[0]; i++) {
        if (strcmp(only[i].node, name) != 0 || strcmp(only[i].saved, graph->saved[saved].name) != 0) {
            continue;
        }
        for (uint32_t k = 0; k < node->n_edges; k++) {
            tgd_node to = graph->edges[node->first_edge + k].to;
            if ((only[i].edges >> k & 1u) && to != TGD_NONE && report->order[to] != TGD_NONE) {
                return true;
            }
        }
        return false;
    }
    return true;
}
