"""The quickstart says what README promises: the loss falls, the fault is named, backward raises as predicted."""

import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

import torchgraphdbg

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickstart")
    program = "import runpy, sys; sys.path.insert(0, sys.argv[1]); del sys.argv[:2]; " \
              "runpy.run_path(sys.argv[0], run_name='__main__')"
    package = pathlib.Path(torchgraphdbg.__file__).resolve().parent.parent
    process = subprocess.run(
        [sys.executable, "-c", program, str(package), str(EXAMPLES / "quickstart.py")], cwd=folder, text=True,
        stdin=subprocess.DEVNULL, capture_output=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return folder, process.stdout


def test_quickstart_learns_before_it_breaks(quickstart):
    _, output = quickstart
    losses = [float(each) for each in re.findall(r"^step +\d+ +loss ([\d.]+)$", output, re.MULTILINE)]
    assert len(losses) >= 5
    assert losses[-1] < losses[0] / 2


def test_quickstart_predicts_what_backward_raises(quickstart):
    _, output = quickstart
    raised = re.search(r"^RuntimeError: .*output 0 of Relu\w*, is at version (\d+); expected version (\d+)", output,
                       re.MULTILINE)
    assert raised, output
    before = output[:raised.start()]
    assert "ReluBackward0" in before
    now, saved = raised.groups()
    assert f"it is at version {now}; expected version {saved}" in " ".join(before.split()), before


def test_quickstart_ends_with_verdict_and_picture(quickstart):
    folder, output = quickstart
    verdict, picture = output.strip().splitlines()[-2:]
    assert verdict.startswith("Verdict: ") and "ReluBackward0" in verdict
    assert picture == "Picture: torchgraphdbg.svg"
    assert ElementTree.parse(folder / "torchgraphdbg.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize("script", ["quickstart.sh", "install_system_packages.sh", "embed/build.sh", "../tests/run.sh",
                                    "../.ci/run"])
def test_scripts_parse(script):
    subprocess.run(["bash", "-n", str(EXAMPLES / script)], check=True)
