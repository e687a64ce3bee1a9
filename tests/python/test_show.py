"""python -m torchgraphdbg show: a dump printed or saved in other forms."""
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torchgraphdbg
from torchgraphdbg import _command

PACKAGE = pathlib.Path(torchgraphdbg.__file__).resolve().parents[1]  # as it is installed, or built in place


@pytest.fixture
def dump(tmp_path):
    hidden = torch.rand(3, requires_grad=True).sigmoid()
    parameters = {f"spare.{i}": torch.rand(2, requires_grad=True) for i in range(30)}
    loss = hidden.sum()
    hidden += 1
    report = torchgraphdbg.inspect(loss, params=parameters)
    report.save(tmp_path / "dump.json")
    return report


@pytest.fixture
def show(monkeypatch, tmp_path, capsys):
    """The command in this process: importing torch takes most of the time otherwise."""
    def command(*words):
        monkeypatch.setattr(sys, "argv", ["torchgraphdbg", "show", *words])
        monkeypatch.chdir(tmp_path)
        try:
            _command.main()
            status = 0
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()
    return command


def test_prints(dump, show):
    assert show("dump.json") == (0, str(dump), "")


def test_every_finding(dump, show):
    status, out, err = show("dump.json", "--all")
    assert (status, err) == (0, "")
    assert out.startswith(str(dump))
    for finding in dump.findings:
        assert str(finding) in out[len(str(dump)):]


def test_other_forms(dump, show, tmp_path):
    assert show("dump.json", "-o", "a.svg", "a.txt", "-o", "a.gv") == (0, "", "")
    for suffix in ("svg", "txt", "gv"):
        dump.save(tmp_path / f"b.{suffix}")
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


@pytest.mark.parametrize("words, message", [
    (["none.json"], "No such file or directory: 'none.json'"), (["bad.json"], "'bad.json' is not JSON"),
    (["dump.json", "-o", "x.png"], ".svg"), (["dump.json", "-o", "no/x.svg"], "No such file or directory")])
def test_what_cannot_be_done(words, message, dump, show, tmp_path):
    (tmp_path / "bad.json").write_text("{")
    status, out, err = show(*words)
    assert (status, out) == (1, "") and err.startswith("torchgraphdbg show: ") and message in err
    assert err.count("\n") == 1


def test_wrong_command_line(show):
    assert show()[0] == 2
    assert show("dump.json", "--al1")[0] == 2


def test_as_a_command(dump, tmp_path):
    command = [sys.executable, "-m", "torchgraphdbg", "show", "dump.json"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (run.returncode, run.stdout, run.stderr) == (0, str(dump), "")
    closed = subprocess.run(f"{' '.join(command)} --all | head -c 1", shell=True, cwd=tmp_path, env=environment,
                            capture_output=True, text=True, timeout=120)
    assert (closed.stdout, closed.stderr) == ("t", "")
