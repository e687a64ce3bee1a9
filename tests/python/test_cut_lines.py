"""The line of a cut: the block or the decorator that switched grad mode off, and what a report judged late still knows."""
import functools
import pathlib

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchgraphdbg
from torchgraphdbg import record

SOURCE = pathlib.Path(__file__).read_text().splitlines()


def passed_on(f):
    @functools.wraps(f)
    def inner(*args, **keywords):
        return f(*args, **keywords)
    return inner


class Case:
    """Its methods compute something from the parameter w that w gets no gradient from; the line that is to blame says so."""

    def __init__(self):
        self.w = torch.randn(3, requires_grad=True)
        self.x = torch.randn(3, requires_grad=True)

    def decorator(self):
        @torch.no_grad()  # decorator
        def f(x):
            return x * self.w
        return f(self.x).sum() + self.x.sum()

    def decorator_below_another(self):
        @passed_on
        @torch.no_grad()  # decorator_below_another
        def f(x):
            return x * self.w
        return f(self.x).sum() + self.x.sum()

    def decorator_above_another(self):
        @torch.no_grad()  # decorator_above_another
        @passed_on
        def f(x):
            return x * self.w
        return f(self.x).sum() + self.x.sum()

    def decorated_generator(self):
        @torch.no_grad()  # decorated_generator
        def f(x):
            yield x * self.w
        return next(f(self.x)).sum() + self.x.sum()

    def inference_decorator(self):
        @torch.inference_mode()  # inference_decorator
        def f(x):
            return x * self.w
        return f(self.x).sum()

    def inference_block(self):
        with torch.inference_mode():  # inference_block
            h = self.x * self.w
            return h.sum()

    def inference_block_within_another(self):
        with torch.inference_mode():
            pass
        with torch.inference_mode(False):
            with torch.inference_mode():  # inference_block_within_another
                h = self.x * self.w
                return h.sum()

    def set_grad_enabled(self):
        torch.set_grad_enabled(False)  # set_grad_enabled
        y = self.x * self.w
        torch.set_grad_enabled(True)
        return y.sum()

    def block_in_a_reentrant_checkpoint(self):
        def body(x):
            with torch.no_grad():  # block_in_a_reentrant_checkpoint
                return x * self.w
        return checkpoint(body, self.x.detach(), use_reentrant=True).sum()

    def decorator_in_a_reentrant_checkpoint(self):
        @torch.no_grad()  # decorator_in_a_reentrant_checkpoint
        def body(x):
            return x * self.w
        return checkpoint(body, self.x.detach(), use_reentrant=True).sum()


@pytest.mark.parametrize("name", [name for name in vars(Case) if not name.startswith("_")])
def test_line_of_grad_mode(name):
    case = Case()
    (wanted,) = [number for number, text in enumerate(SOURCE, 1) if text.endswith("# " + name)]
    with record():
        report = torchgraphdbg.inspect(getattr(case, name)(), params={"w": case.w})
    cuts = [f for f in report.findings if f.kind in ("unreached-parameter", "no-grad-fn")]
    assert cuts
    for finding in cuts:
        assert (finding.reason, finding.where.line) == ("grad-mode-disabled", wanted), str(finding)
        assert "made under torch.inference_mode" not in finding.message or "inference" in name


def test_checkpoint_that_cuts_by_itself():
    case = Case()

    def body(x):
        with torch.no_grad():
            pass
        return x * case.w

    with record():
        loss = checkpoint(body, case.x.detach(), use_reentrant=True).sum()  # checkpoint
        report = torchgraphdbg.inspect(loss, params={"w": case.w})
    (wanted,) = [number for number, text in enumerate(SOURCE, 1) if text.endswith("# checkpoint")]
    assert {(f.reason, f.where.line) for f in report.findings} == {("reentrant-checkpoint", wanted)}


def test_grad_mode_is_the_same_with_a_recorder():
    def states():
        seen = []
        with torch.inference_mode():
            seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch.ones(1).is_inference()))
            with torch.inference_mode(False):
                seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
        seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
        with pytest.raises(KeyError), torch.inference_mode():
            raise KeyError
        return seen + [torch.is_inference_mode_enabled()]

    enter = torch._C._InferenceMode.__dict__["__enter__"]
    plain = states()
    with record():
        assert states() == plain
        assert torch._C._InferenceMode.__dict__["__enter__"] is enter
    assert states() == plain


def test_numpy_is_named():
    case = Case()
    with record():
        array = (case.w * 2).detach().numpy()
        report = torchgraphdbg.inspect((torch.from_numpy(array) * case.x).sum(), params={"w": case.w})
    (finding,) = report.findings
    assert finding.reason == "detached" and ".numpy()" in finding.hint


def test_replaced_parameter_given_late():
    net = nn.Linear(3, 3)
    with record() as rec:
        loss = net(torch.randn(2, 3)).sum()
        net.weight = nn.Parameter(torch.randn(3, 3))
        now = torchgraphdbg.inspect(loss, params=net)
        loss.backward()
    late = rec.report(params=net)
    for report in (now, late):
        (finding,) = [f for f in report.findings if f.kind == "unreached-parameter"]
        assert (finding.parameter, finding.reason) == ("weight", "rewrapped")
        assert "replacement made after the forward" in finding.message


def test_new_leaf_from_the_value_is_no_replacement():
    """Whether its graph still lives or not: the record says what it was made from."""
    case = Case()
    (wanted,) = [number for number, text in enumerate(SOURCE, 1) if text.endswith("# new leaf")]
    with record() as rec:
        leaf = nn.Parameter(case.w * 2)  # new leaf
        loss = (leaf * case.x).sum()
        now = torchgraphdbg.inspect(loss, params={"w": case.w})
        loss.backward()
    for report in (now, rec.report(params={"w": case.w})):
        (finding,) = report.findings
        assert (finding.reason, finding.where.line) == ("rewrapped", wanted)
        assert "replacement" not in finding.message
