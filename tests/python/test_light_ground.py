"""The light level of recording changes nothing: each program runs in a process of its own, with it and without."""
import os
import subprocess
import sys
import textwrap

import pytest

HEAD = """
import os, sys, threading, warnings
import torch
from torch import nn
import torchgraphdbg
from torchgraphdbg import _core

ON = bool(int(sys.argv[1]))

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))

def grads(model):
    return [p.grad.tolist() for p in model.parameters()]

def line(loss):
    where = next(n for n in torchgraphdbg.inspect(loss).graph.nodes if n.name == "SumBackward0").where
    return None if where is None else (os.path.basename(where.file), where.line > 0)

def noted(call):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            text = call()
        except RuntimeError as error:
            text = str(error)
    return text, [str(w.message).splitlines()[0] for w in seen]
"""


def run(tmp_path, program, on, timeout=120):
    path = tmp_path / "program.py"
    path.write_text(HEAD + textwrap.dedent("""
        if ON and __name__ == "__main__":
            _core._light_start()
        """) + textwrap.dedent(program))
    done = subprocess.run([sys.executable, str(path), str(int(on))], capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert "torchgraphdbg" not in done.stderr, done.stderr
    return done.stdout


SAME = {
    "steps": """
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
        print([p.tolist() for p in model.parameters()])
        """,
    "double backward": """
        x = torch.ones(3, requires_grad=True)
        g, = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
        g.square().sum().backward()
        print(x.grad)
        """,
    "text of the in-place error": """
        def broken():
            y = torch.randn(3, requires_grad=True).sigmoid()
            y.add_(1)
            y.sum().backward()
        print(noted(broken))
        """,
    "anomaly mode of the user's": """
        def broken(check_nan):
            with torch.autograd.set_detect_anomaly(True, check_nan=check_nan):
                y = torch.randn(3, requires_grad=True).sigmoid()
                print(sorted(y.grad_fn.metadata))
                y.add_(1)
                y.sum().backward()
        for check_nan in (True, False):
            print(noted(lambda: broken(check_nan)))
            print(torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
        """,
    "anomaly mode around one half only": """
        def forward():
            y = torch.randn(3, requires_grad=True).sigmoid()
            y.add_(1)
            return y.sum()
        def backward_in_it(loss):
            with torch.autograd.detect_anomaly(check_nan=False):
                loss.backward()
        with torch.autograd.detect_anomaly(check_nan=False):
            loss = forward()
        print(noted(lambda: loss.backward()))
        print(noted(lambda: backward_in_it(forward())))
        torch.set_anomaly_enabled(True, False)
        print(torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
        torch.set_anomaly_enabled(False, True)
        print(torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
        """,
    "nan is not checked": """
        x = torch.zeros(1, requires_grad=True)
        (x * 0 / x).sum().backward()
        print(x.grad)
        """,
    "metadata of nodes": """
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2
            @staticmethod
            def backward(ctx, g):
                return g * 2
        x = torch.ones(2, requires_grad=True)
        for y in (x.exp(), Twice.apply(x), (x * 2)[0]):
            d = y.grad_fn.metadata
            print(d, d is y.grad_fn.metadata, type(d))
            d["mine"] = [1]
            print(y.grad_fn.metadata, y.sum().grad_fn.next_functions[0][0].metadata)
            y.sum().backward()
            print(y.grad_fn.metadata)
        accumulate = x.exp().grad_fn.next_functions[0][0]
        print(accumulate.metadata)
        """,
    "dispatch keys": """
        print(torch._C._dispatch_tls_local_include_set())
        x = torch.randn(3, requires_grad=True)
        print(torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)).shape)
        print(torch.vmap(torch.func.grad(lambda x: x.clone().mul_(2).sin().sum()))(torch.ones(2, 3)))
        print(torch.func.functionalize(lambda x: x.clone().add_(1))(torch.ones(2)))
        """,
    "modes see the same calls": """
        from torch.overrides import TorchFunctionMode
        from torch.utils._python_dispatch import TorchDispatchMode
        seen = []
        class Dispatch(TorchDispatchMode):
            def __torch_dispatch__(self, f, types, args=(), kwargs=None):
                seen.append(str(f))
                return f(*args, **(kwargs or {}))
        class Function(TorchFunctionMode):
            def __torch_function__(self, f, types, args=(), kwargs=None):
                seen.append(getattr(f, "__name__", str(f)))
                return f(*args, **(kwargs or {}))
        with Dispatch(), Function():
            x = torch.ones(3, requires_grad=True)
            y = nn.functional.dropout(x * 2, 0.5, True, True)
            y.add_(1).argmax().item()
            y.detach().sum()
        print(seen)
        """,
    "profiler": """
        with torch.profiler.profile() as profile:
            y = torch.ones(3, requires_grad=True) * 2
            y.add_(1)
            y.sum().backward()
        print(sorted((e.key, e.count) for e in profile.key_averages()))
        """,
    "compiled": """
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            model = net()
            compiled = torch.compile(model, backend=backend)
            for _ in range(3):
                compiled(torch.ones(2, 4)).sum().backward()
            print(grads(model), dict(torch._dynamo.utils.counters["frames"]))
        """,
    "checkpoints": """
        from torch.utils.checkpoint import checkpoint
        for reentrant in (True, False):
            model = net()
            checkpoint(model, torch.ones(2, 4, requires_grad=True), use_reentrant=reentrant).sum().backward()
            print(grads(model))
        """,
    "kinds of tensors": """
        sparse = torch.eye(3).to_sparse()
        sparse.mul_(2)
        torch.ones(3, device="meta").add_(1)
        with torch.inference_mode():
            print(torch.ones(3).add_(1).sum().item())
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            y = torch.ones(3, requires_grad=True) * 2
            print(y.add_(1))
        print(sparse.to_dense(), torch.jit.trace(lambda x: x.clone().add_(1), torch.ones(2))(torch.ones(2)))
        """,
    "threads": """
        def work(model, out):
            for _ in range(20):
                model(torch.ones(2, 4)).sum().backward()
            out.append(grads(model))
        out = []
        threads = [threading.Thread(target=work, args=(net(), out)) for _ in range(4)]  # one seed for all of them
        [t.start() for t in threads]
        [t.join() for t in threads]
        print(all(o == out[0] for o in out), out[0])
        """,
    "workers of a DataLoader": """
        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, i):
                w = torch.ones(2, requires_grad=True)
                (w * i).sum().backward()
                return w.grad.clone()
        if __name__ == "__main__":
            print(torch.stack([b for b in torch.utils.data.DataLoader(Data(), 4, num_workers=2)]))
        """,
    "fork": """
        for before in (False, True):
            if before:
                net()(torch.ones(2, 4)).sum().backward()
            pid = os.fork()
            if pid == 0:
                model = net()
                model(torch.ones(2, 4)).sum().backward()
                print(grads(model), flush=True)
                os._exit(0)
            print(os.waitpid(pid, 0)[1])
        """,
    "compiled autograd": """
        import torch._dynamo.compiled_autograd as compiled
        model = net()
        loss = model(torch.ones(2, 4)).sum()
        with compiled._enable(torch.compile(backend="eager")):
            loss.backward()
        print(grads(model))
        """,
    "DDP": """
        import torch.distributed as dist
        import torch.multiprocessing as mp
        def worker(rank, path, on):
            if on:
                _core._light_start()
            dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=2)
            model = nn.parallel.DistributedDataParallel(net(), find_unused_parameters=True)
            for _ in range(2):
                model(torch.ones(2, 4) * (rank + 1)).sum().backward()
            with model.no_sync():
                model(torch.ones(2, 4)).sum().backward()
            model(torch.ones(2, 4)).sum().backward()
            if rank == 0:
                print(grads(model), flush=True)
            dist.destroy_process_group()
        if __name__ == "__main__":
            path = os.path.abspath(sys.argv[0]) + ".store" + sys.argv[1]
            mp.spawn(worker, args=(path, ON), nprocs=2)
        """,
}


@pytest.mark.parametrize("name", SAME)
def test_as_without(tmp_path, name):
    assert run(tmp_path, SAME[name], True) == run(tmp_path, SAME[name], False)


def test_nodes_made_in_threads_and_children_know_their_lines(tmp_path):
    said = run(tmp_path, """
        loss = net()(torch.ones(2, 4)).sum()
        def work():
            print(line(net()(torch.ones(2, 4)).sum()))
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            print(line(loss), line(net()(torch.ones(2, 4)).sum()), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        """, True)
    assert said.splitlines() == ["('program.py', True)", "('program.py', True) ('program.py', True)"]


def test_all_is_put_back_also_after_an_exception(tmp_path):
    said = run(tmp_path, """
        names = ("set_anomaly_enabled", "is_anomaly_enabled", "is_anomaly_check_nan_enabled",
                 "_dispatch_tls_local_include_set")
        import ctypes
        def pointers():
            return [ctypes.c_void_p.from_address(id(getattr(torch._C, n)) + object.__basicsize__).value for n in names]
        without = pointers()
        for _ in range(3):
            _core._light_start()
            _core._light_start()
            assert all(a != b for a, b in zip(pointers(), without))
            try:
                y = torch.ones(3, requires_grad=True).exp()
                y.add_(1)
                y.sum().backward()
            except RuntimeError:
                pass
            _core._light_stop()
            assert pointers() != without
            _core._light_stop()
            assert pointers() == without
        y = torch.ones(3, requires_grad=True).exp()
        y.add_(1)
        print(torchgraphdbg.inspect(y.sum()).findings[0].where, torch.is_anomaly_enabled())
        """, False)
    assert said == "None False\n"
