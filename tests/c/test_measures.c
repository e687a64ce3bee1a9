/* What was measured of a backward, joined to the snapshot from before it; the critical path; the trace; refused
   allocations. */
#include "failing_malloc.h"
#include "probe.h"

enum { N = 5 };

/* root -> a, root -> b, a -> leaf, b -> leaf, both into its one input. */
typedef struct scene {
    tgd_torch_node *nodes[4]; /* root, a, b, leaf's */
    tgd_torch_tensor *leaf;
    tgd_report *report;
    tgd_span spans[N];
    tgd_gradient gradients[N];
    tgd_measured_run run;
} scene;

static void span_of(scene *s, uint32_t i, const tgd_torch_node *node, uint64_t began, uint64_t self)
{
    s->spans[i] = (tgd_span){.name = node->name, .node = (uint64_t)(uintptr_t)node, .sequence_nr = node->sequence_nr,
                             .node_thread = node->thread_id, .run = 7, .outermost = 7, .thread = 1, .began = 1000 + began,
                             .ended = 1000 + began + self, .total_ns = self, .self_ns = self, .first_gradient = i,
                             .n_gradients = 1};
    s->gradients[i] = (tgd_gradient){.values = {.n = 4, .norm = (double)i + 1, .absmax = 1}, .received = true,
                                     .measured = true};
}

static void make_scene(scene *s)
{
    *s = (scene){.leaf = fake_leaf(FAKE_SIZES(4))};
    s->nodes[3] = fake_leaf_node(s->leaf);
    s->nodes[1] = fake_node("ABackward0");
    s->nodes[2] = fake_node("BBackward0");
    s->nodes[0] = fake_node("RootBackward0");
    fake_edge(s->nodes[1], 0, s->nodes[3], 0);
    fake_edge(s->nodes[2], 0, s->nodes[3], 0);
    fake_edge(s->nodes[0], 0, s->nodes[1], 0);
    fake_edge(s->nodes[0], 1, s->nodes[2], 0);
    s->report = probe(fake_output(s->nodes[0], 0, FAKE_SCALAR));
    span_of(s, 0, s->nodes[0], 10, 5);
    span_of(s, 1, s->nodes[1], 20, 100);
    span_of(s, 2, s->nodes[2], 200, 300);
    span_of(s, 3, s->nodes[3], 600, 50);
    s->spans[3].leaf = (uint64_t)(uintptr_t)s->leaf;
    span_of(s, 4, s->nodes[1], 210, 20); /* of a backward inside: not the graph's own */
    s->spans[4].run = 8;
    s->spans[4].depth = 1;
    s->run = (tgd_measured_run){.shares = 1, .spans = s->spans, .gradients = s->gradients, .n_spans = N,
                                .n_gradients = N, .run = 7, .began = 1000, .ended = 1700, .thread = 1,
                                .statistics = true};
}

static void free_scene(scene *s)
{
    tgd_report_free(s->report);
    fake_reset();
}

static void join(void)
{
    scene s;
    tgd_measures *measures;
    make_scene(&s);
    const tgd_graph *graph = &s.report->graph;
    CHECK_INT(tgd_measures_join(&measures, graph, &s.run, NULL), TGD_OK);
    const uint64_t self[] = {5, 100, 300, 50};
    for (int i = 0; i < 4; i++) {
        const tgd_node v = probe_row(s.report, s.nodes[i]);
        const tgd_measure_row *row = &measures->nodes[v];
        CHECK(row->timed && row->measured);
        CHECK_INT(row->self_ns, self[i]);
        CHECK_INT(row->span, i);
        CHECK(row->gradient.norm == (double)i + 1);
        CHECK_INT(measures->inputs[graph->nodes[v].first_input].n_edges, i == 0 ? 0 : i == 3 ? 2 : 1);
        CHECK_INT(measures->spans[i].in_graph, v);
    }
    CHECK_INT(measures->spans[4].in_graph, TGD_NONE);
    tgd_report_measure(s.report, measures);
    bool alone = true;
    const tgd_node a = probe_row(s.report, s.nodes[1]), root = probe_row(s.report, s.nodes[0]);
    CHECK(tgd_measures_sent(s.report, a, 0, &alone) != NULL && !alone);
    CHECK(tgd_measures_sent(s.report, root, 1, &alone)->values.norm == 3 && alone);
    CHECK(tgd_measures_sent(s.report, a, 1, &alone) == NULL);
    tgd_measures_free(measures);
    free_scene(&s);
}

static void medians(void)
{
    enum { STEPS = 4 };
    scene s;
    tgd_measures *measures[STEPS];
    const tgd_report *reports[STEPS];
    make_scene(&s);
    const tgd_node b = probe_row(s.report, s.nodes[2]);
    const uint64_t took[STEPS] = {300, 7, 5, 9000};
    for (int i = 0; i < STEPS; i++) {
        s.spans[2].self_ns = took[i];
        CHECK_INT(tgd_measures_join(&measures[i], &s.report->graph, &s.run, NULL), TGD_OK);
        reports[i] = s.report;
    }
    tgd_measures *const without[] = {measures[0], NULL, measures[2], NULL};
    CHECK_INT(tgd_measures_repeat(without, reports, STEPS, 0, NULL), TGD_OK);
    CHECK_INT(measures[0]->nodes[b].repeats, 2);
    CHECK_INT(measures[0]->nodes[b].median_self_ns, 152);
    CHECK_INT(tgd_measures_repeat(measures, reports, STEPS, 3, NULL), TGD_OK);
    CHECK_INT(measures[3]->nodes[b].repeats, 4);
    CHECK_INT(measures[3]->nodes[b].median_self_ns, 153); /* between 7 and 300: what was filled before does not count */
    for (int i = 0; i < STEPS; i++) {
        tgd_measures_free(measures[i]);
    }
    free_scene(&s);
}

static void critical_path(void)
{
    scene s;
    tgd_measures *measures;
    tgd_node *path;
    uint32_t n;
    make_scene(&s);
    CHECK_INT(tgd_measures_join(&measures, &s.report->graph, &s.run, NULL), TGD_OK);
    tgd_report_measure(s.report, measures);
    CHECK_INT(tgd_measures_critical_path(s.report, &path, &n, NULL), TGD_OK);
    CHECK_INT(n, 3);
    CHECK_INT(path[0], probe_row(s.report, s.nodes[0]));
    CHECK_INT(path[1], probe_row(s.report, s.nodes[2]));
    CHECK_INT(path[2], probe_row(s.report, s.nodes[3]));
    free(path);
    tgd_measures_free(measures);
    free_scene(&s);
}

static void on_a_device(void)
{
    scene s;
    tgd_measures *measures;
    make_scene(&s);
    CHECK(tgd_chrome_trace_write(s.report, NULL, NULL, NULL) == TGD_EINVAL); /* nothing was timed yet */
    s.spans[1].on_device = (tgd_device_time){.began = 1500, .ended = 3750, .queued = 400, .stream = 99, .device = 2,
                                             .known = true};
    CHECK_INT(tgd_measures_join(&measures, &s.report->graph, &s.run, NULL), TGD_OK);
    tgd_report_measure(s.report, measures);
    char *trace = probe_document(s.report, tgd_chrome_trace_write);
    CHECK_HAS(trace, "\"name\": \"process_name\", \"pid\": 4, \"args\": {\"name\": \"device 2\"}");
    CHECK_HAS(trace, "\"args\": {\"name\": \"stream 99\"}");
    CHECK_HAS(trace, "\"cat\": \"device\", \"pid\": 4, \"tid\": 2, \"ts\": 0.500, \"dur\": 2.250");
    CHECK_HAS(trace, "\"queued us\": 0.400");
    free(trace);
    tgd_node *path;
    uint32_t n;
    CHECK_INT(tgd_measures_critical_path(s.report, &path, &n, NULL), TGD_OK);
    CHECK_INT(path[1], probe_row(s.report, s.nodes[1])); /* its device took longer than the other one's host */
    free(path);
    char *json = probe_document(s.report, tgd_json_write);
    CHECK_HAS(json, "\"on_device\": {\"device\": 2, \"stream\": \"99\", \"began\": 500, \"ended\": 2750, \"queued\": 400");
    free(json);
    char *text = probe_document(s.report, tgd_text_report_write);
    CHECK_HAS(text, "Slowest nodes");
    CHECK_HAS(text, "2.25 us  ABackward0");
    free(text);
    tgd_measures_free(measures);
    free_scene(&s);
}

static int count(void *context, const char *bytes, size_t n)
{
    (void)bytes;
    *(size_t *)context += n;
    return 0;
}

/* Of the path, the trace and the measures themselves. */
static void refused_memory(void)
{
    scene s;
    make_scene(&s);
    const long before = failing_alive;
    for (size_t k = 0;; k++) {
        tgd_measures *measures = NULL;
        failing_arm(k, true);
        tgd_status status = tgd_measures_join(&measures, &s.report->graph, &s.run, NULL);
        if (status == TGD_OK) {
            const tgd_report *report = s.report;
            status = tgd_measures_repeat(&measures, &report, 1, 0, NULL);
        }
        const bool refused = failing_refused > 0;
        failing_disarm();
        CHECK_INT(status, refused ? TGD_ENOMEM : TGD_OK);
        tgd_measures_free(measures);
        CHECK_INT(failing_alive, before);
        if (!refused) {
            break;
        }
    }
    tgd_measures *measures;
    CHECK_INT(tgd_measures_join(&measures, &s.report->graph, &s.run, NULL), TGD_OK);
    tgd_report_measure(s.report, measures);
    tgd_measures_free(measures);
    const long with = failing_alive;
    for (size_t k = 0;; k++) {
        size_t written = 0;
        failing_arm(k, true);
        const tgd_status status = tgd_chrome_trace_write(s.report, count, &written, NULL);
        const bool refused = failing_refused > 0;
        failing_disarm();
        CHECK(refused ? status != TGD_OK : status == TGD_OK);
        CHECK_INT(failing_alive, with);
        if (!refused) {
            break;
        }
    }
    free_scene(&s);
}

CHECK_MAIN(TEST(join), TEST(medians), TEST(critical_path), TEST(on_a_device), TEST(refused_memory))
