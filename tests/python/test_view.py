"""detail= and focus=: how much of a large graph a picture shows, and which part."""

import re

import pytest
import torch
from torch import nn

import torchgraphdbg


class Deep(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.sum()


def report(layers=100):
    model = Deep(layers)
    return torchgraphdbg.inspect(model(torch.ones(2, 4)), params=model)


def boxes(path):
    return int(re.search(r" in (\d+) box", path.read_text()).group(1))


def test_more_boxes_on_demand(tmp_path):
    made = report()
    made.save(tmp_path / "auto.svg")
    made.save(tmp_path / "few.svg", detail=8)
    made.save(tmp_path / "many.svg", detail=60)
    made.save(tmp_path / "same.svg", detail="auto", focus=None)
    assert boxes(tmp_path / "few.svg") <= 12 < boxes(tmp_path / "many.svg") <= 64
    assert (tmp_path / "same.svg").read_bytes() == (tmp_path / "auto.svg").read_bytes()


def test_all_draws_every_op_or_says_why_not(tmp_path):
    small = report(layers=20)  # 20 layers, 20 relus, one sum
    small.save(tmp_path / "all.svg", detail="all")
    assert boxes(tmp_path / "all.svg") == 41
    with pytest.raises(ValueError, match=r"detail='all' draws up to 64 ops.* 201.*focus="):
        report().save(tmp_path / "none.svg", detail="all")
    assert not (tmp_path / "none.svg").exists()


def test_focus_opens_a_module_or_what_is_around_a_node(tmp_path):
    made = report()
    made.save(tmp_path / "auto.svg")
    assert ">layers.50<" not in (tmp_path / "auto.svg").read_text()
    made.save(tmp_path / "module.svg", focus="layers.50")
    assert ">layers.50<" in (tmp_path / "module.svg").read_text()
    node = made.graph.nodes[len(made.graph.nodes) // 2]
    made.save(tmp_path / "node.svg", focus=node)
    assert (tmp_path / "node.svg").read_bytes() != (tmp_path / "auto.svg").read_bytes()


def test_focus_on_a_finding(tmp_path):
    model = Deep(100)
    x = torch.ones(2, 4)
    for i, layer in enumerate(model.layers):
        x = torch.relu(layer(x))
        if i in (10, 90):
            x.add_(1)
    made = torchgraphdbg.inspect(x.sum(), params=model)
    for finding in made.findings:
        made.save(tmp_path / "finding.svg", focus=finding)
        assert "ReluBackward0" in (tmp_path / "finding.svg").read_text()


def test_bad_views_are_refused(tmp_path):
    made = report()
    path = tmp_path / "never.svg"
    for error, words, view in [
        (ValueError, "detail is 'most'", {"detail": "most"}),
        (ValueError, "detail is 0; from 1 to 64", {"detail": 0}),
        (ValueError, "detail is 65; from 1 to 64", {"detail": 65}),
        (ValueError, "from 1 to 64", {"detail": 10**30}),
        (TypeError, "detail is float", {"detail": 1.5}),
        (TypeError, "detail is bool", {"detail": True}),
        (TypeError, "focus is int", {"focus": 3}),
        (ValueError, "no module 'head' in this graph; it has layers.99, layers.98", {"focus": "head"}),
        (ValueError, "Node of another report", {"focus": report(2).graph.nodes[0]}),
    ]:
        with pytest.raises(error, match=re.escape(words)):
            made.save(path, **view)
        assert not path.exists()
    root = torch.ones(1, requires_grad=True) * 2
    with pytest.raises(TypeError, match="focus is int"):
        torchgraphdbg.dump(root, path, quiet=True, focus=1)
    with pytest.raises(ValueError, match="params=model"):
        torchgraphdbg.dump(root, path, quiet=True, focus="layers")
