"""inspect() and dump() called by code that functorch transforms or torch.compile compiles."""
import pytest
import torch
from torch import nn

import torchgraphdbg
from torchgraphdbg import record


def reports_of(transform, *arguments, w):
    seen = []

    def f(x):
        y = (x * w).sin().sum()
        seen.append(torchgraphdbg.inspect(y, params={"w": w}))
        return y

    out = transform(f)(*arguments)
    return out, seen


def test_vmap_hides_the_graph_and_nobody_says_there_is_none():
    w = torch.randn(3, requires_grad=True)
    out, (within,) = reports_of(torch.vmap, torch.randn(4, 3), w=w)
    assert within.ok
    (note,) = within.findings
    assert (note.kind, note.severity, note.node) == ("opaque-node", "note", None)
    assert "vmap" in note.message and "unchecked" in note.message and "unchecked" in within.verdict
    assert note.kind in str(within) and within._repr_svg_()
    outside = torchgraphdbg.inspect(out.sum(), params={"w": w})
    assert outside.ok and [p["reached"] for p in outside.to_dict()["parameters"]] == [True]


def test_vmap_of_what_carries_no_grad_has_none():
    _, (within,) = reports_of(torch.vmap, torch.randn(4, 3), w=torch.randn(3))
    assert [f.kind for f in within.findings if f.severity == "error"] == ["no-grad-fn"]


def test_vmap_within_vmap():
    w = torch.randn(3, requires_grad=True)
    _, (within,) = reports_of(lambda f: torch.vmap(torch.vmap(f)), torch.randn(2, 4, 3), w=w)
    assert within.ok and [f.kind for f in within.findings] == ["opaque-node"]


def test_vmap_under_a_recorder():
    w = torch.randn(3, requires_grad=True)
    with record():
        out, (within,) = reports_of(torch.vmap, torch.randn(4, 3), w=w)
        assert within.ok and [f.kind for f in within.findings] == ["opaque-node"]
        assert "SinBackward0" in [n.name for n in torchgraphdbg.inspect(out.sum()).graph.nodes]


def test_grad_shows_its_own_level():
    w = torch.randn(3, requires_grad=True)
    _, (within,) = reports_of(torch.func.grad, torch.randn(3), w=w)
    assert "SinBackward0" in [node.name for node in within.graph.nodes]
    assert not [f for f in within.findings if f.severity == "error"]


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_inspect_in_compiled_code_looks_at_the_real_graph(backend, tmp_path):
    """It breaks the graph there, as print() does: what stands before and after it is compiled."""
    torch._dynamo.reset()
    model = nn.Linear(3, 3)

    @torch.compile(backend=backend)
    def f(x):
        h = model(x).sin()
        report = torchgraphdbg.inspect(h.sum(), params=model)
        torchgraphdbg.dump(h.sum(), str(tmp_path / "g.json"), quiet=True)
        return h * 2, report

    for _ in range(2):
        out, report = f(torch.randn(2, 3))
        assert report.ok and report.summary["parameters_reached"] == 2
        assert (tmp_path / "g.json").stat().st_size > 100
        assert torchgraphdbg.inspect(out.sum(), params=model).ok
