"""What changed between two reports, as an object, as text and as an exit status."""

import json
import subprocess
import sys
import time

import pytest
import torch
from torch import nn

import torchgraphdbg


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient, None


def network(*more):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4), *more)


def recorded(model, seconds=0.0, scale=1.0):
    torch.manual_seed(1)
    with torchgraphdbg.record(params=model) as rec:
        loss = Slow.apply(model(torch.randn(8, 16)) * scale, seconds).square().mean()
        loss.backward()
    return rec.report()


def names(nodes):
    return [node.name for node in nodes]


def test_the_same_twice():
    before, after = recorded(network()), recorded(network())
    difference = before.diff(after)
    assert difference.same and len(difference.nodes) == len(before.graph.nodes)
    assert (difference.inserted, difference.removed, difference.new_findings, difference.gone_findings) == ([],) * 4
    assert all(each.before.name == each.after.name and each.before.module == each.after.module
               and each.before.parameter == each.after.parameter for each in difference.nodes)
    assert before.diff(before).slower == 0 and before.diff(before).slower_nodes == []


def test_a_layer_more():
    difference = recorded(network()).diff(recorded(network(nn.Sigmoid())))
    assert names(difference.inserted) == ["SigmoidBackward0"] and difference.removed == []
    assert "Nodes that are new:\n  SigmoidBackward0 3" in str(difference)
    back = recorded(network(nn.Sigmoid())).diff(recorded(network()))
    assert names(back.removed) == ["SigmoidBackward0"] and back.inserted == []
    assert "Nodes that are gone:" in str(back)


def test_a_node_that_got_slower():
    difference = recorded(network(), 0.001).diff(recorded(network(), 0.05))
    assert difference.slower > 1
    worst = difference.slower_nodes[0]
    assert worst.after.name == "SlowBackward" and worst.time_after >= 0.05 > worst.time_before
    assert worst.time_change == worst.time_after - worst.time_before
    assert "SlowBackward" in str(difference).split("slower:")[1].splitlines()[1]
    back = recorded(network(), 0.05).diff(recorded(network(), 0.001))
    assert back.slower < 0 and names(each.after for each in back.faster_nodes)[0] == "SlowBackward"


def test_gradients_that_changed():
    difference = recorded(network()).diff(recorded(network(), scale=0.0))
    assert not difference.same and difference.inserted == difference.removed == []
    weight = next(each for each in difference.nodes if each.after.parameter == "2.weight")
    assert weight.gradients["zeros"] == (0, 128) and weight.gradients["norm"][1] == 0
    assert "Gradients that changed:" in str(difference)


def test_findings():
    model = network()
    healthy = recorded(model)
    model[0].extra = nn.Linear(2, 2)
    difference = healthy.diff(recorded(model))
    assert {finding.parameter for finding in difference.new_findings} == {"0.extra.weight", "0.extra.bias"}
    assert "Findings that are new:\n  warning unreached-parameter" in str(difference)
    assert len(recorded(model).diff(healthy).gone_findings) == 2


def test_lines_that_moved():
    """The same nodes at other lines: they are matched in order."""
    x = torch.ones(3, requires_grad=True)
    with torchgraphdbg.record() as first:
        (x * 2).exp().sum().backward()
    with torchgraphdbg.record() as second:

        (x * 2).exp().sum().backward()
    difference = first.report().diff(second.report())
    assert difference.inserted == difference.removed == [] and len(difference.nodes) == 4


def test_a_report_without_times():
    model = network()
    before = torchgraphdbg.inspect(model(torch.randn(8, 16)).sum())
    difference = before.diff(before)
    assert difference.slower is None and difference.same and str(difference) == "nothing changed\n"


@pytest.mark.parametrize("wrong", [None, "a.json", 3])
def test_something_else(wrong):
    with pytest.raises(TypeError, match="other: expected a torchgraphdbg.Report, got"):
        recorded(network()).diff(wrong)


# ---- the command ----


def command(*arguments):
    done = subprocess.run([sys.executable, "-m", "torchgraphdbg", "diff", *map(str, arguments)], capture_output=True,
                          text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    broken = network()
    broken[0].extra = nn.Linear(2, 2)
    for name, report in {"fast": recorded(network(), 0.001), "slow": recorded(network(), 0.05),
                         "broken": recorded(broken, 0.001)}.items():
        report.save(folder / f"{name}.json")
    torchgraphdbg.inspect(torch.ones(2, requires_grad=True).sum()).save(folder / "untimed.json")
    return folder


def test_command(files):
    status, out, err = command(files / "fast.json", files / "slow.json")
    assert (status, err) == (0, "") and "SlowBackward" in out
    fast, slow = (torchgraphdbg.load(files / f"{name}.json") for name in ("fast", "slow"))
    assert out == str(fast.diff(slow))


def test_fail_slower(files):
    status, _, err = command(files / "fast.json", files / "slow.json", "--fail-slower", "10%")
    assert status == 3 and "slower, more than 10%" in err
    assert command(files / "slow.json", files / "fast.json", "--fail-slower", "10%")[0] == 0
    assert command(files / "fast.json", files / "slow.json", "--fail-slower", "100000")[0] == 0


def test_fail_slower_without_times(files):
    status, _, err = command(files / "fast.json", files / "untimed.json", "--fail-slower", "10%")
    assert status == 1 and "expected two reports with times" in err


def test_fail_on_findings(files):
    status, out, err = command(files / "fast.json", files / "broken.json", "--fail-on-findings")
    assert status == 3 and "2 new findings" in err and "0.extra.weight" in out
    assert command(files / "broken.json", files / "fast.json", "--fail-on-findings")[0] == 0
    assert command(files / "fast.json", files / "broken.json")[0] == 0


def test_wrong_words(files, tmp_path):
    assert command(files / "fast.json", tmp_path / "missing.json")[0] == 1
    (tmp_path / "other.json").write_text(json.dumps({"schema": "other"}))
    status, _, err = command(tmp_path / "other.json", files / "fast.json")
    assert status == 1 and "is not a report" in err
    for wrong in ("ten", "-1", "nan"):
        assert command(files / "fast.json", files / "slow.json", f"--fail-slower={wrong}")[0] == 2
