"""Why a parameter gets no gradient: the reason and the line, where a recorder was on."""
import inspect
import sys

import pytest
import torch
from torch import nn

import torchgraphdbg

HERE = sys.modules[__name__].__file__


def under_inference_mode(net, head, x):
    with torch.inference_mode():
        return net(x).mean()


def under_a_decorator(net, head, x):
    @torch.no_grad()  # CUT
    def score(t):
        return net(t).mean()
    return score(x)


def set_off_and_on(net, head, x):
    torch.set_grad_enabled(False)  # CUT
    y = net(x).mean()
    torch.set_grad_enabled(True)
    return y


def item(net, head, x):
    return torch.tensor(net(x).mean().item())  # CUT


def item_of_a_root(net, head, x):
    scale = net(x).mean().item()  # CUT
    return head(x.new_ones(2, 3)).mean() * scale


def numpy(net, head, x):
    return torch.from_numpy(net(x).detach().numpy()).mean()  # CUT


def tolist(net, head, x):
    y = torch.tensor(net(x).tolist())  # CUT
    return head(y).mean()


def tolist_of_a_parameter(net, head, x):
    scale = torch.tensor(net.weight.tolist())  # CUT
    return head(x @ scale.t()).mean()


def compared(net, head, x):
    return (net(x) > 0).float().mean()  # CUT


def argmax(net, head, x):
    return net(x).argmax(1).float().mean()  # CUT


def cast(net, head, x):
    return net(x).long().float().mean()  # CUT


def detached(net, head, x):
    return head(net(x).detach()).mean()  # CUT


def rewrapped(net, head, x):
    return head(nn.Parameter(net(x))).mean()  # CUT


def dropped(net, head, x):
    net(x)  # CUT
    return head(x).mean()


def never(net, head, x):
    return head(x).mean()


CASES = [
    (under_inference_mode, "grad-mode-disabled"),
    (under_a_decorator, "grad-mode-disabled"),
    (set_off_and_on, "grad-mode-disabled"),
    (item, "left-torch"),
    (item_of_a_root, "left-torch"),
    (numpy, "detached"),
    (tolist, "left-torch"),
    (tolist_of_a_parameter, "left-torch"),
    (compared, "not-differentiable-op"),
    (argmax, "not-differentiable-op"),
    (cast, "integer-output"),
    (detached, "detached"),
    (rewrapped, "rewrapped"),
    (dropped, "output-dropped"),
    (never, "never-used"),
]


@pytest.mark.parametrize(("program", "reason"), CASES, ids=lambda case: getattr(case, "__name__", case))
def test_reason_and_line(program, reason):
    torch.manual_seed(0)
    net, head = nn.Linear(3, 3), nn.Linear(3, 1)
    with torchgraphdbg.record() as rec:
        loss = program(net, head, torch.randn(2, 3))
        report = torchgraphdbg.inspect(loss, params=dict(net.named_parameters()))
        if loss.requires_grad:
            loss.backward()
    assert net.weight.grad is None
    reports = [report] if not rec.reports else [report, rec.report(params=dict(net.named_parameters()))]
    lines, first = inspect.getsourcelines(program)
    marked = [first + i for i, line in enumerate(lines) if line.endswith("# CUT\n")]
    for judged in reports:
        found = {f.parameter: f for f in judged.findings if f.kind == "unreached-parameter"}
        assert found["weight"].reason == reason
        where = found["weight"].where
        if marked:
            assert (where.file, where.line) == (HERE, marked[0])
        elif reason == "never-used":
            assert where is None


def test_parameter_of_the_same_shape_that_nobody_named_is_no_replacement():
    net, head, unused = nn.Linear(3, 3), nn.Linear(3, 3), nn.Parameter(torch.ones(3))
    report = torchgraphdbg.inspect(head(net(torch.ones(2, 3))).sum(), params={"unused": unused, "net": net.weight})
    (finding,) = (f for f in report.findings if f.kind == "unreached-parameter")
    assert (finding.parameter, finding.reason) == ("unused", None)


def test_parameter_that_was_replaced():
    net = nn.Linear(3, 3)
    loss = net(torch.ones(2, 3)).sum()
    net.weight = nn.Parameter(torch.ones(3, 3))
    report = torchgraphdbg.inspect(loss, params=net)
    (finding,) = (f for f in report.findings if f.kind == "unreached-parameter")
    assert (finding.parameter, finding.reason) == ("weight", "rewrapped")


def test_an_earlier_recording_that_overflowed_hides_nothing():
    with torchgraphdbg.record():
        for _ in range(5000):  # more backwards than are kept
            torch.ones(1, requires_grad=True).sum().backward()
    test_reason_and_line(never, "never-used")
