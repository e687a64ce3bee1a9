/* What was measured, as a member of the report's JSON (README, "JSON"). Times are whole nanoseconds, those on the clock
   counted from the call of backward. */
#include "json_measures.h"

static void device_time(tgd_text *text, const tgd_device_time *time, uint64_t origin)
{
    if (!time->known) {
        tgd_text_str(text, "null");
        return;
    }
    tgd_text_printf(text, "{\"device\": %d, \"stream\": \"%llu\", \"began\": %lld, \"ended\": %lld, \"queued\": %llu, "
                          "\"uncertainty\": %llu}",
                    time->device, (unsigned long long)time->stream, (long long)(time->began - origin),
                    (long long)(time->ended - origin), (unsigned long long)time->queued,
                    (unsigned long long)time->uncertainty);
}

static void write_span(tgd_text *text, const tgd_measures *measures, uint32_t i)
{
    const tgd_span *span = &measures->spans[i];
    const tgd_measure_row *row = span->in_graph == TGD_NONE ? NULL : &measures->nodes[span->in_graph];
    tgd_text_str(text, i > 0 ? ",\n  {\"name\": " : "\n  {\"name\": ");
    tgd_text_json(text, span->name);
    tgd_text_str(text, ", \"node\": ");
    if (row == NULL) {
        tgd_text_str(text, "null");
    } else {
        tgd_text_printf(text, "%lu", (unsigned long)span->in_graph);
    }
    tgd_text_printf(text, ", \"thread\": %llu, \"depth\": %lu, \"began\": %llu, \"ended\": %llu, \"self\": %llu, "
                          "\"total\": %llu, \"after\": %llu, \"median\": %llu, \"repeats\": %lu, \"first_use\": %s, "
                          "\"raised\": %s, \"on_device\": ",
                    (unsigned long long)span->thread, (unsigned long)span->depth,
                    (unsigned long long)(span->began - measures->began),
                    (unsigned long long)(span->ended - measures->began), (unsigned long long)span->self_ns,
                    (unsigned long long)span->total_ns, (unsigned long long)span->after_ns,
                    (unsigned long long)(row == NULL ? 0 : row->median_self_ns),
                    (unsigned long)(row == NULL ? 0 : row->repeats), span->first_use ? "true" : "false",
                    span->threw ? "true" : "false");
    device_time(text, &span->on_device, measures->began);
    tgd_text_str(text, "}");
}

static void write_gradient(tgd_text *text, const tgd_gradient *gradient)
{
    const tgd_statistics *s = &gradient->values;
    if (!gradient->received && gradient->unchecked == NULL) {
        tgd_text_str(text, "null");
        return;
    }
    if (!gradient->measured) {
        tgd_text_printf(text, "{\"received\": %s, \"unchecked\": ", gradient->received ? "true" : "false");
        tgd_text_json(text, gradient->unchecked == NULL ? "" : gradient->unchecked);
        tgd_text_str(text, "}");
        return;
    }
    tgd_text_printf(text, "{\"elements\": %llu, \"nan\": %llu, \"inf\": %llu, \"zeros\": %llu, \"underflowed\": ",
                    (unsigned long long)s->n, (unsigned long long)s->n_nan, (unsigned long long)s->n_inf,
                    (unsigned long long)s->n_zero);
    if (gradient->coarse) {
        tgd_text_str(text, "null");
    } else {
        tgd_text_printf(text, "%llu", (unsigned long long)s->n_subnormal);
    }
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"norm", s->norm}, {"absmax", s->absmax}, {"absmin", s->absmin}, {"sum", s->sum},
                   {"sum_imaginary", s->sum_imaginary}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        tgd_text_printf(text, ", \"%s\": ", numbers[i].name);
        tgd_text_real(text, numbers[i].value);
    }
    tgd_text_str(text, "}");
}

void tgd_json_measures(tgd_text *text, const tgd_report *report)
{
    const tgd_measures *measures = report->measures;
    if (measures == NULL) {
        tgd_text_str(text, "null");
        return;
    }
    tgd_text_printf(text, "{\"duration\": %llu, \"ours\": %llu, \"thread\": %llu, \"dropped\": %llu, \"statistics\": %s, \"trouble\": ",
                    (unsigned long long)(measures->ended - measures->began), (unsigned long long)measures->ours,
                    (unsigned long long)measures->thread,
                    (unsigned long long)measures->dropped, measures->statistics ? "true" : "false");
    if (measures->trouble == NULL) {
        tgd_text_str(text, "null");
    } else {
        tgd_text_json(text, measures->trouble);
    }
    tgd_text_str(text, ",\n \"spans\": [");
    for (uint32_t i = 0; i < measures->n_spans; i++) {
        write_span(text, measures, i);
    }
    tgd_text_str(text, "],\n \"gradients\": [");
    for (uint32_t i = 0; i < measures->n_inputs; i++) {
        tgd_text_str(text, i > 0 ? ",\n  " : "\n  ");
        write_gradient(text, &measures->inputs[i]);
    }
    tgd_text_str(text, "]}");
}
