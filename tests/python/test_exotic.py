"""Graphs of every modern sort: no crash, no false alarm, nothing run on the side."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch._functorch.config
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchgraphdbg


def leaf(*shape, **options):
    return torch.randn(shape, requires_grad=True, **options)


def silent(root, **options):
    report = torchgraphdbg.inspect(root, **options)
    assert report.ok, str(report)
    str(report), report.to_dict()
    return report


def silent_and_works(root, **options):
    report = silent(root, **options)
    torch.autograd.backward(root, torch.ones_like(root))
    return report


def compiled(module):
    return torch.compile(module, backend="aot_eager")


# ---- compile ----


def test_compiled_region_says_what_it_hides():
    model = compiled(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)))
    report = silent_and_works(model(torch.randn(2, 4)).sum(), params=model)
    assert "CompiledFunctionBackward" in [n.name for n in report.graph.nodes]


def test_compiled_twice():
    model = compiled(nn.Linear(4, 4))
    y = model(torch.randn(2, 4)).sum()
    y.backward()
    report = torchgraphdbg.inspect(y)
    assert [f.kind for f in report.findings if f.severity != "note"] == ["graph-freed"]
    with pytest.raises(RuntimeError):
        y.backward()


def test_double_backward_of_a_compiled_region():
    model = compiled(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
    x = leaf(5, 3)
    with torch._functorch.config.patch(donated_buffer=False):
        (g,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    report = torchgraphdbg.inspect(g.sum())
    assert "not-differentiable" in [f.kind for f in report.findings if f.severity == "error"]
    with pytest.raises(RuntimeError, match="double backward"):
        g.sum().backward()


def test_compiled_input_changed():
    model = compiled(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    x = torch.randn(2, 4)
    y = model(x).sum()
    x.add_(1)
    findings = [f for f in torchgraphdbg.inspect(y).findings if f.severity != "note"]
    assert "modified-in-place" in [f.kind for f in findings]
    with pytest.raises(RuntimeError, match="inplace"):
        y.backward()


def test_inside_compiled_code():
    """Called while dynamo traces: a graph break at most."""

    def step(x):
        y = x.sin()
        torchgraphdbg.inspect(y.sum())
        return y.cos()

    silent_and_works(compiled(step)(leaf(3)).sum())


# ---- checkpoints and saved-tensor hooks ----


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    x = leaf(3, 4)
    silent_and_works(checkpoint(model, x, use_reentrant=reentrant).sum(), params=None if reentrant else model)


def test_reentrant_checkpoint_hides_parameters():
    """They get their gradient inside the node's own backward, so nobody may call them unreached for sure."""
    model = nn.Linear(4, 2)
    x = leaf(3, 4)
    loss = checkpoint(model, x, use_reentrant=True).sum()
    report = torchgraphdbg.inspect(loss, params=model)
    assert not [f for f in report.findings if f.severity == "error"]
    assert not [f for f in report.findings if f.kind == "unreached-parameter" and f.severity != "note"], str(report)
    loss.backward()
    assert model.weight.grad is not None


def test_nested_checkpoints():
    inner = nn.Linear(4, 4)
    x = leaf(3, 4)
    silent_and_works(
        checkpoint(lambda z: checkpoint(inner, z, use_reentrant=False).exp(), x, use_reentrant=False).sum(),
        params=inner,
    )


def test_saved_tensors_hooks():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True), torch.from_numpy):
        y = leaf(3).exp().sin()
    report = silent_and_works(y.sum())
    assert "hooked" in {s.state for n in report.graph.nodes for s in n.saved}


def test_save_on_cpu():
    x = leaf(3)
    with torch.autograd.graph.save_on_cpu():
        y = (x * 1).exp()
    y.add_(1)
    silent_and_works(y.sum())


def test_allow_mutation():
    x = leaf(3)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        a = x * 1
        y = a * a
        a.add_(1)
        silent_and_works(y.sum())


def test_register_multi_grad_hook():
    x, w = leaf(3), leaf(3)
    seen = []
    torch.autograd.graph.register_multi_grad_hook([x, w], lambda grads: seen.append(1))
    y = (x * w).sum()
    silent(y)
    assert not seen
    y.backward()
    assert seen


def test_hooks_are_counted():
    x = leaf(3)
    y = x * 2
    y.register_hook(lambda g: g)
    y.retain_grad()
    y.grad_fn.register_prehook(lambda g: None)
    y.grad_fn.register_hook(lambda a, b: None)
    hooks = torchgraphdbg.inspect(y).graph.roots[0].hooks
    assert sum(hooks.values()) == 4, hooks


def test_nodes_keep_python_metadata():
    y = leaf(3).exp()
    y.grad_fn.metadata["mine"] = 1
    silent(y.sum())
    assert y.grad_fn.metadata == {"mine": 1}


# ---- dtypes, layouts, devices, subclasses ----


def test_autocast():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.randn(2, 4)).float().square().mean()
    silent_and_works(loss, params=model)


def test_sparse():
    x = leaf(3, 3)
    silent_and_works((x.to_sparse() * 2).to_dense().exp().sum())
    silent_and_works(torch.sparse.mm(torch.eye(3).to_sparse(), x).sum())
    embedding = nn.Embedding(5, 3, sparse=True)
    silent_and_works(embedding(torch.tensor([0, 1])).sum(), params=embedding)


def test_sparse_csr():
    x = leaf(3, 3)
    silent_and_works((torch.eye(3).to_sparse_csr() @ x).sum())


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested(layout):
    x = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=layout, requires_grad=True)
    y = (x * 2) * (x * 3)
    silent_and_works((y.values() if layout == torch.jagged else y.to_padded_tensor(0.0)).sum())


def test_complex():
    x = leaf(4, dtype=torch.complex64)
    silent_and_works((torch.fft.fft(x).abs() * x.conj().real).sum())


def test_quantised():
    x = leaf(4)
    y = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)
    silent_and_works((y * torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8).dequantize()).sum())


def test_meta():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)).to("meta")
    report = silent_and_works(model(torch.randn(2, 3, 8, 8, device="meta")).sum(), params=model)
    assert any(str(s.device) == "meta" for n in report.graph.nodes for s in n.saved)


def test_meta_modified():
    x = leaf(4, device="meta")
    y = x.exp()
    y.add_(1)
    assert [f.kind for f in torchgraphdbg.inspect(y.sum()).findings if f.severity == "error"] == ["modified-in-place"]


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        model = nn.Linear(4, 4)
        loss = model(torch.randn(2, 4)).tanh().sum()
        silent(loss, params=model)
    silent(loss, params=model)


def test_symbolic_shapes():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    x = mode.from_tensor(torch.randn(5, 4, requires_grad=True), static_shapes=False)
    with mode:
        loss = (x * x).exp().sum()
    silent(loss)


def test_inference_tensors():
    with torch.inference_mode():
        w = torch.ones(3)
        frozen = nn.Linear(3, 3)
    x = leaf(3)
    silent_and_works((x + w).sum(), params={"x": x, "w": w})
    report = torchgraphdbg.inspect(w.sum(), params=frozen)
    assert report.findings[0].kind == "no-grad-fn"
    y = (x * 2).exp().sum()
    with torch.inference_mode():
        silent(y)


def test_parameter_subclasses():
    class Marked(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            Marked.calls += 1
            return super().__torch_function__(function, types, args, kwargs)

    Marked.calls = 0
    x = torch.randn(3).as_subclass(Marked).requires_grad_()
    y = (x * 2).sum()
    calls = Marked.calls
    silent(y, params={"x": x})
    assert Marked.calls == calls
    y.backward()


def test_dispatch_subclasses():
    from torch.testing._internal.two_tensor import TwoTensor

    x = TwoTensor(torch.randn(3), torch.randn(3)).requires_grad_()
    silent_and_works((x * x).exp().sum(), params={"x": x})
    a = x * 1
    y = a * a
    a.add_(1)
    assert "modified-in-place" in [f.kind for f in torchgraphdbg.inspect(y.sum()).findings]


# ---- functorch ----


def test_vmap_result():
    x = leaf(4, 3)
    silent_and_works(torch.func.vmap(lambda z: (z * z).exp().sum())(x).sum())


def test_inside_vmap():
    reports = []

    def part(z):
        y = (z * z).sum()
        reports.append(torchgraphdbg.inspect(y))
        return y

    torch.func.vmap(part)(leaf(4, 3))
    assert len(reports) == 1 and str(reports[0])


def test_inside_grad():
    reports = []

    def part(z):
        y = (z * z).exp().sum()
        reports.append(torchgraphdbg.inspect(y))
        return y

    torch.func.grad(part)(torch.randn(3))
    torch.func.vmap(torch.func.grad(part))(torch.randn(2, 3))
    torch.func.jacrev(torch.func.grad(part))(torch.randn(3))
    assert len(reports) == 3
    for report in reports:
        assert not [f for f in report.findings if f.kind in ("modified-in-place", "graph-freed", "storage-freed")], str(
            report
        )


def test_forward_mode():
    import torch.autograd.forward_ad as fwad

    x = leaf(3)
    with fwad.dual_level():
        silent_and_works((fwad.make_dual(x, torch.ones(3)).exp() * 2).sum())


def test_functionalised():
    x = torch.randn(3, requires_grad=True)
    reports = []

    def part(z):
        y = (z * 1).mul_(2).exp()
        reports.append(torchgraphdbg.inspect(y.sum()))
        return y

    torch.func.functionalize(part)(x)
    assert str(reports[0])


def test_double_backward():
    x = leaf(3)
    (g,) = torch.autograd.grad((x**3).exp().sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    silent_and_works(h.sum(), params={"x": x})


def test_from_inside_backward():
    reports = []

    class Nosy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            reports.append(torchgraphdbg.inspect(loss))
            return grad * 2

    x = leaf(3)
    y = Nosy.apply(x.exp())
    y.register_hook(lambda g: reports.append(torchgraphdbg.inspect(loss)))
    loss = y.sin().sum()
    loss.backward()
    assert len(reports) == 2
    assert all(str(r) for r in reports)


def test_sources_of_a_node():
    x = leaf(3)
    y = x.exp()
    assert silent(y.grad_fn).graph.nodes[0].name == "ExpBackward0"
    assert silent(torch.autograd.graph.get_gradient_edge(y)).graph.nodes[0].name == "ExpBackward0"


def test_anomaly_mode():
    with torch.autograd.set_detect_anomaly(True):
        y = leaf(3).exp()
        y.add_(1)
        report = torchgraphdbg.inspect(y.sum())
    assert report.findings[0].kind == "modified-in-place"


def test_jit_scripted():
    @torch.jit.script
    def part(x):
        return (x * x).tanh()

    x = leaf(3)
    for _ in range(4):
        y = part(x)
        silent_and_works(y.sum())


# ---- distributed ----

DDP = """
import sys, torch, torch.distributed as dist
from torch import nn
import torchgraphdbg
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
model = nn.parallel.DistributedDataParallel(plain)
for _ in range(3):
    loss = model(torch.randn(3, 4)).square().mean()
    report = torchgraphdbg.inspect(loss, params=model)
    assert report.ok, str(report)
    loss.backward()
    model.zero_grad()
dist.destroy_process_group()
"""
FSDP2 = """
import sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
import torchgraphdbg
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
for _ in range(2):
    loss = model(torch.randn(3, 4)).square().mean()
    report = torchgraphdbg.inspect(loss, params=model)
    loud = [f for f in report.findings if f.severity == "error"]
    assert not loud, str(report)
    print("warnings", [(f.kind, f.parameter) for f in report.findings if f.severity == "warning"])
    assert report.ok, str(report)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    model.zero_grad()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("text", [DDP, FSDP2], ids=["ddp", "fsdp2"])
def test_distributed(text, tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("torch without distributed")
    path = os.pathsep.join(
        [str(pathlib.Path(torchgraphdbg.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    done = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
