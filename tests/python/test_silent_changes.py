"""What changes behind the version check, judged by the gradients that plain PyTorch gives.

Each program is built twice, with its in-place write and with the same values out of place. Where the two gradients
differ, and PyTorch raises nothing, there must be a silently-modified error; where they agree there must be nothing.
"""
import contextlib
import inspect as python_inspect

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, set_checkpoint_early_stop

import torchgraphdbg as tgd

PROGRAMS = {}


def program(**expected):
    """A program(p, in_place) -> loss. p: a parameter (6, 6) and what else it wants to be given."""
    def add(function):
        PROGRAMS[function.__name__] = (function, expected)
        return function
    return add


def run(function, in_place):
    torch.manual_seed(0)
    p = nn.Parameter(torch.randn(6, 6, dtype=torch.double))
    return p, function(p, in_place)


def again(f, *args, **kwargs):
    return checkpoint(f, *args, use_reentrant=False, **kwargs)


X = torch.linspace(-1, 1, 36, dtype=torch.double).reshape(6, 6)
MASK = (torch.arange(36).reshape(6, 6) % 3 > 0).double()


def times(a, b, in_place):
    return a.mul_(b) if in_place else a * b


# ---- checkpoints: harm ----

@program(node="SoftmaxBackward0", op="mul_")
def softmax_masked(p, in_place):
    def f(x):
        a = (x @ p).softmax(-1)
        a = times(a, MASK, in_place)
        return a @ p
    return again(f, X).square().sum()


@program(node="SigmoidBackward0", op="mul_")
def written_through_a_view(p, in_place):
    def f(x):
        a = (x @ p).sigmoid()
        if in_place:
            a[:, 1:3].mul_(0.5)
        else:
            a = torch.cat([a[:, :1], a[:, 1:3] * 0.5, a[:, 3:]], 1)
        return a.exp()
    return again(f, X).sum()


@program(node="TanhBackward0", op="copy_")
def written_by_index_and_used_before(p, in_place):
    def f(x):
        a = (x @ p).tanh()
        b = a + 1
        if in_place:
            a[0] = X[1]
        else:
            a = torch.cat([X[1:2], a[1:]])
        return a.square() + b
    return again(f, X).sum()


@program(node="SoftmaxBackward0", op="fill_")
def column_of_softmax_overwritten(p, in_place):
    def f(x):
        a = (x @ p).softmax(-1)
        if in_place:
            a[:, 0] = 3
        else:
            a = torch.cat([torch.full_like(a[:, :1], 3), a[:, 1:]], 1)
        return a.square()
    return again(f, X).sum()


@program(node="ReluBackward0", op="mul_")
def relu_turned_around(p, in_place):
    return again(lambda x: times((x @ p).relu(), -2, in_place).exp(), X).sum()


@program(node="SigmoidBackward0", op="sub_")
def module_in_place(p, in_place):
    relu = nn.ReLU(inplace=in_place)

    def f(x):
        h = (x @ p).sigmoid()
        if in_place:
            h.sub_(0.5)
            return relu(h).square()
        return relu(h - 0.5).square()
    return again(f, X).sum()


@program(node="ExpBackward0", op="add_")
def inner_of_two_checkpoints(p, in_place):
    def inner(x):
        a = (x @ p).exp()
        if in_place:
            a.add_(3)
        else:
            a = a + 3
        return a.log()
    return again(lambda x: again(inner, x).sin(), X).sum()


@program(node="SigmoidBackward0", op="mul_")
def checkpoint_sequence(p, in_place):
    class Block(nn.Module):
        def forward(self, x):
            return times((x @ p).sigmoid(), 2 * MASK, in_place) @ p
    return checkpoint_sequential(nn.Sequential(Block(), Block(), nn.Tanh()), 3, X, use_reentrant=False).square().sum()


@program(node="SigmoidBackward0", op="mul_")
def last_write_without_early_stop(p, in_place):
    with set_checkpoint_early_stop(False):
        return again(lambda x: times((x @ p).sigmoid(), 2, in_place), X).square().sum()


@program(node="SigmoidBackward0", op="tanh_")
def write_that_saves_its_own_result(p, in_place):
    def f(x):
        a = (x @ p).sigmoid()
        return a.tanh_() if in_place else a.tanh()
    return again(f, X).sum()


@program(node="SigmoidBackward0", op="mul_")
def without_rng_state(p, in_place):
    return again(lambda x: times((x @ p).sigmoid(), MASK * 2, in_place).exp(), X, preserve_rng_state=False).sum()


@program(node="MulBackward0", op="mul_")
def captured_tensor_changed_after(p, in_place):
    h = X @ p
    loss = again(lambda x: (h * x).exp(), X).sum()
    if in_place:
        with torch.no_grad():
            h.mul_(1.5)
    return loss


@program(op="add_", parameter=True)
def parameter_changed_after(p, in_place):
    loss = again(lambda x: (x @ p).sigmoid(), X).sum()
    if in_place:
        with torch.no_grad():
            p.add_(1)
    return loss


@program(op="SGD", parameter=True)
def optimizer_steps_in_between(p, in_place):
    lin = nn.Linear(6, 6, dtype=torch.double)
    with torch.no_grad():
        lin.weight.copy_(X)
        lin.bias.zero_()
    loss = again(lambda x: lin(x @ p).sigmoid(), X).sum()
    if in_place:
        lin.weight.grad, lin.bias.grad = X.clone(), X[0].clone()
        torch.optim.SGD(lin.parameters(), lr=1.0).step()
    return loss


# ---- checkpoints: none ----

@program()
def written_by_index(p, in_place):
    """No gradient passes where it was overwritten, and tanh reads each value for its own gradient alone."""
    def f(x):
        a = (x @ p).tanh()
        if in_place:
            a[0] = X[1]
            a[1] = X[0]
        else:
            a = torch.cat([X[1:2], X[:1], a[2:]])
        return a.square()
    return again(f, X).sum()


@program()
def masked_with_zeros_and_ones(p, in_place):
    return again(lambda x: times((x @ p).sigmoid(), MASK, in_place).exp(), X).sum()


@program()
def relu_scaled(p, in_place):
    return again(lambda x: times((x @ p).relu(), 2, in_place).exp(), X).sum()


@program()
def relu_and_dropout(p, in_place):
    def f(x):
        torch.manual_seed(3)
        return nn.functional.dropout((x @ p).relu(), 0.5, True, in_place).exp()
    return again(f, X).sum()


@program()
def scaled_last(p, in_place):
    return again(lambda x: times((x @ p).sigmoid(), 2, in_place), X).square().sum()


@program()
def masked_last(p, in_place):
    """mul_ saves the mask before it writes, and the checkpoint stops there."""
    return again(lambda x: times((x @ p).sigmoid(), MASK, in_place), X).square().sum()


@program()
def output_changed_outside(p, in_place):
    return times(again(lambda x: (x @ p).sigmoid(), X), 2, in_place).square().sum()


@program()
def written_before_it_is_saved(p, in_place):
    return again(lambda x: times(x @ p, MASK, in_place).sigmoid().exp(), X).sum()


@program()
def relu_of_a_product(p, in_place):
    def f(x):
        h = x @ p
        return (h.relu_() if in_place else h.relu()).exp()
    return again(f, X).sum()


@program()
def another_half_written(p, in_place):
    def f(x):
        h = x @ p
        a, b = h[:3].sigmoid(), h[3:]
        b = times(b, 2, in_place)
        return torch.cat([a.exp(), b.exp()])
    return again(f, X).sum()


@program()
def parameter_changed_after_the_last_save(p, in_place):
    """x @ p saves x alone, and is not computed again."""
    loss = again(lambda x: x @ p, X).sum()
    if in_place:
        with torch.no_grad():
            p.add_(1)
    return loss


@program()
def running_statistics(p, in_place):
    norm = nn.BatchNorm1d(6, dtype=torch.double)
    return again(lambda x: norm(x @ p).sigmoid().exp(), X).sum()


@program()
def counter_in_the_forward(p, in_place):
    calls = torch.zeros(1, dtype=torch.double)

    def f(x):
        if in_place:
            calls.add_(1)
        return (x @ p).sigmoid().exp()
    return again(f, X).sum()


@program()
def preallocated_in_the_frame(p, in_place):
    def f(x):
        out = torch.zeros(6, 6, dtype=torch.double)
        if in_place:
            out[:3] = (x @ p)[:3].sigmoid()
            out[3:] = (x @ p)[3:].tanh()
        else:
            out = torch.cat([(x @ p)[:3].sigmoid(), (x @ p)[3:].tanh()])
        return out.exp()
    return again(f, X).sum()


# ---- saved-tensor hooks ----

def keep(x):
    return x


@program(node="SigmoidBackward0", op="mul_")
def hooks_that_keep(p, in_place):
    with saved_tensors_hooks(keep, keep):
        return times((X @ p).sigmoid(), 2, in_place).exp().sum()


@program(node="SigmoidBackward0", op="mul_")
def hooks_that_keep_in_a_tuple(p, in_place):
    with saved_tensors_hooks(lambda x: (x.device, [x.detach()]), lambda t: t[1][0]):
        return times((X @ p).sigmoid(), 2, in_place).exp().sum()


@program(node="SigmoidBackward0", op="mul_")
def offload_of_what_is_there_already(p, in_place):
    with save_on_cpu():
        return times((X @ p).sigmoid(), 2, in_place).exp().sum()


@program(node="ExpBackward0", op="add_")
def written_when_the_hooks_are_gone(p, in_place):
    with saved_tensors_hooks(keep, keep):
        y = (X @ p).exp()
    return (y.add_(2) if in_place else y + 2).sum()


@program()
def hooks_that_copy(p, in_place):
    with saved_tensors_hooks(torch.clone, keep):
        return times((X @ p).sigmoid(), 2, in_place).exp().sum()


@program()
def hooks_that_fill_a_buffer(p, in_place):
    def pack(x):
        return torch.empty_like(x).copy_(x.detach())
    with saved_tensors_hooks(pack, keep):
        return times((X @ p).sigmoid(), 2, in_place).exp().sum()


@program()
def hooks_that_store(p, in_place):
    store = []

    def pack(x):
        store.append(x.detach().clone())
        return len(store) - 1
    with saved_tensors_hooks(pack, store.__getitem__):
        return times((X @ p).sigmoid(), 2, in_place).exp().sum()


@program()
def another_half_written_under_hooks(p, in_place):
    with saved_tensors_hooks(keep, keep):
        h = X @ p
        a, b = h[:3].sigmoid(), h[3:]
        return torch.cat([a.exp(), times(b, 2, in_place)]).sum()


# ---- no hooks ----

@program(node="SigmoidBackward0", op="mul_")
def data(p, in_place):
    a = (X @ p).sigmoid()
    loss = a.exp().sum()
    if in_place:
        a.data.mul_(2)
    return loss


def lines_of(function):
    lines, first = python_inspect.getsourcelines(function)
    return range(first, first + len(lines))


def silent_errors(report):
    return [f for f in report.findings if f.kind == "silently-modified" and f.severity == "error"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gradient_that_comes_out_wrong(name):
    function, expected = PROGRAMS[name]
    p, loss = run(function, False)
    exact, = torch.autograd.grad(loss, p)
    with tgd.record() as rec:
        p, loss = run(function, True)
        before = tgd.inspect(loss, params={"p": p})
        got, = torch.autograd.grad(loss, p)
    wrong = not torch.allclose(got, exact)
    assert wrong == bool(expected), "the program is not what it says it is"
    found = silent_errors(before)
    assert bool(found) == wrong, str(before)
    assert bool(silent_errors(rec.report())) == wrong
    if not wrong:
        assert before.ok, str(before)
        return
    lines = [n for f in (function, times) for n in lines_of(f)]
    assert all(f.where.file == __file__ and f.where.line in lines for f in found), str(before)
    if expected.get("node"):
        assert expected["node"] in [f.node.name for f in found]
        assert expected["op"] in [f.op for f in found if f.node.name == expected["node"]]
    assert all("gradient will be wrong" in f.message or "wrong gradient" in f.message for f in found)
    assert all(f.hint for f in found)


@pytest.mark.parametrize("early_stop", [True, False])
def test_the_line_and_the_saved_tensor(early_stop):
    p = nn.Parameter(X.clone())

    def f(x):
        a = (x @ p).softmax(-1)
        a.mul_(MASK)
        return a @ p
    line = f.__code__.co_firstlineno + 2
    with tgd.record(), contextlib.ExitStack() as stack:
        stack.enter_context(set_checkpoint_early_stop(early_stop))
        report = tgd.inspect(again(f, X).sum())
    finding, = silent_errors(report)
    assert (finding.node.name, finding.saved, finding.op, finding.where.line) == ("SoftmaxBackward0", "result", "mul_",
                                                                                  line)
    assert "gradient will be wrong at SoftmaxBackward0" in report.verdict


def test_no_hook_runs_and_nothing_is_kept():
    calls = []

    def unpack(x):
        calls.append(x)
        return x
    p = nn.Parameter(X.clone())
    with tgd.record():
        with saved_tensors_hooks(keep, unpack):
            a = (X @ p).sigmoid()
            loss = a.mul_(2).exp().sum()
        count = torch._C._storage_Use_Count(a.untyped_storage()._cdata)
        report = tgd.inspect(loss)
        assert torch._C._storage_Use_Count(a.untyped_storage()._cdata) == count
    assert silent_errors(report) and not calls


def test_only_what_this_backward_reads():
    """mul's saved tensors are each needed for the other one's gradient."""
    a, b = nn.Parameter(X.clone()), nn.Parameter(X.clone())
    with tgd.record():
        loss = (a * b).sum()
        b.data.add_(1)
        assert silent_errors(tgd.inspect(loss))
        assert silent_errors(tgd.inspect(loss, inputs=[a]))
        assert not silent_errors(tgd.inspect(loss, inputs=[b]))
    exact = X
    assert torch.equal(torch.autograd.grad(loss, b, retain_graph=True)[0], exact)
    assert not torch.equal(torch.autograd.grad(loss, a)[0], exact)


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {}], ids=["fused", "foreach", "plain"])
def test_an_optimizer_step_between_forward_and_backward(options):
    lin = nn.Linear(6, 6)
    x = torch.randn(2, 6, requires_grad=True)
    optimizer = torch.optim.Adam(lin.parameters(), **options)
    lin(x).sum().backward()
    with tgd.record(params=lin) as rec:
        loss = lin(x).sum()
        optimizer.step()
        line = python_inspect.currentframe().f_lineno - 1
        report = tgd.inspect(loss, params=lin)
    kinds = {f.kind for f in report.findings if f.severity == "error"}
    assert kinds == {"silently-modified"} if options.get("fused") else {"modified-in-place"}
    finding = report.findings[0]
    assert finding.where.line == line and finding.where.file == __file__
    assert "weight" in finding.message
    assert rec.reports == ()
