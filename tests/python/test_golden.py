"""Every word of some pictures, in the order drawn, as last looked at: they depend on no font and no Graphviz version.

Write them anew after a change that was looked at with TGD_GOLDEN=write.
"""

import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest
import torch

import torchgraphdbg

TESTS = pathlib.Path(__file__).resolve().parent.parent
DRAW = f"""
import sys
sys.path.insert(0, {str(TESTS / "browser")!r})
import pictures
sys.stdout.buffer.write(pictures.report_of(sys.argv[1])._repr_svg_().encode())
"""


def draw(name, **environment):
    folder = pathlib.Path(torchgraphdbg.__file__).parent.parent
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return subprocess.run([sys.executable, "-c", DRAW, name], check=True, stdout=subprocess.PIPE, timeout=300,
                          env={**os.environ, "PYTHONPATH": path, **environment}).stdout


@pytest.mark.parametrize("name", ["unet", "hostile", "one_node"])
def test_the_picture_says_the_same_and_twice_the_same_bytes(name):
    first = draw(name, PYTHONHASHSEED="1")
    assert draw(name, PYTHONHASHSEED="2", LC_ALL="C.UTF-8", FONTCONFIG_FILE="/dev/null") == first
    words = "\n".join("".join(e.itertext()) for e in xml.fromstring(first).iter() if e.tag.endswith("}text"))
    words = re.sub(r"torch \d\S+", "torch VERSION", words) + "\n"
    golden = TESTS / "golden" / f"{name}.txt"
    if os.environ.get("TGD_GOLDEN") == "write":
        golden.write_text(words, encoding="utf-8")
    if torch.__version__.split("+")[0].startswith("2.13."):  # what ops are made of differs between versions
        assert sorted(words.splitlines()) == sorted(golden.read_text(encoding="utf-8").splitlines())
