/* Saved tensors and nodes: which state, which finding, how sure, in which order. */
#include "probe.h"

/* ---- one saved tensor ----
   w -> a = w * 1 -> y = a * a -> sum. The second product saved `a`; a case changes that, and sum is the root. */

typedef struct scene {
    tgd_torch_tensor *w, *a, *root;
    tgd_torch_node *first, *second, *sum;
    fake_saved *saved; /* of second */
} scene;

static scene make_scene(void)
{
    scene s;
    s.w = fake_leaf(FAKE_SIZES(4));
    s.first = fake_node("MulBackward0");
    fake_edge(s.first, 0, fake_leaf_node(s.w), 0);
    s.a = fake_output(s.first, 0, FAKE_SIZES(4));
    s.second = fake_node("MulBackward0");
    fake_edge(s.second, 0, s.first, 0);
    fake_output(s.second, 0, FAKE_SIZES(4));
    s.saved = fake_save(s.second, "self", s.a);
    s.sum = fake_node("SumBackward0");
    fake_edge(s.sum, 0, s.second, 0);
    s.root = fake_output(s.sum, 0, FAKE_SCALAR);
    return s;
}

static void detach_in_place(scene *s)
{
    s->a->info.grad_fn = NULL;
    s->a->info.flags &= ~(uint32_t)TGD_TENSOR_REQUIRES_GRAD;
}

/* The state of the saved tensor, and exactly one error or warning of that kind, or none (TGD_N_FINDING_KINDS). */
static void expect(const scene *s, tgd_saved_state state, tgd_finding_kind kind, tgd_severity severity,
                   tgd_reason reason, int line)
{
    size_t failures = check_failures;
    tgd_report *report = probe(s->root);
    tgd_node second = probe_row(report, s->second);
    CHECK_INT(probe_saved(report, second, 0).state, state);
    CHECK_INT(probe_count_severity(report, TGD_ERROR),
              kind != TGD_N_FINDING_KINDS && severity == TGD_ERROR);
    CHECK_INT(probe_count_severity(report, TGD_WARNING),
              kind != TGD_N_FINDING_KINDS && severity == TGD_WARNING);
    if (kind != TGD_N_FINDING_KINDS) {
        tgd_finding_info finding = probe_finding(report, kind, 0, NULL);
        CHECK_INT(finding.kind, kind);
        CHECK_INT(finding.severity, severity);
        CHECK_INT(finding.node, second);
        CHECK_INT(finding.saved, 0);
        CHECK(finding.parameter == NULL);
        CHECK_INT(finding.reason, reason);
    }
    CHECK_INT(probe_summary(report).n_executed, 4);
    CHECK_INT(probe_summary(report).n_executed_to_error, kind != TGD_N_FINDING_KINDS && severity == TGD_ERROR ? 1 : 4);
    if (check_failures != failures) {
        printf("    in the case at line %d\n", line);
        probe_print(report);
    }
    tgd_report_free(report);
    fake_reset();
}

#define EXPECT(state, kind, severity) expect(&s, (state), (kind), (severity), TGD_REASON_NONE, __LINE__)
#define EXPECT_FREED(severity)                                                                                         \
    expect(&s, TGD_SAVED_STORAGE_FREED, TGD_STORAGE_FREED, (severity), TGD_REASON_STORAGE_RESIZED, __LINE__)
#define EXPECT_CHANGED(severity, reason)                                                                               \
    expect(&s, TGD_SAVED_STORAGE_CHANGED, TGD_STORAGE_CHANGED, (severity), (reason), __LINE__)
#define EXPECT_FINE(state) expect(&s, (state), TGD_N_FINDING_KINDS, TGD_NOTE, TGD_REASON_NONE, __LINE__)

static void nothing_wrong(void)
{
    scene s = make_scene();
    EXPECT_FINE(TGD_SAVED_OK);
}

static void nothing_saved(void)
{
    scene s = make_scene();
    s.saved->flags = TGD_SV_EMPTY;
    s.saved->tensor = NULL;
    EXPECT_FINE(TGD_SAVED_NONE);
    /* Nothing else matters then, as in unpack(). */
    s = make_scene();
    s.saved->flags |= TGD_SV_EMPTY;
    fake_bump(s.a);
    detach_in_place(&s);
    EXPECT_FINE(TGD_SAVED_NONE);
}

static void version_moved_on(void)
{
    scene s = make_scene();
    fake_bump(s.a);
    EXPECT(TGD_SAVED_MODIFIED, TGD_MODIFIED_IN_PLACE, TGD_ERROR);
    /* Any other number counts, a lower one too (set_version_counter). */
    s = make_scene();
    s.saved->saved_version = 5;
    EXPECT(TGD_SAVED_MODIFIED, TGD_MODIFIED_IN_PLACE, TGD_ERROR);
    /* Changed before it was saved: no fault. */
    s = make_scene();
    fake_bump(s.a);
    s.saved->saved_version = 1;
    EXPECT_FINE(TGD_SAVED_OK);
    /* The node's own result. */
    s = make_scene();
    s.second->n_saved = 0;
    s.saved = fake_save_result(s.second, "result", s.a);
    fake_bump(s.a);
    EXPECT(TGD_SAVED_MODIFIED, TGD_MODIFIED_IN_PLACE, TGD_ERROR);
}

static void cut_off_by_detach(void)
{
    scene s = make_scene();
    detach_in_place(&s);
    EXPECT(TGD_SAVED_DETACHED, TGD_DETACHED_IN_PLACE, TGD_ERROR);
    /* unpack() meets that before it looks at the version. */
    s = make_scene();
    detach_in_place(&s);
    fake_bump(s.a);
    EXPECT(TGD_SAVED_DETACHED, TGD_DETACHED_IN_PLACE, TGD_ERROR);
    /* A view keeps a grad_fn of its own. */
    s = make_scene();
    detach_in_place(&s);
    s.a->info.flags |= TGD_TENSOR_VIEW;
    EXPECT_FINE(TGD_SAVED_OK);
    /* Saved as a leaf: none is needed. */
    s = make_scene();
    detach_in_place(&s);
    s.saved->flags |= TGD_SV_LEAF;
    EXPECT_FINE(TGD_SAVED_OK);
    /* unpack() is handed the node: it cannot raise for this, and goes on to the version. */
    s = make_scene();
    detach_in_place(&s);
    s.saved->flags |= TGD_SV_GIVEN_NODE;
    EXPECT_FINE(TGD_SAVED_OK);
    s = make_scene();
    detach_in_place(&s);
    s.saved->flags |= TGD_SV_GIVEN_NODE;
    fake_bump(s.a);
    EXPECT(TGD_SAVED_MODIFIED, TGD_MODIFIED_IN_PLACE, TGD_ERROR);
}

static void freed_by_an_earlier_backward(void)
{
    scene s = make_scene();
    fake_release(s.second);
    EXPECT(TGD_SAVED_RELEASED, TGD_GRAPH_FREED, TGD_ERROR);
    /* unpack() looks at nothing else then. */
    s = make_scene();
    s.saved->tensor = NULL;
    s.saved->flags |= TGD_SV_LEAF;
    s.saved->saved_version = 9;
    EXPECT(TGD_SAVED_RELEASED, TGD_GRAPH_FREED, TGD_ERROR);
    /* A list's flag stands for all of it. */
    s = make_scene();
    s.saved->tensor = NULL;
    s.saved->flags = TGD_SV_RELEASED_FLAG;
    EXPECT(TGD_SAVED_RELEASED, TGD_GRAPH_FREED, TGD_ERROR);
}

static void packed_by_hooks(void)
{
    scene s = make_scene();
    s.saved->flags |= TGD_SV_HOOKS | TGD_SV_HAS_GRAD_FN;
    s.saved->tensor = NULL;
    EXPECT_FINE(TGD_SAVED_HOOKED);
    /* Versions are not followed through hooks. */
    s = make_scene();
    s.saved->flags |= TGD_SV_HOOKS | TGD_SV_HAS_GRAD_FN;
    s.saved->tensor = NULL;
    s.saved->saved_version = 7;
    EXPECT_FINE(TGD_SAVED_HOOKED);
    /* But a lost grad_fn is. */
    s = make_scene();
    s.saved->flags |= TGD_SV_HOOKS;
    s.saved->tensor = NULL;
    EXPECT(TGD_SAVED_DETACHED, TGD_DETACHED_IN_PLACE, TGD_ERROR);
    s = make_scene();
    s.saved->flags |= TGD_SV_HOOKS | TGD_SV_LEAF;
    s.saved->tensor = NULL;
    EXPECT_FINE(TGD_SAVED_HOOKED);

    s = make_scene();
    s.saved->flags |= TGD_SV_HOOKS | TGD_SV_HAS_GRAD_FN;
    s.saved->tensor = NULL;
    *fake_save(s.first, "self", s.w) = (fake_saved){"self", -1, TGD_SV_HOOKS | TGD_SV_LEAF, 0, NULL};
    tgd_report *report = probe(s.root);
    size_t at;
    tgd_finding_info note = probe_finding(report, TGD_CHECK_OFF, 0, &at);
    CHECK_INT(note.severity, TGD_NOTE);
    CHECK_INT(probe_count(report, TGD_CHECK_OFF), 1);
    CHECK_HAS(probe_message(report, at), "2");
    CHECK_INT(probe_summary(report).n_unchecked, 2);
    CHECK_INT(probe_saved(report, probe_row(report, s.second), 0).has_hooks, 1);
    tgd_report_free(report);
    fake_reset();
}

static void storage_gone(void)
{
    scene s = make_scene();
    s.a->info.storage_bytes = 0;
    EXPECT_FREED(TGD_ERROR);
    /* PyTorch's own check comes first. */
    s = make_scene();
    s.a->info.storage_bytes = 0;
    fake_bump(s.a);
    EXPECT(TGD_SAVED_MODIFIED, TGD_MODIFIED_IN_PLACE, TGD_ERROR);
    s = make_scene();
    s.a->info.storage_bytes = 0;
    detach_in_place(&s);
    EXPECT(TGD_SAVED_DETACHED, TGD_DETACHED_IN_PLACE, TGD_ERROR);
    /* These never had bytes. */
    s = make_scene();
    s.a->info.numel = 0;
    s.a->sizes[0] = 0;
    s.a->info.storage_bytes = 0;
    s.second->inputs[0].ndim = -1;
    EXPECT_FINE(TGD_SAVED_OK);
    s = make_scene();
    s.a->info.flags |= TGD_TENSOR_META;
    s.a->info.storage_bytes = 0;
    EXPECT_FINE(TGD_SAVED_OK);
    s = make_scene();
    s.a->info.storage = 0;
    s.a->info.storage_bytes = 0;
    s.a->info.flags &= ~(uint32_t)TGD_TENSOR_HAS_STORAGE;
    EXPECT_FINE(TGD_SAVED_OK);
}

static void wrappers_are_left_alone(void)
{
    static const uint32_t kinds[] = {TGD_TENSOR_WRAPPER, TGD_TENSOR_SUBCLASS};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        scene s = make_scene();
        s.a->info.flags |= kinds[k];
        s.a->info.storage_bytes = 0;
        tgd_report *report = probe(s.root);
        CHECK_INT(tgd_report_ok(report), 1);
        tgd_report_free(report);
        fake_reset();
    }
}

static void storage_too_small(void)
{
    scene s = make_scene();
    s.a->info.storage_bytes = 8; /* of 16 */
    EXPECT_CHANGED(TGD_ERROR, TGD_REASON_STORAGE_RESIZED);
    /* Larger is no harm. */
    s = make_scene();
    s.a->info.storage_bytes = 1000;
    EXPECT_FINE(TGD_SAVED_OK);
    /* An offset counts ... */
    s = make_scene();
    s.a->info.storage_offset = 1;
    EXPECT_CHANGED(TGD_ERROR, TGD_REASON_STORAGE_RESIZED);
    s = make_scene();
    s.a->info.storage_offset = 1;
    s.a->info.storage_bytes = 20;
    EXPECT_FINE(TGD_SAVED_OK);
    /* ... and an expanded tensor needs one element only. */
    s = make_scene();
    s.a->strides[0] = 0;
    s.a->info.storage_bytes = 4;
    EXPECT_FINE(TGD_SAVED_OK);
}

static void other_sizes_than_when_saved(void)
{
    scene s = make_scene();
    s.saved->flags |= TGD_SV_METADATA_DIFFERS;
    EXPECT_CHANGED(TGD_WARNING, TGD_REASON_DATA_SWAPPED);
    /* A leaf's AccumulateGrad remembers the sizes it had. */
    s = make_scene();
    s.second->n_saved = 0;
    s.saved = fake_save(s.second, "other", s.w);
    EXPECT_FINE(TGD_SAVED_OK);
}

/* w was saved by second, and has other sizes or another dtype now: a warning there and one at its AccumulateGrad. */
static void expect_two_places(scene *s)
{
    tgd_report *report = probe(s->root);
    CHECK_INT(tgd_report_n_findings(report), 2);
    CHECK_INT(probe_count_severity(report, TGD_WARNING), 2);
    tgd_finding_info at_node = probe_finding(report, TGD_STORAGE_CHANGED, 0, NULL);
    tgd_finding_info at_leaf = probe_finding(report, TGD_STORAGE_CHANGED, 1, NULL);
    CHECK_INT(at_node.node, probe_row(report, s->second));
    CHECK_INT(at_node.saved, 0);
    CHECK_INT(at_node.reason, TGD_REASON_DATA_SWAPPED);
    CHECK_INT(at_leaf.node, probe_row(report, s->w->accumulator));
    CHECK_INT(at_leaf.saved, SIZE_MAX);
    CHECK_INT(at_leaf.group, at_node.group);
    CHECK_INT(probe_saved(report, at_node.node, 0).state, TGD_SAVED_STORAGE_CHANGED);
    tgd_report_free(report);
    fake_reset();
}

static void a_leaf_with_other_sizes(void)
{
    scene s = make_scene();
    s.second->n_saved = 0;
    s.saved = fake_save(s.second, "other", s.w);
    s.w->sizes[0] = 2;
    s.w->info.numel = 2;
    expect_two_places(&s);
    s = make_scene();
    s.second->n_saved = 0;
    s.saved = fake_save(s.second, "other", s.w);
    fake_set_dtype(s.w, FAKE_FLOAT64);
    expect_two_places(&s);
    /* Nobody saved it: backward still meets it at the AccumulateGrad. */
    s = make_scene();
    s.w->sizes[0] = 2;
    s.w->info.numel = 2;
    tgd_report *report = probe(s.root);
    CHECK_INT(probe_count(report, TGD_STORAGE_CHANGED), 1);
    CHECK_INT(probe_finding(report, TGD_STORAGE_CHANGED, 0, NULL).severity, TGD_WARNING);
    CHECK_INT(probe_finding(report, TGD_STORAGE_CHANGED, 0, NULL).node, probe_row(report, s.w->accumulator));
    tgd_report_free(report);
    /* Not said where a class's sizes are not what sizes() says. */
    s.w->info.flags |= TGD_TENSOR_SUBCLASS;
    report = probe(s.root);
    CHECK_INT(tgd_report_ok(report), 1);
    tgd_report_free(report);
    fake_reset();
}

static void a_hook_may_bring_the_storage_back(void)
{
    /* On the node itself or on one that runs before it; not after. */
    scene s = make_scene();
    s.a->info.storage_bytes = 0;
    s.second->n_pre_hooks = 1;
    EXPECT_FREED(TGD_WARNING);
    s = make_scene();
    s.a->info.storage_bytes = 0;
    s.sum->n_post_hooks = 1;
    EXPECT_FREED(TGD_WARNING);
    s = make_scene();
    s.a->info.storage_bytes = 0;
    s.second->n_tensor_pre_hooks = 1;
    EXPECT_FREED(TGD_WARNING);
    s = make_scene();
    s.a->info.storage_bytes = 0;
    s.second->n_post_hooks = 1;
    s.first->n_pre_hooks = 1;
    EXPECT_FREED(TGD_ERROR);
    /* No hook mends a version. */
    s = make_scene();
    fake_bump(s.a);
    s.second->n_pre_hooks = 1;
    EXPECT(TGD_SAVED_MODIFIED, TGD_MODIFIED_IN_PLACE, TGD_ERROR);
}

/* ---- custom Functions and CopySlices ---- */

static void expect_severity(uint32_t python_flags, bool slices, bool release, tgd_severity severity)
{
    scene s = make_scene();
    fake_python_install();
    s.second->name = "MineBackward";
    s.second->kind = slices ? TGD_NODE_COPY_SLICES : TGD_NODE_PYTHON;
    s.second->inner = slices ? "MineBackward" : NULL;
    s.second->python = true;
    s.second->python_flags = python_flags;
    s.saved->name = "saved_tensors";
    s.saved->index = 0;
    s.saved->flags |= TGD_SV_GIVEN_NODE;
    if (release) {
        fake_release(s.second);
    } else {
        fake_bump(s.a);
    }
    tgd_report *report = probe(s.root);
    size_t at = 0;
    tgd_finding_info finding = probe_finding(report, release ? TGD_GRAPH_FREED : TGD_MODIFIED_IN_PLACE, 0, &at);
    CHECK_INT(finding.severity, severity);
    CHECK_INT(finding.node, probe_row(report, s.second));
    CHECK_HAS(probe_message(report, at), "MineBackward");
    CHECK_INT(tgd_report_n_findings(report), 1);
    tgd_report_free(report);
    fake_reset();
}

static void a_custom_function_decides(void)
{
    for (int release = 0; release < 2; release++) {
        for (int slices = 0; slices < 2; slices++) {
            expect_severity(TGD_PY_READS_SAVED, slices, release, TGD_WARNING);
            expect_severity(0, slices, release, TGD_NOTE);
        }
    }
    scene s = make_scene();
    s.second->kind = TGD_NODE_CPP;
    s.saved->flags |= TGD_SV_GIVEN_NODE;
    fake_bump(s.a);
    EXPECT(TGD_SAVED_MODIFIED, TGD_MODIFIED_IN_PLACE, TGD_WARNING);
}

static void copy_slices_are_built_in(void)
{
    scene s = make_scene();
    s.second->name = "CopySlices";
    s.second->kind = TGD_NODE_COPY_SLICES;
    s.second->inner = "ExpBackward0";
    fake_bump(s.a);
    tgd_report *report = probe(s.root);
    size_t at = 0;
    CHECK_INT(probe_finding(report, TGD_MODIFIED_IN_PLACE, 0, &at).severity, TGD_ERROR);
    CHECK_HAS(probe_message(report, at), "ExpBackward0");
    CHECK_HAS(probe_message(report, at), "CopySlices");
    tgd_report_free(report);
    fake_reset();

    /* Freed: the wrapped node is gone, and what it was called with it. */
    s = make_scene();
    s.second->name = "CopySlices";
    s.second->kind = TGD_NODE_COPY_SLICES;
    *s.saved = (fake_saved){"fn", -1, TGD_SV_RELEASED_FLAG, 0, NULL};
    EXPECT(TGD_SAVED_RELEASED, TGD_GRAPH_FREED, TGD_ERROR);
}

static void one_finding_for_a_freed_node(void)
{
    scene s = make_scene();
    fake_save(s.second, "other", s.w);
    fake_save_none(s.second, "weight");
    fake_release(s.second);
    tgd_report *report = probe(s.root);
    CHECK_INT(probe_count(report, TGD_GRAPH_FREED), 1);
    tgd_report_free(report);
    fake_reset();
}

static void every_broken_tensor_of_a_node_is_told(void)
{
    scene s = make_scene();
    tgd_torch_tensor *x = fake_tensor(FAKE_SIZES(4));
    fake_save(s.second, "other", x);
    fake_bump(s.a);
    fake_bump(x);
    tgd_report *report = probe(s.root);
    CHECK_INT(probe_count(report, TGD_MODIFIED_IN_PLACE), 2);
    CHECK_INT(probe_finding(report, TGD_MODIFIED_IN_PLACE, 0, NULL).saved, 0);
    CHECK_INT(probe_finding(report, TGD_MODIFIED_IN_PLACE, 1, NULL).saved, 1);
    tgd_report_free(report);
    fake_reset();
}

/* ---- nodes that raise by themselves ---- */

static void nodes_that_only_raise(void)
{
    scene s = make_scene();
    s.second->name = "NotImplemented";
    s.second->kind = TGD_NODE_ERROR;
    tgd_report *report = probe(s.root);
    tgd_finding_info finding = probe_finding(report, TGD_NOT_DIFFERENTIABLE, 0, NULL);
    CHECK_INT(finding.severity, TGD_ERROR);
    CHECK_INT(finding.node, probe_row(report, s.second));
    CHECK_INT(finding.saved, SIZE_MAX);
    CHECK_INT(probe_summary(report).n_executed_to_error, 1);
    tgd_report_free(report);
    fake_reset();
}

/* One node of a class that has no formula for some of its edges; whether that is an error. */
static void expect_formula(uint32_t raising_edges, size_t edge, bool wanted, bool found, int line)
{
    tgd_torch_tensor *other = fake_leaf(FAKE_SIZES(2));
    tgd_torch_node *node = fake_node("ClassOfItsOwn");
    node->raising_edges = raising_edges;
    fake_edge(node, edge, fake_leaf_node(fake_leaf(FAKE_SIZES(2))), 0);
    fake_edge(node, edge + 1, fake_leaf_node(other), 0);
    const tgd_torch_tensor *inputs[] = {other};
    tgd_torch_tensor *root = fake_output(node, 0, FAKE_SCALAR);
    tgd_report *report = probe_request(&(tgd_request){
        .roots = &(tgd_root){.tensor = root}, .n_roots = 1, .inputs = wanted ? NULL : inputs, .n_inputs = !wanted});
    if (!CHECK_INT(probe_count(report, TGD_NOT_DIFFERENTIABLE), found)) {
        printf("    in the case at line %d\n", line);
    }
    if (found) {
        CHECK_INT(probe_finding(report, TGD_NOT_DIFFERENTIABLE, 0, NULL).severity, TGD_ERROR);
        CHECK_INT(probe_summary(report).n_executed_to_error, 0);
    }
    tgd_report_free(report);
    fake_reset();
}

#define EXPECT_FORMULA(raising_edges, edge, wanted, found)                                                             \
    expect_formula((raising_edges), (edge), (wanted), (found), __LINE__)

static void formulas_that_are_missing(void)
{
    EXPECT_FORMULA(0, 0, true, false);
    EXPECT_FORMULA(1u << 0, 0, true, true);
    EXPECT_FORMULA(1u << 0, 0, false, false); /* nobody wants that gradient */
    EXPECT_FORMULA(1u << 1, 0, false, true);
    EXPECT_FORMULA(1u << 2, 0, true, false); /* there is no such edge here */
    EXPECT_FORMULA(1u << 0, 1, true, false); /* a null edge */
    EXPECT_FORMULA(UINT32_MAX, 0, false, true);
    EXPECT_FORMULA(UINT32_MAX, 40, true, true);
    EXPECT_FORMULA(1u << 0, 32, true, false);
}

static void a_missing_formula_inside_copy_slices(void)
{
    scene s = make_scene();
    s.second->name = "CopySlices";
    s.second->kind = TGD_NODE_COPY_SLICES;
    s.second->inner = "NotImplemented";
    *s.saved = (fake_saved){"fn", -1, TGD_SV_RAISES, 0, NULL};
    tgd_report *report = probe(s.root);
    CHECK_INT(probe_count(report, TGD_NOT_DIFFERENTIABLE), 1);
    CHECK_INT(probe_finding(report, TGD_NOT_DIFFERENTIABLE, 0, NULL).node, probe_row(report, s.second));
    CHECK_INT(probe_node(report, probe_row(report, s.second)).n_saved, 0);
    CHECK_INT(tgd_report_n_findings(report), 1);
    tgd_report_free(report);
    fake_reset();
}

static void what_is_unpacked_comes_before_the_formula(void)
{
    scene s = make_scene();
    s.second->name = "ClassOfItsOwn";
    s.second->raising_edges = 1;
    fake_bump(s.a);
    tgd_report *report = probe(s.root);
    tgd_finding_info finding;
    CHECK_INT(tgd_report_n_findings(report), 2);
    tgd_report_finding(report, 0, &finding);
    CHECK_INT(finding.kind, TGD_MODIFIED_IN_PLACE);
    tgd_report_free(report);
    fake_reset();
}

static void python_nodes_and_create_graph(void)
{
    static const struct {
        uint32_t flags;
        int create_graph;
        bool found;
        tgd_severity severity;
    } cases[] = {
        {TGD_PY_RAISES, 0, true, TGD_ERROR},
        {TGD_PY_RAISES, 1, true, TGD_ERROR},
        {TGD_PY_ONCE_DIFFERENTIABLE, 0, false, TGD_NOTE},
        {TGD_PY_ONCE_DIFFERENTIABLE, 1, true, TGD_WARNING},
        {TGD_PY_COMPILED, 0, false, TGD_NOTE},
        {TGD_PY_COMPILED, 1, true, TGD_WARNING},
        {TGD_PY_READS_SAVED, 1, false, TGD_NOTE},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        scene s = make_scene();
        fake_python_install();
        tgd_torch_node *mine = fake_python_node("MineBackward", cases[c].flags);
        fake_edge(mine, 0, s.sum, 0);
        tgd_torch_tensor *root = fake_output(mine, 0, FAKE_SCALAR);
        tgd_report *report = probe_request(&(tgd_request){
            .roots = &(tgd_root){.tensor = root}, .n_roots = 1, .create_graph = cases[c].create_graph});
        CHECK_INT(probe_count(report, TGD_NOT_DIFFERENTIABLE), cases[c].found);
        if (cases[c].found) {
            CHECK_INT(probe_finding(report, TGD_NOT_DIFFERENTIABLE, 0, NULL).severity, cases[c].severity);
        }
        tgd_report_free(report);
        fake_reset();
    }
}

/* ---- what could not be seen ---- */

static void busy_and_opaque_are_notes(void)
{
    scene s = make_scene();
    fake_bump(s.a);
    s.second->busy = true; /* broken, but nobody can tell */
    s.first->opaque = true;
    s.first->name = "ThirdPartyBackward";
    tgd_report *report = probe(s.root);
    CHECK_INT(tgd_report_ok(report), 1);
    CHECK_INT(probe_count(report, TGD_OPAQUE_NODE), 2);
    CHECK_INT(probe_count_severity(report, TGD_NOTE), 2);
    size_t at[2];
    tgd_node one = probe_finding(report, TGD_OPAQUE_NODE, 0, &at[0]).node;
    CHECK(one != probe_finding(report, TGD_OPAQUE_NODE, 1, &at[1]).node);
    bool named = strstr(probe_message(report, at[0]), "ThirdPartyBackward") != NULL;
    CHECK(named || strstr(probe_message(report, at[1]), "ThirdPartyBackward") != NULL);
    CHECK_HAS(tgd_report_verdict(report), "unchecked");
    CHECK_INT(probe_summary(report).n_unchecked, 2);
    tgd_report_free(report);
    fake_reset();
}

static void opaque_nodes_of_one_class_are_one_note(void)
{
    tgd_torch_node *previous = fake_leaf_node(fake_leaf(FAKE_SIZES(2)));
    static const char *const names[] = {"OneBackward", "TwoBackward"};
    for (int i = 0; i < 10; i++) {
        tgd_torch_node *node = fake_node(names[i % 2]);
        node->kind = TGD_NODE_OTHER;
        node->opaque = true;
        fake_edge(node, 0, previous, 0);
        previous = node;
    }
    tgd_report *report = probe(fake_output(previous, 0, FAKE_SCALAR));
    CHECK_INT(probe_count(report, TGD_OPAQUE_NODE), 2);
    size_t at;
    probe_finding(report, TGD_OPAQUE_NODE, 0, &at);
    CHECK_HAS(probe_message(report, at), "5");
    tgd_report_free(report);
    fake_reset();
}

/* ---- order and groups ---- */

static void errors_first_and_in_backwards_order(void)
{
    fake_python_install();
    scene s = make_scene();
    fake_bump(s.a); /* error at second */
    fake_save(s.first, "self", s.w);
    fake_bump(s.w); /* error at first, later in backward */
    tgd_torch_node *mine = fake_python_node("MineBackward", TGD_PY_READS_SAVED);
    fake_edge(mine, 0, s.sum, 0);
    tgd_torch_tensor *x = fake_tensor(FAKE_SIZES(3));
    fake_save(mine, "saved_tensors", x)->index = 0;
    fake_bump(x); /* warning, met first */
    tgd_torch_node *hooked = fake_node("ExpBackward0");
    fake_edge(hooked, 0, mine, 0);
    *fake_save(hooked, "result", s.a) = (fake_saved){"result", -1, TGD_SV_HOOKS | TGD_SV_GIVEN_NODE, 0, NULL};
    tgd_report *report = probe(fake_output(hooked, 0, FAKE_SCALAR));
    tgd_finding_info finding;
    CHECK_INT(tgd_report_n_findings(report), 4);
    tgd_report_finding(report, 0, &finding);
    CHECK_INT(finding.node, probe_row(report, s.second));
    CHECK_INT(finding.severity, TGD_ERROR);
    tgd_report_finding(report, 1, &finding);
    CHECK_INT(finding.node, probe_row(report, s.first));
    CHECK_INT(finding.severity, TGD_ERROR);
    tgd_report_finding(report, 2, &finding);
    CHECK_INT(finding.node, probe_row(report, mine));
    CHECK_INT(finding.severity, TGD_WARNING);
    tgd_report_finding(report, 3, &finding);
    CHECK_INT(finding.kind, TGD_CHECK_OFF);
    CHECK_INT(finding.severity, TGD_NOTE);
    CHECK_INT(probe_summary(report).n_executed_to_error, 3);
    CHECK_INT(tgd_report_ok(report), 0);
    tgd_report_free(report);
    fake_reset();
}

static void one_cause_is_one_group(void)
{
    /* Two nodes saved `a`, one of them an alias of it; a third saved something else that changed too. */
    scene s = make_scene();
    tgd_torch_tensor *view = fake_alias(s.a);
    view->info.flags |= TGD_TENSOR_VIEW;
    tgd_torch_node *exp = fake_node("ExpBackward0"), *add = fake_node("AddBackward0");
    fake_edge(exp, 0, s.first, 0);
    fake_save(exp, "self", view)->flags &= ~(uint32_t)TGD_SV_LEAF;
    fake_edge(add, 0, s.sum, 0);
    fake_edge(add, 1, exp, 0);
    tgd_torch_tensor *x = fake_tensor(FAKE_SIZES(4));
    fake_save(add, "other", x);
    fake_bump(s.a);
    fake_bump(x);
    tgd_report *report = probe(fake_output(add, 0, FAKE_SCALAR));
    CHECK_INT(probe_count(report, TGD_MODIFIED_IN_PLACE), 3);
    size_t group_of_a = SIZE_MAX, group_of_x = SIZE_MAX;
    for (size_t i = 0; i < 3; i++) {
        tgd_finding_info finding = probe_finding(report, TGD_MODIFIED_IN_PLACE, i, NULL);
        if (finding.node == probe_row(report, add)) {
            group_of_x = finding.group;
        } else if (group_of_a == SIZE_MAX) {
            group_of_a = finding.group;
        } else {
            CHECK_INT(finding.group, group_of_a);
        }
    }
    CHECK(group_of_a != group_of_x);
    tgd_report_free(report);
    fake_reset();
}

static void a_freed_graph_is_one_group(void)
{
    scene s = make_scene();
    fake_save(s.first, "other", s.w);
    fake_release(s.first);
    fake_release(s.second);
    tgd_report *report = probe(s.root);
    CHECK_INT(probe_count(report, TGD_GRAPH_FREED), 2);
    CHECK_INT(probe_finding(report, TGD_GRAPH_FREED, 0, NULL).group,
              probe_finding(report, TGD_GRAPH_FREED, 1, NULL).group);
    CHECK_INT(probe_finding(report, TGD_GRAPH_FREED, 0, NULL).node, probe_row(report, s.second));
    tgd_report_free(report);
    fake_reset();
}

static void different_causes_are_different_groups(void)
{
    /* Freed, and beside it two tensors that hooks packed and that lost their grad_fn: three causes. */
    scene s = make_scene();
    fake_release(s.second);
    for (int i = 0; i < 2; i++) {
        tgd_torch_node *node = fake_node("ExpBackward0");
        fake_edge(node, 0, s.sum, 0);
        *fake_save(node, "self", s.a) = (fake_saved){"self", -1, TGD_SV_HOOKS, 0, NULL};
        s.sum = node;
    }
    tgd_report *report = probe(fake_output(s.sum, 0, FAKE_SCALAR));
    size_t freed = probe_finding(report, TGD_GRAPH_FREED, 0, NULL).group;
    size_t one = probe_finding(report, TGD_DETACHED_IN_PLACE, 0, NULL).group;
    size_t two = probe_finding(report, TGD_DETACHED_IN_PLACE, 1, NULL).group;
    CHECK(freed != one && freed != two && one != two);
    tgd_report_free(report);
    fake_reset();
}

static void what_backward_does_not_run_is_not_judged(void)
{
    scene s = make_scene();
    tgd_torch_tensor *other = fake_leaf(FAKE_SIZES(4));
    tgd_torch_node *add = fake_node("AddBackward0");
    fake_edge(add, 0, s.sum, 0);
    fake_edge(add, 1, fake_leaf_node(other), 0);
    fake_bump(s.a);
    const tgd_torch_tensor *inputs[] = {other};
    tgd_torch_tensor *root = fake_output(add, 0, FAKE_SCALAR);
    tgd_report *report = probe_request(
        &(tgd_request){.roots = &(tgd_root){.tensor = root}, .n_roots = 1, .inputs = inputs, .n_inputs = 1});
    CHECK_INT(tgd_report_n_findings(report), 0);
    /* The fact is still there to be seen. */
    CHECK_INT(probe_saved(report, probe_row(report, s.second), 0).state, TGD_SAVED_MODIFIED);
    tgd_report_free(report);
    fake_reset();
}

CHECK_MAIN(TEST(nothing_wrong), TEST(nothing_saved), TEST(version_moved_on), TEST(cut_off_by_detach),
           TEST(freed_by_an_earlier_backward), TEST(packed_by_hooks), TEST(storage_gone),
           TEST(wrappers_are_left_alone), TEST(storage_too_small), TEST(other_sizes_than_when_saved),
           TEST(a_leaf_with_other_sizes),
           TEST(a_hook_may_bring_the_storage_back), TEST(a_custom_function_decides), TEST(copy_slices_are_built_in),
           TEST(one_finding_for_a_freed_node), TEST(every_broken_tensor_of_a_node_is_told), TEST(nodes_that_only_raise),
           TEST(formulas_that_are_missing), TEST(a_missing_formula_inside_copy_slices),
           TEST(what_is_unpacked_comes_before_the_formula),
           TEST(python_nodes_and_create_graph), TEST(busy_and_opaque_are_notes),
           TEST(opaque_nodes_of_one_class_are_one_note), TEST(errors_first_and_in_backwards_order),
           TEST(one_cause_is_one_group), TEST(a_freed_graph_is_one_group), TEST(different_causes_are_different_groups),
           TEST(what_backward_does_not_run_is_not_judged))
