"""What the light level of recording tells: lines, in-place culprits, runs that freed a graph, cuts; and what it holds."""
import os
import resource
import threading

import pytest
import torch
from torch import nn

import torchgraphdbg
from torchgraphdbg import _core


@pytest.fixture(autouse=True)
def light():
    _core._light_start()
    yield
    _core._light_stop()


def here(offset=0):
    """The line of the caller, and `offset` more."""
    import sys
    return sys._getframe(1).f_lineno + offset


def one(report, kind):
    found = [f for f in report.findings if f.kind == kind]
    assert found, [f.kind for f in report.findings]
    return found[0]


def at(finding):
    assert finding.where is not None, finding.message
    assert os.path.basename(finding.where.file) == os.path.basename(__file__)
    return finding.where.line


def test_every_node_has_its_line_and_module(mlp):
    line = here(1)
    loss = mlp(torch.randn(5, 4)).square().mean()
    nodes = torchgraphdbg.inspect(loss).graph.nodes
    assert [n.where.line for n in nodes if n.name != "AccumulateGrad"] == [line] * 7
    assert {n.module for n in nodes if n.name == "AddmmBackward0"} == {"0", "2"}


def test_a_node_made_by_backward_stands_for_the_forward_line():
    x = torch.ones(3, requires_grad=True)
    line = here(1)
    y = x.exp()
    g, = torch.autograd.grad(y.sum(), x, create_graph=True)
    made = [n for n in torchgraphdbg.inspect(g.sum()).graph.nodes if n.name == "MulBackward0"]
    assert [n.where.line for n in made] == [line]


WRITES = {
    "add_": lambda y: y.add_(1),
    "mul_": lambda y: y.__imul__(2),
    "fill_": lambda y: y.detach().fill_(0),
    "copy_": lambda y: y.__setitem__(0, torch.ones(4)),
    "dropout_": lambda y: nn.functional.dropout(y, 0.5, True, inplace=True),
    "zero_": lambda y: y[1].zero_(),
    "_foreach_add_": lambda y: torch._foreach_add_([torch.ones(1), y], 1.0),
    "add": lambda y: torch.add(torch.ones(3, 4), 1, out=y.detach()),
}


@pytest.mark.parametrize("op", WRITES)
def test_who_wrote(op):
    y = torch.randn(3, 4, requires_grad=True).exp()
    loss = y.sum()
    WRITES[op](y)
    found = one(torchgraphdbg.inspect(y.sum() + loss), "modified-in-place")
    assert found.op == op
    assert at(found) == WRITES[op].__code__.co_firstlineno


def test_an_optimizer_step_between(mlp):
    optimizer = torch.optim.SGD(mlp.parameters(), lr=0.1)
    loss = mlp(torch.randn(5, 4)).square().mean()
    loss.backward(retain_graph=True)
    optimizer.step()
    line = here(-1)
    assert at(one(torchgraphdbg.inspect(loss, params=mlp), "modified-in-place")) == line


def test_an_op_defined_after_the_start():
    library = torch.library.Library("tgd_light_test", "DEF")
    library.define("bump_(Tensor(a!) x) -> Tensor(a!)")
    library.impl("bump_", lambda x: x.add_(1), "CompositeImplicitAutograd")
    y = torch.randn(3, requires_grad=True).exp()
    torch.ops.tgd_light_test.bump_(y)
    line = here(-1)
    found = one(torchgraphdbg.inspect(y.sum()), "modified-in-place")
    assert (found.op, at(found)) == ("bump_", line)


def test_no_recycled_address_accuses_an_innocent_line():
    """Tensors die and others take their addresses: storage, version counter and TensorImpl alike."""
    addresses, reused = set(), 0
    for i in range(20_000):
        scratch = torch.ones(4)
        scratch.add_(1).mul_(2)  # innocent: it is gone before the next tensor is made
        reused += scratch.data_ptr() in addresses
        addresses.add(scratch.data_ptr())
        del scratch
        y = torch.randn(4, requires_grad=True).exp()
        reused += y.data_ptr() in addresses
        if i % 400 == 0:
            assert torchgraphdbg.inspect(y.sum()).ok
            y.mul_(3)
            line = here(-1)
            found = one(torchgraphdbg.inspect(y.sum()), "modified-in-place")
            assert (found.op, at(found)) == ("mul_", line)
    assert reused > 20_000


def test_chunks_of_one_storage_are_no_silent_writes():
    cell = nn.GRUCell(3, 4)
    h = torch.zeros(2, 4)
    for _ in range(3):
        h = cell(torch.randn(2, 3), h)
    assert torchgraphdbg.inspect(h.square().mean(), params=cell).ok


# ---- runs ----


def test_the_run_that_freed_a_shared_part(mlp):
    shared = mlp(torch.randn(5, 4)).exp()
    first, second, other = shared.sum(), shared.square().sum(), mlp(torch.randn(5, 4)).exp().sum()
    other.backward()
    first.backward()
    line = here(-1)
    mlp(torch.randn(5, 4)).exp().sum().backward()
    assert at(one(torchgraphdbg.inspect(second), "graph-freed")) == line


def test_a_run_that_keeps_the_graph_or_goes_elsewhere_frees_nothing(mlp):
    x = torch.randn(5, 4, requires_grad=True)
    hidden = mlp(x).exp()
    loss = hidden.square().sum()
    loss.backward(retain_graph=True)
    torch.autograd.grad(loss, hidden)  # takes the square alone
    line = here(-1)
    found = one(torchgraphdbg.inspect(loss), "graph-freed")
    assert (found.node.name, at(found)) == ("PowBackward0", line)
    assert torchgraphdbg.inspect(hidden.sum()).ok


# ---- cuts ----


def reason(root, params):
    found = one(torchgraphdbg.inspect(root, params=params), "unreached-parameter")
    return found.reason, found.where and found.where.line


def under_no_grad(x):
    with torch.no_grad():
        return x + 1


CUTS = {
    "detached": lambda x: x.detach(),
    "grad-mode-disabled": under_no_grad,
    "not-differentiable-op": lambda x: x.argsort(),
    "integer-output": lambda x: x.to(torch.int64),
    "left-torch": lambda x: torch.tensor(x.sum().item()),
    "rewrapped": lambda x: nn.Parameter(x),
}


@pytest.mark.parametrize("why", CUTS)
def test_cuts_name_reason_and_line(why):
    w, v = (nn.Parameter(torch.randn(3)) for _ in range(2))
    cut = CUTS[why](w * 2)
    line = CUTS[why].__code__.co_firstlineno + (1 if CUTS[why] is under_no_grad else 0)
    named = [w, v, cut] if isinstance(cut, nn.Parameter) else [w, v]
    assert reason((cut * v).sum(), named) == (why, line)


def test_unused_is_proved_only_of_a_leaf_that_no_graph_took(mlp):
    unused, dropped = (nn.Parameter(torch.randn(3)) for _ in range(2))
    kept = dropped * 2
    loss = mlp(torch.randn(5, 4)).square().mean()
    report = torchgraphdbg.inspect(loss, params={"unused": unused, "dropped": dropped, **dict(mlp.named_parameters())})
    assert {f.parameter: f.reason for f in report.findings} == {"unused": "never-used", "dropped": "output-dropped"}
    assert kept is not None


def test_everything_under_no_grad():
    w = nn.Parameter(torch.randn(3))
    with torch.no_grad():
        loss = (w * 2).sum()
    line = here(-2)
    found = one(torchgraphdbg.inspect(loss, params=[w]), "no-grad-fn")
    assert (found.reason, at(found)) == ("grad-mode-disabled", line)


def test_a_validation_pass_is_no_cut(mlp):
    unused = nn.Parameter(torch.randn(3))
    with torch.no_grad():
        mlp(torch.randn(5, 4)).argmax(-1)
        unused * 2
    loss = mlp(torch.randn(5, 4)).square().mean()
    report = torchgraphdbg.inspect(loss, params=[*mlp.parameters(), unused])
    assert [(f.kind, f.where) for f in report.findings] == [("unreached-parameter", None)]


def test_logging_a_loss_leaves_a_healthy_step_silent(mlp):
    for _ in range(3):
        loss = mlp(torch.randn(5, 4)).square().mean()
        loss.item(), loss.detach(), (loss > 0).item(), mlp[0].weight.detach().numpy()
        assert torchgraphdbg.inspect(loss, params=mlp).ok
        loss.backward()


# ---- what it holds ----


def test_memory_does_not_grow(mlp):
    optimizer = torch.optim.SGD(mlp.parameters(), lr=1e-6)

    def steps(n):
        for _ in range(n):
            optimizer.zero_grad()
            loss = mlp(torch.ones(5, 4)).square().mean()
            loss.item()
            loss.backward()
            optimizer.step()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    steps(4_000)  # both generations of every ring are full
    before = steps(100)
    assert steps(4_000) - before < 4  # MB


def test_full_recording_within_it_and_after_it(mlp):
    with torchgraphdbg.record(params=mlp) as rec:
        y = mlp(torch.randn(5, 4)).exp()
        y.add_(1)
        line = here(-1)
        with pytest.raises(RuntimeError):
            y.sum().backward()
    assert at(one(rec.report(), "modified-in-place")) == line
    z = mlp(torch.randn(5, 4)).exp()
    z.add_(1)
    line = here(-1)
    assert at(one(torchgraphdbg.inspect(z.sum()), "modified-in-place")) == line


def test_other_threads_writes_are_seen():
    y = torch.randn(3, requires_grad=True).exp()

    def work():
        torch.ones(1, requires_grad=True).exp()  # a node: from here on the thread is watched
        y.add_(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    found = one(torchgraphdbg.inspect(y.sum()), "modified-in-place")
    assert (found.op, at(found)) == ("add_", work.__code__.co_firstlineno + 2)
