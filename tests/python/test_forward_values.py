"""A loss that is NaN or infinite: where the forward made it, whether or not a gradient shows it."""
import math

import pytest
import torch
import torchgraphdbg as tgd
from torch import nn
from torch.nn import functional as F


def line_of(function, text):
    import inspect
    lines, first = inspect.getsourcelines(function)
    found = [first + i for i, line in enumerate(lines) if line.rstrip().endswith("# " + text)]
    assert len(found) == 1
    return found[0]


def empty_mean(out):
    chosen = out[torch.zeros(5, dtype=torch.bool)]
    extra = chosen.mean()  # CULPRIT
    return out.square().mean() + extra


def all_ignored(out):
    return F.cross_entropy(out, torch.full((5,), -100))  # CULPRIT


def negative_root(out):
    spread = (-out.square().mean() - 1).sqrt()  # CULPRIT
    return spread + out.mean()


def infinity_minus_itself(out):
    large = (out.abs() + 1) * 3e38 * 10  # CULPRIT
    return (large - large.mean()).mean()


def masked_row(out):
    score = out.masked_fill(torch.ones(5, 3, dtype=torch.bool), -math.inf)
    return score.softmax(1).mean()  # CULPRIT


@pytest.mark.parametrize(("make", "node"), [
    (empty_mean, "MeanBackward0"), (all_ignored, "NllLossBackward0"), (negative_root, "SqrtBackward0"),
    (infinity_minus_itself, None), (masked_row, "SoftmaxBackward0")], ids=lambda each: getattr(each, "__name__", None))
def test_the_op_that_made_it_first(make, node):
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    with tgd.record(params=net) as rec:
        loss = make(net(torch.randn(5, 4)))
        loss.backward()
    assert loss.isnan()
    found = [f for f in rec.report().findings if f.kind == "nan-forward"]
    assert len(found) == 1 and found[0].severity == "warning" and found[0].hint
    assert found[0].where.line == line_of(make, "CULPRIT") and found[0].where.file == __file__
    assert node is None or found[0].node.name == node


def test_it_is_known_before_backward():
    net = nn.Linear(4, 3)
    with tgd.record():
        report = tgd.inspect(empty_mean(net(torch.randn(5, 4))))
    assert [f.kind for f in report.findings] == ["nan-forward"] and "mean" in report.verdict


def test_an_infinite_loss():
    weight = torch.tensor([0.0, 1.0], requires_grad=True)
    with tgd.record() as rec:
        loss = -weight.log().sum()
        loss.backward()
    assert loss.isinf()
    found = next(f for f in rec.report().findings if f.kind == "inf-forward")
    assert found.node.name == "LogBackward0" and found.op == "log"


def test_a_weight_that_is_nan():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        net[2].weight[0, 0] = math.nan
    with tgd.record(params=net) as rec:
        net(torch.randn(5, 4)).mean().backward()
    found = next(f for f in rec.report().findings if f.kind == "nan-forward")
    assert found.node.name == "AddmmBackward0" and found.node.module == "2"


def attention(x, mask):
    return ((x @ x.transpose(1, 2)) + mask).softmax(-1) @ x


@pytest.mark.parametrize("make", [
    lambda x: attention(x, torch.full((3, 3), -math.inf).triu(1)).mean(),
    lambda x: torch.where(x > 0, x.log(), torch.tensor(0.0)).mean() + 1,
    lambda x: torch.nan_to_num(x.sqrt()).mean(),
    lambda x: x.masked_fill(x > 0, -math.inf).amax(-1).clamp(-1, 1).mean(),
], ids=["mask", "where", "nan_to_num", "amax"])
def test_what_does_not_reach_the_loss_is_no_fault(make):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 3, requires_grad=True)
    with tgd.record():
        loss = make(x)
        report = tgd.inspect(loss)
    assert loss.isfinite() and not [f for f in report.findings if f.kind.endswith("-forward")]


def test_a_mask_as_the_root_is_no_fault():
    x = torch.randn(3, 3, requires_grad=True)
    with tgd.record():
        report = tgd.inspect(x.masked_fill(torch.ones(3, 3, dtype=torch.bool).triu(1), -math.inf))
    assert not [f for f in report.findings if f.kind.endswith("-forward")]


def test_a_scaled_loss_that_overflows_is_a_note():
    x = torch.full((3,), 1e30, requires_grad=True)
    with tgd.record():
        report = tgd.inspect(x.mean() * torch.tensor(2.0 ** 40))
    found = next(f for f in report.findings if f.kind == "inf-forward")
    assert found.severity == "note" and "scale" in found.hint
