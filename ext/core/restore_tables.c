/* What a report from a file names by index: strings, places in the source, shapes, storages. */
#include "restore.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_NUMBERS = 128 /* of dtypes, device types and layouts: an int8_t holds them */ };

tgd_restorer *tgd_restore_new(void)
{
    tgd_restorer *r = calloc(1, sizeof *r);
    tgd_report *report = r == NULL ? NULL : calloc(1, sizeof *report);
    unsigned *shares = report == NULL ? NULL : malloc(sizeof *shares);
    if (shares == NULL) {
        free(report);
        free(r);
        return NULL;
    }
    *shares = 1;
    report->graph.shares = shares;
    report->lost_input = TGD_NONE;
    r->report = report;
    return r;
}

void tgd_restore_free(tgd_restorer *r)
{
    if (r == NULL) {
        return;
    }
    tgd_report_free(r->report);
    tgd_address_map_clear(&r->strings);
    tgd_address_map_clear(&r->types);
    tgd_address_map_clear(&r->storages);
    tgd_address_map_clear(&r->sources);
    tgd_address_map_clear(&r->parameters);
    free(r->source_keys);
    free(r);
}

/* ---- strings ---- */

static uint64_t hash_string(const char *s)
{
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a */
    for (; *s != '\0'; s++) {
        hash = (hash ^ (unsigned char)*s) * 0x100000001B3u;
    }
    hash ^= hash >> 31;
    return hash == 0 ? 1 : hash;
}

static char *copy_string(const char *s)
{
    size_t size = strlen(s) + 1;
    char *copy = malloc(size);
    if (copy != NULL) {
        memcpy(copy, s, size);
    }
    return copy;
}

tgd_status tgd_restore_string(tgd_restorer *r, const char *s, uint32_t *out, tgd_error *err)
{
    tgd_graph *graph = &r->report->graph;
    for (uint64_t key = hash_string(s);; key = key + 64 == 0 ? 1 : key + 64) {
        uint32_t *index = tgd_address_map_at(&r->strings, key);
        if (index == NULL) {
            return tgd_fail_memory(err);
        }
        if (*index != TGD_NONE) {
            if (strcmp(graph->strings[*index], s) == 0) {
                *out = *index;
                return TGD_OK;
            }
            continue; /* another string with this hash */
        }
        char **strings =
            tgd_grow(graph->strings, &graph->string_capacity, (size_t)graph->n_strings + 1, sizeof *strings);
        if (strings == NULL) {
            return tgd_fail_memory(err);
        }
        graph->strings = strings;
        strings[graph->n_strings] = copy_string(s);
        if (strings[graph->n_strings] == NULL) {
            return tgd_fail_memory(err);
        }
        *index = *out = graph->n_strings++;
        return TGD_OK;
    }
}

/* ---- places in the source ---- */

static bool same_source(const struct tgd_source_key *a, const struct tgd_source_key *b)
{
    return a->file == b->file && a->function == b->function && a->module == b->module &&
           a->module_class == b->module_class && a->line == b->line && a->caller == b->caller;
}

static tgd_status add_source(tgd_restorer *r, const tgd_restored_source *source, const struct tgd_source_key *key,
                             tgd_error *err)
{
    tgd_report *report = r->report;
    struct tgd_source_key *keys =
        tgd_grow(r->source_keys, &r->source_key_capacity, (size_t)report->n_sources + 1, sizeof *keys);
    if (keys == NULL) {
        return tgd_fail_memory(err);
    }
    r->source_keys = keys;
    tgd_source_row *rows =
        tgd_grow(report->sources, &report->source_capacity, (size_t)report->n_sources + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(err);
    }
    report->sources = rows;
    tgd_source_row row = {.file = copy_string(source->file), .function = copy_string(source->function),
                          .module = copy_string(source->module), .module_class = copy_string(source->module_class),
                          .line = source->line, .caller = key->caller};
    keys[report->n_sources] = *key;
    rows[report->n_sources++] = row;
    return row.file == NULL || row.function == NULL || row.module == NULL || row.module_class == NULL
               ? tgd_fail_memory(err)
               : TGD_OK;
}

/* Fills the key; *hash is where the table looks for it. */
static tgd_status key_of(tgd_restorer *r, const tgd_restored_source *source, struct tgd_source_key *key, uint64_t *hash,
                         tgd_error *err)
{
    *key = (struct tgd_source_key){.line = source->line,
                                   .caller = source->caller == TGD_NONE ? 0 : source->caller + 1};
    tgd_status status = tgd_restore_string(r, source->file, &key->file, err);
    if (status == TGD_OK) {
        status = tgd_restore_string(r, source->function, &key->function, err);
    }
    if (status == TGD_OK) {
        status = tgd_restore_string(r, source->module, &key->module, err);
    }
    if (status == TGD_OK) {
        status = tgd_restore_string(r, source->module_class, &key->module_class, err);
    }
    const uint64_t parts[] = {key->file,         key->function,       key->module,
                              key->module_class, (uint64_t)key->line, key->caller};
    *hash = 0xCBF29CE484222325u;
    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++) {
        *hash = (*hash ^ parts[k]) * 0x9E3779B97F4A7C15u;
        *hash ^= *hash >> 29;
    }
    *hash = *hash == 0 ? 1 : *hash;
    return status;
}

/* Where an equal source is in the table, or where it would stand: then the value is TGD_NONE. NULL: no memory. */
static uint32_t *look_up(tgd_restorer *r, const struct tgd_source_key *wanted, uint64_t hash)
{
    for (uint64_t key = hash;; key = key + 64 == 0 ? 1 : key + 64) {
        uint32_t *index = tgd_address_map_at(&r->sources, key);
        if (index == NULL || *index == TGD_NONE || same_source(&r->source_keys[*index], wanted)) {
            return index;
        }
    }
}

tgd_status tgd_restore_add_source(tgd_restorer *r, const tgd_restored_source *source, tgd_error *err)
{
    struct tgd_source_key key;
    uint64_t hash;
    tgd_status status = key_of(r, source, &key, &hash, err);
    uint32_t *index = status == TGD_OK ? look_up(r, &key, hash) : NULL;
    if (index == NULL) {
        return status == TGD_OK ? tgd_fail_memory(err) : status;
    }
    *index = *index == TGD_NONE ? r->report->n_sources : *index;
    return add_source(r, source, &key, err);
}

tgd_status tgd_restore_source(tgd_restorer *r, const tgd_restored_source *source, uint32_t *out, tgd_error *err)
{
    *out = TGD_NONE;
    if (source == NULL) {
        return TGD_OK;
    }
    struct tgd_source_key key;
    uint64_t hash;
    tgd_status status = key_of(r, source, &key, &hash, err);
    uint32_t *index = status == TGD_OK ? look_up(r, &key, hash) : NULL;
    if (index == NULL) {
        return status == TGD_OK ? tgd_fail_memory(err) : status;
    }
    if (*index == TGD_NONE) {
        return tgd_fail(err, TGD_EINVAL, "where: it is not among the sources");
    }
    *out = *index;
    return TGD_OK;
}

/* ---- tensors ---- */

typedef const char *(*name_of)(int number);

/* The number that has this name, -1 where this torch knows none. */
static int8_t number_of(name_of name, const char *wanted, size_t n)
{
    for (int i = 0; i < MOST_NUMBERS && n > 0; i++) {
        const char *known = name(i);
        if (strncmp(known, wanted, n) == 0 && known[n] == '\0') {
            return (int8_t)i;
        }
    }
    return -1;
}

tgd_status tgd_restore_tensor(tgd_restorer *r, const tgd_restored_tensor *tensor, tgd_tensor_row *out, tgd_error *err)
{
    tgd_shapes *shapes = &r->report->graph.shapes;
    *out = (tgd_tensor_row){.dtype = -1, .device_type = -1, .device_index = -1, .layout = -1};
    if (tensor->n_strides >= 0 && tensor->n_strides != tensor->n_sizes) {
        return tgd_fail(err, TGD_EINVAL, "shape and strides differ in length");
    }
    if (tensor->dtype != NULL) {
        out->dtype = number_of(tgd_torch_dtype_name, tensor->dtype, strlen(tensor->dtype));
    }
    if (tensor->layout != NULL) {
        out->layout = number_of(tgd_torch_layout_name, tensor->layout, strlen(tensor->layout));
    }
    if (tensor->device != NULL) {
        size_t n = strcspn(tensor->device, ":");
        out->device_type = number_of(tgd_torch_device_name, tensor->device, n);
        char *end = NULL;
        long index = tensor->device[n] == ':' ? strtol(tensor->device + n + 1, &end, 10) : -1;
        if ((end != NULL && (end == tensor->device + n + 1 || *end != '\0')) || index < -1 || index > INT8_MAX) {
            return tgd_fail(err, TGD_EINVAL, "device: expected a name like \"cuda:0\", got \"%.40s\"", tensor->device);
        }
        out->device_index = (int8_t)index;
    }
    tgd_status status = tgd_shapes_intern(shapes, tensor->sizes, tensor->n_sizes, &out->shape, err);
    return status == TGD_OK ? tgd_shapes_intern(shapes, tensor->strides, tensor->n_strides, &out->strides, err)
                            : status;
}

tgd_status tgd_restore_storage(tgd_restorer *r, uint64_t identity, uint64_t bytes, uint32_t *out, tgd_error *err)
{
    tgd_graph *graph = &r->report->graph;
    *out = TGD_NONE;
    if (identity == 0) {
        return TGD_OK;
    }
    uint32_t *index = tgd_address_map_at(&r->storages, identity);
    if (index == NULL) {
        return tgd_fail_memory(err);
    }
    if (*index != TGD_NONE) {
        *out = *index;
        return graph->storages[*index].bytes == bytes
                   ? TGD_OK
                   : tgd_fail(err, TGD_EINVAL, "storage_bytes: this storage has another size elsewhere in the file");
    }
    tgd_storage_row *rows =
        tgd_grow(graph->storages, &graph->storage_capacity, (size_t)graph->n_storages + 1, sizeof *rows);
    if (rows == NULL) {
        return tgd_fail_memory(err);
    }
    graph->storages = rows;
    rows[graph->n_storages] = (tgd_storage_row){.address = identity, .bytes = bytes, .leaf = TGD_NONE};
    *index = *out = graph->n_storages++;
    return TGD_OK;
}
