"""Gradients on a device that must not be waited for: asked for after one backward, read at a later one. The device is the
CPU, which the watch is told to treat as far away; where there is CUDA, that too."""
import json
import warnings

import pytest
import torch
from torch import nn

from torchgraphdbg import _core, watch

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(params=DEVICES)
def device(request):
    _core._watch_pretend(request.param == "cpu")
    yield request.param
    _core._watch_pretend(False)


@pytest.fixture
def model(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)


def train(model, steps, spoil=(), device="cpu", loss=lambda y: y.pow(2).mean()):
    for step in range(steps):
        model.zero_grad()
        x = torch.randn(3, 4, device=device)
        if step in spoil:
            x[1, 1] = float("nan")
        loss(model(x)).backward()


def documents(folder):
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")} if folder.exists() else {}


def test_it_is_said_of_the_step_it_was(model, device, tmp_path):
    with watch(model, tmp_path):
        train(model, 12, (4,), device)
    ((stem, found),) = documents(tmp_path).items()
    assert stem == "step-000004" and found["occasion"].startswith("step 4,")
    errors = [f for f in found["findings"] if f["severity"] == "error"]
    assert [f["kind"] for f in errors] == ["nan-forward"] + 4 * ["nan-gradient"]
    assert "some of its elements are NaN" in errors[1]["message"]


def test_infinity(model, device, tmp_path):
    with watch(model, tmp_path):
        train(model, 3, (), device)
        model.zero_grad()
        with torch.no_grad():
            model[2].bias.zero_()
        model[2].bias.sqrt().sum().backward()
        train(model, 2, (), device)
    (found,) = documents(tmp_path).values()
    (error,) = [f for f in found["findings"] if f["severity"] == "error"]
    assert (error["kind"], error["parameter"]) == ("inf-gradient", "2.bias")
    assert "some of its elements are infinite" in error["message"]


def test_weights_that_stay_nan_are_one_fault(model, device, tmp_path):
    with watch(model, tmp_path):
        with torch.no_grad():
            model[0].weight[0, 0] = float("nan")
        train(model, 12, (), device)
    assert len(documents(tmp_path)) == 2  # when it began, and once more with full recording


def test_healthy_training_is_silent(model, device, tmp_path, capfd):
    double = nn.Linear(2, 2).to(device, torch.float64)
    large = torch.full((2, 2), 1e300, device=device, dtype=torch.float64)  # beyond what float32 holds
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with watch(nn.ModuleList([model, double]), tmp_path / "out"):
            train(model, 10, (), device, lambda y: y.double().mean() + double(large).mean())
            train(model, 3, (), device, lambda y: y.sum() * 1e30)
    assert not (tmp_path / "out").exists() and capfd.readouterr().err == ""


def test_modes_of_the_user_see_nothing(model, device, tmp_path):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            calls.append(str(function))
            return function(*args, **(kwargs or {}))

    calls = []
    with Ops():
        train(model, 3, (), device)
    expected = list(calls)
    calls.clear()
    with watch(model, tmp_path), Ops():
        train(model, 3, (), device)
    assert [c for c in calls if "norm" in c or "stack" in c or "copy" in c] == \
        [c for c in expected if "norm" in c or "stack" in c or "copy" in c]


def test_removal_with_answers_under_way(model, device, tmp_path):
    armed = watch(model, tmp_path / "out")
    train(model, 1, (0,), device)
    armed.remove()
    train(model, 1, (0,), device)
    assert not (tmp_path / "out").exists()
