/*
 * When each node ran, as a Chrome trace (Trace Event Format, JSON object form): a process for the host with a lane for
 * each thread, one for each device with a lane for each stream, and arrows along the critical path. Times are
 * microseconds with three decimals, from the call of backward.
 */
#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { HOST = 1, FIRST_DEVICE = 2 }; /* processes */

typedef struct lanes {
    struct lane {
        int device; /* -1: the host */
        uint64_t id; /* of the thread or stream */
    } *rows; /* Owned */
    uint32_t n, capacity;
} lanes;

typedef struct trace {
    tgd_text text;
    const tgd_report *report;
    const tgd_measures *measures;
    lanes lanes;
    bool first;
} trace;

static void event(trace *t, const char *phase)
{
    tgd_text_printf(&t->text, "%s\n{\"ph\": \"%s\"", t->first ? "" : ",", phase);
    t->first = false;
}

static void lane(trace *t, int device, uint64_t id)
{
    uint32_t i = 0;
    while (i < t->lanes.n && (t->lanes.rows[i].device != device || t->lanes.rows[i].id != id)) {
        i++;
    }
    tgd_text_printf(&t->text, ", \"pid\": %d, \"tid\": %lu", device < 0 ? HOST : FIRST_DEVICE + device,
                    (unsigned long)i + 1);
}

static void microseconds(trace *t, const char *name, uint64_t ns)
{
    tgd_text_printf(&t->text, ", \"%s\": %llu.%03llu", name, (unsigned long long)(ns / 1000),
                    (unsigned long long)(ns % 1000));
}

/* From the call of backward; 0 for what a device shows before it. */
static uint64_t since(const trace *t, uint64_t time)
{
    return time > t->measures->began ? time - t->measures->began : 0;
}

/* ---- lanes ---- */

static bool add_lane(lanes *l, int device, uint64_t id)
{
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->rows[i].device == device && l->rows[i].id == id) {
            return true;
        }
    }
    struct lane *rows = tgd_grow(l->rows, &l->capacity, (size_t)l->n + 1, sizeof *rows);
    if (rows == NULL) {
        return false;
    }
    l->rows = rows;
    rows[l->n++] = (struct lane){device, id};
    return true;
}

static bool find_lanes(trace *t)
{
    bool enough = add_lane(&t->lanes, -1, t->measures->thread);
    for (uint32_t i = 0; i < t->measures->n_spans && enough; i++) {
        const tgd_span *span = &t->measures->spans[i];
        enough = add_lane(&t->lanes, -1, span->thread) &&
                 (!span->on_device.known || add_lane(&t->lanes, span->on_device.device, span->on_device.stream));
    }
    return enough;
}

static void name_lanes(trace *t)
{
    for (uint32_t i = 0; i < t->lanes.n; i++) {
        const struct lane *row = &t->lanes.rows[i];
        bool known = false;
        for (uint32_t k = 0; k < i; k++) {
            known = known || t->lanes.rows[k].device == row->device;
        }
        if (!known) {
            event(t, "M");
            tgd_text_printf(&t->text, ", \"name\": \"process_name\", \"pid\": %d, \"args\": {\"name\": ",
                            row->device < 0 ? HOST : FIRST_DEVICE + row->device);
            if (row->device < 0) {
                tgd_text_str(&t->text, "\"backward\"}}");
            } else {
                tgd_text_printf(&t->text, "\"device %d\"}}", row->device);
            }
        }
        event(t, "M");
        tgd_text_str(&t->text, ", \"name\": \"thread_name\"");
        lane(t, row->device, row->id);
        tgd_text_printf(&t->text, ", \"args\": {\"name\": \"%s %llu\"}}", row->device < 0 ? "thread" : "stream",
                        (unsigned long long)row->id);
    }
}

/* ---- nodes ---- */

static const tgd_source_row *source_of(const trace *t, const tgd_span *span)
{
    const uint32_t *where = t->report->node_where;
    return span->in_graph == TGD_NONE || where == NULL || where[span->in_graph] == TGD_NONE
               ? NULL
               : &t->report->sources[where[span->in_graph]];
}

static const char *parameter_of(const trace *t, const tgd_span *span)
{
    const uint32_t leaf = span->in_graph == TGD_NONE ? TGD_NONE : t->report->graph.nodes[span->in_graph].leaf;
    const uint32_t parameter = leaf == TGD_NONE ? TGD_NONE : t->report->leaf_parameter[leaf];
    return parameter == TGD_NONE ? NULL : t->report->parameters[parameter].name;
}

/* "AddmmBackward0 layers.0 (net.py:31)" */
static void title(trace *t, const tgd_span *span)
{
    const tgd_source_row *source = source_of(t, span);
    const char *place = parameter_of(t, span);
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    tgd_text_str(&words, span->name);
    place = place == NULL && source != NULL && source->module[0] != '\0' ? source->module : place;
    if (place != NULL) {
        tgd_text_str(&words, " ");
        tgd_text_str(&words, place);
    }
    if (source != NULL) {
        tgd_text_str(&words, " (");
        tgd_source_phrase(&words, source);
        tgd_text_str(&words, ")");
    }
    tgd_text_str(&t->text, ", \"name\": ");
    tgd_text_json(&t->text, tgd_text_words(&t->text, &words));
    tgd_text_drop(&words);
}

static void member(trace *t, const char *name, const char *value)
{
    if (value != NULL && value[0] != '\0') {
        tgd_text_printf(&t->text, ", \"%s\": ", name);
        tgd_text_json(&t->text, value);
    }
}

static void gradient_members(trace *t, const tgd_measure_row *row)
{
    const tgd_statistics *s = &row->gradient;
    if (!row->measured) {
        return;
    }
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"gradient norm", s->norm}, {"gradient rms", tgd_statistics_rms(s)},
                   {"gradient mean", tgd_statistics_mean(s)}, {"gradient absmax", s->absmax}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        tgd_text_printf(&t->text, ", \"%s\": ", numbers[i].name);
        tgd_text_real(&t->text, numbers[i].value);
    }
    tgd_text_printf(&t->text, ", \"gradient elements\": %llu, \"gradient zeros\": %llu, \"gradient nan\": %llu, "
                              "\"gradient inf\": %llu",
                    (unsigned long long)s->n, (unsigned long long)s->n_zero, (unsigned long long)s->n_nan,
                    (unsigned long long)s->n_inf);
}

static void arguments(trace *t, const tgd_span *span)
{
    const tgd_source_row *source = source_of(t, span);
    tgd_text_printf(&t->text, ", \"args\": {\"self us\": %llu.%03llu", (unsigned long long)(span->self_ns / 1000),
                    (unsigned long long)(span->self_ns % 1000));
    if (span->first_use) {
        tgd_text_str(&t->text, ", \"first use\": true");
    }
    if (span->threw) {
        tgd_text_str(&t->text, ", \"raised\": true");
    }
    member(t, "parameter", parameter_of(t, span));
    if (source != NULL) {
        member(t, "module", source->module);
        member(t, "file", source->file);
        tgd_text_printf(&t->text, ", \"line\": %d", source->line);
        member(t, "function", source->function);
    }
    if (span->in_graph != TGD_NONE) {
        tgd_text_printf(&t->text, ", \"node\": %lu", (unsigned long)span->in_graph);
        gradient_members(t, &t->measures->nodes[span->in_graph]);
    }
    if (span->on_device.known) {
        microseconds(t, "queued us", span->on_device.queued);
        microseconds(t, "uncertainty us", span->on_device.uncertainty);
    }
    tgd_text_str(&t->text, "}}");
}

static void slices(trace *t, const tgd_span *span)
{
    event(t, "X");
    title(t, span);
    tgd_text_str(&t->text, ", \"cat\": \"node\"");
    lane(t, -1, span->thread);
    microseconds(t, "ts", since(t, span->began));
    microseconds(t, "dur", span->ended - span->began);
    arguments(t, span);
    if (span->on_device.known) {
        event(t, "X");
        title(t, span);
        tgd_text_str(&t->text, ", \"cat\": \"device\"");
        lane(t, span->on_device.device, span->on_device.stream);
        microseconds(t, "ts", since(t, span->on_device.began));
        microseconds(t, "dur", span->on_device.ended - span->on_device.began);
        arguments(t, span);
    }
}

/* ---- arrows ---- */

/* From the beginning of one node's slice, or to it: on its device where that is known. */
static void arrow_end(trace *t, const char *phase, uint32_t number, tgd_node v)
{
    const tgd_span *span = &t->measures->spans[t->measures->nodes[v].span];
    const tgd_device_time *device = &span->on_device;
    event(t, phase);
    tgd_text_printf(&t->text, ", \"name\": \"critical path\", \"cat\": \"critical path\", \"id\": %lu",
                    (unsigned long)number);
    if (phase[0] == 'f') {
        tgd_text_str(&t->text, ", \"bp\": \"e\"");
    }
    lane(t, device->known ? device->device : -1, device->known ? device->stream : span->thread);
    microseconds(t, "ts", since(t, device->known ? device->began : span->began));
    tgd_text_str(&t->text, "}");
}

static tgd_status arrows(trace *t, tgd_error *err)
{
    tgd_node *path;
    uint32_t n;
    tgd_status status = tgd_measures_critical_path(t->report, &path, &n, err);
    for (uint32_t i = 0; status == TGD_OK && i + 1 < n; i++) {
        arrow_end(t, "s", i + 1, path[i]);
        arrow_end(t, "f", i + 1, path[i + 1]);
    }
    free(path);
    return status;
}

tgd_status tgd_chrome_trace_write(const tgd_report *report, tgd_sink sink, void *context, tgd_error *err)
{
    if (report->measures == NULL) {
        return tgd_fail(err, TGD_EINVAL, "this report has no timeline: it is of a backward inside torchgraphdbg.record(), "
                                         "asked for by rec.report() after that backward");
    }
    trace t = {.report = report, .measures = report->measures, .first = true};
    if (!find_lanes(&t)) {
        free(t.lanes.rows);
        return tgd_fail_memory(err);
    }
    tgd_text_init(&t.text, sink, context);
    tgd_text_str(&t.text, "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"verdict\": ");
    tgd_text_json(&t.text, report->verdict);
    tgd_text_str(&t.text, "}, \"traceEvents\": [");
    name_lanes(&t);
    event(&t, "X");
    tgd_text_str(&t.text, ", \"name\": \"backward\", \"cat\": \"backward\"");
    lane(&t, -1, t.measures->thread);
    microseconds(&t, "ts", 0);
    microseconds(&t, "dur", t.measures->ended - t.measures->began);
    tgd_text_str(&t.text, "}");
    for (uint32_t i = 0; i < t.measures->n_spans; i++) {
        slices(&t, &t.measures->spans[i]);
    }
    tgd_status status = arrows(&t, err);
    tgd_text_str(&t.text, "\n]}\n");
    free(t.lanes.rows);
    if (status != TGD_OK) {
        tgd_text_drop(&t.text);
        return status;
    }
    return tgd_text_finish(&t.text, err);
}
