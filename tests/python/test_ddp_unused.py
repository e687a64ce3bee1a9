"""A branch that a step does not use: DistributedDataParallel refuses the next forward, and the report says what it waits
for, before and after."""
import subprocess
import sys
import textwrap

import pytest
import torch.distributed as dist

TRAIN = """
    import sys, torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    import torchgraphdbg

    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x, skip):
            h = self.a(x)
            if not skip:
                h = self.b(h)
            k = self.c(h).detach()  # CUT
            return (h + k).sum()

    cut = [n for n, text in enumerate(open(__file__).read().splitlines(), 1) if text.endswith("# CUT")][0]
    model = DistributedDataParallel(Net())

    def check(report):
        found = {f.parameter: (f.reason, f.where and f.where.line) for f in report.findings
                 if f.kind == "unreached-parameter"}
        assert found == {"module.b.weight": ("never-used", None), "module.b.bias": ("never-used", None),
                         "module.c.weight": ("detached", cut), "module.c.bias": ("detached", cut)}, found

    refused = None
    try:
        with torchgraphdbg.record(params=model) as rec:
            loss = model(torch.randn(2, 3), True)
            check(torchgraphdbg.inspect(loss, params=model))  # before backward, and before the error
            loss.backward()
            check(rec.report())
            model(torch.randn(2, 3), True)
    except RuntimeError as error:
        refused = error
    assert "Expected to have finished reduction in the prior iteration" in str(refused)
    check(rec.report())
    check(rec.report(params=model))
    if hasattr(refused, "__notes__"):
        (note,) = refused.__notes__
        assert "DistributedDataParallel waits" in note, note
        assert "module.b.bias (float32 [3]) gets no gradient: the forward never used it" in note, note
        assert f"detach at train.py:{cut}" in note, note

    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="no gloo here")
def test_unused_parameters_are_named(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    ranks = [subprocess.Popen([sys.executable, str(script), str(rank), str(tmp_path / "meet")], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
    for process in ranks:
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output
