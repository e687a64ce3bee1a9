/* What a watch knows beside the graph: numbers that are not finite, what was raised, and whether to look closer. */
#include "finite.h"
#include "prescan.h"
#include "probe.h"

#include <math.h>

/* ---- finite.h ---- */

static tgd_torch_tensor_info tensor_of(const void *data, size_t bytes, const int64_t *sizes, const int64_t *strides,
                                       int ndim)
{
    tgd_torch_tensor_info info = {
        .flags = TGD_TENSOR_DEFINED | TGD_TENSOR_HAS_STORAGE | TGD_TENSOR_FLOATING,
        .data = (uint64_t)(uintptr_t)data,
        .storage_bytes = bytes,
        .sizes = sizes,
        .strides = strides,
        .ndim = (int16_t)ndim,
        .dtype = FAKE_FLOAT32,
        .itemsize = 4,
        .numel = 1,
    };
    for (int i = 0; i < ndim; i++) {
        info.numel *= sizes[i];
    }
    return info;
}

static void every_place(void)
{
    float data[600] = {0};
    const int64_t one[] = {1};
    for (int64_t n = 0; n < 70; n++) {
        tgd_torch_tensor_info info = tensor_of(data, sizeof data, &n, one, 1);
        CHECK_INT(tgd_finite_look(&info, 0), TGD_FINITE);
        for (int64_t at = 0; at < n + 8; at++) {
            data[at] = at % 2 ? NAN : -INFINITY;
            CHECK_INT(tgd_finite_look(&info, 0), at < n ? TGD_NOT_FINITE : TGD_FINITE);
            data[at] = 0;
        }
    }
}

static void what_is_around_is_not_read(void)
{
    float data[40];
    const int64_t sizes[] = {3, 4}, strides[] = {10, 2};
    for (int i = 0; i < 40; i++) {
        data[i] = NAN;
    }
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 4; k++) {
            data[5 + 10 * i + 2 * k] = 1;
        }
    }
    tgd_torch_tensor_info info = tensor_of(data, sizeof data, sizes, strides, 2);
    info.storage_offset = 5;
    CHECK_INT(tgd_finite_look(&info, 0), TGD_FINITE);
    data[5 + 10 * 2 + 2 * 3] = INFINITY;
    int64_t n_nan, n_inf;
    CHECK_INT(tgd_finite_look(&info, 0), TGD_NOT_FINITE);
    tgd_finite_count(&info, &n_nan, &n_inf);
    CHECK_INT(n_nan, 0);
    CHECK_INT(n_inf, 1);
}

static void repeats_count(void)
{
    float data[3] = {1, NAN, INFINITY};
    const int64_t sizes[] = {5, 3, 2}, strides[] = {0, 1, 0};
    tgd_torch_tensor_info info = tensor_of(data, sizeof data, sizes, strides, 3);
    int64_t n_nan, n_inf;
    tgd_finite_count(&info, &n_nan, &n_inf);
    CHECK_INT(n_nan, 10);
    CHECK_INT(n_inf, 10);
}

static void large_ones_in_turns(void)
{
    enum { N = 300 * 200 };
    float *data = calloc(N, sizeof *data);
    const int64_t sizes[] = {300, 200}, strides[] = {200, 1};
    tgd_torch_tensor_info info = tensor_of(data, N * sizeof *data, sizes, strides, 2);
    for (int at = 0; at < N; at += 37) {
        unsigned seen = 0;
        data[at] = NAN;
        for (unsigned turn = 0; turn < 16; turn++) {
            seen += tgd_finite_look(&info, turn) == TGD_NOT_FINITE;
        }
        CHECK(seen >= 1);
        data[at] = 0;
    }
    free(data);
}

static void unreadable(void)
{
    float data[2] = {NAN, NAN};
    const int64_t sizes[] = {2}, strides[] = {1}, far[] = {1000};
    tgd_torch_tensor_info good = tensor_of(data, sizeof data, sizes, strides, 1), bad = good;
    CHECK_INT(tgd_finite_look(&good, 0), TGD_NOT_FINITE);
    bad.device_type = FAKE_CUDA;
    CHECK_INT(tgd_finite_look(&bad, 0), TGD_FINITE_UNCHECKED);
    const uint32_t flags[] = {TGD_TENSOR_META, TGD_TENSOR_WRAPPER, TGD_TENSOR_SUBCLASS, TGD_TENSOR_NESTED};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        bad = good;
        bad.flags |= flags[i];
        CHECK_INT(tgd_finite_look(&bad, 0), TGD_FINITE_UNCHECKED);
    }
    bad = good;
    bad.storage_bytes = 7; /* its storage was made smaller */
    CHECK_INT(tgd_finite_look(&bad, 0), TGD_FINITE_UNCHECKED);
    bad = good;
    bad.strides = far;
    CHECK_INT(tgd_finite_look(&bad, 0), TGD_FINITE_UNCHECKED);
    bad = good;
    bad.data = 0;
    CHECK_INT(tgd_finite_look(&bad, 0), TGD_FINITE_UNCHECKED);
    bad = good;
    bad.dtype = FAKE_INT64;
    CHECK_INT(tgd_finite_look(&bad, 0), TGD_FINITE_UNCHECKED);
}

/* ---- prescan.h ---- */

typedef struct chain {
    tgd_torch_tensor *leaf, *middle, *root;
    tgd_torch_node *first, *last;
} chain;

static chain make_chain(void)
{
    chain c = {.leaf = fake_leaf(FAKE_SIZES(3))};
    c.first = fake_node("ExpBackward0");
    fake_edge(c.first, 0, fake_leaf_node(c.leaf), 0);
    c.middle = fake_output(c.first, 0, FAKE_SIZES(3));
    fake_save_result(c.first, "result", c.middle);
    c.last = fake_node("MulBackward0");
    fake_edge(c.last, 0, c.first, 0);
    c.root = fake_output(c.last, 0, FAKE_SCALAR);
    fake_save(c.last, "self", c.middle);
    fake_save_none(c.last, "other");
    return c;
}

static int look(tgd_prescan *scan, const tgd_torch_tensor *root)
{
    tgd_error err = {0};
    const tgd_root given = {.tensor = root};
    return tgd_prescan_look(scan, &(tgd_request){.roots = &given, .n_roots = 1}, &err);
}

static void nothing(chain *c)
{
    (void)c;
}

static void bump(chain *c)
{
    fake_bump(c->middle);
}

static void release(chain *c)
{
    fake_release(c->first);
}

static void empty_storage(chain *c)
{
    c->middle->info.storage_bytes = 0;
}

static void reshape_leaf(chain *c)
{
    c->leaf->sizes[0] = 4;
}

static void no_formula(chain *c)
{
    c->last->raising_edges = UINT32_MAX;
}

static void cut_root(chain *c)
{
    c->root = fake_tensor(FAKE_SCALAR);
}

/* It says yes where a report has an error or a warning, and no of a good graph; the table serves many graphs. */
static void prescan_agrees_with_reports(void)
{
    void (*const faults[])(chain *) = {nothing, bump, nothing, release, empty_storage, nothing,
                                       reshape_leaf, no_formula, cut_root, nothing};
    tgd_prescan scan = {0};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        chain c = make_chain();
        faults[i](&c);
        tgd_report *report = probe(c.root);
        CHECK_INT(look(&scan, c.root), !tgd_report_ok(report));
        CHECK_INT(!tgd_report_ok(report), faults[i] != nothing);
        tgd_report_free(report);
        fake_reset();
    }
    tgd_prescan_clear(&scan);
}

static void prescan_of_python_nodes(void)
{
    tgd_prescan scan = {0};
    for (int bad = 0; bad < 2; bad++) {
        fake_python_install();
        tgd_torch_tensor *leaf = fake_leaf(FAKE_SIZES(3)), *x = fake_tensor(FAKE_SIZES(3));
        tgd_torch_node *node = fake_python_node("SquareBackward", TGD_PY_READS_SAVED);
        fake_edge(node, 0, fake_leaf_node(leaf), 0);
        fake_save(node, "saved_tensors", x)->flags |= TGD_SV_LEAF;
        if (bad) {
            fake_bump(x);
        }
        CHECK_INT(look(&scan, fake_output(node, 0, FAKE_SCALAR)), bad);
        CHECK_INT(fake_gil_depth(), 0);
        fake_reset();
    }
    tgd_prescan_clear(&scan);
}

/* ---- values.h ---- */

static tgd_report *report_with(const chain *c, const tgd_values *values)
{
    const tgd_parameter parameter = {"w", c->leaf};
    return probe_request(&(tgd_request){.roots = &(tgd_root){.tensor = c->root}, .n_roots = 1,
                                        .parameters = &parameter, .n_parameters = 1, .values = values});
}

static void findings_of_values(void)
{
    chain c = make_chain();
    const tgd_value rows[] = {
        {.of = TGD_VALUE_GRADIENT, .tensor = (uint64_t)(uintptr_t)c.leaf, .numel = 3, .n_nan = 1, .n_inf = 2,
         .counted = true},
        {.of = TGD_VALUE_ROOT, .root = 0, .numel = 1, .n_inf = 1, .counted = true},
        {.of = TGD_VALUE_OUTPUT, .module = "encoder.act", .module_class = "Exp", .numel = 6, .n_nan = 6, .counted = true},
        {.of = TGD_VALUE_GRADIENT, .tensor = 12345, .numel = 3, .n_nan = 1}, /* nobody's any more */
    };
    fake_release(c.first);
    fake_release(c.last);
    tgd_report *report = report_with(&c, &(tgd_values){.rows = rows, .n = 4, .ran = TGD_RAN, .occasion = "step 7"});
    CHECK_INT(tgd_report_n_findings(report), 3); /* what this very run released is none */
    const tgd_finding_kind kinds[] = {TGD_NAN_FORWARD, TGD_INF_FORWARD, TGD_NAN_GRADIENT};
    for (size_t i = 0; i < 3; i++) {
        tgd_finding_info finding;
        tgd_report_finding(report, i, &finding);
        CHECK_INT(finding.kind, kinds[i]);
        CHECK_INT(finding.severity, TGD_ERROR);
    }
    char text[512];
    tgd_report_finding_message(report, 0, text, sizeof text);
    CHECK_HAS(text, "encoder.act (Exp)");
    CHECK_HAS(text, "of its 6 elements 6 are NaN");
    tgd_report_finding_message(report, 2, text, sizeof text);
    CHECK_HAS(text, "w (float32 [3]) has a gradient that is not finite");
    CHECK_HAS(text, "1 is NaN and 2 are infinite");
    CHECK_HAS(tgd_report_verdict(report), "the output of encoder.act (Exp) is NaN");
    tgd_report_free(report);
    fake_reset();
}

static void what_was_raised(void)
{
    fake_python_install();
    tgd_torch_tensor *leaf = fake_leaf(FAKE_SIZES(3)), *x = fake_tensor(FAKE_SIZES(3));
    tgd_torch_node *node = fake_python_node("SquareBackward", TGD_PY_READS_SAVED);
    fake_edge(node, 0, fake_leaf_node(leaf), 0);
    fake_save(node, "saved_tensors", x)->flags |= TGD_SV_LEAF;
    fake_bump(x);
    const chain c = {.leaf = leaf, .root = fake_output(node, 0, FAKE_SCALAR)};
    const struct {
        const char *raised;
        bool explained;
    } cases[] = {
        {NULL, false},
        {"RuntimeError: ... modified by an inplace operation: is at version 1; expected version 0 instead", true},
        {"RuntimeError: ... modified by an inplace operation: is at version 3; expected version 2 instead", false},
        {"ValueError: mine", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tgd_report *report = report_with(&c, &(tgd_values){.raised = cases[i].raised});
        tgd_finding_info finding;
        tgd_report_finding(report, 0, &finding);
        CHECK_INT(finding.kind, TGD_MODIFIED_IN_PLACE);
        CHECK_INT(finding.severity, cases[i].explained ? TGD_ERROR : TGD_WARNING);
        CHECK(tgd_report_explains(report) == (cases[i].explained ? 0 : SIZE_MAX));
        CHECK_INT(tgd_report_knows_raised(report), cases[i].raised != NULL);
        if (cases[i].explained) {
            CHECK_HAS(tgd_report_verdict(report), "raised at SquareBackward");
        } else if (cases[i].raised != NULL) {
            CHECK_HAS(tgd_report_verdict(report), cases[i].raised);
        }
        tgd_report_free(report);
    }
    fake_reset();
}

CHECK_MAIN(TEST(every_place), TEST(what_is_around_is_not_read), TEST(repeats_count), TEST(large_ones_in_turns),
           TEST(unreadable), TEST(prescan_agrees_with_reports), TEST(prescan_of_python_nodes), TEST(findings_of_values),
           TEST(what_was_raised))
