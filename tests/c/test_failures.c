/* Every allocation fails once, and once with all that follow it: TGD_ENOMEM comes back, nothing is left over, nothing
   is touched. Linked with the wrapped allocator of failing_malloc.h. */
#include "documents.h"
#include "failing_malloc.h"
#include "probe.h"

typedef struct scene {
    tgd_root roots[3];
    tgd_parameter parameters[40];
    const tgd_torch_tensor *inputs[2];
    tgd_value value_rows[3];
    tgd_values values;
    tgd_request request;
} scene;

/* A graph that takes every way through the core: many nodes so that arrays grow, leaves, shapes, Python classes, hooks,
   findings of all sorts, parameters that are reached, unreached, replaced. */
static void make_scene(scene *s, bool with_inputs)
{
    static char names[40][32];
    *s = (scene){0};
    fake_python_install();
    tgd_torch_node *previous = fake_leaf_node(fake_leaf(FAKE_SIZES(3)));
    for (int i = 0; i < 40; i++) {
        snprintf(names[i], sizeof names[i], "weight.%d", i);
        tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(i + 1, 2));
        w->is_parameter = 1;
        s->parameters[i] = (tgd_parameter){names[i], i % 3 == 0 ? fake_leaf(FAKE_SIZES(i + 1, 2)) : w};
        tgd_torch_node *node = i % 4 == 0   ? fake_python_node(names[i], TGD_PY_READS_SAVED)
                               : i % 4 == 1 ? fake_copy_slices("ExpBackward0")
                                            : fake_node(i % 4 == 2 ? "MulBackward0" : "OddBackward");
        node->opaque = i % 4 == 3;
        node->n_pre_hooks = (uint32_t)(i % 2);
        fake_edge(node, 0, previous, 0);
        fake_edge(node, 1, fake_leaf_node(w), 0);
        tgd_torch_tensor *y = fake_output(node, 0, FAKE_SIZES(i, 7));
        fake_save(node, "self", y);
        fake_save(node, "other", w)->index = 3;
        if (i % 5 == 0) {
            fake_bump(y);
        }
        if (i % 7 == 0) {
            y->info.storage_bytes = 0;
        }
        s->inputs[i % 2] = w;
        previous = node;
    }
    s->roots[0] = (tgd_root){.tensor = fake_output(previous, 0, FAKE_SIZES(2))};
    s->roots[1] = (tgd_root){.tensor = fake_tensor(FAKE_SCALAR)};
    s->roots[2] = (tgd_root){.node = previous};
    s->value_rows[0] = (tgd_value){.of = TGD_VALUE_ROOT, .root = 1, .numel = 1, .n_nan = 1, .counted = true};
    s->value_rows[1] = (tgd_value){.of = TGD_VALUE_OUTPUT, .module = "a.b", .module_class = "C", .numel = 2, .n_inf = 1};
    s->value_rows[2] = (tgd_value){.of = TGD_VALUE_GRADIENT, .tensor = (uint64_t)(uintptr_t)s->parameters[1].tensor,
                                   .numel = 2, .n_inf = 2, .counted = true};
    s->values = (tgd_values){.rows = s->value_rows, .n = 3, .occasion = "step 1",
                             .raised = "RuntimeError: modified by an inplace operation"};
    s->request = (tgd_request){.values = &s->values,
                               .roots = s->roots,
                               .n_roots = 3,
                               .parameters = s->parameters,
                               .n_parameters = 40,
                               .inputs = with_inputs ? s->inputs : NULL,
                               .n_inputs = with_inputs ? 2 : 0,
                               .create_graph = 1};
}

enum { MOST_ALLOCATIONS = 20000 };

/* One way of failing for one k: whether anything was refused. */
static bool capture_fails_well(const tgd_request *request, size_t k, bool on, size_t *succeeded)
{
    tgd_report *const untouched = (tgd_report *)(uintptr_t)0x10;
    tgd_report *report = untouched;
    tgd_error err = {0};
    long before = failing_alive;
    failing_arm(k, on);
    tgd_status status = tgd_report_capture(&report, request, &err);
    size_t refused = failing_refused;
    failing_disarm();
    CHECK_INT(fake_gil_depth(), 0);
    if (status == TGD_OK) {
        *succeeded += refused > 0;
        CHECK(report != untouched && report != NULL);
        tgd_report_free(report);
    } else {
        CHECK(refused > 0);
        CHECK_INT(status, TGD_ENOMEM);
        CHECK_INT(err.status, TGD_ENOMEM);
        CHECK_STR(err.message, "out of memory");
        CHECK(report == untouched);
    }
    CHECK_INT(failing_alive, before);
    return refused > 0;
}

static void capture(void)
{
    for (int with_inputs = 0; with_inputs < 2; with_inputs++) {
        for (int on = 0; on < 2; on++) {
            scene s;
            make_scene(&s, with_inputs);
            size_t k = 0, succeeded = 0, before = check_failures;
            while (k < MOST_ALLOCATIONS && check_failures == before &&
                   capture_fails_well(&s.request, k, on, &succeeded)) {
                k++;
            }
            CHECK(k > 50 && k < MOST_ALLOCATIONS);
            printf("capture: %zu allocations, each refused%s; %zu could be done without\n", k,
                   on ? " with all after it" : "", succeeded);
            fake_reset();
        }
    }
}

static bool writer_fails_well(const tgd_report *report, probe_writer write, size_t whole, size_t k, bool on)
{
    size_t bytes = 0;
    tgd_error err = {0};
    long before = failing_alive;
    failing_arm(k, on);
    tgd_status status = write(report, probe_count_bytes, &bytes, &err);
    size_t refused = failing_refused;
    failing_disarm();
    if (status == TGD_OK) {
        CHECK_INT(bytes, whole);
    } else {
        CHECK(refused > 0);
        CHECK_INT(status, TGD_ENOMEM);
        CHECK_STR(err.message, "out of memory");
    }
    CHECK_INT(failing_alive, before);
    return refused > 0;
}

static void writers(void)
{
    static const probe_writer all[] = {tgd_text_report_write, tgd_json_write, probe_gv, probe_svg,
                                       probe_html};
    static const char *const names[] = {"text", "JSON", "gv", "SVG", "HTML"};
    scene s;
    make_scene(&s, false);
    tgd_report *report = probe_request(&s.request);
    for (size_t w = 0; w < sizeof all / sizeof all[0]; w++) {
        size_t whole = 0;
        CHECK_INT(all[w](report, probe_count_bytes, &whole, NULL), TGD_OK);
        for (int on = 0; on < 2; on++) {
            size_t k = 0, before = check_failures;
            while (k < MOST_ALLOCATIONS && check_failures == before &&
                   writer_fails_well(report, all[w], whole, k, on)) {
                k += check_quick() ? 13 : 1;
            }
            CHECK(k > 0 && k < MOST_ALLOCATIONS);
            printf("%s: %zu allocations, %s refused%s\n", names[w], k, check_quick() ? "some" : "each",
                   on ? " with all after it" : "");
        }
    }
    tgd_report_free(report);
    fake_reset();
}

static void messages(void)
{
    scene s;
    make_scene(&s, false);
    tgd_report *report = probe_request(&s.request);
    for (size_t i = 0; i < tgd_report_n_findings(report); i++) {
        for (size_t k = 0; k < 10; k++) {
            char buffer[64] = "before";
            long before = failing_alive;
            failing_arm(k, true);
            size_t needed = tgd_report_finding_message(report, i, buffer, sizeof buffer);
            bool refused = failing_refused > 0;
            failing_disarm();
            CHECK_INT(failing_alive, before);
            CHECK(strlen(buffer) < sizeof buffer);
            CHECK(refused ? needed == 0 && buffer[0] == '\0' : needed > 0);
            if (!refused) {
                break;
            }
        }
    }
    tgd_report_free(report);
    fake_reset();
}

static void nothing_stays_behind(void)
{
    scene s;
    make_scene(&s, false);
    long before = failing_alive;
    for (int i = 0; i < 20; i++) {
        tgd_report *report = probe_request(&s.request);
        free(probe_document(report, tgd_text_report_write));
        free(probe_document(report, tgd_json_write));
        tgd_report_free(report);
    }
    CHECK_INT(failing_alive, before);
    fake_reset();
    CHECK_INT(failing_alive, 0);
}

CHECK_MAIN(TEST(capture), TEST(writers), TEST(messages), TEST(nothing_stays_behind))
