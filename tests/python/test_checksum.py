"""record(checksum=True): writes to saved tensors that go past PyTorch."""
import numpy as np
import pytest
import torch
from torch import nn

import torchgraphdbg as tgd


def errors(report):
    return [f for f in report.findings if f.severity == "error"]


def line():
    import sys
    return sys._getframe(1).f_lineno


def test_a_batch_that_numpy_fills_again():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    lin = nn.Linear(4, 2)
    with tgd.record(params=lin, checksum=True) as rec:
        x = torch.from_numpy(array)
        loss, made = lin(x).square().sum(), line()
        assert tgd.inspect(loss).ok
        exact = torch.autograd.grad(loss, lin.weight, retain_graph=True)[0]
        array[:] = 1
        report = tgd.inspect(loss, params=lin)
        got = torch.autograd.grad(loss, lin.weight)[0]
    assert not torch.allclose(got, exact)
    assert [r.ok for r in rec.reports] == [True, False]
    for found in (errors(report), errors(rec.report())):
        finding, = found
        assert (finding.kind, finding.node.name, finding.saved) == ("silently-modified", "AddmmBackward0", "mat1")
        assert finding.where.line == made and "numpy" in finding.message and "array" in finding.hint
        assert "gradient will be wrong" in report.verdict
    assert rec.report(params=lin).findings[0].kind == "silently-modified"


@pytest.mark.parametrize("change", [
    lambda x: x.numpy().__setitem__((0, 1), 9.0),
    lambda x: x.t().numpy().__setitem__((1, 0), 9.0),
    lambda x: memoryview(x.numpy()).cast("B").__setitem__(7, 65),
], ids=["numpy", "through a view", "bytes"])
@pytest.mark.parametrize("view", [
    lambda x: x, lambda x: x[:, ::2], lambda x: x.t(), lambda x: x[:1].expand(5, 6), lambda x: x.reshape(2, 3, 6)[0, :2],
], ids=["whole", "strided", "transposed", "expanded", "slice"])
def test_any_layout(change, view):
    x = torch.arange(36, dtype=torch.float32).reshape(6, 6) / 7
    p = nn.Parameter(torch.ones(()))
    with tgd.record(checksum=True):
        loss = (p * view(x)).sum()
        assert tgd.inspect(loss).ok
        before = torch.autograd.grad(loss, p, retain_graph=True)[0]
        change(x)
        report = tgd.inspect(loss)
        after = torch.autograd.grad(loss, p)[0]
    assert bool(errors(report)) == (not torch.equal(before, after))


def test_without_it_nothing_is_seen_and_nothing_is_claimed():
    x = torch.ones(3)
    p = nn.Parameter(torch.ones(3))
    with tgd.record():
        loss = (p * x).sum()
        x.numpy()[:] = 2
        assert tgd.inspect(loss).ok


def test_a_write_that_was_seen_is_told_once():
    x = torch.ones(3)
    p = nn.Parameter(torch.ones(3))
    with tgd.record(checksum=True):
        loss = (p * x).sum()
        x.data.mul_(2)
        finding, = errors(tgd.inspect(loss))
        assert finding.op == "mul_"
    with tgd.record(checksum=True):
        loss = (p * x).sum()
        x.mul_(2)
        finding, = errors(tgd.inspect(loss))
        assert finding.kind == "modified-in-place"


def test_what_no_gradient_reads():
    """Batch norm saves running statistics that later forwards change; mul's operands serve each other's gradient."""
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.LayerNorm(4), nn.Linear(4, 1))
    x = torch.randn(8, 4)
    with tgd.record(params=net, checksum=True) as rec:
        losses = [net(x).square().mean() for _ in range(3)]
        for loss in losses:
            loss.backward()
    assert all(report.ok for report in rec.reports)
    a, b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    with tgd.record(checksum=True):
        loss = (a * b).sum()
        b.detach().numpy()[:] = 2
        assert errors(tgd.inspect(loss, inputs=[a])) and not errors(tgd.inspect(loss, inputs=[b]))


def test_a_training_loop_stays_silent():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))
    optimizer = torch.optim.Adam(net.parameters())
    with tgd.record(params=net, checksum=True) as rec:
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(torch.randn(2, 1, 8, 8)), torch.tensor([1, 3])).backward()
            optimizer.step()
    assert len(rec.reports) == 4 and all(report.ok for report in rec.reports), str(rec.report())


def test_nested_records_and_arguments():
    p, x = nn.Parameter(torch.ones(3)), torch.ones(3)
    with tgd.record(), tgd.record(checksum=True):
        loss = (p * x).sum()
        x.numpy()[:] = 2
        assert errors(tgd.inspect(loss))
    with tgd.record():
        loss = (p * x).sum()
        x.numpy()[:] = 3
        assert tgd.inspect(loss).ok
    with pytest.raises(TypeError):
        tgd.record(None, True)
    assert "checksum=False" in tgd.record.__text_signature__
