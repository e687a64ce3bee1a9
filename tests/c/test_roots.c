/* Roots and parameters: what backward refuses, and who gets no gradient and why. */
#include "probe.h"

/* ---- roots ---- */

/* An op on a leaf; the tensor is its output of that shape. */
static tgd_torch_tensor *computed(int ndim, const int64_t *sizes)
{
    tgd_torch_node *node = fake_node("MulBackward0");
    fake_edge(node, 0, fake_leaf_node(fake_leaf(FAKE_SIZES(4))), 0);
    return fake_output(node, 0, ndim, sizes);
}

/* The only finding, which is about root 0 (or about none: SIZE_MAX). */
static void expect(const tgd_request *request, tgd_finding_kind kind, tgd_severity severity, tgd_reason reason,
                   size_t root, const char *words, int line)
{
    size_t failures = check_failures;
    tgd_report *report = probe_request(request);
    if (CHECK_INT(tgd_report_n_findings(report), 1)) {
        tgd_finding_info finding;
        tgd_report_finding(report, 0, &finding);
        CHECK_INT(finding.kind, kind);
        CHECK_INT(finding.severity, severity);
        CHECK_INT(finding.reason, reason);
        CHECK_INT(finding.root, root);
        CHECK_INT(finding.saved, SIZE_MAX);
        CHECK(finding.parameter == NULL);
        CHECK_HAS(probe_message(report, 0), words);
        CHECK(probe_hint(report, 0)[0] != '\0');
    }
    if (check_failures != failures) {
        printf("    in the case at line %d\n", line);
        probe_print(report);
    }
    tgd_report_free(report);
    fake_reset();
}

#define ONE_ROOT(root) (&(tgd_request){.roots = &(tgd_root){.tensor = (root)}, .n_roots = 1})
#define EXPECT(request, kind, severity, reason, root, words)                                                           \
    expect((request), (kind), (severity), (reason), (root), (words), __LINE__)

static void a_scalar_is_fine(void)
{
    tgd_report *report = probe(computed(FAKE_SCALAR));
    CHECK_INT(tgd_report_n_findings(report), 0);
    CHECK_INT(tgd_report_ok(report), 1);
    CHECK_HAS(tgd_report_verdict(report), "no fault found");
    CHECK_HAS(tgd_report_verdict(report), "2 nodes");
    tgd_report_free(report);
    fake_reset();
    report = probe(computed(FAKE_SIZES(1, 1))); /* one element is a scalar to backward() */
    CHECK_INT(tgd_report_n_findings(report), 0);
    tgd_report_free(report);
    fake_reset();
}

static void no_grad_fn(void)
{
    EXPECT(ONE_ROOT(fake_tensor(FAKE_SIZES(2))), TGD_NO_GRAD_FN, TGD_ERROR, TGD_REASON_NONE, 0, "grad_fn");
    tgd_torch_tensor *inference = fake_tensor(FAKE_SCALAR);
    inference->info.flags |= TGD_TENSOR_INFERENCE;
    EXPECT(ONE_ROOT(inference), TGD_NO_GRAD_FN, TGD_ERROR, TGD_REASON_GRAD_MODE_DISABLED, 0, "inference_mode");
    tgd_torch_tensor *labels = fake_tensor(FAKE_SIZES(2));
    fake_set_dtype(labels, FAKE_INT64);
    EXPECT(ONE_ROOT(labels), TGD_NO_GRAD_FN, TGD_ERROR, TGD_REASON_NONE, 0, "int64 [2]");
    /* requires_grad_(False), while a graph still uses the leaf: backward() refuses it all the same. */
    tgd_torch_tensor *frozen = fake_leaf(FAKE_SCALAR);
    fake_leaf_node(frozen);
    frozen->info.flags &= ~(uint32_t)TGD_TENSOR_REQUIRES_GRAD;
    EXPECT(ONE_ROOT(frozen), TGD_NO_GRAD_FN, TGD_ERROR, TGD_REASON_NONE, 0, "does not require grad");
}

static void every_parameter_is_frozen(void)
{
    tgd_torch_tensor *w = fake_tensor(FAKE_SIZES(4));
    tgd_parameter parameters[] = {{"w", w}};
    EXPECT((&(tgd_request){.roots = &(tgd_root){.tensor = fake_tensor(FAKE_SCALAR)},
                           .n_roots = 1,
                           .parameters = parameters,
                           .n_parameters = 1}),
           TGD_NO_GRAD_FN, TGD_ERROR, TGD_REASON_REQUIRES_GRAD_OFF, 0, "none of the given parameters requires grad");
}

static void a_leaf_as_root(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SCALAR);
    EXPECT(ONE_ROOT(w), TGD_NO_GRAD_FN, TGD_WARNING, TGD_REASON_ROOT_IS_LEAF, 0, "leaf");
    w = fake_leaf(FAKE_SCALAR);
    fake_leaf_node(w);
    EXPECT(ONE_ROOT(w), TGD_NO_GRAD_FN, TGD_WARNING, TGD_REASON_ROOT_IS_LEAF, 0, "leaf");
}

static void a_stale_view_is_no_leaf(void)
{
    /* Its base was written to since: its grad_fn is made when it is asked for. */
    tgd_torch_tensor *view = fake_tensor(FAKE_SCALAR);
    tgd_torch_node *node = fake_node("AsStridedBackward0");
    fake_edge(node, 0, fake_leaf_node(fake_leaf(FAKE_SIZES(4))), 0);
    view->regenerated = node;
    for (int requires_grad = 0; requires_grad < 2; requires_grad++) {
        view->info.flags |= TGD_TENSOR_VIEW | (requires_grad ? (uint32_t)TGD_TENSOR_REQUIRES_GRAD : 0);
        tgd_report *report = probe(view);
        CHECK_INT(tgd_report_n_findings(report), 0);
        CHECK_INT(tgd_report_n_nodes(report), 2);
        tgd_report_free(report);
    }
    fake_reset();
}

static void not_a_scalar(void)
{
    EXPECT(ONE_ROOT(computed(FAKE_SIZES(2, 3))), TGD_BAD_ROOT, TGD_NOTE, TGD_REASON_NONE, 0, "float32 [2, 3]");
    EXPECT(ONE_ROOT(computed(FAKE_SIZES(0))), TGD_BAD_ROOT, TGD_NOTE, TGD_REASON_NONE, 0, "[0]");
    tgd_torch_tensor *root = computed(FAKE_SCALAR);
    fake_set_dtype(root, FAKE_COMPLEX64);
    EXPECT(ONE_ROOT(root), TGD_BAD_ROOT, TGD_NOTE, TGD_REASON_NONE, 0, "complex");
    /* A node has no shape to find fault with. */
    tgd_report *report = probe_roots(&(tgd_root){.node = computed(FAKE_SIZES(9))->info.grad_fn}, 1);
    CHECK_INT(tgd_report_n_findings(report), 0);
    tgd_report_free(report);
    fake_reset();
}

static void one_bad_root_among_several(void)
{
    const tgd_root roots[] = {{.tensor = computed(FAKE_SCALAR)}, {.tensor = fake_tensor(FAKE_SIZES(3))}};
    tgd_report *report = probe_roots(roots, 2);
    size_t at;
    tgd_finding_info finding = probe_finding(report, TGD_NO_GRAD_FN, 0, &at);
    CHECK_INT(finding.root, 1);
    CHECK_INT(finding.severity, TGD_ERROR);
    CHECK_HAS(probe_message(report, at), "1");
    CHECK_INT(probe_summary(report).n_executed_to_error, 0); /* refused before anything runs */
    CHECK_INT(probe_summary(report).n_nodes, 2);
    tgd_report_free(report);
    fake_reset();
}

static void inputs_must_require_grad(void)
{
    const tgd_torch_tensor *inputs[] = {fake_leaf(FAKE_SIZES(2)), fake_tensor(FAKE_SIZES(2))};
    EXPECT((&(tgd_request){
               .roots = &(tgd_root){.tensor = computed(FAKE_SCALAR)}, .n_roots = 1, .inputs = inputs, .n_inputs = 2}),
           TGD_BAD_ROOT, TGD_ERROR, TGD_REASON_NONE, SIZE_MAX, "inputs[1]");
}

static void a_refused_root_comes_before_broken_nodes(void)
{
    tgd_torch_tensor *root = computed(FAKE_SCALAR), *x = fake_tensor(FAKE_SIZES(2));
    fake_save((tgd_torch_node *)root->info.grad_fn, "other", x);
    fake_bump(x);
    const tgd_root roots[] = {{.tensor = root}, {.tensor = fake_tensor(FAKE_SCALAR)}};
    tgd_report *report = probe_roots(roots, 2);
    tgd_finding_info finding;
    CHECK_INT(probe_count_severity(report, TGD_ERROR), 2);
    tgd_report_finding(report, 0, &finding);
    CHECK_INT(finding.kind, TGD_NO_GRAD_FN);
    CHECK_HAS(tgd_report_verdict(report), "grad_fn");
    CHECK_HAS(tgd_report_verdict(report), "1 more error");
    tgd_report_free(report);
    fake_reset();
}

/* ---- parameters ---- */

enum { MOST = 8 };

typedef struct model {
    tgd_torch_tensor *used, *root;
    tgd_parameter parameters[MOST];
    size_t n;
} model;

static void name(model *m, const char *parameter, const tgd_torch_tensor *tensor)
{
    m->parameters[m->n++] = (tgd_parameter){parameter, tensor};
}

/* root = sum(used * 2), with the parameter "used" named. */
static model make_model(void)
{
    model m = {.used = fake_leaf(FAKE_SIZES(3, 4))};
    tgd_torch_node *mul = fake_node("MulBackward0"), *sum = fake_node("SumBackward0");
    fake_edge(mul, 0, fake_leaf_node(m.used), 0);
    fake_output(mul, 0, FAKE_SIZES(3, 4));
    fake_edge(sum, 0, mul, 0);
    m.root = fake_output(sum, 0, FAKE_SCALAR);
    name(&m, "used", m.used);
    return m;
}

static tgd_report *judge(const model *m)
{
    return probe_parameters(m->root, m->parameters, m->n);
}

static void names_and_numbers(void)
{
    model m = make_model();
    tgd_report *report = judge(&m);
    CHECK_INT(tgd_report_n_findings(report), 0);
    tgd_summary summary = probe_summary(report);
    CHECK_INT(summary.n_parameters, 1);
    CHECK_INT(summary.n_parameters_reached, 1);
    CHECK_INT(summary.n_parameters_frozen, 0);
    CHECK_STR(probe_node(report, probe_row(report, m.used->accumulator)).parameter, "used");
    CHECK_HAS(tgd_report_verdict(report), "1 parameter");
    tgd_report_free(report);
    fake_reset();
}

static void nobody_asks(void)
{
    model m = make_model();
    tgd_report *report = probe(m.root);
    CHECK_INT(tgd_report_n_findings(report), 0);
    CHECK_INT(probe_summary(report).n_parameters, 0);
    CHECK(probe_node(report, probe_row(report, m.used->accumulator)).parameter == NULL);
    tgd_report_free(report);
    /* An empty list is a question without anybody to ask about. */
    report = probe_parameters(m.root, m.parameters, 0);
    CHECK_INT(tgd_report_n_findings(report), 0);
    tgd_report_free(report);
    fake_reset();
}

/* The one warning, about that parameter. */
static void expect_unreached(model *m, const char *parameter, tgd_reason reason, const char *words, int line)
{
    size_t failures = check_failures, at = 0;
    tgd_report *report = judge(m);
    tgd_finding_info finding = probe_finding(report, TGD_UNREACHED_PARAMETER, 0, &at);
    CHECK_INT(tgd_report_n_findings(report), 1);
    CHECK_INT(finding.kind, TGD_UNREACHED_PARAMETER);
    CHECK_INT(finding.severity, TGD_WARNING);
    CHECK_STR(finding.parameter, parameter);
    CHECK_INT(finding.reason, reason);
    if (tgd_report_n_findings(report) > 0) {
        CHECK_HAS(probe_message(report, at), parameter);
        CHECK_HAS(probe_message(report, at), words);
        CHECK(probe_hint(report, at)[0] != '\0');
        CHECK_HAS(tgd_report_verdict(report), parameter);
    }
    CHECK_INT(probe_summary(report).n_parameters_reached, m->n - 1);
    CHECK_INT(probe_summary(report).n_executed_to_error, probe_summary(report).n_executed);
    if (check_failures != failures) {
        printf("    in the case at line %d\n", line);
        probe_print(report);
    }
    tgd_report_free(report);
    fake_reset();
}

#define EXPECT_UNREACHED(parameter, reason, words) expect_unreached(&m, (parameter), (reason), (words), __LINE__)

static void never_in_the_graph(void)
{
    model m = make_model();
    name(&m, "layers.1.bias", fake_leaf(FAKE_SIZES(7)));
    EXPECT_UNREACHED("layers.1.bias", TGD_REASON_NONE, "float32 [7]");
}

static void frozen_is_no_fault(void)
{
    model m = make_model();
    name(&m, "backbone.weight", fake_tensor(FAKE_SIZES(7)));
    tgd_report *report = judge(&m);
    CHECK_INT(tgd_report_n_findings(report), 0);
    CHECK_INT(probe_summary(report).n_parameters_frozen, 1);
    CHECK_INT(probe_summary(report).n_parameters_reached, 1);
    tgd_report_free(report);
    fake_reset();
}

static void turned_off_after_the_forward(void)
{
    model m = make_model();
    m.used->info.flags &= ~(uint32_t)TGD_TENSOR_REQUIRES_GRAD;
    tgd_report *report = judge(&m);
    size_t at = 0;
    tgd_finding_info finding = probe_finding(report, TGD_UNREACHED_PARAMETER, 0, &at);
    CHECK_INT(finding.reason, TGD_REASON_REQUIRES_GRAD_OFF);
    CHECK_INT(finding.severity, TGD_WARNING);
    CHECK_INT(finding.node, probe_row(report, m.used->accumulator));
    CHECK_HAS(probe_message(report, at), "requires_grad");
    CHECK_INT(probe_node(report, finding.node).requires_grad, 0);
    CHECK_INT(probe_summary(report).n_parameters_frozen, 0); /* frozen says: and not in the graph */
    CHECK_INT(probe_summary(report).n_parameters_reached, 0);
    tgd_report_free(report);
    fake_reset();
}

static void replaced_since_the_forward(void)
{
    fake_python_install();
    model m = make_model();
    m.used->is_parameter = 1;
    m.n = 0; /* the module has another object under that name now */
    name(&m, "used", fake_leaf(FAKE_SIZES(3, 4)));
    EXPECT_UNREACHED("used", TGD_REASON_REWRAPPED, "replace");
    /* A leaf that is no Parameter (an input that requires grad) is no proof. */
    fake_python_install();
    m = make_model();
    m.n = 0;
    name(&m, "used", fake_leaf(FAKE_SIZES(3, 4)));
    EXPECT_UNREACHED("used", TGD_REASON_NONE, "not in this graph");
    /* Nor is one of another shape. */
    fake_python_install();
    m = make_model();
    m.used->is_parameter = 1;
    m.n = 0;
    name(&m, "used", fake_leaf(FAKE_SIZES(4, 3)));
    EXPECT_UNREACHED("used", TGD_REASON_NONE, "not in this graph");
    /* Nor one that has a name already. */
    fake_python_install();
    m = make_model();
    m.used->is_parameter = 1;
    name(&m, "other", fake_leaf(FAKE_SIZES(3, 4)));
    EXPECT_UNREACHED("other", TGD_REASON_NONE, "not in this graph");
    /* Nor can it be a replacement if some graph uses it. */
    fake_python_install();
    m = make_model();
    m.used->is_parameter = 1;
    m.n = 0;
    tgd_torch_tensor *elsewhere = fake_leaf(FAKE_SIZES(3, 4));
    fake_leaf_node(elsewhere);
    name(&m, "used", elsewhere);
    EXPECT_UNREACHED("used", TGD_REASON_NONE, "not in this graph");
}

static void one_replacement_for_each(void)
{
    /* Two new Parameters, one old one in the graph: only one can have taken its place. */
    fake_python_install();
    model m = make_model();
    m.used->is_parameter = 1;
    m.n = 0;
    name(&m, "one", fake_leaf(FAKE_SIZES(3, 4)));
    name(&m, "two", fake_leaf(FAKE_SIZES(3, 4)));
    tgd_report *report = judge(&m);
    CHECK_INT(probe_count(report, TGD_UNREACHED_PARAMETER), 2);
    tgd_finding_info one = probe_finding(report, TGD_UNREACHED_PARAMETER, 0, NULL);
    tgd_finding_info two = probe_finding(report, TGD_UNREACHED_PARAMETER, 1, NULL);
    CHECK_INT(one.reason, TGD_REASON_REWRAPPED);
    CHECK_INT(two.reason, TGD_REASON_NONE);
    CHECK(one.group != two.group);
    tgd_report_free(report);
    fake_reset();
}

static void not_a_leaf(void)
{
    model m = make_model();
    name(&m, "moved", m.root);
    EXPECT_UNREACHED("moved", TGD_REASON_NONE, "not a leaf");
    m = make_model();
    name(&m, "moved", m.root);
    m.root->info.flags |= TGD_TENSOR_RETAINS_GRAD; /* then its grad is kept */
    tgd_report *report = judge(&m);
    CHECK_INT(tgd_report_n_findings(report), 0);
    CHECK_INT(probe_summary(report).n_parameters_reached, 2);
    tgd_report_free(report);
    fake_reset();
}

static void one_tensor_under_two_names(void)
{
    model m = make_model();
    name(&m, "tied", m.used);
    tgd_torch_tensor *unused = fake_leaf(FAKE_SIZES(5));
    name(&m, "a", unused);
    name(&m, "b", unused);
    tgd_report *report = judge(&m);
    CHECK_INT(probe_count(report, TGD_UNREACHED_PARAMETER), 2);
    CHECK_INT(probe_summary(report).n_parameters_reached, 2);
    CHECK_STR(probe_node(report, probe_row(report, m.used->accumulator)).parameter, "used");
    tgd_report_free(report);
    fake_reset();
}

static void those_that_share_a_cause_are_one_group(void)
{
    model m = make_model();
    name(&m, "a", fake_leaf(FAKE_SIZES(5)));
    name(&m, "b", fake_leaf(FAKE_SIZES(6)));
    name(&m, "c", m.root); /* not a leaf: another cause */
    tgd_report *report = judge(&m);
    CHECK_INT(probe_count(report, TGD_UNREACHED_PARAMETER), 3);
    size_t groups[3];
    for (size_t i = 0; i < 3; i++) {
        groups[i] = probe_finding(report, TGD_UNREACHED_PARAMETER, i, NULL).group;
    }
    CHECK_INT(groups[0], groups[1]);
    CHECK(groups[2] != groups[0]);
    CHECK_HAS(tgd_report_verdict(report), "3 parameters");
    tgd_report_free(report);
    fake_reset();
}

static void the_root_is_a_leaf(void)
{
    model m = make_model();
    m.root = fake_leaf(FAKE_SCALAR);
    tgd_report *report = judge(&m);
    tgd_finding_info finding = probe_finding(report, TGD_UNREACHED_PARAMETER, 0, NULL);
    CHECK_INT(finding.reason, TGD_REASON_ROOT_IS_LEAF);
    CHECK_INT(probe_count(report, TGD_NO_GRAD_FN), 1);
    tgd_report_free(report);
    /* If the root is the parameter, it gets its gradient. */
    m.n = 0;
    name(&m, "root", m.root);
    report = judge(&m);
    CHECK_INT(probe_count(report, TGD_UNREACHED_PARAMETER), 0);
    CHECK_INT(probe_summary(report).n_parameters_reached, 1);
    tgd_report_free(report);
    fake_reset();
}

static void what_a_reentrant_checkpoint_hides(void)
{
    fake_python_install();
    model m = make_model();
    tgd_torch_node *checkpoint = fake_python_node("CheckpointFunctionBackward", TGD_PY_HIDES_GRAPH);
    fake_edge(checkpoint, 0, m.root->info.grad_fn, 0);
    m.root = fake_output(checkpoint, 0, FAKE_SCALAR);
    name(&m, "inside", fake_leaf(FAKE_SIZES(5)));
    name(&m, "inside too", fake_leaf(FAKE_SIZES(5)));
    tgd_report *report = judge(&m);
    size_t at = 0;
    CHECK_INT(tgd_report_ok(report), 1);
    CHECK_INT(probe_count(report, TGD_UNREACHED_PARAMETER), 0);
    CHECK_INT(probe_finding(report, TGD_OPAQUE_NODE, 0, &at).node, probe_row(report, checkpoint));
    CHECK_HAS(probe_message(report, at), "2 parameters");
    CHECK_HAS(probe_message(report, at), "CheckpointFunctionBackward");
    tgd_report_free(report);
    fake_reset();
}

static void what_a_sharded_module_hides(void)
{
    fake_python_install();
    model m = make_model();
    tgd_torch_node *sharded = fake_python_node("RegisterPostBackwardFunctionBackward", TGD_PY_HIDES_PARAMETERS);
    fake_edge(sharded, 0, m.root->info.grad_fn, 0);
    m.root = fake_output(sharded, 0, FAKE_SCALAR);
    tgd_torch_tensor *shard = fake_leaf(FAKE_SIZES(5));
    shard->info.flags |= TGD_TENSOR_SUBCLASS;
    name(&m, "shard", shard);
    name(&m, "plain", fake_leaf(FAKE_SIZES(5)));
    tgd_report *report = judge(&m);
    CHECK_INT(probe_count(report, TGD_UNREACHED_PARAMETER), 1);
    CHECK_STR(probe_finding(report, TGD_UNREACHED_PARAMETER, 0, NULL).parameter, "plain");
    CHECK_INT(probe_count(report, TGD_OPAQUE_NODE), 1);
    tgd_report_free(report);
    fake_reset();
}

static void with_inputs_nobody_else_is_meant(void)
{
    model m = make_model();
    tgd_torch_tensor *x = fake_leaf(FAKE_SIZES(3, 4));
    fake_edge((tgd_torch_node *)m.root->info.grad_fn, 1, fake_leaf_node(x), 0);
    name(&m, "x", x);
    name(&m, "unused", fake_leaf(FAKE_SIZES(2)));
    const tgd_torch_tensor *inputs[] = {x};
    tgd_report *report = probe_request(&(tgd_request){.roots = &(tgd_root){.tensor = m.root},
                                                      .n_roots = 1,
                                                      .parameters = m.parameters,
                                                      .n_parameters = m.n,
                                                      .inputs = inputs,
                                                      .n_inputs = 1});
    CHECK_INT(tgd_report_n_findings(report), 0);
    CHECK_INT(probe_summary(report).n_parameters, 3);
    CHECK_INT(probe_summary(report).n_parameters_reached, 1);
    tgd_report_free(report);
    fake_reset();
}

static void many_parameters(void)
{
    enum { N = 3000 };
    static char names[N][32];
    static tgd_parameter parameters[N];
    model m = make_model();
    tgd_torch_node *previous = (tgd_torch_node *)m.root->info.grad_fn;
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "layers.%d.weight", i);
        tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(i + 1));
        parameters[i] = (tgd_parameter){names[i], w};
        if (i % 3 != 0) {
            tgd_torch_node *node = fake_node("AddBackward0");
            fake_edge(node, 0, previous, 0);
            fake_edge(node, 1, fake_leaf_node(w), 0);
            previous = node;
        }
    }
    tgd_report *report = probe_parameters(fake_output(previous, 0, FAKE_SCALAR), parameters, N);
    CHECK_INT(probe_count(report, TGD_UNREACHED_PARAMETER), N / 3);
    CHECK_INT(probe_summary(report).n_parameters_reached, N - N / 3);
    CHECK_INT(tgd_report_n_findings(report), N / 3);
    CHECK_STR(probe_finding(report, TGD_UNREACHED_PARAMETER, 1, NULL).parameter, "layers.3.weight");
    tgd_report_free(report);
    fake_reset();
}

CHECK_MAIN(TEST(a_scalar_is_fine), TEST(no_grad_fn), TEST(every_parameter_is_frozen), TEST(a_leaf_as_root),
           TEST(a_stale_view_is_no_leaf), TEST(not_a_scalar), TEST(one_bad_root_among_several),
           TEST(inputs_must_require_grad), TEST(a_refused_root_comes_before_broken_nodes), TEST(names_and_numbers),
           TEST(nobody_asks), TEST(never_in_the_graph), TEST(frozen_is_no_fault), TEST(turned_off_after_the_forward),
           TEST(replaced_since_the_forward), TEST(one_replacement_for_each), TEST(not_a_leaf),
           TEST(one_tensor_under_two_names), TEST(those_that_share_a_cause_are_one_group), TEST(the_root_is_a_leaf),
           TEST(what_a_reentrant_checkpoint_hides), TEST(what_a_sharded_module_hides),
           TEST(with_inputs_nobody_else_is_meant), TEST(many_parameters))
