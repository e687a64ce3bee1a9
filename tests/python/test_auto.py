"""import torchgraphdbg.auto: lines from there on, off where it should be, and never in the way."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import torchgraphdbg

PACKAGE = pathlib.Path(torchgraphdbg.__file__).resolve().parents[1]  # as it is installed, or built in place


def python(script, folder, package=PACKAGE, flags=(), **environment):
    (folder / "script.py").write_text(script)
    run = subprocess.run([sys.executable, *flags, "script.py"], cwd=folder, capture_output=True, text=True, timeout=120,
                         env={**os.environ, "PYTHONPATH": str(package), **environment})
    return run.returncode, run.stdout, run.stderr


RECORDING = """
import threading
import torch, torchgraphdbg

def broken(line=None):
    x = torch.rand(3, requires_grad=True)
    y = x.sigmoid()
    y += 1
    finding, = torchgraphdbg.inspect(y.sum()).findings
    return finding.where and (str(finding.where), finding.op)

before = torch._C._set_grad_enabled, torch.autograd._make_grads
assert "torchgraphdbg.auto" not in __import__("sys").modules and broken() is None
import torchgraphdbg.auto as auto
assert broken() == ("script.py:8", "add_")
assert auto.start() and auto.start()
auto.stop()
assert broken() is None
assert before == (torch._C._set_grad_enabled, torch.autograd._make_grads)
auto.stop()
assert auto.start() and broken() == ("script.py:8", "add_")

net = torch.nn.Linear(3, 3)
with torch.no_grad():
    off = net(torch.rand(3))
found = torchgraphdbg.inspect(off.sum()).findings[0]
assert (found.kind, found.reason, str(found.where)) == ("no-grad-fn", "grad-mode-disabled", "script.py:24"), found
with torchgraphdbg.record() as rec:
    torch.rand(3, requires_grad=True).sum().backward()
assert rec.report().ok and broken() == ("script.py:8", "add_")

x = torch.rand(3, requires_grad=True)
loss = x.exp().sum()
loss.backward()
found = torchgraphdbg.inspect(loss).findings[0]
assert (found.kind, str(found.where)) == ("graph-freed", "script.py:34"), found
print("done")
"""


def test_recording(tmp_path):
    assert python(RECORDING, tmp_path) == (0, "done\n", "")


def test_environment_has_the_last_word(tmp_path):
    script = """
import os, warnings
for word in ("off", "False", " no ", ""):
    os.environ["TORCHGRAPHDBG"] = word
    import torchgraphdbg.auto as auto
    assert not auto.start(), word
auto.stop()
import torch, torchgraphdbg
y = torch.rand(3, requires_grad=True).sigmoid()
y += 1
assert torchgraphdbg.inspect(y.sum()).findings[0].where is None
os.environ["TORCHGRAPHDBG"] = "1"
assert auto.start()
"""
    assert python(script, tmp_path, TORCHGRAPHDBG="0") == (0, "", "")


def test_the_end_of_the_process(tmp_path):
    """Ops and backwards in exit handlers, forked children and daemon threads that outlive the main one."""
    script = """
import atexit, os, threading
import torch
def backward():
    loss = (torch.rand(8, 8, requires_grad=True).sigmoid() @ torch.rand(8, 8)).sum()
    loss.backward()
atexit.register(backward)
import torchgraphdbg.auto
atexit.register(backward)
child = os.fork()
if child == 0:
    backward()
    y = torch.rand(3, requires_grad=True).exp(); y += 1
    assert torchgraphdbg.inspect(y.sum()).findings[0].where.line == 13
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
def work():
    backward()
    out.wait()
    threading.Event().wait()
out = threading.Barrier(3)  # a thread that is still in a backward at the end crashes Python, also without us
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
for _ in range(20):
    backward()
out.wait()
"""
    assert python(script, tmp_path) == (0, "", "")


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """The package as if it had been built for another torch."""
    folder = tmp_path_factory.mktemp("wrong")
    shutil.copytree(PACKAGE / "torchgraphdbg", folder / "torchgraphdbg",
                    ignore=shutil.ignore_patterns("__pycache__", "lib", "include"))
    build = folder / "torchgraphdbg" / "_build.py"
    build.write_text(build.read_text() + "\nTORCH_GIT = 'another'\n")
    return folder


def test_another_torch(wrong, tmp_path):
    script = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torchgraphdbg.auto
    assert not torchgraphdbg.auto.start()
    torchgraphdbg.auto.stop()
warning, = caught
assert warning.category is RuntimeWarning and warning.filename == __file__ and warning.lineno == 5, warning
assert "was built for torch" in str(warning.message) and "pip install" in str(warning.message)
import torchgraphdbg
for use in (lambda: torchgraphdbg.dump, lambda: exec("from torchgraphdbg import inspect")):
    try:
        use()
    except ImportError as error:
        assert "was built for torch" in str(error)
    else:
        raise AssertionError
assert not hasattr(torchgraphdbg, "nothing_of_the_kind") and torchgraphdbg.__version__
import torch
torch.rand(3, requires_grad=True).sum().backward()
"""
    assert python(script, tmp_path, wrong) == (0, "", "")
    assert python("import torchgraphdbg.auto", tmp_path, wrong, flags=["-W", "error"]) == (0, "", "")
    status, _, err = python("import torchgraphdbg", tmp_path, wrong)
    assert status == 1 and "ImportError: torchgraphdbg was built for torch" in err


def test_run_and_show_on_another_torch(wrong, tmp_path):
    def command(*words):
        run = subprocess.run([sys.executable, "-m", "torchgraphdbg", *words], cwd=tmp_path, capture_output=True, text=True,
                             timeout=120, env={**os.environ, "PYTHONPATH": str(wrong)})
        return run.returncode, run.stdout, run.stderr
    (tmp_path / "train.py").write_text("import torch\nprint(torch.ones(1).item())\n")
    status, out, err = command("run", "train.py")
    assert (status, out) == (0, "1.0\n")
    assert err.count("RuntimeWarning") == 1 and "train.py:1" in err and "Rebuild" in err
    status, out, err = command("show", "x.json")
    assert (status, out) == (1, "") and "was built for torch" in err and "Traceback" not in err
