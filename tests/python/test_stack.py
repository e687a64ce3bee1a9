"""The stack behind a line: the callers in the program, innermost first, without torch's own frames."""
import json
import pathlib
import threading

import pytest
import torch
from torch import nn

import torchgraphdbg
from torchgraphdbg import record

SOURCE = pathlib.Path(__file__).read_text().splitlines()


def line(mark):
    """The line of this file that ends with the mark."""
    (found,) = [number for number, text in enumerate(SOURCE, 1) if text.endswith("# " + mark)]
    return found


def lines(stack):
    return [(place.line, place.function) for place in stack if place.file == __file__]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(x).exp()  # forward


def spoil(y):
    y.add_(1)  # spoil


def step(model, x):
    y = model(x)  # model call
    spoil(y)  # spoil call
    return y.sum()


def test_finding_and_nodes_have_the_callers():
    with record() as rec:
        loss = step(Net(), torch.randn(2, 3))  # step call
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            loss.backward()
    report = rec.report()
    here = (line("step call"), "test_finding_and_nodes_have_the_callers")
    (error,) = [f for f in report.findings if f.severity == "error"]
    assert error.where == error.stack[0]
    assert lines(error.stack)[:3] == [(line("spoil"), "spoil"), (line("spoil call"), "step"), here]
    node = error.node
    assert node.name == "ExpBackward0"
    assert lines(node.stack)[:3] == [(line("forward"), "Net.forward"), (line("model call"), "step"), here]
    torch_folder = str(pathlib.Path(torch.__file__).parent)
    assert not any(place.file.startswith(torch_folder) for place in node.stack)


def test_text_names_the_callers_of_the_first_error():
    def deep(n, y):
        return spoil(y) if n == 0 else deep(n - 1, y)  # deep

    with record():
        y = torch.randn(3, requires_grad=True).exp()
        deep(9, y)
        text = str(torchgraphdbg.inspect(y.sum()))
    assert text.count("called from") == 1
    callers = text.split("called from ")[1].splitlines()
    name = f"test_stack.py:{line('deep')} in test_text_names_the_callers_of_the_first_error.<locals>.deep"
    assert [c.strip() for c in callers[:4]] == [name] * 4
    assert callers[4].strip().startswith("and ") and callers[4].endswith(" more")


def test_json_has_the_stack():
    with record():
        loss = step(Net(), torch.randn(2, 3))
        report = torchgraphdbg.inspect(loss)
    document = json.loads(json.dumps(report.to_dict()))
    (found,) = [f for f in document["findings"] if f["severity"] == "error"]
    stack, place = [], found["where"]
    while place is not None:
        stack.append((place["file"], place["line"], place["function"]))
        place = None if place["caller"] is None else document["sources"][place["caller"]]
    assert stack == [(p.file, p.line, p.function) for p in report.findings[0].stack]
    assert len(stack) > 2


def test_same_line_by_two_ways_has_two_stacks():
    def make(x):
        return x.exp()  # make

    x = torch.randn(3, requires_grad=True)
    with record():
        a = make(x)  # first way
        b = make(x)  # second way
        nodes = torchgraphdbg.inspect([a.sum(), b.sum()]).graph.nodes
    stacks = [lines(node.stack) for node in nodes if node.name == "ExpBackward0"]
    assert [stack[0][0] for stack in stacks] == [line("make")] * 2
    assert sorted(stack[1][0] for stack in stacks) == [line("first way"), line("second way")]


def test_threads_have_their_own_stacks():
    results = {}

    def first(x):
        return x.exp()  # in both threads

    def second(x):
        return first(x)  # second only

    def work(name, function):
        x = torch.randn(3, requires_grad=True)
        for _ in range(200):
            results[name] = function(x)

    with record():
        threads = [threading.Thread(target=work, args=pair) for pair in (("a", first), ("b", second))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        a, b = (torchgraphdbg.inspect(results[name]).graph.nodes[0] for name in "ab")
    assert [n for n, _ in lines(a.stack)][0] == [n for n, _ in lines(b.stack)][0] == line("in both threads")
    assert line("second only") not in [n for n, _ in lines(a.stack)]
    assert [n for n, _ in lines(b.stack)][1] == line("second only")


def test_deep_recursion_is_cut_and_harms_nothing():
    def deep(n, x):
        return x.exp() if n == 0 else deep(n - 1, x)

    with record():
        node = torchgraphdbg.inspect(deep(300, torch.randn(3, requires_grad=True))).graph.nodes[0]
    assert 1 < len(node.stack) <= 65
    assert {place.function.split(".")[-1] for place in node.stack} == {"deep"}


def test_nothing_is_known_without_a_recorder():
    report = torchgraphdbg.inspect(torch.randn(3, requires_grad=True).exp().sum())
    assert [node.stack for node in report.graph.nodes] == [()] * len(report.graph.nodes)
    assert [node.made_by for node in report.graph.nodes] == [None] * len(report.graph.nodes)
