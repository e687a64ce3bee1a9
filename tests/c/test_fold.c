/* Folding: any graph becomes few boxes that still tell the truth, and what matters stays visible. */
#include "fold.h"
#include "models.h"

#include <time.h>

static char *title_of(const tgd_fold *fold, uint32_t box)
{
    static char buffer[4096];
    tgd_text text;
    tgd_text_init(&text, NULL, NULL);
    tgd_fold_title(&text, fold, box);
    size_t n = text.n < sizeof buffer - 1 ? text.n : sizeof buffer - 1;
    memcpy(buffer, text.bytes == NULL ? "" : text.bytes, text.bytes == NULL ? 0 : n);
    buffer[text.bytes == NULL ? 0 : n] = '\0';
    tgd_text_drop(&text);
    return buffer;
}

static uint32_t box_with(const tgd_fold *fold, uint32_t unit)
{
    for (uint32_t b = 0; b < fold->n_boxes; b++) {
        if (unit >= fold->boxes[b].first_unit && unit < fold->boxes[b].first_unit + fold->boxes[b].n_units) {
            return b;
        }
    }
    return TGD_NONE;
}

/* Is there a way from one box to another along the edges that are drawn? */
static bool leads(const tgd_fold *fold, uint32_t from, uint32_t to)
{
    bool reached[TGD_FOLD_BOXES] = {false};
    reached[from] = true;
    for (uint32_t e = 0; e < fold->n_edges; e++) { /* ordered by from, and every edge goes to a later box */
        reached[fold->edges[e].to] = reached[fold->edges[e].to] || reached[fold->edges[e].from];
    }
    return reached[to];
}

static void check_units(const tgd_units *units)
{
    const tgd_graph *graph = &units->report->graph;
    uint32_t seen = 0;
    CHECK_INT(units->start[0], 0);
    for (uint32_t u = 0; u < units->n; u++) {
        CHECK(units->start[u] < units->start[u + 1]);
        for (uint32_t m = units->start[u]; m < units->start[u + 1]; m++) {
            tgd_node v = units->members[m];
            CHECK_INT(units->unit_of[v], u);
            seen++;
            for (uint32_t k = 0; k < graph->nodes[v].n_edges; k++) {
                tgd_node to = graph->edges[graph->nodes[v].first_edge + k].to;
                CHECK(to == TGD_NONE || units->unit_of[to] == TGD_NONE || units->unit_of[to] >= u);
            }
        }
        CHECK(units->module[u] < units->n_modules);
    }
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        bool leaf = tgd_graph_type(graph, v)->kind == TGD_NODE_ACCUMULATE_GRAD;
        CHECK(leaf || units->unit_of[v] < units->n);
        seen += units->unit_of[v] == TGD_NONE;
    }
    CHECK_INT(seen, graph->n_nodes);
}

/* What holds of every fold, whatever the graph and the budget. */
static void check_fold(const tgd_fold *fold)
{
    const tgd_units *units = fold->units;
    const tgd_graph *graph = &units->report->graph;
    uint32_t next = 0;
    CHECK(fold->n_boxes <= TGD_FOLD_BOXES);
    for (uint32_t b = 0; b < fold->n_boxes; b++) {
        const tgd_fold_box *box = &fold->boxes[b];
        CHECK_INT(box->first_unit, next);
        CHECK(box->n_units > 0);
        CHECK((box->form == TGD_FOLD_ONE) == (box->n_units == 1));
        CHECK(box->copies == 1 || (box->form == TGD_FOLD_REPEAT && box->n_units % box->copies == 0));
        CHECK(title_of(fold, b)[0] != '\0');
        next += box->n_units;
    }
    CHECK_INT(next, units->n);
    for (uint32_t e = 0; e < fold->n_edges; e++) {
        CHECK(fold->edges[e].from < fold->edges[e].to && fold->edges[e].to < fold->n_boxes);
        CHECK(fold->edges[e].count > 0);
    }
    CHECK(fold->n_edges <= 2 * fold->n_boxes + 8 || fold->n_hidden_edges > 0);
    for (tgd_node v = 0; v < graph->n_nodes && units->n <= 3000; v++) {
        for (uint32_t k = 0; k < graph->nodes[v].n_edges && units->unit_of[v] != TGD_NONE; k++) {
            tgd_node to = graph->edges[graph->nodes[v].first_edge + k].to;
            uint32_t unit = to == TGD_NONE ? TGD_NONE : units->unit_of[to];
            if (unit != TGD_NONE) {
                CHECK(leads(fold, box_with(fold, units->unit_of[v]), box_with(fold, unit)));
            }
        }
    }
    uint32_t last_frame = TGD_NONE;
    uint32_t framed = 0;
    for (uint32_t b = 0; b < fold->n_boxes; b++) {
        uint32_t frame = fold->boxes[b].frame;
        if (frame != TGD_NONE) {
            CHECK(frame < fold->n_frames && (last_frame == TGD_NONE || frame >= last_frame));
            CHECK(b >= fold->frames[frame].first_box);
            CHECK(b < fold->frames[frame].first_box + fold->frames[frame].n_boxes);
            last_frame = frame;
            framed++;
        }
    }
    uint32_t in_frames = 0;
    for (uint32_t f = 0; f < fold->n_frames; f++) {
        in_frames += fold->frames[f].n_boxes;
    }
    CHECK_INT(in_frames, framed);
}

static void fold_all_budgets(const tgd_report *report)
{
    static const uint32_t budgets[] = {1, 2, 5, 12, 32, 48, 1000};
    tgd_units units;
    tgd_error err;
    CHECK_INT(tgd_units_make(&units, report, &err), TGD_OK);
    check_units(&units);
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        tgd_fold fold;
        CHECK_INT(tgd_fold_make(&fold, &units, budgets[i], &err), TGD_OK);
        check_fold(&fold);
        CHECK(report->n_findings > 0 || fold.n_boxes <= budgets[i] + 12);
        tgd_fold_clear(&fold);
    }
    tgd_units_clear(&units);
}

static void small_graphs_are_shown_whole(void)
{
    static model m;
    model_residual(&m, 3, -1);
    tgd_report *report = model_report(&m);
    tgd_units units;
    tgd_fold fold;
    CHECK_INT(tgd_units_make(&units, report, NULL), TGD_OK);
    CHECK_INT(tgd_fold_make(&fold, &units, 32, NULL), TGD_OK);
    check_fold(&fold);
    CHECK_INT(fold.n_boxes, units.n);
    CHECK_INT(units.n, 3 * 4 + 3); /* the view stands with the head */
    CHECK_STR(title_of(&fold, 0), "Mean");
    CHECK_STR(title_of(&fold, 1), "head");
    CHECK_STR(title_of(&fold, 2), "Add");
    CHECK_STR(title_of(&fold, 3), "conv2");
    CHECK_INT(fold.n_frames, 3);
    CHECK_INT(fold.frames[0].n_boxes, 4);
    CHECK_INT(fold.boxes[3].n_leaves, 1);
    CHECK_INT(fold.boxes[3].n_elements, 64);
    tgd_fold_clear(&fold);
    tgd_units_clear(&units);
    tgd_report_free(report);
    fake_reset();
}

static void repeated_blocks_fold(void)
{
    static model m;
    model_residual(&m, 40, -1);
    tgd_report *report = model_report(&m);
    tgd_units units;
    tgd_fold fold;
    CHECK_INT(tgd_units_make(&units, report, NULL), TGD_OK);
    CHECK_INT(tgd_fold_make(&fold, &units, 32, NULL), TGD_OK);
    check_fold(&fold);
    uint32_t repeats = 0;
    for (uint32_t b = 0; b < fold.n_boxes; b++) {
        if (fold.boxes[b].form == TGD_FOLD_REPEAT) {
            CHECK_INT(fold.boxes[b].copies, 38);
            CHECK(fold.boxes[b].identical);
            CHECK_STR(title_of(&fold, b), "layer.1 … 38");
            repeats++;
        }
    }
    CHECK_INT(repeats, 1); /* first and last block stand by themselves */
    tgd_fold_clear(&fold);
    tgd_units_clear(&units);
    tgd_report_free(report);
    fake_reset();
}

static void the_fault_stays_visible(void)
{
    static model m;
    for (int fault = 0; fault < 40; fault += 13) {
        model_residual(&m, 40, fault);
        tgd_report *report = model_report(&m);
        tgd_units units;
        CHECK_INT(tgd_units_make(&units, report, NULL), TGD_OK);
        CHECK_INT(report->n_errors, 1);
        uint32_t unit = units.unit_of[report->findings[0].node];
        for (uint32_t budget = 1; budget < 40; budget += 6) {
            tgd_fold fold;
            CHECK_INT(tgd_fold_make(&fold, &units, budget, NULL), TGD_OK);
            check_fold(&fold);
            uint32_t at = box_with(&fold, unit);
            CHECK_INT(fold.boxes[at].form, TGD_FOLD_ONE);
            CHECK_INT(fold.boxes[at].state, TGD_FOLD_RAISES);
            CHECK_INT(fold.boxes[at].n_marks, 1);
            CHECK_INT(fold.boxes[at].marks[0], 1);
            CHECK_INT(fold.boxes[at - 1].form, TGD_FOLD_ONE); /* and so do the ops beside it */
            CHECK_INT(fold.boxes[at + 1].form, TGD_FOLD_ONE);
            CHECK_INT(fold.boxes[0].state, TGD_FOLD_RUNS);
            CHECK_INT(fold.boxes[fold.n_boxes - 1].state, TGD_FOLD_NEVER);
            tgd_fold_clear(&fold);
        }
        tgd_units_clear(&units);
        tgd_report_free(report);
        fake_reset();
    }
}

static void long_chains_fold_to_one_repeat(void)
{
    static model m;
    size_t n = check_quick() ? 20000 : 1000000;
    model_chain(&m, n);
    tgd_report *report = model_report(&m);
    clock_t start = clock();
    tgd_units units;
    tgd_fold fold;
    CHECK_INT(tgd_units_make(&units, report, NULL), TGD_OK);
    CHECK_INT(tgd_fold_make(&fold, &units, 32, NULL), TGD_OK);
    CHECK((double)(clock() - start) / CLOCKS_PER_SEC < 20);
    check_fold(&fold);
    CHECK(fold.n_boxes < 12);
    uint32_t most = 0;
    for (uint32_t b = 0; b < fold.n_boxes; b++) {
        most = fold.boxes[b].copies > most ? fold.boxes[b].copies : most;
    }
    CHECK(most > n / 2 - 8);
    tgd_fold_clear(&fold);
    tgd_units_clear(&units);
    tgd_report_free(report);
    fake_reset();
}

static void wide_graphs_fold(void)
{
    static model m;
    model_star(&m, check_quick() ? 500 : 20000);
    tgd_report *report = model_report(&m);
    fold_all_budgets(report);
    tgd_report_free(report);
    fake_reset();
}

static void any_graph_folds(void)
{
    static model m;
    for (uint64_t seed = 1; seed <= (check_quick() ? 4 : 60); seed++) {
        model_random(&m, 3 + seed * seed % 700, seed, seed % 2 == 0);
        tgd_report *report = model_report(&m);
        fold_all_budgets(report);
        tgd_report_free(report);
        fake_reset();
    }
}

static void odd_names_make_no_trouble(void)
{
    static const char *const names[] = {"", ".", "..", "a.", ".a", "a..b", "0", "0.0", "1.2.3.4", "x.0.1.w", "w",
                                        "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w.x.y.z.1.2", "\xff\xfe.w",
                                        "a b\n.c"};
    static model m;
    m.n_parameters = 0;
    tgd_torch_tensor *x = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        x = model_op("MulBackward0", x, model_parameter(&m, names[i], 2), FAKE_SIZES(2, 2));
    }
    m.loss = model_op("SumBackward0", x, NULL, FAKE_SCALAR);
    tgd_report *report = model_report(&m);
    fold_all_budgets(report);
    tgd_report_free(report);
    fake_reset();
}

static void nothing_to_fold(void)
{
    tgd_report *report = probe(fake_tensor(FAKE_SCALAR));
    fold_all_budgets(report);
    tgd_report_free(report);
    fake_reset();
}

CHECK_MAIN(TEST(small_graphs_are_shown_whole), TEST(repeated_blocks_fold), TEST(the_fault_stays_visible),
           TEST(long_chains_fold_to_one_repeat), TEST(wide_graphs_fold), TEST(any_graph_folds),
           TEST(odd_names_make_no_trouble), TEST(nothing_to_fold))
