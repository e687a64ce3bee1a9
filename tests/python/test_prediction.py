"""One phenomenon a test: what is predicted, and that the real backward does it."""

import pathlib
import subprocess
import sys

import pytest
import torch
import torch.utils.checkpoint

import torchgraphdbg

FUZZ = pathlib.Path(__file__).resolve().parents[1] / "fuzz"
sys.path.insert(0, str(FUZZ))

import functions  # noqa: E402
import judge  # noqa: E402


class Written:
    """A program written by hand, in the form that the judge wants."""

    profile = "ops"

    def __init__(self, body, roots, inputs=None, seed=0, options=""):
        self.env = {name: getattr(functions, name) for name in functions.__all__}
        self.env["nn"] = torch.nn
        self.env["checkpoint"] = torch.utils.checkpoint.checkpoint
        self.seed = seed
        self.body = body
        torch.manual_seed(0)
        exec(body, self.env)
        self.roots, self.inputs = [], inputs
        for k, root in enumerate([roots] if isinstance(roots, str) else roots):
            exec(f"root{k} = {root}", self.env)
            self.roots.append(f"root{k}")
        gradients = ", ".join(f"torch.ones_like({r})" for r in self.roots)
        pruned = "" if inputs is None else f", inputs=[{', '.join(inputs)}]"
        self.flags = {"create_graph": True} if "create_graph=True" in options else {}
        self.action = f"torch.autograd.backward([{', '.join(self.roots)}], [{gradients}]{pruned}{options})"

    def text(self):
        return self.body


def report_of(program):
    return torchgraphdbg.inspect(
        [program.env[r] for r in program.roots],
        inputs=None if program.inputs is None else [program.env[i] for i in program.inputs],
        **({"create_graph": True} if program.flags else {}),
    )


# body, root(s), [(kind, node, saved)] of the errors in order, of each node the first; ... = and more
BROKEN = {
    "saved input": (
        "x = leaf(3); a = x * 2; y = a * a; a.add_(1)",
        "y.sum()",
        [("modified-in-place", "MulBackward0", "other")],
    ),
    "saved output": (
        "x = leaf(3); y = x.exp(); y.add_(1)",
        "y.sum()",
        [("modified-in-place", "ExpBackward0", "result")],
    ),
    "sigmoid then relu_": (
        "x = leaf(3); y = (x * 1).sigmoid(); y.relu_()",
        "y.sum()",
        [("modified-in-place", "SigmoidBackward0", "result")],
    ),
    "relu then +=": (
        "x = leaf(4); y = x.relu(); y += 1",
        "y.sum()",
        [("modified-in-place", "ReluBackward0", "result")],
    ),
    "softmax, then one entry": (
        "x = leaf(2, 5); y = x.softmax(-1); y[0, 0] = 0",
        "y.sum()",
        [("modified-in-place", "SoftmaxBackward0", "result")],
    ),
    "constant operand": (
        "x = leaf(3); w = tensor(3); y = x * w; w.add_(1)",
        "y.sum()",
        [("modified-in-place", "MulBackward0", "other")],
    ),
    "under no_grad": (
        "x = leaf(3); a = x * 2; y = a * a\nwith torch.no_grad(): a.add_(1)",
        "y.sum()",
        [("modified-in-place", "MulBackward0", "other")],
    ),
    "through detach": (
        "x = leaf(3); a = x * 2; y = a * a; a.detach().add_(1)",
        "y.sum()",
        [("modified-in-place", "MulBackward0", "other")],
    ),
    "two broken nodes": (
        "x = leaf(3); a = x * 1; b = a.exp(); c = a.sin(); a.add_(1); b.add_(1)",
        "(b + c).sum()",
        [("modified-in-place", "SinBackward0", "self"), ("modified-in-place", "ExpBackward0", "result")],
    ),
    "loop": (
        "x = leaf(3); h = x * 1\nfor _ in range(3):\n    h = h.tanh(); h += 1",
        "h.sum()",
        [("modified-in-place", "TanhBackward0", "result")] * 3,
    ),
    "optimizer between": (
        "m = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1)); o = torch.optim.SGD(m.parameters(), lr=.1)\n"
        "a = m(torch.randn(2, 3)).sum(); b = m(torch.randn(2, 3)).sum(); a.backward(); o.step()",
        "b",
        [("modified-in-place", "AddmmBackward0", "mat2")],
    ),
    "base, after a view was used": (
        "x = leaf(4, 4); a = x * 1; y = a * a; v = a[0]; v.mul_(2)",
        "y.sum()",
        [("modified-in-place", "MulBackward0", "other")],
    ),
    "inside CopySlices": (
        "x = leaf(4); a = x * 1; v = a[:2]; v.exp_(); a.add_(1)",
        "(a * 1).sum()",
        [("modified-in-place", "CopySlices", "result")],
    ),
    "embedding's indices": (
        "e = nn.Embedding(4, 3); i = torch.tensor([0, 1]); y = e(i); i.add_(1)",
        "y.sum()",
        [("modified-in-place", "EmbeddingBackward0", "indices")],
    ),
    "list of indices": (
        "x = leaf(4, 4); i = torch.tensor([0, 1]); y = x[i]; i.add_(1)",
        "y.sum()",
        [("modified-in-place", "IndexBackward0", "indices")],
    ),
    "foreach in place": (
        "x = leaf(3); a = x * 1; y = a.exp() * a; torch._foreach_add_([a], 1.)",
        "y.sum()",
        [("modified-in-place", "MulBackward0", "other"), ("modified-in-place", "ExpBackward0", "result")][:1],
    ),
    "detach_ of a saved input": (
        "x = leaf(3); a = x * 2; b = a * a; a.detach_()",
        "b.sum()",
        [("detached-in-place", "MulBackward0", "other")],
    ),
    "second backward": (
        "x = leaf(3); y = x.exp().sum(); y.backward()",
        "y",
        [("graph-freed", "ExpBackward0", "result")],
    ),
    "second backward, list": (
        "x = leaf(4, 4); y = x[torch.tensor([0, 1])].sum(); y.backward()",
        "y",
        [("graph-freed", "IndexBackward0", "indices")],
    ),
    "second backward, CopySlices": (
        "x = leaf(4); a = x * 1; a[:2].exp_(); y = a.sum(); y.backward()",
        "y",
        [("graph-freed", "CopySlices", None), ...],
    ),
    "hidden state carried over": (
        "m = nn.LSTMCell(3, 3); h = c = torch.zeros(1, 3); x = torch.randn(1, 3)\n"
        "h, c = m(x, (h, c)); h.sum().backward(); h, c = m(x, (h, c))",
        "h.sum()",
        [("graph-freed", "MulBackward0", "other"), ...],
    ),
    "freed through inputs=": (
        "x = leaf(3); z = leaf(3); a = x.exp(); b = z.exp(); y = (a + b).sum(); y.backward(inputs=[x])",
        "y",
        [("graph-freed", "ExpBackward0", "result")],
    ),
    "no derivative": (
        "x = leaf(3, 3); y = torch.linalg.ldl_factor(x)[0]",
        "y.sum()",
        [("not-differentiable", "NotImplemented", None)],
    ),
    "a derivative that only raises": (
        "x = leaf(3, 3); y = torch.special.zeta(x, x)",
        "y.sum()",
        [("not-differentiable", "SpecialZetaBackward0", None)],
    ),
    "no derivative in place": (
        "x = leaf(3, 3); y = (x.abs() + 1).acosh_()",
        "y.sum()",
        [("not-differentiable", "AcoshBackward1", None)],
    ),
    "no derivative in place on a view": (
        "x = leaf(3, 3); y = x.abs() + 1; y[0].acosh_()",
        "y.sum()",
        [("not-differentiable", "CopySlices", None)],
    ),
    "one formula of two is missing, and wanted": (
        "x = leaf(3); w = tensor(3); y = torch.special.zeta(x, w)",
        "y.sum()",
        [("not-differentiable", "SpecialZetaBackward0", None)],
    ),
    "once differentiable, twice": (
        "x = leaf(3); y = OnceSquare.apply(x); g, = torch.autograd.grad(y.sum() ** 2, x, create_graph=True)",
        "g.sum()",
        [("not-differentiable", None, None)],
    ),
    "no graph": ("x = leaf(3)", "x.detach() * 2", [("no-grad-fn", None, None)]),
    "one root of two without a graph": ("x = leaf(3)", ["x * 2", "x.detach()"], [("no-grad-fn", None, None)]),
}
HEALTHY = {
    "relu_": ("x = leaf(3); y = (x * 1).relu_()", "y.sum()"),
    "mul then relu_": ("x = leaf(3); z = (x * 1) * (x + 1); z.relu_()", "z.sum()"),
    "conv, batch norm, relu_": (
        "y = F.relu(nn.BatchNorm2d(3)(nn.Conv2d(3, 3, 1)(torch.randn(2, 3, 8, 8))), inplace=True)",
        "y.sum()",
    ),
    "retained": ("x = leaf(3); y = x.exp().sum(); y.backward(retain_graph=True)", "y"),
    "nothing saved": ("x = leaf(3); y = (x + 1).sum(); y.backward()", "y"),
    "only shapes saved": ("x = leaf(3); y = torch.cat([x, x + 1]).sum(); y.backward()", "y"),
    "write into a view, used later": ("x = leaf(4, 4); a = x * 1; a[0].mul_(2)", "(a * a).sum()"),
    "view of a deleted base": ("x = leaf(4); a = x * 1; v = a[:2]; v.exp_(); del a", "v.sum()"),
    "detach_ of a saved output": ("x = leaf(3); a = x.exp(); b = a * 2; a.detach_()", "b.sum()"),
    "copied before it was zeroed": (
        "x = leaf(3); y = x * 1; s = torch.zeros(3, dtype=x.dtype); s.copy_(y); y.zero_()",
        "s.sum()",
    ),
    "dropout then mul_": ("x = leaf(2, 3); y = F.dropout(x * 1, 0.5); y.mul_(2)", "y.sum()"),
    "not saved: the other operand is constant": (
        "w = leaf(3); x = tensor(3); y = x * w\nwith torch.no_grad(): w.mul_(2)",
        "y.sum()",
    ),
    "frozen after use": ("w = leaf(3); y = w * w; w.requires_grad_(False)", "y.sum()"),
    "reentrant checkpoint": (
        "m = nn.Linear(3, 3); x = leaf(2, 3, dtype=torch.float32); h = checkpoint(m, x, use_reentrant=True)",
        "h.sum()",
    ),
    "checkpoint": (
        "m = nn.Linear(3, 3); x = leaf(2, 3, dtype=torch.float32); h = checkpoint(m, x, use_reentrant=False)",
        "h.sum()",
    ),
    "saved on the CPU, then written to": (
        "x = leaf(3); a = x * 1\nwith torch.autograd.graph.save_on_cpu(): y = a * a\na.add_(1)",
        "y.sum()",
    ),
    "sparse": ("x = leaf(3); y = x.to_sparse().to_dense().exp()", "y.sum()"),
    "complex": ("x = leaf(3, dtype=torch.complex64); y = (x.conj() * x).real.sqrt()", "y.sum()"),
    "broadcast root": ("x = leaf(3)", "x.expand(2, 3)"),
    "a gradient's own graph": (
        "x = leaf(3); g, = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)",
        "(g * g).sum()",
    ),
    "one formula of two is missing, and not wanted": (
        "x = tensor(3).abs() + 2; w = leaf(3); y = torch.special.zeta(x, w)",
        "y.sum()",
    ),
    "swapped by .data": ("w = leaf(3, 3); y = tensor(3, 3) @ w; w.data = torch.zeros(3, 3, dtype=w.dtype)", "y.sum()"),
}
PRUNED = {
    "broken branch not needed": (
        "p = leaf(3); q = leaf(3); a = p * 1; y = a * a; z = q * 3; a.add_(1)",
        "y.sum() + z.sum()",
        ["q"],
        [],
    ),
    "broken branch needed": (
        "p = leaf(3); q = leaf(3); a = p * 1; y = a * a; z = q * 3; a.add_(1)",
        "y.sum() + z.sum()",
        ["p"],
        [("modified-in-place", "MulBackward0", "other")],
    ),
    "down to an intermediate": ("p = leaf(3); a = p.exp(); b = a.sin(); c = b.cos(); a.add_(1)", "c.sum()", ["c"], []),
    "the input's own node runs": (
        "p = leaf(3); a = p.exp(); b = a.sin(); c = b.cos(); b.add_(1)",
        "c.sum()",
        ["c"],
        [("modified-in-place", "CosBackward0", "self")],
    ),
    "an input that is not in the graph": ("p = leaf(3); q = leaf(3); y = p.exp()", "y.sum()", ["q"], []),
    "through a freed part": (
        "p = leaf(3); q = leaf(3); a = p.exp(); a.sum().backward(); b = (a * q)",
        "b.sum()",
        ["q"],
        [],
    ),
}
MAY = {  # a custom Function decides: (raises?)
    "reads what was changed": ("x = leaf(3); a = x * 1; y = Square.apply(a); a.add_(1)", "y.sum()", True),
    "reads it through a helper": ("x = leaf(3); a = x * 1; y = LastOnly.apply(a); a.add_(1)", "y.sum()", True),
    "does not read it": ("x = leaf(3); a = x * 1; y = Unread.apply(a); a.add_(1)", "y.sum()", False),
    "reads it only sometimes": ("x = leaf(3); a = x * 1; y = Sometimes.apply(a, False); a.add_(1)", "y.sum()", False),
    "second time": ("x = leaf(3); y = Square.apply(x).sum(); y.backward()", "y", True),
    "second time, unread": ("x = leaf(3); y = Unread.apply(x).sum(); y.backward()", "y", False),
    "second time, nothing saved but asked for": ("x = leaf(3); y = Unsaved.apply(x).sum(); y.backward()", "y", True),
    "non-differentiable output changed": ("x = leaf(3); y, k = Masked.apply(x); k.add_(1)", "y.sum()", True),
}


def check(program, errors):
    said, seen = [], set()
    for f in report_of(program).findings:
        if f.severity == "error" and (f.node is None or (f.node.index, f.kind) not in seen):  # the first of each node
            seen.add(None if f.node is None else (f.node.index, f.kind))
            said.append((f.kind, None if f.node is None else f.node.name, f.saved))
    if errors and errors[-1] is ...:
        errors = errors[:-1]
        said = said[: len(errors)]
    assert len(said) == len(errors), said
    for (kind, node, saved), (kind_said, node_said, saved_said) in zip(errors, said):
        assert (kind, node or node_said, saved or saved_said) == (kind_said, node_said, saved_said), said
    verdict, detail = judge.judge(program, lambda key, value: None)
    assert verdict == ("exact" if errors else "healthy"), (verdict, detail)


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name):
    body, roots, errors = BROKEN[name]
    check(Written(body, roots), errors)


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy(name):
    program = Written(*HEALTHY[name])
    report = report_of(program)
    assert report.ok, str(report)
    check(program, [])


@pytest.mark.parametrize("name", PRUNED)
def test_inputs(name):
    body, roots, inputs, errors = PRUNED[name]
    check(Written(body, roots, inputs), errors)


@pytest.mark.parametrize("name", MAY)
def test_may(name):
    body, roots, raises = MAY[name]
    verdict, detail = judge.judge(Written(body, roots), lambda key, value: None)
    assert verdict in (("exact", "may, raised") if raises else ("healthy", "may, passed")), (verdict, detail)


def test_create_graph():
    """It runs; only what comes of it cannot be differentiated again."""
    program = Written("x = leaf(3); y = OnceSquare.apply(x)", "y.sum()", options=", create_graph=True")
    assert [(f.kind, f.severity) for f in report_of(program).findings] == [("not-differentiable", "warning")]
    assert judge.judge(program, lambda key, value: None)[0] == "warned of something else"
    check(Written("x = leaf(3); y = Square.apply(x)", "y.sum()", options=", create_graph=True"), [])


def test_leaf_as_root():
    """Works, and is hardly ever what was meant."""
    x = torch.randn(3, requires_grad=True)
    assert [(f.kind, f.severity, f.reason) for f in torchgraphdbg.inspect(x.sum() * 0 + x.sum()).findings] == []
    report = torchgraphdbg.inspect(torch.zeros((), requires_grad=True))
    assert [(f.kind, f.severity, f.reason) for f in report.findings] == [("no-grad-fn", "warning", "root-is-leaf")]


def test_versions_in_the_message():
    x = torch.randn(3, requires_grad=True)
    a = x * 2
    y = a * a
    for _ in range(3):
        a.add_(1)
    finding = torchgraphdbg.inspect(y.sum()).findings[0]
    with pytest.raises(RuntimeError) as raised:
        y.sum().backward()
    current, saved = judge.VERSIONS.search(str(raised.value)).groups()
    assert (current, saved) == ("3", "0") == judge.versions_of(finding)


def test_root_that_pytorch_refuses_to_name():
    """A multi-output view whose base was written to has no grad_fn that could be asked for."""
    x = torch.randn(3, 3, requires_grad=True) * 1
    row, rest = x.unbind(0)[:2]
    x.mul_(2)
    with pytest.raises(RuntimeError):
        row.grad_fn
    report = torchgraphdbg.inspect(row)
    assert [(f.kind, f.severity) for f in report.findings] == [("bad-root", "error")]
    assert "view" in report.verdict and len(report.graph.nodes) == 0


def test_nodes_of_equal_sequence_number():
    """Threads count for themselves, so numbers repeat; the engine's heap then decides."""
    program = Written(
        "x = leaf(3); a = x * 1; p = [in_thread(lambda: (a * a).exp() * a) for _ in range(6)]", "sum(p).sum()"
    )
    assert judge.judge(program, lambda key, value: None)[0] == "healthy"


def test_fuzzer():
    done = subprocess.run(
        [sys.executable, str(FUZZ / "fuzz.py"), "--programs", "300", "--seed", "1"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]


def test_root_of_another_shape_than_its_grad_fn_knows():
    x = torch.randn(1, 3, requires_grad=True)
    y = x * 2
    with torch.no_grad():
        y.squeeze_()
    findings = [f for f in torchgraphdbg.inspect(y).findings if f.severity == "error"]
    assert [f.kind for f in findings] == ["bad-root"]
    with pytest.raises(RuntimeError, match="invalid gradient"):
        y.backward(torch.ones_like(y))


def test_leaf_of_another_shape_than_the_graph_knows():
    """Pruning a layer while an older graph of it is alive."""
    layer = torch.nn.Linear(3, 3)
    old = layer(torch.randn(2, 3)).sum()
    layer.weight.data = layer.weight.data[:, :2]
    new = layer(torch.randn(2, 2)).sum()
    findings = [f for f in torchgraphdbg.inspect(new, params=layer).findings if f.severity != "note"]
    assert [(f.kind, f.node.name) for f in findings] == [("storage-changed", "AccumulateGrad")]
    with pytest.raises(RuntimeError, match="invalid gradient"):
        new.backward()
    del old
