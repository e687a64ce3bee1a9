"""python -m torchgraphdbg run: the script cannot tell, and exits as it would without."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import torchgraphdbg

PACKAGE = pathlib.Path(torchgraphdbg.__file__).resolve().parents[1]  # as it is installed, or built in place

FACTS = """
import inspect, json, pickle, sys
import __main__
class Thing:
    pass
names = {k: type(v).__name__ if k == "__loader__" else re for k, v in globals().items()
         if k.startswith("__") and k != "__builtins__" for re in [str(v).split(" object at ")[0]]}
json.dump({"names": names, "argv": sys.argv, "path": sys.path[0], "builtins": type(__builtins__).__name__,
           "main": __main__.Thing is Thing, "source": inspect.getsource(Thing), "torch": "torch" in sys.modules,
           "file": inspect.currentframe().f_code.co_filename, "optimize": sys.flags.optimize,
           "pickled": type(pickle.loads(pickle.dumps(Thing()))) is Thing}, sys.stdout, indent=1)
"""

ENDS = """
import atexit, os, sys, threading, time
how = sys.argv[1]
atexit.register(lambda: print("at exit", flush=True))
def end():
    if how == "raise":
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise ValueError("no") from error
    if how == "exit 3":
        sys.exit(3)
    if how == "exit text":
        sys.exit("bye")
    if how == "_exit":
        os._exit(7)
    if how == "interrupt":
        os.kill(os.getpid(), 2)
        time.sleep(5)
    if how == "terminate":
        os.kill(os.getpid(), 15)
        time.sleep(5)
    if how == "hook":
        sys.excepthook = lambda kind, value, tb: print("hook", kind, value, tb.tb_frame.f_code.co_name,
                                                       sys.last_traceback is tb, value.__traceback__ is tb)
        raise ValueError("hooked")
    if how == "thread":
        threading.Thread(target=lambda: 1 / 0).start()
end()
"""


def python(*words, folder, flags=(), **environment):
    run = subprocess.run([sys.executable, *flags, *words], cwd=folder, capture_output=True, text=True, timeout=120,
                         env={**os.environ, "PYTHONPATH": str(PACKAGE), **environment})
    return run.returncode, run.stdout, run.stderr


def both(*words, folder, flags=()):
    plain = python(*words, folder=folder, flags=flags)
    return plain, python("-m", "torchgraphdbg", "run", *words, folder=folder, flags=flags)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripts")
    for name in ("facts.py", "dir/__main__.py", "pkg/__main__.py", "pkg/sub/mod.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(FACTS)
    for name in ("pkg/__init__.py", "pkg/sub/__init__.py"):
        (folder / name).touch()
    (folder / "ends.py").write_text(ENDS)
    (folder / "syntax.py").write_text("def f(:\n")
    (folder / "empty").mkdir()
    (folder / "bad.py").write_text("import no_such_module\n")
    (folder / "link.py").symlink_to(folder / "pkg" / "sub" / "mod.py")
    subprocess.run([sys.executable, "-m", "zipfile", "-c", "../app.zip", "__main__.py"], cwd=folder / "dir", check=True)
    return folder


@pytest.mark.parametrize("words", [
    ("facts.py", "a", "--lr", "3", "-m", "-d", "--", "--help"), ("./facts.py",), ("link.py",), ("dir", "-x"), ("app.zip",),
    ("-m", "pkg", "--", "-m"), ("-m", "pkg.sub.mod", "-d", "3")], ids=" ".join)
def test_is_the_real_main(words, folder):
    (status, out, err), (our_status, our_out, our_err) = both(*words, folder=folder)
    assert (status, err) == (our_status, our_err) == (0, "")
    assert json.loads(our_out) == json.loads(out)
    assert json.loads(out)["main"] and not json.loads(out)["torch"]


@pytest.mark.parametrize("how", ["raise", "exit 3", "exit text", "_exit", "interrupt", "terminate", "hook", "thread", "end"])
def test_ends_as_without(how, folder):
    plain, ours = both("ends.py", how, folder=folder)
    if how == "thread":
        plain, ours = [(status, out, re.sub(r"Thread-\d+", "", err)) for status, out, err in (plain, ours)]
    assert ours == plain


@pytest.mark.parametrize("words", [("syntax.py",), ("no_such.py",), ("empty",), ("-m", "no_such"), ("-m", "pkg.sub"),
                                   ("bad.py",)], ids=" ".join)
def test_cannot_be_run(words, folder):
    plain, ours = both(*words, folder=folder)
    assert ours == plain
    assert plain[0] != 0


def test_options_of_the_interpreter(folder):
    plain, ours = both("facts.py", folder=folder, flags=("-O", "-X", "utf8", "-u"))
    assert json.loads(ours[1]) == json.loads(plain[1])
    assert json.loads(ours[1])["optimize"] == 1


def test_command_line(folder):
    status, out, err = python("-m", "torchgraphdbg", folder=folder)
    assert (status, err) == (0, "") and all(word in out for word in ("run", "show", "diff"))
    assert python("-m", "torchgraphdbg", "run", "--help", folder=folder)[0] == 0
    for wrong in (["run"], ["run", "-x", "facts.py"], ["run", "-d"], ["run", "-m"], ["walk"], ["show"], ["diff", "a.json"]):
        status, out, err = python("-m", "torchgraphdbg", *wrong, folder=folder)
        assert (status, out) == (2, "") and "usage: python -m torchgraphdbg" in err, wrong
    assert "not supported" in python("-m", "torchgraphdbg", "run", "-", folder=folder)[2]


# ---- with torch ----

TRAIN = """
import os, sys
os.environ["OMP_NUM_THREADS"] = "1"
import torch
assert type(torch.__spec__.loader).__name__ == type(torch.__loader__).__name__ == "SourceFileLoader"
assert not [f for f in sys.meta_path if "torchgraphdbg" in type(f).__module__]

def step(x):
    y = x.sigmoid()
    y += 1
    return y.sum()

loss = step(torch.rand(3, requires_grad=True))
if "dump" in sys.argv:
    import torchgraphdbg
    torchgraphdbg.dump(loss, None, file=sys.stdout)
    sys.exit(4)
if "refused" in sys.argv:
    torch.rand(3, requires_grad=True).add_(1)
loss.backward()
"""


def test_dump_names_the_line(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    status, out, err = python("-m", "torchgraphdbg", "run", "train.py", "dump", folder=tmp_path)
    assert (status, err) == (4, "")
    assert "add_ at train.py:10" in out
    status, out, err = python("-m", "torchgraphdbg", "run", "train.py", "dump", folder=tmp_path, TORCHGRAPHDBG="0")
    assert (status, err) == (4, "")
    assert "train.py" not in out and "changed in place" in out


@pytest.mark.parametrize("how", ["backward", "refused"])
def test_dying_script_is_explained(how, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    plain = python("train.py", how, folder=tmp_path)
    status, out, err = python("-m", "torchgraphdbg", "run", "-d", "found here", "train.py", how, folder=tmp_path)
    line = "train.py:10" if how == "backward" else "train.py:19"
    assert (status, out) == (plain[0], plain[1]) == (1, "")
    before, after = err.split(plain[2])  # the traceback, as it is without us
    note = after.splitlines()[0]
    assert note.startswith("torchgraphdbg: ") and line in note
    assert "found here" in after.splitlines()[2]
    dumps = sorted(path.suffix for path in (tmp_path / "found here").iterdir())
    assert ".json" in dumps and ".svg" in dumps
    shown = python("-m", "torchgraphdbg", "show", *map(str, (tmp_path / "found here").glob("*.json")), folder=tmp_path)
    assert shown[0] == 0 and line in shown[1]


SPAWN = """
import multiprocessing, sys
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return (torch.ones(1, requires_grad=True) * i).detach()

def work(x):
    return __name__, "torchgraphdbg" in sys.modules, x

if __name__ == "__main__":
    for method in ("spawn", "forkserver", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, pool.map(work, [1]))
    print(sorted(float(x) for x in DataLoader(Numbers(), num_workers=1, multiprocessing_context="spawn")))
    print(sorted(float(x) for x in DataLoader(Numbers(), num_workers=1, multiprocessing_context="fork")))
"""


def test_processes_that_it_starts(tmp_path):
    (tmp_path / "spawn.py").write_text(SPAWN)
    status, out, err = python("-m", "torchgraphdbg", "run", "spawn.py", folder=tmp_path)
    assert (status, err) == (0, "")
    numbers = str([0.0, 1.0, 2.0, 3.0])
    assert out.splitlines() == ["spawn [('__mp_main__', False, 1)]", "forkserver [('__mp_main__', False, 1)]",
                                "fork [('__main__', True, 1)]", numbers, numbers]


def test_torchrun(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN.replace("sys.exit(4)", "print(os.environ['RANK'], __name__); sys.exit(0)"))
    status, out, err = python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "-m", "torchgraphdbg",
                              "run", "train.py", "dump", folder=tmp_path)
    assert status == 0, err
    assert "add_ at train.py:10" in out and "0 __main__" in out
