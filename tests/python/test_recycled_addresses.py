"""Who wrote to a saved tensor, where addresses, or the op itself, could mislead: at both levels of recording."""
import contextlib
import os
import sys

import pytest
import torch

import torchgraphdbg
from torchgraphdbg import _core


@contextlib.contextmanager
def light():
    _core._light_start()
    try:
        yield
    finally:
        _core._light_stop()


@pytest.fixture(params=["full", "light"])
def recording(request):
    return torchgraphdbg.record if request.param == "full" else light


def here(offset=0):
    """The line of the caller, and `offset` more."""
    return sys._getframe(1).f_lineno + offset


def culprits(root):
    """{(op, line)} of what is said to have been modified."""
    found = [f for f in torchgraphdbg.inspect(root).findings if f.kind == "modified-in-place"]
    assert all(f"; by {f.op} at " in f.message for f in found), found
    return {(f.op, f.where.line) for f in found}


@pytest.mark.parametrize("op, write", [
    ("mul_", lambda a: a.mul_(a)),
    ("addmm_", lambda a: a.addmm_(a, a)),
    ("addcmul_", lambda a: a.addcmul_(a, a)),
    ("div_", lambda a: a.div_(a)),
])
def test_an_op_that_saves_what_it_then_writes_to(recording, op, write):
    with recording():
        a = torch.rand(3, 3, requires_grad=True) * 1
        write(a)
        root = a.sum()
        assert culprits(root) == {(op, write.__code__.co_firstlineno)}
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            root.backward()


def test_every_write_is_named_in_its_order(recording):
    with recording():
        a = torch.rand(3, requires_grad=True) * 1
        y = a * a
        line = here(1)
        a.add_(1)
        for _ in range(3):
            a.detach().mul_(2)
        view = a[0]
        view.fill_(3)
        (first, *_) = torchgraphdbg.inspect(y.sum()).findings
        names = [f"{op}_ at {os.path.basename(__file__)}:{line + k}"
                 for k, op in ((0, "add"), (2, "mul"), (4, "fill"))]
        assert first.message.endswith("; by " + ", then by ".join(names)), first.message
        for _ in range(2):
            a.sub_(1)
            a.neg_()
        (first, *_) = torchgraphdbg.inspect(y.sum()).findings
        assert (first.op, first.where.line) == ("add_", line)
        assert first.message.endswith(f"sub_ at {os.path.basename(__file__)}:{line + 10}, then by others"), first.message


class Scratch(torch.autograd.Function):
    """Writes to a tensor that it drops before it makes what it saves."""

    @staticmethod
    def forward(ctx, x):
        scratch = torch.zeros(3)
        scratch.add_(1)
        del scratch
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return y * grad


def test_what_a_custom_function_wrote_to_before_it_saved(recording):
    with recording():
        for _ in range(20):
            y = Scratch.apply(torch.ones(3, requires_grad=True))
            line = here(1)
            y.mul_(2)
            assert culprits(y) == {("mul_", line)}


def test_what_was_dropped_before_the_node_was_made(recording):
    with recording():
        for _ in range(20):
            dropped = [torch.zeros(3).add_(1).mul_(2) for _ in range(5)]
            del dropped
            y = torch.ones(3, requires_grad=True).exp()
            line = here(1)
            y.mul_(2)
            assert culprits(y.sum()) == {("mul_", line)}


def test_a_node_of_wrapped_tensors_has_its_own_line(recording):
    x, w = torch.rand(3, 3, requires_grad=True), torch.rand(3, 3)
    with recording():
        x.exp()
        line = here(1)
        y = torch.func.vmap(torch.dot)(x, w)
        nodes = torchgraphdbg.inspect(y.sum()).graph.nodes
        made = [n.where.line for n in nodes if n.name not in ("AccumulateGrad", "SumBackward0")]
        assert len(made) >= 2 and set(made) == {line}


def test_a_node_that_no_op_made_has_no_other_op_s_line(recording):
    """A view whose base was written to gets a new grad_fn when somebody asks for it."""
    with recording():
        base = torch.rand(4, requires_grad=True) * 1
        view = base[:2]
        base.mul_(2)
        (base.detach() + torch.ones(4, requires_grad=True)).exp()
        made, asked = view.grad_fn, here()
        (node,) = [n for n in torchgraphdbg.inspect(view).graph.nodes if n.name == "AsStridedBackward0"]
        assert made is not None and (node.where is None or node.where.line == asked)


def test_a_storage_that_others_wrote_to_before_it_was_swapped_in(recording):
    with recording():
        for _ in range(20):
            x = torch.rand(3, 3, requires_grad=True)
            y = torch.nn.functional.leaky_relu(x)
            dropped = [torch.zeros(3, 3).add_(k) for k in range(4)]
            del dropped
            x.data = x.detach().clone()  # the same values: the gradient is right
            report = torchgraphdbg.inspect(y.sum())
            assert report.ok, str(report)
            line = here(1)
            x.data.mul_(2)
            (finding,) = [f for f in torchgraphdbg.inspect(y.sum()).findings if f.severity == "error"]
            assert (finding.kind, finding.op, finding.where.line) == ("silently-modified", "mul_", line)


def test_the_line_that_swapped_the_storage(recording):
    with recording():
        x = torch.rand(3, 3, requires_grad=True)
        y = torch.nn.functional.leaky_relu(x)
        line = here(1)
        x.data = torch.zeros(3)
        findings = [f for f in torchgraphdbg.inspect(y.sum()).findings if f.kind == "storage-changed"]
        assert {(f.op, f.where.line) for f in findings if f.node.name == "LeakyReluBackward0"} == {("set_data", line)}
        with pytest.raises(RuntimeError):
            y.sum().backward()


def test_the_attribute_is_torch_s_own_afterwards(recording):
    with recording():
        pass
    x = torch.zeros(3)
    x.data = torch.ones(2)
    assert x.tolist() == [1, 1]
    with pytest.raises(RuntimeError):
        del x.data
