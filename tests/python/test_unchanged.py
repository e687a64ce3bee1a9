"""Observing changes nothing in the user's program."""

import gc
import sys
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchgraphdbg


class Square(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        Square.calls += 1
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def build():
    """A loss over most ways of saving, and every tensor the user holds."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(48, 4))
    x = torch.randn(2, 1, 6, 6, requires_grad=True)
    h = model(x)
    view = h[:, :2]
    view.mul_(2)
    s = Square.apply(h)
    picked = s[torch.tensor([0, 1])]
    loss = (picked.softmax(-1) * h).sum() + h.std()
    return loss, model, [x, h, view, s, picked, loss, *model.parameters(), *model.buffers()]


def look(loss, model, tmp_path=None):
    report = torchgraphdbg.inspect(loss, params=model)
    str(report), repr(report), report.to_dict()
    for node in report.graph.nodes:
        list(node.saved), list(node.inputs), list(node.next)
    if tmp_path is not None:
        torchgraphdbg.dump(loss, tmp_path / "g.svg", params=model, quiet=True)
    return report


def state(tensors):
    return [
        (
            t._version,
            t.data_ptr(),
            sys.getrefcount(t),
            t.requires_grad,
            t.is_leaf,
            t.grad is None or t.grad.data_ptr(),
            t._is_view(),
            t.storage_offset(),
            t.stride(),
            t.shape,
        )
        for t in tensors
    ]


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_tensors_and_modes(tmp_path):
    loss, model, tensors = build()
    look(loss, model, tmp_path)  # imports and first uses are over
    before, random, calls = state(tensors), torch.get_rng_state(), Square.calls
    modes = (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.is_anomaly_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_num_threads(),
        torch.is_autocast_enabled("cpu"),
    )
    look(loss, model, tmp_path)
    assert state(tensors) == before
    assert torch.equal(random, torch.get_rng_state()) and Square.calls == calls
    assert modes == (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.is_anomaly_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_num_threads(),
        torch.is_autocast_enabled("cpu"),
    )


def test_modes_that_are_on(tmp_path):
    """Default dtype and device, inference mode, no_grad, anomaly mode and a dispatch mode: all left alone."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            Count.seen += 1
            return function(*args, **(kwargs or {}))

    loss, model, _ = build()
    nodes = len(look(loss, model).graph.nodes)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"), torch.no_grad(), torch.autograd.set_detect_anomaly(True, check_nan=False), Count():
            report = look(loss, model, tmp_path)
        assert Count.seen == 0
        with torch.inference_mode():
            assert look(loss, model).ok
        assert report.ok and len(report.graph.nodes) == nodes
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_first_use_in_a_fresh_process(tmp_path):
    """The first call ever, self-test included, leaves the random state and the modes alone."""
    import subprocess

    text = """
import torch
torch.manual_seed(1); torch.set_default_dtype(torch.float64)
x = torch.randn(3, requires_grad=True); y = (x * x).sum()
state = torch.get_rng_state()
torch.set_default_device('meta')
from torch.overrides import TorchFunctionMode
class Loud(TorchFunctionMode):
    def __torch_function__(self, f, types, args=(), kwargs=None):
        raise SystemExit(f'{f} was called')
import torchgraphdbg
with torch.no_grad(), Loud():
    report = torchgraphdbg.inspect(y)
assert report.ok, str(report)
torch.set_default_device(None)
assert torch.equal(state, torch.get_rng_state()) and torch.get_default_dtype() == torch.float64
assert torch.is_grad_enabled() and x.grad is None and x._version == 0
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_gradients_are_identical():
    def gradients(looking):
        loss, model, tensors = build()
        if looking:
            look(loss, model)
        loss.backward(retain_graph=True)
        if looking:
            look(loss, model)
        loss.backward()
        return [tensors[0].grad] + [p.grad for p in model.parameters()]

    for plain, observed in zip(gradients(False), gradients(True)):
        assert torch.equal(plain, observed)


def test_error_text_is_identical():
    def error(looking, breaking):
        x = torch.ones(3, requires_grad=True)
        h = x * 2
        loss = (h.exp() * Square.apply(h)).sum()
        breaking(loss, h)
        if looking:
            look(loss, {"x": x})
        with pytest.raises(RuntimeError) as raised:
            loss.backward()
        return str(raised.value), h._version

    for breaking in (lambda loss, h: h.detach().add_(1), lambda loss, h: loss.backward()):
        assert error(False, breaking) == error(True, breaking)


def test_nothing_is_kept_alive():
    loss, model, tensors = build()
    refs = [weakref.ref(t) for t in tensors] + [weakref.ref(model)]
    report = look(loss, model)
    del loss, model, tensors
    gc.collect()
    assert not [r for r in refs if r() is not None]
    assert len(report.graph.nodes) > 5 and str(report)


def test_gc_can_be_off():
    """Not even a cycle holds the tensors."""
    gc.disable()
    try:
        loss, model, tensors = build()
        ref = weakref.ref(tensors[1])
        look(loss, model)
        del loss, tensors
        assert ref() is None
    finally:
        gc.enable()


def test_no_wrapper_is_made():
    """A node's Python object would be the same one on the next access, and would be counted here."""
    x = torch.randn(3, requires_grad=True)
    y = x
    for _ in range(200):
        y = y.sin() * 1

    def wrappers():
        gc.collect()
        return sum(type(o).__name__ in ("SinBackward0", "MulBackward0", "AccumulateGrad") for o in gc.get_objects())

    before = wrappers()
    torchgraphdbg.inspect(y.sum())
    assert wrappers() == before


def test_unpack_hooks_are_not_called():
    def refuse(packed):
        raise AssertionError("unpacked")

    x = torch.randn(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, refuse):
        y = x.exp() * Square.apply(x)
    report = torchgraphdbg.inspect(y.sum())
    assert {s.state for n in report.graph.nodes for s in n.saved} >= {"hooked"}
    z = x.exp()
    z.grad_fn._raw_saved_result.register_hooks(lambda t: t, refuse)
    assert torchgraphdbg.inspect(z.sum()).ok


def test_checkpoint_is_not_run_again():
    calls = []

    def part(x):
        calls.append(1)
        return x.exp().sin()

    x = torch.randn(3, requires_grad=True)
    loss = checkpoint(part, x, use_reentrant=False).sum() + checkpoint(part, x, use_reentrant=True).sum()
    assert len(calls) == 2
    look(loss, {"x": x})
    assert len(calls) == 2
    loss.backward()
    assert len(calls) == 4


def test_hooks_are_not_called():
    called = []
    x = torch.randn(3, requires_grad=True)
    y = x * 2
    x.register_hook(lambda g: called.append("tensor"))
    x.register_post_accumulate_grad_hook(lambda p: called.append("post"))
    y.register_hook(lambda g: called.append("inner"))
    y.retain_grad()
    y.grad_fn.register_hook(lambda *a: called.append("node"))
    y.grad_fn.register_prehook(lambda *a: called.append("pre"))
    report = torchgraphdbg.inspect(y.sum())
    assert not called and report.ok
    assert x.grad is None and y.grad is None


def test_weights_stay_movable():
    """swap_tensors refuses tensors that somebody holds on to."""
    loss, model, tensors = build()
    look(loss, model)
    del loss, tensors
    weight = model[4].weight
    torch.utils.swap_tensors(weight, nn.Parameter(torch.zeros(4, 48)))
    assert weight.abs().sum() == 0


def test_from_another_thread():
    loss, model, tensors = build()
    before = state(tensors)
    reports = []
    thread = threading.Thread(target=lambda: reports.append(look(loss, model)))
    thread.start()
    thread.join()
    assert reports[0].ok and state(tensors) == before
