/* The simulated backward, against a second, slower telling of the engine's rules, on random graphs: the same nodes
   in the same order, ties included. */
#include "engine_queue.h"
#include "probe.h"

/* ---- random graphs ---- */

enum { MOST = 24 };

static uint64_t state = 1;

static uint32_t below(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 33) % n);
}

typedef struct random_graph {
    tgd_torch_node *nodes[MOST];     /* all of them, children before parents */
    tgd_torch_tensor *outputs[MOST]; /* a tensor whose gradient edge is that node */
    bool broken[MOST];
    uint32_t n;
    tgd_root roots[4];
    uint32_t root_nodes[4], n_roots;
    const tgd_torch_tensor *inputs[3];
    uint32_t n_inputs;
    bool has_inputs;
} random_graph;

static random_graph make_graph(uint32_t most)
{
    random_graph g = {.n = 2 + below(most - 1)};
    uint32_t n_leaves = 1 + below(3);
    bool ties = below(4) == 0;
    for (uint32_t v = 0; v < g.n; v++) {
        if (v < n_leaves) {
            g.outputs[v] = fake_leaf(FAKE_SIZES(2));
            g.nodes[v] = fake_leaf_node(g.outputs[v]);
            continue;
        }
        g.nodes[v] = fake_node("SomeBackward0");
        if (ties) {
            g.nodes[v]->sequence_nr = below(4); /* several threads number their nodes independently */
        } else if (below(8) == 0) {
            g.nodes[v]->sequence_nr = below(100);
        }
        uint32_t n_edges = below(4);
        for (uint32_t k = 0; k < n_edges; k++) {
            uint32_t to = below(3) == 0 ? v - 1 : below(v);
            fake_edge(g.nodes[v], k, below(6) == 0 ? NULL : g.nodes[to], below(2));
        }
        g.outputs[v] = fake_output(g.nodes[v], 0, FAKE_SCALAR);
        if (below(6) == 0) {
            g.broken[v] = true;
            tgd_torch_tensor *saved = fake_tensor(FAKE_SIZES(2));
            fake_save(g.nodes[v], "self", saved);
            fake_bump(saved);
        }
    }
    g.n_roots = below(3) == 0 ? 1 + below(4) : 1;
    for (uint32_t r = 0; r < g.n_roots; r++) {
        uint32_t v = r > 0 && below(3) == 0 ? g.root_nodes[0] : below(2) == 0 ? g.n - 1 : below(g.n);
        g.root_nodes[r] = v;
        g.roots[r] = below(2) == 0 ? (tgd_root){.tensor = g.outputs[v]} : (tgd_root){.node = g.nodes[v]};
    }
    g.has_inputs = below(3) == 0;
    if (g.has_inputs) {
        g.n_inputs = 1 + below(3);
        for (uint32_t i = 0; i < g.n_inputs; i++) {
            /* now and then one that this graph does not have */
            g.inputs[i] = below(8) == 0 ? fake_leaf(FAKE_SIZES(2)) : g.outputs[below(g.n)];
        }
    }
    return g;
}

/* ---- the engine, told slowly ---- */

typedef struct engine {
    uint32_t waiting[MOST]; /* edges not served yet, those from the roots included */
    bool seen[MOST], needed[MOST];
    uint32_t longest[MOST];
    uint32_t sequence[MOST], n; /* what ran */
} engine;

static uint32_t place_of(const random_graph *g, const tgd_torch_node *node)
{
    uint32_t v = 0;
    while (g->nodes[v] != node) {
        v++;
    }
    return v;
}

static void count_dependencies(const random_graph *g, engine *e, uint32_t v)
{
    if (e->seen[v]) {
        return;
    }
    e->seen[v] = true;
    for (uint32_t k = 0; k < g->nodes[v]->n_edges; k++) {
        if (g->nodes[v]->edges[k].to != NULL) {
            uint32_t to = place_of(g, g->nodes[v]->edges[k].to);
            e->waiting[to]++;
            count_dependencies(g, e, to);
        }
    }
}

static void find_needed(const random_graph *g, engine *e)
{
    for (uint32_t v = 0; v < g->n; v++) { /* children come first */
        e->needed[v] = !g->has_inputs;
        for (uint32_t i = 0; i < g->n_inputs; i++) {
            e->needed[v] = e->needed[v] || g->inputs[i] == g->outputs[v];
        }
        for (uint32_t k = 0; k < g->nodes[v]->n_edges; k++) {
            const tgd_torch_node *to = g->nodes[v]->edges[k].to;
            e->needed[v] = e->needed[v] || (to != NULL && e->needed[place_of(g, to)]);
        }
    }
}

static void serve(const random_graph *g, engine *e, uint32_t v)
{
    if (--e->waiting[v] == 0 && e->needed[v]) {
        engine_queue_push(v, g->nodes[v]->sequence_nr);
    }
}

static void backward(const random_graph *g, engine *e)
{
    *e = (engine){0};
    engine_queue_clear();
    for (uint32_t r = 0; r < g->n_roots; r++) { /* the root of roots has an edge to each */
        e->waiting[g->root_nodes[r]]++;
        count_dependencies(g, e, g->root_nodes[r]);
    }
    find_needed(g, e);
    for (uint32_t r = 0; r < g->n_roots; r++) {
        serve(g, e, g->root_nodes[r]);
    }
    uint32_t v;
    while (engine_queue_pop(&v)) {
        e->sequence[e->n++] = v;
        for (uint32_t k = 0; k < g->nodes[v]->n_edges; k++) {
            if (g->nodes[v]->edges[k].to != NULL) {
                serve(g, e, place_of(g, g->nodes[v]->edges[k].to));
            }
        }
    }
}

static uint32_t depth_of(const random_graph *g, engine *e, uint32_t v)
{
    if (e->longest[v] == 0) {
        uint32_t below_it = 0;
        for (uint32_t k = 0; k < g->nodes[v]->n_edges; k++) {
            if (g->nodes[v]->edges[k].to != NULL) {
                uint32_t depth = depth_of(g, e, place_of(g, g->nodes[v]->edges[k].to));
                below_it = depth > below_it ? depth : below_it;
            }
        }
        e->longest[v] = below_it + 1;
    }
    return e->longest[v];
}

/* ---- the comparison ---- */

static bool agrees(const random_graph *g)
{
    const tgd_request request = {.roots = g->roots,
                                 .n_roots = g->n_roots,
                                 .inputs = g->has_inputs ? g->inputs : NULL,
                                 .n_inputs = g->n_inputs};
    tgd_report *report = probe_request(&request);
    tgd_summary summary = probe_summary(report);
    engine e;
    backward(g, &e);

    uint32_t n_seen = 0, depth = 0;
    bool ok = true;
    for (uint32_t v = 0; v < g->n; v++) {
        n_seen += e.seen[v];
        ok &= CHECK((probe_row(report, g->nodes[v]) != TGD_NONE) == e.seen[v]);
    }
    ok &= CHECK_INT(summary.n_nodes, n_seen);
    ok &= CHECK_INT(summary.n_executed, e.n);
    size_t finding = 0, n_before_error = SIZE_MAX, n_ordered = 0;
    for (uint32_t i = 0; ok && i < e.n; i++) {
        uint32_t v = e.sequence[i];
        tgd_node row = probe_row(report, g->nodes[v]);
        ok &= CHECK_INT(probe_node(report, row).order, i);
        if (g->broken[v]) {
            n_before_error = n_before_error == SIZE_MAX ? i : n_before_error;
            tgd_finding_info info = {.kind = TGD_N_FINDING_KINDS};
            if (CHECK(finding < tgd_report_n_findings(report))) {
                tgd_report_finding(report, finding++, &info);
            }
            ok &= CHECK_INT(info.kind, TGD_MODIFIED_IN_PLACE) && CHECK_INT(info.severity, TGD_ERROR) &&
                  CHECK_INT(info.node, row) && CHECK_INT(info.saved, 0);
        }
    }
    for (size_t row = 0; row < summary.n_nodes; row++) {
        n_ordered += probe_node(report, (tgd_node)row).order != SIZE_MAX;
    }
    ok &= CHECK_INT(n_ordered, e.n);
    ok &= CHECK_INT(summary.n_executed_to_error, n_before_error == SIZE_MAX ? e.n : n_before_error);
    ok &= CHECK_INT(probe_count(report, TGD_MODIFIED_IN_PLACE), finding);
    for (uint32_t r = 0; r < g->n_roots; r++) {
        uint32_t here = depth_of(g, &e, g->root_nodes[r]);
        depth = here > depth ? here : depth;
        ok &= CHECK_INT(tgd_report_root(report, r), probe_row(report, g->nodes[g->root_nodes[r]]));
    }
    ok &= CHECK_INT(summary.depth, depth);
    tgd_report_free(report);
    return ok;
}

static void random_graphs(void)
{
    size_t n = check_quick() ? 300 : 20000, with_inputs = 0, with_errors = 0;
    for (size_t seed = 1; seed <= n; seed++) {
        state = seed * 0x9E3779B97F4A7C15u;
        random_graph g = make_graph(seed % 3 == 0 ? 6 : MOST);
        with_inputs += g.has_inputs;
        for (uint32_t v = 0; v < g.n; v++) {
            with_errors += g.broken[v];
        }
        bool ok = agrees(&g);
        fake_reset();
        if (!ok) {
            printf("    the graph of seed %zu\n", seed);
            break;
        }
    }
    printf("%zu random graphs, %zu with inputs, %zu broken nodes\n", n, with_inputs, with_errors);
}

/* ---- cases with a known answer ---- */

static size_t order_of(const tgd_report *report, const tgd_torch_node *node)
{
    return probe_node(report, probe_row(report, node)).order;
}

static void accumulate_grad_goes_first(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(2)), *b = fake_leaf(FAKE_SIZES(2));
    tgd_torch_node *old = fake_node("ExpBackward0");
    fake_edge(old, 0, fake_leaf_node(w), 0);
    tgd_torch_node *add = fake_node("AddBackward0");
    fake_edge(add, 0, old, 0);
    fake_edge(add, 1, fake_leaf_node(b), 0);
    tgd_report *report = probe(fake_output(add, 0, FAKE_SCALAR));
    CHECK_INT(order_of(report, add), 0);
    CHECK_INT(order_of(report, b->accumulator), 1);
    CHECK_INT(order_of(report, old), 2);
    CHECK_INT(order_of(report, w->accumulator), 3);
    tgd_report_free(report);
    fake_reset();
}

static void an_input_that_is_no_leaf_runs_its_own_node(void)
{
    /* z = sum(y), y = a * a, a = w * 1; backward(inputs=[y]) runs the nodes of z and y, and stops there. */
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(2));
    tgd_torch_node *a = fake_node("MulBackward0");
    fake_edge(a, 0, fake_leaf_node(w), 0);
    tgd_torch_node *mul = fake_node("MulBackward0");
    fake_edge(mul, 0, a, 0);
    fake_edge(mul, 1, a, 0);
    const tgd_torch_tensor *y = fake_output(mul, 0, FAKE_SIZES(2));
    tgd_torch_node *sum = fake_node("SumBackward0");
    fake_edge(sum, 0, mul, 0);
    tgd_torch_tensor *z = fake_output(sum, 0, FAKE_SCALAR);
    tgd_report *report = probe_request(
        &(tgd_request){.roots = &(tgd_root){.tensor = z}, .n_roots = 1, .inputs = &y, .n_inputs = 1});
    CHECK_INT(order_of(report, sum), 0);
    CHECK_INT(order_of(report, mul), 1);
    CHECK(order_of(report, a) == SIZE_MAX);
    CHECK(order_of(report, w->accumulator) == SIZE_MAX);
    CHECK_INT(probe_summary(report).n_executed, 2);
    CHECK_INT(probe_summary(report).n_nodes, 4);
    tgd_report_free(report);
    fake_reset();
}

static void no_input_of_this_graph(void)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(2)), *elsewhere = fake_leaf(FAKE_SIZES(2));
    tgd_torch_node *sum = fake_node("SumBackward0");
    fake_edge(sum, 0, fake_leaf_node(w), 0);
    tgd_torch_tensor *z = fake_output(sum, 0, FAKE_SCALAR), *saved = fake_tensor(FAKE_SIZES(2));
    fake_save(sum, "self", saved);
    fake_bump(saved); /* broken, and never run */
    const tgd_torch_tensor *inputs[] = {elsewhere};
    tgd_report *report = probe_request(
        &(tgd_request){.roots = &(tgd_root){.tensor = z}, .n_roots = 1, .inputs = inputs, .n_inputs = 1});
    CHECK_INT(probe_summary(report).n_executed, 0);
    CHECK_INT(probe_count(report, TGD_MODIFIED_IN_PLACE), 0);
    tgd_report_free(report);
    fake_reset();
}

CHECK_MAIN(TEST(accumulate_grad_goes_first), TEST(an_input_that_is_no_leaf_runs_its_own_node),
           TEST(no_input_of_this_graph), TEST(random_graphs))
