"""A recorder changes nothing in the program, is gone when it is off, and reads lines right."""
import contextlib
import gc
import multiprocessing
import os
import pathlib
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
from torch.utils.checkpoint import checkpoint

import torchgraphdbg
from torchgraphdbg import record


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class Nested(torch.autograd.Function):
    """Runs a backward of its own inside backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.detach() ** 2

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            (inner ** 2).sum().backward()
        return inner.grad * grad


class Raising(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("no backward today")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True))
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        h = self.drop(self.norm(self.stem(x)))
        return self.head(Square.apply(h))


@contextlib.contextmanager
def plain():
    yield


def both(run):
    """The results of run() without and with a recorder."""
    results = []
    for context in (plain, record):
        torch.manual_seed(5)
        with context():
            results.append(run())
    return results


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


# ---- what the program computes ----

def training():
    model, seen = Net(), []
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        opt.zero_grad()
        model(torch.randn(5, 6)).square().mean().backward()
        seen.append([p.grad.clone() for p in model.parameters()])
        opt.step()
    return seen, [p.detach().clone() for p in model.parameters()], [b.clone() for b in model.buffers()]


def checkpoints(reentrant):
    model = Net()
    x = torch.randn(4, 6, requires_grad=True)
    h = checkpoint(model.stem, x, use_reentrant=reentrant)
    checkpoint(lambda t: model.head(model.drop(t)), h, use_reentrant=reentrant).sum().backward()
    return [x.grad] + [p.grad for p in model.stem.parameters()] + [p.grad for p in model.head.parameters()]


def double_backward():
    x = torch.randn(4, requires_grad=True)
    (g,) = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)
    (g ** 2).sum().backward()
    return x.grad


def autocast():
    model = nn.Linear(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(torch.randn(3, 4))
        state = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), y.dtype
    y.float().sum().backward()
    return state, torch.is_autocast_enabled("cpu"), model.weight.grad


def nested():
    x = torch.randn(4, requires_grad=True)
    Nested.apply(x).sum().backward()
    return x.grad


def transforms():
    x = torch.randn(3)
    f = torch.sin
    return [torch.func.grad(lambda t: f(t).sum())(x), torch.func.vmap(torch.func.grad(f))(x), torch.func.jacrev(f)(x),
            torch.func.jacfwd(f)(x), torch.func.hessian(lambda t: f(t).prod())(x),
            torch.autograd.functional.jacobian(f, x)]


def batched():
    x = torch.randn(3, requires_grad=True)
    return torch.autograd.grad(x * x, x, torch.eye(3), is_grads_batched=True)


def accumulated():
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    loss = model(x).square().mean()
    loss.backward(retain_graph=True)
    loss.backward(inputs=[model.bias])
    torch.autograd.backward([model(x).sum(), model(x).mean()])
    return model.weight.grad, model.bias.grad


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("run", [training, lambda: checkpoints(True), lambda: checkpoints(False), double_backward,
                                 autocast, nested, transforms, batched, accumulated],
                         ids=["training", "reentrant", "non-reentrant", "double", "autocast", "nested", "functorch",
                              "batched", "accumulated"])
def test_results_are_bit_equal(run):
    expected, got = both(run)
    assert same(expected, got)


def test_versions_flags_and_references():
    def run():
        x = torch.randn(3, requires_grad=True)
        y = (x * 2).exp()
        y.sum().backward()
        return [(t._version, t.requires_grad, t.is_leaf, sys.getrefcount(t), len(t._backward_hooks or ()))
                for t in (x, y, x.grad)]
    expected, got = both(run)
    assert expected == got


def test_nothing_is_kept_alive():
    with record() as rec:
        model = Net()
        y = model(torch.randn(4, 6))
        loss = y.sum()
        loss.backward()
        names = [weakref.ref(y), weakref.ref(model), weakref.ref(loss), weakref.ref(model.head.weight)]
        del y, model, loss
        gc.collect()
        assert [name() for name in names] == [None] * 4
    assert len(rec.reports) == 1


# ---- what the program sees ----

FAILURES = {}


def failing(function):
    FAILURES[function.__name__] = function
    return function


@failing
def in_place():
    x = torch.ones(3, requires_grad=True)
    y = x.sigmoid()
    y.add_(1)
    y.sum().backward()


@failing
def second_backward():
    x = torch.ones(3, requires_grad=True)
    loss = (x * x).sum()
    loss.backward()
    loss.backward()


@failing
def no_grad_fn():
    torch.ones(3).sum().backward()


@failing
def not_scalar():
    x = torch.ones(3, requires_grad=True)
    (x * 2).backward()


@failing
def wrong_shape():
    x = torch.ones(3, requires_grad=True)
    (x * 2).backward(torch.ones(4))


@failing
def custom_function():
    Raising.apply(torch.ones(3, requires_grad=True)).sum().backward()


@failing
def hook():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: {}["missing"])
    y.sum().backward()


@failing
def interrupted():
    x = torch.ones(3, requires_grad=True)
    y = x * 2

    def stop(grad):
        raise KeyboardInterrupt
    y.register_hook(stop)
    y.sum().backward()


@failing
def unused_input():
    x, z = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    torch.autograd.grad(x.sum(), z)


@failing
def leaf():
    torch.ones(3, requires_grad=True).add_(1)


@failing
def unbound_view():
    (torch.ones(3, requires_grad=True) * 1).unbind()[0].add_(1)


@failing
def wrong_sizes():
    (torch.ones(3, requires_grad=True) * 1).add_(torch.ones(7))


@failing
def wrong_type():
    torch.autograd.backward(5)


@failing
def wrong_keyword():
    torch.ones(1, requires_grad=True).backward(nonsense=1)


@failing
def grad_mode_type():
    torch._C._set_grad_enabled("yes")


@failing
def in_a_transform():
    torch.func.grad(lambda t: t.sum().backward())(torch.ones(3))


def told(run):
    """Type, text and traceback of what run() raises, but for this function's own line and the notes."""
    try:
        run()
    except BaseException as error:
        if hasattr(error, "__notes__"):
            del error.__notes__
        frames = [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(error.__traceback__)[1:]]
        return type(error), str(error), error.args, frames, error.__cause__, error.__context__
    return None


@pytest.mark.parametrize("name", FAILURES)
def test_exceptions_are_the_same(name):
    expected, got = both(lambda: told(FAILURES[name]))
    assert expected is not None and expected == got


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions bear notes from Python 3.11 on")
@pytest.mark.parametrize("name, kind", [("in_place", "modified-in-place"), ("second_backward", "graph-freed"),
                                        ("no_grad_fn", "no-grad-fn"), ("not_scalar", "bad-root"),
                                        ("wrong_shape", "bad-root"), ("leaf", "in-place-refused"),
                                        ("unbound_view", "in-place-refused")])
def test_exception_leaves_with_its_finding(name, kind):
    with pytest.raises(RuntimeError) as caught:
        with record() as outer, record() as inner:
            FAILURES[name]()
    finding = inner.report().findings[0]
    assert (finding.kind, finding.severity) == (kind, "error")
    assert outer.report().findings[0].kind == kind
    (note,) = caught.value.__notes__
    assert finding.message in note
    if kind not in ("no-grad-fn", "graph-freed"):
        assert finding.where is None or finding.where.file == __file__


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions bear notes from Python 3.11 on")
@pytest.mark.parametrize("name", ["custom_function", "hook", "wrong_sizes", "wrong_type", "unused_input"])
def test_exception_without_a_finding_bears_no_note(name):
    with pytest.raises(Exception) as caught:
        with record():
            FAILURES[name]()
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions bear notes from Python 3.11 on")
def test_exception_of_the_program_bears_no_note():
    with pytest.raises(RuntimeError) as caught:
        with record():
            with contextlib.suppress(RuntimeError):
                in_place()
            with contextlib.suppress(RuntimeError):
                leaf()
            raise RuntimeError("given up")
    assert not hasattr(caught.value, "__notes__")


def test_anomaly_mode_of_the_user():
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
        trace = [str(w.message) for w in caught if "Traceback of forward call" in str(w.message)]
        assert len(trace) == 1 and "x.sigmoid()" in trace[0]
        return seen, trace[0][trace[0].rindex("test_recorder_ground"):]
    expected, got = both(run)
    assert expected == got


def test_profiler_of_the_user():
    def run():
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
            model(torch.ones(2, 4)).sum().backward()
        return sorted((e.key, e.count) for e in profile.key_averages())
    expected, got = both(run)
    assert expected == got


def test_modes_of_the_user():
    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            calls.append(getattr(function, "__name__", str(function)))
            return function(*args, **(kwargs or {}))

    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            calls.append(str(function))
            return function(*args, **(kwargs or {}))

    def run():
        calls.clear()
        x = torch.ones(3, requires_grad=True)
        with Functions(), Ops():
            with torch.no_grad():
                x.mul_(2)
            (x * x).sum().backward()
            depth = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
        return list(calls), depth, torch.is_grad_enabled()
    calls = []
    expected, got = both(run)
    assert expected == got and len(expected[0]) > 5


def test_hooks_of_the_user():
    def run():
        calls = []
        model = nn.Linear(3, 3)
        model.register_forward_hook(lambda *_: calls.append("forward"))
        model.register_full_backward_hook(lambda *_: calls.append("full backward"))
        model.weight.register_hook(lambda g: calls.append("tensor"))
        model.weight.register_post_accumulate_grad_hook(lambda p: calls.append("accumulated"))
        with torch.autograd.graph.saved_tensors_hooks(lambda t: calls.append("pack") or t,
                                                      lambda t: calls.append("unpack") or t):
            y = model(torch.ones(2, 3, requires_grad=True)).exp()
        y.grad_fn.register_hook(lambda *_: calls.append("node"))
        y.grad_fn.register_prehook(lambda *_: calls.append("node before"))
        y.sum().backward()
        return calls
    expected, got = both(run)
    assert expected == got and len(expected) > 8


@pytest.mark.filterwarnings("ignore")
def test_compile():
    from torch._dynamo.utils import counters

    def step(model, x):
        with torch.no_grad():
            scale = x.abs().mean()
        return model(x * scale).square().mean()

    def run():
        torch._dynamo.reset()
        counters.clear()
        model = Net()
        compiled, seen = torch.compile(step, backend="aot_eager"), []
        for _ in range(2):
            model.zero_grad()
            compiled(model, torch.ones(4, 6)).backward()
            seen.append([p.grad.clone() for p in model.parameters()])
        return seen, dict(counters["stats"]), dict(counters["frames"]), sum(counters["graph_break"].values())
    expected, got = both(run)
    assert same(expected[0], got[0]) and expected[1:] == got[1:]


@pytest.mark.filterwarnings("ignore")
def test_compiled_before_and_after():
    """A recorder that comes and goes causes no recompilation, and each backward is one report."""
    from torch._dynamo.utils import counters
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def step(x):
        with torch.no_grad():
            x = x * 2
        return model(x).sum()
    compiled = torch.compile(step, backend="aot_eager")
    compiled(torch.ones(2, 4)).backward()
    before = counters["stats"]["unique_graphs"]
    with record() as rec:
        compiled(torch.ones(2, 4)).backward()
    compiled(torch.ones(2, 4)).backward()
    assert counters["stats"]["unique_graphs"] == before
    assert [report.ok for report in rec.reports] == [True]


@pytest.mark.filterwarnings("ignore")
def test_compiled_for_the_first_time_is_not_taken_for_the_program():
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with record(params=model) as rec:
        torch.compile(model, backend="aot_eager")(torch.ones(2, 4)).sum().backward()
    assert [report.ok for report in rec.reports] == [True], [report.verdict for report in rec.reports]


@pytest.mark.filterwarnings("ignore")
def test_compiled_autograd():
    import torch._dynamo.compiled_autograd as compiled_autograd

    def run():
        torch._dynamo.reset()
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        for _ in range(2):
            loss = model(torch.ones(2, 4)).sum()
            with compiled_autograd._enable(torch.compile(backend="eager")):
                loss.backward()
        return [p.grad for p in model.parameters()]
    expected, got = both(run)
    assert same(expected, got)


# ---- what is changed in torch, and how it goes back ----

def torch_state():
    return [id(torch._C._set_grad_enabled), torch._C._set_grad_enabled.__doc__, repr(torch._C._set_grad_enabled),
            id(torch._C._ImperativeEngine.run_backward), repr(torch._C._ImperativeEngine.run_backward),
            id(torch._C.StorageBase.resize_), repr(torch._C.StorageBase.resize_),
            id(torch._C.TensorBase.data), repr(torch._C.TensorBase.data),
            id(torch.autograd.Variable._execution_engine)]


def test_patches_are_undone():
    before, real = torch_state(), torch.autograd._make_grads
    with record():
        assert torch_state() == before
        assert torch.autograd._make_grads is not real
        with record():
            pass
        assert torch.autograd._make_grads is not real
    assert torch_state() == before and torch.autograd._make_grads is real
    with pytest.raises(ZeroDivisionError):
        with record():
            1 / 0
    assert torch_state() == before and torch.autograd._make_grads is real


def test_recorders_may_end_in_any_order():
    real = torch.autograd._make_grads
    a, b = record(), record()
    a.__enter__()
    b.__enter__()
    a.__exit__(None, None, None)
    x = torch.ones(2, requires_grad=True)
    x.sum().backward()
    b.__exit__(None, None, None)
    assert (len(a.reports), len(b.reports)) == (0, 1)
    assert torch.autograd._make_grads is real


def test_another_tools_patch_survives(monkeypatch):
    calls = []
    with record():
        ours = torch.autograd._make_grads

        def theirs(*args, **keywords):
            calls.append(1)
            return ours(*args, **keywords)
        monkeypatch.setattr(torch.autograd, "_make_grads", theirs)
    assert torch.autograd._make_grads is theirs
    torch.ones(2, requires_grad=True).sum().backward()
    with record() as rec:
        torch.ones(2, requires_grad=True).sum().backward()
    assert len(calls) == 2 and len(rec.reports) == 1


def test_early_bound_functions_are_seen():
    set_mode, engine = torch._C._set_grad_enabled, torch.autograd.Variable._execution_engine
    with record() as rec:
        x = torch.ones(2, requires_grad=True)
        set_mode(False)
        line = sys._getframe().f_lineno - 1
        y = x * 2
        set_mode(enabled=True)
        engine.run_backward((x.sum(),), (torch.ones(()),), False, False, (), allow_unreachable=True, accumulate_grad=True)
        with contextlib.suppress(RuntimeError):
            y.sum().backward()
    assert len(rec.reports) == 2 and rec.reports[0].ok
    (finding,) = rec.report().findings
    assert (finding.kind, finding.reason, finding.where.line) == ("no-grad-fn", "grad-mode-disabled", line)


# ---- the record object ----

def test_reports():
    model, x = Net(), torch.randn(4, 6)
    with record(params=model) as rec:
        with pytest.raises(LookupError, match="nothing was attempted"):
            rec.report()
        for _ in range(20):
            model(x).sum().backward()
        assert len(rec.reports) == 16
    assert rec.report() is rec.reports[-1] and rec.report().ok
    assert isinstance(rec.reports, tuple)
    other = rec.report(params=[("elsewhere", torch.ones(2, requires_grad=True))])
    assert [f.kind for f in other.findings] == ["unreached-parameter"]
    assert rec.report().ok
    with rec:
        (model(x).sum() * 0).backward()
    assert len(rec.reports) == 16


def test_grad_of_an_intermediate_does_not_run_its_node():
    """backward(inputs=[h]) runs the node that made h, grad(loss, h) does not."""
    def broken():
        h = torch.ones(3, requires_grad=True).exp()
        loss = (h * 2).sum()
        h.detach().add_(1)
        return h, loss
    with record() as rec:
        h, loss = broken()
        torch.autograd.grad(loss, h)
    assert rec.report().ok
    with record() as rec, contextlib.suppress(RuntimeError):
        h, loss = broken()
        loss.backward(inputs=[h])
    assert [(f.kind, f.op) for f in rec.report().findings] == [("modified-in-place", "add_")]


def test_iterator_of_parameters_serves_every_report():
    model = nn.Linear(3, 3)
    with record(params=model.named_parameters()) as rec:
        for _ in range(2):
            model(torch.ones(1, 3)).sum().backward()
    assert [sorted(filter(None, (n.parameter for n in r.graph.nodes))) for r in rec.reports] == [["bias", "weight"]] * 2


@pytest.mark.parametrize("params", [5, "abc", torch.ones(3), [1, 2]])
def test_wrong_params(params):
    with pytest.raises(TypeError, match="params"):
        record(params)


def test_use_of_the_object():
    rec = record()
    with rec:
        with pytest.raises(RuntimeError, match="on already"):
            rec.__enter__()
    with pytest.raises(RuntimeError, match="not on"):
        rec.__exit__(None, None, None)
    assert "off, 0 reports" in repr(rec)
    with pytest.raises(TypeError):
        class Sub(record):
            pass


def test_own_failure_is_one_warning():
    class Odd(nn.Linear):
        broken = False

        def named_parameters(self, *args, **keywords):
            if self.broken:
                raise ZeroDivisionError("odd")
            return super().named_parameters(*args, **keywords)

    model = Odd(2, 2)
    with record(params=model) as rec:
        model.broken = True
        with pytest.warns(RuntimeWarning, match="odd") as caught:
            for _ in range(3):
                model(torch.ones(1, 2)).sum().backward()
        assert len(caught) == 1
    assert rec.reports == () and model.weight.grad is not None
    with record(params=[model.weight]), warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.ones(1, 2)).sum().backward()


def test_inspect_and_dump_use_what_was_recorded(tmp_path):
    with record():
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        y.add_(1)
        line = sys._getframe().f_lineno - 1
        report = torchgraphdbg.inspect(y.sum())
        dumped = torchgraphdbg.dump(y.sum(), tmp_path / "g.txt", quiet=True)
    for finding in (report.findings[0], dumped.findings[0]):
        assert (finding.op, finding.where.line, finding.where.file) == ("add_", line, __file__)
    assert torchgraphdbg.inspect(y.sum()).findings[0].where is None


# ---- threads and processes ----

def test_threads():
    def work(k):
        try:
            for _ in range(20):
                x = torch.full((3,), float(k), requires_grad=True)
                y = x.exp()
                with contextlib.suppress(RuntimeError):
                    y.add_(1)
                    y.sum().backward()
        except BaseException as error:
            errors.append(error)
    errors = []
    with record() as rec:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors and len(rec.reports) == 16
    line = work.__code__.co_firstlineno + 6
    assert {(f.kind, f.op, f.where.line) for r in rec.reports for f in r.findings} == \
        {("modified-in-place", "add_", line)}


def test_recorder_comes_and_goes_while_others_work():
    stop, errors = threading.Event(), []

    def work():
        try:
            model = Net()
            while not stop.is_set():
                model(torch.ones(4, 6)).sum().backward()
                with torch.no_grad():
                    model.head.weight.add_(1)
        except BaseException as error:
            errors.append(error)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        with record() as rec:
            Net()(torch.ones(4, 6)).sum().backward()
        assert len(rec.reports) >= 1
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors


def attempt_in_child():
    with record() as rec:
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        y.add_(1)
        with contextlib.suppress(RuntimeError):
            y.sum().backward()
    finding = rec.report().findings[0]
    return finding.kind, finding.op, finding.where.line


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork_while_recording():
    with record() as rec:
        x = torch.ones(3, requires_grad=True)
        (x * 2).sum().backward()
        expected = attempt_in_child()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                (x * 3).sum().backward()
                answer = repr((attempt_in_child(), len(rec.reports)))
            except BaseException as error:
                answer = repr(error)
            os.write(write, answer.encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as stream:
            answer = stream.read()
        os.waitpid(child, 0)
        (x * 4).sum().backward()
    assert answer == repr((expected, 4)) and len(rec.reports) == 3


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.full((2,), float(i)).add_(1)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_data_loader_workers(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    model = nn.Linear(2, 1)
    with record(params=model) as rec:
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context=method)
        for batch in loader:
            model(batch).sum().backward()
    assert [report.ok for report in rec.reports] == [True, True]


DISTRIBUTED = """
    import os, sys, torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torchgraphdbg import record

    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.norm = nn.Linear(4, 4), nn.Linear(4, 1), nn.BatchNorm1d(4)

        def forward(self, x):
            return self.b(self.norm(self.a(x)).relu())

    def steps(recorded):
        torch.manual_seed(1)
        model = Net()
        if recorded == "before":
            rec.__enter__()
        wrapped = DistributedDataParallel(model)
        if recorded == "after":
            rec.__enter__()
        for k in range(3):
            torch.manual_seed(10 * rank + k)
            wrapped(torch.randn(4, 4)).sum().backward()
        if recorded:
            rec.__exit__(None, None, None)
        return [p.grad.clone() for p in model.parameters()]

    expected = steps("")
    for when in ("before", "after"):
        rec = record()
        got = steps(when)
        assert all(map(torch.equal, expected, got)), when
        assert len(rec.reports) == 3, rec.reports
        assert all(report.ok for report in rec.reports), [report.verdict for report in rec.reports]
        modules = {node.module for node in rec.report().graph.nodes}
        assert {"module.a", "module.b", "module.norm"} <= modules, modules
    dist.destroy_process_group()
"""


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="no gloo here")
def test_distributed_data_parallel(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(DISTRIBUTED))
    ranks = [subprocess.Popen([sys.executable, str(script), str(rank), str(tmp_path / "meet")], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
    for process in ranks:
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output


# ---- frames ----

def place(name, report):
    """Line and function of the node with this name."""
    (node,) = [n for n in report.graph.nodes if n.name == name]
    assert node.where.file == __file__
    return node.where.line, node.where.function


def qualified(name):
    return name if sys.version_info >= (3, 11) else name.rpartition(".")[2]


def recorded(build):
    with record() as rec:
        build(torch.ones(3, requires_grad=True)).sum().backward()
    return rec.report()


def test_lines_of_functions_and_lambdas():
    def multiply(x):
        return x.exp(
        )

    report = recorded(lambda x: multiply(x).sin())
    base = multiply.__code__.co_firstlineno
    prefix = "test_lines_of_functions_and_lambdas.<locals>."
    assert place("ExpBackward0", report) == (base + 1, qualified(prefix + "multiply"))
    assert place("SinBackward0", report) == (base + 4, qualified(prefix + "<lambda>"))


def test_lines_in_a_long_call():
    def build(x):
        return torch.add(
            x.exp(),
            x
            .sin()
            .cos(),
        )
    report = recorded(build)
    base = build.__code__.co_firstlineno
    assert place("ExpBackward0", report)[0] == base + 2
    assert place("AddBackward0", report)[0] == base + 1
    assert place("SinBackward0", report)[0] in (base + 3, base + 4)


def test_lines_of_generators_and_comprehensions():
    def parts(x):
        yield x.exp()
        yield x.sin()

    def build(x):
        listed = [part * 1
                  for part in parts(x)]
        return sum(listed[1:], listed[0]).cos()
    report = recorded(build)
    base = parts.__code__.co_firstlineno
    assert place("ExpBackward0", report) == (base + 1, qualified(build.__qualname__.replace("build", "parts")))
    assert place("SinBackward0", report)[0] == base + 2
    assert place("CosBackward0", report)[0] == base + 7
    assert {n.where.line for n in report.graph.nodes if n.name == "MulBackward0"} == {base + 5}


def test_lines_of_decorated_functions():
    import functools

    def decorator(function):
        @functools.wraps(function)
        def wrapper(x):
            return function(x)
        return wrapper

    @decorator
    @torch.enable_grad()
    def build(x):
        return x.exp()

    @contextlib.contextmanager
    def around():
        yield

    @around()
    def other(x):
        return build(x).sin()
    report = recorded(other)
    line = build.__wrapped__.__wrapped__.__code__.co_firstlineno
    assert place("ExpBackward0", report)[0] == line + 3
    assert place("SinBackward0", report)[0] == line + 11


def test_lines_of_threads_and_callbacks():
    lines = []

    def key(x):
        lines.append(sys._getframe().f_lineno + 1)
        return x.exp()
    report = recorded(lambda x: max([x], key=lambda t: key(t).sum().item()) + next(map(key, [x])))
    assert place("ExpBackward0", report)[0] == lines[0]


def test_lines_of_modules_and_paths():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.act = nn.Tanh()

        def forward(self, x):
            return self.act(self.linear(x)).exp()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleDict({"first": nn.Sequential(Block())})

        def forward(self, x):
            return self.blocks["first"](x).sin()
    line = Block.forward.__code__.co_firstlineno + 1
    for params, prefix in ((True, ""), (False, "")):
        model = Model()
        with record(params=model if params else None) as rec:
            model(torch.ones(1, 3)).sum().backward()
        report = rec.report()
        modules = {n.name: (n.module, n.where and n.where.line) for n in report.graph.nodes if n.module is not None}
        assert modules["AddmmBackward0"] == ("blocks.first.0.linear", line)
        assert modules["TanhBackward0"] == ("blocks.first.0.act", line)
        assert modules["ExpBackward0"] == ("blocks.first.0", line)
        assert modules["SinBackward0"][0] == ""
        assert "SumBackward0" not in modules


def test_module_called_by_hooks_and_forward():
    """With hooks, Module.__call__ keeps self in a cell."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    model[0].register_forward_hook(lambda module, args, out: out * 2)
    with record(params=model) as rec:
        model(torch.ones(1, 3)).sum().backward()
    modules = {n.name: n.module for n in rec.report().graph.nodes}
    assert modules["MulBackward0"] == "0" and modules["TanhBackward0"] == "1"


def test_names_of_modules_that_died_are_not_given_to_others():
    wrong = 0
    with record() as rec:
        for k in range(200):
            holder = nn.ModuleDict({f"m{k}": nn.Tanh()})
            parent = nn.Sequential(holder[f"m{k}"])
            parent(torch.ones(1, requires_grad=True)).sum().backward()
            (node,) = [n for n in rec.report().graph.nodes if n.name == "TanhBackward0"]
            wrong += node.module != "0"
            model = nn.Sequential(nn.Identity(), nn.Tanh())
            model(torch.ones(1, requires_grad=True)).sum().backward()
            (node,) = [n for n in rec.report().graph.nodes if n.name == "TanhBackward0"]
            wrong += node.module != "1"
    assert wrong == 0


def test_lines_of_a_custom_function():
    report = recorded(Square.apply)
    (node,) = [n for n in report.graph.nodes if n.name == "SquareBackward"]
    assert node.where.function == qualified("recorded")


def test_lines_of_an_optimizer():
    model = nn.Linear(3, 3)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with record(params=model) as rec:
        h = model(torch.ones(1, 3))
        loss = model(h).sum()
        loss.backward(retain_graph=True)
        opt.step()
        line = sys._getframe().f_lineno - 1
        with contextlib.suppress(RuntimeError):
            loss.backward()
    finding = rec.report().findings[0]
    assert (finding.kind, finding.where.line, finding.where.file) == ("modified-in-place", line, __file__)


def test_line_where_grad_mode_was_switched_off():
    def cut(build):
        with record() as rec, contextlib.suppress(RuntimeError):
            build(torch.ones(3, requires_grad=True)).sum().backward()
        (finding,) = rec.report().findings
        assert finding.reason == "grad-mode-disabled"
        return finding.where.line

    def block(x):
        with torch.no_grad():
            y = x * 2
            with torch.enable_grad():
                x * 3
            return y * 2

    def later(x):
        with torch.no_grad():
            with torch.enable_grad():
                x * 3
            return x * 2

    @torch.no_grad()
    def decorated(x):
        return x * 2

    def within(x):
        return decorated(x) * 1

    @torch.enable_grad()
    def inside(x):
        with torch.no_grad():
            return x * 2

    def switched(x):
        torch.set_grad_enabled(False)
        try:
            return x * 2
        finally:
            torch.set_grad_enabled(True)
    assert cut(block) == block.__code__.co_firstlineno + 1
    assert cut(later) == later.__code__.co_firstlineno + 1
    assert cut(within) == decorated.__wrapped__.__code__.co_firstlineno
    assert cut(inside) == inside.__wrapped__.__code__.co_firstlineno + 2
    assert cut(switched) == switched.__code__.co_firstlineno + 1


def run_python(code, *options):
    return subprocess.run([sys.executable, *options, "-"] if not options else [sys.executable, *options], input=code,
                          text=True, capture_output=True, timeout=240)


CELLS = """
    import linecache, sys, types

    class Compiler:
        _filename_map = {"/somewhere/ipykernel_12/345.py": 3, "<ipython-input-4-abc>": 4}

    shell = types.SimpleNamespace(compile=Compiler())
    sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)

    import torch
    from torchgraphdbg import record
    space = {}
    with record() as rec:
        x = torch.ones(3, requires_grad=True)
        space["x"] = x
        exec(compile("y = x.exp()\\\\n\\\\nz = y.sin()", "/somewhere/ipykernel_12/345.py", "exec"), space)
        exec(compile("w = z.cos()", "<ipython-input-4-abc>", "exec"), space)
        exec(compile("v = w.tan()", "<library>", "exec"), {**space, "__name__": "library"})
        space["w"].sum().backward()
    wheres = {n.name: n.where for n in rec.report().graph.nodes}
    print(wheres["ExpBackward0"], wheres["SinBackward0"], wheres["CosBackward0"], wheres["SumBackward0"], sep="|")
    print(wheres["ExpBackward0"].file)
"""


def test_cells_of_a_notebook(tmp_path):
    script = tmp_path / "cells.py"
    script.write_text(textwrap.dedent(CELLS).replace("\\\\n", "\\n"))
    done = subprocess.run([sys.executable, str(script)], text=True, capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.split("|")[:3] == ["Cell In[3]:1", "Cell In[3]:3", "Cell In[4]:1"]
    assert first.split("|")[3].startswith("cells.py:") and second == "Cell In[3]"


COMMAND = """import torch, dataclasses
from torchgraphdbg import record
@dataclasses.dataclass
class Holder:
    x: torch.Tensor
    y: torch.Tensor = None
    def __post_init__(self):
        self.y = self.x.exp()
with record() as rec:
    x = torch.ones(3, requires_grad=True)
    Holder(x).y.sum().backward()
print(*sorted(f"{n.name} {n.where}" for n in rec.report().graph.nodes if n.where), sep="|")
"""


@pytest.mark.parametrize("options, name", [((), "<stdin>"), (("-c", COMMAND), "<string>")])
def test_programs_that_are_no_file(options, name):
    done = run_python(COMMAND, *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"ExpBackward0 {name}:8|SumBackward0 {name}:11"


def test_frames_of_libraries_are_passed_over():
    import copy
    import functools
    report = recorded(lambda x: functools.reduce(torch.mul, [x.exp(), x, x]))
    lines = {n.where.line for n in report.graph.nodes if n.where}
    assert len(lines) == 2 and {pathlib.Path(n.where.file).name for n in report.graph.nodes if n.where} == \
        {pathlib.Path(__file__).name}
    with record() as rec:
        x = torch.ones(3, requires_grad=True)
        (copy.deepcopy(x) * 2).sum().backward()
    assert rec.report().ok


def test_source_location():
    report = recorded(lambda x: x.exp())
    nodes = [n for n in report.graph.nodes if n.name == "ExpBackward0"]
    where = nodes[0].where
    assert isinstance(where, torchgraphdbg.SourceLocation)
    assert str(where) == f"{pathlib.Path(__file__).name}:{where.line}" and where.file == __file__
    assert where == nodes[0].where and hash(where) == hash(nodes[0].where) and where != 5
    assert str(where.line) in repr(where) and "lambda" in repr(where)
    with pytest.raises(AttributeError):
        where.line = 3
    with pytest.raises(TypeError):
        torchgraphdbg.SourceLocation()


def test_deep_stacks():
    def deep(x, n):
        return x.exp() if n == 0 else deep(x, n - 1)
    report = recorded(lambda x: deep(x, 500))
    assert place("ExpBackward0", report)[0] == deep.__code__.co_firstlineno + 1
