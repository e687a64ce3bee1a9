"""A watch changes nothing in the program, holds up in every kind of process and thread, and is gone when removed."""
import contextlib
import gc
import json
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import traceback
import warnings
import weakref

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import test_recorder_ground as ground
from torchgraphdbg import record, watch


@contextlib.contextmanager
def plain():
    yield


@pytest.fixture
def both(tmp_path, capfd):
    """The results of run() without a watch and under one, which has nothing to say unless it is told to expect it."""

    def run_both(run, alarms=False):
        results = []
        for context in (plain, lambda: watch(None, tmp_path / "out", forward=True)):
            torch.manual_seed(5)
            with context():
                results.append(run())
        assert (tmp_path / "out").exists() == alarms
        assert alarms or "torchgraphdbg" not in capfd.readouterr().err
        return results
    return run_both


PROGRAMS = {"training": ground.training, "reentrant": lambda: ground.checkpoints(True),
            "non-reentrant": lambda: ground.checkpoints(False), "double": ground.double_backward,
            "autocast": ground.autocast, "nested": ground.nested, "functorch": ground.transforms,
            "batched": ground.batched, "accumulated": ground.accumulated}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_bit_equal(name, both):
    expected, got = both(PROGRAMS[name])
    assert ground.same(expected, got)


def test_training_with_its_own_parameters_is_bit_equal(tmp_path):
    def run(guard):
        torch.manual_seed(3)
        model = ground.Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        armed = guard(model)
        with armed:
            for _ in range(5):
                optimizer.zero_grad()
                model(torch.randn(5, 6)).square().mean().backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
        return [(p.detach().clone(), p.grad.clone(), p._version, p.grad._version) for p in model.parameters()]
    expected = run(lambda model: plain())
    assert ground.same(expected, run(lambda model: watch(model, tmp_path / "out", forward=True)))
    assert not (tmp_path / "out").exists()


def test_nothing_is_kept_alive(tmp_path):
    with watch(None, tmp_path):
        model = ground.Net()
        y = model(torch.randn(4, 6))
        s = torch.sigmoid(y)
        loss = s.sum()
        s.add_(1)
        with contextlib.suppress(RuntimeError):
            loss.backward()
        names = [weakref.ref(each) for each in (y, s, model, loss, model.head.weight)]
        del y, s, model, loss
        gc.collect()
        assert [name() for name in names] == [None] * 5


FAILURES = {"in_place": ground.in_place, "second_backward": ground.second_backward, "no_grad_fn": ground.no_grad_fn,
            "not_scalar": ground.not_scalar, "custom_function": ground.custom_function, "hook": ground.hook,
            "interrupted": ground.interrupted, "unused_input": ground.unused_input, "wrong_type": ground.wrong_type,
            "wrong_keyword": ground.wrong_keyword}


@pytest.mark.parametrize("name", FAILURES)
def test_exceptions_are_the_same(name, tmp_path):
    """Type, text, arguments, cause, and every line of the traceback."""
    def told():
        try:
            FAILURES[name]()
        except BaseException as error:  # noqa: BLE001
            lines = [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(error.__traceback__)]
            return type(error), str(error), repr(error.args), error.__cause__, lines
    expected = told()
    assert expected is not None
    with watch(None, tmp_path):
        got = told()
    assert expected == got


def test_anomaly_mode_of_the_user(both):
    def run():
        x = torch.ones(3, requires_grad=True)
        seen = [torch.is_anomaly_enabled()]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with torch.autograd.detect_anomaly(), contextlib.suppress(RuntimeError):
                seen.append(torch.is_anomaly_enabled())
                y = x.sigmoid()
                y.add_(1)
                y.sum().backward()
        seen += [w.category for w in caught] + [torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()]
        (trace,) = [str(w.message) for w in caught if "Traceback of forward call" in str(w.message)]
        assert "x.sigmoid()" in trace
        return seen, trace[trace.rindex("test_watch_unchanged"):]
    expected, got = both(run, alarms=True)
    assert expected == got


def test_profiler_of_the_user(both):
    def run():
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
            model(torch.ones(2, 4)).sum().backward()
        return sorted((e.key, e.count) for e in profile.key_averages())
    expected, got = both(run)
    assert expected == got


def test_modes_of_the_user(tmp_path):
    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            calls.append(getattr(function, "__name__", str(function)))
            return function(*args, **(kwargs or {}))

    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            calls.append(str(function))
            return function(*args, **(kwargs or {}))

    def run(context, value):
        calls.clear()
        with context:
            model = nn.Linear(2, 2)
            x = torch.full((2, 2), value)
            with Functions(), Ops():
                model(x).sum().backward()
                depth = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
        return list(calls), depth, torch.is_grad_enabled()
    calls = []
    for value in (1.0, float("nan")):  # also while a dump is written
        expected, got = run(plain(), value), run(watch(None, tmp_path, forward=True), value)
        assert expected == got and len(expected[0]) > 5
    assert list(tmp_path.glob("*.svg"))


@pytest.mark.filterwarnings("ignore")
def test_compile(both):
    from torch._dynamo.utils import counters

    def step(model, x):
        with torch.no_grad():
            scale = x.abs().mean()
        return model(x * scale).square().mean()

    def run():
        torch._dynamo.reset()
        counters.clear()
        model = ground.Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        compiled, seen = torch.compile(step, backend="aot_eager"), []
        for _ in range(2):
            optimizer.zero_grad()
            compiled(model, torch.ones(4, 6)).backward()
            seen.append([p.grad.clone() for p in model.parameters()])
            optimizer.step()
        return seen, dict(counters["stats"]), sum(counters["graph_break"].values())
    results = []
    for forward in (None, False):
        torch.manual_seed(5)
        with plain() if forward is None else watch(None, "never-written"):
            results.append(run())
    assert ground.same(results[0][0], results[1][0]) and results[0][1:] == results[1][1:]


def test_all_is_undone(tmp_path):
    before, real = ground.torch_state(), torch.autograd._make_grads
    hooks = dict(torch.nn.modules.module._global_forward_hooks)
    armed = watch(None, tmp_path, forward=True)
    assert ground.torch_state() == before and torch.autograd._make_grads is not real
    with record(), watch(None, tmp_path):
        pass
    assert torch.autograd._make_grads is not real
    armed.remove()
    assert ground.torch_state() == before and torch.autograd._make_grads is real
    assert dict(torch.nn.modules.module._global_forward_hooks) == hooks
    with pytest.raises(ZeroDivisionError), watch(None, tmp_path):
        1 / 0
    assert ground.torch_state() == before and torch.autograd._make_grads is real


def test_only_the_outermost_backward_counts(tmp_path):
    with watch(None, tmp_path):
        ground.nested()
        ground.checkpoints(True)
        with contextlib.suppress(RuntimeError):
            ground.in_place()
    (path,) = tmp_path.glob("*.json")
    assert "in backward 3 of" in json.loads(path.read_text())["occasion"]


def test_threads_that_train(tmp_path):
    errors = []

    def work(k):
        try:
            torch.manual_seed(k)
            model = nn.Linear(3, 3)
            with watch(model, tmp_path / str(k)):
                optimizer = torch.optim.SGD(model.parameters(), 0.01)
                for step in range(60):
                    optimizer.zero_grad()
                    x = torch.randn(2, 3)
                    if step == 40 + k:
                        x[0, 0] = float("nan")
                    model(x).pow(2).sum().backward()
                    optimizer.step()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for k in range(4):
        assert (tmp_path / str(k) / f"step-{40 + k:06}.svg").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_that_trains(tmp_path):
    model = nn.Linear(3, 3)
    with watch(model, tmp_path):
        model(torch.ones(2, 3)).sum().backward()
        child = os.fork()
        if child == 0:
            try:
                with contextlib.suppress(RuntimeError):
                    ground.in_place()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        with contextlib.suppress(RuntimeError):
            ground.in_place()
    assert {path.name for path in tmp_path.glob("*.svg")} == {"step-000001.svg", f"step-000001-pid{child}.svg"}


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_data_loader_workers(tmp_path):
    model = nn.Linear(2, 1)
    with watch(model, tmp_path / "out"):
        loader = torch.utils.data.DataLoader(ground.Numbers(), batch_size=4, num_workers=2,
                                             multiprocessing_context="fork")
        for batch in loader:
            model(batch).sum().backward()
    assert not (tmp_path / "out").exists()


DISTRIBUTED = """
    import os, sys, torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torchgraphdbg import watch

    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)

    def steps(spoiled):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
        wrapped = DistributedDataParallel(model)
        watched = None if spoiled is None else watch(wrapped, sys.argv[3])
        for k in range(4):
            torch.manual_seed(10 * rank + k)
            x = torch.randn(4, 4)
            if k == 2 and spoiled and rank == 1:
                x[0, 0] = float("inf")
            wrapped.zero_grad()
            wrapped(x).sum().backward()
        if watched:
            watched.remove()
        return [p.grad.clone() for p in model.parameters()]

    expected = steps(None)
    assert all(map(torch.equal, expected, steps(False)))
    assert not os.path.exists(sys.argv[3])
    dist.barrier()
    steps(True)
    dist.destroy_process_group()
"""


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="no gloo here")
def test_distributed_data_parallel(tmp_path):
    script, out = tmp_path / "train.py", tmp_path / "out"
    script.write_text(textwrap.dedent(DISTRIBUTED))
    ranks = [subprocess.Popen([sys.executable, str(script), str(rank), str(tmp_path / "meet"), str(out)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
    for process in ranks:
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output
    names = {path.name for path in out.iterdir()}
    assert {"step-000002-rank0.svg", "step-000002-rank1.svg"} <= names  # gradients are shared, so both have them
    one, two = (json.loads((out / f"step-000002-rank{rank}.json").read_text()) for rank in (0, 1))
    assert "nan-forward" in {f["kind"] for f in two["findings"]}
    assert {f["kind"] for f in one["findings"] if f["severity"] == "error"} == {"nan-gradient"}
    assert one["findings"][0]["parameter"].startswith("module.")
