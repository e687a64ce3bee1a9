/* Capture: what is read of a graph, in which order, and what it costs. */
#include "probe.h"

#include <pthread.h>

static void one_node(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(2, 3));
    tgd_torch_node *mul = fake_node("MulBackward0");
    fake_edge(mul, 0, fake_leaf_node(w), 0);
    fake_edge(mul, 1, NULL, 0);
    mul->n_pre_hooks = 1;
    mul->n_tensor_pre_hooks = 2;
    mul->n_retain_grad_hooks = 3;
    mul->n_post_hooks = 4;
    mul->thread_id = 9;
    mul->sequence_nr = 77;
    tgd_torch_tensor *y = fake_output(mul, 0, FAKE_SIZES(2, 3));
    fake_save(mul, "self", w);
    fake_save_none(mul, "other");

    tgd_report *report = probe(y);
    CHECK_INT(tgd_report_n_nodes(report), 2);
    tgd_node_info node = probe_node(report, 0);
    CHECK_STR(node.name, "MulBackward0");
    CHECK_INT(node.kind, TGD_NODE_BUILTIN);
    CHECK(node.inner == NULL);
    CHECK(node.address == (uint64_t)(uintptr_t)mul);
    CHECK_INT(node.sequence_nr, 77);
    CHECK_INT(node.thread_id, 9);
    CHECK_INT(node.n_edges, 2);
    CHECK_INT(node.n_inputs, 1);
    CHECK_INT(node.n_saved, 2);
    CHECK_INT(node.n_pre_hooks, 1);
    CHECK_INT(node.n_tensor_pre_hooks, 2);
    CHECK_INT(node.n_retain_grad_hooks, 3);
    CHECK_INT(node.n_post_hooks, 4);
    CHECK_INT(node.order, 0);
    CHECK_INT(node.unchecked, 0);
    CHECK_INT(node.requires_grad, 1);

    tgd_node_info leaf = probe_node(report, 1);
    CHECK_STR(leaf.name, "AccumulateGrad");
    CHECK_INT(leaf.kind, TGD_NODE_ACCUMULATE_GRAD);
    CHECK(leaf.sequence_nr == UINT64_MAX);
    CHECK_INT(leaf.n_edges, 0);
    CHECK_INT(leaf.n_pre_hooks + leaf.n_tensor_pre_hooks + leaf.n_retain_grad_hooks + leaf.n_post_hooks, 0);
    CHECK_INT(leaf.order, 1);
    CHECK_INT(leaf.requires_grad, 1);
    CHECK(leaf.parameter == NULL);

    tgd_edge edge = tgd_report_edge(report, 0, 0);
    CHECK_INT(edge.to, 1);
    CHECK_INT(edge.input_nr, 0);
    CHECK_INT(tgd_report_edge(report, 0, 1).to, TGD_NONE);
    CHECK_INT(tgd_report_root(report, 0), 0);

    tgd_tensor_info input;
    tgd_report_input(report, 0, 0, &input);
    CHECK_STR(input.dtype, "float32");
    CHECK_STR(input.device, "cpu");
    CHECK_INT(input.device_index, -1);
    CHECK_STR(input.layout, "strided");
    CHECK_INT(input.ndim, 2);
    CHECK(input.sizes[0] == 2 && input.sizes[1] == 3);

    tgd_saved_info saved = probe_saved(report, 0, 0);
    CHECK_STR(saved.name, "self");
    CHECK_INT(saved.index, -1);
    CHECK_INT(saved.state, TGD_SAVED_OK);
    CHECK_STR(saved.tensor.dtype, "float32");
    CHECK_INT(saved.tensor.ndim, 2);
    CHECK(saved.tensor.sizes[0] == 2 && saved.tensor.sizes[1] == 3);
    CHECK(saved.tensor.strides != NULL && saved.tensor.strides[0] == 3 && saved.tensor.strides[1] == 1);
    CHECK_INT(saved.tensor.contiguous, 1);
    CHECK_INT(saved.bytes, 24);
    CHECK(saved.storage != 0);
    CHECK_INT(saved.storage_bytes, 24);
    CHECK_INT(saved.is_leaf, 1);
    CHECK_INT(saved.is_output, 0);
    CHECK_INT(saved.has_hooks, 0);
    CHECK_INT(probe_saved(report, 0, 1).state, TGD_SAVED_NONE);
    CHECK_INT(probe_saved(report, 0, 1).tensor.ndim, -1);

    tgd_summary summary = probe_summary(report);
    CHECK_INT(summary.n_nodes, 2);
    CHECK_INT(summary.n_edges, 2);
    CHECK_INT(summary.n_null_edges, 1);
    CHECK_INT(summary.n_roots, 1);
    CHECK_INT(summary.n_leaves, 1);
    CHECK_INT(summary.depth, 2);
    CHECK_INT(summary.n_executed, 2);
    CHECK_INT(summary.n_executed_to_error, 2);
    CHECK_INT(summary.saved_bytes, 0); /* the leaf's own storage */
    CHECK_INT(summary.leaf_bytes, 24);
    CHECK_INT(summary.n_unchecked, 0);
    tgd_report_free(report);
    fake_reset();
}

static void edges_carry_input_numbers(void)
{
    /* unbind gives three outputs; they are used out of order, and one twice. */
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(3));
    tgd_torch_node *unbind = fake_node("UnbindBackward0");
    fake_edge(unbind, 0, fake_leaf_node(w), 0);
    for (uint32_t k = 0; k < 3; k++) {
        fake_output(unbind, k, FAKE_SCALAR);
    }
    tgd_torch_node *stack = fake_node("StackBackward0");
    fake_edge(stack, 0, unbind, 2);
    fake_edge(stack, 1, unbind, 0);
    fake_edge(stack, 2, NULL, 0);
    fake_edge(stack, 3, unbind, 2);
    tgd_torch_tensor *y = fake_output(stack, 0, FAKE_SIZES(4));
    tgd_report *report = probe(y);
    tgd_node to = probe_row(report, unbind);
    static const uint32_t numbers[] = {2, 0, 0, 2};
    for (size_t k = 0; k < 4; k++) {
        tgd_edge edge = tgd_report_edge(report, 0, k);
        CHECK_INT(edge.to, k == 2 ? TGD_NONE : to);
        CHECK_INT(edge.input_nr, numbers[k]);
    }
    CHECK_INT(probe_node(report, to).n_inputs, 3);
    CHECK_INT(probe_summary(report).n_null_edges, 1);
    CHECK_INT(probe_summary(report).n_edges, 5);
    tgd_report_free(report);
    fake_reset();
}

static void a_diamond_is_read_once(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(2));
    tgd_torch_node *top = fake_node("CloneBackward0");
    fake_edge(top, 0, fake_leaf_node(w), 0);
    tgd_torch_node *left = fake_node("ExpBackward0"), *right = fake_node("SinBackward0");
    fake_edge(left, 0, top, 0);
    fake_edge(right, 0, top, 0);
    tgd_torch_node *add = fake_node("AddBackward0");
    fake_edge(add, 0, left, 0);
    fake_edge(add, 1, right, 0);
    tgd_report *report = probe(fake_output(add, 0, FAKE_SIZES(2)));
    CHECK_INT(tgd_report_n_nodes(report), 5);
    CHECK_INT(probe_summary(report).depth, 4);
    CHECK_INT(tgd_report_edge(report, probe_row(report, left), 0).to, probe_row(report, top));
    CHECK_INT(tgd_report_edge(report, probe_row(report, right), 0).to, probe_row(report, top));
    tgd_report_free(report);
    fake_reset();
}

static void depth_is_the_longest_way(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(2));
    tgd_torch_node *previous = fake_leaf_node(w), *chain[5];
    for (int i = 0; i < 5; i++) {
        chain[i] = fake_node("SinBackward0");
        fake_edge(chain[i], 0, previous, 0);
        previous = chain[i];
    }
    tgd_torch_node *add = fake_node("AddBackward0");
    fake_edge(add, 0, fake_leaf_node(w), 0); /* the short way comes first */
    fake_edge(add, 1, chain[0], 0);
    fake_edge(add, 2, chain[4], 0);
    tgd_report *report = probe(fake_output(add, 0, FAKE_SIZES(2)));
    CHECK_INT(probe_summary(report).depth, 7);
    tgd_report_free(report);
    fake_reset();
}

static void several_roots_come_first(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(2));
    tgd_torch_node *shared = fake_node("CloneBackward0");
    fake_edge(shared, 0, fake_leaf_node(w), 0);
    tgd_torch_node *one = fake_node("ExpBackward0"), *two = fake_node("SinBackward0");
    fake_edge(one, 0, shared, 0);
    fake_edge(two, 0, shared, 0);
    tgd_torch_tensor *y1 = fake_output(one, 0, FAKE_SCALAR);
    /* As tensor, as node, the same again, and one that another root leads to. */
    const tgd_root roots[] = {{.tensor = y1}, {.node = two}, {.tensor = y1}, {.node = shared}};
    tgd_report *report = probe_roots(roots, 4);
    CHECK_INT(tgd_report_n_nodes(report), 4);
    CHECK_INT(tgd_report_root(report, 0), 0);
    CHECK_INT(tgd_report_root(report, 1), 1);
    CHECK_INT(tgd_report_root(report, 2), 0);
    CHECK_INT(tgd_report_root(report, 3), 2);
    CHECK(probe_node(report, 0).address == (uint64_t)(uintptr_t)one);
    CHECK(probe_node(report, 1).address == (uint64_t)(uintptr_t)two);
    CHECK_INT(probe_summary(report).n_roots, 4);
    CHECK_INT(probe_summary(report).n_executed, 4);
    CHECK_INT(probe_node(report, 1).order, 0); /* made last */
    tgd_report_free(report);
    fake_reset();
}

static void a_leaf_as_root(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SCALAR);
    fake_leaf_node(w);
    tgd_report *report = probe(w);
    CHECK_INT(tgd_report_n_nodes(report), 1);
    CHECK_INT(tgd_report_root(report, 0), 0);
    CHECK_INT(probe_node(report, 0).kind, TGD_NODE_ACCUMULATE_GRAD);
    tgd_report_free(report);
    fake_reset();
}

static void a_root_without_node_is_captured_beside_others(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(2));
    tgd_torch_node *sum = fake_node("SumBackward0");
    fake_edge(sum, 0, fake_leaf_node(w), 0);
    const tgd_root roots[] = {{.tensor = fake_tensor(FAKE_SCALAR)}, {.tensor = fake_output(sum, 0, FAKE_SCALAR)}};
    tgd_report *report = probe_roots(roots, 2);
    CHECK_INT(tgd_report_n_nodes(report), 2);
    CHECK_INT(tgd_report_root(report, 0), TGD_NONE);
    CHECK_INT(tgd_report_root(report, 1), 0);
    tgd_report_free(report);
    report = probe(fake_tensor(FAKE_SCALAR));
    CHECK_INT(tgd_report_n_nodes(report), 0);
    CHECK_INT(tgd_report_root(report, 0), TGD_NONE);
    CHECK_INT(probe_summary(report).depth, 0);
    tgd_report_free(report);
    fake_reset();
}

static void copy_slices(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(4));
    tgd_torch_node *node = fake_copy_slices("ExpBackward0");
    fake_edge(node, 0, fake_leaf_node(w), 0);
    tgd_torch_tensor *y = fake_output(node, 0, FAKE_SIZES(4));
    fake_save_result(node, "result", y)->flags |= TGD_SV_INPLACE_ON_VIEW;
    tgd_report *report = probe(y);
    tgd_node_info info = probe_node(report, 0);
    CHECK_STR(info.name, "CopySlices");
    CHECK_STR(info.inner, "ExpBackward0");
    CHECK_INT(info.kind, TGD_NODE_COPY_SLICES);
    CHECK_INT(info.n_saved, 1);
    CHECK_STR(probe_saved(report, 0, 0).name, "result");
    CHECK_INT(probe_saved(report, 0, 0).is_output, 1);
    tgd_report_free(report);
    fake_reset();
}

static void python_nodes(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(4));
    tgd_torch_node *mine = fake_python_node("MineBackward", TGD_PY_READS_SAVED);
    fake_edge(mine, 0, fake_leaf_node(w), 0);
    fake_save(mine, "saved_tensors", w)->index = 0;
    tgd_torch_node *other = fake_python_node("OtherBackward", 0);
    fake_edge(other, 0, mine, 0);
    tgd_torch_node *slices = fake_copy_slices("MineBackward");
    slices->python = true;
    fake_edge(slices, 0, other, 0);
    tgd_torch_tensor *y = fake_output(slices, 0, FAKE_SIZES(4));

    /* Without the Python side they are one kind of unknown node. */
    tgd_report *report = probe(y);
    CHECK_STR(probe_node(report, probe_row(report, mine)).name, "PyNode");
    CHECK_STR(probe_node(report, probe_row(report, other)).name, "PyNode");
    CHECK_INT(probe_node(report, probe_row(report, mine)).kind, TGD_NODE_PYTHON);
    CHECK_INT(probe_node(report, probe_row(report, mine)).unchecked, 1);
    CHECK_INT(probe_summary(report).n_unchecked, 3);
    tgd_report_free(report);

    fake_python_install();
    report = probe(y);
    CHECK_INT(fake_gil_taken(), 1); /* once for all three */
    tgd_node_info info = probe_node(report, probe_row(report, mine));
    CHECK_STR(info.name, "MineBackward");
    CHECK_INT(info.kind, TGD_NODE_PYTHON);
    CHECK_INT(info.unchecked, 0);
    CHECK_INT(info.n_saved, 1);
    CHECK_STR(probe_saved(report, probe_row(report, mine), 0).name, "saved_tensors");
    CHECK_INT(probe_saved(report, probe_row(report, mine), 0).index, 0);
    CHECK_STR(probe_node(report, probe_row(report, other)).name, "OtherBackward");
    info = probe_node(report, probe_row(report, slices));
    CHECK_STR(info.name, "CopySlices");
    CHECK_STR(info.inner, "MineBackward");
    CHECK_INT(info.kind, TGD_NODE_COPY_SLICES);
    CHECK_INT(probe_summary(report).n_unchecked, 0);
    tgd_report_free(report);
    fake_reset();
}

static void many_python_classes(void)
{
    enum { N = 10000, NAMES = 100 };
    static char names[NAMES][32];
    fake_python_install();
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(4));
    tgd_torch_node *previous = fake_leaf_node(w);
    for (int i = 0; i < N; i++) {
        char *name = names[i % NAMES];
        snprintf(name, sizeof names[0], "Class%dBackward", i % NAMES);
        tgd_torch_node *node = fake_python_node(name, (i / NAMES) % 2 == 0 ? 0u : TGD_PY_READS_SAVED);
        fake_edge(node, 0, previous, 0);
        previous = node;
    }
    tgd_report *report = probe(fake_output(previous, 0, FAKE_SIZES(4)));
    CHECK(fake_gil_taken() > 1); /* other Python threads get their turn */
    size_t wrong = 0;
    for (int i = 0; i < N; i++) {
        wrong += strcmp(probe_node(report, (tgd_node)i).name, names[(N - 1 - i) % NAMES]) != 0;
    }
    CHECK_INT(wrong, 0);
    tgd_report_free(report);
    fake_reset();
}

static void unknown_and_busy_nodes_are_unchecked(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(4));
    tgd_torch_node *opaque = fake_node("ThirdPartyBackward");
    opaque->kind = TGD_NODE_OTHER;
    opaque->opaque = true;
    fake_edge(opaque, 0, fake_leaf_node(w), 0);
    tgd_torch_node *busy = fake_node("MulBackward0");
    fake_save(busy, "self", w);
    busy->busy = true;
    fake_edge(busy, 0, opaque, 0);
    tgd_report *report = probe(fake_output(busy, 0, FAKE_SCALAR));
    CHECK_INT(probe_node(report, 0).unchecked, 1);
    CHECK_INT(probe_node(report, 0).n_saved, 0);
    CHECK_INT(probe_node(report, 1).unchecked, 1);
    CHECK_INT(probe_node(report, 1).kind, TGD_NODE_OTHER);
    CHECK_INT(probe_summary(report).n_unchecked, 2);
    CHECK_INT(tgd_report_ok(report), 1); /* not known to be broken */
    tgd_report_free(report);
    fake_reset();
}

static void odd_tensors(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(4));
    tgd_torch_node *node = fake_node("SomeBackward0");
    fake_edge(node, 0, fake_leaf_node(w), 0);

    tgd_torch_tensor *nested = fake_tensor(FAKE_SIZES(2));
    nested->info.ndim = -1;
    nested->info.numel = -1;
    nested->info.flags |= TGD_TENSOR_NESTED;
    nested->strided = false;
    fake_save(node, "nested", nested);

    tgd_torch_tensor *sparse = fake_tensor(FAKE_SIZES(5, 6));
    sparse->info.layout = 1;
    sparse->info.storage = 0;
    sparse->info.data = 0;
    sparse->info.storage_bytes = 0;
    sparse->info.flags &= ~(uint32_t)(TGD_TENSOR_HAS_STORAGE | TGD_TENSOR_CONTIGUOUS);
    sparse->strided = false;
    fake_save(node, "sparse", sparse);

    tgd_torch_tensor *symbolic = fake_tensor(FAKE_SIZES(-1, 3));
    symbolic->info.numel = -1;
    symbolic->info.flags |= TGD_TENSOR_SYMBOLIC;
    symbolic->strided = false;
    fake_save(node, "symbolic", symbolic);

    tgd_torch_tensor *cuda = fake_tensor(FAKE_SIZES(2, 2));
    cuda->info.device_type = FAKE_CUDA;
    cuda->info.device_index = 3;
    cuda->strides[0] = 1;
    cuda->strides[1] = 2;
    cuda->info.flags &= ~(uint32_t)TGD_TENSOR_CONTIGUOUS;
    fake_save(node, "cuda", cuda);

    tgd_torch_tensor *scalar = fake_tensor(FAKE_SCALAR);
    fake_set_dtype(scalar, FAKE_FLOAT64);
    fake_save(node, "scalar", scalar);

    tgd_torch_tensor *empty = fake_tensor(FAKE_SIZES(0, 7));
    fake_save(node, "empty", empty);

    tgd_torch_tensor *unknown = fake_tensor(FAKE_SIZES(1));
    unknown->info.dtype = 99;
    unknown->info.device_type = 99;
    unknown->info.layout = 99;
    fake_save(node, "unknown", unknown);

    tgd_report *report = probe(fake_output(node, 0, FAKE_SCALAR));
    CHECK_INT(probe_node(report, 0).n_saved, 7);
    CHECK_INT(tgd_report_ok(report), 1);
    tgd_saved_info saved = probe_saved(report, 0, 0);
    CHECK_INT(saved.tensor.ndim, -1);
    CHECK(saved.tensor.sizes == NULL || saved.tensor.ndim <= 0);
    saved = probe_saved(report, 0, 1);
    CHECK_STR(saved.tensor.layout, "sparse_coo");
    CHECK(saved.tensor.strides == NULL);
    CHECK_INT(saved.storage, 0);
    saved = probe_saved(report, 0, 2);
    CHECK_INT(saved.tensor.ndim, 2);
    CHECK_INT(saved.tensor.sizes[0], -1);
    CHECK_INT(saved.tensor.sizes[1], 3);
    saved = probe_saved(report, 0, 3);
    CHECK_STR(saved.tensor.device, "cuda");
    CHECK_INT(saved.tensor.device_index, 3);
    CHECK_INT(saved.tensor.contiguous, 0);
    CHECK(saved.tensor.strides != NULL && saved.tensor.strides[0] == 1 && saved.tensor.strides[1] == 2);
    saved = probe_saved(report, 0, 4);
    CHECK_INT(saved.tensor.ndim, 0);
    CHECK_STR(saved.tensor.dtype, "float64");
    CHECK_INT(saved.bytes, 8);
    saved = probe_saved(report, 0, 5);
    CHECK_INT(saved.state, TGD_SAVED_OK); /* no elements, no bytes: nothing is gone */
    CHECK_INT(saved.bytes, 0);
    saved = probe_saved(report, 0, 6);
    CHECK_STR(saved.tensor.dtype, "");
    CHECK_STR(saved.tensor.device, "");
    CHECK_STR(saved.tensor.layout, "");
    tgd_report_free(report);
    fake_reset();
}

static void storages_are_counted_once(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(10)), *x = fake_tensor(FAKE_SIZES(100));
    tgd_torch_node *one = fake_node("MulBackward0"), *two = fake_node("MulBackward0");
    fake_edge(one, 0, fake_leaf_node(w), 0);
    tgd_torch_tensor *a = fake_output(one, 0, FAKE_SIZES(25));
    fake_save(one, "self", w);
    fake_save(one, "other", x);
    fake_edge(two, 0, one, 0);
    fake_save(two, "self", a);
    fake_save(two, "other", x);
    fake_save(two, "view", fake_alias(a));
    fake_save(two, "leaf", w);
    tgd_report *report = probe(fake_output(two, 0, FAKE_SIZES(25)));
    CHECK_INT(probe_summary(report).saved_bytes, 100 * 4 + 25 * 4);
    CHECK_INT(probe_summary(report).leaf_bytes, 40);
    CHECK_INT(probe_summary(report).n_saved, 6);
    CHECK(probe_saved(report, 0, 0).storage == probe_saved(report, 0, 2).storage);
    CHECK(probe_saved(report, 0, 0).storage != probe_saved(report, 0, 1).storage);
    tgd_report_free(report);
    fake_reset();
}

static void a_second_capture_says_the_same(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(2, 2));
    tgd_torch_node *previous = fake_leaf_node(w);
    for (int i = 0; i < 50; i++) {
        tgd_torch_node *node = fake_node(i % 2 == 0 ? "MulBackward0" : "TBackward0");
        fake_edge(node, 0, previous, 0);
        fake_edge(node, 1, fake_leaf_node(fake_leaf(FAKE_SIZES(i, 3))), 0);
        previous = node;
    }
    tgd_torch_tensor *y = fake_output(previous, 0, FAKE_SCALAR);
    tgd_report *one = probe(y), *two = probe(y);
    char *first = probe_document(one, tgd_json_write), *second = probe_document(two, tgd_json_write);
    char *third = probe_document(two, tgd_json_write);
    CHECK(strcmp(first, second) == 0);
    CHECK(strcmp(second, third) == 0);
    free(first);
    free(second);
    free(third);
    tgd_report_free(one);
    tgd_report_free(two);
    fake_reset();
}

/* ---- what is refused ---- */

static void refused(const tgd_request *request, tgd_status expected)
{
    tgd_report *report = (tgd_report *)&report; /* must stay as it is */
    tgd_report *before = report;
    tgd_error err = {0};
    CHECK_INT(tgd_report_capture(&report, request, &err), expected);
    CHECK_INT(err.status, expected);
    CHECK(err.message[0] != '\0');
    CHECK(report == before);
    CHECK_INT(tgd_report_capture(&report, request, NULL), expected);
}

static void bad_requests(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SCALAR);
    tgd_torch_node *node = fake_node("CloneBackward0");
    fake_edge(node, 0, fake_leaf_node(w), 0);
    tgd_torch_tensor *y = fake_output(node, 0, FAKE_SCALAR);
    refused(&(tgd_request){0}, TGD_EINVAL);
    refused(&(tgd_request){.roots = &(tgd_root){.tensor = y}, .n_roots = 0}, TGD_EINVAL);
    refused(&(tgd_request){.roots = &(tgd_root){0}, .n_roots = 1}, TGD_EINVAL);
    refused(&(tgd_request){.roots = &(tgd_root){.tensor = y, .node = node}, .n_roots = 1}, TGD_EINVAL);
    refused(&(tgd_request){.roots = &(tgd_root){.tensor = y},
                           .n_roots = 1,
                           .parameters = &(tgd_parameter){.name = "w"},
                           .n_parameters = 1},
            TGD_EINVAL);
    refused(&(tgd_request){.roots = &(tgd_root){.tensor = y},
                           .n_roots = 1,
                           .parameters = &(tgd_parameter){.tensor = w},
                           .n_parameters = 1},
            TGD_EINVAL);
    refused(&(tgd_request){.roots = &(tgd_root){.tensor = y},
                           .n_roots = 1,
                           .inputs = (const tgd_torch_tensor *const[]){NULL},
                           .n_inputs = 1},
            TGD_EINVAL);
    tgd_report_free(NULL);
    fake_reset();
}

/* backward() would raise as well: a finding, not an error of ours. */
static void a_root_that_torch_refuses(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SCALAR);
    w->node_status = TGD_ETORCH;
    tgd_report *report = probe(w);
    tgd_finding_info finding;
    CHECK_INT(tgd_report_n_findings(report), 1);
    tgd_report_finding(report, 0, &finding);
    CHECK_INT(finding.kind, TGD_BAD_ROOT);
    CHECK_INT(finding.severity, TGD_ERROR);
    CHECK_INT(tgd_report_n_nodes(report), 0);
    tgd_report_free(report);
    fake_reset();
}

/* ---- size ---- */

enum { LONG_CHAIN = 1000000 };

typedef struct long_run {
    const tgd_torch_tensor *root;
    size_t n;
    tgd_summary summary;
    size_t text_bytes, json_bytes;
    tgd_status text, json;
} long_run;

static void *capture_and_write(void *argument)
{
    long_run *run = argument;
    tgd_report *report = probe(run->root);
    tgd_report_summary(report, &run->summary);
    run->text = tgd_text_report_write(report, probe_count_bytes, &run->text_bytes, NULL);
    run->json = tgd_json_write(report, probe_count_bytes, &run->json_bytes, NULL);
    tgd_report_free(report);
    return NULL;
}

static void a_long_chain_on_a_small_stack(void)
{
    long_run run = {.n = check_quick() ? LONG_CHAIN / 50 : LONG_CHAIN};
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(64, 64));
    tgd_torch_node *previous = fake_leaf_node(w);
    tgd_torch_tensor *y = w;
    for (size_t i = 0; i < run.n; i++) {
        tgd_torch_node *node = fake_node("TanhBackward0");
        fake_edge(node, 0, previous, 0);
        y = fake_output(node, 0, FAKE_SIZES(64, 64));
        fake_save_result(node, "result", y);
        previous = node;
    }
    run.root = y;
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK_INT(pthread_attr_init(&attributes), 0);
    CHECK_INT(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
    if (CHECK_INT(pthread_create(&thread, &attributes, capture_and_write, &run), 0)) {
        pthread_join(thread, NULL);
    }
    pthread_attr_destroy(&attributes);
    CHECK_INT(run.summary.n_nodes, run.n + 1);
    CHECK_INT(run.summary.depth, run.n + 1);
    CHECK_INT(run.summary.n_executed, run.n + 1);
    CHECK_INT(run.summary.n_saved, run.n);
    CHECK_INT(run.summary.saved_bytes, run.n * 64 * 64 * 4);
    double per_node = (double)run.summary.snapshot_bytes / (double)run.summary.n_nodes;
    printf("a chain of %zu nodes, each with an edge, an input and a saved tensor: %.0f bytes a node\n", run.n,
           per_node);
    CHECK(per_node < 300);
    CHECK(per_node > 100); /* an honest count: a row of nodes and one of saved tensors alone are more */
    CHECK_INT(run.text, TGD_OK);
    CHECK_INT(run.json, TGD_OK);
    CHECK(run.text_bytes > 0 && run.text_bytes < 20000);
    CHECK(run.json_bytes > run.n);
    fake_reset();
}

CHECK_MAIN(TEST(one_node), TEST(edges_carry_input_numbers), TEST(a_diamond_is_read_once),
           TEST(depth_is_the_longest_way), TEST(several_roots_come_first), TEST(a_leaf_as_root),
           TEST(a_root_without_node_is_captured_beside_others), TEST(copy_slices), TEST(python_nodes),
           TEST(many_python_classes), TEST(unknown_and_busy_nodes_are_unchecked), TEST(odd_tensors),
           TEST(storages_are_counted_once), TEST(a_second_capture_says_the_same), TEST(bad_requests),
           TEST(a_root_that_torch_refuses), TEST(a_long_chain_on_a_small_stack))
