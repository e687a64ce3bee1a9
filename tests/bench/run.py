"""Measure torchgraphdbg against what people use today. One command prints every ratio:

    python tests/bench/run.py [--build] [--json FILE] [--timeout SECONDS]

Needs torchgraphdbg, torchviz and the `dot` program. All times are CPU seconds of the process and of the programs it
starts, so that a busy machine matters little. Contenders take turns within one process where both can live in one;
the Python tools make a wrapper for every node, which on long chains ends in a stack overflow when the graph is
freed, so the pictures are drawn in processes of their own, and a contender that does not finish in time says so.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent

# (what, at least this many times faster) and (what, at most this many units), from the project's own targets.
BARS = {
    "make_dot": 50,
    "python walk": 20,
    "ns per node": 1000,
    "bytes per node": 300,
    "svg": {"resnet50": 0.1, "gpt12": 0.3, "lstm200": 0.5, "chain1e6": 6},
    "import": 0.05,
    "build": 120,
    # at most this many times the same step without: timeline, and timeline with statistics
    "timeline": {"transformer": (1.06, 1.15), "resnet18": (1.02, 1.10)},
    "steps": {"tiny": 1.15, "transformer": 1.04, "resnet18": 1.02},  # at most this many times plain: auto, watch
    "record": {"tiny": 2},
}


def cpu():
    """CPU seconds of this process and of its finished children."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def timed(function, *, repeats=1):
    start = cpu()
    for _ in range(repeats):
        function()
    return (cpu() - start) / repeats


def build_graph(name):
    import torch

    import models

    torch.manual_seed(0)
    torch.set_num_threads(1)
    return models.GRAPHS[name]()


# ---- contenders ----


def python_walk(root):
    """What a careful Python tool does: visit every node, read every saved tensor that dir() lists, unpack nothing."""
    seen, stack, saved = set(), [root.grad_fn], 0
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(node):
            if name.startswith("_raw_saved_"):
                value = getattr(node, name)
                saved += len(value) if isinstance(value, (tuple, list)) else 1
        stack.extend(following for following, _ in node.next_functions)
    return len(seen), saved


# ---- measurements; each runs in a process of its own and returns plain data ----


def measure_capture(repeats=15):
    import torchgraphdbg
    import torchviz

    loss, _ = build_graph("gpt12")
    n_nodes, n_saved = python_walk(loss)
    contenders = {
        "torchgraphdbg": (lambda: torchgraphdbg.inspect(loss), 40),
        "make_dot": (lambda: torchviz.make_dot(loss), 1),
        "python walk": (lambda: python_walk(loss), 1),
    }
    samples = {name: [] for name in contenders}
    for _ in range(repeats + 1):
        for name, (function, inner) in contenders.items():
            samples[name].append(timed(function, repeats=inner))
    medians = {name: statistics.median(times[1:]) for name, times in samples.items()}
    return {"nodes": n_nodes, "saved": n_saved, **medians}


def measure_chain(name, repeats=3):
    import torchgraphdbg

    loss, _ = build_graph(name)
    times = []
    for _ in range(repeats):
        start = cpu()
        report = torchgraphdbg.inspect(loss)
        times.append(cpu() - start)
    summary = report.summary
    return {"nodes": summary["nodes"], "seconds": statistics.median(times),
            "bytes": summary["snapshot_bytes"]}


def measure_svg(name, repeats=3):
    import torchgraphdbg

    loss, parameters = build_graph(name)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.svg")
        times = [timed(lambda: torchgraphdbg.dump(loss, path, params=parameters, quiet=True)) for _ in range(repeats)]
        return {"seconds": statistics.median(times), "first": times[0], "bytes": os.path.getsize(path)}


def measure_torchviz_svg(name):
    import torchviz

    loss, parameters = build_graph(name)

    def draw():
        start = cpu()
        picture = torchviz.make_dot(loss, params=parameters).pipe(format="svg")
        print(json.dumps({"seconds": cpu() - start, "bytes": len(picture)}), flush=True)
        os._exit(0)  # do not free the graph: see the module's docstring

    # make_dot calls itself once for every node of a path: give it the depth that it needs.
    sys.setrecursionlimit(10_000_000)
    threading.stack_size(1 << 30)
    thread = threading.Thread(target=draw)
    thread.start()
    thread.join()
    os._exit(1)


def measure_import():
    import torch  # noqa: F401

    start = cpu()
    import torchgraphdbg  # noqa: F401

    return {"seconds": cpu() - start}


# Ways to be on guard in a training loop: (switched on, switched off).
def armed_watch(model):
    import torchgraphdbg

    watch = torchgraphdbg.watch(model, "never-written")
    return watch.remove


def armed_anomaly_mode(model):
    import torch

    mode = torch.autograd.detect_anomaly()
    mode.__enter__()
    return lambda: mode.__exit__(None, None, None)


def armed_auto(model):
    import torchgraphdbg.auto

    torchgraphdbg.auto.start()
    return torchgraphdbg.auto.stop


def armed_record(model):
    import torchgraphdbg

    recorder = torchgraphdbg.record(params=model)
    recorder.__enter__()
    return lambda: recorder.__exit__(None, None, None)


GUARDS = {"auto": armed_auto, "watch": armed_watch, "record": armed_record, "detect_anomaly": armed_anomaly_mode}


def measure_guards(name, rounds=25):
    """CPU seconds of a training step: plain and under each guard, taking turns."""
    import warnings

    import torch

    import steps

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, step = steps.STEPS[name]()
    inner = {"tiny": 20, "transformer": 5, "resnet18": 1}[name]
    samples = {"plain": [], **{guard: [] for guard in GUARDS}}
    for turn in range(rounds + 2):
        for guard, times in samples.items():
            disarm = GUARDS[guard](model) if guard in GUARDS else None
            step()
            seconds = timed(step, repeats=inner)
            if disarm is not None:
                disarm()
            if turn >= 2:
                times.append(seconds)
    return {guard: statistics.median(times) for guard, times in samples.items()}


def measure_statistics(repeats=31):
    """One pass in C against what it replaces. The bars: 20 times the six operations, half of a sum's throughput."""
    import torch
    from torchgraphdbg import _core

    def six(x):
        x.norm(), x.mean(), x.abs().max(), x.isnan().sum(), x.isinf().sum(), (x == 0).sum()

    answer = {}
    threads = torch.get_num_threads()
    for n, number_of_threads, inner in ((256, 1, 2000), (4096, 1, 200), (1 << 22, 1, 1), (1 << 22, threads, 1)):
        torch.set_num_threads(number_of_threads)
        x = torch.randn(n)
        contenders = {
            "statistics": lambda: _core._statistics(x, repeat=inner),
            "nonfinite": lambda: _core._statistics(x, by="nonfinite", repeat=inner),
            "portable": lambda: _core._statistics(x, by="portable", repeat=inner),
            "six": lambda: six(x),
            "sum": lambda: x.sum(),
        }
        clock = time.process_time if number_of_threads == 1 else time.perf_counter
        samples = {name: [] for name in contenders}
        for _ in range(repeats + 1):
            for name, function in contenders.items():
                start = clock()
                function()
                samples[name].append((clock() - start) / (1 if name in ("six", "sum") else inner))
        medians = {name: statistics.median(times[1:]) for name, times in samples.items()}
        answer[f"{n} float32, {number_of_threads} threads"] = {
            **{f"{name}, us": round(seconds * 1e6, 3) for name, seconds in medians.items()},
            "six / statistics": round(medians["six"] / medians["statistics"], 1),
            "sum / statistics": round(medians["sum"] / medians["statistics"], 2),
        }
    return answer


class PythonHooks:
    """What people write today: four statistics of each gradient, in hooks on every node."""

    def __init__(self):
        self.rows = []

    def on(self, loss):
        seen, stack = set(), [loss.grad_fn]
        while stack:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            node.register_prehook(self.look)
            stack.extend(following for following, _ in node.next_functions)

    def look(self, gradients):
        self.rows.append([(g.norm(), g.abs().max(), g.isnan().any(), (g == 0).sum())
                          for g in gradients if g is not None])


def measure_timeline(name, rounds=15):
    """CPU seconds of a training step: plain, and measured beside the light recording, in record(), and by others."""
    import contextlib
    import warnings

    import torch
    import torchgraphdbg
    from torchgraphdbg import _core

    import steps

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, step = steps.STEPS[name]()
    hooks = PythonHooks()

    @contextlib.contextmanager
    def light(what):
        watch = torchgraphdbg.watch(model, "never-written")
        _core._measure(what)
        try:
            yield
        finally:
            _core._measure(0)
            watch.remove()

    @contextlib.contextmanager
    def hooked():
        backward = torch.Tensor.backward

        def hooked_backward(loss, *arguments, **keywords):
            hooks.on(loss)
            backward(loss, *arguments, **keywords)
            hooks.rows.clear()

        torch.Tensor.backward = hooked_backward
        try:
            yield
        finally:
            torch.Tensor.backward = backward

    ways = {
        "plain": contextlib.nullcontext,
        "light": lambda: light(0),
        "light, timeline": lambda: light(1),
        "light, timeline and statistics": lambda: light(2),
        "record": lambda: torchgraphdbg.record(timeline=False, statistics=False),
        "record, timeline": lambda: torchgraphdbg.record(statistics=False),
        "record, timeline and statistics": lambda: torchgraphdbg.record(),
        "Python hooks": hooked,
        "detect_anomaly": torch.autograd.detect_anomaly,
    }
    inner = {"tiny": 10, "transformer": 4, "resnet18": 1}[name]
    samples = {way: [] for way in ways}
    for turn in range(rounds + 1):
        for way, times in samples.items():
            with ways[way]():
                step()
                seconds = timed(step, repeats=inner)
            if turn >= 1:
                times.append(seconds)
    medians = {way: statistics.median(times) for way, times in samples.items()}
    return {**medians, "ratios": {way: round(seconds / medians["plain"], 3) for way, seconds in medians.items()}}


MEASUREMENTS = {
    "watch": measure_guards,
    "timeline": measure_timeline,
    "capture": measure_capture,
    "chain": measure_chain,
    "svg": measure_svg,
    "torchviz-svg": measure_torchviz_svg,
    "import": measure_import,
    "statistics": measure_statistics,
}


def in_process(name, *arguments, timeout=300):
    """The answer of one measurement made in a fresh process; {"failed": why} where there is none."""
    command = [sys.executable, str(HERE / "run.py"), "--measure", name, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # dot is a child of the child
        process.communicate()
        return {"failed": f"not done in {timeout:.0f} s"}
    if process.returncode < 0:
        return {"failed": signal.Signals(-process.returncode).name}
    if process.returncode != 0:
        return {"failed": (errors.strip().splitlines() or [f"exit status {process.returncode}"])[-1]}
    return json.loads(output.splitlines()[-1])


def measure_build():
    """CPU and wall seconds of a clean build of the sources, in a copy."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "copy"
        generated = shutil.ignore_patterns("build", "dist", "*.egg-info", "*.so", "*.o", "__pycache__", ".venv*", ".git",
                                           "_build.py", "tests", "lib")
        shutil.copytree(REPOSITORY, copy, ignore=generated)
        start, wall = cpu(), time.monotonic()
        subprocess.run([sys.executable, "setup.py", "--quiet", "build"], cwd=copy, check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL)
        return {"seconds": cpu() - start, "wall": time.monotonic() - wall}


# ---- the table ----


class Table:
    def __init__(self):
        self.rows = []
        self.line("what", "torchgraphdbg", "other", "ratio", "bar")

    def line(self, what, own, other="", ratio="", bar=""):
        print(f"{what:<44} {own:>16} {other:>22} {ratio:>9}   {bar}", flush=True)

    def row(self, what, own, unit, *, other=None, other_failed=None, at_least=None, at_most=None):
        ratio = other / own if other is not None else None
        met = (at_least is None or ratio is None or ratio >= at_least) and (at_most is None or own <= at_most)
        bar = "" if at_least is None and at_most is None else (
            (f">= {at_least:g}x" if at_least is not None else f"<= {show(at_most, unit)}") + (" met" if met else " MISSED"))
        self.line(what, show(own, unit), other_failed or ("" if other is None else show(other, unit)),
                  "" if ratio is None else f"{ratio:.1f}x", bar)
        self.rows.append({"what": what, "own": own, "unit": unit, "other": other, "other_failed": other_failed,
                          "ratio": ratio, "met": met})

    def step(self, what, plain, guarded, at_most):
        """Here the ratio is what a step costs, against a plain one."""
        ratio = guarded / plain
        met = at_most is None or ratio <= at_most
        self.line(what, show(guarded, "s"), f"plain {show(plain, 's')}", f"{ratio:.3f}x",
                  "" if at_most is None else f"<= {at_most:g}x" + (" met" if met else " MISSED"))
        self.rows.append({"what": what, "own": guarded, "unit": "s", "other": plain, "ratio": ratio, "met": met})

    def failed(self, what, why):
        self.line(what, "failed", why)
        self.rows.append({"what": what, "failed": why, "met": False})


def show(value, unit):
    if unit != "s":
        return f"{value:,.0f} {unit}"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def run(arguments):
    table = Table()

    capture = in_process("capture")
    if "failed" in capture:
        table.failed("capture, GPT 12 layers", capture["failed"])
    else:
        what = f"capture, GPT 12 layers ({capture['nodes']} nodes)"
        for name in ("make_dot", "python walk"):
            table.row(f"{what} / {name}", capture["torchgraphdbg"], "s", other=capture[name], at_least=BARS[name])

    for name in ("chain1e5", "chain1e6"):
        answer = in_process("chain", name)
        if "failed" in answer:
            table.failed(f"capture, {name}", answer["failed"])
            continue
        table.row(f"capture, {name}: CPU per node", answer["seconds"] / answer["nodes"] * 1e9, "ns",
                  at_most=BARS["ns per node"])
        table.row(f"capture, {name}: held per node", answer["bytes"] / answer["nodes"], "bytes",
                  at_most=BARS["bytes per node"])

    for name, bar in BARS["svg"].items():
        own = in_process("svg", name)
        if "failed" in own:
            table.failed(f"dump to SVG, {name}", own["failed"])
            continue
        other = in_process("torchviz-svg", name, timeout=arguments.timeout)
        table.row(f"dump to SVG, {name} / torchviz + dot", own["seconds"], "s", other=other.get("seconds"),
                  other_failed=other.get("failed"), at_most=bar)

    for name, bar in BARS["steps"].items():
        answer = in_process("watch", name)
        if "failed" in answer:
            table.failed(f"training step, {name}", answer["failed"])
            continue
        for guard in GUARDS:
            table.step(f"training step, {name}: {guard}", answer["plain"], answer[guard],
                       BARS["record"].get(name) if guard == "record" else bar if guard in ("auto", "watch") else None)

    for name, bars in BARS["timeline"].items():
        answer = in_process("timeline", name)
        if "failed" in answer:
            table.failed(f"timeline, {name}", answer["failed"])
            continue
        for what, bar in zip(("timeline", "timeline and statistics"), bars):
            table.step(f"{what}, {name}: beside the light level", answer["light"], answer[f"light, {what}"], bar)
            table.step(f"{what}, {name}: in record()", answer["record"], answer[f"record, {what}"], bar)
        for other in ("Python hooks", "detect_anomaly"):
            table.step(f"{other}, {name}", answer["plain"], answer[other], None)

    imports = [in_process("import") for _ in range(7)]
    seconds = [answer["seconds"] for answer in imports if "seconds" in answer]
    if seconds:
        table.row("import after torch", statistics.median(seconds), "s", at_most=BARS["import"])
    else:
        table.failed("import after torch", imports[0]["failed"])

    if arguments.build:
        answer = measure_build()
        table.row(f"clean build, {os.cpu_count()} cores: CPU", answer["seconds"], "s")
        table.row(f"clean build, {os.cpu_count()} cores: wall", answer["wall"], "s", at_most=BARS["build"])

    if arguments.json:
        arguments.json.write_text(json.dumps(table.rows, indent=1) + "\n")
    return 0 if all(row["met"] for row in table.rows) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", action="store_true", help="also time a clean build")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="for one picture of torchviz + dot")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        name, *rest = arguments.measure
        print(json.dumps(MEASUREMENTS[name](*(int(word) if word.isdigit() else word for word in rest))))
        return 0
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
