/* The folded graph as a DOT document: what the picture shows, for whoever wants to lay it out another way. */
#include "boxes.h"
#include "documents.h"

#include <string.h>

enum { BUDGET = 40, LABEL_LENGTH = 200 };

/* s as the inside of a DOT string: one line, with dot's own escapes, and & so that it starts no entity. */
static void escaped(tgd_text *out, tgd_text *words)
{
    tgd_text line;
    tgd_text_init(&line, NULL, NULL);
    tgd_text_line(&line, tgd_text_words(out, words), LABEL_LENGTH);
    for (const char *s = tgd_text_words(out, &line); *s != '\0'; s++) {
        if (*s == '"' || *s == '\\') {
            tgd_text_str(out, "\\");
        }
        if (*s == '&') {
            tgd_text_str(out, "&amp;");
        } else {
            tgd_text_bytes(out, s, 1);
        }
    }
    tgd_text_drop(&line);
    tgd_text_drop(words);
}

static void write_box(tgd_text *out, const tgd_fold *fold, uint32_t index)
{
    const tgd_report *report = fold->units->report;
    const tgd_fold_box *box = &fold->boxes[index];
    const tgd_node_row *lead = &report->graph.nodes[box->lead];
    tgd_text words;
    tgd_text_printf(out, "    b%u [label=\"", index);
    tgd_text_init(&words, NULL, NULL);
    if (tgd_box_is_flagged(fold, index)) {
        tgd_node_phrase(&words, report, box->lead);
    } else {
        tgd_fold_title(&words, fold, index);
    }
    escaped(out, &words);
    if (box->form == TGD_FOLD_REPEAT) {
        tgd_text_str(out, " ×");
        tgd_text_count(out, box->copies);
    }
    if (box->form != TGD_FOLD_ONE) {
        tgd_text_str(out, "\\n");
        tgd_text_count(out, box->n_nodes);
        tgd_text_str(out, box->n_nodes == 1 ? " node" : " nodes");
    } else if (lead->n_inputs > 0) {
        tgd_text_str(out, "\\n");
        tgd_fold_shape(out, &report->graph, report->graph.inputs[lead->first_input].shape);
    }
    if (box->n_leaves > 0) {
        tgd_text_str(out, "\\n◆ ");
        if (box->n_leaves > 4) {
            tgd_text_count(out, box->n_leaves);
            tgd_text_str(out, " leaves");
        }
        for (uint32_t i = 0; i < box->n_leaves && box->n_leaves <= 4; i++) {
            tgd_text_str(out, i > 0 ? " " : "");
            tgd_text_init(&words, NULL, NULL);
            tgd_fold_leaf(&words, fold->units, box->leaves[i]);
            escaped(out, &words);
        }
    }
    if (box->finding != TGD_NONE) {
        tgd_text_printf(out, "\\n%u: ", fold->units->number[box->finding]);
        tgd_text_init(&words, NULL, NULL);
        tgd_finding_phrase(&words, report, box->finding);
        escaped(out, &words);
    }
    tgd_text_str(out, "\"");
    if (box->finding != TGD_NONE) {
        tgd_tone tone = tgd_tone_of((tgd_severity)report->findings[box->finding].severity);
        tgd_text_printf(out, ", color=\"%s\", fillcolor=\"%s\", penwidth=%d", tgd_colour_light(tone.stroke),
                        tgd_colour_light(tone.tint), box->state == TGD_FOLD_RAISES ? 3 : 2);
    } else if (box->state == TGD_FOLD_NEVER) {
        tgd_text_printf(out, ", fillcolor=\"%s\", fontcolor=\"%s\"", tgd_colour_light(TGD_COLOUR_FRAME),
                        tgd_colour_light(TGD_COLOUR_INK3));
    }
    if (box->form != TGD_FOLD_ONE) {
        tgd_text_str(out, ", peripheries=2");
    }
    tgd_text_str(out, "];\n");
}

static void write_frame(tgd_text *out, const tgd_fold *fold, uint32_t index)
{
    const tgd_fold_frame *frame = &fold->frames[index];
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    tgd_module_path(&words, fold->units, frame->module);
    tgd_text_printf(out, "    subgraph cluster_%u { label=\"", index);
    escaped(out, &words);
    tgd_text_printf(out, "\"; style=\"rounded,filled\"; color=\"%s\"; fillcolor=\"%s\";",
                    tgd_colour_light(TGD_COLOUR_LINE), tgd_colour_light(TGD_COLOUR_FRAME));
    for (uint32_t b = frame->first_box; b < frame->first_box + frame->n_boxes; b++) {
        tgd_text_printf(out, " b%u;", b);
    }
    tgd_text_str(out, " }\n");
}

static void write_fold(tgd_text *out, const tgd_fold *fold)
{
    const tgd_report *report = fold->units->report;
    tgd_text words;
    tgd_text_init(&words, NULL, NULL);
    tgd_text_str(&words, report->verdict);
    tgd_text_str(out, "digraph torchgraphdbg {\n    label=\"");
    escaped(out, &words);
    tgd_text_printf(out, "\";\n    labelloc=t;\n    rankdir=TB;\n    charset=\"UTF-8\";\n    bgcolor=\"%s\";\n",
                    tgd_colour_light(TGD_COLOUR_BG));
    tgd_text_printf(out, "    fontname=\"%s\";\n    node [shape=box, style=\"rounded,filled\", fillcolor=\"%s\", "
                         "color=\"%s\", fontcolor=\"%s\", fontname=\"%s\", fontsize=12];\n    edge [color=\"%s\"];\n",
                    tgd_style_gv_font, tgd_colour_light(TGD_COLOUR_NODE), tgd_colour_light(TGD_COLOUR_EDGE),
                    tgd_colour_light(TGD_COLOUR_INK), tgd_style_gv_font, tgd_colour_light(TGD_COLOUR_EDGE));
    for (uint32_t b = 0; b < fold->n_boxes; b++) {
        write_box(out, fold, b);
    }
    for (uint32_t f = 0; f < fold->n_frames; f++) {
        write_frame(out, fold, f);
    }
    for (uint32_t e = 0; e < fold->n_edges; e++) {
        tgd_text_printf(out, "    b%u -> b%u%s;\n", fold->edges[e].from, fold->edges[e].to,
                        fold->edges[e].folded ? " [style=dashed]" : "");
    }
    tgd_text_str(out, "}\n");
}

tgd_status tgd_gv_write(const tgd_report *report, const tgd_view *view, tgd_sink sink, void *context, tgd_error *err)
{
    tgd_units units;
    tgd_fold fold;
    tgd_status status = tgd_units_make(&units, report, err);
    if (status != TGD_OK) {
        return status;
    }
    status = tgd_units_view(&units, view, err);
    if (status == TGD_OK) {
        status = tgd_fold_make(&fold, &units, units.budget > 0 ? units.budget : BUDGET, err);
    }
    if (status == TGD_OK) {
        tgd_text out;
        tgd_text_init(&out, sink, context);
        write_fold(&out, &fold);
        tgd_fold_clear(&fold);
        status = tgd_text_finish(&out, err);
    }
    tgd_units_clear(&units);
    return status;
}
