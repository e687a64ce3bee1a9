"""A watch over thousands of steps grows by nothing. TGD_LONG=1 takes 100,000 of them."""

import os

import pytest
import torch
from torch import nn

from test_leaks import steady
from torchgraphdbg import watch

STEPS = 100_000 if os.environ.get("TGD_LONG") == "1" else 3_000


def training(model, optimizer):
    def step():
        optimizer.zero_grad()
        loss = torch.tanh(model(torch.randn(3, 4))).pow(2).mean()
        loss.backward()
        optimizer.step()
    return step


@pytest.mark.parametrize("forward", [False, True])
def test_steps_that_go_well(tmp_path, forward):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    with watch(model, tmp_path / "out", forward=forward):
        steady(training(model, torch.optim.Adam(model.parameters())), STEPS // 2, STEPS, 4 << 20)
    assert not (tmp_path / "out").exists()


def test_steps_that_go_wrong(tmp_path):
    """Faults that are only counted, or that a GradScaler skips: reports come and go."""
    model = nn.Linear(4, 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)

    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.randn(3, 4)).pow(2).sum() * 4096).backward()
        scaler.step(optimizer)
        scaler.update()
        s = torch.sigmoid(model(torch.randn(3, 4)))
        s.add_(1)
        try:
            s.sum().backward()
        except RuntimeError:
            pass

    with watch(model, tmp_path / "out", max_dumps=0):
        steady(step, STEPS // 2, STEPS // 3, 4 << 20)  # the rows of 32,000 writes are kept; then the oldest go


def test_watches_that_come_and_go(tmp_path):
    model = nn.Linear(4, 2)

    def work():
        with watch(model, tmp_path / "out", forward=True), watch(model.parameters(), tmp_path / "out"):
            model(torch.randn(3, 4)).sum().backward()

    steady(work, 1500, STEPS // 3, 4 << 20)
