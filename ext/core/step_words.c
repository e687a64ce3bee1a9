/* Words for findings about more than one step: what carries, keeps or never moves. */
#include "words.h"

static const tgd_fact_row *fact_of(const tgd_report *report, const tgd_finding_row *row)
{
    return &report->facts[row->other];
}

/* " at net.py:31 in module encoder" */
static void at(tgd_text *text, const tgd_report *report, uint32_t where)
{
    if (where == TGD_NONE) {
        return;
    }
    const tgd_source_row *source = &report->sources[where];
    tgd_text_str(text, " at ");
    tgd_source_phrase(text, source);
    if (source->module[0] != '\0') {
        tgd_text_str(text, " in module ");
        tgd_name_phrase(text, source->module);
    }
}

static void count_of(tgd_text *text, uint32_t n, const char *one, const char *many)
{
    tgd_text_count(text, n);
    tgd_text_str(text, n == 1 ? one : many);
}

/* ---- what carried a freed graph ---- */

/* "`hidden`, made by tanh at rnn.py:14 in module cell," */
static void carrier(tgd_text *text, const tgd_report *report, const tgd_fact_row *fact)
{
    if (fact->name != NULL) {
        tgd_name_phrase(text, fact->name);
        tgd_text_str(text, " (made by ");
    } else {
        tgd_text_str(text, "the result of ");
    }
    if (fact->op != NULL) {
        tgd_text_str(text, fact->op);
    } else {
        tgd_node_phrase(text, report, fact->node);
    }
    at(text, report, fact->where);
    tgd_text_str(text, fact->name != NULL ? ")" : "");
}

void tgd_carrier_message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    if (row->kind != TGD_GRAPH_FREED || row->other == TGD_NONE) {
        return;
    }
    const tgd_fact_row *fact = fact_of(report, row);
    tgd_text_str(text, "; ");
    if (fact->node == TGD_NONE) {
        tgd_text_str(text, "it is the same graph again, from the root on");
        return;
    }
    carrier(text, report, fact);
    tgd_text_str(text, " carries the old graph into this one");
}

bool tgd_carrier_hint(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    if (row->kind != TGD_GRAPH_FREED || row->other == TGD_NONE) {
        return false;
    }
    const tgd_fact_row *fact = fact_of(report, row);
    if (fact->node == TGD_NONE) {
        tgd_text_str(text, "run the forward again before each backward, or pass retain_graph=True to the first");
        return true;
    }
    tgd_text_str(text, "detach() ");
    carrier(text, report, fact);
    tgd_text_str(text, " where it is handed on, if no gradient should flow further back; if it should, add the losses "
                       "up and call backward once, or pass retain_graph=True to the earlier backward");
    return true;
}

/* ---- weights that do not move ---- */

static void weight_message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    const tgd_fact_row *fact = fact_of(report, row);
    tgd_name_phrase(text, report->parameters[row->parameter].name);
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_NO_OPTIMIZER:
        tgd_text_str(text, " gets a gradient and never moves: it is in no optimizer; step() was called");
        break;
    case TGD_DETAIL_OPTIMIZES_OLD:
        tgd_text_str(text, " gets a gradient and never moves: the optimizer (");
        tgd_text_str(text, fact->name);
        tgd_text_str(text, ") holds another tensor of this shape, which is no parameter any more: it was replaced "
                           "after the optimizer was made; step() was called");
        break;
    case TGD_DETAIL_RATE_ZERO:
    case TGD_DETAIL_NO_SCHEDULER:
        tgd_text_str(text, " gets a gradient and does not move: its learning rate is 0 (");
        tgd_text_str(text, fact->name);
        tgd_text_str(text, "), in ");
        count_of(text, fact->steps, " step", " steps");
        tgd_text_str(text, row->detail == TGD_DETAIL_NO_SCHEDULER ? ", and its scheduler was never stepped; step() was "
                                                                    "called"
                                                                  : " so far; step() was called");
        break;
    case TGD_DETAIL_GRADIENT_ZEROED:
        tgd_text_str(text, " does not move (");
        tgd_text_str(text, fact->name);
        tgd_text_str(text, "): its gradient was zeroed between backward and step()");
        break;
    default:
        tgd_text_str(text, " does not move (");
        tgd_text_str(text, fact->name);
        tgd_text_str(text, "): its gradient was gone when step() was called");
    }
    at(text, report, row->where);
}

static const char *weight_hint(const tgd_finding_row *row)
{
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_NO_OPTIMIZER:
        return "give it to the optimizer (optimizer.add_param_group), or call requires_grad_(False) on it if it is not "
               "meant to learn";
    case TGD_DETAIL_OPTIMIZES_OLD:
        return "make the optimizer after the last change of the model's parameters, or copy into them in place "
               "(with torch.no_grad(): p.copy_(new))";
    case TGD_DETAIL_NO_SCHEDULER:
        return "call scheduler.step() after optimizer.step()";
    case TGD_DETAIL_RATE_ZERO:
        return "set the group's lr; or call requires_grad_(False) on what is not meant to learn, which also saves its "
               "gradient";
    default:
        return "call zero_grad() before backward or after step(), not between them";
    }
}

/* ---- graphs that are kept ---- */

static void held(tgd_text *text, const tgd_fact_row *fact)
{
    tgd_text_count(text, fact->nodes);
    tgd_text_str(text, fact->nodes == 1 ? " node and " : " nodes and ");
    tgd_text_size(text, fact->bytes);
    tgd_text_str(text, " of saved tensors");
}

static void retained_message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    const tgd_fact_row *fact = fact_of(report, row);
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_GRAD_HAS_GRAPH:
        tgd_text_str(text, "the .grad of ");
        if (row->parameter != TGD_NONE) {
            tgd_name_phrase(text, report->parameters[row->parameter].name);
            if (fact->count > 1) {
                tgd_text_str(text, " and of ");
                count_of(text, fact->count - 1, " more leaf", " more leaves");
            }
        } else {
            count_of(text, fact->count, " leaf", " leaves");
        }
        tgd_text_str(text, " has a graph of its own: parameter and gradient keep each other and that graph alive until "
                           ".grad is set to None");
        tgd_text_str(text, row->culprit ? "; left by backward(create_graph=True)" : "");
        at(text, report, row->where);
        break;
    case TGD_DETAIL_CYCLE:
        tgd_text_str(text, "ctx.");
        tgd_name_phrase(text, fact->name);
        tgd_text_str(text, " is an output of the custom Function itself");
        at(text, report, row->where);
        tgd_text_str(text, ": node and output keep each other and all of the graph behind them alive for ever (");
        tgd_text_count(text, fact->count);
        tgd_text_str(text, " such now)");
        break;
    case TGD_DETAIL_GROWS:
        tgd_text_str(text, "a graph grows with every step: ");
        tgd_name_phrase(text, row->op);
        at(text, report, row->where);
        tgd_text_str(text, " has put a new part on it in ");
        count_of(text, fact->steps, " step", " steps");
        tgd_text_str(text, ", and ");
        held(text, fact);
        tgd_text_str(text, " of earlier steps are alive");
        break;
    case TGD_DETAIL_KEPT:
        count_of(text, fact->count, " tensor", " tensors");
        tgd_text_str(text, " that ");
        tgd_name_phrase(text, row->op);
        tgd_text_str(text, " made");
        at(text, report, row->where);
        tgd_text_str(text, " in ");
        count_of(text, fact->steps, " step", " steps");
        tgd_text_str(text, " are alive with their graphs: ");
        held(text, fact);
        break;
    default:
        count_of(text, fact->count, " like parts of this graph", " like parts of this graph");
        at(text, report, row->where);
        tgd_text_str(text, " are alive at once, with ");
        tgd_text_size(text, fact->bytes);
        tgd_text_str(text, " of saved tensors, until a backward runs or they are dropped");
    }
}

static const char *retained_hint(const tgd_finding_row *row)
{
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_GRAD_HAS_GRAPH:
        return "use torch.autograd.grad(loss, params, create_graph=True), which leaves .grad alone; or set .grad to "
               "None (zero_grad()) once the second backward is done";
    case TGD_DETAIL_CYCLE:
        return "hand the output to ctx.save_for_backward(), or keep a detach() of it on ctx";
    case TGD_DETAIL_GROWS:
        return "keep the number and not the graph: total += loss.item() or loss.detach(); detach() a state that goes "
               "from one step to the next";
    case TGD_DETAIL_KEPT:
        return "keep x.detach() or loss.item() where several steps' values are collected";
    default:
        return "where no backward is meant (an evaluation), run this under torch.no_grad(); where it is, calling "
               "backward for each part holds one of them at a time";
    }
}

/* ---- by kind ---- */

bool tgd_is_of_steps(const tgd_finding_row *row)
{
    return row->kind == TGD_NOT_IN_OPTIMIZER || row->kind == TGD_RETAINED_GRAPH;
}

void tgd_steps_message(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    if (row->kind == TGD_NOT_IN_OPTIMIZER) {
        weight_message(text, report, row);
    } else {
        retained_message(text, report, row);
    }
}

const char *tgd_steps_hint(const tgd_finding_row *row)
{
    return row->kind == TGD_NOT_IN_OPTIMIZER ? weight_hint(row) : retained_hint(row);
}

/* Only warnings come here: weights that do not move, and graphs that grow or are kept. */
void tgd_steps_verdict(tgd_text *text, const tgd_report *report, const tgd_finding_row *row)
{
    if (row->kind == TGD_RETAINED_GRAPH) {
        tgd_text_str(text, row->detail == TGD_DETAIL_GROWS ? "backward() runs, but a graph grows with every step"
                                                           : "backward() runs, but graphs of past steps stay alive");
        at(text, report, row->where);
        return;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < report->n_findings; i++) {
        n += report->findings[i].kind == TGD_NOT_IN_OPTIMIZER && report->findings[i].severity == TGD_WARNING;
    }
    tgd_text_str(text, "backward() runs, but ");
    if (n > 1) {
        tgd_text_count(text, n);
        tgd_text_str(text, " parameters never move: ");
    }
    tgd_text_line(text, report->parameters[row->parameter].name, 48);
    tgd_text_str(text, n > 1 ? ", ...: " : " never moves: ");
    switch ((tgd_detail)row->detail) {
    case TGD_DETAIL_NO_OPTIMIZER:
        tgd_text_str(text, "in no optimizer");
        break;
    case TGD_DETAIL_OPTIMIZES_OLD:
        tgd_text_str(text, "replaced after the optimizer was made");
        break;
    case TGD_DETAIL_RATE_ZERO:
    case TGD_DETAIL_NO_SCHEDULER:
        tgd_text_str(text, "its learning rate is 0");
        break;
    default:
        tgd_text_str(text, "its gradient was zeroed before step()");
        at(text, report, row->where);
    }
}
