import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))  # device_clock.py


@pytest.fixture(autouse=True)
def settled():
    """Warm, and nothing under way before a test or after it."""
    torch.manual_seed(0)
    a = torch.ones(256, 256, device="cuda")
    (a @ a).sum().item()
    yield
    torch.cuda.synchronize()
