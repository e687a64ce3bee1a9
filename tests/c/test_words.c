/* What a person reads: verdicts, messages, hints, the text report. */
#include "probe.h"

/* ---- helpers ---- */

typedef struct scene {
    tgd_torch_tensor *weight, *bias, *h, *root;
    tgd_torch_node *linear, *relu, *sum;
    fake_saved *result; /* of relu */
    tgd_parameter parameters[8];
    size_t n;
} scene;

/* h = relu(linear(x, weight, bias)); loss = h.sum() */
static scene make_scene(void)
{
    scene s = {.weight = fake_leaf(FAKE_SIZES(8, 4)), .bias = fake_leaf(FAKE_SIZES(8)), .n = 2};
    s.parameters[0] = (tgd_parameter){"fc.weight", s.weight};
    s.parameters[1] = (tgd_parameter){"fc.bias", s.bias};
    s.linear = fake_node("AddmmBackward0");
    fake_edge(s.linear, 0, fake_leaf_node(s.bias), 0);
    fake_edge(s.linear, 1, NULL, 0);
    tgd_torch_node *transpose = fake_node("TBackward0");
    fake_edge(transpose, 0, fake_leaf_node(s.weight), 0);
    fake_edge(s.linear, 2, transpose, 0);
    fake_output(s.linear, 0, FAKE_SIZES(16, 8));
    fake_save(s.linear, "mat1", fake_tensor(FAKE_SIZES(16, 4)));
    fake_save(s.linear, "mat2", fake_alias(s.weight));
    s.relu = fake_node("ReluBackward0");
    fake_edge(s.relu, 0, s.linear, 0);
    s.h = fake_output(s.relu, 0, FAKE_SIZES(16, 8));
    s.result = fake_save_result(s.relu, "result", s.h);
    s.sum = fake_node("SumBackward0");
    fake_edge(s.sum, 0, s.relu, 0);
    s.root = fake_output(s.sum, 0, FAKE_SCALAR);
    return s;
}

static tgd_report *look(const scene *s)
{
    return probe_parameters(s->root, s->parameters, s->n);
}

/* The text report holds for any: one page, no line too long, nothing that a terminal would obey. */
static char *text_of(const tgd_report *report)
{
    char *text = probe_document(report, tgd_text_report_write);
    CHECK(strncmp(text, "torchgraphdbg: ", 15) == 0);
    CHECK(text[strlen(text) - 1] == '\n');
    CHECK_LACKS(text, "(null)");
    CHECK_LACKS(text, " \n");
    size_t column = 0, longest = 0;
    for (const char *c = text; *c != '\0'; c++) {
        CHECK((unsigned char)*c >= 0x20 || *c == '\n');
        CHECK((unsigned char)*c != 0x7F);
        column = *c == '\n' ? 0 : column + (((unsigned char)*c & 0xC0) != 0x80);
        longest = column > longest ? column : longest;
    }
    CHECK(longest <= 140);
    for (size_t i = 0; i < tgd_report_n_findings(report); i++) {
        tgd_finding_info finding;
        tgd_report_finding(report, i, &finding);
        if (i < 20) {
            CHECK_HAS(text, tgd_finding_slug(finding.kind));
        }
    }
    return text;
}

/* The words of a text with every run of blanks made one, so that line breaks do not matter. */
static char *flat(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        char c = *from == '\n' ? ' ' : *from;
        if (c != ' ' || (to > text && to[-1] != ' ')) {
            *to++ = c;
        }
    }
    *to = '\0';
    return text;
}

/* ---- verdicts and messages ---- */

static void healthy(void)
{
    scene s = make_scene();
    tgd_report *report = look(&s);
    CHECK_STR(tgd_report_verdict(report), "no fault found: backward() will run 6 nodes and reach all 2 parameters");
    char *text = text_of(report);
    CHECK_HAS(text, "torchgraphdbg: no fault found: backward() will run 6 nodes and reach all 2 parameters\n");
    CHECK_HAS(text, "Graph: 6 nodes, 6 edges (1 null), depth 5, 1 root, 2 leaves\n");
    CHECK_HAS(text, "3 tensors, 768 bytes");
    CHECK_HAS(text, "2 given, 2 will get a gradient");
    CHECK_LACKS(text, "error");
    CHECK_LACKS(text, "Unchecked");
    free(text);
    tgd_report_free(report);
    fake_reset();
}

static void result_changed_in_place(void)
{
    scene s = make_scene();
    fake_bump(s.h);
    fake_bump(s.h);
    s.result->saved_version = 1;
    tgd_report *report = look(&s);
    CHECK_HAS(tgd_report_verdict(report), "backward() will raise at ReluBackward0");
    CHECK_HAS(tgd_report_verdict(report), "result");
    const char *message = probe_message(report, 0);
    CHECK_HAS(message, "ReluBackward0");
    CHECK_HAS(message, "result (float32 [16, 8])");
    CHECK_HAS(message, "is at version 2; expected version 1"); /* PyTorch's words */
    CHECK_HAS(probe_hint(report, 0), "clone()");
    char *text = flat(text_of(report));
    CHECK_HAS(text, "1. error: modified-in-place");
    CHECK_HAS(text, "is at version 2; expected version 1");
    CHECK_HAS(text, "-> ");
    CHECK_HAS(text, "1 of 6 nodes will run before the first error");
    free(text);
    tgd_report_free(report);
    fake_reset();
}

static void a_parameter_written_to(void)
{
    scene s = make_scene();
    fake_bump(s.weight);
    tgd_report *report = look(&s);
    CHECK_INT(tgd_report_n_findings(report), 1);
    CHECK_HAS(tgd_report_verdict(report), "parameter fc.weight");
    CHECK_HAS(probe_message(report, 0), "fc.weight");
    CHECK_HAS(probe_message(report, 0), "mat2");
    CHECK_HAS(probe_message(report, 0), "is at version 1; expected version 0");
    CHECK_HAS(probe_hint(report, 0), "optimizer.step()");
    tgd_report_free(report);
    fake_reset();
}

static void second_backward(void)
{
    scene s = make_scene();
    fake_release(s.linear);
    fake_release(s.relu);
    tgd_report *report = look(&s);
    CHECK_HAS(tgd_report_verdict(report), "earlier backward");
    CHECK_HAS(tgd_report_verdict(report), "ReluBackward0");
    CHECK_HAS(tgd_report_verdict(report), "(and 1 more error)");
    CHECK_HAS(probe_message(report, 0), "second time");
    CHECK_HAS(probe_hint(report, 0), "retain_graph=True");
    char *text = flat(text_of(report));
    CHECK_HAS(text, "1. error: graph-freed, 2 places");
    CHECK_HAS(text, "the same: AddmmBackward0");
    CHECK_LACKS(text, "2. error");
    free(text);
    tgd_report_free(report);
    fake_reset();
}

static void every_wording_is_whole(void)
{
    /* One report with as many kinds as fit: probe_invariants() reads each message and hint. */
    fake_python_install();
    scene s = make_scene();
    tgd_torch_node *mine = fake_python_node("Mine", TGD_PY_READS_SAVED | TGD_PY_ONCE_DIFFERENTIABLE);
    fake_edge(mine, 0, s.sum, 0);
    tgd_torch_tensor *x = fake_tensor(FAKE_SIZES(2)), *empty = fake_tensor(FAKE_SIZES(2));
    fake_save(mine, "saved_tensors", x)->index = 0;
    fake_save(mine, "saved_tensors", empty)->index = 1;
    fake_bump(x);
    empty->info.storage_bytes = 0;
    tgd_torch_node *unread = fake_python_node("Unread", 0), *compiled = fake_python_node("Compiled", TGD_PY_COMPILED);
    fake_edge(unread, 0, mine, 0);
    fake_save(unread, "saved_tensors", x)->saved_version = 9;
    fake_edge(compiled, 0, unread, 0);
    tgd_torch_node *twice = fake_python_node("Twice", TGD_PY_RAISES), *many = fake_node("ManyBackward0");
    fake_edge(twice, 0, compiled, 0);
    fake_edge(many, 0, twice, 0);
    fake_save(many, "self", x)->flags |= TGD_SV_METADATA_DIFFERS;
    many->saved[0].saved_version = 1;
    fake_save(many, "gone", empty);
    tgd_torch_tensor *small = fake_tensor(FAKE_SIZES(20));
    small->info.storage_bytes = 4;
    fake_save(many, "small", small);
    fake_save(many, "detached", s.h)->flags = TGD_SV_ORIGINAL;
    s.h->info.grad_fn = NULL;
    fake_save(many, "packed", x)->flags = TGD_SV_HOOKS | TGD_SV_LEAF;
    many->saved[4].tensor = NULL;
    tgd_torch_node *broken = fake_node("NotImplemented"), *strange = fake_node("Strange");
    broken->kind = TGD_NODE_ERROR;
    strange->kind = TGD_NODE_OTHER;
    strange->opaque = true;
    fake_edge(broken, 0, many, 0);
    fake_edge(strange, 0, broken, 0);
    s.parameters[s.n++] = (tgd_parameter){"unused", fake_leaf(FAKE_SIZES(3))};
    tgd_torch_tensor *root = fake_output(strange, 0, FAKE_SIZES(2));
    const tgd_root roots[] = {{.tensor = root}, {.tensor = fake_tensor(FAKE_SCALAR)}, {.node = s.sum}};
    tgd_report *report = probe_request(&(tgd_request){.roots = roots,
                                                      .n_roots = 3,
                                                      .parameters = s.parameters,
                                                      .n_parameters = s.n,
                                                      .create_graph = 1});
    static const tgd_finding_kind kinds[] = {
        TGD_MODIFIED_IN_PLACE, TGD_DETACHED_IN_PLACE, TGD_STORAGE_FREED,       TGD_STORAGE_CHANGED, TGD_NO_GRAD_FN,
        TGD_BAD_ROOT,          TGD_NOT_DIFFERENTIABLE, TGD_UNREACHED_PARAMETER, TGD_OPAQUE_NODE,     TGD_CHECK_OFF,
    };
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        if (!CHECK(probe_count(report, kinds[k]) > 0)) {
            printf("    none of kind %s\n", tgd_finding_slug(kinds[k]));
        }
    }
    free(text_of(report));
    for (size_t i = 0; i < tgd_report_n_findings(report); i++) {
        CHECK_LACKS(probe_message(report, i), "  ");
        CHECK_LACKS(probe_hint(report, i), "  ");
        /* A once_differentiable backward has nothing to do with torch.compile. */
        if (strstr(probe_message(report, i), "once_differentiable") != NULL) {
            CHECK_LACKS(probe_hint(report, i), "torch.compile");
        }
    }
    tgd_report_free(report);
    fake_reset();
}

/* ---- groups ---- */

static void many_with_one_cause_are_one_paragraph(void)
{
    static char names[300][32];
    static tgd_parameter parameters[302];
    scene s = make_scene();
    parameters[0] = s.parameters[0];
    parameters[1] = s.parameters[1];
    for (size_t i = 0; i < 300; i++) {
        snprintf(names[i], sizeof names[i], "encoder.%zu.weight", i);
        parameters[2 + i] = (tgd_parameter){names[i], fake_leaf(FAKE_SIZES(2))};
    }
    tgd_report *report = probe_parameters(s.root, parameters, 302);
    CHECK_HAS(tgd_report_verdict(report), "300 parameters get no gradient: encoder.0.weight, encoder.1.weight, ...");
    char *text = text_of(report);
    CHECK(strlen(text) < 3000);
    CHECK_HAS(text, "300 parameters");
    CHECK_LACKS(text, " 2. ");
    CHECK_HAS(flat(text), "and 293 more");
    free(text);
    tgd_report_free(report);
    fake_reset();
}

static void many_causes_are_cut_off(void)
{
    tgd_torch_node *previous = fake_leaf_node(fake_leaf(FAKE_SIZES(2)));
    for (int i = 0; i < 50; i++) {
        tgd_torch_tensor *x = fake_tensor(FAKE_SIZES(2));
        tgd_torch_node *node = fake_node("MulBackward0");
        fake_edge(node, 0, previous, 0);
        fake_save(node, "other", x);
        fake_bump(x);
        previous = node;
    }
    tgd_report *report = probe(fake_output(previous, 0, FAKE_SCALAR));
    char *text = text_of(report);
    CHECK_HAS(text, "20. error");
    CHECK_LACKS(text, "21. error");
    CHECK_HAS(text, "30 more");
    CHECK(strlen(text) < 20000);
    free(text);
    tgd_report_free(report);
    fake_reset();
}

/* ---- hostile names ---- */

static void names_cannot_break_the_report(void)
{
    static char megabyte[1 << 20];
    memset(megabyte, 'x', sizeof megabyte - 1);
    const char *const names[] = {"",         "a\nb",  "\x1b[31mred\x1b[0m", "<b>&\"'", "\xE6\xBC\xA2\xE5\xAD\x97",
                                 "\xF0\x9F\x98\x80", "\xFF\xFE\x80", "100% %s %n", megabyte,
                                 "\xE2\x80\xAE" "reversed"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (int used = 0; used < 2; used++) {
            scene s = make_scene();
            s.parameters[0].name = names[i];
            s.parameters[s.n++] = (tgd_parameter){names[i], used ? s.bias : fake_leaf(FAKE_SIZES(3))};
            fake_bump(s.weight);
            tgd_report *report = look(&s);
            char *text = text_of(report);
            CHECK(strlen(text) < 5000);
            CHECK(strlen(tgd_report_verdict(report)) < 1000);
            CHECK_LACKS(text, "\x1b");
            CHECK_LACKS(text, "\xFF");
            free(text);
            tgd_report_free(report);
            fake_reset();
        }
    }
}

/* ---- snprintf's manners ---- */

static void like_snprintf(void)
{
    scene s = make_scene();
    fake_bump(s.h);
    tgd_report *report = look(&s);
    char whole[2048], part[2048];
    typedef size_t (*getter)(const tgd_report *, size_t, char *, size_t);
    static const getter getters[] = {tgd_report_finding_message, tgd_report_finding_hint};
    for (size_t g = 0; g < 2; g++) {
        size_t needed = getters[g](report, 0, NULL, 0);
        CHECK(needed > 20 && needed < sizeof whole);
        CHECK_INT(getters[g](report, 0, whole, sizeof whole), needed);
        CHECK_INT(strlen(whole), needed);
        for (size_t size = 1; size <= needed + 1; size++) {
            memset(part, '#', sizeof part);
            CHECK_INT(getters[g](report, 0, part, size), needed);
            CHECK_INT(strlen(part), size - 1);
            CHECK(memcmp(part, whole, size - 1) == 0);
            CHECK(part[size] == '#');
        }
    }
    tgd_report_free(report);
    fake_reset();
}

/* ---- names from the list ---- */

static void slugs(void)
{
    CHECK_STR(tgd_finding_slug(TGD_MODIFIED_IN_PLACE), "modified-in-place");
    CHECK_STR(tgd_finding_slug(TGD_CHECK_OFF), "check-off");
    CHECK_STR(tgd_reason_slug(TGD_REASON_REQUIRES_GRAD_OFF), "requires-grad-off");
    CHECK_STR(tgd_reason_slug(TGD_REASON_DATA_SWAPPED), "data-swapped");
    CHECK(tgd_reason_slug(TGD_REASON_NONE) == NULL);
    for (int k = 0; k < TGD_N_FINDING_KINDS; k++) {
        const char *slug = tgd_finding_slug((tgd_finding_kind)k);
        CHECK(slug[0] != '\0' && strspn(slug, "abcdefghijklmnopqrstuvwxyz-") == strlen(slug));
        CHECK(tgd_finding_statement((tgd_finding_kind)k)[0] != '\0');
        for (int other = 0; other < k; other++) {
            CHECK(strcmp(slug, tgd_finding_slug((tgd_finding_kind)other)) != 0);
        }
    }
    for (int r = 1; r < TGD_N_REASONS; r++) {
        CHECK(tgd_reason_slug((tgd_reason)r)[0] != '\0');
    }
    static const char *const states[] = {"ok",            "none",            "modified", "detached", "released",
                                         "storage-freed", "storage-changed", "hooked",   "unchecked"};
    for (int k = 0; k <= TGD_SAVED_UNCHECKED; k++) {
        CHECK_STR(tgd_saved_state_slug((tgd_saved_state)k), states[k]);
    }
    static const char *const kinds[] = {"builtin", "accumulate-grad", "python", "cpp", "copy-slices", "error", "other"};
    for (int k = 0; k <= TGD_NODE_OTHER; k++) {
        CHECK_STR(tgd_node_kind_slug((tgd_node_kind)k), kinds[k]);
    }
    CHECK_STR(tgd_severity_slug(TGD_ERROR), "error");
    CHECK_STR(tgd_severity_slug(TGD_WARNING), "warning");
    CHECK_STR(tgd_severity_slug(TGD_NOTE), "note");
    CHECK_STR(tgd_built_for(), "2.13.0 0123456789abcdef");
}

/* ---- a sink that refuses ---- */

static int refuse(void *context, const char *bytes, size_t n)
{
    (void)bytes;
    (void)n;
    return *(int *)context;
}

static void a_full_disk_is_an_error(void)
{
    scene s = make_scene();
    tgd_report *report = look(&s);
    static const probe_writer writers[] = {tgd_text_report_write, tgd_json_write};
    for (size_t w = 0; w < 2; w++) {
        int full = 28; /* ENOSPC */
        tgd_error err = {0};
        CHECK_INT(writers[w](report, refuse, &full, &err), TGD_EIO);
        CHECK_INT(err.os_errno, 28);
        CHECK_INT(writers[w](report, refuse, &full, NULL), TGD_EIO);
    }
    tgd_report_free(report);
    fake_reset();
}

CHECK_MAIN(TEST(healthy), TEST(result_changed_in_place), TEST(a_parameter_written_to), TEST(second_backward),
           TEST(every_wording_is_whole), TEST(many_with_one_cause_are_one_paragraph), TEST(many_causes_are_cut_off),
           TEST(names_cannot_break_the_report), TEST(like_snprintf), TEST(slugs), TEST(a_full_disk_is_an_error))
