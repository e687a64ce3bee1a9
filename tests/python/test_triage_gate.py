"""Healthy models get no warning from the triage: cold, in training, and when there is nothing left to learn. The long
form (TGD_LONG=1: 200 steps; TGD_GATE_STEPS: as many) looks at every step."""
import os

import pytest
import torch
import torchgraphdbg as tgd

from healthy_models import MODELS

LONG = int(os.environ.get("TGD_GATE_STEPS", "200" if os.environ.get("TGD_LONG") == "1" else "0"))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_healthy_model_gets_no_warning(name):
    torch.manual_seed(0)
    net, step = MODELS[name]()
    dense = [p for n, p in net.named_parameters()]
    sparse = any(getattr(m, "sparse", False) for m in net.modules())
    optimizer = torch.optim.SGD(dense, lr=0.05) if sparse else torch.optim.Adam(dense, lr=3e-3)
    watched = range(LONG) if LONG else [0, 1, 5, 24, 25]
    for i in range(max(watched) + 1):
        optimizer.zero_grad()
        if i in watched:
            with tgd.record() as rec:
                step(i).backward()
            report = rec.report()
            loud = [str(f) for f in rec.report().findings if f.severity != "note"]
            assert report.graph.nodes[0].gradient is not None
            assert not loud, (i, loud)
            if i in watched and not LONG or i % 20 == 0:
                named = [f for f in rec.report(params=net).findings
                         if f.severity != "note" and f.kind != "unreached-parameter"]
                assert not named, (i, [f.message for f in named])
        else:
            step(i).backward()
        optimizer.step()
