/* The JSON says what the accessors say. Writes each report twice into $TGD_TEST_OUT: as NAME.json, and as NAME.facts,
   lines of "path<TAB>type<TAB>value" taken from the accessors, which check_json.py compares. Without the variable the
   documents are only written to memory. */
#include "probe.h"

#include <stdarg.h>

static FILE *facts;

static void fact(const char *path, char type, const char *value)
{
    if (facts != NULL) {
        fprintf(facts, "%s\t%c\t%s\n", path, type, value);
    }
}

/* Strings go in hexadecimal, so that nothing in them matters to the reader of the facts. */
static void fact_string(const char *path, const char *s)
{
    if (s == NULL || facts == NULL) {
        fact(path, 'n', "");
        return;
    }
    fprintf(facts, "%s\ts\t", path);
    for (; *s != '\0'; s++) {
        fprintf(facts, "%02x", (unsigned char)*s);
    }
    fprintf(facts, "\n");
}

static void fact_number(const char *path, uint64_t n)
{
    char value[32];
    snprintf(value, sizeof value, "%" PRIu64, n);
    fact(path, 'i', value);
}

static void fact_signed(const char *path, int64_t n)
{
    char value[32];
    snprintf(value, sizeof value, "%" PRId64, n);
    fact(path, 'i', value);
}

static void fact_or_null(const char *path, uint64_t n, bool present)
{
    if (present) {
        fact_number(path, n);
    } else {
        fact(path, 'n', "");
    }
}

static void fact_bool(const char *path, int value)
{
    fact(path, 'b', value ? "true" : "false");
}

static const char *path(const char *format, ...) __attribute__((format(printf, 1, 2)));

static const char *path(const char *format, ...)
{
    static char buffer[256];
    va_list args;
    va_start(args, format);
    vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    return buffer;
}

static void facts_of_list(const char *where, const int64_t *numbers, int n)
{
    char base[200];
    snprintf(base, sizeof base, "%s", where);
    if (n < 0) {
        fact(base, 'n', "");
        return;
    }
    fact_number(path("%s/#", base), (uint64_t)n);
    for (int i = 0; i < n; i++) {
        fact_signed(path("%s/%d", base, i), numbers[i]);
    }
}

static void facts_of_tensor(const char *where, const tgd_tensor_info *info)
{
    char base[200], device[64];
    snprintf(base, sizeof base, "%s", where);
    facts_of_list(path("%s/shape", base), info->sizes, info->ndim);
    fact_string(path("%s/dtype", base), info->dtype[0] != '\0' ? info->dtype : NULL);
    fact_string(path("%s/layout", base), info->layout[0] != '\0' ? info->layout : NULL);
    if (info->device_index >= 0) {
        snprintf(device, sizeof device, "%s:%d", info->device, info->device_index);
    } else {
        snprintf(device, sizeof device, "%s", info->device);
    }
    fact_string(path("%s/device", base), device[0] != '\0' ? device : NULL);
}

static void facts_of_node(const tgd_report *report, tgd_node v)
{
    tgd_node_info node = probe_node(report, v);
    fact_string(path("nodes/%u/name", v), node.name);
    fact_string(path("nodes/%u/kind", v), tgd_node_kind_slug(node.kind));
    fact_string(path("nodes/%u/inner", v), node.inner);
    fact_or_null(path("nodes/%u/sequence_nr", v), node.sequence_nr, node.kind != TGD_NODE_ACCUMULATE_GRAD);
    fact_number(path("nodes/%u/thread", v), node.thread_id);
    fact_or_null(path("nodes/%u/order", v), node.order, node.order != SIZE_MAX);
    fact_string(path("nodes/%u/parameter", v), node.parameter);
    fact_bool(path("nodes/%u/requires_grad", v), node.requires_grad);
    fact_bool(path("nodes/%u/unchecked", v), node.unchecked);
    fact_number(path("nodes/%u/hooks/0", v), node.n_pre_hooks);
    fact_number(path("nodes/%u/hooks/1", v), node.n_tensor_pre_hooks);
    fact_number(path("nodes/%u/hooks/2", v), node.n_retain_grad_hooks);
    fact_number(path("nodes/%u/hooks/3", v), node.n_post_hooks);
    fact_number(path("nodes/%u/edges/#", v), node.n_edges);
    for (size_t k = 0; k < node.n_edges; k++) {
        tgd_edge edge = tgd_report_edge(report, v, k);
        if (edge.to == TGD_NONE) {
            fact(path("nodes/%u/edges/%zu", v, k), 'n', "");
        } else {
            fact_number(path("nodes/%u/edges/%zu/0", v, k), edge.to);
            fact_number(path("nodes/%u/edges/%zu/1", v, k), edge.input_nr);
        }
    }
    fact_number(path("nodes/%u/inputs/#", v), node.n_inputs);
    for (size_t k = 0; k < node.n_inputs; k++) {
        tgd_tensor_info input;
        tgd_report_input(report, v, k, &input);
        facts_of_tensor(path("nodes/%u/inputs/%zu", v, k), &input);
    }
    fact_number(path("nodes/%u/saved/#", v), node.n_saved);
    for (size_t k = 0; k < node.n_saved; k++) {
        char base[100];
        tgd_saved_info saved = probe_saved(report, v, k);
        snprintf(base, sizeof base, "nodes/%u/saved/%zu", v, k);
        facts_of_tensor(base, &saved.tensor);
        facts_of_list(path("%s/strides", base), saved.tensor.strides,
                      saved.tensor.strides == NULL ? -1 : saved.tensor.ndim);
        fact_string(path("%s/name", base), saved.name);
        fact_or_null(path("%s/index", base), (uint64_t)saved.index, saved.index >= 0);
        fact_string(path("%s/state", base), tgd_saved_state_slug(saved.state));
        fact_number(path("%s/bytes", base), saved.bytes);
        fact_or_null(path("%s/storage", base), saved.storage, saved.storage != 0);
        fact_or_null(path("%s/storage_bytes", base), saved.storage_bytes, saved.storage != 0);
        fact_number(path("%s/saved_version", base), saved.saved_version);
        fact_number(path("%s/version", base), saved.current_version);
        fact_bool(path("%s/is_output", base), saved.is_output);
        fact_bool(path("%s/is_leaf", base), saved.is_leaf);
        fact_bool(path("%s/has_hooks", base), saved.has_hooks);
        if (saved.tensor.contiguous < 0) {
            fact(path("%s/contiguous", base), 'n', "");
        } else {
            fact_bool(path("%s/contiguous", base), saved.tensor.contiguous);
        }
    }
}

static void facts_of_finding(const tgd_report *report, size_t i)
{
    tgd_finding_info finding;
    tgd_report_finding(report, i, &finding);
    fact_string(path("findings/%zu/kind", i), tgd_finding_slug(finding.kind));
    fact_string(path("findings/%zu/severity", i), tgd_severity_slug(finding.severity));
    fact_string(path("findings/%zu/message", i), probe_message(report, i));
    fact_string(path("findings/%zu/hint", i), probe_hint(report, i)[0] != '\0' ? probe_hint(report, i) : NULL);
    fact_or_null(path("findings/%zu/node", i), finding.node, finding.node != TGD_NONE);
    fact_string(path("findings/%zu/parameter", i), finding.parameter);
    fact_string(path("findings/%zu/reason", i), tgd_reason_slug(finding.reason));
    fact_or_null(path("findings/%zu/root", i), finding.root, finding.root != SIZE_MAX);
    fact_number(path("findings/%zu/group", i), finding.group);
    if (finding.saved != SIZE_MAX) {
        tgd_saved_info saved = probe_saved(report, finding.node, finding.saved);
        fact_string(path("findings/%zu/saved", i), saved.name);
        fact_or_null(path("findings/%zu/saved_index", i), (uint64_t)saved.index, saved.index >= 0);
    } else {
        fact(path("findings/%zu/saved", i), 'n', "");
        fact(path("findings/%zu/saved_index", i), 'n', "");
    }
}

static void facts_of_report(const tgd_report *report)
{
    tgd_summary summary = probe_summary(report);
    fact_string("schema", "torchgraphdbg/report");
    fact_number("schema_version", 1);
    fact_string("torch", tgd_built_for());
    fact_string("verdict", tgd_report_verdict(report));
    fact_bool("ok", tgd_report_ok(report));
    fact_number("summary/nodes", summary.n_nodes);
    fact_number("summary/edges", summary.n_edges);
    fact_number("summary/null_edges", summary.n_null_edges);
    fact_number("summary/roots", summary.n_roots);
    fact_number("summary/leaves", summary.n_leaves);
    fact_number("summary/depth", summary.depth);
    fact_number("summary/saved_tensors", summary.n_saved);
    fact_number("summary/saved_bytes", summary.saved_bytes);
    fact_number("summary/leaf_bytes", summary.leaf_bytes);
    fact_number("summary/executed", summary.n_executed);
    fact_number("summary/executed_to_error", summary.n_executed_to_error);
    fact_number("summary/parameters", summary.n_parameters);
    fact_number("summary/parameters_reached", summary.n_parameters_reached);
    fact_number("summary/parameters_frozen", summary.n_parameters_frozen);
    fact_number("summary/unchecked", summary.n_unchecked);
    fact_number("nodes/#", tgd_report_n_nodes(report));
    fact_number("findings/#", tgd_report_n_findings(report));
    fact_number("parameters/#", summary.n_parameters);
    fact_number("roots/#", summary.n_roots);
    for (size_t v = 0; v < tgd_report_n_nodes(report); v++) {
        facts_of_node(report, (tgd_node)v);
    }
    for (size_t i = 0; i < tgd_report_n_findings(report); i++) {
        facts_of_finding(report, i);
    }
    for (size_t r = 0; r < summary.n_roots; r++) {
        tgd_node root = tgd_report_root(report, r);
        fact_or_null(path("roots/%zu/node", r), root, root != TGD_NONE);
    }
}

static void write_both(const char *name, const tgd_report *report, const tgd_parameter *parameters, size_t n)
{
    const char *folder = getenv("TGD_TEST_OUT");
    char *document = probe_document(report, tgd_json_write);
    CHECK(document[0] == '{' && strcmp(document + strlen(document) - 2, "}\n") == 0);
    if (folder != NULL) {
        char file[512];
        snprintf(file, sizeof file, "%s/%s.json", folder, name);
        FILE *to = fopen(file, "wb");
        if (CHECK(to != NULL)) {
            CHECK(fputs(document, to) >= 0);
            CHECK_INT(fclose(to), 0);
        }
        snprintf(file, sizeof file, "%s/%s.facts", folder, name);
        facts = fopen(file, "wb");
        if (CHECK(facts != NULL)) {
            facts_of_report(report);
            for (size_t i = 0; i < n; i++) {
                fact_string(path("parameters/%zu/name", i), parameters[i].name);
            }
            CHECK_INT(fclose(facts), 0);
            facts = NULL;
        }
    }
    free(document);
}

/* ---- the reports ---- */

static void a_healthy_graph(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(8, 4));
    tgd_torch_node *mul = fake_node("MulBackward0");
    fake_edge(mul, 0, fake_leaf_node(w), 0);
    fake_edge(mul, 2, fake_leaf_node(w), 0);
    fake_save(mul, "self", w);
    fake_save_none(mul, "other");
    tgd_report *report = probe(fake_output(mul, 0, FAKE_SCALAR));
    write_both("healthy", report, NULL, 0);
    tgd_report_free(report);
    fake_reset();
}

static void no_graph_at_all(void)
{
    tgd_report *report = probe(fake_tensor(FAKE_SIZES(2)));
    write_both("nothing", report, NULL, 0);
    tgd_report_free(report);
    fake_reset();
}

static void everything_at_once(void)
{
    fake_python_install();
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(8, 4)), *x = fake_tensor(FAKE_SIZES(0, 3)), *packed = NULL;
    tgd_torch_node *slices = fake_copy_slices("ExpBackward0");
    fake_edge(slices, 0, fake_leaf_node(w), 0);
    fake_save_result(slices, "result", w)->saved_version = 4000000000u;
    slices->thread_id = UINT64_MAX;
    slices->sequence_nr = (uint64_t)1 << 53 | 1; /* not to be had in a double */
    slices->n_pre_hooks = 1;
    slices->n_tensor_pre_hooks = 2;
    slices->n_retain_grad_hooks = 3;
    slices->n_post_hooks = 4;
    tgd_torch_node *python = fake_python_node("Weird\"\\<Name>\x01\xFF\xC3\xA9" "Backward", TGD_PY_READS_SAVED);
    fake_edge(python, 0, slices, 0);
    fake_edge(python, 1, NULL, 7);
    fake_edge(python, 2, slices, 3);
    fake_save(python, "saved_tensors", x)->index = 0;
    fake_save(python, "saved_tensors", w)->index = 1;
    fake_bump(x);
    fake_save_none(python, "saved_tensors")->index = 2;
    tgd_torch_node *odd = fake_node("OddBackward0");
    fake_edge(odd, 0, python, 0);
    fake_input_like(odd, 2, w);
    tgd_torch_tensor *sparse = fake_tensor(FAKE_SIZES(5, 6)), *symbolic = fake_tensor(FAKE_SIZES(-1, 3));
    sparse->info.layout = 1;
    sparse->strided = false;
    sparse->info.storage = 0;
    sparse->info.dtype = 99;
    symbolic->info.numel = -1;
    symbolic->info.device_type = FAKE_CUDA;
    symbolic->info.device_index = 2;
    symbolic->strides[0] = 7;
    symbolic->info.flags &= ~(uint32_t)TGD_TENSOR_CONTIGUOUS;
    fake_save(odd, "sparse", sparse);
    fake_save(odd, "symbolic", symbolic);
    *fake_save(odd, "packed", w) = (fake_saved){"packed", -1, TGD_SV_HOOKS | TGD_SV_LEAF, 0, packed};
    tgd_torch_node *busy = fake_node("BusyBackward0");
    fake_edge(busy, 0, odd, 0);
    fake_save(busy, "self", w);
    busy->busy = true;
    static char megabyte[1 << 20];
    memset(megabyte, 'n', sizeof megabyte - 1);
    const tgd_parameter parameters[] = {
        {"module.weight\n\"quoted\" \\ \t\x7f\x1f", w},
        {"\xE6\xBC\xA2\xE5\xAD\x97 \xF0\x9F\x98\x80 \xE2\x80\xA8", fake_leaf(FAKE_SIZES(3))},
        {"bad \xC0\x80 \xED\xA0\x80 \xF4\x90\x80\x80 \xE2\x82", fake_leaf(FAKE_SIZES(3))},
        {"</script><!--", fake_tensor(FAKE_SIZES(3))},
        {"", fake_leaf(FAKE_SCALAR)},
        {megabyte, fake_leaf(FAKE_SCALAR)},
    };
    tgd_torch_tensor *root = fake_output(busy, 1, FAKE_SIZES(2));
    const tgd_root roots[] = {{.tensor = root}, {.node = python, .output_nr = 1}, {.tensor = fake_tensor(FAKE_SCALAR)}};
    tgd_report *report = probe_request(
        &(tgd_request){.roots = roots, .n_roots = 3, .parameters = parameters, .n_parameters = 6, .create_graph = 1});
    write_both("everything", report, parameters, 6);
    tgd_report_free(report);
    fake_reset();
}

static void many_nodes(void)
{
    tgd_torch_node *previous = fake_leaf_node(fake_leaf(FAKE_SIZES(2)));
    for (int i = 0; i < (check_quick() ? 200 : 5000); i++) {
        tgd_torch_node *node = fake_node(i % 2 == 0 ? "MulBackward0" : "TanhBackward0");
        fake_edge(node, 0, previous, 0);
        tgd_torch_tensor *y = fake_output(node, 0, FAKE_SIZES(i, 2));
        fake_save_result(node, "result", y);
        if (i % 7 == 0) {
            fake_bump(y);
        }
        previous = node;
    }
    tgd_report *report = probe(fake_output(previous, 0, FAKE_SCALAR));
    write_both("many", report, NULL, 0);
    tgd_report_free(report);
    fake_reset();
}

CHECK_MAIN(TEST(a_healthy_graph), TEST(no_graph_at_all), TEST(everything_at_once), TEST(many_nodes))
