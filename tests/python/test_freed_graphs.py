"""A second backward through freed parts: who ran the first, and what carried the old graph into the new one."""
import contextlib
import sys

import torch
from torch import nn

from torchgraphdbg import inspect, record


def line():
    return sys._getframe(1).f_lineno


def freed(report):
    (finding, *_) = [f for f in report.findings if f.kind == "graph-freed"]
    assert all(f.kind == "graph-freed" for f in report.findings)
    return finding


class Cell(nn.Module):
    """Keeps its state without detaching it."""

    def __init__(self, keep):
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.keep = keep
        if keep == "buffer":
            self.register_buffer("state", torch.zeros(2, 3))
        elif keep == "list":
            self.states = [torch.zeros(2, 3)]
        else:
            self.state = torch.zeros(2, 3)

    def forward(self, x):
        before = self.states[-1] if self.keep == "list" else self.state
        new = torch.tanh(self.linear(torch.cat([x, before], 1)))
        if self.keep == "list":
            self.states[:] = [new]
        else:
            self.state = new
        return new

    line_of_state = property(lambda self: self.forward.__func__.__code__.co_firstlineno + 2)


def two_steps(model, params):
    with record(params=params) as rec, contextlib.suppress(RuntimeError):
        for _ in range(2):
            loss = model(torch.randn(2, 3)).square().mean()
            loss.backward(); where = line()
    return rec, where


def test_state_that_a_module_keeps():
    for keep, name in (("attribute", "cell.state"), ("buffer", "cell.state"), ("list", "cell.states[0]")):
        model = nn.Sequential()
        model.add_module("cell", Cell(keep))
        rec, where = two_steps(model, model)
        finding = freed(rec.report())
        assert finding.node.name == "TanhBackward0" and finding.where.line == where
        text = f"{name} (made by tanh at test_freed_graphs.py:{model.cell.line_of_state} in module cell)"
        assert text in finding.message and f"detach() {text}" in finding.hint
        assert "carries the old graph into this one" in finding.message


def test_state_of_nobody_we_know():
    model = Cell("attribute")
    rec, where = two_steps(model, None)
    finding = freed(rec.report())
    assert finding.where.line == where
    assert f"the result of tanh at test_freed_graphs.py:{model.line_of_state}" in finding.message
    assert "model" not in finding.hint and "detach() the result of tanh" in finding.hint


def test_running_total():
    w = torch.ones(3, requires_grad=True)
    with record(params={"w": w}) as rec, contextlib.suppress(RuntimeError):
        total = torch.zeros(())
        for _ in range(2):
            total = total * 0.9 + w.exp().sum(); made = line()
            total.log().backward(); where = line()
    finding = freed(rec.report())
    assert finding.where.line == where
    assert f"the result of add at test_freed_graphs.py:{made}" in finding.message


def test_boundary_above_the_node_that_raises():
    """The tensor that is handed on is made by ops that save nothing; what raises lies below."""
    w = torch.ones(3, requires_grad=True)
    with record(params={"w": w}) as rec, contextlib.suppress(RuntimeError):
        shared = w.exp().view(3, 1).t(); made = line()
        shared.sum().backward(); where = line()
        (shared * 2).sum().backward()
    finding = freed(rec.report())
    assert finding.node.name == "ExpBackward0" and finding.where.line == where
    assert f"the result of t at test_freed_graphs.py:{made}" in finding.message


def test_same_graph_again():
    w = torch.ones(3, requires_grad=True)
    with record(params={"w": w}) as rec, contextlib.suppress(RuntimeError):
        loss = w.exp().sum()
        loss.backward(); where = line()
        loss.backward()
    finding = freed(rec.report())
    assert finding.where.line == where and "same graph again, from the root on" in finding.message
    assert "run the forward again" in finding.hint and "detach" not in finding.hint


def test_before_the_second_backward():
    model = Cell("attribute")
    with record(params=model):
        for _ in range(2):
            loss = model(torch.randn(2, 3)).square().mean()
            report = inspect(loss, params=model)
            if report.ok:
                loss.backward()
    assert "state (made by tanh" in freed(report).message


def test_without_a_recorder():
    w = torch.ones(3, requires_grad=True)
    shared = w.exp()
    shared.sum().backward()
    finding = freed(inspect((shared * 2).sum()))
    assert finding.where is None and "carries" not in finding.message and "detach()" in finding.hint


def test_inner_gradient_frees_features():
    a, b = nn.Linear(3, 3), nn.Linear(3, 1)
    with record(params=nn.ModuleDict({"a": a, "b": b})) as rec, contextlib.suppress(RuntimeError):
        features = torch.sigmoid(a(torch.randn(2, 3))); made = line()
        torch.autograd.grad(b(features).mean(), list(b.parameters()) + list(a.parameters())); where = line()
        b(features).square().mean().backward()
    finding = freed(rec.report())
    assert finding.where.line == where
    assert f"the result of sigmoid at test_freed_graphs.py:{made}" in finding.message


# ---- healthy ----

def test_kept_or_detached_or_summed():
    cell = nn.Linear(6, 3)
    with record(params=cell) as rec:
        state = torch.zeros(2, 3)
        for _ in range(4):
            state = torch.tanh(cell(torch.cat([torch.randn(2, 3), state.detach()], 1)))
            state.square().mean().backward()
            assert rec.report().ok
        shared = torch.tanh(cell(torch.randn(2, 6)))
        shared.sum().backward(retain_graph=True)
        shared.square().sum().backward()
        assert rec.report().ok
        losses = []
        for _ in range(4):
            state = torch.tanh(cell(torch.cat([torch.randn(2, 3), state.detach()], 1)))
            losses.append(state.square().mean())
        sum(losses).backward()
        assert rec.report().ok
