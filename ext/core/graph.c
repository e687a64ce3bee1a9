#include "graph.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_numbers(const int64_t *numbers, size_t n)
{
    uint64_t hash = 0xCBF29CE484222325u ^ n; /* FNV-1a, eight bytes at a time */
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ (uint64_t)numbers[i]) * 0x100000001B3u;
        hash ^= hash >> 29;
    }
    return hash == 0 ? 1 : hash;
}

static bool same(const tgd_shapes *shapes, uint32_t s, const int64_t *numbers, size_t n)
{
    return shapes->at[s + 1] - shapes->at[s] == n &&
           (n == 0 || memcmp(shapes->numbers + shapes->at[s], numbers, n * sizeof *numbers) == 0);
}

tgd_status tgd_shapes_intern(tgd_shapes *shapes, const int64_t *numbers, int n, uint32_t *out, tgd_error *err)
{
    if (n < 0) {
        *out = TGD_NONE;
        return TGD_OK;
    }
    size_t count = (size_t)n;
    if (shapes->n > 0 && same(shapes, shapes->last, numbers, count)) {
        *out = shapes->last; /* neighbours mostly have the same sizes */
        return TGD_OK;
    }
    for (uint64_t key = hash_numbers(numbers, count);; key = key + 16 == 0 ? 1 : key + 16) {
        uint32_t *index = tgd_address_map_at(&shapes->seen, key);
        if (index == NULL) {
            return tgd_fail_memory(err);
        }
        if (*index != TGD_NONE) {
            if (same(shapes, *index, numbers, count)) {
                *out = shapes->last = *index;
                return TGD_OK;
            }
            continue; /* another list with this hash */
        }
        uint32_t *at = tgd_grow(shapes->at, &shapes->capacity, (size_t)shapes->n + 2, sizeof *at);
        if (at == NULL) {
            return tgd_fail_memory(err);
        }
        shapes->at = at;
        int64_t *room =
            tgd_grow(shapes->numbers, &shapes->number_capacity, shapes->n_numbers + count + 1, sizeof *room);
        if (room == NULL) {
            return tgd_fail_memory(err);
        }
        shapes->numbers = room;
        if (count > 0) {
            memcpy(room + shapes->n_numbers, numbers, count * sizeof *room);
        }
        at[shapes->n] = shapes->n_numbers;
        shapes->n_numbers += (uint32_t)count;
        at[shapes->n + 1] = shapes->n_numbers;
        *index = *out = shapes->n++;
        return TGD_OK;
    }
}

int64_t tgd_graph_numel(const tgd_graph *graph, uint32_t shape)
{
    int ndim;
    const int64_t *sizes = tgd_graph_shape(graph, shape, &ndim);
    if (ndim < 0) {
        return -1;
    }
    int64_t numel = 1;
    for (int i = 0; i < ndim; i++) {
        if (sizes[i] < 0 || (sizes[i] > 0 && numel > INT64_MAX / sizes[i])) {
            return -1;
        }
        numel *= sizes[i];
    }
    return numel;
}

void tgd_lookup_clear(tgd_lookup *lookup)
{
    tgd_address_map_clear(&lookup->nodes);
    tgd_address_map_clear(&lookup->storages);
    tgd_address_map_clear(&lookup->leaves);
    tgd_address_map_clear(&lookup->types);
}

static void *shrink(void *array, uint32_t n, uint32_t *capacity, size_t size)
{
    if (array == NULL || *capacity == n || n == 0) {
        return array;
    }
    void *smaller = realloc(array, (size_t)n * size);
    if (smaller == NULL) {
        return array; /* keeping the larger one is no fault */
    }
    *capacity = n;
    return smaller;
}

void tgd_graph_seal(tgd_graph *graph)
{
    tgd_address_map_clear(&graph->shapes.seen);
    graph->nodes = shrink(graph->nodes, graph->n_nodes, &graph->node_capacity, sizeof *graph->nodes);
    graph->edges = shrink(graph->edges, graph->n_edges, &graph->edge_capacity, sizeof *graph->edges);
    graph->inputs = shrink(graph->inputs, graph->n_inputs, &graph->input_capacity, sizeof *graph->inputs);
    graph->saved = shrink(graph->saved, graph->n_saved, &graph->saved_capacity, sizeof *graph->saved);
    graph->storages = shrink(graph->storages, graph->n_storages, &graph->storage_capacity, sizeof *graph->storages);
    graph->leaves = shrink(graph->leaves, graph->n_leaves, &graph->leaf_capacity, sizeof *graph->leaves);
    graph->marks = shrink(graph->marks, graph->n_marks, &graph->mark_capacity, sizeof *graph->marks);
    graph->origins = shrink(graph->origins, graph->origins == NULL ? 0 : graph->n_nodes, &graph->origin_capacity,
                            sizeof *graph->origins);
}

tgd_status tgd_graph_share(tgd_graph *out, const tgd_graph *graph, tgd_error *err)
{
    const tgd_shapes *from = &graph->shapes;
    tgd_shapes shapes = {.n = from->n, .n_numbers = from->n_numbers};
    shapes.capacity = from->n + 1;
    shapes.number_capacity = from->n_numbers + 1;
    shapes.at = malloc(shapes.capacity * sizeof *shapes.at);
    shapes.numbers = malloc(shapes.number_capacity * sizeof *shapes.numbers);
    if (shapes.at == NULL || shapes.numbers == NULL) {
        free(shapes.at);
        free(shapes.numbers);
        return tgd_fail_memory(err);
    }
    if (from->n > 0) {
        memcpy(shapes.at, from->at, ((size_t)from->n + 1) * sizeof *shapes.at);
    }
    if (from->n_numbers > 0) {
        memcpy(shapes.numbers, from->numbers, from->n_numbers * sizeof *shapes.numbers);
    }
    __atomic_add_fetch(graph->shares, 1, __ATOMIC_RELAXED);
    *out = *graph;
    out->shapes = shapes;
    return TGD_OK;
}

void tgd_graph_clear(tgd_graph *graph)
{
    free(graph->shapes.numbers);
    free(graph->shapes.at);
    tgd_address_map_clear(&graph->shapes.seen);
    if (graph->shares != NULL && __atomic_sub_fetch(graph->shares, 1, __ATOMIC_ACQ_REL) > 0) {
        *graph = (tgd_graph){0};
        return;
    }
    free(graph->shares);
    for (uint32_t i = 0; i < graph->n_strings; i++) {
        free(graph->strings[i]);
    }
    free(graph->strings);
    free(graph->nodes);
    free(graph->edges);
    free(graph->inputs);
    free(graph->saved);
    free(graph->storages);
    free(graph->leaves);
    free(graph->hooks);
    free(graph->types);
    free(graph->roots);
    free(graph->packed);
    free(graph->marks);
    free(graph->sums);
    free(graph->origins);
    *graph = (tgd_graph){0};
}

uint64_t tgd_graph_bytes(const tgd_graph *graph)
{
    return graph->node_capacity * sizeof *graph->nodes + graph->edge_capacity * sizeof *graph->edges +
           graph->input_capacity * sizeof *graph->inputs + graph->saved_capacity * sizeof *graph->saved +
           graph->storage_capacity * sizeof *graph->storages + graph->leaf_capacity * sizeof *graph->leaves +
           graph->hooks_capacity * sizeof *graph->hooks + graph->type_capacity * sizeof *graph->types +
           graph->n_roots * sizeof *graph->roots + graph->packed_capacity * sizeof *graph->packed +
           graph->mark_capacity * sizeof *graph->marks + graph->sum_capacity * sizeof *graph->sums +
           graph->string_capacity * sizeof *graph->strings +
           graph->shapes.capacity * sizeof *graph->shapes.at + graph->origin_capacity * sizeof *graph->origins +
           graph->shapes.number_capacity * sizeof *graph->shapes.numbers;
}
