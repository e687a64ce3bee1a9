/* Findings over several steps, from rows and a census made by hand: what grows, what is kept, what never moves, what
   carried a freed graph; and every allocation refused in turn. */
#include "census.h"
#include "failing_malloc.h"
#include "probe.h"
#include "record.h"

enum { STEPS = 4, MOST = 64, MOST_ALLOCATIONS = 4000 };

/* Four steps of loss = exp(w); total = total + loss; backward; step. Place c stands for line c of "train.py". */
typedef struct story {
    tgd_record record;
    tgd_op_row ops[MOST];
    tgd_write_row writes[MOST];
    tgd_run_row runs[MOST];
    tgd_taken_row taken[MOST];
    tgd_identity ids[MOST];
    tgd_torch_tensor *w, *v, *old;
    tgd_torch_node *loss[STEPS + 1], *total[STEPS];
    tgd_root kept[2 * STEPS];
    tgd_member_row members[2];
    tgd_gradient_row gradients[2];
    tgd_cycle_row cycles[2];
    tgd_held_row held[2];
    tgd_optimizer_row optimizers[1];
    tgd_census census;
    tgd_root root;
    tgd_parameter parameters[2];
    tgd_request request;
    uint64_t time;
} story;

enum { LINE_LOSS = 11, LINE_TOTAL = 12, LINE_BACKWARD = 13, LINE_STEP = 14, LINE_CTX = 15 };

static tgd_place at_line(uint32_t line)
{
    return (tgd_place){.code = line, .module = TGD_NONE};
}

static int resolve(const tgd_place *place, tgd_source *out)
{
    *out = (tgd_source){.file = "/home/me/train.py", .function = "f", .module = "", .module_class = "",
                        .line = (int)place->code};
    return 1;
}

static void op(story *s, const char *name, const tgd_torch_node *made, uint32_t line)
{
    s->ops[s->record.n_ops++] = (tgd_op_row){
        .time = ++s->time, .sequence_nr = made->sequence_nr, .thread = made->thread_id, .name = name,
        .place = at_line(line), .mode = {.code = TGD_NONE, .module = TGD_NONE}, .flags = TGD_OP_GRAD_MODE};
}

static void write_to(story *s, const char *name, const tgd_torch_tensor *to, uint32_t line, uint32_t flags)
{
    tgd_write_row *row = &s->writes[s->record.n_writes++];
    *row = (tgd_write_row){.time = ++s->time, .thread = 1, .name = name, .place = at_line(line), .flags = flags};
    row->place.via = TGD_VIA_OPTIMIZER;
    if (to != NULL) {
        row->storage = to->info.storage;
        row->version_counter = to->info.version_counter;
        row->tensor = to->info.address;
        row->end_byte = 8;
    }
}

static void backward(story *s, const tgd_torch_node *of, bool create_graph)
{
    s->runs[s->record.n_runs++] = (tgd_run_row){.time = ++s->time, .place = at_line(LINE_BACKWARD),
                                                .keep_graph = create_graph, .create_graph = create_graph};
    s->taken[s->record.n_taken++] = (tgd_taken_row){of->sequence_nr, of->thread_id, s->time};
}

static tgd_torch_node *exp_of(story *s)
{
    tgd_torch_node *node = fake_node("ExpBackward0");
    fake_edge(node, 0, fake_leaf_node(s->w), 0);
    fake_edge(node, 1, fake_leaf_node(s->v), 0);
    fake_save_result(node, "result", fake_output(node, 0, FAKE_SIZES(5)));
    op(s, "aten::exp", node, LINE_LOSS);
    return node;
}

static void finish(story *s)
{
    s->record.shares = 1000; /* on the stack: never freed */
    s->record.ops = s->ops;
    s->record.writes = s->writes;
    s->record.runs = s->runs;
    s->record.taken = s->taken;
    s->record.ids = s->ids;
    s->census = (tgd_census){.gradients = s->gradients, .held = s->held, .n_gradients = 2, .n_held = 2, .whole = true,
                             .kept = s->kept, .members = s->members, .optimizers = s->optimizers,
                             .cycles = s->cycles, .n_kept = s->census.n_kept, .n_members = 2, .n_optimizers = 1,
                             .n_cycles = s->census.n_cycles};
    s->request = (tgd_request){.roots = &s->root, .n_roots = 1, .parameters = s->parameters, .n_parameters = 2,
                               .record = &s->record, .resolve = resolve, .census = &s->census, .asked = s->time,
                               .create_graph = 0};
}

static void tell(story *s, bool with_total)
{
    *s = (story){.w = fake_leaf(FAKE_SIZES(5)), .v = fake_leaf(FAKE_SIZES(2)), .old = fake_leaf(FAKE_SIZES(2))};
    tgd_torch_node *before = NULL;
    for (int k = 0; k < STEPS; k++) {
        s->loss[k] = exp_of(s);
        backward(s, s->loss[k], false);
        write_to(s, "Optimizer.step#Adam.step", NULL, LINE_STEP, TGD_OP_MARK);
        write_to(s, "aten::_foreach_add_", s->w, LINE_STEP, 0);
        if (with_total) {
            s->total[k] = fake_node("AddBackward0");
            fake_edge(s->total[k], 0, before, 0);
            fake_edge(s->total[k], 1, s->loss[k], 0);
            op(s, "aten::add", s->total[k], LINE_TOTAL);
            before = s->total[k];
        } else {
            s->kept[s->census.n_kept++] = (tgd_root){.node = s->loss[k]};
        }
    }
    if (with_total) {
        s->kept[s->census.n_kept++] = (tgd_root){.node = before};
    }
    s->loss[STEPS] = exp_of(s);
    s->root = (tgd_root){.node = s->loss[STEPS]};
    s->optimizers[0] = (tgd_optimizer_row){"Adam", true};
    s->members[0] = (tgd_member_row){.tensor = s->w, .rate = 0.1, .rate_known = true};
    s->members[1] = (tgd_member_row){.tensor = s->old, .place = 1, .rate = 0.1, .rate_known = true};
    s->parameters[0] = (tgd_parameter){"w", s->w};
    s->parameters[1] = (tgd_parameter){"v", s->v};
    s->gradients[0] = (tgd_gradient_row){.leaf = s->w, .leaf_storage = s->w->info.storage};
    s->gradients[1] = (tgd_gradient_row){.leaf = s->v, .leaf_storage = s->v->info.storage};
    s->held[0] = (tgd_held_row){"net.state", s->loss[0]->thread_id, s->loss[0]->sequence_nr};
    s->held[1] = (tgd_held_row){"net.other", 99, 99};
    finish(s);
}

/* The only finding of this kind. */
static tgd_finding_info only(const tgd_report *report, tgd_finding_kind kind, const char *words, int line)
{
    tgd_finding_info found = {0};
    size_t n = 0;
    for (size_t i = 0; i < tgd_report_n_findings(report); i++) {
        tgd_finding_info finding;
        tgd_report_finding(report, i, &finding);
        if (finding.kind != kind) {
            continue;
        }
        char message[512] = "", hint[512] = "";
        tgd_source_info where = {0};
        found = finding;
        n++;
        tgd_report_finding_message(report, i, message, sizeof message);
        tgd_report_finding_hint(report, i, hint, sizeof hint);
        CHECK_HAS(message, words);
        CHECK(hint[0] != '\0' && tgd_report_finding_where(report, i, &where));
        CHECK_INT(where.line, line);
    }
    CHECK_INT(n, 1);
    return found;
}

static void total_grows(void)
{
    story s;
    tell(&s, true);
    tgd_report *report = probe_request(&s.request);
    CHECK_INT(only(report, TGD_RETAINED_GRAPH, "a graph grows with every step: add", LINE_TOTAL).severity, TGD_WARNING);
    tgd_report_free(report);
    fake_reset();
}

static void losses_are_kept(void)
{
    story s;
    tell(&s, false);
    for (int k = 0; k < STEPS; k++) {
        fake_release(s.loss[k]);
    }
    tgd_report *report = probe_request(&s.request);
    CHECK_INT(only(report, TGD_RETAINED_GRAPH, "4 tensors that exp made", LINE_LOSS).severity, TGD_NOTE);
    tgd_report_free(report);
    fake_reset();
}

static void nothing_is_kept(void)
{
    story s;
    tell(&s, true);
    s.census.n_kept = s.census.n_members = s.census.n_optimizers = 0;
    tgd_report *report = probe_request(&s.request);
    CHECK_INT(tgd_report_n_findings(report), 0);
    tgd_report_free(report);
    fake_reset();
}

static void replaced_parameter(void)
{
    story s;
    tell(&s, true);
    s.census.n_kept = 0;
    tgd_report *report = probe_request(&s.request);
    tgd_finding_info finding = only(report, TGD_NOT_IN_OPTIMIZER, "Adam, group 0 / param 1", LINE_STEP);
    CHECK_STR(finding.parameter, "v");
    CHECK_INT(finding.severity, TGD_WARNING);
    CHECK_HAS(tgd_report_verdict(report), "v never moves");
    tgd_report_free(report);
    fake_reset();
}

static void rate_of_zero(void)
{
    story s;
    tell(&s, true);
    s.census.n_kept = 0;
    s.members[1].tensor = s.v;
    s.members[0].rate = 0;
    tgd_report *report = probe_request(&s.request);
    tgd_finding_info finding = only(report, TGD_NOT_IN_OPTIMIZER, "its learning rate is 0", LINE_STEP);
    CHECK_STR(finding.parameter, "w");
    tgd_report_free(report);
    s.members[0].scheduled = true; /* a warm-up */
    report = probe_request(&s.request);
    CHECK_INT(tgd_report_n_findings(report), 0);
    tgd_report_free(report);
    fake_reset();
}

static void gradient_and_ctx(void)
{
    story s;
    tell(&s, true);
    s.census.n_kept = s.census.n_members = s.census.n_optimizers = 0;
    tgd_torch_node *made = fake_node("MulBackward0");
    backward(&s, s.loss[STEPS], true);
    op(&s, "aten::mul", made, LINE_LOSS);
    s.gradients[1].has_graph = true;
    s.gradients[1].thread = made->thread_id;
    s.gradients[1].sequence_nr = made->sequence_nr;
    tgd_report *report = probe_request(&s.request);
    tgd_finding_info finding = only(report, TGD_RETAINED_GRAPH, "the .grad of v has a graph of its own", LINE_BACKWARD);
    CHECK_INT(finding.severity, TGD_NOTE);
    tgd_report_free(report);
    s.gradients[1].has_graph = false;
    s.cycles[0] = (tgd_cycle_row){"y", s.loss[0]->thread_id, s.loss[0]->sequence_nr, at_line(LINE_CTX)};
    s.census.n_cycles = 1;
    report = probe_request(&s.request);
    (void)only(report, TGD_RETAINED_GRAPH, "ctx.y is an output", LINE_CTX);
    tgd_report_free(report);
    fake_reset();
}

/* The new loss is built on the first one, which a backward has freed. */
static void hand_on(story *s)
{
    tell(s, true);
    s->census.n_kept = 0;
    s->members[1].tensor = s->v;
    fake_release(s->loss[0]);
    tgd_torch_node *again = fake_node("AddBackward0");
    fake_edge(again, 0, s->loss[0], 0);
    op(s, "aten::add", again, LINE_TOTAL);
    s->root = (tgd_root){.node = again};
}

static void carried(void)
{
    story s;
    hand_on(&s);
    tgd_report *report = probe_request(&s.request);
    (void)only(report, TGD_GRAPH_FREED, "net.state (made by exp at train.py:11) carries the old graph", LINE_BACKWARD);
    tgd_report_free(report);
    s.root.node = s.loss[0];
    report = probe_request(&s.request);
    (void)only(report, TGD_GRAPH_FREED, "the same graph again", LINE_BACKWARD);
    tgd_report_free(report);
    fake_reset();
}

/* Judged again after the step, a report says more, with the parameters it had. */
static void judged_again(void)
{
    story s;
    tell(&s, true);
    tgd_request early = s.request;
    early.census = NULL;
    tgd_report *first = probe_request(&early), *second = NULL;
    CHECK_INT(tgd_report_n_findings(first), 0);
    tgd_request later = {.record = &s.record, .census = &s.census};
    CHECK_INT(tgd_report_rejudge(&second, first, &later, NULL), TGD_OK);
    tgd_report_free(first);
    (void)only(second, TGD_RETAINED_GRAPH, "a graph grows", LINE_TOTAL);
    CHECK_STR(only(second, TGD_NOT_IN_OPTIMIZER, "never moves", LINE_STEP).parameter, "v");
    tgd_report_free(second);
    fake_reset();
}

/* Refuses allocation k, and with `on` all after it. False: there were not that many. */
static bool fails_well(const tgd_request *request, size_t k, bool on)
{
    tgd_report *report = NULL, *second = NULL;
    long before = failing_alive;
    tgd_error err = {0};
    failing_arm(k, on);
    tgd_status status = tgd_report_capture(&report, request, &err);
    if (status == TGD_OK) {
        status = tgd_report_rejudge(&second, report, &(tgd_request){.record = request->record,
                                                                    .census = request->census}, &err);
    }
    bool refused = failing_refused > 0;
    failing_disarm();
    CHECK_INT(status, status == TGD_OK ? TGD_OK : TGD_ENOMEM);
    tgd_report_free(report);
    tgd_report_free(second);
    CHECK_INT(failing_alive, before);
    return refused;
}

static void allocations_that_fail(void)
{
    for (int scene = 0; scene < 3; scene++) {
        story s;
        if (scene == 2) {
            hand_on(&s);
        } else {
            tell(&s, scene == 0);
            s.gradients[0].has_graph = true;
            s.cycles[0] = (tgd_cycle_row){"y", 1, 0, at_line(LINE_CTX)};
            s.census.n_cycles = (size_t)scene;
        }
        for (int on = 0; on < 2; on++) {
            size_t k = 0;
            while (k < MOST_ALLOCATIONS && fails_well(&s.request, k, on)) {
                k++;
            }
            CHECK(k > 20 && k < MOST_ALLOCATIONS);
        }
        fake_reset();
    }
}

CHECK_MAIN(TEST(total_grows), TEST(losses_are_kept), TEST(nothing_is_kept), TEST(replaced_parameter),
           TEST(rate_of_zero), TEST(gradient_and_ctx), TEST(carried), TEST(judged_again), TEST(allocations_that_fail))
