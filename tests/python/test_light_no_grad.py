"""Under the light level: parameters whose first use was with grad mode off have a reason and a line."""

import inspect

import pytest
import torch
import torchgraphdbg as tgd
from torchgraphdbg import _core

MODES = [torch.no_grad, torch.inference_mode]


@pytest.fixture(autouse=True)
def light():
    _core._light_start()
    yield
    _core._light_stop()


def line_here():
    return inspect.currentframe().f_back.f_lineno


def of_first(root, first):
    [found] = [f for f in tgd.inspect(root, params={"first": first.weight}).findings
               if f.kind == "unreached-parameter"]
    return found


@pytest.mark.parametrize("mode", MODES)
def test_the_region_is_named_where_its_result_is_in_the_graph(mode):
    first, last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
    with mode():
        line = line_here() - 1
        h = torch.relu(first(torch.randn(3, 4)))
    found = of_first(last(h.clone()).sum(), first)
    assert (found.reason, found.where.line) == ("grad-mode-disabled", line)
    assert "perhaps" not in found.message


def test_what_is_computed_between_the_region_and_the_graph_is_followed():
    first, last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
    with torch.no_grad():
        line = line_here() - 1
        h = first(torch.randn(3, 4))
    found = of_first(last(torch.relu(h).flatten(1)).sum(), first)
    assert (found.reason, found.where.line) == ("grad-mode-disabled", line)


def test_a_validation_pass_is_not_accused():
    first, last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
    with torch.no_grad():
        last(first(torch.randn(3, 4)))
    found = of_first(last(torch.randn(3, 8)).sum(), first)
    assert found.reason != "grad-mode-disabled" and found.where is None
