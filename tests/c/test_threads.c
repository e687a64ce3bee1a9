/* A report never changes: many threads read, word and write it at once, and all get the same bytes. Captures of one
   graph may run at once as well. run.sh runs this under ThreadSanitizer too. */
#include "documents.h"
#include "probe.h"

#include <pthread.h>

enum { THREADS = 8, ROUNDS = 5 };

static tgd_torch_tensor *make_graph(void)
{
    tgd_torch_node *previous = fake_leaf_node(fake_leaf(FAKE_SIZES(2)));
    for (int i = 0; i < 60; i++) {
        tgd_torch_node *node = fake_node(i % 2 == 0 ? "MulBackward0" : "TanhBackward0");
        fake_edge(node, 0, previous, 0);
        tgd_torch_tensor *y = fake_output(node, 0, FAKE_SIZES(i, 2));
        fake_save_result(node, "result", y);
        if (i % 5 == 0) {
            fake_bump(y);
        }
        previous = node;
    }
    return fake_output(previous, 0, FAKE_SCALAR);
}

typedef struct task {
    const tgd_report *report;      /* NULL: capture one */
    const tgd_torch_tensor *root;
    char *documents[4];            /* what it must write */
    size_t wrong;
} task;

static const probe_writer writers[] = {tgd_text_report_write, tgd_json_write, probe_gv, probe_svg};
enum { WRITERS = sizeof writers / sizeof writers[0] };

static bool is(const tgd_report *report, probe_writer write, const char *expected)
{
    char *actual = probe_document(report, write);
    bool same = strcmp(actual, expected) == 0;
    free(actual);
    return same;
}

static void *work(void *argument)
{
    task *t = argument;
    for (int i = 0; i < ROUNDS; i++) {
        tgd_report *own = NULL;
        if (t->report == NULL) {
            const tgd_request request = {.roots = &(tgd_root){.tensor = t->root}, .n_roots = 1};
            t->wrong += tgd_report_capture(&own, &request, NULL) != TGD_OK;
        }
        const tgd_report *report = own != NULL ? own : t->report;
        char words[2048];
        t->wrong += tgd_report_finding_message(report, 0, words, sizeof words) < 20;
        for (int w = 0; w < WRITERS; w++) {
            t->wrong += !is(report, writers[w], t->documents[w]);
        }
        tgd_report_free(own);
    }
    return NULL;
}

static void run(const tgd_report *report, bool each_its_own, const tgd_torch_tensor *root)
{
    pthread_t threads[THREADS];
    task tasks[THREADS], all = {.report = each_its_own ? NULL : report, .root = root};
    for (int w = 0; w < WRITERS; w++) {
        all.documents[w] = probe_document(report, writers[w]);
    }
    for (int i = 0; i < THREADS; i++) {
        tasks[i] = all;
        if (!CHECK_INT(pthread_create(&threads[i], NULL, work, &tasks[i]), 0)) {
            abort();
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(tasks[i].wrong, 0);
    }
    for (int w = 0; w < WRITERS; w++) {
        free(all.documents[w]);
    }
}

static void one_report_many_readers(void)
{
    tgd_report *report = probe(make_graph());
    run(report, false, NULL);
    tgd_report_free(report);
    fake_reset();
}

static void many_captures_of_one_graph(void)
{
    tgd_torch_tensor *root = make_graph();
    tgd_report *report = probe(root);
    run(report, true, root);
    tgd_report_free(report);
    fake_reset();
}

CHECK_MAIN(TEST(one_report_many_readers), TEST(many_captures_of_one_graph))
