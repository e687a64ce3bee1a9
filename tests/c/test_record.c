/* The record joined to a snapshot: who wrote, who freed, where the way was cut. Rows are made by hand. */
#include "probe.h"
#include "record.h"

enum { MOST = 16 };

/* A record under construction. Places: code c stands for line 100 + c of "net.py". */
typedef struct story {
    tgd_record record;
    tgd_op_row ops[MOST];
    tgd_write_row writes[MOST];
    tgd_run_row runs[MOST];
    tgd_taken_row taken[MOST];
    tgd_identity ids[8 * MOST];
} story;

static tgd_place place(uint32_t code)
{
    return (tgd_place){.code = code, .module = TGD_NONE};
}

static int resolve(const tgd_place *at, tgd_source *out)
{
    *out = (tgd_source){.file = "/home/me/net.py", .function = "f", .module = "", .module_class = "",
                        .line = 100 + (int)at->code, .called = at->stack != 0};
    if (out->called) { /* stack 2 is line 112, called from line 111 */
        out->caller = (tgd_place){.code = 10 + at->stack, .module = TGD_NONE, .stack = at->stack - 1};
    }
    return 1;
}

static tgd_identity output_of(const tgd_torch_node *node, uint32_t nr)
{
    return tgd_identity_of_output(node->thread_id, node->sequence_nr, nr);
}

/* An op at a time that made the node, or none; returns the row. */
static tgd_op_row *add_op(story *s, uint64_t time, const char *name, const tgd_torch_node *node, uint64_t sequence_nr)
{
    tgd_op_row *row = &s->ops[s->record.n_ops++];
    *row = (tgd_op_row){.time = time, .thread = 1, .name = name, .place = place((uint32_t)time),
                        .mode = {.code = TGD_NONE, .module = TGD_NONE}, .flags = TGD_OP_GRAD_MODE,
                        .sequence_nr = node != NULL ? node->sequence_nr : sequence_nr, .first_id = s->record.n_ids};
    if (node != NULL) {
        row->thread = node->thread_id;
    }
    return row;
}

static void add_ids(story *s, tgd_op_row *row, tgd_identity in, tgd_identity out)
{
    row->first_id = s->record.n_ids;
    if (in != 0) {
        s->ids[s->record.n_ids++] = in;
        row->n_in = 1;
    }
    if (out != 0) {
        s->ids[s->record.n_ids++] = out;
        row->n_out = 1;
    }
}

static tgd_write_row *add_write(story *s, uint64_t time, const char *name, const tgd_torch_tensor *to, uint32_t version)
{
    tgd_write_row *row = &s->writes[s->record.n_writes++];
    *row = (tgd_write_row){.time = time, .thread = 1, .name = name, .place = place((uint32_t)time),
                           .version_counter = to->info.version_counter, .storage = to->info.storage,
                           .tensor = (uint64_t)(uintptr_t)to, .version = version, .end_byte = 1 << 20};
    return row;
}

static const tgd_record *finished(story *s)
{
    s->record.shares = 1000; /* on the stack: never freed */
    s->record.ops = s->ops;
    s->record.writes = s->writes;
    s->record.runs = s->runs;
    s->record.taken = s->taken;
    s->record.ids = s->ids;
    return &s->record;
}

static tgd_report *report_of(story *s, const tgd_torch_tensor *root, const tgd_parameter *parameters, size_t n)
{
    return probe_request(&(tgd_request){.roots = &(tgd_root){.tensor = root}, .n_roots = 1, .parameters = parameters,
                                        .n_parameters = n, .record = finished(s), .resolve = resolve});
}

/* x -> Mul (saves x's product's input `a` at its version) -> root. */
typedef struct net {
    tgd_torch_tensor *x, *a, *root;
    tgd_torch_node *make, *use;
} net;

static net small_net(void)
{
    net n;
    n.x = fake_leaf(FAKE_SIZES(3));
    n.make = fake_node("MulBackward0");
    fake_edge(n.make, 0, fake_leaf_node(n.x), 0);
    n.a = fake_output(n.make, 0, FAKE_SIZES(3));
    n.use = fake_node("ExpBackward0");
    fake_edge(n.use, 0, n.make, 0);
    fake_save(n.use, "self", n.a);
    n.root = fake_output(n.use, 0, FAKE_SCALAR);
    return n;
}

static int line_of(const tgd_report *report, size_t i)
{
    tgd_source_info where;
    return tgd_report_finding_where(report, i, &where) ? where.line : 0;
}

static void culprit_is_the_first_write_after_the_node(void)
{
    story s = {0};
    net n = small_net();
    add_op(&s, 1, "aten::mul", n.make, 0);
    add_op(&s, 3, "aten::exp", n.use, 0);
    add_write(&s, 2, "aten::zero_", n.a, 0); /* before it was saved: another tensor may have had the address */
    add_write(&s, 4, "aten::relu_", n.a, 0)->flags = TGD_OP_THREW;
    add_write(&s, 5, "aten::add_", n.a, 0);
    add_write(&s, 6, "aten::mul_", n.a, 1);
    fake_bump(n.a);
    fake_bump(n.a);
    tgd_report *report = report_of(&s, n.root, NULL, 0);
    CHECK_INT(tgd_report_n_findings(report), 1);
    CHECK_STR(tgd_report_finding_op(report, 0), "add_");
    CHECK_INT(line_of(report, 0), 105);
    char text[512];
    tgd_report_finding_message(report, 0, text, sizeof text);
    CHECK_HAS(text, "by add_ at net.py:105, then by mul_ at net.py:106");
    tgd_source_info where;
    CHECK(tgd_report_node_where(report, 0, &where) && where.line == 103);
    tgd_report_free(report);
    fake_reset();
}

static void the_last_write_at_a_version_counts(void)
{
    story s = {0};
    net n = small_net();
    add_op(&s, 1, "aten::mul", n.make, 0);
    add_op(&s, 3, "Custom", n.use, 0)->flags |= TGD_OP_FUNCTION;
    add_write(&s, 4, "aten::zero_", n.a, 0); /* by its forward, to a tensor that had the address */
    add_write(&s, 5, "aten::add_", n.a, 0);
    fake_bump(n.a);
    tgd_report *report = report_of(&s, n.root, NULL, 0);
    CHECK_STR(tgd_report_finding_op(report, 0), "add_");
    CHECK_INT(line_of(report, 0), 105);
    tgd_report_free(report);
    fake_reset();
}

static void an_op_may_write_to_what_it_saved(void)
{
    for (uint64_t ended = 2; ended < 5; ended += 2) {
        story s = {0};
        net n = small_net();
        add_op(&s, 3, "aten::exp", n.use, 0);
        add_write(&s, 1, "aten::exp_", n.a, 0)->ended = ended; /* the node is of 3 */
        fake_bump(n.a);
        tgd_report *report = report_of(&s, n.root, NULL, 0);
        CHECK_STR(tgd_report_finding_op(report, 0), ended == 4 ? "exp_" : "exp");
        CHECK_INT(line_of(report, 0), ended == 4 ? 101 : 103);
        tgd_report_free(report);
        fake_reset();
    }
}

static void what_had_the_storage_before_it_was_given_is_not_held_against_it(void)
{
    for (int later = 0; later < 2; later++) {
        story s = {0};
        net n = small_net();
        add_op(&s, 1, "aten::mul", n.make, 0);
        add_op(&s, 3, "aten::exp", n.use, 0);
        add_write(&s, 4, "aten::zero_", n.a, 0)->version_counter += 8;
        add_write(&s, 5, "set_data", n.a, 0)->flags = TGD_OP_RESIZED;
        if (later) {
            add_write(&s, 6, "aten::mul_", n.a, 0)->version_counter += 16;
        }
        for (uint32_t i = 0; i < s.record.n_writes; i++) {
            s.writes[i].dense = true;
            s.writes[i].end_byte = 12;
        }
        tgd_report *report = report_of(&s, n.root, NULL, 0);
        CHECK_INT(tgd_report_n_findings(report), later);
        CHECK(!later || line_of(report, 0) == 106);
        tgd_report_free(report);
        fake_reset();
    }
}

static void an_op_made_only_its_own_numbers(void)
{
    for (uint64_t more = 0; more < 2; more++) {
        story s = {0};
        net n = small_net();
        add_op(&s, 1, "aten::mul", n.make, 0)->sequence_end = n.use->sequence_nr + more;
        tgd_report *report = report_of(&s, n.root, NULL, 0);
        tgd_source_info where = {0};
        CHECK_INT(tgd_report_node_where(report, 0, &where), more != 0);
        CHECK(tgd_report_node_where(report, 1, &where) && where.line == 101);
        tgd_report_free(report);
        fake_reset();
    }
}

static void no_culprit_falls_back_to_the_node(void)
{
    story s = {0};
    net n = small_net();
    add_op(&s, 1, "aten::mul", n.make, 0);
    add_op(&s, 3, "aten::exp", n.use, 0);
    fake_bump(n.a);
    tgd_report *report = report_of(&s, n.root, NULL, 0);
    CHECK_STR(tgd_report_finding_op(report, 0), "exp");
    CHECK_INT(line_of(report, 0), 103);
    tgd_report_free(report);
    fake_reset();
}

static void lost_rows_accuse_nobody(void)
{
    story s = {0};
    net n = small_net();
    add_write(&s, 5, "aten::add_", n.a, 0);
    s.record.dropped = 1; /* when the node was made is not known any more */
    fake_bump(n.a);
    tgd_report *report = report_of(&s, n.root, NULL, 0);
    CHECK_INT(tgd_report_n_findings(report), 1);
    CHECK(tgd_report_finding_op(report, 0) == NULL);
    tgd_report_free(report);
    fake_reset();
}

static void silent_write_needs_the_same_bytes(void)
{
    for (int same = 0; same < 2; same++) {
        story s = {0};
        net n = small_net();
        add_op(&s, 1, "aten::mul", n.make, 0);
        add_op(&s, 3, "aten::exp", n.use, 0);
        tgd_write_row *write = add_write(&s, 5, "aten::mul_", n.a, 0);
        write->version_counter += 8; /* .data has a counter of its own */
        write->first_byte = same ? 8 : 12;
        write->end_byte = 16;
        write->dense = true;
        tgd_report *report = report_of(&s, n.root, NULL, 0);
        CHECK_INT(tgd_report_n_findings(report), same);
        if (same) {
            tgd_finding_info finding;
            tgd_report_finding(report, 0, &finding);
            CHECK_INT(finding.kind, TGD_SILENTLY_MODIFIED);
            CHECK_INT(line_of(report, 0), 105);
        }
        tgd_report_free(report);
        fake_reset();
    }
}

static void freed_by_the_first_run_that_keeps_nothing(void)
{
    story s = {0};
    net n = small_net();
    add_op(&s, 1, "aten::mul", n.make, 0);
    add_op(&s, 3, "aten::exp", n.use, 0);
    for (uint32_t r = 0; r < 3; r++) {
        s.runs[r] = (tgd_run_row){.time = 10 + r, .place = place(10 + r), .keep_graph = r == 0};
        s.taken[r] = (tgd_taken_row){.sequence_nr = n.use->sequence_nr, .thread = n.use->thread_id, .run = 10 + r};
    }
    s.record.n_runs = s.record.n_taken = 3;
    fake_release(n.use);
    tgd_report *report = report_of(&s, n.root, NULL, 0);
    CHECK_INT(line_of(report, 0), 111);
    tgd_report_free(report);
    fake_reset();
}

/* A leaf w with identity 5 that goes through one op into `out`. */
static tgd_reason reason_after(const char *op, uint32_t flags, tgd_identity out, tgd_identity root, int *line)
{
    story s = {0};
    net n = small_net();
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(3));
    w->identity = 5;
    tgd_op_row *row = add_op(&s, 7, op, NULL, 90);
    row->flags = flags;
    add_ids(&s, row, 5, out);
    if (root != 0) {
        row = add_op(&s, 8, "aten::sum", NULL, 91);
        add_ids(&s, row, out, output_of(n.use, 0));
    }
    tgd_parameter parameter = {"w", w};
    tgd_report *report = report_of(&s, n.root, &parameter, 1);
    CHECK_INT(tgd_report_n_findings(report), 1);
    tgd_finding_info finding;
    tgd_report_finding(report, 0, &finding);
    CHECK_INT(finding.kind, TGD_UNREACHED_PARAMETER);
    *line = line_of(report, 0);
    tgd_report_free(report);
    fake_reset();
    return finding.reason;
}

static void cuts(void)
{
    int line;
    const uint32_t on = TGD_OP_GRAD_MODE, cut = TGD_OP_GRAD_MODE | TGD_OP_CUT;
    CHECK_INT(reason_after("aten::detach", cut, 6, 1, &line), TGD_REASON_DETACHED);
    CHECK_INT(line, 107);
    CHECK_INT(reason_after("aten::argmax", cut | TGD_OP_INTEGER_OUT, 6, 1, &line), TGD_REASON_NOT_DIFFERENTIABLE_OP);
    CHECK_INT(reason_after("aten::to", cut | TGD_OP_INTEGER_OUT, 6, 1, &line), TGD_REASON_INTEGER_OUTPUT);
    CHECK_INT(reason_after("aten::mul", TGD_OP_CUT, 6, 1, &line), TGD_REASON_GRAD_MODE_DISABLED);
    CHECK_INT(reason_after("aten::item", cut, 0, 0, &line), TGD_REASON_LEFT_TORCH);
    CHECK_INT(line, 107);
    CHECK_INT(reason_after("aten::mul", on, TGD_IDENTITY_NODE | 77, 0, &line), TGD_REASON_OUTPUT_DROPPED);
    CHECK_INT(reason_after("aten::zeros_like", cut, 6, 1, &line), TGD_REASON_NEVER_USED); /* looks at sizes alone */
    CHECK_INT(reason_after("aten::uniform_", 0, 5, 0, &line), TGD_REASON_NEVER_USED);     /* gives the leaf back */
    CHECK_INT(line, 0);
}

static void rejudged_with_other_parameters(void)
{
    story s = {0};
    net n = small_net();
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(2, 2));
    tgd_parameter parameters[] = {{"x", n.x}, {"w", w}};
    add_op(&s, 1, "aten::mul", n.make, 0);
    add_op(&s, 3, "aten::exp", n.use, 0);
    tgd_report *first = report_of(&s, n.root, NULL, 0), *second = NULL;
    CHECK_INT(tgd_report_n_findings(first), 0);
    tgd_request request = {.parameters = parameters, .n_parameters = 2};
    CHECK_INT(tgd_report_rejudge(&second, first, &request, NULL), TGD_OK);
    tgd_report_free(first); /* the snapshot lives on */
    CHECK_INT(tgd_report_n_findings(second), 1);
    tgd_finding_info finding;
    tgd_report_finding(second, 0, &finding);
    CHECK_STR(finding.parameter, "w");
    CHECK_INT(finding.reason, TGD_REASON_NEVER_USED);
    tgd_node_info leaf;
    tgd_report_node(second, 2, &leaf);
    CHECK_STR(leaf.parameter, "x");
    tgd_report_free(second);
    fake_reset();
}

static void refused_write(void)
{
    story s = {0};
    net n = small_net();
    tgd_write_row *write = add_write(&s, 9, "aten::clamp_", n.a, 0);
    write->flags = TGD_OP_THREW;
    tgd_refusal refusal = {.write = write, .place = write->place};
    tgd_report *report = probe_request(&(tgd_request){.roots = &(tgd_root){.tensor = n.a}, .n_roots = 1,
                                                      .record = finished(&s), .resolve = resolve,
                                                      .refusal = &refusal});
    tgd_finding_info finding;
    tgd_report_finding(report, 0, &finding);
    CHECK_INT(finding.kind, TGD_IN_PLACE_REFUSED);
    CHECK_INT(finding.node, 0);
    CHECK_INT(line_of(report, 0), 109);
    CHECK_HAS(tgd_report_verdict(report), "clamp_");
    tgd_report_free(report);
    fake_reset();
}

static void stack_has_the_callers(void)
{
    story s = {0};
    net n = small_net();
    add_op(&s, 1, "aten::mul", n.make, 0)->place.stack = 2;
    add_op(&s, 2, "aten::exp", n.use, 0);
    tgd_report *report = report_of(&s, n.root, NULL, 0);
    tgd_source_info frames[4] = {{0}};
    CHECK(tgd_report_node_stack(report, 1, frames, 4) == 3);
    CHECK(frames[0].line == 101 && frames[1].line == 112 && frames[2].line == 111);
    CHECK(tgd_report_node_stack(report, 1, frames, 1) == 3 && frames[0].line == 101);
    CHECK(tgd_report_node_stack(report, 0, NULL, 0) == 1);
    tgd_report_free(report);
    fake_reset();
}

static void node_made_in_backward_goes_back_to_its_maker(void)
{
    story s = {0};
    net n = small_net();
    add_op(&s, 1, "aten::mul", n.make, 0);
    s.runs[s.record.n_runs++] = (tgd_run_row){.time = 2, .place = place(50), .create_graph = true};
    tgd_op_row *op = add_op(&s, 3, "aten::exp", n.use, 0);
    op->flags |= TGD_OP_IN_BACKWARD | TGD_OP_MADE;
    op->maker_thread = (uint32_t)n.make->thread_id;
    op->maker_nr = n.make->sequence_nr;
    op->place = place(50); /* the call of backward */
    tgd_source_info where = {0};
    tgd_report *report = report_of(&s, n.root, NULL, 0);
    CHECK(tgd_report_node_made_by(report, 0) == 1 && tgd_report_node_made_by(report, 1) == TGD_NONE);
    CHECK(tgd_report_node_where(report, 0, &where) && where.line == 101);
    tgd_report_free(report);
    op->place = place(60); /* a line of its own: a custom Function's backward */
    report = report_of(&s, n.root, NULL, 0);
    CHECK(tgd_report_node_made_by(report, 0) == 1);
    CHECK(tgd_report_node_where(report, 0, &where) && where.line == 160);
    tgd_report_free(report);
    op->maker_thread = 77; /* nobody's */
    op->place = place(50);
    report = report_of(&s, n.root, NULL, 0);
    CHECK(tgd_report_node_made_by(report, 0) == TGD_NONE);
    CHECK(tgd_report_node_where(report, 0, &where) && where.line == 150);
    tgd_report_free(report);
    fake_reset();
}

CHECK_MAIN(TEST(culprit_is_the_first_write_after_the_node), TEST(the_last_write_at_a_version_counts), TEST(an_op_may_write_to_what_it_saved), TEST(what_had_the_storage_before_it_was_given_is_not_held_against_it), TEST(an_op_made_only_its_own_numbers), TEST(no_culprit_falls_back_to_the_node), TEST(lost_rows_accuse_nobody), TEST(silent_write_needs_the_same_bytes), TEST(freed_by_the_first_run_that_keeps_nothing), TEST(cuts), TEST(rejudged_with_other_parameters), TEST(refused_write), TEST(stack_has_the_callers), TEST(node_made_in_backward_goes_back_to_its_maker))
