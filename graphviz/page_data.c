/* The data of the page as JSON: pictures and their boxes, findings, then as many nodes as there is room for. */
#include "page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 700, MOST_NAME = 160, MOST_OTHERS = 60, EACH_GROUP = 6, ROOM_FOR_OTHERS = 12000 };

/* ---- strings that are inert in HTML ---- */

/* Length of the character at s that must be escaped there, and its escape; 0: it need not be. In JSON these stand only
   inside strings. */
static size_t unsafe(const char *s, size_t n, const char **escape)
{
    switch (s[0]) {
    case '<':
        *escape = "\\u003c";
        return 1;
    case '>':
        *escape = "\\u003e";
        return 1;
    case '&':
        *escape = "\\u0026";
        return 1;
    default:
        break;
    }
    if (n >= 3 && memcmp(s, "\xe2\x80", 2) == 0 && (s[2] == '\xa8' || s[2] == '\xa9')) {
        *escape = s[2] == '\xa8' ? "\\u2028" : "\\u2029";
        return 3;
    }
    return 0;
}

size_t tgd_page_inert_length(const char *s, size_t n)
{
    const char *escape;
    size_t length = 0;
    for (size_t i = 0; i < n;) {
        size_t taken = unsafe(s + i, n - i, &escape);
        length += taken > 0 ? 6 : 1;
        i += taken > 0 ? taken : 1;
    }
    return length;
}

static void write_inert(tgd_text *out, const tgd_text *json)
{
    const char *escape;
    size_t from = 0;
    for (size_t i = 0; i < json->n;) {
        size_t taken = unsafe(json->bytes + i, json->n - i, &escape);
        if (taken > 0) {
            tgd_text_bytes(out, json->bytes + from, i - from);
            tgd_text_str(out, escape);
            from = i + taken;
        }
        i += taken > 0 ? taken : 1;
    }
    if (json->n > from) {
        tgd_text_bytes(out, json->bytes + from, json->n - from);
    }
}

/* ---- boxes ---- */

typedef void (*phrase)(tgd_text *text, const tgd_fold *fold, uint32_t box);

static void words_of(tgd_text *out, bool *first, const char *name, const tgd_fold *fold, uint32_t box, phrase write)
{
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    write(&words, fold, box);
    tgd_page_member(out, first, name, tgd_text_words(out, &words), MOST_NAME);
    tgd_text_drop(&words);
}

/* The module that a box is or stands in, as parameters' names tell it. */
static void module_words(tgd_text *text, const tgd_fold *fold, uint32_t box)
{
    const tgd_fold_box *row = &fold->boxes[box];
    uint32_t module = row->module != TGD_NONE ? row->module : fold->units->module[row->first_unit];
    if (row->form != TGD_FOLD_RUN && module != TGD_NONE) {
        tgd_module_path(text, fold->units, module);
    }
}

/* Time and gradients of what a fold holds. */
static void write_sums(tgd_text *out, const tgd_fold *fold, const tgd_fold_box *box)
{
    const tgd_units *units = fold->units;
    const tgd_measures *measures = units->report->measures;
    if (measures == NULL || box->form == TGD_FOLD_ONE) {
        return;
    }
    uint64_t time = 0;
    bool timed = false;
    double low = INFINITY;
    double high = 0;
    for (uint32_t m = units->start[box->first_unit]; m < units->start[box->first_unit + box->n_units]; m++) {
        tgd_node v = units->members[m];
        const tgd_measure_row *row = v < measures->n_nodes ? &measures->nodes[v] : NULL;
        if (row != NULL && row->timed) {
            timed = true;
            time += tgd_measure_own_ns(row);
        }
        if (row != NULL && row->measured) {
            double rms = tgd_statistics_rms(&row->gradient);
            low = fmin(low, rms);
            high = fmax(high, rms);
        }
    }
    if (timed) {
        tgd_text_printf(out, ",\"time\":%llu", (unsigned long long)time);
    }
    if (low <= high) {
        tgd_text_str(out, ",\"rms\":[");
        tgd_text_real(out, low);
        tgd_text_str(out, ",");
        tgd_text_real(out, high);
        tgd_text_str(out, "]");
    }
}

static void write_box(tgd_text *out, const tgd_page_picture *picture, uint32_t b)
{
    static const char *const forms[] = {"one", "module", "repeat", "run"};
    static const char *const states[] = {"runs", "raises", "never"};
    const tgd_fold_box *box = &picture->fold.boxes[b];
    bool first = true;
    tgd_text_str(out, b > 0 ? ",\n{" : "{");
    tgd_page_key(out, &first, "form");
    tgd_text_printf(out, "\"%s\",\"state\":\"%s\",\"units\":[%lu,%lu],\"nodes\":%lu,\"leaves\":%lu,\"elements\":%lld",
                    forms[box->form], states[box->state], (unsigned long)box->first_unit, (unsigned long)box->n_units,
                    (unsigned long)box->n_nodes, (unsigned long)box->n_leaves, (long long)box->n_elements);
    words_of(out, &first, "title", &picture->fold, b, tgd_fold_title);
    words_of(out, &first, "module", &picture->fold, b, module_words);
    if (box->form == TGD_FOLD_ONE) {
        tgd_text_printf(out, ",\"lead\":%lu", (unsigned long)box->lead);
    }
    if (box->copies > 1) {
        tgd_text_printf(out, ",\"copies\":%lu,\"identical\":%s", (unsigned long)box->copies,
                        box->identical ? "true" : "false");
    }
    if (picture->inside[b] != 0) {
        tgd_text_printf(out, ",\"inside\":%lu", (unsigned long)picture->inside[b]);
    }
    if (box->n_marks > 0) {
        tgd_text_str(out, ",\"marks\":[");
        for (uint32_t i = 0; i < box->n_marks; i++) {
            tgd_text_printf(out, "%s%lu", i > 0 ? "," : "", (unsigned long)box->marks[i]);
        }
        tgd_text_str(out, "]");
    }
    write_sums(out, &picture->fold, box);
    tgd_text_str(out, "}");
}

/* ---- findings ---- */

typedef void (*sentence)(tgd_text *text, const tgd_report *report, size_t finding);

static void write_sentence(tgd_text *out, bool *first, const char *name, const tgd_report *report, uint32_t i,
                           sentence write)
{
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    write(&words, report, i);
    tgd_page_member(out, first, name, tgd_text_words(out, &words), MOST_WORDS);
    tgd_text_drop(&words);
}

static void write_finding(tgd_text *out, tgd_page_data *data, uint32_t i)
{
    const tgd_units *units = data->page->units;
    const tgd_report *report = units->report;
    const tgd_finding_row *row = &report->findings[i];
    bool first = true;
    tgd_page_key(out, &first, "n");
    tgd_text_printf(out, "%lu", (unsigned long)units->number[i]);
    tgd_page_member(out, &first, "kind", tgd_finding_slug((tgd_finding_kind)row->kind), MOST_NAME);
    tgd_page_member(out, &first, "severity", tgd_severity_slug((tgd_severity)row->severity), MOST_NAME);
    tgd_page_member(out, &first, "statement", tgd_finding_statement((tgd_finding_kind)row->kind), MOST_NAME);
    write_sentence(out, &first, "message", report, i, tgd_message_write);
    write_sentence(out, &first, "hint", report, i, tgd_hint_write);
    if (row->node != TGD_NONE) {
        tgd_text_printf(out, ",\"node\":%lu", (unsigned long)row->node);
    }
    if (row->parameter != TGD_NONE) {
        tgd_page_member(out, &first, "parameter", report->parameters[row->parameter].name, MOST_NAME);
    }
    if (row->where != TGD_NONE) {
        tgd_text_printf(out, ",\"where\":%lu", (unsigned long)tgd_page_source(data, row->where));
        tgd_page_member(out, &first, "op", row->op, MOST_NAME);
    }
}

static tgd_status write_findings(tgd_text *out, tgd_page_data *data, tgd_error *err)
{
    const tgd_units *units = data->page->units;
    uint32_t *shown = calloc((size_t)units->n_numbers + 1, sizeof *shown);
    if (shown == NULL) {
        return tgd_fail_memory(err);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < units->report->n_findings && n < TGD_PAGE_FINDINGS; i++) {
        if (shown[units->number[i]]++ < EACH_GROUP) {
            tgd_text_str(out, n++ > 0 ? ",\n{" : "{");
            write_finding(out, data, i);
            tgd_text_str(out, "}");
        }
    }
    tgd_text_printf(out, "],\"n_findings\":%lu", (unsigned long)units->report->n_findings);
    free(shown);
    return TGD_OK;
}

/* ---- nodes ---- */

static void choose(tgd_page_data *data, tgd_node v)
{
    if (data->place[v] == 0 && data->n_chosen < TGD_PAGE_NODES) {
        data->chosen[data->n_chosen++] = v;
        data->place[v] = data->n_chosen;
    }
}

/* The nodes of a box and the leaves that they lead to. */
static void choose_box(tgd_page_data *data, const tgd_fold_box *box)
{
    const tgd_units *units = data->page->units;
    const tgd_graph *graph = &units->report->graph;
    for (uint32_t m = units->start[box->first_unit]; m < units->start[box->first_unit + box->n_units]; m++) {
        const tgd_node_row *row = &graph->nodes[units->members[m]];
        choose(data, units->members[m]);
        for (uint32_t k = 0; k < row->n_edges; k++) {
            tgd_node to = graph->edges[row->first_edge + k].to;
            if (to != TGD_NONE && units->unit_of[to] == TGD_NONE) {
                choose(data, to);
            }
        }
    }
}

static void choose_nodes(tgd_page_data *data)
{
    const tgd_page *page = data->page;
    const tgd_report *report = page->units->report;
    for (uint32_t i = 0; i < report->n_findings && i < TGD_PAGE_FINDINGS; i++) {
        if (report->findings[i].node != TGD_NONE) {
            choose(data, report->findings[i].node);
        }
    }
    for (uint32_t p = 0; p < page->n_pictures; p++) {
        for (uint32_t b = 0; b < page->pictures[p].fold.n_boxes; b++) {
            if (page->pictures[p].fold.boxes[b].form == TGD_FOLD_ONE) {
                choose_box(data, &page->pictures[p].fold.boxes[b]);
            }
        }
    }
}

/* Who leads to each chosen node: one look at every edge. */
static void find_before(tgd_page_data *data)
{
    const tgd_graph *graph = &data->page->units->report->graph;
    for (tgd_node v = 0; v < graph->n_nodes; v++) {
        const tgd_node_row *row = &graph->nodes[v];
        for (uint32_t k = 0; k < row->n_edges; k++) {
            tgd_node to = graph->edges[row->first_edge + k].to;
            if (to == TGD_NONE || data->place[to] == 0) {
                continue;
            }
            uint32_t at = data->place[to] - 1;
            if (data->n_before[at] < TGD_PAGE_NEIGHBOURS) {
                data->before[(size_t)at * TGD_PAGE_NEIGHBOURS + data->n_before[at]] = v;
            }
            data->n_before[at]++;
        }
    }
}

static size_t cost(const tgd_text *text, size_t from)
{
    return text->n > from ? tgd_page_inert_length(text->bytes + from, text->n - from) : 0;
}

/* Those that fit, in the order in which they were chosen; the rest are no longer chosen. */
static void write_nodes(tgd_text *out, tgd_page_data *data, size_t room)
{
    size_t used = 0;
    for (uint32_t i = 0; i < data->n_chosen && out->status == TGD_OK; i++) {
        size_t before = out->n;
        size_t sources = data->sources.n;
        tgd_text_str(out, i > 0 ? ",\n" : "");
        tgd_page_node_write(out, data, data->chosen[i]);
        used += cost(out, before) + cost(&data->sources, sources);
        if (used > room) {
            out->n = before;
            for (uint32_t k = i; k < data->n_chosen; k++) {
                data->place[data->chosen[k]] = 0;
            }
            data->n_chosen = i;
        }
    }
}

/* Names of nodes that lead to one that is told about, or follow it, and are not told about themselves. */
static void write_others(tgd_text *out, tgd_page_data *data, size_t room)
{
    const tgd_units *units = data->page->units;
    const tgd_graph *graph = &units->report->graph;
    bool first = true;
    size_t begin = out->n;
    for (uint32_t i = 0; i < data->n_chosen; i++) {
        const tgd_node_row *row = &graph->nodes[data->chosen[i]];
        for (uint32_t k = 0; k < 2 * TGD_PAGE_NEIGHBOURS; k++) {
            tgd_node v = TGD_NONE;
            if (k < TGD_PAGE_NEIGHBOURS) {
                v = k < row->n_edges ? graph->edges[row->first_edge + k].to : TGD_NONE;
            } else if (k - TGD_PAGE_NEIGHBOURS < data->n_before[i]) {
                v = data->before[(size_t)i * TGD_PAGE_NEIGHBOURS + k - TGD_PAGE_NEIGHBOURS];
            }
            if (v == TGD_NONE || data->place[v] != 0) {
                continue;
            }
            data->place[v] = UINT32_MAX; /* named */
            size_t before = out->n;
            bool was_first = first;
            tgd_text_printf(out, "%s\"%lu\":[", first ? "" : ",", (unsigned long)v);
            first = false;
            tgd_page_string(out, tgd_graph_type(graph, v)->name, MOST_OTHERS);
            if (units->unit_of[v] != TGD_NONE) {
                tgd_text_printf(out, ",%lu", (unsigned long)units->unit_of[v]);
            }
            tgd_text_str(out, "]");
            if (cost(out, begin) > room) {
                out->n = out->status == TGD_OK ? before : out->n;
                first = was_first;
                return;
            }
        }
    }
}

/* ---- all of it ---- */

static tgd_status allocate(tgd_page_data *data, tgd_error *err)
{
    const tgd_report *report = data->page->units->report;
    data->source_at = calloc((size_t)report->n_sources + 1, sizeof *data->source_at);
    data->place = calloc((size_t)report->graph.n_nodes + 1, sizeof *data->place);
    data->chosen = calloc(TGD_PAGE_NODES, sizeof *data->chosen);
    data->before = calloc((size_t)TGD_PAGE_NODES * TGD_PAGE_NEIGHBOURS, sizeof *data->before);
    data->n_before = calloc(TGD_PAGE_NODES, sizeof *data->n_before);
    bool ok = data->source_at != NULL && data->place != NULL && data->chosen != NULL && data->before != NULL &&
              data->n_before != NULL;
    return ok ? TGD_OK : tgd_fail_memory(err);
}

static tgd_status write_all(tgd_text *json, tgd_page_data *data, size_t room, tgd_error *err)
{
    const tgd_page *page = data->page;
    const tgd_report *report = page->units->report;
    tgd_text_str(json, "{\"pictures\":[");
    for (uint32_t p = 0; p < page->n_pictures; p++) {
        const tgd_page_picture *picture = &page->pictures[p];
        tgd_text_printf(json, "%s{\"w\":%ld,\"h\":%ld,\"boxes\":[", p > 0 ? ",\n" : "", lround(picture->w),
                        lround(picture->h));
        for (uint32_t b = 0; b < picture->fold.n_boxes; b++) {
            write_box(json, picture, b);
        }
        tgd_text_str(json, "]}");
    }
    tgd_text_str(json, "],\n\"findings\":[");
    tgd_status status = write_findings(json, data, err);
    if (status != TGD_OK) {
        return status;
    }
    choose_nodes(data);
    find_before(data);
    tgd_text_str(json, ",\n\"nodes\":[");
    size_t used = cost(json, 0) + cost(&data->sources, 0) + ROOM_FOR_OTHERS + 400;
    write_nodes(json, data, room > used ? room - used : 0);
    tgd_text_str(json, "],\n\"others\":{");
    write_others(json, data, ROOM_FOR_OTHERS);
    tgd_text_str(json, "},\n\"sources\":[");
    if (data->sources.n > 0) {
        tgd_text_bytes(json, data->sources.bytes, data->sources.n);
    }
    tgd_text_printf(json, "],\n\"n_nodes\":%lu,\"n_units\":%lu,\"shut\":%lu,\"measured\":%s,\"recorded\":%s}",
                    (unsigned long)report->graph.n_nodes, (unsigned long)page->units->n, (unsigned long)page->n_shut,
                    report->measures != NULL ? "true" : "false", report->node_where != NULL ? "true" : "false");
    return json->status == TGD_OK && data->sources.status == TGD_OK ? TGD_OK : tgd_fail_memory(err);
}

tgd_status tgd_page_data_write(tgd_text *out, const tgd_page *page, size_t room, tgd_error *err)
{
    tgd_page_data data = {.page = page};
    tgd_text json;
    tgd_text_init(&json, NULL, NULL);
    tgd_text_init(&data.sources, NULL, NULL);
    tgd_status status = allocate(&data, err);
    if (status == TGD_OK) {
        status = write_all(&json, &data, room, err);
    }
    if (status == TGD_OK) {
        write_inert(out, &json);
    }
    tgd_text_drop(&json);
    tgd_text_drop(&data.sources);
    free(data.source_at);
    free(data.place);
    free(data.chosen);
    free(data.before);
    free(data.n_before);
    return status;
}
