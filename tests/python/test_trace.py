"""The Chrome trace, event by event: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU"""

import json

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchgraphdbg


@pytest.fixture
def traced(tmp_path):
    torch.manual_seed(0)
    first, second = nn.Sequential(nn.Linear(16, 32), nn.Tanh()), nn.Linear(32, 4)
    model = nn.Sequential(first, second)
    x = torch.randn(8, 16, requires_grad=True)
    with torchgraphdbg.record(params=model) as rec:
        h = checkpoint(first, x, use_reentrant=True)
        second(h).square().mean().backward()
    report = rec.report()
    path = tmp_path / "step.trace.json"
    report.save(path)
    return report, json.loads(path.read_text())


def of(trace, phase):
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def test_every_event_is_of_the_format(traced):
    _, trace = traced
    assert trace["displayTimeUnit"] == "ms"
    assert {event["ph"] for event in trace["traceEvents"]} == {"M", "X", "s", "f"}
    for event in trace["traceEvents"]:
        assert type(event["pid"]) is int and type(event["name"]) is str and event["name"]
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and type(event["args"]["name"]) is str
            continue
        assert type(event["tid"]) is int and type(event["ts"]) in (int, float) and event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["cat"] in ("backward", "node", "device")
        else:
            assert type(event["id"]) is int and event["cat"] == "critical path"
            assert ("bp" in event) == (event["ph"] == "f") and event.get("bp", "e") == "e"


def test_lanes_have_names(traced):
    report, trace = traced
    lanes = {(event["pid"], event["tid"]) for event in of(trace, "X")}
    named = {(event["pid"], event["tid"]): event["args"]["name"] for event in of(trace, "M")
             if event["name"] == "thread_name"}
    assert lanes == set(named)
    assert set(named.values()) == {f"thread {span.thread}" for span in report.timeline}
    assert [event["args"]["name"] for event in of(trace, "M") if event["name"] == "process_name"] == ["backward"]


def test_slices_nest(traced):
    """Of two slices of a lane either one is inside the other, or they do not touch."""
    _, trace = traced
    lanes = {}
    for event in of(trace, "X"):
        lanes.setdefault((event["pid"], event["tid"]), []).append(
            (round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000), event["name"]))
    for slices in lanes.values():
        around = []
        for began, ended, name in sorted(slices, key=lambda each: (each[0], -each[1])):
            while around and around[-1][1] <= began:
                around.pop()
            assert not around or ended <= around[-1][1], (name, around[-1])
            around.append((began, ended, name))
        assert min(slices)[2] == "backward"


def test_microseconds_and_names(traced):
    report, trace = traced
    slices = [event for event in of(trace, "X") if event["cat"] == "node"]
    assert len(slices) == len(report.timeline)
    for event, span in zip(slices, report.timeline):
        assert event["ts"] == pytest.approx(span.began * 1e6, abs=2e-3)
        assert event["dur"] == pytest.approx((span.ended - span.began) * 1e6, abs=2e-3)
        assert event["args"]["self us"] == pytest.approx(span.self * 1e6, abs=2e-3)
        assert event["name"].split()[0] == span.name
    by_name = {event["name"]: event["args"] for event in slices}
    linear = next(name for name in by_name if name.startswith("AddmmBackward0 1 (test_trace.py:"))
    assert by_name[linear]["module"] == "1" and by_name[linear]["file"].endswith("test_trace.py")
    assert by_name[linear]["line"] > 1 and by_name[linear]["function"] == "traced"
    leaf = by_name["AccumulateGrad 1.weight"]
    gradient = next(node for node in report.graph.nodes if node.parameter == "1.weight").gradient
    assert leaf["parameter"] == "1.weight" and leaf["gradient norm"] == gradient.norm
    assert leaf["gradient elements"] == gradient.numel and leaf["gradient nan"] == 0


def test_arrows_follow_the_critical_path(traced):
    report, trace = traced
    starts, ends = of(trace, "s"), of(trace, "f")
    assert [event["id"] for event in starts] == [event["id"] for event in ends] == list(range(1, len(starts) + 1))
    slices = {(event["pid"], event["tid"], event["ts"]): event["args"]["node"] for event in of(trace, "X")
              if event["cat"] == "node" and "node" in event["args"]}
    path = [slices[event["pid"], event["tid"], event["ts"]] for event in starts]
    path.append(slices[ends[-1]["pid"], ends[-1]["tid"], ends[-1]["ts"]])
    for start, end, source, target in zip(starts, ends, path, path[1:]):
        assert start["ts"] <= end["ts"]
        assert target in [edge.target.index for edge in report.graph.nodes[source].next if edge.target]
    assert path[0] == report.graph.roots[0].index
    assert report.graph.nodes[path[-1]].next == ()

    def longest(node):
        further = [longest(edge.target) for edge in node.next if edge.target is not None and edge.target.time]
        return round(node.time.total * 1e9) + max(further, default=0)

    assert sum(round(report.graph.nodes[v].time.total * 1e9) for v in path) == longest(report.graph.roots[0])


def test_a_plain_json_stays_the_report(traced, tmp_path):
    report, _ = traced
    report.save(tmp_path / "step.json")
    assert json.loads((tmp_path / "step.json").read_text())["schema"] == "torchgraphdbg/report"


def test_a_report_without_times_says_so(tmp_path):
    report = torchgraphdbg.inspect(torch.ones(2, requires_grad=True).sum())
    with pytest.raises(ValueError, match="no timeline.*record"):
        report.save(tmp_path / "a.trace.json")
    assert not list(tmp_path.iterdir())


def test_names_of_the_program_are_escaped(tmp_path):
    weight = torch.ones(2, requires_grad=True)
    with torchgraphdbg.record(params={'a "b"\\\n</script>': weight}) as rec:
        (weight * 2).sum().backward()
    rec.report().save(tmp_path / "a.trace.json")
    names = [event["name"] for event in json.loads((tmp_path / "a.trace.json").read_text())["traceEvents"]]
    assert 'AccumulateGrad a "b"\\\n</script>' in names
