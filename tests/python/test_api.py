"""Report, Finding, Graph and its parts as a Python user meets them."""
import collections.abc
import copy
import gc
import html
import inspect
import base64
import pathlib
import pickle
import re
import sys
import threading
import xml.etree.ElementTree as ElementTree

import pytest
import torch

import torchgraphdbg
from torchgraphdbg import _core

TYPES = [torchgraphdbg.Report, torchgraphdbg.Finding, torchgraphdbg.Graph, torchgraphdbg.GraphSequence,
         torchgraphdbg.Node, torchgraphdbg.Edge, torchgraphdbg.SavedTensor, torchgraphdbg.InputMetadata]


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y, grad * x


# ---- reports ----

def test_healthy(healthy, mlp):
    report = torchgraphdbg.inspect(healthy, params=mlp)
    assert report.ok is True
    assert report.findings == ()
    assert isinstance(report.verdict, str) and report.verdict
    assert report.summary["parameters"] == 4
    assert report.summary["parameters_reached"] == 4
    assert report.summary["leaves"] == 4
    assert report.summary["nodes"] == len(report.graph.nodes)
    healthy.backward()


def test_modified_in_place(broken, broken_report):
    assert broken_report.ok is False
    assert isinstance(broken_report.findings, tuple)
    assert broken_report.findings is broken_report.findings
    finding = broken_report.findings[0]
    assert type(finding) is torchgraphdbg.Finding
    assert finding.kind == "modified-in-place"
    assert finding.severity == "error"
    assert finding.node.name == "ExpBackward0"
    assert finding.saved == "result"
    assert finding.saved_index is None
    assert finding.parameter is None
    assert finding.reason is None
    assert finding.op is None
    assert finding.where is None
    assert isinstance(finding.hint, str) and finding.hint
    saved = next(s for s in finding.node.saved if s.name == finding.saved)
    assert (saved.saved_version, saved.version, saved.state) == (0, 1, "modified")
    assert saved.is_output
    with pytest.raises(RuntimeError) as raised:
        broken.backward()
    versions = re.search(r"is at version (\d+); expected version (\d+)", str(raised.value)).groups()
    assert versions == ("1", "0")
    assert all(number in finding.message for number in versions)


def test_second_backward(healthy):
    healthy.backward()
    report = torchgraphdbg.inspect(healthy)
    assert not report.ok
    assert {f.kind for f in report.findings if f.severity == "error"} == {"graph-freed"}
    assert any(s.state == "released" for n in report.graph.nodes for s in n.saved)


def test_no_grad_fn():
    report = torchgraphdbg.inspect(torch.ones(()))
    assert [f.kind for f in report.findings if f.severity == "error"] == ["no-grad-fn"]
    assert report.findings[0].node is None
    assert report.graph.roots == (None,)
    assert len(report.graph.nodes) == 0
    assert list(report.graph.edges) == []


def test_mixed_roots(healthy):
    report = torchgraphdbg.inspect([torch.ones(()), healthy])
    assert [f.kind for f in report.findings if f.severity == "error"] == ["no-grad-fn"]
    assert report.graph.roots[0] is None
    assert report.graph.roots[1] == report.graph.nodes[0]


def test_unreached_parameter(mlp):
    unused = torch.nn.Linear(2, 2)
    model = torch.nn.ModuleDict({"used": mlp, "unused": unused})
    report = torchgraphdbg.inspect(mlp(torch.randn(5, 4)).sum(), params=model)
    unreached = [f for f in report.findings if f.kind == "unreached-parameter"]
    assert [f.parameter for f in unreached] == ["unused.weight", "unused.bias"]
    assert all(f.node is None for f in unreached)
    assert not report.ok


def test_frozen_parameters_are_no_finding(mlp):
    mlp[0].requires_grad_(False)
    report = torchgraphdbg.inspect(mlp(torch.randn(5, 4)).sum(), params=mlp)
    assert report.ok
    assert report.summary["parameters_frozen"] == 2


def test_saved_tensors_of_a_custom_function():
    x = torch.randn(3, requires_grad=True)
    y = (x * 1).clone()
    loss = Scale.apply(x * 2, y).sum()
    y.add_(1)
    finding = torchgraphdbg.inspect(loss).findings[0]
    assert (finding.kind, finding.saved, finding.saved_index) == ("modified-in-place", "saved_tensors", 1)
    assert finding.node.name == "ScaleBackward"
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_text_and_repr(broken_report):
    text = str(broken_report)
    assert broken_report.verdict in text
    assert "modified-in-place" in text or broken_report.findings[0].message in text
    assert "\n" not in repr(broken_report)
    assert repr(broken_report) == f"<torchgraphdbg.Report: {broken_report.verdict}>"
    finding = broken_report.findings[0]
    assert "modified-in-place" in repr(finding) and "\n" not in repr(finding)
    assert str(finding).startswith("error: modified-in-place: " + finding.message)
    assert finding.hint in str(finding)


def test_to_dict(broken_report):
    document = broken_report.to_dict()
    assert isinstance(document, dict)
    assert document["verdict"] == broken_report.verdict
    assert document["findings"][0]["kind"] == "modified-in-place"


def test_notebook_forms(broken_report):
    svg = broken_report._repr_svg_()
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    page = broken_report._repr_html_()
    match = re.fullmatch(r'<img alt="([^"<>]*)" style="max-width: 100%" '
                         r'src="data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)">', page)
    assert html.unescape(match.group(1)) == broken_report.verdict
    ElementTree.fromstring(base64.b64decode(match.group(2)))


def test_summary(healthy):
    summary = torchgraphdbg.inspect(healthy).summary
    assert all(isinstance(value, int) for value in summary.values())
    assert summary["parameters"] == 0
    assert summary["roots"] == 1
    assert summary["executed"] == summary["executed_to_error"] == summary["nodes"]
    assert summary["saved_bytes"] > 0


def test_create_graph_and_inputs():
    x = torch.randn(3, requires_grad=True)
    y = torch.randn(3, requires_grad=True)
    loss = (x * y).sum()
    nodes = torchgraphdbg.inspect(loss, inputs=x).graph.nodes
    assert [n.order is not None for n in nodes if n.name == "AccumulateGrad"].count(True) == 1
    assert torchgraphdbg.inspect(loss, create_graph=True).ok


def test_assert_healthy(healthy, broken, mlp):
    assert torchgraphdbg.assert_healthy(healthy, params=mlp) is None
    with pytest.raises(AssertionError) as raised:
        torchgraphdbg.assert_healthy(broken)
    assert str(raised.value) == str(torchgraphdbg.inspect(broken))
    with pytest.raises(TypeError, match="root"):
        torchgraphdbg.assert_healthy(3)


# ---- graphs ----

def test_sequences(healthy):
    graph = torchgraphdbg.inspect(healthy).graph
    for items in (graph.nodes, graph.edges):
        everything = list(items)
        assert isinstance(items, collections.abc.Sequence)
        assert len(items) == len(everything) > 3
        assert items[-1] == everything[-1]
        assert list(reversed(items)) == everything[::-1]
        for part in (slice(1, 3), slice(None, None, -1), slice(-2, None), slice(None, None, 2), slice(5, 1, -2),
                     slice(3, 3), slice(0, 1, sys.maxsize), slice(-1, None, -sys.maxsize)):
            assert list(items[part]) == everything[part]
            assert list(items[part][::-1]) == everything[part][::-1]
        backwards = items[::-1]
        assert backwards[1:][0] == everything[-2]
        assert all(item in items for item in everything)
        assert [items.index(item) for item in everything] == list(range(len(items)))
        assert [backwards.index(item) for item in everything] == list(range(len(items)))[::-1]
        assert items.count(everything[0]) == 1 and items.count(None) == 0
        assert everything[0] not in items[1:]
        assert None not in items and 3 not in items
        assert items == items[:] and items != items[1:]
        with pytest.raises(IndexError):
            items[len(items)]
        with pytest.raises(IndexError):
            items[-len(items) - 1]
        with pytest.raises(TypeError):
            items["0"]
        with pytest.raises(ValueError):
            items.index(None)
        with pytest.raises(ValueError):
            items.index(everything[0], 1)
        with pytest.raises(TypeError):
            hash(items)
        match items:
            case [first, *_, last]:
                assert (first, last) == (everything[0], everything[-1])
            case _:
                pytest.fail("not matched as a sequence")
    assert graph.nodes != graph.edges
    assert graph.nodes[0] not in graph.edges and graph.edges[0] not in graph.nodes


def test_identity(healthy):
    report = torchgraphdbg.inspect(healthy)
    other = torchgraphdbg.inspect(healthy)
    assert report.graph is report.graph
    node = report.graph.nodes[0]
    assert node == report.graph.nodes[0] and hash(node) == hash(report.graph.nodes[0])
    assert node != report.graph.nodes[1]
    assert node != other.graph.nodes[0]
    assert node not in other.graph.nodes
    assert report.graph != other.graph
    assert node != 0 and (node == None) is False  # noqa: E711
    assert len(set(report.graph.nodes) | set(report.graph.nodes)) == len(report.graph.nodes)
    assert len(set(report.graph.edges)) == len(report.graph.edges)
    with pytest.raises(TypeError):
        node < node  # noqa: B015


def test_against_grad_fn(healthy, mlp):
    """Names, edges and input numbers are those that torch's own attributes show."""
    graph = torchgraphdbg.inspect(healthy, params=mlp).graph
    names = {id(p): n for n, p in mlp.named_parameters()}
    seen = {}

    def compare(node, grad_fn):
        if grad_fn in seen:
            assert seen[grad_fn] == node
            return
        seen[grad_fn] = node
        assert node.name == grad_fn.name().rpartition("::")[2]
        assert len(node.next) == len(grad_fn.next_functions)
        if node.name == "AccumulateGrad":
            assert node.parameter == names[id(grad_fn.variable)]
            assert node.sequence_nr is None
        else:
            assert node.sequence_nr == grad_fn._sequence_nr()
            assert node.parameter is None
        assert [m.shape for m in node.inputs] == [tuple(m.shape) for m in grad_fn._input_metadata]
        assert [m.dtype for m in node.inputs] == [m.dtype for m in grad_fn._input_metadata]
        for edge, (target, input_nr) in zip(node.next, grad_fn.next_functions):
            assert edge.source == node
            assert (edge.target is None) == (target is None)
            if target is not None:
                assert edge.input_nr == input_nr
                compare(edge.target, target)

    compare(graph.roots[0], healthy.grad_fn)
    assert len(seen) == len(graph.nodes)
    assert sum(len(node.next) for node in graph.nodes) == len(graph.edges)
    assert [node.index for node in graph.nodes] == list(range(len(graph.nodes)))


def test_saved_tensor():
    x = torch.randn(3, 4, requires_grad=True)
    w = torch.randn(4, 3).t()
    loss = (x * w).sum()
    graph = torchgraphdbg.inspect(loss).graph
    node = next(n for n in graph.nodes if n.name == "MulBackward0")
    saved = {s.name: s for s in node.saved}
    other = saved["other"]
    assert (other.shape, other.strides, other.dtype, other.device) == ((3, 4), (1, 3), torch.float32, "cpu")
    assert other.contiguous is False
    assert other.bytes == 48 and other.storage_bytes == 48
    assert other.state == "ok"
    assert (other.saved_version, other.version) == (0, 0)
    assert other.index is None
    assert other.node == node
    assert other.is_output is False and other.has_hooks is False
    assert isinstance(other.storage, int)
    absent = saved["self"]  # w needs no gradient, so x was not saved
    assert absent.state == "none"
    assert (absent.shape, absent.dtype, absent.device, absent.storage, absent.version) == (None,) * 5
    assert "other" in repr(other) and "float32" in repr(other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_dtypes(dtype):
    x = torch.ones(3, dtype=dtype, requires_grad=True)
    node = torchgraphdbg.inspect((x * x).sum()).graph.nodes[1]
    assert node.inputs[0].dtype is dtype
    assert {s.dtype for s in node.saved} == {dtype}


def test_hooks_are_counted_and_not_run(healthy):
    ran = []
    healthy.grad_fn.register_prehook(lambda grads: ran.append(1))
    healthy.grad_fn.register_hook(lambda *grads: ran.append(2))
    node = torchgraphdbg.inspect(healthy).graph.roots[0]
    assert node.hooks["pre"] == 1 and node.hooks["post"] == 1
    assert ran == []


def test_unpack_hooks_do_not_run():
    ran = []
    x = torch.randn(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: ran.append(1) or t):
        loss = (x * x).sum()
    report = torchgraphdbg.inspect(loss, params=[x])
    assert report.ok
    saved = [s for n in report.graph.nodes for s in n.saved if s.has_hooks]
    assert saved and all(s.state == "hooked" and s.shape is None for s in saved)
    repr(saved)
    assert ran == []


def test_order(healthy):
    graph = torchgraphdbg.inspect(healthy).graph
    assert sorted(node.order for node in graph.nodes) == list(range(len(graph.nodes)))
    assert graph.roots[0].order == 0


def test_what_only_a_recorder_knows(healthy):
    node = torchgraphdbg.inspect(healthy).graph.nodes[0]
    assert (node.module, node.where, node.time, node.gradient) == (None,) * 4


def test_reprs_are_one_line(healthy, mlp, broken_report):
    graph = torchgraphdbg.inspect(healthy, params=mlp).graph
    objects = [graph, graph.nodes, graph.edges, graph.nodes[:1], *graph.nodes, *graph.edges]
    objects += [s for n in graph.nodes for s in n.saved] + [m for n in graph.nodes for m in n.inputs]
    for thing in objects + list(broken_report.findings):
        assert re.fullmatch(r"<torchgraphdbg\.\w+.*>", repr(thing))
    leaf = next(n for n in graph.nodes if n.parameter == "0.weight")
    assert "AccumulateGrad" in repr(leaf) and "'0.weight'" in repr(leaf)


# ---- lifetimes ----

def test_report_keeps_nothing_of_torch_alive():
    deaths = []

    class Tensor(torch.Tensor):
        def __del__(self):
            deaths.append(1)

    x = torch.randn(3).as_subclass(Tensor).requires_grad_()
    loss = (x * x).sum()
    report = torchgraphdbg.inspect(loss, params=[("x", x)])
    before = len(deaths)
    del x, loss
    gc.collect()
    assert len(deaths) > before
    assert report.graph.nodes[0].saved is not None


def test_parts_outlive_the_report(broken):
    report = torchgraphdbg.inspect(broken)
    node, edge, finding = report.graph.nodes[1], report.graph.edges[0], report.findings[0]
    nodes, saved = report.graph.nodes[1:], report.findings[0].node.saved
    del report
    gc.collect()
    assert node.name and edge.source and finding.message and nodes[0] == node and saved[0].name


def test_reports_need_no_garbage_collector(broken):
    """A report, its findings and its graph form no cycle."""
    gc.collect()
    gc.disable()
    try:
        before = sum(type(o) in TYPES for o in gc.get_objects())
        report = torchgraphdbg.inspect(broken)
        parts = [report.findings, report.graph, report.graph.nodes, list(report.graph.nodes), report.findings[0].node]
        assert sum(type(o) in TYPES for o in gc.get_objects()) > before
        del report, parts
        assert sum(type(o) in TYPES for o in gc.get_objects()) == before
    finally:
        gc.enable()


def test_reference_counts(mlp):
    """Neither arguments nor shared objects gain references, on the good path and on the bad ones."""
    x = torch.randn(5, 4)
    loss = mlp(x).sum()
    y = torch.randn(3, requires_grad=True).exp()
    y.add_(1)
    bad = y.sum()
    edge = torch.autograd.graph.get_gradient_edge(loss)
    optimizer = torch.optim.SGD(mlp.parameters(), 0.1)
    name = "a name that nobody else has"
    wrong = object()
    watched = [loss, bad, mlp, mlp[0].weight, edge, edge.node, optimizer, name, wrong, None, torch.float32, torch,
               ValueError, torchgraphdbg.Error, *TYPES]

    def use():
        report = torchgraphdbg.inspect([loss, bad, edge], params=mlp, inputs=[mlp[0].weight])
        repr(report), str(report), report.summary, report.verdict, report.to_dict(), report._repr_html_()
        for finding in report.findings:
            repr(finding), str(finding), finding.hint, finding.saved, finding.saved_index, finding.reason, finding.node
        for sequence in (report.graph.nodes, report.graph.edges):
            sequence[0] in sequence, sequence.index(sequence[-1]), sequence.count(None), repr(sequence[1:])
        for node in report.graph.nodes:
            for row in (node, *node.saved, *node.inputs, *node.next):
                repr(row), hash(row), row == row, row == None  # noqa: B015, E711
                [getattr(row, field) for field in dir(row) if not field.startswith("__")]
        torchgraphdbg.inspect(edge.node, params=optimizer)
        torchgraphdbg.inspect(loss, params={name: mlp[0].weight})
        torchgraphdbg.inspect(loss, params=[(name, mlp[0].weight)])
        torchgraphdbg.inspect(loss, params=[mlp[0].weight])
        torchgraphdbg.dump(loss, None, quiet=True)
        for arguments in ({"root": wrong}, {"root": [loss, wrong]}, {"root": loss, "params": wrong},
                          {"root": loss, "params": [wrong]}, {"root": loss, "params": [(name, wrong)]},
                          {"root": loss, "params": [(name, loss), (name, loss)]}, {"root": []},
                          {"root": loss, "inputs": wrong}, {"root": loss, "inputs": [wrong]}):
            with pytest.raises((TypeError, ValueError)):
                torchgraphdbg.inspect(**arguments)
        with pytest.raises(AssertionError):
            torchgraphdbg.assert_healthy(bad)
        with pytest.raises(ValueError):
            torchgraphdbg.dump(loss, "graph.pdf")
        with pytest.raises(TypeError):
            report.save(wrong)
        with pytest.raises(OSError):
            report.save("/nowhere/at/all.txt")

    use()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in watched]
    for _ in range(50):
        use()
    gc.collect()
    after = [sys.getrefcount(thing) for thing in watched]
    grown = {repr(t)[:60]: b - a for t, a, b in zip(watched, before, after) if abs(b - a) >= 25}
    assert not grown


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_does_not_grow(mlp):
    loss = mlp(torch.randn(5, 4)).sum()

    def use(n):
        for _ in range(n):
            report = torchgraphdbg.inspect(loss, params=mlp)
            report.findings, len(report.graph.edges), report.graph.nodes[0].saved
            str(report)

    use(2000)
    gc.collect()
    before = resident_bytes()
    use(10_000)
    gc.collect()
    assert resident_bytes() - before < 2 << 20


# ---- threads ----

def test_threads(mlp):
    """Inspecting graphs while other threads run backward on theirs."""
    failures = []

    def work(n):
        try:
            for _ in range(20):
                loss = mlp(torch.randn(5, 4)).square().mean()
                report = torchgraphdbg.inspect(loss, params=mlp)
                assert report.ok, str(report)
                if n % 2:
                    torch.autograd.grad(loss, list(mlp.parameters()))
                else:
                    report._repr_svg_()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_one_report_in_many_threads(broken_report):
    expected = (str(broken_report), len(broken_report.graph.edges))
    results = []

    def read():
        for _ in range(10):
            results.append((str(broken_report), len(broken_report.graph.edges)))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) == {expected} and len(results) == 80


# ---- the package ----

def test_types_cannot_be_made_or_changed(broken_report):
    for kind in TYPES:
        with pytest.raises(TypeError):
            kind()
        with pytest.raises(TypeError):
            kind.extra = 1
        with pytest.raises(TypeError):
            type("Sub", (kind,), {})
    things = [broken_report, broken_report.findings[0], broken_report.graph, broken_report.graph.nodes,
              broken_report.graph.nodes[0], broken_report.graph.edges[0]]
    for thing in things:
        with pytest.raises(AttributeError):
            thing.extra = 1
        with pytest.raises(TypeError):
            pickle.dumps(thing)
        with pytest.raises(TypeError):
            copy.deepcopy(thing)
    with pytest.raises(AttributeError):
        broken_report.verdict = "fine"


def test_error_type():
    assert issubclass(torchgraphdbg.Error, RuntimeError)
    assert torchgraphdbg.Error.__module__ == "torchgraphdbg"


def test_documented():
    assert torchgraphdbg.__doc__
    for name in torchgraphdbg.__all__:
        thing = getattr(torchgraphdbg, name)
        assert thing.__doc__, name
        if isinstance(thing, type):
            for field, member in vars(thing).items():
                if not field.startswith("__"):
                    assert member.__doc__, f"{name}.{field}"


def test_signatures():
    assert str(inspect.signature(torchgraphdbg.inspect)) == "(root, *, params=None, inputs=None, create_graph=False)"
    assert str(inspect.signature(torchgraphdbg.assert_healthy)) == str(inspect.signature(torchgraphdbg.inspect))
    assert str(inspect.signature(torchgraphdbg.dump)) == (
        "(root, path='torchgraphdbg.svg', *, params=None, inputs=None, create_graph=False, file=None, quiet=False, "
        "redact=False, detail='auto', focus=None)")
    assert str(inspect.signature(torchgraphdbg.Report.save)) == (
        "(self, /, path, *, redact=False, detail='auto', focus=None)")


def test_version():
    project = pathlib.Path(__file__).parents[2] / "pyproject.toml"
    assert f'version = "{torchgraphdbg.__version__}"' in project.read_text(encoding="utf-8")


def test_built_for():
    version, git = _core.built_for().split(" ")
    assert version == torch.__version__
    assert git == (torch.version.git_version or "unknown")
