"""Lines of nodes from the program's own anomaly mode, where no recorder was on."""
import pathlib
import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchgraphdbg
from torchgraphdbg import record

SOURCE = pathlib.Path(__file__).read_text().splitlines()


def line(mark):
    """The line of this file that ends with the mark."""
    (found,) = [number for number, text in enumerate(SOURCE, 1) if text.endswith("# " + mark)]
    return found


@pytest.fixture
def anomaly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Anomaly Detection has been enabled"
        with torch.autograd.set_detect_anomaly(True):
            yield


def places(report):
    return {node.name: node.where and (node.where.line, node.where.function) for node in report.graph.nodes}


def forward(x):
    y = x.sin()  # sin
    z = y.exp()  # exp
    return z


def broken(x):
    z = forward(x)  # forward call
    z += 1
    return z.sum()  # sum


def test_lines_and_stacks(anomaly):
    loss = broken(torch.randn(3, requires_grad=True))
    report = torchgraphdbg.inspect(loss)
    found = places(report)
    assert found["SinBackward0"] == (line("sin"), "forward")
    assert found["ExpBackward0"] == (line("exp"), "forward")
    assert found["SumBackward0"] == (line("sum"), "broken")
    assert found["AccumulateGrad"] is None
    (error,) = [f for f in report.findings if f.severity == "error"]
    assert error.where.line == line("exp") and f"made at test_anomaly_lines.py:{line('exp')}" in error.message
    assert [place.line for place in error.stack[:2]] == [line("exp"), line("forward call")]
    assert f"called from test_anomaly_lines.py:{line('forward call')} in broken" in str(report)


def test_nothing_is_made_where_there_is_no_metadata():
    y = torch.randn(3, requires_grad=True).exp().sum()
    report = torchgraphdbg.inspect(y)
    assert {node.where for node in report.graph.nodes} == {None}
    assert y.grad_fn.metadata == {}
    assert torchgraphdbg.inspect(y).graph.nodes[0].where is None  # metadata that says nothing


def test_nodes_made_in_backward(anomaly):
    x = torch.randn(3, requires_grad=True)
    y = x.sin()  # twice
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    report = torchgraphdbg.inspect((g * y).sum())
    cos = next(node for node in report.graph.nodes if node.name == "CosBackward0")
    sin = next(node for node in report.graph.nodes if node.name == "SinBackward0")
    assert cos.made_by == sin and sin.made_by is None
    assert cos.where.line == sin.where.line == line("twice")


def test_third_derivative(anomaly):
    x = torch.randn(3, requires_grad=True)
    y = x.sin()  # thrice
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    report = torchgraphdbg.inspect(h.sum())
    assert [node.where.line for node in report.graph.nodes if node.name == "SinBackward0"] == [line("thrice")]


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x.square()  # in backward


def test_backward_of_a_custom_function_has_its_own_lines(anomaly):
    x = torch.randn(3, requires_grad=True)
    y = Cube.apply(x)  # apply
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    report = torchgraphdbg.inspect(g.sum() + y.sum())
    found = places(report)
    assert found["PowBackward0"] == (line("in backward"), "backward")  # what square() makes
    assert found["CubeBackward"][0] == line("apply")
    made = next(node for node in report.graph.nodes if node.name == "PowBackward0")
    assert made.made_by.name == "CubeBackward"


def test_reentrant_checkpoint_of_a_library_module(anomaly):
    seen = []
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    model[1].register_forward_hook(lambda module, args, out: seen.append(torchgraphdbg.inspect(out))
                                   if out.requires_grad else None)
    x = torch.randn(2, 3, requires_grad=True)
    y = checkpoint(model, x, use_reentrant=True)  # checkpoint call
    y.sum().backward()
    (report,) = seen
    assert places(report)["TanhBackward0"][0] == line("checkpoint call")


def test_recorder_comes_first_and_keeps_what_it_did_not_see(anomaly):
    x = torch.randn(3, requires_grad=True)
    y = x.sin()  # before the recorder
    with record() as rec:
        (y * 2).sum().backward()  # recorded
    for report in (rec.report(), rec.report(params=[("x", x)])):
        found = {node.name: node for node in report.graph.nodes}
        assert found["SinBackward0"].where.line == line("before the recorder")
        assert found["MulBackward0"].where.line == line("recorded")


def test_what_others_put_into_metadata_is_left_alone():
    y = torch.randn(3, requires_grad=True).exp()
    for value in ("text", ["no entry", 3, None], ['  File "a", line x, in f\n'], [], {"a": 1}):
        y.grad_fn.metadata["traceback_"] = value
        assert torchgraphdbg.inspect(y).graph.nodes[0].where is None
        assert y.grad_fn.metadata["traceback_"] is value
    y.grad_fn.metadata["traceback_"] = ['  File "/home/me/net.py", line 31, in forward\n    return x\n']
    y.grad_fn.metadata["parent_"] = "nobody"
    node = torchgraphdbg.inspect(y).graph.nodes[0]
    assert (node.where.file, node.where.line, node.where.function) == ("/home/me/net.py", 31, "forward")
