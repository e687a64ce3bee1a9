"""The text report on a terminal: colour and links there, plain words anywhere else."""

import io
import pathlib
import re

import pytest
import torch

import torchgraphdbg

HERE = pathlib.Path(__file__)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def broken():
    weight = torch.ones(3, requires_grad=True)
    with torchgraphdbg.record():
        result = torch.exp(weight)
        result.add_(1)
        yield result.sum()


def dump(root, file):
    return torchgraphdbg.dump(root, None, file=file)


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;;[^\x1b]*\x1b\\", "", text)


def test_a_terminal_gets_colour_and_links(broken, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    file = Terminal()
    report = dump(broken, file)
    assert file.getvalue().startswith("\x1b[1;31mtorchgraphdbg: backward() will raise")
    assert plain(file.getvalue()) == str(report)
    line = next(i for i, s in enumerate(HERE.read_text().splitlines(), 1) if s.strip() == "result.add_(1)")
    assert f"\x1b]8;;{HERE.resolve().as_uri()}#{line}\x1b\\{HERE.name}:{line}\x1b]8;;\x1b\\" in file.getvalue()
    assert "\x1b" not in str(report)


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}])
def test_no_colour_where_it_is_not_wanted(broken, monkeypatch, environment):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    file = Terminal()
    assert file.getvalue() == "" and str(dump(broken, file)) == file.getvalue()


def test_no_colour_where_it_is_no_terminal(broken, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    file = io.StringIO()
    assert str(dump(broken, file)) == file.getvalue()


def test_a_healthy_report_is_green(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    dump(torch.ones(3, requires_grad=True).sum(), file)
    assert file.getvalue().startswith("\x1b[1;32mtorchgraphdbg: no fault found")
