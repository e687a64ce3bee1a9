/* What boxes, modules and leaves are called. */
#include "fold.h"

#include <string.h>

size_t tgd_fold_op_length(const char *name)
{
    size_t n = strlen(name);
    size_t end = n;
    while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9') {
        end--;
    }
    end -= end > 9 && name[end - 1] == 's'; /* CopyBackwards */
    return end > 8 && memcmp(name + end - 8, "Backward", 8) == 0 ? end - 8 : n;
}

void tgd_fold_op(tgd_text *text, const tgd_report *report, tgd_node v)
{
    const tgd_graph *graph = &report->graph;
    const tgd_node_row *row = &graph->nodes[v];
    const char *name = graph->types[row->inner_type != TGD_NONE ? row->inner_type : row->type].name;
    size_t n = tgd_fold_op_length(name);
    tgd_text_bytes(text, name, n);
    if (row->inner_type != TGD_NONE) {
        tgd_text_str(text, " in place");
    }
}

void tgd_fold_shape(tgd_text *text, const tgd_graph *graph, uint32_t shape)
{
    int n;
    const int64_t *sizes = tgd_graph_shape(graph, shape, &n);
    if (n == 0) {
        tgd_text_str(text, "scalar");
    }
    for (int i = 0; i < n && i < 8; i++) {
        if (i > 0) {
            tgd_text_str(text, "×");
        }
        if (sizes[i] < 0) {
            tgd_text_str(text, "?");
        } else {
            tgd_text_printf(text, "%lld", (long long)sizes[i]);
        }
    }
    if (n > 8) {
        tgd_text_str(text, "×…");
    }
}

void tgd_fold_leaf(tgd_text *text, const tgd_units *units, uint32_t leaf)
{
    uint32_t parameter = units->report->leaf_parameter[leaf];
    if (parameter != TGD_NONE) {
        const char *name = units->report->parameters[parameter].name;
        const char *dot = strrchr(name, '.');
        tgd_text_str(text, dot != NULL && dot[1] != '\0' ? dot + 1 : name);
        return;
    }
    tgd_text_str(text, "leaf ");
    tgd_fold_shape(text, &units->report->graph, units->report->graph.leaves[leaf].shape);
}

void tgd_module_path(tgd_text *text, const tgd_units *units, uint32_t module)
{
    tgd_text_bytes(text, units->modules[module].name, units->modules[module].length);
}

/* The path of a module without that of the frame around it. */
static void relative_path(tgd_text *text, const tgd_units *units, uint32_t module, uint32_t frame_module)
{
    const tgd_module_row *row = &units->modules[module];
    uint32_t skip = 0;
    if (frame_module != TGD_NONE && frame_module != module) {
        uint32_t length = units->modules[frame_module].length;
        bool inside = row->length > length && memcmp(row->name, units->modules[frame_module].name, length) == 0;
        skip = inside && length > 0 ? length + 1 : 0;
    }
    tgd_text_bytes(text, row->name + skip, row->length - skip);
}

/* The path of a module; "4" of "layer3.4" next to "layer3.2". */
static void last_part(tgd_text *text, const tgd_units *units, uint32_t module, uint32_t other, uint32_t frame_module)
{
    const tgd_module_row *row = &units->modules[module];
    const tgd_module_row *with = &units->modules[other];
    uint32_t from = row->length;
    while (from > 0 && row->name[from - 1] >= '0' && row->name[from - 1] <= '9') {
        from--;
    }
    if (from > 0 && from < row->length && row->name[from - 1] == '.' && with->length >= from &&
        memcmp(row->name, with->name, from) == 0) {
        tgd_text_bytes(text, row->name + from, row->length - from);
    } else {
        relative_path(text, units, module, frame_module);
    }
}

/* A unit by its module where it is the only thing in it, else by its op. */
static void unit_title(tgd_text *text, const tgd_fold *fold, uint32_t unit, uint32_t context, uint32_t frame_module)
{
    const tgd_units *units = fold->units;
    uint32_t module = units->module[unit];
    if (units->named[unit] && module != context && tgd_module_below(units, context, module) != TGD_NONE) {
        size_t before = text->n;
        relative_path(text, units, module, frame_module);
        bool number = true; /* "22" of a Sequential says little */
        for (size_t i = before; i < text->n && text->status == TGD_OK; i++) {
            number = number && ((text->bytes[i] >= '0' && text->bytes[i] <= '9') || text->bytes[i] == '.');
        }
        if (number) {
            tgd_text_str(text, ": ");
            tgd_fold_op(text, units->report, units->lead[unit]);
        }
    } else if (units->report->graph.nodes[units->lead[unit]].leaf != TGD_NONE) {
        tgd_fold_leaf(text, units, units->report->graph.nodes[units->lead[unit]].leaf);
    } else {
        tgd_fold_op(text, units->report, units->lead[unit]);
    }
}

/* One end of a run: the module that stands there, else the op. */
static void end_title(tgd_text *text, const tgd_fold *fold, uint32_t unit, uint32_t context, uint32_t frame_module)
{
    uint32_t below = tgd_module_below(fold->units, context, fold->units->module[unit]);
    if (below != TGD_NONE) {
        relative_path(text, fold->units, below, frame_module);
    } else {
        unit_title(text, fold, unit, context, frame_module);
    }
}

void tgd_fold_title(tgd_text *text, const tgd_fold *fold, uint32_t index)
{
    const tgd_units *units = fold->units;
    const tgd_fold_box *box = &fold->boxes[index];
    uint32_t frame = box->frame == TGD_NONE ? TGD_NONE : fold->frames[box->frame].module;
    uint32_t last = box->first_unit + box->n_units - 1;
    switch (box->form) {
    case TGD_FOLD_ONE:
        unit_title(text, fold, box->first_unit, box->context, frame);
        break;
    case TGD_FOLD_MODULE:
        relative_path(text, units, box->module, frame);
        break;
    case TGD_FOLD_REPEAT: {
        if (box->module != TGD_NONE && box->module != box->last_module) {
            relative_path(text, units, box->last_module, frame);
            tgd_text_str(text, " … ");
            last_part(text, units, box->module, box->last_module, frame);
            break;
        }
        uint32_t period = box->n_units / box->copies;
        unit_title(text, fold, box->first_unit, box->context, frame);
        if (period > 1) {
            tgd_text_str(text, period == 2 ? ", " : " … ");
            unit_title(text, fold, box->first_unit + period - 1, box->context, frame);
        }
        break;
    }
    case TGD_FOLD_RUN: {
        size_t before = text->n;
        end_title(text, fold, box->first_unit, box->context, frame);
        size_t length = text->n - before;
        tgd_text_str(text, " … ");
        size_t second = text->n;
        end_title(text, fold, last, box->context, frame);
        if (text->status == TGD_OK && text->n - second == length &&
            memcmp(text->bytes + before, text->bytes + second, length) == 0) {
            text->n = before + length; /* both ends are called the same */
        }
        break;
    }
    }
}
