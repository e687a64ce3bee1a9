"""Guards the speed of a capture by ratios to what Python tools need on the same graph, far below what is measured, so that
only a change of kind fails here. tests/bench/run.py prints the figures."""

import importlib.util
import pathlib
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(BENCH))
    try:
        spec = importlib.util.spec_from_file_location("tgd_bench_run", BENCH / "run.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(BENCH))


def test_capture_is_far_faster_than_python_tools(bench):
    answer = bench.in_process("capture", 5)
    assert "failed" not in answer, answer
    assert answer["make_dot"] / answer["torchgraphdbg"] > 10, answer
    assert answer["python walk"] / answer["torchgraphdbg"] > 5, answer


def test_cost_per_node_does_not_grow_with_the_graph(bench):
    short, long = (bench.in_process("chain", name) for name in ("chain1e4", "chain3e5"))
    assert "failed" not in short and "failed" not in long, (short, long)
    assert long["bytes"] / long["nodes"] < 300, long
    assert long["seconds"] / long["nodes"] < 10 * short["seconds"] / short["nodes"], (short, long)


def test_picture_costs_no_more_for_a_long_chain_than_its_capture_explains(bench):
    picture, capture = bench.in_process("svg", "chain3e5", 1), bench.in_process("chain", "chain3e5")
    assert "failed" not in picture and "failed" not in capture, (picture, capture)
    assert picture["bytes"] < 1_000_000, picture
    assert picture["seconds"] < 30 * capture["seconds"], (picture, capture)
