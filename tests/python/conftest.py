import pytest
import torch

import torchgraphdbg


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def mlp():
    """A healthy model: two layers, a ReLU between them."""
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


@pytest.fixture
def healthy(mlp):
    """A loss that backward can be called on."""
    return mlp(torch.randn(5, 4)).square().mean()


@pytest.fixture
def broken():
    """A loss whose backward raises: exp saved its result, which was changed afterwards."""
    x = torch.randn(3, 4, requires_grad=True)
    y = x.exp()
    y.add_(1)
    return y.sum()


@pytest.fixture
def broken_report(broken):
    return torchgraphdbg.inspect(broken)
