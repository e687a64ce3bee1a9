"""Graphs that something keeps alive over steps: the line, the bytes; and programs that keep them on purpose."""
import gc
import sys
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchgraphdbg
from torchgraphdbg import inspect, record


def net():
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))


def loss_of(model):
    return model(torch.randn(8, 16)).square().mean()


def line():
    return sys._getframe(1).f_lineno


def retained(report):
    return [f for f in report.findings if f.kind == "retained-graph"]


def check(report, severity, where, *words):
    (finding,) = retained(report)
    assert (finding.severity, finding.where.line, finding.where.file) == (severity, where, __file__), str(report)
    for word in words:
        assert word in finding.message, finding.message
    assert finding.hint and report.ok == (severity == "note")
    return finding


# ---- over steps ----

@pytest.mark.parametrize("in_place", [False, True])
def test_running_total(in_place):
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0.0
    with record(params=model) as rec:
        for k in range(5):
            opt.zero_grad()
            loss = loss_of(model)
            loss.backward()
            opt.step()
            if in_place:
                total += loss; where = line()
            else:
                total = total + loss; where = line()
            assert rec.report().ok == (k < 2)
    finding = check(rec.report(), "warning", where, "grows with every step", f"test_retained_graphs.py:{where}", "add")
    assert "loss.item()" in finding.hint and "a graph grows with every step" in rec.report().verdict
    del total
    assert not retained(rec.report(params=model))


def test_running_total_before_the_backward():
    model = net()
    total = torch.zeros(())
    with record(params=model) as rec:
        for k in range(5):
            loss = loss_of(model)
            total = total + loss.sqrt(); where = line()
            loss.backward()
    assert where in {f.where.line for f in retained(rec.report())}
    assert {f.severity for f in retained(rec.report())} == {"warning"} and total.requires_grad


def test_known_before_the_next_backward():
    model = net()
    total = 0.0
    with record(params=model):
        for _ in range(4):
            loss = loss_of(model)
            loss.backward()
            total = total + loss; where = line()
        check(inspect(loss_of(model), params=model), "warning", where)


@pytest.mark.parametrize("with_optimizer", [False, True])
def test_state_carried_with_its_graph(with_optimizer):
    cell = nn.RNNCell(3, 4)
    head = nn.Linear(4, 1)
    opt = torch.optim.SGD(head.parameters(), lr=0.1)
    state = torch.zeros(2, 4)
    with record(params=cell) as rec:
        for _ in range(5):
            state = cell(torch.randn(2, 3), state); where = line()
            head(state.clone()).mean().backward(retain_graph=True)
            if with_optimizer:
                opt.step()
    check(rec.report(), "warning" if with_optimizer else "note", where, "rnn_tanh_cell", "of earlier steps are alive")


def test_losses_in_a_list():
    model = net()
    losses = []
    with record(params=model) as rec:
        for _ in range(5):
            loss = loss_of(model)
            loss.backward()
            losses.append(loss)
    finding = check(rec.report(), "note", loss_of.__code__.co_firstlineno + 1, "5 tensors that mean made",
                    "alive with their graphs")
    assert "item()" in finding.hint


def test_outputs_in_a_cache_with_what_they_saved():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.cache = net(), []

        def forward(self, x):
            y = self.body(x)
            self.cache.append(y.exp())
            return y
    model = Model()
    with record(params=model) as rec:
        for _ in range(5):
            loss_of(model).backward()
    finding = check(rec.report(), "warning", Model.forward.__code__.co_firstlineno + 2, "exp", "in 5 steps")
    assert "0 bytes" not in finding.message and "past steps stay alive" in rec.report().verdict


def test_activations_stored_by_a_hook():
    model = net()
    seen = []
    model[1].register_forward_hook(lambda module, args, out: seen.append(out))
    with record(params=model) as rec:
        for _ in range(4):
            loss_of(model).backward()
    (finding,) = retained(rec.report())
    assert "tanh" in finding.message and finding.severity == "note"


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.kept = y
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.kept


class KeepsInSetup(Keeps):
    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.kept = output


class LetsGo(Keeps):
    @staticmethod
    def backward(ctx, grad):
        y = ctx.kept
        del ctx.kept
        return grad * y


@pytest.mark.parametrize("function, method, below", [(Keeps, Keeps.forward, 3),
                                                     (KeepsInSetup, KeepsInSetup.setup_context, 2)])
def test_output_kept_on_ctx(function, method, below):
    model = net()
    where = method.__code__.co_firstlineno + below
    before = []
    with record(params=model) as rec:
        for k in range(4):
            loss = function.apply(model(torch.randn(8, 16))).mean()
            before.append(inspect(loss, params=model))
            loss.backward()
    check(before[0], "note", where, "ctx.kept is an output of the custom Function itself", "(1 such now)")
    finding = check(rec.report(), "warning", where, "(4 such now)", "for ever")
    assert "save_for_backward" in finding.hint
    for ctx in [o for o in gc.get_objects() if type(o).__name__ == f"{function.__name__}Backward"]:
        if "kept" in vars(ctx):
            del ctx.kept
    gc.collect()
    assert not retained(rec.report(params=model))


def test_output_on_ctx_that_backward_lets_go():
    model = net()
    silent(lambda k: LetsGo.apply(model(torch.randn(8, 16))).mean().backward(), model)


# ---- a gradient with a graph ----

def test_gradient_with_a_graph():
    model = net()
    with record(params=model) as rec, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = loss_of(model)
        loss.backward(create_graph=True); where = line()
        check(inspect(loss_of(model), params=model), "note", where, "0.weight and of 3 more leaves",
              "has a graph of its own")
    finding = check(rec.report(), "note", where, "create_graph=True")
    assert "autograd.grad" in finding.hint and finding.parameter == "0.weight"
    (alone,) = retained(inspect(loss_of(model), params=model))  # no recorder: no line
    assert alone.where is None and alone.severity == "note"
    model.zero_grad()
    assert not retained(inspect(loss_of(model), params=model))
    assert not retained(rec.report(params=model))


# ---- parts that wait ----

def encoder():
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))


def test_outputs_of_an_evaluation():
    model, kept = encoder(), []
    with record(params=model):
        for _ in range(6):
            kept.append(model(torch.randn(8, 16))); where = line()
        report = inspect(torch.cat(kept).mean(), params=model)
    finding = check(report, "note", where, "6 like parts")
    assert "no_grad" in finding.hint and finding.op == "linear"
    held = 6 * 8 * (16 + 32 + 32) * 4  # each part's input, what GELU reads, what the second Linear reads; float32
    assert f"{held / 1000:.1f} kB" in finding.message
    assert not retained(inspect(torch.cat(kept).mean(), params=model))


def test_losses_added_up():
    model = net()
    with record(params=model) as rec:
        total = 0
        for _ in range(6):
            total = total + loss_of(model); where = line()
        check(inspect(total, params=model), "note", where, "6 like parts")
        total.backward()
    assert rec.report().ok and not retained(rec.report())


# ---- on purpose ----

def silent(step, params, n=5):
    with record(params=params) as rec:
        for k in range(n):
            step(k)
            report = rec.report()
            assert report.ok and not retained(report), str(report)
    assert rec.report().ok


def test_plain_training_with_detached_totals():
    model = net()
    opt = torch.optim.Adam(model.parameters())
    history, total, kept = [], 0.0, torch.zeros(())

    def step(k):
        nonlocal total, kept
        opt.zero_grad()
        loss = loss_of(model)
        loss.backward()
        opt.step()
        history.append(loss.detach())
        total += loss.item()
        kept = kept + loss.detach()
    silent(step, model)


def test_truncated_backward_through_time():
    cell, head = nn.GRUCell(3, 4), nn.Linear(4, 1)
    opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
    state = torch.zeros(2, 4)

    def step(k):
        nonlocal state
        state = state.detach()
        losses = []
        for _ in range(4):
            state = cell(torch.randn(2, 3), state)
            losses.append(head(state).square().mean())
        opt.zero_grad()
        torch.stack(losses).sum().backward()
        opt.step()
    silent(step, cell)


def test_accumulation_by_adding_losses():
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(k):
        opt.zero_grad()
        total = 0
        for _ in range(5):
            total = total + loss_of(model)
        total.backward()
        opt.step()
    silent(step, model)


def test_several_heads_over_kept_features():
    body, heads = net()[:2], nn.ModuleList(nn.Linear(32, 1) for _ in range(5))

    def step(k):
        features = body(torch.randn(8, 16))
        for head in heads:
            head(features).mean().backward(retain_graph=True)
    silent(step, body)


def test_inner_steps_of_meta_learning():
    for second_order in (False, True):
        w = torch.randn(3, requires_grad=True)
        opt = torch.optim.SGD([w], lr=0.1)

        def step(k):
            fast = w * 1
            for _ in range(5):
                loss = (fast.exp() - 1).square().sum()
                (g,) = torch.autograd.grad(loss, fast, create_graph=second_order)
                fast = fast - 0.01 * g
            opt.zero_grad()
            fast.square().sum().backward()
            opt.step()
        with record(params={"w": w}) as rec:
            for k in range(4):
                step(k)
                assert rec.report().ok, str(rec.report())


def test_gradient_penalty():
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(k):
        x = torch.randn(8, 16, requires_grad=True)
        (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        opt.zero_grad()
        (loss_of(model) + g.square().mean()).backward()
        opt.step()
    silent(step, model)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    model = net()

    def step(k):
        model.zero_grad()
        x = torch.randn(8, 16, requires_grad=True)
        checkpoint(model, x, use_reentrant=reentrant).square().mean().backward()
    silent(step, model)


def test_rollouts_that_wait_while_others_learn():
    """One policy's log-probabilities wait for their backward while another policy takes its steps."""
    waiting, busy = net(), net()
    opt = torch.optim.SGD(busy.parameters(), lr=0.1)
    kept = []
    with record() as rec:
        for _ in range(5):
            kept.append(waiting(torch.randn(8, 16)).mean())
            opt.zero_grad()
            loss_of(busy).backward()
            opt.step()
            assert rec.report().ok, str(rec.report())
        torch.stack(kept).sum().backward()
        assert rec.report().ok, str(rec.report())


def test_last_output_kept_for_a_look():
    model = net()
    seen = {}
    model[1].register_forward_hook(lambda module, args, out: seen.update(out=out))
    silent(lambda k: loss_of(model).backward(), model)


def test_reports_keep_nothing():
    model = net()
    total = 0.0
    with record(params=model) as rec:
        for _ in range(4):
            loss = loss_of(model)
            loss.backward()
            total = total + loss
    report = rec.report()
    assert retained(report) and isinstance(report, torchgraphdbg.Report)
    dead = weakref.ref(total)
    del total
    gc.collect()
    assert dead() is None
