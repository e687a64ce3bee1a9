"""Custom Functions and hooks that break their contract, judged by what plain PyTorch computes."""
import inspect as python_inspect
import warnings

import pytest
import torch
from torch import nn
from torch.autograd import Function

import torchgraphdbg as tgd


def line_of(function, text):
    lines, first = python_inspect.getsourcelines(function)
    found, = [n for n, line in enumerate(lines, first) if text in line]
    return found


def loud(report):
    return [f for f in report.findings if f.severity in ("error", "warning")]


# ---- gradients that PyTorch refuses ----

def returning(make):
    class Shaky(Function):
        @staticmethod
        def forward(ctx, x, *options):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            if ctx is None:
                return g, g, g, g
            return make(g)  # RETURNS
    return Shaky


@pytest.mark.parametrize("options, make, raises", [
    ((2,), lambda g: g, "incorrect number of gradients"),
    ((), lambda g: (g, g, g), "incorrect number of gradients"),
    ((2,), lambda g: (g[:2], None), "invalid gradient at index 0"),
    ((), lambda g: 3.0, "expected Variable or None"),
    ((2,), lambda g: (g, g), "different than None at position 2"),
])
def test_gradients_that_do_not_fit(options, make, raises):
    x = torch.ones(4, requires_grad=True)
    shaky = returning(make)
    with pytest.raises(RuntimeError, match=raises) as caught:
        with tgd.record(params={"x": x}) as rec:
            loss = shaky.apply(x * 2, *options).sum()
            assert not loud(tgd.inspect(loss))
            loss.backward()
    finding, = loud(rec.report())
    assert (finding.kind, finding.severity, finding.node.name) == ("custom-function", "error", "ShakyBackward")
    assert finding.where.line == line_of(shaky.backward, "# RETURNS") and finding.where.file == __file__
    assert raises in finding.message and finding.hint
    assert "ShakyBackward" in rec.report().verdict
    assert rec.report(params={"x": x}).findings[0].message == finding.message
    if hasattr(caught.value, "__notes__"):
        assert finding.hint in caught.value.__notes__[0]


def test_the_return_that_hands_back_so_many():
    class TwoWays(Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.scale = scale
            return x * scale

        @staticmethod
        def backward(ctx, g):
            if ctx.scale > 1:
                return g * ctx.scale, None, None, g
            return g * ctx.scale, None
    x = torch.ones(4, requires_grad=True)
    with tgd.record() as rec, pytest.raises(RuntimeError):
        TwoWays.apply(x, 3.0).sum().backward()
    assert loud(rec.report())[0].where.line == line_of(TwoWays.backward, "None, None, g")
    with tgd.record() as rec:
        TwoWays.apply(x, 1.0).sum().backward()
    assert rec.report().ok


class TwoInputs(Function):
    """returns: which of its inputs get a gradient; materialise: whether None comes in for an output that is unused"""
    returns, materialise = (True, True), True

    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(TwoInputs.materialise)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, gx, gy):
        gx = None if gx is None or not TwoInputs.returns[0] else gx * 2
        gy = None if gy is None or not TwoInputs.returns[1] else gy * 3
        return gx, gy


@pytest.mark.parametrize("returns", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("leaves", [True, False])
def test_none_where_a_gradient_is_due(returns, leaves, monkeypatch):
    monkeypatch.setattr(TwoInputs, "returns", returns)
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with tgd.record(params={"a": a, "b": b}) as rec:
        x, y = TwoInputs.apply(*((a, b) if leaves else (a * 2, (b * 2).exp())))
        (x + y).sum().backward()
    assert [a.grad is not None, b.grad is not None] == list(returns)
    if all(returns):
        assert rec.report().ok
        return
    finding, = loud(rec.report())
    assert (finding.kind, finding.severity, finding.node.name) == ("custom-function", "warning", "TwoInputsBackward")
    assert finding.where.line == line_of(TwoInputs.backward, "return gx, gy") and "None" in finding.message


@pytest.mark.parametrize("materialise", [True, False])
def test_none_for_an_output_that_is_not_used(materialise, monkeypatch):
    monkeypatch.setattr(TwoInputs, "materialise", materialise)
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with tgd.record() as rec:
        TwoInputs.apply(a * 2, b * 2)[0].sum().backward()
    assert (b.grad is None) == (not materialise) and rec.report().ok


def test_none_for_a_frozen_input(monkeypatch):
    monkeypatch.setattr(TwoInputs, "returns", (True, False))
    a = torch.ones(3, requires_grad=True)
    with tgd.record() as rec:
        sum(TwoInputs.apply(a, torch.ones(3))).sum().backward()
    assert rec.report().ok


def test_none_that_another_way_makes_up_for(monkeypatch):
    monkeypatch.setattr(TwoInputs, "returns", (True, False))
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with tgd.record() as rec:
        x, y = TwoInputs.apply(a, b)
        (x + y + b).sum().backward()
    assert b.grad is not None and rec.report().ok


def test_an_error_of_the_backward_itself_is_not_ours():
    class Fails(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise ValueError("returned an incorrect number of gradients")
    with tgd.record() as rec, pytest.raises(ValueError):
        Fails.apply(torch.ones(2, requires_grad=True)).sum().backward()
    assert rec.report().ok


# ---- gradients written to ----

class Tripled(Function):
    in_place = True

    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g.mul_(3) if Tripled.in_place else g * 3


def w():
    return torch.tensor([1.0, 2.0, 3.0, 4.0])


def branches(a, b):
    return ((torch.tanh(b) + Tripled.apply(a)) * w()).sum()


def residual(a, b):
    return ((a + Tripled.apply(a * 2) + b) * w()).sum()


def alone(a, b):
    return (Tripled.apply(a) * w()).sum() + (b * w()).sum()


def in_a_row(a, b):
    return (Tripled.apply(Tripled.apply(a)) * w() + b * 2).sum()


def as_root(a, b):
    return Tripled.apply((a * b).sum())


def before_the_root(a, b):
    return Tripled.apply((a * b).sum()) + 3


def two_at_the_root(a, b):
    return Tripled.apply((a * w()).sum()) + (b * w()).tanh().sum()


def through_a_view(a, b):
    return (Tripled.apply(a).reshape(2, 2) * w().reshape(2, 2)).sum() + (b * w()).sum()


def accumulated(a, b):
    y = a * b
    return (Tripled.apply(y) * w()).sum() + (Tripled.apply(y) * w()).sum()


def two_outputs_of_one(a, b):
    s = a + b
    return ((s.exp() + Tripled.apply(s)) * w()).sum()


@pytest.mark.parametrize("program", [branches, residual, alone, in_a_row, as_root, before_the_root, two_at_the_root,
                                     through_a_view, accumulated, two_outputs_of_one])
def test_a_backward_that_writes_into_its_gradient(program, monkeypatch):
    def gradients():
        a, b = torch.full((4,), 0.5, requires_grad=True), torch.full((4,), 0.25, requires_grad=True)
        loss = program(a, b)
        loss.backward()
        return a.grad, b.grad
    got = gradients()
    monkeypatch.setattr(Tripled, "in_place", False)
    wrong = not all(map(torch.allclose, got, gradients()))
    monkeypatch.setattr(Tripled, "in_place", True)
    with tgd.record() as rec:
        seen = gradients()
    assert all(map(torch.equal, got, seen))
    found = loud(rec.report())
    assert bool(found) == wrong
    for finding in found:
        assert (finding.kind, finding.severity, finding.op) == ("gradient-modified", "error", "mul_")
        assert finding.node.name == "TripledBackward" and finding.where.line == line_of(Tripled.backward, "mul_")
    assert not found or "a gradient is wrong" in rec.report().verdict


def double(g):
    g.mul_(2)


@pytest.mark.parametrize("first", [True, False], ids=["before the other branch", "after it"])
def test_a_hook_that_writes_into_a_gradient_in_use(first):
    a, b = torch.full((4,), 0.5, requires_grad=True), torch.full((4,), 0.5, requires_grad=True)
    with tgd.record() as rec:
        y, z = a * 2, b * 2
        (z if first else y).register_hook(double)  # z's node runs first
        ((y + z) * w()).sum().backward()
    assert torch.equal((a if first else b).grad, (4 if first else 2) * w())
    if not first:
        assert rec.report().ok
        return
    finding, = loud(rec.report())
    assert (finding.kind, finding.op, finding.node.name) == ("gradient-modified", "mul_", "MulBackward0")
    assert finding.where.line == line_of(double, "mul_") and "hook" in finding.message


@pytest.mark.parametrize("retain", [False, True])
def test_a_hook_that_writes_into_its_own_gradient(retain):
    a = torch.full((4,), 0.5, requires_grad=True)
    with tgd.record() as rec:
        y = a * 2
        if retain:
            y.retain_grad()
        y.register_hook(double)
        (y * w()).sum().backward()
    assert torch.equal(a.grad, 4 * w())
    assert rec.report().ok


def test_a_hook_on_a_leaf():
    lin = nn.Linear(4, 2)
    for p in lin.parameters():
        p.register_hook(lambda g: g.clamp_(-0.1, 0.1))
    with tgd.record(params=lin) as rec:
        lin(torch.ones(3, 4)).square().sum().backward()
    assert rec.report().ok and lin.weight.grad.abs().max() <= 0.1


def test_clipping_and_zeroing_between_backwards():
    lin = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(lin.parameters(), lr=0.1)
    with tgd.record(params=lin) as rec:
        for set_to_none in (True, False, False):
            loss = lin(torch.ones(3, 4)).square().sum()
            loss.backward()
            loss = lin(torch.ones(3, 4)).square().sum()
            loss.backward()
            nn.utils.clip_grad_norm_(lin.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
    assert all(report.ok for report in rec.reports) and len(rec.reports) == 6


# ---- second derivatives ----

X = torch.tensor([1.5, -0.5, 0.75], dtype=torch.double)


class KeptProduct(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.twice = x * 2
        return ctx.twice ** 2

    @staticmethod
    def backward(ctx, g):
        return 4 * ctx.twice * g


class KeptInTwoSteps(Function):
    @staticmethod
    def forward(ctx, x):
        t = x * 2
        ctx.sine = torch.sin(t)
        return torch.cos(t)

    @staticmethod
    def backward(ctx, g):
        return -2 * ctx.sine * g


class SavedIntermediate(Function):
    @staticmethod
    def forward(ctx, x):
        e = torch.exp(x)
        ctx.save_for_backward(e)
        return e + 1

    @staticmethod
    def backward(ctx, g):
        e, = ctx.saved_tensors
        return g * e


class SavedInput(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * 2) ** 2

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 8 * x * g


class InputOnCtx(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x ** 3

    @staticmethod
    def backward(ctx, g):
        return 3 * ctx.x ** 2 * g


class SavedOutput(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        y, = ctx.saved_tensors
        return y * g


class MaskOnCtx(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mask = (x > 0).to(x.dtype)
        ctx.sign = torch.sign(x)
        return x.abs()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.sign


class NumberOnCtx(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale * 2
        return x * ctx.scale

    @staticmethod
    def backward(ctx, g):
        return g * ctx.scale, None


EXACT = {KeptProduct: lambda x: 4 * x ** 2, KeptInTwoSteps: lambda x: torch.cos(2 * x),
         SavedIntermediate: lambda x: torch.exp(x) + 1, SavedInput: lambda x: 4 * x ** 2, InputOnCtx: lambda x: x ** 3,
         SavedOutput: torch.exp, MaskOnCtx: torch.abs, NumberOnCtx: lambda x: x * 6}


@pytest.mark.parametrize("function", EXACT)
def test_a_second_derivative(function):
    def second(f):
        x = X.clone().requires_grad_()
        g, = torch.autograd.grad((f(x) ** 2).sum(), x, create_graph=True)
        loss = (g ** 2).sum()
        return loss, x

    options = (torch.tensor(3.0, dtype=torch.double),) if function is NumberOnCtx else ()
    loss, x = second(EXACT[function])
    exact, = torch.autograd.grad(loss, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with tgd.record() as rec:
            loss, x = second(lambda t: function.apply(t, *options))
            report = tgd.inspect(loss)
            got, = torch.autograd.grad(loss, x)
    wrong = not torch.allclose(got, exact)
    assert wrong == function.__name__.startswith(("Kept", "SavedInter"))
    assert bool(loud(report)) == wrong == bool(loud(rec.report()))
    for finding in loud(report):
        assert (finding.kind, finding.severity) == ("custom-function", "error")
        assert finding.node.name == function.__name__ + "Backward"
        lines, first = python_inspect.getsourcelines(function.forward)
        assert first < finding.where.line < first + len(lines) - 1
        assert "second derivative" in finding.message and "second derivative" in report.verdict


def test_the_first_derivative_is_right():
    x = X.clone().requires_grad_()
    with tgd.record() as rec:
        KeptProduct.apply(x).sum().backward()
    assert rec.report().ok and torch.allclose(x.grad, 8 * X)


def test_a_penalty_on_another_branch():
    """create_graph is on, and the graph that is walked does not pass through the Function's second derivative."""
    x = X.clone().requires_grad_()
    with tgd.record():
        y = x ** 3
        torch.autograd.grad((KeptProduct.apply(x) + y).sum(), x, create_graph=True)
        g, = torch.autograd.grad(y.sum(), x, create_graph=True)
        report = tgd.inspect(g.sum())
    assert not loud(report)
