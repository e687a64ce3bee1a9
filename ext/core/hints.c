/* What to do about a finding. */
#include "triage.h"
#include "words.h"

static const char *in_place_hint(const tgd_report *report, const tgd_finding_row *row)
{
    const tgd_graph *graph = &report->graph;
    const tgd_saved_row *saved = &graph->saved[row->saved];
    if (tgd_saved_leaf(graph, saved) != TGD_NONE) {
        return "call backward() before optimizer.step(), or before whatever else writes to this parameter; or run the "
               "forward again after the write";
    }
    if (saved->flags & TGD_SV_OUTPUT) {
        return "look for an in-place op on this result (x += y, x[i] = v, relu_, nn.ReLU(inplace=True), masked_fill_): "
               "use the out-of-place form (x = x + y), or clone() the result before writing to it";
    }
    return "look for an in-place op on this tensor or a view of it after the forward used it (x += y, x[i] = v, copy_, "
           "fill_, an update of a buffer): use the out-of-place form, or hand clone() to the op that saves it";
}

/* What to do about a way that was cut for this reason, or NULL. */
static const char *cut_hint(tgd_reason reason)
{
    switch (reason) {
    case TGD_REASON_NEVER_USED:
        return "use it in the forward, or call requires_grad_(False) on it if it is not meant to learn";
    case TGD_REASON_GRAD_MODE_DISABLED:
        return "run this part with grad mode on: no_grad and inference_mode are for what is not meant to learn";
    case TGD_REASON_DETACHED:
        return "drop the detach() if the gradient should pass here; one that stands before .numpy() is there because numpy "
               "carries no gradient: keep the value in torch";
    case TGD_REASON_LEFT_TORCH:
        return "keep the value a tensor on its way to the loss: no item(), float(), numpy() or tolist()";
    case TGD_REASON_NOT_DIFFERENTIABLE_OP:
        return "this op has no derivative: use one that has (softmax for argmax, a soft mask for a comparison), or a "
               "straight-through estimator";
    case TGD_REASON_INTEGER_OUTPUT:
        return "keep the value floating point up to the loss: integers carry no gradient";
    case TGD_REASON_REWRAPPED:
        return "use the tensor itself, or torch.stack: torch.tensor(x) and nn.Parameter(x) make a new leaf from the "
               "numbers alone";
    case TGD_REASON_REENTRANT_CHECKPOINT:
        return "pass use_reentrant=False to checkpoint(), or call requires_grad_() on one of its inputs";
    case TGD_REASON_OUTPUT_DROPPED:
        return "add what is computed from it to the loss, or leave it out of the forward; if it went on through .data, "
               "use the tensor itself";
    default:
        return NULL;
    }
}

static const char *silent_hint(const tgd_finding_row *row)
{
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_PACKED:
        return "use the out-of-place form (x = x + y), or clone() the tensor before writing to it; or let the pack hook "
               "return a copy";
    case TGD_DETAIL_FOREIGN:
        return "look for an array that shares this memory (x.numpy(), torch.from_numpy, DLPack) and is filled again "
               "before backward: hand a copy to PyTorch (torch.tensor(array), x.clone())";
    case TGD_DETAIL_RECOMPUTED_LEAF:
        return "call backward() before optimizer.step(), or before whatever else writes to this parameter; or run the "
               "forward again after the write";
    case TGD_DETAIL_RECOMPUTED_INPUT:
        return "hand the tensor to checkpoint() as an argument, and write to a clone() of it, or after backward()";
    default:
        return "use the out-of-place form inside the checkpoint (x = x * y), or clone() the tensor before writing to it";
    }
}

static const char *custom_hint(const tgd_finding_row *row)
{
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_GRADIENT_COUNT:
        return "return as many values as forward takes arguments after ctx, with None for those that need no gradient "
               "(return grad, None)";
    case TGD_DETAIL_GRADIENT_SHAPE:
        return "give each gradient the shape, dtype and device of its input: sum over what was broadcast, reshape, to()";
    case TGD_DETAIL_GRADIENT_KIND:
        return "return a tensor for each tensor argument of forward, and None for every other argument";
    case TGD_DETAIL_GRADIENT_NONE:
        return "return a gradient for every input that requires grad; if this one is a constant to the op, hand in "
               "x.detach()";
    case TGD_DETAIL_GRADIENT_WRITTEN:
        return "compute a new tensor (g * 3, not g.mul_(3)), or clone() the gradient before writing to it";
    case TGD_DETAIL_GRADIENT_HOOK:
        return "return a new tensor from the hook (return g * 2) instead of changing the one it was given";
    default:
        return "save the inputs with ctx.save_for_backward and compute it in backward again; or return it from forward as "
               "an output and save that";
    }
}

static const char *hint_of(const tgd_report *report, const tgd_finding_row *row)
{
    switch ((tgd_finding_kind)row->kind) {
    case TGD_MODIFIED_IN_PLACE:
        return in_place_hint(report, row);
    case TGD_SILENTLY_MODIFIED:
        if (row->detail != TGD_DETAIL_SILENT) {
            return silent_hint(row);
        }
        return "do not write through .data (or with an optimizer step) between forward and backward: call backward first, "
               "or write to a clone()";
    case TGD_DETACHED_IN_PLACE:
        return "use y = x.detach(), which leaves x as it is, instead of x.detach_()";
    case TGD_GRAPH_FREED:
        return "add the losses up and call backward once; or pass retain_graph=True to the earlier backward or "
               "autograd.grad; or detach() what one step hands on to the next (a hidden state, a running average)";
    case TGD_STORAGE_FREED:
        return "look for untyped_storage().resize_(0), an offload or a sharding that frees this tensor: it must come "
               "back before backward";
    case TGD_STORAGE_CHANGED:
        return "look for x.data = ..., set_() or resize_() on this tensor between forward and backward";
    case TGD_NO_GRAD_FN:
        if (row->detail == TGD_DETAIL_LEAF_ROOT) {
            return "do not call requires_grad_() on a computed value: find where the chain to the parameters was cut "
                   "(detach, .data, item(), torch.tensor(...), no_grad)";
        }
        if (row->reason == TGD_REASON_REQUIRES_GRAD_OFF) {
            return "call requires_grad_(True) on what should learn, before the forward";
        }
        if (cut_hint((tgd_reason)row->reason) != NULL) {
            return cut_hint((tgd_reason)row->reason);
        }
        return "look between the parameters and the root for detach(), .data, item(), numpy(), torch.tensor(...), "
               "argmax or a comparison, a cast to integers, no_grad or inference_mode; call torchgraphdbg.inspect() on "
               "intermediate tensors to find the last one that still has a grad_fn";
    case TGD_IN_PLACE_REFUSED:
        return row->node != TGD_NONE
                   ? "use the out-of-place op and put the results together (torch.cat, torch.stack), or write to clone()"
                   : "update a parameter under torch.no_grad(); to compute with it, use the out-of-place op or clone()";
    case TGD_BAD_ROOT:
        if (row->detail == TGD_DETAIL_INPUT_UNUSED) {
            return "look whether the root is computed from it; torch.autograd.grad(..., allow_unused=True) gives None for "
                   "it";
        }
        if (row->detail == TGD_DETAIL_ROOT_LOST) {
            return "do not change the base in place after taking several views of it, or a view under no_grad; clone() "
                   "the view when it is taken";
        }
        if (row->detail == TGD_DETAIL_ROOT_RESHAPED) {
            return "look for x.data = ..., set_(), or a resize or squeeze in place under no_grad on the root";
        }
        return row->detail == TGD_DETAIL_INPUT_NO_GRAD
                   ? "call requires_grad_(True) on it before the forward, or leave it out of inputs"
                   : "reduce it first (loss.mean(), loss.sum()), or pass gradient= to backward()";
    case TGD_UNREACHED_PARAMETER:
        switch ((tgd_detail)row->detail) {
        case TGD_DETAIL_TURNED_OFF:
            return "set requires_grad_(True) again before backward";
        case TGD_DETAIL_REPLACED:
            return "run the forward again after replacing a parameter, and give the optimizer the new one";
        case TGD_DETAIL_NOT_A_LEAF:
            return "create it on its final device and dtype first and call requires_grad_() last; or call "
                   "retain_grad() on it to see its gradient";
        default:
            if (cut_hint((tgd_reason)row->reason) != NULL) {
                return cut_hint((tgd_reason)row->reason);
            }
            return "either the forward never used it, or the chain was cut on the way (detach, .data, item(), no_grad, "
                   "argmax, a cast to integers): call torchgraphdbg.inspect(x, params=...) on intermediate tensors to "
                   "find the last one that still reaches it; set requires_grad_(False) if it is not meant to learn";
        }
    case TGD_NOT_DIFFERENTIABLE:
        if (row->detail == TGD_DETAIL_ONCE) {
            return "leave create_graph out; or take once_differentiable off and write this backward with ops that have "
                   "a derivative";
        }
        return row->detail == TGD_DETAIL_ERROR_NODE
                   ? "replace the op, or keep it out of the graph with detach(); after once_differentiable, do not "
                     "differentiate the gradient again"
                   : "run this part without torch.compile (torch.compiler.disable), or without create_graph";
    case TGD_OPAQUE_NODE:
        return row->detail == TGD_DETAIL_ROOT_WRAPPED ? "inspect what vmap returns instead" : "";
    case TGD_CUSTOM_FUNCTION:
    case TGD_GRADIENT_MODIFIED:
        return custom_hint(row);
    case TGD_CHECK_OFF:
        return "avoid in-place ops on tensors inside a checkpoint or under saved-tensor hooks: they change gradients "
               "without an error";
    default:
        return "";
    }
}

void tgd_hint_write(tgd_text *text, const tgd_report *report, size_t finding)
{
    if (report->words != NULL) {
        tgd_text_str(text, report->words[finding].hint == NULL ? "" : report->words[finding].hint);
        return;
    }
    const tgd_finding_row *row = &report->findings[finding];
    if (tgd_is_triage(row)) {
        tgd_text_str(text, tgd_triage_hint(report, row));
    } else if (tgd_finding_is_value(report, finding)) {
        tgd_text_str(text, tgd_value_hint(report, finding));
    } else if (tgd_is_of_steps(row)) {
        tgd_text_str(text, tgd_steps_hint(row));
    } else if (!tgd_carrier_hint(text, report, row)) {
        tgd_text_str(text, hint_of(report, row));
    }
}
