"""A fork while other threads train under a recording: the child can record, and nobody waits for ever."""
import subprocess
import sys

import pytest

PROGRAM = """
import contextlib, os, signal, sys, threading, time
import torch
import torchgraphdbg

level = sys.argv[1]
if level == "light":
    torchgraphdbg._core._light_start()
stop = threading.Event()

def train():
    weight = torch.rand(16, 16, requires_grad=True)
    while not stop.is_set():
        x = weight
        for _ in range(10):
            x = torch.tanh(x @ weight).clone().add_(1)
        x.sum().backward()
        weight.grad = None

statuses = set()
with torchgraphdbg.record() if level == "full" else contextlib.nullcontext():
    threads = [threading.Thread(target=train) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(150):
        time.sleep(0.002)
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # a child that waits for a lock dies of it
            y = torch.rand(3, requires_grad=True).exp()
            y.add_(1)
            found = torchgraphdbg.inspect(y.sum()).findings[0]
            os._exit(0 if (found.kind, found.op) == ("modified-in-place", "add_") else 3)
        statuses.add(os.waitpid(child, 0)[1])
        if statuses != {0}:
            break
    stop.set()
    for thread in threads:
        thread.join()
print(statuses)
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
@pytest.mark.parametrize("level", ["light", "full"])
def test_children_of_a_program_that_trains_in_threads(level, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run([sys.executable, "-W", "ignore", str(path), level], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{0}\n", "")
