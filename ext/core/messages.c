/* Findings in words: what is so, with PyTorch's own numbers. */
#include "triage.h"
#include "words.h"

#include <string.h>

enum { NAME_LENGTH = 120, NEARBY_NODES = 256 };

void tgd_name_phrase(tgd_text *text, const char *s)
{
    tgd_text_line(text, s, NAME_LENGTH);
}

static void shape(tgd_text *text, const tgd_graph *graph, uint32_t list)
{
    int ndim;
    const int64_t *sizes = tgd_graph_shape(graph, list, &ndim);
    if (ndim < 0) {
        tgd_text_str(text, "of unknown shape");
        return;
    }
    tgd_text_str(text, "[");
    for (int i = 0; i < ndim; i++) {
        tgd_text_str(text, i > 0 ? ", " : "");
        if (sizes[i] < 0) {
            tgd_text_str(text, "?");
        } else {
            tgd_text_printf(text, "%lld", (long long)sizes[i]);
        }
    }
    tgd_text_str(text, "]");
}

void tgd_report_tensor_phrase(tgd_text *text, const tgd_graph *graph, int dtype, uint32_t list)
{
    const char *dtype_name = tgd_torch_dtype_name(dtype);
    tgd_text_str(text, dtype_name[0] != '\0' ? dtype_name : "tensor");
    tgd_text_str(text, " ");
    shape(text, graph, list);
}

void tgd_node_phrase(tgd_text *text, const tgd_report *report, tgd_node v)
{
    const tgd_graph *graph = &report->graph;
    const tgd_node_row *row = &graph->nodes[v];
    tgd_name_phrase(text, graph->types[row->type].name);
    if (row->inner_type != TGD_NONE) {
        tgd_text_str(text, " around ");
        tgd_name_phrase(text, graph->types[row->inner_type].name);
    }
    if (row->leaf != TGD_NONE && report->leaf_parameter[row->leaf] != TGD_NONE) {
        tgd_text_str(text, " of ");
        tgd_name_phrase(text, report->parameters[report->leaf_parameter[row->leaf]].name);
    }
}

/* "the result" / "saved_tensors[1]" */
void tgd_saved_name_phrase(tgd_text *text, const tgd_saved_row *saved)
{
    tgd_text_str(text, saved->name);
    if (saved->index >= 0) {
        tgd_text_printf(text, "[%ld]", (long)saved->index);
    }
}

const char *tgd_saved_parameter(const tgd_report *report, const tgd_saved_row *saved)
{
    uint32_t leaf = tgd_saved_leaf(&report->graph, saved);
    uint32_t parameter = leaf == TGD_NONE ? TGD_NONE : report->leaf_parameter[leaf];
    return parameter == TGD_NONE ? NULL : report->parameters[parameter].name;
}

/* "result (float32 [2, 3])", "mat2 (parameter fc.weight, float32 [4, 2])" */
static void saved_phrase(tgd_text *text, const tgd_report *report, const tgd_saved_row *saved)
{
    tgd_saved_name_phrase(text, saved);
    if (!(saved->tensor_flags & TGD_TENSOR_DEFINED)) {
        return;
    }
    tgd_text_str(text, " (");
    const char *parameter = tgd_saved_parameter(report, saved);
    uint32_t leaf = tgd_saved_leaf(&report->graph, saved);
    if (leaf != TGD_NONE) {
        bool whole = report->graph.leaves[leaf].tensor == saved->tensor;
        tgd_text_str(text, whole ? "" : "a view of ");
        tgd_text_str(text, parameter != NULL ? "parameter " : "a leaf that requires grad");
        tgd_name_phrase(text, parameter != NULL ? parameter : "");
        tgd_text_str(text, ", ");
    }
    tgd_report_tensor_phrase(text, &report->graph, saved->dtype, saved->shape);
    tgd_text_str(text, ")");
}

/* The parameter met first on the way down from a node: without source lines it says where in the model we are. */
static const char *nearby_parameter(const tgd_report *report, tgd_node v)
{
    const tgd_graph *graph = &report->graph;
    tgd_node queue[NEARBY_NODES];
    size_t n = 0;
    if (report->n_parameters == 0) {
        return NULL;
    }
    queue[n++] = v;
    for (size_t i = 0; i < n; i++) {
        const tgd_node_row *row = &graph->nodes[queue[i]];
        if (row->leaf != TGD_NONE && report->leaf_parameter[row->leaf] != TGD_NONE) {
            return report->parameters[report->leaf_parameter[row->leaf]].name;
        }
        for (uint32_t e = row->first_edge; e < row->first_edge + row->n_edges && n < NEARBY_NODES; e++) {
            if (graph->edges[e].to != TGD_NONE) {
                queue[n++] = graph->edges[e].to;
            }
        }
    }
    return NULL;
}

/* " (node 12, next to fc.weight)" */
static void place(tgd_text *text, const tgd_report *report, tgd_node v)
{
    tgd_text_printf(text, " (node %lu", (unsigned long)v);
    const char *nearby = report->graph.nodes[v].leaf == TGD_NONE ? nearby_parameter(report, v) : NULL;
    if (nearby != NULL) {
        tgd_text_str(text, ", next to ");
        tgd_name_phrase(text, nearby);
    }
    tgd_text_str(text, ")");
}

void tgd_root_phrase(tgd_text *text, const tgd_report *report, uint32_t r)
{
    tgd_text_str(text, "the root");
    if (report->graph.n_roots > 1) {
        tgd_text_printf(text, "s' element %lu", (unsigned long)r);
    }
}

static void root_tensor(tgd_text *text, const tgd_report *report, uint32_t r)
{
    const tgd_root_row *root = &report->graph.roots[r];
    tgd_text_str(text, " (");
    tgd_report_tensor_phrase(text, &report->graph, root->dtype, root->shape);
    tgd_text_str(text, ")");
}

static void sizes_of_storage(tgd_text *text, const tgd_graph *graph, const tgd_saved_row *saved)
{
    tgd_text_str(text, "its storage holds ");
    tgd_text_size(text, saved->storage == TGD_NONE ? 0 : graph->storages[saved->storage].bytes);
    int64_t numel = tgd_graph_numel(graph, saved->shape);
    if (numel > 0) {
        tgd_text_str(text, ", the tensor has ");
        tgd_text_size(text, (uint64_t)numel * saved->itemsize);
    }
}

/* What became of it behind the version check. */
static void silent_fate(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_PACKED:
        tgd_text_str(text, "saved-tensor hooks keep without a copy, was written to after it was saved. PyTorch checks no "
                           "version behind hooks: backward will use the new values and give a wrong gradient, without "
                           "an error");
        break;
    case TGD_DETAIL_FOREIGN:
        tgd_text_str(text, "does not hold the values any more that it was saved with, and no op of PyTorch wrote to it: "
                           "numpy, DLPack or another library did, through memory that it shares. Backward will use the "
                           "new values and give a wrong gradient, without an error");
        break;
    case TGD_DETAIL_RECOMPUTED:
        tgd_text_str(text, "was changed in place after it was saved. The checkpoint runs the change again before backward "
                           "reads the tensor, and PyTorch checks no version there: the gradient will be wrong, without "
                           "an error");
        break;
    case TGD_DETAIL_MAY_RECOMPUTE:
        tgd_text_str(text, "was changed in place after it was saved. If the checkpointed function saves anything after "
                           "that, the checkpoint runs the change again before backward reads the tensor: the gradient "
                           "may be wrong, without an error");
        break;
    case TGD_DETAIL_RECOMPUTED_INPUT:
        tgd_text_str(text, " is inside a checkpoint and read a tensor from outside that was written to after the forward. "
                           "The checkpoint runs the forward again with the new values: the gradient will be wrong, "
                           "without an error");
        break;
    case TGD_DETAIL_RECOMPUTED_LEAF:
        tgd_text_str(text, row->saved == TGD_NONE ? " read " : "");
        if (report->leaf_parameter[row->other] != TGD_NONE) {
            tgd_text_str(text, "parameter ");
            tgd_name_phrase(text, report->parameters[report->leaf_parameter[row->other]].name);
            tgd_text_str(text, row->saved == TGD_NONE ? ", which " : " and ");
        } else {
            tgd_text_str(text, row->saved == TGD_NONE ? "a leaf that " : "");
        }
        tgd_text_str(text, "was written to after the forward. Its checkpoint runs the forward again with the new values: "
                           "the gradient will be wrong, without an error");
        break;
    default:
        tgd_text_str(text, "was written to behind autograd's back after it was saved (its version did not move): backward "
                           "will use the new values and give a wrong gradient, without an error");
    }
}

/* What became of the saved tensor. */
static void saved_fate(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    const tgd_saved_row *saved = &report->graph.saved[row->saved];
    switch ((tgd_finding_kind)row->kind) {
    case TGD_MODIFIED_IN_PLACE:
        tgd_text_printf(text, "was changed in place after it was saved: it is at version %lu; expected version %lu",
                        (unsigned long)saved->version, (unsigned long)saved->saved_version);
        break;
    case TGD_DETACHED_IN_PLACE:
        tgd_text_str(text, "was detached in place, with detach_(), after it was saved");
        break;
    case TGD_SILENTLY_MODIFIED:
        silent_fate(text, report, row);
        break;
    case TGD_STORAGE_FREED:
        tgd_text_str(text, "has no data any more: ");
        sizes_of_storage(text, &report->graph, saved);
        break;
    default:
        if (row->detail == TGD_DETAIL_RESHAPED) {
            tgd_text_str(text, "has other sizes or another dtype than in the forward");
        } else {
            tgd_text_str(text, "reaches beyond the end of its data: ");
            sizes_of_storage(text, &report->graph, saved);
        }
    }
}

static void freed_message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    const tgd_saved_row *saved = &report->graph.saved[row->saved];
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_CUSTOM:
        tgd_text_str(text, " gave its saved tensors back in an earlier backward; if its backward reads them again, "
                           "PyTorch raises \"Trying to backward through the graph a second time\"");
        break;
    case TGD_DETAIL_UNREAD:
        tgd_text_str(text, " was freed by an earlier backward; its own backward does not name saved_tensors, so it "
                           "may run again");
        break;
    default:
        tgd_text_str(text, " gave back ");
        if (saved->flags & TGD_SV_RELEASED_FLAG) {
            tgd_text_str(text, "what it saved");
        } else {
            tgd_text_str(text, "its saved ");
            tgd_saved_name_phrase(text, saved);
        }
        tgd_text_str(text, " in an earlier backward; going through it a second time raises");
    }
}

static void saved_message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    const tgd_saved_row *saved = &report->graph.saved[row->saved];
    tgd_node_phrase(text, report, row->node);
    place(text, report, row->node);
    if (row->kind == TGD_GRAPH_FREED) {
        freed_message(text, report, row);
        return;
    }
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_CUSTOM:
        tgd_text_str(text, " raises if its backward reads what it saved: ");
        break;
    case TGD_DETAIL_UNREAD:
        tgd_text_str(text, " holds a saved tensor that its own backward does not name: ");
        break;
    case TGD_DETAIL_HOOK_MAY_MEND:
        tgd_text_str(text, " fails unless a hook brings the data back first: its saved ");
        break;
    case TGD_DETAIL_SHARDED:
        tgd_text_str(text, " is served by a sharded module, whose hooks bring the data back before it runs: its saved ");
        break;
    default:
        tgd_text_str(text, saved->flags & TGD_SV_OUTPUT ? " needs its own " : " needs its saved ");
    }
    saved_phrase(text, report, saved);
    tgd_text_str(text, row->detail == TGD_DETAIL_SAVED || row->detail == TGD_DETAIL_TOO_SMALL ||
                               row->kind == TGD_SILENTLY_MODIFIED ||
                               row->detail == TGD_DETAIL_RESHAPED
                           ? ", which "
                           : " ");
    saved_fate(text, report, row);
}

/* Behind the node's name. */
static void custom_message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_GRADIENT_WRITTEN:
        tgd_text_str(text, " wrote into the gradient that it was given, while somebody else still needs it (another branch "
                           "of the graph, a retained grad): that one is wrong now, without an error");
        return;
    case TGD_DETAIL_GRADIENT_HOOK:
        tgd_text_str(text, " has a hook that wrote into the gradient it was given, while somebody else still needs it "
                           "(another branch of the graph, a retained grad): that one is wrong now, without an error");
        return;
    case TGD_DETAIL_GRADIENT_NONE:
        tgd_text_str(text, " returned None for an input that requires grad: nothing behind that input gets a gradient, "
                           "without an error");
        return;
    case TGD_DETAIL_CONSTANT:
        tgd_text_str(text, report->graph.types[report->graph.nodes[row->node].type].kind == TGD_NODE_PYTHON
                               ? " uses in its backward what its forward computed and kept. "
                               : " comes from the backward of a custom Function, which uses what its forward computed and "
                                 "kept. ");
        tgd_text_str(text, "The second derivative takes that for a constant, and comes out wrong, without an error");
        return;
    default:
        tgd_text_str(text, row->detail == TGD_DETAIL_GRADIENT_COUNT
                               ? " must return one gradient for each argument of its forward, None for what has none"
                           : row->detail == TGD_DETAIL_GRADIENT_SHAPE
                               ? " returned a gradient that does not fit the input it is for"
                               : " returned something that is not the gradient of an input");
        if (report->raised != NULL) {
            tgd_text_str(text, ": ");
            tgd_text_line(text, report->raised, 200);
        }
    }
}

static void node_message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    if (row->detail == TGD_DETAIL_HOOKED) {
        tgd_text_count(text, row->other);
        tgd_text_str(text, row->other == 1 ? " saved tensor is" : " saved tensors are");
        tgd_text_str(text, " packed by saved-tensor hooks (a checkpoint, an offload): not looked into, and PyTorch does "
                           "not check their version either");
        return;
    }
    if (row->detail == TGD_DETAIL_BUSY) {
        tgd_text_count(text, row->other);
        tgd_text_str(text, row->other == 1 ? " node is" : " nodes are");
        tgd_text_str(text, " being run by another thread: unchecked");
        return;
    }
    tgd_node_phrase(text, report, row->node);
    place(text, report, row->node);
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_ERROR_NODE:
        tgd_text_str(text, " stands for an op that has no derivative here: it raises whenever it runs");
        break;
    case TGD_DETAIL_LEAF_RESHAPED: {
        const tgd_graph *graph = &report->graph;
        const tgd_input_row *then = &graph->inputs[graph->nodes[row->node].first_input];
        tgd_text_str(text, " knows its leaf as ");
        tgd_report_tensor_phrase(text, graph, then->dtype, then->shape);
        tgd_text_str(text, ", and it is ");
        tgd_report_tensor_phrase(text, graph, graph->leaves[row->other].dtype, graph->leaves[row->other].shape);
        tgd_text_str(text, " now: backward raises \"invalid gradient\" where the leaf was used after the change, and "
                           "makes a grad that does not fit where it was used before");
        break;
    }
    case TGD_DETAIL_COMPILED_TWICE:
        tgd_text_str(text, " is the second derivative of a region that torch.compile made: it only raises");
        break;
    case TGD_DETAIL_COMPILED:
        tgd_text_str(text, " is a region that torch.compile made: with create_graph=True its gradient cannot be "
                           "differentiated again");
        break;
    case TGD_DETAIL_ONCE:
        tgd_text_str(text, " has a backward marked once_differentiable: with create_graph=True its gradient cannot be "
                           "differentiated again");
        break;
    case TGD_DETAIL_RECOMPUTED_LEAF:
    case TGD_DETAIL_RECOMPUTED_INPUT:
        silent_fate(text, report, row);
        break;
    case TGD_DETAIL_HIDDEN:
        tgd_text_str(text, " runs a part of backward that this graph does not show (a reentrant checkpoint, a sharded "
                           "module, another process): ");
        tgd_text_count(text, row->other);
        tgd_text_str(text, row->other == 1 ? " parameter that is not in the graph may be reached there: unchecked"
                                           : " parameters that are not in the graph may be reached there: unchecked");
        break;
    case TGD_DETAIL_GRADIENT_COUNT:
    case TGD_DETAIL_GRADIENT_SHAPE:
    case TGD_DETAIL_GRADIENT_KIND:
    case TGD_DETAIL_GRADIENT_NONE:
    case TGD_DETAIL_GRADIENT_WRITTEN:
    case TGD_DETAIL_GRADIENT_HOOK:
    case TGD_DETAIL_CONSTANT:
        custom_message(text, report, row);
        break;
    default:
        tgd_text_str(text, " is of a class that could not be looked into");
        if (row->other > 1) {
            tgd_text_str(text, " (");
            tgd_text_count(text, row->other);
            tgd_text_str(text, " such nodes)");
        }
        tgd_text_str(text, ": what it saved is unchecked");
    }
}

static void refused_message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    const tgd_write_row *write = report->refusal.write;
    if (write == NULL) {
        tgd_text_str(text, "PyTorch refused to start backward: ");
        tgd_text_line(text, report->refused_message == NULL ? "" : report->refused_message, 300);
        return;
    }
    tgd_text_str(text, "PyTorch refused ");
    tgd_name_phrase(text, row->op);
    root_tensor(text, report, 0);
    if (row->node != TGD_NONE) {
        tgd_text_str(text, ": the tensor is a view made by ");
        tgd_node_phrase(text, report, row->node);
        tgd_text_str(text, ", and may not be written to in place (a view of a leaf, or one of several views of one "
                           "tensor)");
    } else {
        tgd_text_str(text, ": the tensor is a leaf that requires grad, or a view of one, and may not be written to in "
                           "place while grad mode is on");
    }
}

static void root_message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    if (row->detail == TGD_DETAIL_REFUSED_WRITE || row->detail == TGD_DETAIL_REFUSED_ROOT) {
        refused_message(text, report, row);
        return;
    }
    if (row->detail == TGD_DETAIL_INPUT_NO_GRAD) {
        tgd_text_printf(text, "inputs[%lu] does not require grad: backward(inputs=...) refuses it",
                        (unsigned long)row->other);
        return;
    }
    if (row->detail == TGD_DETAIL_INPUT_UNUSED) {
        tgd_text_printf(text,
                        "inputs[%lu] is not in this graph: backward(inputs=...) will leave its grad as it is, and "
                        "autograd.grad() refuses it",
                        (unsigned long)row->other);
        return;
    }
    tgd_root_phrase(text, report, row->root);
    root_tensor(text, report, row->root);
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_LEAF_ROOT:
        tgd_text_str(text, " is a leaf: no op made it, so backward only fills its own grad");
        break;
    case TGD_DETAIL_ROOT_RESHAPED: {
        const tgd_graph *graph = &report->graph;
        const tgd_root_row *root = &graph->roots[row->root];
        tgd_text_str(text, " was ");
        tgd_report_tensor_phrase(text, graph, root->dtype,
                                 graph->inputs[graph->nodes[root->node].first_input + root->output_nr].shape);
        tgd_text_str(text, " when its grad_fn was made: backward() raises \"invalid gradient\" before it runs a node");
        break;
    }
    case TGD_DETAIL_ROOT_WRAPPED:
        tgd_text_str(text, " is wrapped by torch.vmap, and the tensor in it carries the gradient: "
                           "backward() raises in here, and the graph is that of what vmap returns; unchecked");
        break;
    case TGD_DETAIL_ROOT_LOST:
        tgd_text_str(text, " is a view whose base was changed in place in a way that PyTorch cannot follow: backward() "
                           "raises when it asks for the view's grad_fn");
        break;
    case TGD_DETAIL_NOT_SCALAR:
        tgd_text_str(text, " is not a scalar: backward() raises \"grad can be implicitly created only for scalar "
                           "outputs\" unless it is given a gradient");
        break;
    case TGD_DETAIL_COMPLEX_ROOT:
        tgd_text_str(text, " is complex: backward() raises \"grad can be implicitly created only for real scalar "
                           "outputs\" unless it is given a gradient");
        break;
    default:
        tgd_text_str(text, " does not require grad and does not have a grad_fn: backward() raises before it runs a "
                           "node");
        if (row->reason == TGD_REASON_GRAD_MODE_DISABLED && !row->culprit) {
            tgd_text_str(text, "; it was made under torch.inference_mode()");
        } else if (row->reason == TGD_REASON_REQUIRES_GRAD_OFF) {
            tgd_text_str(text, "; none of the given parameters requires grad");
        } else if (row->reason != TGD_REASON_NONE) {
            tgd_text_str(text, "; ");
            tgd_text_str(text, tgd_reason_statement((tgd_reason)row->reason));
        }
    }
}

static void parameter_message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    const tgd_parameter_row *parameter = &report->parameters[row->parameter];
    tgd_name_phrase(text, parameter->name);
    tgd_text_str(text, " (");
    tgd_report_tensor_phrase(text, &report->graph, parameter->dtype, parameter->shape);
    tgd_text_str(text, ") gets no gradient: ");
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_TURNED_OFF:
        tgd_text_str(text, "it is in the graph, but its requires_grad was set to False after the forward");
        break;
    case TGD_DETAIL_REPLACED:
        tgd_text_printf(text,
                        "it looks like a replacement made after the forward; the graph holds another Parameter of the "
                        "same shape (node %lu) that nobody names",
                        (unsigned long)report->graph.leaves[row->other].node);
        break;
    case TGD_DETAIL_NOT_A_LEAF:
        tgd_text_str(text, "it is not a leaf, and backward keeps the grad of leaves only");
        break;
    case TGD_DETAIL_ROOT_IS_LEAF:
        tgd_text_str(text, "the root is a leaf, so nothing is connected to it");
        break;
    default:
        if (report->record == NULL && row->reason == TGD_REASON_GRAD_MODE_DISABLED) {
            tgd_text_str(text, "it is not in this graph; the root was made under torch.inference_mode()");
        } else if (row->reason != TGD_REASON_NONE) {
            tgd_text_str(text, row->unsure && !row->culprit ? "it is not in this graph; perhaps " : "");
            tgd_text_str(text, tgd_reason_statement((tgd_reason)row->reason));
        } else {
            tgd_text_str(text, "it is not in this graph");
        }
    }
}

void tgd_source_phrase(tgd_text *text, const tgd_source_row *source)
{
    const char *slash = strrchr(source->file, '/');
    tgd_name_phrase(text, slash == NULL ? source->file : slash + 1);
    if (source->line > 0) {
        tgd_text_printf(text, ":%d", source->line);
    }
}

static void where_phrase(tgd_text *text, const tgd_source_row *source)
{
    tgd_text_str(text, " at ");
    tgd_source_phrase(text, source);
    if (source->module[0] != '\0') {
        tgd_text_str(text, " in module ");
        tgd_name_phrase(text, source->module);
    }
}

/* The line of the finding's own node, where it shows that. */
static bool origin_phrase(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    if (row->culprit || row->node == TGD_NONE || row->where != report->node_where[row->node]) {
        return false;
    }
    tgd_node made_by = report->node_made_by[row->node];
    tgd_text_str(text, made_by == TGD_NONE && row->op == NULL ? "; made" : "; made by ");
    tgd_text_str(text, made_by == TGD_NONE ? "" : "the backward of ");
    if (made_by < TGD_NODE_ELSEWHERE) {
        tgd_node_phrase(text, report, made_by);
    } else {
        tgd_text_str(text, row->op != NULL ? row->op : made_by == TGD_NONE ? "" : "what was made");
    }
    where_phrase(text, &report->sources[row->where]);
    return true;
}

/* Who did it, behind the message; or the line of the node. */
static void culprit_phrase(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    if (row->where == TGD_NONE || origin_phrase(text, report, row)) {
        return;
    }
    bool freed = row->kind == TGD_GRAPH_FREED && row->culprit;
    bool cut = row->kind == TGD_UNREACHED_PARAMETER || row->kind == TGD_NO_GRAD_FN;
    tgd_text_str(text, freed ? "; freed by " : !row->culprit ? "; made by " : !cut ? "; by " : row->unsure ? "; perhaps " : "; ");
    tgd_text_str(text, row->op != NULL ? row->op : freed ? "the backward" : "the code");
    where_phrase(text, &report->sources[row->where]);
    for (uint32_t i = 0; i < row->n_later; i++) {
        const tgd_fact_row *fact = &report->facts[row->later + i];
        tgd_text_str(text, ", then by ");
        tgd_text_str(text, fact->op);
        if (fact->where != TGD_NONE) {
            where_phrase(text, &report->sources[fact->where]);
        }
    }
    tgd_text_str(text, row->more_later ? ", then by others" : "");
}

static void message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    if (tgd_is_triage(row)) {
        tgd_text_str(text, tgd_triage_message(report, row));
    } else if (row->detail == TGD_DETAIL_VALUE) {
        tgd_value_message(text, report, (size_t)(row - report->findings));
    } else if (row->saved != TGD_NONE) {
        saved_message(text, report, row);
    } else if (row->parameter != TGD_NONE) {
        parameter_message(text, report, row);
    } else if (row->kind == TGD_NO_GRAD_FN || row->kind == TGD_BAD_ROOT ||
               row->kind == TGD_IN_PLACE_REFUSED || row->detail == TGD_DETAIL_ROOT_WRAPPED) {
        root_message(text, report, row);
    } else {
        node_message(text, report, row);
    }
}

void tgd_message_write(tgd_text *text, const tgd_report *report, size_t finding)
{
    if (report->words != NULL) {
        tgd_text_str(text, report->words[finding].message);
        return;
    }
    const tgd_finding_row *row = &report->findings[finding];
    if (tgd_is_of_steps(row)) {
        tgd_steps_message(text, report, row);
        return;
    }
    message(text, report, row);
    culprit_phrase(text, report, row);
    tgd_carrier_message(text, report, row);
}

/* ---- snprintf's manners for tgd.h ---- */

static size_t copy(char *buffer, size_t size, tgd_text *text)
{
    size_t needed = text->status == TGD_OK ? text->n : 0;
    if (size > 0) {
        size_t n = needed < size ? needed : size - 1;
        if (n > 0) {
            memcpy(buffer, text->bytes, n);
        }
        buffer[n] = '\0';
    }
    tgd_text_drop(text);
    return needed;
}

size_t tgd_report_finding_message(const tgd_report *report, size_t i, char *buffer, size_t size)
{
    tgd_text text;
    tgd_text_init(&text, NULL, NULL);
    tgd_message_write(&text, report, i);
    return copy(buffer, size, &text);
}

size_t tgd_report_finding_hint(const tgd_report *report, size_t i, char *buffer, size_t size)
{
    tgd_text text;
    tgd_text_init(&text, NULL, NULL);
    tgd_hint_write(&text, report, i);
    return copy(buffer, size, &text);
}
