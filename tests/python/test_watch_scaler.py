"""watch() beside a GradScaler: steps that it skips are no alarms, steps that go wrong all the same are."""
import json

import pytest
import torch
from torch import nn

from torchgraphdbg import watch


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Linear(4, 2)


def train(model, scaler, steps, spoil=(), unscale=False, accumulate=1):
    """Gradients overflow in the steps named by spoil; returns how many steps the scaler let through."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    taken = 0
    for step in range(steps):
        for _ in range(accumulate):
            loss = model(torch.randn(3, 4)).pow(2).mean() * 4096
            if step in spoil:
                loss = loss * 1e30
            scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = model.weight.detach().clone()
        scaler.step(optimizer)
        taken += not torch.equal(before, model.weight)
        scaler.update()
        optimizer.zero_grad()
    return taken


def scaler(**options):
    return torch.amp.GradScaler("cpu", **options)


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_skipped_steps_are_no_alarm(model, tmp_path, capfd, unscale, accumulate):
    with watch(model, tmp_path / "out"):
        taken = train(model, scaler(init_scale=2.0**120), 40, unscale=unscale, accumulate=accumulate)
        assert 0 < taken < 40  # the scale settles
        assert train(model, scaler(init_scale=2.0**50), 12, (3, 4, 9), unscale, accumulate) == 9
    assert not (tmp_path / "out").exists() and capfd.readouterr().err == ""


def test_a_step_taken_all_the_same_is_an_alarm(model, tmp_path):
    busy = scaler(init_scale=2.0**120)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watch(model, tmp_path):
        busy.scale(model(torch.randn(3, 4)).pow(2).mean() * 1e9).backward()
        assert not torch.isfinite(model.weight.grad).all()
        assert not list(tmp_path.iterdir())
        optimizer.step()  # past the scaler
        model(torch.randn(3, 4)).sum().backward()
    found = sorted(path.name for path in tmp_path.glob("*.json"))
    assert found[0] == "step-000000.json"  # the step it began in
    kinds = {f["kind"] for f in json.loads((tmp_path / found[0]).read_text())["findings"]}
    assert kinds & {"nan-gradient", "inf-gradient"}


def test_it_is_settled_at_the_end(model, tmp_path):
    busy = scaler(init_scale=2.0**120)
    with watch(model, tmp_path):
        busy.scale(model(torch.randn(3, 4)).pow(2).mean() * 1e9).backward()
        torch.optim.SGD(model.parameters(), 0.01).step()
    assert (tmp_path / "step-000000.svg").exists()


def test_a_nan_loss_is_no_matter_of_scale(model, tmp_path):
    with watch(model, tmp_path):
        x = torch.full((3, 4), float("nan"))
        scaler().scale(model(x).mean()).backward()
    assert (tmp_path / "step-000000.svg").exists()


def test_a_disabled_scaler_skips_nothing(model, tmp_path):
    off = scaler(enabled=False)
    with watch(model, tmp_path):
        off.scale(model(torch.randn(3, 4)).pow(2).mean() * float("inf")).backward()
    assert (tmp_path / "step-000000.svg").exists()
