"""What each node of a backward took: on the CPU, nested, over several steps, in threads."""

import threading
import time

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchgraphdbg


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient * 2, None


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))


def recorded(model, x, steps=1, **options):
    with torchgraphdbg.record(params=model, **options) as rec:
        for _ in range(steps):
            model.zero_grad()
            model(x).square().mean().backward()
    return rec.report()


def test_each_node_that_runs_has_a_span():
    report = recorded(network(), torch.randn(8, 16))
    assert len(report.timeline) == len(report.graph.nodes)
    assert {span.node.index for span in report.timeline} == {node.index for node in report.graph.nodes}
    began = [span.began for span in report.timeline]
    assert began == sorted(began)
    order = [span.node.order for span in report.timeline]
    assert order == sorted(order)
    for node in report.graph.nodes:
        span = node.time
        assert span.node == node and span.name == node.name and span.depth == 0 and not span.raised
        assert 0 <= span.began <= span.ended and 0 < span.self == span.total and 0 <= span.after < span.self
        assert (span.device, span.queued, span.stream) == (None, None, None)
    leaves = {node.parameter for node in report.graph.nodes if node.parameter}
    assert leaves == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_one_that_sleeps_is_the_slowest():
    x = torch.ones(4, requires_grad=True)
    with torchgraphdbg.record() as rec:
        (Slow.apply(x * 2, 0.05) * 3).sum().backward()
    report = rec.report()
    slowest = max(report.graph.nodes, key=lambda node: node.time.self)
    assert slowest.name == "SlowBackward" and slowest.time.self >= 0.05
    assert slowest.time.self > sum(span.self for span in report.timeline) / 2
    line = next(line for line in str(report).splitlines() if "%" in line)
    assert "SlowBackward" in line and "test_timeline.py:" in line


def test_self_times_add_up_to_the_backward():
    """Measuring is in none of them. Between two nodes a busy machine may do something else: the best of ten counts."""
    apart = []
    for _ in range(10):
        report = recorded(nn.Sequential(*[nn.Linear(300, 300) for _ in range(6)]), torch.randn(256, 300), steps=5)
        measured = report.to_dict()["measures"]
        whole = (measured["duration"] - measured["ours"]) / 1e9
        apart.append(abs(sum(span.self for span in report.timeline) - whole) / whole)
    assert min(apart) < 0.05


def test_a_backward_inside_a_node():
    """A reentrant checkpoint runs its part of the graph from within its own node."""
    model, x = network(), torch.randn(8, 16, requires_grad=True)
    with torchgraphdbg.record(params=model) as rec:
        checkpoint(model, x, use_reentrant=True).square().mean().backward()
    timeline = rec.report().timeline
    outer = next(span for span in timeline if span.name == "CheckpointFunctionBackward")
    inner = [span for span in timeline if span.depth == 1]
    assert {"TanhBackward0", "AddmmBackward0", "AccumulateGrad"} <= {span.name for span in inner}
    assert all(span.node is None and outer.began <= span.began <= span.ended <= outer.ended for span in inner)
    assert outer.self < outer.total
    assert outer.self + sum(span.total for span in inner) <= outer.total * 1.001
    assert all(span.depth == 0 for span in timeline if span not in inner)


def test_a_gradient_of_a_gradient():
    w = torch.randn(5, requires_grad=True)
    with torchgraphdbg.record() as rec:
        gradient, = torch.autograd.grad((w ** 3).sum(), w, create_graph=True)
        (gradient ** 2).sum().backward()
    first, second = rec.reports
    assert [span.name for span in first.timeline] == ["SumBackward0", "PowBackward0"]
    assert {span.node.index for span in second.timeline} == {node.index for node in second.graph.nodes}
    assert [node for node in first.graph.nodes if node.name == "AccumulateGrad"][0].time is None


def test_medians_over_the_steps():
    x = torch.ones(4, requires_grad=True)
    with torchgraphdbg.record() as rec:
        for seconds in (0.001, 0.03, 0.001):
            Slow.apply(x * 2, seconds).sum().backward()
    for report, count in zip(rec.reports, (3, 3, 3)):
        slow = next(node.time for node in report.graph.nodes if node.name == "SlowBackward")
        assert slow.repeats == count and slow.median < 0.03
    assert rec.reports[1].graph.nodes[1].time.self >= 0.03


def test_the_first_use_is_marked():
    model, x = network(), torch.randn(7, 16)
    with torchgraphdbg.record(params=model) as rec:
        for _ in range(2):
            model(x).square().mean().backward()
    first, second = rec.reports
    assert any(span.first_use for span in first.timeline)
    assert not any(span.first_use for span in second.timeline)


def test_what_ran_before_a_node_raised():
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("no")

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match="no"), torchgraphdbg.record() as rec:
        (Raises.apply(x * 2) * 3).sum().backward()
    timeline = rec.report().timeline
    assert [(span.name, span.raised) for span in timeline] == [
        ("SumBackward0", False), ("MulBackward0", False), ("RaisesBackward", True)]
    assert [node.name for node in rec.report().graph.nodes if node.time is None] == ["MulBackward0", "AccumulateGrad"]


def test_without():
    model, x = network(), torch.randn(8, 16)
    report = recorded(model, x, timeline=False, statistics=False)
    assert report.timeline is None and all(node.time is None and node.gradient is None for node in report.graph.nodes)
    assert "Slowest" not in str(report)
    report = recorded(model, x, statistics=False)
    assert report.timeline and all(node.time and node.gradient is None for node in report.graph.nodes)
    report = torchgraphdbg.inspect(model(x).sum())
    assert report.timeline is None and report.graph.nodes[0].time is None


def test_two_threads_do_not_mix():
    """Each backward's spans are in its own report."""
    models = [network() for _ in range(2)]
    barrier = threading.Barrier(2)

    def train(model):
        for _ in range(3):
            barrier.wait()
            model(torch.randn(8, 16)).square().mean().backward()

    with torchgraphdbg.record() as rec:
        threads = [threading.Thread(target=train, args=(model,)) for model in models]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    reports = rec.reports
    assert len(reports) == 6
    for report in reports:
        assert len(report.timeline) == len(report.graph.nodes)
        assert all(span.node is not None for span in report.timeline)
        assert len({span.thread for span in report.timeline}) == 1


def test_two_recorders_have_the_same():
    model, x = network(), torch.randn(8, 16)
    with torchgraphdbg.record(params=model) as outer, torchgraphdbg.record(statistics=False) as inner:
        model(x).sum().backward()
    times = [[span.self for span in rec.report().timeline] for rec in (outer, inner)]
    assert times[0] == times[1]


def test_the_same_graph_twice():
    x = torch.ones(3, requires_grad=True)
    with torchgraphdbg.record() as rec:
        loss = (x * 2).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    first, second = rec.reports
    assert [span.self for span in first.timeline] != [span.self for span in second.timeline]
    assert len(first.timeline) == len(second.timeline) == 3


def test_ranking_agrees_with_the_profiler():
    model = nn.Sequential(nn.Linear(400, 400), nn.Tanh(), nn.Linear(400, 50), nn.Sigmoid(), nn.Linear(50, 3))
    x = torch.randn(512, 400)
    with torchgraphdbg.record(params=model, statistics=False) as rec:
        for _ in range(4):
            model(x).square().mean().backward()
    with torch.profiler.profile() as profiler:
        for _ in range(4):
            model(x).square().mean().backward()
    theirs = {}
    for event in profiler.key_averages():
        name = event.key.removeprefix("autograd::engine::evaluate_function: ")
        if name != event.key and event.count > 0:
            theirs[name] = event.cpu_time_total
    ours = {}
    for report in rec.reports:
        for span in report.timeline:
            ours[span.name] = ours.get(span.name, 0) + span.self
    known = {name.removeprefix("torch::autograd::"): seconds for name, seconds in theirs.items()}
    assert set(known) == set(ours)
    assert max(ours, key=ours.get) == max(known, key=known.get) == "AddmmBackward0"


def test_load(tmp_path):
    report = recorded(network(), torch.randn(8, 16), steps=2)
    report.save(tmp_path / "a.json")
    again = torchgraphdbg.load(tmp_path / "a.json")
    assert again.to_dict() == report.to_dict() and str(again) == str(report)
    assert [span.median for span in again.timeline] == [span.median for span in report.timeline]
    assert again.graph.nodes[2].gradient.rms == report.graph.nodes[2].gradient.rms


@pytest.mark.parametrize(("change", "words"), [
    (lambda m: m["spans"][0].update(node=99), "measures.spans\\[0\\].node"),
    (lambda m: m["spans"][1].update(began=-1), "measures.spans\\[1\\].began"),
    (lambda m: m["gradients"].pop(), "measures.gradients"),
    (lambda m: m["gradients"][0].update(norm="a"), "measures.gradients\\[0\\].norm"),
    (lambda m: m["gradients"][0].update(nan=10 ** 6), "measures.gradients\\[0\\].elements"),
])
def test_load_of_a_wrong_file(tmp_path, change, words):
    import json

    document = recorded(network(), torch.randn(8, 16)).to_dict()
    change(document["measures"])
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=words):
        torchgraphdbg.load(tmp_path / "wrong.json")
