"""Each node's line, function, module path and class, in everything that runs code in a way of its own."""
import pathlib
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import torchgraphdbg
from torchgraphdbg import record

SOURCE = pathlib.Path(__file__).read_text().splitlines()


def line(mark):
    """The line of this file that ends with the mark."""
    (found,) = [number for number, text in enumerate(SOURCE, 1) if text.endswith("# " + mark)]
    return found


def found(root, name):
    """(line, function, module) of every node of this name."""
    nodes = torchgraphdbg.inspect(root).graph.nodes
    assert all(node.where.file == __file__ for node in nodes if node.name == name)
    return [(n.where.line, n.where.function.split(".")[-1], n.module) for n in nodes if n.name == name]


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


# ---- modules ----

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.act = nn.Tanh()

    def forward(self, x):
        h = self.fc(x)  # block fc
        return self.act(h) * 2  # block act


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.again = self.layers[0]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.again(x).sum()  # net sum


@pytest.mark.parametrize("named", [True, False])
def test_modules_within_modules(named):
    model = Net()
    with record(params=model if named else None):
        loss = model(torch.randn(2, 3))
        report = torchgraphdbg.inspect(loss)
        assert found(loss, "SumBackward0") == [(line("net sum"), "forward", "")]
        # A shared module has its first path.
        paths = ["layers.0", "layers.2", "layers.1", "layers.0"]
        assert found(loss, "AddmmBackward0") == [(line("block fc"), "forward", p + ".fc") for p in paths]
        assert found(loss, "TanhBackward0") == [(line("block act"), "forward", p + ".act") for p in paths]
        assert found(loss, "MulBackward0") == [(line("block act"), "forward", p) for p in paths]
    classes = {n["name"]: n["where"] and n["where"]["module_class"] for n in report.to_dict()["nodes"]}
    assert (classes["SumBackward0"], classes["MulBackward0"], classes["TanhBackward0"]) == ("Net", "Block", "Tanh")


def test_wrapped_models():
    parallel = nn.DataParallel(Net())  # without a device it calls the module
    with record(params=parallel):
        assert found(parallel(torch.randn(2, 3)), "TanhBackward0")[0][2] == "module.layers.0.act"


def test_replicas_in_threads():
    """As DataParallel's replicas: copies of the modules, each called in a thread of its own."""
    model, results = Net(), []
    copies = Net(), Net()
    with record(params=model):
        threads = [threading.Thread(target=lambda m=m: results.append(m(torch.randn(2, 3)))) for m in copies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            assert [path for *_, path in found(result, "TanhBackward0")][1:] == ["layers.2.act", "layers.1.act",
                                                                                 "layers.0.act"]


def test_hooks_run_within_their_module():
    model = Net()

    def before(module, args):
        return (args[0].exp(),)  # hook

    model.layers[1].register_forward_pre_hook(before)
    with record(params=model):
        assert found(model(torch.randn(2, 3)), "ExpBackward0") == [(line("hook"), "before", "layers.1")]


# ---- custom Functions, double backward ----

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return CubeGrad.apply(x, grad)  # inner apply


class CubeGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, grad):
        ctx.save_for_backward(x, grad)
        return 3 * x * x * grad

    @staticmethod
    def backward(ctx, grad_grad):
        x, grad = ctx.saved_tensors
        return 6 * x * grad * grad_grad, 3 * x * x * grad_grad


def test_custom_function():
    with record():
        y = Cube.apply(leaf(3))  # apply
        assert found(y, "CubeBackward") == [(line("apply"), "test_custom_function", None)]


def test_custom_function_applied_in_backward_has_its_own_line():
    with record():
        x = leaf(3)
        y = Cube.apply(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        report = torchgraphdbg.inspect(g.sum() + y.sum())
        assert found(g.sum(), "CubeGradBackward") == [(line("inner apply"), "backward", None)]
    node = next(n for n in report.graph.nodes if n.name == "CubeGradBackward")
    assert node.made_by.name == "CubeBackward"


class Penalised(nn.Module):
    def forward(self, x):
        return x.sin().mul(x).sum()  # penalised


def test_double_backward_goes_back_to_the_forward():
    model, x = Penalised(), leaf(3)
    with record(params=model):
        y = model(x)
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        z = g.square().sum() + y  # after
        report = torchgraphdbg.inspect(z)
        assert found(z, "CosBackward0") == [(line("penalised"), "forward", "")]
        assert found(z, "PowBackward0") == [(line("after"), "test_double_backward_goes_back_to_the_forward", None)]
    made = {n.name: n.made_by and n.made_by.name for n in report.graph.nodes}
    assert made["CosBackward0"] == "SinBackward0" and made["SinBackward0"] is None and made["PowBackward0"] is None


def test_error_in_a_double_backward_names_the_forward():
    x = leaf(3)
    with record() as rec:
        y = x.sin()  # forward of the broken one
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        with torch.no_grad():
            torch.autograd.graph.increment_version(x)  # by no op: nobody can be named
        report = torchgraphdbg.inspect(g.sum() + y.sum())
        del rec
    error = next(f for f in report.findings if f.node is not None and f.node.name == "CosBackward0")
    assert error.where.line == line("forward of the broken one")
    assert f"made by the backward of SinBackward0 at test_provenance.py:{error.where.line}" in error.message


def test_third_derivative():
    x = leaf(3)
    with record():
        y = x.sin()  # thrice
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
        assert found(h, "SinBackward0") == [(line("thrice"), "test_third_derivative", None)]


def test_gradient_of_what_was_made_before_the_recorder():
    x = leaf(3)
    y = x.sin().sum()
    with record():
        (g,) = torch.autograd.grad(y, x, create_graph=True)  # only line known
        assert found(g, "CosBackward0")[0][0] == line("only line known")


# ---- checkpoints ----

def inner(model, seen):
    def run(x):
        h = model(x).exp()  # in checkpoint
        if h.requires_grad:
            seen.append(torchgraphdbg.inspect(h))
        return h
    return run


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant):
    seen, model = [], Block()
    with record(params=model), set_checkpoint_early_stop(False):
        y = checkpoint(inner(model, seen), leaf(2, 3), use_reentrant=reentrant)  # checkpoint call
        if reentrant:
            assert found(y, "CheckpointFunctionBackward")[0][0] == line("checkpoint call")
        else:
            assert found(y, "ExpBackward0") == [(line("in checkpoint"), "run", None)]
        y.sum().backward()
    assert len(seen) == (1 if reentrant else 2)
    for report in seen:  # the forward, where it makes a graph, and the recomputation
        nodes = {n.name: n for n in report.graph.nodes}
        assert nodes["ExpBackward0"].where.line == line("in checkpoint")
        assert nodes["TanhBackward0"].where.line == line("block act") and nodes["TanhBackward0"].module == "act"


def test_checkpoint_of_a_library_module():
    """Recomputed in backward without a line of the user's: the line of the checkpoint, not of backward()."""
    model, seen = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), []

    def look(module, args, out):
        if out.requires_grad:
            seen.append(torchgraphdbg.inspect(out))

    model[1].register_forward_hook(look)
    with record(params=model):
        y = checkpoint(model, leaf(2, 3), use_reentrant=True)  # of a library module
        y.sum().backward()
    (report,) = seen
    assert [(n.where.line, n.module) for n in report.graph.nodes if n.name == "TanhBackward0"] == [
        (line("of a library module"), "1")]


# ---- autocast, torch.compile, functorch ----

def test_autocast():
    model = Block()
    with record(params=model), torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(torch.randn(2, 3))
        assert set(found(y, "ToCopyBackward0")) == {(line("block fc"), "forward", "fc")}
        assert found(y, "AddmmBackward0") == [(line("block fc"), "forward", "fc")]


class Broken(nn.Module):
    """torch.compile makes two regions of it."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        h = self.fc(x)
        torch._dynamo.graph_break()
        return h.sin()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", [Net, Broken])
def test_compiled_module(backend, kind):
    torch._dynamo.reset()
    model = kind()
    fast = torch.compile(model, backend=backend)
    with record(params=fast):
        fast(torch.randn(2, 3))
        loss = fast(torch.randn(2, 3)).sum()  # call of the region
        nodes = [n for n in torchgraphdbg.inspect(loss).graph.nodes if n.where is not None]
    assert len(nodes) > 1 + (backend == "aot_eager" and kind is Broken)
    assert {n.where.line for n in nodes} == {line("call of the region")}
    assert {n.module for n in nodes} <= {"", None}
    compiled = [n for n in nodes if n.name == "CompiledFunctionBackward"]
    assert len(compiled) == (0 if backend == "eager" else 1 if kind is Net else 2)


def test_compiled_function_within_a_module():
    torch._dynamo.reset()
    gate = torch.compile(lambda t: t.tanh() * 2, backend="aot_eager")

    class Gated(nn.Module):
        def forward(self, x):
            return gate(x).exp()  # gate call

    model = Gated()
    with record(params=model):
        y = model(leaf(3))
        assert found(y, "CompiledFunctionBackward") == [(line("gate call"), "forward", "")]
        assert found(y, "ExpBackward0") == [(line("gate call"), "forward", "")]


def test_vmap_grad_and_jvp():
    w = leaf(3)

    def model(x):
        return (w * x).sin()  # transformed

    x = torch.randn(4, 3)
    with record():
        for y in (torch.vmap(model)(x), torch.func.jvp(model, (x[0],), (x[0],))[1],
                  torch.func.vmap(torch.func.grad(lambda t: model(t).sum()))(x)):
            places = found(y.sum(), "MulBackward0")
            assert places and {place[:2] for place in places} == {(line("transformed"), "model")}
