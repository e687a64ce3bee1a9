"""A graph that goes on in another process, over torch.distributed.rpc: nothing changes, and nothing is said of what
this process does not see."""
import json
import os
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.distributed.is_available() or not torch.distributed.rpc.is_available(),
                                reason="this torch has no RPC")

PROGRAM = """
import contextlib, json, os, sys
import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torchgraphdbg
from torchgraphdbg import _core

rank, folder, level = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if level == "light":
    _core._light_start()
options = rpc.TensorPipeRpcBackendOptions(init_method="file://" + folder + "/store")
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)

def remote(x):
    return (x * 3).sigmoid()

if rank == 0:
    torch.manual_seed(0)
    weight, unused = torch.rand(4, requires_grad=True), torch.rand(4, requires_grad=True)
    said = {}
    with torchgraphdbg.record() if level == "full" else contextlib.nullcontext():
        with dist_autograd.context() as context:
            y = rpc.rpc_sync("worker1", remote, args=(weight * 2,))
            loss = (y * y).sum()
            report = torchgraphdbg.inspect(loss, params={"weight": weight, "unused": unused})
            said["findings"] = [(f.kind, f.severity) for f in report.findings]
            said["verdict"] = report.verdict
            dist_autograd.backward(context, [loss])
            said["gradient"] = dist_autograd.get_gradients(context)[weight].tolist()
            z = weight.exp()
            z += 1; line = sys._getframe().f_lineno
            found = torchgraphdbg.inspect(z.sum()).findings[0]
            said["culprit"] = [found.op, found.where and found.where.line == line]
            try:
                dist_autograd.backward(context, [z.sum()])
            except RuntimeError as error:
                said["error"] = str(error).split(" Hint:")[0]  # which hint, the light level changes here
    print(json.dumps(said))
rpc.shutdown()
"""


def run(tmp_path, level):
    folder = tmp_path / level
    folder.mkdir()
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore", str(path), str(rank), str(folder), level],
                              env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) for rank in (1, 0)]
    try:
        outputs = [process.communicate(timeout=100) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert [process.returncode for process in ranks] == [0, 0], outputs
    assert not any("torchgraphdbg" in err for _, err in outputs), outputs
    return json.loads(outputs[1][0])


def test_backward_over_rpc(tmp_path):
    plain = run(tmp_path, "plain")
    assert "modified by an inplace operation" in plain["error"] and plain["culprit"] == [None, None]
    for level in ("light", "full"):
        said = run(tmp_path, level)
        assert (said["gradient"], said["error"]) == (plain["gradient"], plain["error"])
        assert said["culprit"] == ["add_", True]
        assert said["findings"] == plain["findings"] == [["opaque-node", "note"]]
        assert said["verdict"].startswith("no fault found")
