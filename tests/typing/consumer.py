"""Checked by mypy --strict, never run: the package as a typed program uses it."""
import io
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch.autograd.graph import get_gradient_edge
from typing_extensions import assert_type

import torchgraphdbg
import torchgraphdbg.auto
from torchgraphdbg import Edge, Finding, Graph, GraphSequence, InputMetadata, Node, Report, SavedTensor


def roots(loss: torch.Tensor) -> None:
    assert_type(torchgraphdbg.inspect(loss), Report)
    torchgraphdbg.inspect([loss, get_gradient_edge(loss)])
    if loss.grad_fn is not None:
        torchgraphdbg.inspect(loss.grad_fn)
    torchgraphdbg.inspect(x for x in [loss])
    torchgraphdbg.inspect(3)  # type: ignore[arg-type]
    torchgraphdbg.inspect(None)  # type: ignore[arg-type]
    torchgraphdbg.inspect(loss, parameters=[])  # type: ignore[call-arg]


def params(loss: torch.Tensor, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    torchgraphdbg.inspect(loss, params=model)
    torchgraphdbg.inspect(loss, params=optimizer)
    torchgraphdbg.inspect(loss, params=model.parameters())
    torchgraphdbg.inspect(loss, params=model.named_parameters())
    torchgraphdbg.inspect(loss, params=dict(model.named_parameters()), inputs=loss, create_graph=True)
    torchgraphdbg.inspect(loss, params=None, inputs=[loss])
    torchgraphdbg.inspect(loss, params="weight")  # type: ignore[arg-type]
    assert_type(torchgraphdbg.assert_healthy(loss, params=model), None)


def dumps(loss: torch.Tensor) -> None:
    assert_type(torchgraphdbg.dump(loss), Report)
    torchgraphdbg.dump(loss, "graph.svg")
    torchgraphdbg.dump(loss, b"graph.svg")
    torchgraphdbg.dump(loss, pathlib.Path("graph.svg"), file=io.StringIO(), quiet=True)
    torchgraphdbg.dump(loss, ["graph.svg", pathlib.Path("graph.json")])
    torchgraphdbg.dump(loss, None)
    torchgraphdbg.dump(loss, 3)  # type: ignore[arg-type]


def reports(report: Report) -> None:
    assert_type(report.verdict, str)
    assert_type(report.ok, bool)
    assert_type(report.findings, tuple[Finding, ...])
    assert_type(report.graph, Graph)
    assert_type(report.summary, dict[str, int])
    assert_type(report.to_dict(), dict[str, Any])
    report.save(pathlib.Path("graph.json"))
    report.save("graph.json", redact=True)
    report.save("graph.svg", detail=40, focus="layers.0")
    report.save("graph.svg", detail="all", focus=report.graph.nodes[0])
    report.verdict = "fine"  # type: ignore[misc]
    assert_type(torchgraphdbg.load(pathlib.Path("graph.json")), Report)
    torchgraphdbg.load(3)  # type: ignore[arg-type]


def findings(finding: Finding) -> None:
    assert_type(finding.severity, Literal["error", "warning", "note"])
    assert_type(finding.hint, str | None)
    assert_type(finding.node, Node | None)
    assert_type(finding.saved_index, int | None)


def graphs(graph: Graph) -> None:
    nodes: Sequence[Node] = graph.nodes
    assert_type(graph.nodes[0], Node)
    assert_type(graph.nodes[1:], GraphSequence[Node])
    assert_type(list(graph.edges), list[Edge])
    assert_type(graph.roots, tuple[Node | None, ...])
    for node in reversed(nodes):
        assert_type(node.sequence_nr, int | None)
        assert_type(node.inputs, tuple[InputMetadata, ...])
        assert_type(node.saved, tuple[SavedTensor, ...])
        assert_type(node.next, tuple[Edge, ...])
        assert_type({node: node.hooks["pre"]}, dict[Node, int])
        for saved in node.saved:
            assert_type(saved.shape, tuple[int, ...] | None)
            assert_type(saved.dtype, torch.dtype | None)
            assert_type(saved.contiguous, bool | None)
        for edge in node.next:
            assert_type(edge.target, Node | None)


def errors(loss: torch.Tensor) -> None:
    try:
        torchgraphdbg.inspect(loss)
    except torchgraphdbg.Error as error:
        assert_type(error, torchgraphdbg.Error)
        raise RuntimeError(torchgraphdbg.__version__) from error


def watched(model: torch.nn.Module) -> None:
    armed = torchgraphdbg.watch(model, pathlib.Path("out"), every=2, max_dumps=3, forward=True)
    assert_type(armed, torchgraphdbg.watch)
    armed.remove()
    with torchgraphdbg.watch(model.parameters()) as again:
        assert_type(again, torchgraphdbg.watch)


def recorded(model: torch.nn.Module, x: torch.Tensor) -> None:
    with torchgraphdbg.record(params=model) as rec:
        assert_type(rec, torchgraphdbg.record)
        model(x).sum().backward()
    assert_type(rec.report(), Report)
    assert_type(rec.reports, tuple[Report, ...])
    for node in rec.report().graph.nodes:
        if node.time is not None and node.gradient is not None:
            assert_type((node.time.self, node.time.device), tuple[float, float | None])
            assert_type((node.gradient.norm, node.gradient.nan), tuple[float | None, int | None])
    assert_type(rec.report().diff(rec.report()).slower, float | None)
    for finding in rec.report(params=model.named_parameters()).findings:
        assert_type(finding.op, str | None)
        if finding.where is not None:
            assert_type(finding.where, torchgraphdbg.SourceLocation)
            assert_type((finding.where.file, finding.where.line), tuple[str, int])


def recording() -> None:
    assert_type(torchgraphdbg.auto.start(), bool)
    assert_type(torchgraphdbg.auto.stop(), None)
    torchgraphdbg.no_such_name  # type: ignore[attr-defined]
