/*
 * Where each unit belongs, as far as parameter names tell. A unit with parameters of its own belongs to their
 * module. One without belongs to the module of the op whose result it takes, as long as it keeps the size (an
 * activation, a residual add), else to what producer and consumer have in common.
 */
#include "fold.h"

#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 24 };

typedef struct trie {
    tgd_units *units;
    uint32_t *table; /* Owned, open addressing; TGD_NONE = free */
    uint32_t size;   /* a power of 2 */
} trie;

static uint64_t hash_bytes(const char *bytes, uint32_t n, uint32_t parent)
{
    uint64_t hash = 0xCBF29CE484222325u ^ parent;
    for (uint32_t i = 0; i < n; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    }
    return hash ^ (hash >> 31);
}

static uint32_t own_start(const tgd_module_row *modules, uint32_t module)
{
    uint32_t parent = modules[module].parent;
    return parent == TGD_NONE || modules[parent].length == 0 ? 0 : modules[parent].length + 1;
}

/* Slot of the child of `parent` that is called name[from .. to), or of where it would stand. */
static uint32_t *slot(const trie *t, uint32_t parent, const char *name, uint32_t from, uint32_t to)
{
    const tgd_module_row *modules = t->units->modules;
    for (uint64_t i = hash_bytes(name + from, to - from, parent);; i++) {
        uint32_t *at = &t->table[i & (t->size - 1)];
        if (*at == TGD_NONE) {
            return at;
        }
        const tgd_module_row *row = &modules[*at];
        uint32_t start = own_start(modules, *at);
        if (row->parent == parent && row->length - start == to - from &&
            memcmp(row->name + start, name + from, to - from) == 0) {
            return at;
        }
    }
}

static tgd_status grow_table(trie *t, tgd_error *err)
{
    uint32_t size = t->size == 0 ? 64 : t->size * 2;
    uint32_t *table = malloc(size * sizeof *table);
    if (table == NULL) {
        return tgd_fail_memory(err);
    }
    memset(table, 0xFF, size * sizeof *table);
    free(t->table);
    t->table = table;
    t->size = size;
    for (uint32_t m = 1; m < t->units->n_modules; m++) {
        const tgd_module_row *row = &t->units->modules[m];
        *slot(t, row->parent, row->name, own_start(t->units->modules, m), row->length) = m;
    }
    return TGD_OK;
}

static tgd_status add_module(tgd_units *units, tgd_module_row row, tgd_error *err)
{
    if (units->n_modules == units->module_capacity) {
        uint32_t capacity = units->module_capacity == 0 ? 64 : units->module_capacity * 2;
        tgd_module_row *modules = realloc(units->modules, capacity * sizeof *modules);
        if (modules == NULL) {
            return tgd_fail_memory(err);
        }
        units->modules = modules;
        units->module_capacity = capacity;
    }
    units->modules[units->n_modules++] = row;
    return TGD_OK;
}

static bool all_digits(const char *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') {
            return false;
        }
    }
    return n > 0;
}

/* The module of a parameter. A number goes with the word before it ("layer1.0"), so that a list of modules is no
   module of its own. */
static tgd_status module_of(trie *t, const char *name, uint32_t *out, tgd_error *err)
{
    uint32_t module = 0;
    uint32_t from = 0;
    uint32_t depth = 0;
    const char *last = strrchr(name, '.');
    size_t length = last == NULL ? 0 : (size_t)(last - name);
    while (from < length && depth < DEEPEST && length < UINT32_MAX) {
        const char *dot = memchr(name + from, '.', length - from);
        uint32_t to = dot == NULL ? (uint32_t)length : (uint32_t)(dot - name);
        if (dot != NULL && !all_digits(name + from, to - from)) {
            const char *next = memchr(dot + 1, '.', length - to - 1);
            uint32_t end = next == NULL ? (uint32_t)length : (uint32_t)(next - name);
            to = all_digits(dot + 1, end - to - 1) ? end : to;
        }
        if (2 * t->units->n_modules >= t->size) {
            tgd_status status = grow_table(t, err);
            if (status != TGD_OK) {
                return status;
            }
        }
        uint32_t *at = slot(t, module, name, from, to);
        if (*at == TGD_NONE) {
            tgd_module_row row = {.name = name, .length = to, .parent = module, .depth = depth + 1};
            tgd_status status = add_module(t->units, row, err);
            if (status != TGD_OK) {
                return status;
            }
            t->units->modules[module].n_children++;
            *at = t->units->n_modules - 1;
        }
        module = *at;
        from = to + 1;
        depth++;
    }
    *out = module;
    return TGD_OK;
}

/* module_of each leaf, TGD_NONE for one without a name */
static tgd_status name_leaves(tgd_units *units, uint32_t *leaf_module, tgd_error *err)
{
    const tgd_report *report = units->report;
    trie t = {.units = units};
    tgd_status status = add_module(units, (tgd_module_row){.name = "", .parent = TGD_NONE}, err);
    for (uint32_t leaf = 0; leaf < report->graph.n_leaves; leaf++) {
        uint32_t parameter = report->leaf_parameter[leaf];
        leaf_module[leaf] = TGD_NONE;
        if (parameter != TGD_NONE && status == TGD_OK) {
            status = module_of(&t, report->parameters[parameter].name, &leaf_module[leaf], err);
        }
    }
    free(t.table);
    return status;
}

static uint32_t common(const tgd_module_row *modules, uint32_t a, uint32_t b)
{
    if (a == TGD_NONE || b == TGD_NONE) {
        return a == TGD_NONE ? b : a;
    }
    while (a != b) {
        if (modules[a].depth >= modules[b].depth) {
            a = modules[a].parent;
        } else {
            b = modules[b].parent;
        }
    }
    return a;
}

static uint32_t around(const tgd_units *units, uint32_t unit)
{
    uint32_t module = units->module[unit];
    return units->named[unit] && units->modules[module].parent != TGD_NONE ? units->modules[module].parent : module;
}

/* Elements of the gradient that a unit receives; -1 where that cannot be told. */
static int64_t elements_of(const tgd_units *units, uint32_t unit)
{
    const tgd_graph *graph = &units->report->graph;
    const tgd_node_row *row = &graph->nodes[units->lead[unit]];
    int n;
    const int64_t *sizes =
        tgd_graph_shape(graph, row->n_inputs == 0 ? TGD_NONE : graph->inputs[row->first_input].shape, &n);
    int64_t elements = n < 0 ? -1 : 1;
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0 || (sizes[i] > 0 && elements > INT64_MAX / sizes[i])) {
            return -1;
        }
        elements *= sizes[i];
    }
    return elements;
}

uint32_t tgd_module_below(const tgd_units *units, uint32_t above, uint32_t module)
{
    uint32_t child = TGD_NONE;
    while (module != TGD_NONE && units->modules[module].depth > units->modules[above].depth) {
        child = module;
        module = units->modules[module].parent;
    }
    return module == above ? child : TGD_NONE;
}

/* consumer: per unit, the nearest unit before it that uses it, or TGD_NONE */
static tgd_status place_units(tgd_units *units, const uint32_t *consumer, const uint32_t *leaf_module, tgd_error *err)
{
    const tgd_graph *graph = &units->report->graph;
    uint32_t *producer = calloc(units->n == 0 ? 1 : units->n, sizeof *producer);
    uint32_t *user = calloc(units->n == 0 ? 1 : units->n, sizeof *user);
    if (producer == NULL || user == NULL) {
        free(producer);
        free(user);
        return tgd_fail_memory(err);
    }
    for (uint32_t u = units->n; u > 0; u--) {
        uint32_t unit = u - 1;
        uint32_t own = TGD_NONE;
        producer[unit] = TGD_NONE;
        for (uint32_t m = units->start[unit]; m < units->start[unit + 1]; m++) {
            const tgd_node_row *row = &graph->nodes[units->members[m]];
            for (uint32_t k = 0; k < row->n_edges; k++) {
                tgd_node to = graph->edges[row->first_edge + k].to;
                uint32_t w = to == TGD_NONE ? TGD_NONE : units->unit_of[to];
                if (w != TGD_NONE && w > unit && w < producer[unit]) {
                    producer[unit] = w;
                } else if (to != TGD_NONE && w == TGD_NONE && graph->nodes[to].leaf != TGD_NONE) {
                    own = common(units->modules, own, leaf_module[graph->nodes[to].leaf]);
                }
            }
        }
        units->named[unit] = own != TGD_NONE;
        units->module[unit] = own != TGD_NONE               ? own
                              : producer[unit] != TGD_NONE ? around(units, producer[unit])
                                                           : TGD_NONE;
    }
    /* forward again: what the consumers say. module[] still holds what the producers say. */
    for (uint32_t unit = 0; unit < units->n; unit++) {
        uint32_t used_by = consumer[unit];
        user[unit] = used_by == TGD_NONE ? TGD_NONE : units->named[used_by] ? around(units, used_by) : user[used_by];
    }
    for (uint32_t unit = 0; unit < units->n; unit++) {
        if (units->named[unit]) {
            continue;
        }
        uint32_t made_by = producer[unit];
        bool keeps_size = made_by != TGD_NONE && elements_of(units, unit) >= 0 &&
                          elements_of(units, unit) == elements_of(units, made_by);
        uint32_t module = units->module[unit];
        if (!keeps_size) {
            module = module == TGD_NONE ? user[unit] : common(units->modules, module, user[unit]);
        }
        units->module[unit] = module == TGD_NONE ? 0 : module;
    }
    free(producer);
    free(user);
    return TGD_OK;
}

tgd_status tgd_units_name(tgd_units *units, const uint32_t *consumer, tgd_error *err)
{
    uint32_t n_leaves = units->report->graph.n_leaves;
    uint32_t *leaf_module = calloc(n_leaves == 0 ? 1 : n_leaves, sizeof *leaf_module);
    if (leaf_module == NULL) {
        return tgd_fail_memory(err);
    }
    tgd_status status = name_leaves(units, leaf_module, err);
    if (status == TGD_OK) {
        status = place_units(units, consumer, leaf_module, err);
    }
    free(leaf_module);
    return status;
}
