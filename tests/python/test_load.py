"""A report back from its JSON: it says and draws what the one that was saved did, and a wrong file is a ValueError."""
import copy
import json
import pathlib
import random
import sys

import pytest
import torch
import torchgraphdbg
from torch import nn
from torch.utils.checkpoint import checkpoint


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, x * 2)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[1]


def leaf(*shape, **how):
    return torch.rand(*shape, requires_grad=True, **how)


def broken():
    net = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 2))
    hidden = net[1](net[0](torch.rand(3, 4)))
    loss = net[2](hidden).sum()
    hidden += 1
    return torchgraphdbg.inspect(loss, params=net)


def recorded():
    net = nn.ModuleDict({"encoder": nn.Linear(4, 4), "head": nn.Linear(4, 2), "spare": nn.Linear(2, 2)})
    with pytest.raises(RuntimeError), torchgraphdbg.record(params=net) as rec:
        hidden = net["encoder"](torch.rand(3, 4)).exp()
        loss = net["head"](hidden).sum() + net["spare"](torch.rand(2)).detach().sum()
        hidden.mul_(2)
        loss.backward()
    return rec.report()


def refused():
    with pytest.raises(RuntimeError), torchgraphdbg.record() as rec:
        leaf(3).add_(1)
    return rec.report()


def refused_root():
    with pytest.raises(RuntimeError), torchgraphdbg.record() as rec:
        leaf(3).exp().backward()
    return rec.report()


def freed():
    x = leaf(3)
    loss = (x.exp() * x).sum()
    loss.backward()
    return torchgraphdbg.inspect(loss)


def twice():
    x = leaf(3)
    with torchgraphdbg.record():
        grad, = torch.autograd.grad(x.exp().prod(), x, create_graph=True)
        return torchgraphdbg.inspect(grad.sum())


def sliced():
    y = leaf(4, 4) * 1
    y[0].exp_()
    y[1:, 2] = 3
    return torchgraphdbg.inspect(y.sum(), create_graph=True)


def custom():
    x = leaf(3)
    return torchgraphdbg.inspect(Twice.apply(Twice.apply(x)).sum())


def packed():
    net = nn.Linear(3, 3)
    return torchgraphdbg.inspect(checkpoint(lambda x: net(x).relu(), leaf(2, 3), use_reentrant=False).sum(), params=net)


def hidden_graph():
    net = nn.Linear(3, 3)
    return torchgraphdbg.inspect(checkpoint(net, leaf(2, 3), use_reentrant=True).sum(), params=net)


def cut():
    net = nn.Linear(3, 3)
    return torchgraphdbg.inspect([net(torch.rand(3)).detach().sum(), net.weight.sum()], params=net)


def leaf_root():
    return torchgraphdbg.inspect(leaf(1), params=[])


def chosen():
    x, y = leaf(3), leaf(3, dtype=torch.complex64)
    x.register_hook(lambda grad: grad)
    return torchgraphdbg.inspect((x * y).sum(), inputs=[x], params={"x": x, "frozen": torch.rand(2)})


def without_data():
    x = leaf(3)
    y = x.exp()
    loss = y.sum()
    y.untyped_storage().resize_(0)
    return torchgraphdbg.inspect(loss)


def strange_names():
    x, y = leaf(3), leaf(2)
    return torchgraphdbg.inspect((x * x).sum() + y.sum(), params={"a\nb\x1b[1m <&> \u00fc \U0001f600": x, "": y})


def deep():
    return torchgraphdbg.inspect(nn.LSTM(8, 8, 3)(torch.rand(40, 2, 8))[0].sum())


REPORTS = [broken, recorded, refused, refused_root, freed, twice, sliced, custom, packed, hidden_graph, cut, leaf_root, chosen,
           without_data, strange_names, deep]


def facts(report):
    """Everything that the Python objects show."""
    def public(thing, skip=()):
        names = [n for n in dir(type(thing)) if not n.startswith("_") and n not in skip]
        return {n: v for n in names if not callable(v := getattr(thing, n))}

    def place(node):
        return None if node is None else node.index

    nodes = []
    for node in report.graph.nodes:
        nodes.append(public(node, ("inputs", "saved", "next", "made_by", "time", "gradient")))
        nodes[-1]["time"] = None if node.time is None else public(node.time, ("node",))
        nodes[-1]["gradient"] = None if node.gradient is None else public(node.gradient)
        nodes[-1]["made_by"] = place(node.made_by)
        nodes[-1]["inputs"] = [public(i, ("gradient",)) | {"gradient": i.gradient and public(i.gradient)} for i in node.inputs]
        nodes[-1]["saved"] = [public(s, ("node",)) for s in node.saved]
        nodes[-1]["next"] = [(place(e.target), e.input_nr) for e in node.next]
    findings = [public(f, ("node",)) | {"node": place(f.node), "str": str(f), "repr": repr(f)} for f in report.findings]
    return [report.verdict, report.ok, report.summary, report.to_dict(), str(report), repr(report), nodes, findings,
            [place(root) for root in report.graph.roots], report._repr_html_()]


@pytest.mark.parametrize("make", REPORTS, ids=lambda make: make.__name__)
def test_says_and_draws_the_same(make, tmp_path):
    report = make()
    path = tmp_path / "report.json"
    report.save(path)
    loaded = torchgraphdbg.load(path)
    assert facts(loaded) == facts(report)
    for suffix in ("svg", "json", "gv", "txt"):
        report.save(tmp_path / f"a.{suffix}")
        loaded.save(tmp_path / f"b.{suffix}")
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes(), suffix
    assert (tmp_path / "b.json").read_bytes() == path.read_bytes()
    again = torchgraphdbg.load(str(tmp_path / "b.json").encode())
    del report, loaded
    assert again.to_dict() == json.loads(path.read_bytes())


def test_summary_in_json_is_pythons():
    report = broken()
    assert report.to_dict()["summary"] == report.summary


def test_large_identities_are_no_plain_numbers(tmp_path):
    document = broken().to_dict()
    path = tmp_path / "report.json"
    storages = [s for n in document["nodes"] for s in n["saved"] if s["storage"] is not None]
    known, large = storages[0]["storage"], 2**63 + 12345
    for holder in [s for n in document["nodes"] for s in [*n["saved"], n["leaf"] or {}]]:
        if holder.get("storage") == known:
            holder["storage"] = str(large)
    path.write_text(json.dumps(document))
    loaded = torchgraphdbg.load(path)
    assert large in [s.storage for node in loaded.graph.nodes for s in node.saved]
    assert loaded.to_dict()["nodes"] == document["nodes"]


def test_dump_of_another_torch(tmp_path):
    document = broken().to_dict()
    document["torch"] = "2.99.0 abc"
    document["nodes"][-1]["inputs"] = [{"shape": [2], "dtype": "float3", "device": "abacus:1", "layout": "beads"}]
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    loaded = torchgraphdbg.load(path)
    assert loaded.to_dict()["torch"] == "2.99.0 abc"
    assert loaded.graph.nodes[-1].inputs[0].dtype is None


# ---- wrong files ----

def set_at(*path_and_value):
    *path, value = path_and_value

    def change(document):
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value
    return change


def remove(*path):
    def change(document):
        for key in path[:-1]:
            document = document[key]
        del document[path[-1]]
    return change


def go_round(document):
    last = len(document["nodes"]) - 1
    document["nodes"][last]["edges"] = [[0, 0]]


SOURCE = {"file": "a.py", "line": 1, "function": None, "module": None, "module_class": None, "caller": None}

WRONG = {
    "other JSON": (lambda d: d.clear(), "is not a report"),
    "other schema": (set_at("schema", "x/report"), "is not a report"),
    "newer": (set_at("schema_version", 2), "was written by a newer torchgraphdbg: it has schema version 2"),
    "no nodes": (remove("nodes"), "nodes is missing"),
    "nodes are a number": (set_at("nodes", 3), "nodes: expected a list, got 3"),
    "node is null": (set_at("nodes", 0, None), r"nodes\[0\]: expected an object, got null"),
    "no name": (remove("nodes", 1, "name"), r"nodes\[1\].name is missing"),
    "edge out of range": (set_at("nodes", 0, "edges", [[10**6, 0]]), r"nodes\[0\].edges\[0\]: it leads to node 1000000"),
    "negative edge": (set_at("nodes", 0, "edges", [[-1, 0]]), r"nodes\[0\].edges\[0\]: expected a whole number"),
    "edge of three": (set_at("nodes", 0, "edges", [[1, 0, 0]]), r"expected \[node, input_nr\] or null, got a list"),
    "cyclic": (go_round, "circle"),
    "huge order": (set_at("nodes", 0, "order", 2**70), r"nodes\[0\].order: expected a whole number"),
    "order twice": (set_at("nodes", 0, "order", 1), r"order"),
    "order is true": (set_at("nodes", 0, "order", True), r"nodes\[0\].order: expected a whole number.* got True"),
    "unknown kind": (set_at("findings", 0, "kind", "bad-luck"), r"findings\[0\].kind: expected a word that this version"),
    "unknown state": (set_at("nodes", 1, "kind", 4), r"nodes\[1\].kind: expected a string, got 4"),
    "finding's node": (set_at("findings", 0, "node", 99), r"findings\[0\].node: 99 of"),
    "finding's saved": (set_at("findings", 0, "saved_place", 9), r"findings\[0\].saved_place: 9"),
    "no saved": (set_at("findings", 0, "saved_place", None), "expected the saved tensor that was modified"),
    "finding's parameter": (set_at("findings", 0, "parameter", "no.such"), "no.such"),
    "hostile group": (set_at("findings", 0, "group", 2**32 - 2), "group"),
    "root out of range": (set_at("roots", 0, "node", 99), r"roots\[0\].node: 99 of"),
    "no roots": (set_at("roots", []), "roots: expected at least one"),
    "parameter is no leaf": (set_at("parameters", 0, "node", 0), r"parameters\[0\].node: expected an AccumulateGrad"),
    "hostile sizes": (set_at("roots", 0, "shape", [2**63]), "whole numbers of 64 bits"),
    "shape is text": (set_at("roots", 0, "shape", "3x4"), "a short list of numbers, or null, got '3x4'"),
    "NUL": (set_at("verdict", "a\0b"), "without NUL"),
    "surrogate": (set_at("verdict", "\ud800"), "lone surrogates"),
    "caller out of range": (set_at("sources", [SOURCE | {"caller": 1}]), "sources: caller 1 of 1"),
    "callers in a circle": (set_at("sources", [SOURCE | {"caller": 1}, SOURCE | {"caller": 0}]), "circle"),
    "line that is no source": (set_at("nodes", 0, "where", SOURCE), r"nodes\[0\].where: it is not among the sources"),
    "made by nobody": (set_at("nodes", 0, "made_by", 99), r"nodes\[0\].made_by: 99 of"),
    "depth": (set_at("summary", "depth", 10**6), "summary.depth"),
    "first error": (set_at("summary", "executed_to_error", 10**6), "summary.executed_to_error"),
}


@pytest.fixture(scope="module")
def document():
    return broken().to_dict()


@pytest.mark.parametrize("what", WRONG)
def test_wrong_document(what, document, tmp_path):
    change, message = WRONG[what]
    wrong = copy.deepcopy(document)
    change(wrong)
    path = tmp_path / "my report.json"
    path.write_text(json.dumps(wrong))
    with pytest.raises(ValueError, match=message) as raised:
        torchgraphdbg.load(path)
    assert repr(str(path)) in str(raised.value)


@pytest.mark.parametrize("bytes_, message", [
    (b"", "is not JSON"), (b"{", "is not JSON"), (b"\xff\xfe\xfd", "is not JSON"), (b"<svg/>", "is not JSON"),
    (b"[" * 100_000, "is not JSON"), (b"[]", "is not a report"), (b"9" * 10_000, "is not JSON|is not a report"), (b"null", "is not a report")])
def test_no_document(bytes_, message, tmp_path):
    path = tmp_path / "report.json"
    path.write_bytes(bytes_)
    with pytest.raises(ValueError, match=message):
        torchgraphdbg.load(path)


def test_truncated(tmp_path):
    path = tmp_path / "report.json"
    broken().save(path)
    whole = path.read_bytes()
    for n in range(0, len(whole) - 2, len(whole) // 50):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError, match="is not JSON"):
            torchgraphdbg.load(path)


def test_unreadable(tmp_path):
    with pytest.raises(FileNotFoundError):
        torchgraphdbg.load(tmp_path / "no.json")
    with pytest.raises(IsADirectoryError):
        torchgraphdbg.load(tmp_path)
    with pytest.raises(TypeError, match="path: expected a str, bytes or os.PathLike, got int"):
        torchgraphdbg.load(3)


# ---- mutated documents: a ValueError, or a report that can be shown in every form ----

JUNK = [None, True, False, 0, 1, 2, -1, 7, 10**9, 2**31, 2**32 - 1, 2**63, 2**64, 1.5, "", "x", "float32", "cuda:0", "cuda:",
        "modified-in-place", "unreached-parameter", "graph-freed", "storage-changed", "error", "accumulate-grad", [], {},
        [0], [[0, 0]], [None], [1, 2, 3, 4]]


def places(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def mutate(document, rng, paths):
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        path = rng.choice(paths)
        try:
            holder = document
            for key in path[:-1]:
                holder = holder[key]
            choice = rng.random()
            if not path:
                continue
            if choice < 0.7:
                holder[path[-1]] = rng.choice(JUNK)
            elif choice < 0.8:
                del holder[path[-1]]
            else:  # something that stands elsewhere in it
                donor = document
                for key in rng.choice(paths):
                    donor = donor[key]
                holder[path[-1]] = copy.deepcopy(donor)
        except (KeyError, IndexError, TypeError):
            pass  # an earlier change took the place away


def fuzz(seeds, folder):
    loaded = refused_ = 0
    documents = [make().to_dict() for make in (broken, recorded, refused, cut, sliced, chosen)]
    paths = [list(places(document)) for document in documents]
    file = pathlib.Path(folder) / "mutated.json"
    for seed in seeds:
        rng = random.Random(seed)
        which = rng.randrange(len(documents))
        document = copy.deepcopy(documents[which])
        mutate(document, rng, paths[which])
        file.write_text(json.dumps(document))
        try:
            report = torchgraphdbg.load(file)
        except ValueError:
            refused_ += 1
            continue
        loaded += 1
        facts(report)
        report.save(file.with_suffix(".gv"))
        report.save(file.with_suffix(".svg"))
    return loaded, refused_


def test_mutated_documents(tmp_path):
    loaded, refused_ = fuzz(range(150), tmp_path)
    assert loaded > 0 and refused_ > 0


if __name__ == "__main__":  # python tests/python/test_load.py FIRST LAST FOLDER
    print(*fuzz(range(int(sys.argv[1]), int(sys.argv[2])), sys.argv[3]))
