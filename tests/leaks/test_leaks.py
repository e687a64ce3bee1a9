"""10,000 looks leave nothing behind: no memory, no reference, no file descriptor."""

import gc
import os
import sys

import pytest
import torch
from torch import nn

import torchgraphdbg

if not os.path.exists("/proc/self/statm"):
    pytest.skip("needs /proc", allow_module_level=True)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def build():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    h = model(torch.randn(3, 4))
    s = Square.apply(h)
    loss = (s * h).sum() + h[torch.tensor([0, 1])].sum()
    with torch.no_grad():
        h.add_(1)
    return loss, model


def look(loss, model):
    report = torchgraphdbg.inspect(loss, params=model)
    assert not report.ok
    str(report)
    for finding in report.findings:
        finding.message, finding.hint, finding.node, finding.parameter
    for node in report.graph.nodes:
        for saved in node.saved:
            saved.shape, saved.strides, saved.dtype


def steady(work, warm, rounds, allowed):
    """Resident memory, objects, blocks and descriptors after `rounds` more calls of work."""
    for _ in range(warm):
        work()
    gc.collect()
    before = resident(), descriptors(), len(gc.get_objects()), sys.getallocatedblocks()
    for _ in range(rounds):
        work()
    gc.collect()
    after = resident(), descriptors(), len(gc.get_objects()), sys.getallocatedblocks()
    assert after[0] - before[0] < allowed, f"grew by {after[0] - before[0]} bytes"
    assert after[1] == before[1]
    assert abs(after[2] - before[2]) < 50 and abs(after[3] - before[3]) < 500, (before, after)


def test_inspect_ten_thousand_times():
    loss, model = build()
    names = dict(model.named_parameters())
    counted = (loss, model, names, Square, torch.float32, None, *names)
    gc.collect()
    before = [sys.getrefcount(o) for o in counted]
    steady(lambda: look(loss, names), 500, 10_000, 4 << 20)
    for o, count in zip(counted, before):
        assert sys.getrefcount(o) - count < 1_000, o  # a reference lost in each look would be 10,000


def test_new_graphs():
    steady(lambda: look(*build()), 200, 2_000, 4 << 20)


def test_documents(tmp_path):
    loss, model = build()

    def work():
        report = torchgraphdbg.inspect(loss, params=model)
        report.to_dict(), str(report), repr(report)
        for suffix in ("json", "gv", "txt"):
            report.save(tmp_path / f"g.{suffix}")

    steady(work, 200, 2_000, 4 << 20)


def test_pictures(tmp_path):
    """Graphviz 2.42 itself loses memory with every layout: that much is allowed, and no more."""
    loss, model = build()
    steady(lambda: torchgraphdbg.dump(loss, tmp_path / "g.svg", params=model, quiet=True), 20, 100, 100 * 600_000)


def test_errors():
    """What is refused leaves nothing behind either."""
    x = torch.randn(3, requires_grad=True)

    def work():
        for wrong in (None, 3, [], [None], "x", object()):
            with pytest.raises((TypeError, ValueError)):
                torchgraphdbg.inspect(wrong)
        for wrong in (3, [3], {"a": 3}, {3: x}, [("a", x), ("a", x.detach())]):
            with pytest.raises((TypeError, ValueError)):
                torchgraphdbg.inspect(x.sum(), params=wrong)
        with pytest.raises(ValueError):
            torchgraphdbg.dump(x.sum(), "g.unknown", quiet=True)
        with pytest.raises(OSError):
            torchgraphdbg.dump(x.sum(), "/nowhere/at/all/g.json", quiet=True)

    steady(work, 100, 1_000, 4 << 20)
