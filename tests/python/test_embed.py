"""The C++ libtorch example, built against the library under test and run without Python."""

import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
import torch

import torchgraphdbg

EMBED = pathlib.Path(__file__).resolve().parents[2] / "examples" / "embed"
PACKAGE = pathlib.Path(torchgraphdbg.__file__).resolve().parent


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embed")
    program = folder / "embed"
    environment = {**os.environ, "PYTHON": sys.executable,
                   "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])}
    built = subprocess.run(["bash", str(EMBED / "build.sh"), str(program)], env=environment, text=True,
                           stdin=subprocess.DEVNULL, capture_output=True)
    assert built.returncode == 0, built.stderr
    assert "warning:" not in built.stderr, built.stderr
    return folder, subprocess.run([str(program), str(folder)], env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, text=True,
                                  stdin=subprocess.DEVNULL, capture_output=True)


def line(output, start):
    found = [each[len(start):] for each in output.splitlines() if each.startswith(start)]
    assert len(found) == 1, output
    return found[0]


def test_prediction_comes_true(ran):
    _, process = ran
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stderr == ""
    assert "modified by an inplace operation" in line(process.stdout, "backward: ")


def test_report_names_both_victims_and_their_versions(ran):
    folder, process = ran
    document = json.loads((folder / "embed.json").read_text())
    errors = [finding for finding in document["findings"] if finding["severity"] == "error"]
    assert [finding["kind"] for finding in errors] == ["modified-in-place", "modified-in-place"]
    names = [document["nodes"][finding["node"]]["name"] for finding in errors]
    assert names == ["MulBackward0", "SigmoidBackward0"]  # in the order that backward would meet them
    backward = line(process.stdout, "backward: ")
    assert "is at version 1; expected version 0" in backward
    assert line(process.stdout, "verdict: ") == document["verdict"]
    text = " ".join(process.stdout.split())
    assert text.startswith("torchgraphdbg: " + document["verdict"])


def test_library_was_built_for_this_torch(ran):
    _, process = ran
    assert line(process.stdout, "built for: torch ").split() == [torch.__version__, torch.version.git_version]


def test_picture_is_well_formed_and_names_parameters(ran):
    folder, _ = ran
    picture = ElementTree.parse(folder / "embed.svg").getroot()
    assert picture.tag.endswith("svg")
    words = " ".join("".join(element.itertext()) for element in picture.iter() if element.tag.endswith("text")).split()
    assert "SigmoidBackward0" in words
    assert {"first", "second", "weight", "bias"} <= set(words)


def test_program_links_no_python(ran):
    folder, _ = ran
    output = subprocess.run(["ldd", str(folder / "embed")], text=True, capture_output=True, check=True).stdout
    libraries = [each.split()[0].rsplit("/", 1)[-1] for each in output.splitlines()]
    assert "libtorchgraphdbg.so" in libraries and "libtorch_cpu.so" in libraries
    assert not [each for each in libraries if "python" in each]
