"""What a report says about saved tensors, against what PyTorch hands out under the same name."""

import pathlib
import sys
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchgraphdbg

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fuzz"))

import judge  # noqa: E402


def leaf(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def node_of(tensor):
    """(node of the report, grad_fn)"""
    return torchgraphdbg.inspect(tensor).graph.roots[0], tensor.grad_fn


def saved_of(node):
    return {(s.name, s.index): s for s in node.saved}


def everything():
    torch.manual_seed(0)
    x, w, image = leaf(3, 4), leaf(4, 4), leaf(2, 3, 8, 8)
    index, real = torch.tensor([0, 2]), leaf(3, 4, dtype=torch.complex64)
    yield from (
        x.exp(),
        x * w[:3],
        x @ w,
        x[index],
        x[index, index],
        x.softmax(-1),
        x.sort()[0],
        x.topk(2)[0],
        x.gather(1, torch.zeros(3, 1, dtype=torch.long)),
        x.max(0)[0],
        x.var(),
        x.prod(),
        x.cumprod(0),
        x.where(x > 0, x * 2),
        x.clamp(x.detach() - 1, x.detach() + 1),
        x.pow(w[:3]),
        torch.cdist(x, w),
    )
    yield from (
        F.layer_norm(x, (4,)),
        F.gelu(x),
        F.cross_entropy(x, torch.tensor([0, 1, 2])),
        F.embedding(index, w),
        F.embedding_bag(index[None], w),
        F.dropout(x, 0.5),
        F.scaled_dot_product_attention(x[None], w[None], w[None]),
        F.nll_loss(x, torch.tensor([0, 1, 2])),
        F.mse_loss(x, w[:3]),
    )
    yield from (
        F.conv2d(image, leaf(4, 3, 3, 3), leaf(4)),
        F.batch_norm(image, torch.zeros(3), torch.ones(3), training=True),
        F.max_pool2d(image, 2),
        F.group_norm(image, 3),
        F.interpolate(image, scale_factor=2),
        F.conv_transpose2d(image, leaf(3, 2, 2, 2)),
        F.grid_sample(image, leaf(2, 4, 4, 2)),
    )
    yield from (
        torch.linalg.svd(w)[1],
        torch.linalg.inv(w),
        torch.linalg.solve(w, w),
        torch.linalg.qr(w)[0],
        torch.linalg.eigh(w @ w.t())[0],
        torch.logdet(w @ w.t()),
    )
    yield from (real.abs(), real * real.conj(), torch.view_as_real(real), torch.fft.fft(real), real.angle())
    yield from (
        torch._foreach_mul([x, w], [x, w])[0],
        torch._foreach_exp([x, w])[1],
        torch.cat([x, w]),
        torch.stack([x, x]),
        torch.einsum("ij,jk", x, w),
    )
    yield nn.LSTM(4, 3)(x[:, None])[0]
    yield nn.GRU(4, 3)(x[:, None])[0]
    yield x.t()
    yield x.expand(2, 3, 4).transpose(0, 1).exp()


def test_agrees_with_pytorch():
    seen = 0
    for root in everything():
        report = torchgraphdbg.inspect(root)
        nodes = judge.align(report, [root])
        for index, function in nodes.items():
            node = report.graph.nodes[index]
            judge.check_saved(node, function)
            theirs = set()
            for name in dir(function):
                if name.startswith("_raw_saved_"):
                    value = getattr(function, name)
                    values = value if isinstance(value, (tuple, list)) else [value]
                    unpacked = getattr(function, "_saved_" + name[11:])
                    unpacked = unpacked if isinstance(unpacked, (tuple, list)) else [unpacked]
                    for k, (raw, tensor) in enumerate(zip(values, unpacked)):
                        if isinstance(raw, torch._C._autograd.SavedTensor):
                            theirs.add((name[11:], k if isinstance(value, (tuple, list)) else None, tensor is None))
            ours = {(s.name, s.index, s.state == "none") for s in node.saved}
            if node.kind == "builtin" and not node.name.startswith("Foreach"):  # those have no attributes
                assert ours == theirs, node
                seen += len(ours)
    assert seen > 100


def test_metadata():
    x = leaf(3, 4)
    node, function = node_of(x.t().exp() * x.t())
    saved = saved_of(node)[("other", None)]
    assert (
        saved.shape == (4, 3) and saved.strides == (1, 4) and saved.contiguous is False and saved.dtype == torch.float32
    )
    assert (
        saved.bytes == 48
        and saved.storage_bytes == 48
        and str(saved.device) == "cpu"
        and not saved.is_output
        and not saved.has_hooks
    )
    assert saved.node == node
    exp = node.next[0].target
    result = saved_of(exp)[("result", None)]
    assert (
        result.is_output
        and result.storage != saved.storage
        and saved_of(node)[("self", None)].storage == result.storage
    )


def test_leaves():
    x, w = leaf(3), torch.randn(3)
    node, _ = node_of(x * w)
    assert [s.state for s in node.saved].count("none") == 1
    assert saved_of(node)[("other", None)].is_leaf


def test_views_share_storage():
    x = leaf(100)
    a = x.clone()
    y = a[:10].exp() + a[10:20].sin()
    report = torchgraphdbg.inspect(y.sum())
    sin = next(n for n in report.graph.nodes if n.name == "SinBackward0")
    saved = sin.saved[0]
    assert saved.bytes == 40 and saved.storage_bytes == 400
    assert report.summary["saved_bytes"] == 440  # the base once, and exp's result


def test_versions():
    x = leaf(3)
    a = x * 1
    y = a * a
    a.add_(1)
    a.mul_(2)
    saved = saved_of(node_of(y)[0])[("self", None)]
    assert (saved.state, saved.saved_version, saved.version) == ("modified", 0, 2)


def test_states():
    x = leaf(3)
    a = x * 1
    y = a * a
    a.detach_()
    assert {s.state for s in node_of(y)[0].saved} == {"detached"}
    z = x.exp()
    z.sum().backward()
    assert [s.state for s in node_of(z)[0].saved] == ["released"]
    with torch.autograd.graph.save_on_cpu():
        h = x.exp()
    assert [s.state for s in node_of(h)[0].saved] == ["hooked"] and node_of(h)[0].saved[0].has_hooks
    a = x * 1
    y = a * a
    a.untyped_storage().resize_(0)
    assert {s.state for s in node_of(y)[0].saved} == {"storage-freed"}


def test_lists():
    x = leaf(4, 4)
    node, _ = node_of(x[torch.tensor([0, 1]), torch.tensor([1, 1])])
    assert [(s.name, s.index) for s in node.saved] == [("indices", 0), ("indices", 1)]
    node, _ = node_of(x[:, torch.tensor([0, 1])])
    assert [(s.index, s.state) for s in node.saved] == [(0, "none"), (1, "ok")]


class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, None, y * 2)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, _, y = ctx.saved_tensors
        return grad * y / 2, grad * x


def test_custom_function():
    node, _ = node_of(Several.apply(leaf(3), leaf(3)))
    assert node.kind == "python" and node.name == "SeveralBackward"
    assert [(s.name, s.index, s.state) for s in node.saved] == [
        ("saved_tensors", 0, "ok"),
        ("saved_tensors", 1, "none"),
        ("saved_tensors", 2, "ok"),
    ]


def test_copy_slices():
    x = leaf(4)
    a = x * 1
    a[:2].exp_()
    node, _ = node_of(a)
    assert node.name == "CopySlices" and node.kind == "copy-slices" and node.inner == "ExpBackward0"
    assert [(s.name, s.state) for s in node.saved] == [("result", "ok")]


def test_copy_slices_around_a_custom_function():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x.clone())
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    a = leaf(4) * 1
    Doubled.apply(a[:2])
    node, _ = node_of(a)
    assert node.name == "CopySlices" and node.inner == "DoubledBackward" and len(node.saved) == 1


def test_compiled_region():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    y = torch.compile(model, backend="aot_eager")(torch.randn(2, 4)).sum()
    region = [n for n in torchgraphdbg.inspect(y).graph.nodes if n.name == "CompiledFunctionBackward"]
    assert len(region) == 1 and region[0].saved


def test_nothing_is_unpacked_for_good():
    """A saved output stays the user's own to free."""
    x = leaf(3)
    y = x.exp()
    ref = weakref.ref(y)
    report = torchgraphdbg.inspect(y.sum())
    del y
    assert ref() is None and len(report.graph.nodes) == 3


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,) * 12])
def test_odd_shapes(shape):
    y = leaf(*shape).exp()
    saved = node_of(y)[0].saved[0]
    assert saved.shape == shape and saved.strides == y.stride()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128])
def test_dtypes(dtype):
    y = leaf(3, dtype=dtype) * 1
    node, _ = node_of(y * y)
    assert (
        {s.dtype for s in node.saved} == {dtype}
        and node.inputs[0].dtype == dtype
        and tuple(node.inputs[0].shape) == (3,)
    )
