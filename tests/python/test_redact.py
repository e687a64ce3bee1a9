"""A redacted report names files, and tells nothing else of where it was made."""
import io
import json
import pathlib

import pytest
import torch
import torchgraphdbg
from torch import nn

FORMS = ("svg", "html", "json", "gv", "txt")
SOURCE = """
def forward(net, x):
    hidden = net(x).sigmoid()
    hidden += 1  # the secret sauce
    return hidden.sum()
"""


def broken(file):
    """A report whose lines stand in this file."""
    names = {}
    exec(compile(SOURCE, file, "exec"), names)
    net = nn.Linear(3, 3)
    with torchgraphdbg.record(params={"body.weight": net.weight, "body.bias": net.bias}) as rec:
        try:
            names["forward"](net, torch.rand(2, 3)).backward()
        except RuntimeError:
            pass
    return rec.report()


def forms(report, folder, **how):
    texts = {}
    for suffix in FORMS:
        report.save(folder / f"report.{suffix}", **how)
        texts[suffix] = (folder / f"report.{suffix}").read_text("utf-8")
    return texts


@pytest.mark.parametrize("file, name", [
    ("/home/jane.doe/acme secret/net.py", "net.py"), ("C:\\Users\\jane.doe\\acme\\net.py", "net.py"),
    ("acme/jane.doe/net.py", "net.py"), ("/tmp/ipykernel_jane.doe/12.py", "12.py")])
def test_every_form(file, name, tmp_path):
    report = broken(file)
    assert file in {f.where.file for f in report.findings}
    texts = forms(report, tmp_path, redact=True)
    for suffix, text in texts.items():
        assert "jane" not in text and "secret" not in text, suffix
        assert "acme" not in text, suffix
    document = json.loads(texts["json"])
    assert {f["where"]["file"] for f in document["findings"]} == {name}
    assert document["findings"][0]["where"]["line"] == 4
    assert "body.weight" in texts["json"]


def test_only_paths_differ(tmp_path):
    report = broken("/home/jane/net.py")
    whole, redacted = forms(report, tmp_path), forms(report, tmp_path, redact=True)
    assert "/home/jane/net.py" in whole["json"]
    for source in json.loads(whole["json"])["sources"]:  # the lines that called it too
        whole["json"] = whole["json"].replace(json.dumps(source["file"]), json.dumps(pathlib.Path(source["file"]).name))
    assert redacted["json"] == whole["json"]
    assert {s: redacted[s] for s in ("svg", "gv", "txt")} == {s: whole[s] for s in ("svg", "gv", "txt")}


def test_healthy_report_and_a_loaded_one(tmp_path):
    net = nn.Linear(3, 1)
    report = torchgraphdbg.inspect(net(torch.rand(3)).sum(), params=net)
    assert forms(report, tmp_path, redact=True) == forms(report, tmp_path)
    loaded = torchgraphdbg.load(tmp_path / "report.json")
    del report
    assert forms(loaded, tmp_path, redact=True) == forms(loaded, tmp_path)


@pytest.mark.parametrize("said, shown", [
    ('File "/home/jane/my code/net.py", line 3', 'File "net.py", line 3'),
    ("see /home/jane/runs/7/net.py:31 for it", "see net.py:31 for it"),
    ("(/home/jane/net.py)", "(net.py)"),
    ("made in /home/jane", "made in ..."),
    ("made in /home/jane.doe, said jane", "made in ..., said jane"),
    ("~/secret/net.py", "net.py"), ("~jane/net.py", "net.py"), ("../../secret/net.py", "net.py"),
    ("file:///home/jane/net.py", "net.py"), ("C:\\Users\\jane\\net.py", "net.py"), ("\\\\server\\jane\\net.py", "net.py"),
    ("secret/jane/net.py:4 is relative", "net.py:4 is relative"), ("a/b/cell.ipynb", "cell.ipynb"),
    ("group 0 / param 3", "group 0 / param 3"), ("and/or", "and/or"), ("block/0.weight", "block/0.weight"),
    ("x += y / 2, 3 ~ 4, ..., 50%", "x += y / 2, 3 ~ 4, ..., 50%"), ("\u00fc/home/x \U0001f600", "\u00fc/home/x \U0001f600")])
def test_sentences(said, shown, tmp_path):
    document = broken("net.py").to_dict()
    document["verdict"] = document["findings"][0]["message"] = document["findings"][0]["hint"] = said
    (tmp_path / "given.json").write_text(json.dumps(document))
    torchgraphdbg.load(tmp_path / "given.json").save(tmp_path / "redacted.json", redact=True)
    redacted = json.loads((tmp_path / "redacted.json").read_bytes())
    assert redacted["verdict"] == redacted["findings"][0]["message"] == shown
    assert redacted["findings"][0]["hint"] == shown


def test_dump(tmp_path):
    out = io.StringIO()
    names = {}
    exec(compile(SOURCE, "/home/jane/net.py", "exec"), names)
    folder = tmp_path / "jane"
    folder.mkdir()
    with torchgraphdbg.record():
        loss = names["forward"](nn.Linear(3, 3), torch.rand(3))
        report = torchgraphdbg.dump(loss, [folder / f"d.{s}" for s in FORMS], file=out, redact=True)
    assert report.findings[0].where.file == "/home/jane/net.py"
    assert "net.py:4" in out.getvalue() and "saved to d.svg\n" in out.getvalue()
    for text in [out.getvalue(), *((folder / f"d.{s}").read_text("utf-8") for s in FORMS)]:
        assert "jane" not in text


def test_bad_argument():
    report = broken("net.py")
    with pytest.raises(TypeError):
        report.save(pathlib.Path("x.json"), True)
