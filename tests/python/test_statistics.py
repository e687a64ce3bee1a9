"""Statistics of tensors, against NumPy in double, over everything that a gradient can be."""

import math
import statistics
import time

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from torchgraphdbg import _core

REAL = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


def expected(tensor):
    """What _statistics() must say, by NumPy."""
    if tensor.dtype.is_complex:
        values = torch.view_as_real(tensor.resolve_conj().resolve_neg()).double().numpy().reshape(-1, 2)
    else:
        values = tensor.resolve_neg().double().numpy().reshape(-1, 1)
    nan = np.isnan(values).any(axis=1)
    inf = np.isinf(values).any(axis=1) & ~nan
    finite = values[~nan & ~inf].astype(np.longdouble)
    magnitude = np.sqrt((finite**2).sum(axis=1))
    zero = (finite == 0).all(axis=1)
    tiny = torch.finfo(tensor.dtype).tiny
    n = len(finite)
    norm = float(np.sqrt((magnitude**2).sum()))
    return {
        "n": len(values), "nan": int(nan.sum()), "inf": int(inf.sum()), "zero": int(zero.sum()),
        "subnormal": int(((np.abs(finite) < tiny).all(axis=1) & ~zero).sum()),
        "sum": float(finite[:, 0].sum()), "sum_imaginary": float(finite[:, 1:].sum()), "norm": norm,
        "absmax": float(magnitude.max(initial=0)), "absmin": float(magnitude[~zero].min()) if n > zero.sum() else 0.0,
        "mean": float(finite[:, 0].sum() / n) if n else 0.0, "rms": norm / math.sqrt(n) if n else 0.0,
    }


def check(tensor, by="memory", unknown=()):
    actual, wanted = _core._statistics(tensor, by=by), expected(tensor)
    assert isinstance(actual, dict), actual
    for name, value in wanted.items():
        if name in unknown:
            continue
        if isinstance(value, int):
            assert actual[name] == value, (name, actual, wanted)
        else:
            scale = wanted["absmax"] * max(wanted["n"], 1) if name in ("sum", "sum_imaginary") else abs(value)
            if name == "mean":
                scale = wanted["absmax"]
            assert abs(actual[name] - value) <= 1e-12 * scale, (name, actual, wanted)
    if by == "memory":
        assert _core._statistics(tensor, by="nonfinite") == (wanted["nan"] + wanted["inf"] > 0)
    return actual


def values(dtype, *shape):
    """Normal ones, with zeros, NaN, both infinities, subnormal and huge ones among them."""
    x = torch.randn(*shape, dtype=torch.float64)
    flat = x.view(-1)
    special = [0.0, -0.0, math.nan, math.inf, -math.inf, torch.finfo(dtype).tiny / 2, torch.finfo(dtype).max]
    for k, value in enumerate(special):
        flat[k::17] = value
    if not dtype.is_complex:
        return x.to(dtype)
    real = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}[dtype]
    # Huge parts only alone: together their magnitude is beyond the type.
    imaginary = torch.randn(*shape, dtype=torch.float64)
    imaginary[x.abs() > torch.finfo(dtype).max / 2] = 0
    imaginary.view(-1)[3::29] = 0
    return torch.view_as_complex(torch.stack([x.to(real), imaginary.to(real)], -1))


@pytest.mark.parametrize("by", ["memory", "portable"])
@pytest.mark.parametrize("dtype", REAL + COMPLEX, ids=str)
def test_every_dtype(dtype, by):
    for n in (1, 7, 8, 100, 1023, 1024, 1025, 5000):
        x = values(dtype, n)
        if dtype in (torch.float64, torch.complex128):  # a sum of its largest numbers is beyond double
            x = torch.where(x.abs() > 1e300, torch.ones_like(x), x)
        check(x, by)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_float8(dtype):
    actual = _core._statistics(torch.arange(256).to(torch.uint8).view(dtype))
    reference = expected(torch.arange(256).to(torch.uint8).view(dtype).to(torch.float32))
    for name in ("n", "nan", "inf", "zero", "absmax", "absmin"):
        assert actual[name] == reference[name], name
    # A sign, and every mantissa but zero.
    mantissas = (1 << {torch.float8_e4m3fn: 3, torch.float8_e4m3fnuz: 3}.get(dtype, 2)) - 1
    assert actual["subnormal"] == 2 * mantissas


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_nothing_but_one_kind(dtype):
    tiny = torch.finfo(dtype).tiny
    for value in (0.0, -0.0, math.nan, math.inf, -math.inf, tiny, tiny / 2, tiny / 4, 1.0):
        check(torch.full((1500,), value, dtype=dtype))


def test_squares_that_float32_cannot_hold():
    for value in (1e-30, 3e-42, 1e30):
        s = check(torch.full((1000,), value))
        assert s["norm"] == pytest.approx(torch.full((1,), value).double().item() * math.sqrt(1000), rel=1e-12)
    for value in (1e-250, 1e250):
        assert _core._statistics(torch.full((1000,), value, dtype=torch.float64))["norm"] == pytest.approx(
            value * math.sqrt(1000), rel=1e-12)


def shapes():
    x = torch.randn(6, 5, 40)
    long = torch.randn(4, 3000)
    return {
        "transposed": x.transpose(0, 2),
        "sliced": x[1:, ::2, 3:-4],
        "slices of long rows": long[:, 100:2500],
        "every third": long[:, ::3],
        "expanded scalar": torch.tensor(2.5).expand(7, 11),
        "expanded row": x[0, 0].expand(9, 40),
        "expanded in the middle": x[:, :1].expand(6, 50, 40),
        "zero-dimensional": torch.tensor(-3.0),
        "empty": torch.empty(3, 0, 2),
        "expanded empty": torch.empty(3, 0, 1).expand(3, 0, 5),
        "overlapping": torch.randn(20).as_strided((6, 5), (2, 1)),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "diagonal": torch.randn(30, 30).diagonal(),
        "offset": torch.randn(100)[13:],
    }


@pytest.mark.parametrize("name", shapes())
@pytest.mark.parametrize("by", ["memory", "operations"])
def test_every_shape(name, by):
    check(shapes()[name], by, () if by == "memory" else ("subnormal", "absmin"))


def test_random_shapes():
    for round in range(150):
        ndim = int(torch.randint(1, 6, ()))
        dtype = (REAL + COMPLEX)[round % 7]
        x = values(dtype, *torch.randint(1, 7, (ndim,)).tolist(), 9)
        x = torch.where(x.abs() > 1e300, torch.ones_like(x), x) if x.element_size() >= 8 else x
        x = x.permute(*torch.randperm(x.dim()).tolist())
        x = x[tuple(slice(int(torch.randint(0, 2, ())), None, int(torch.randint(1, 3, ()))) for _ in range(x.dim()))]
        check(x)


def test_unaligned():
    buffer = bytearray(4 * 100 + 1)
    x = torch.frombuffer(buffer, dtype=torch.float32, count=100, offset=1)
    x.copy_(torch.randn(100))
    check(x)


def test_negative_and_conjugate_views():
    z = torch.randn(50, dtype=torch.complex64)
    for x in (z.conj(), z.conj().imag, torch._neg_view(z), torch._neg_view(torch.randn(50)), z.real, z.imag):
        check(x)
    assert _core._statistics(torch._efficientzerotensor((3, 4)))["zero"] == 12


@pytest.mark.parametrize("by", ["memory", "operations"])
def test_large_tensors_do_not_depend_on_threads(by):
    x = torch.randn((1 << 20) + 333)
    x[5] = math.nan
    x[-1] = math.inf
    before = torch.get_num_threads()
    answers = []
    try:
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            answers.append(_core._statistics(x, by=by))
    finally:
        torch.set_num_threads(before)
    check(x, by, () if by == "memory" else ("subnormal", "absmin"))
    if by == "memory":
        assert all(answer == answers[0] for answer in answers)
        assert _core._statistics(x, by="portable") == answers[0]


def test_sparse_by_stored_values():
    dense = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, -4.0]])
    for x in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc()):
        s = _core._statistics(x)
        assert (s["n"], s["zero"], s["sum"], s["absmax"], s["norm"]) == (6, 4, -2, 4, pytest.approx(math.sqrt(20)))
    twice = torch.sparse_coo_tensor([[1, 1]], [1.0, math.nan], (3,))
    s = _core._statistics(twice)
    assert (s["n"], s["nan"], s["zero"]) == (3, 1, 1)
    assert _core._statistics(twice, by="nonfinite") is True
    embedding = torch.nn.Embedding(10, 4, sparse=True)
    embedding(torch.tensor([1, 1, 3])).sum().backward()
    s = _core._statistics(embedding.weight.grad)
    assert (s["n"], s["zero"], s["sum"]) == (40, 28, 12)


def test_what_is_not_looked_at():
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Wrapped(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
            raise AssertionError("something was run")

    with FakeTensorMode():
        fake = torch.ones(3)
    freed = torch.ones(100)
    freed.untyped_storage().resize_(0)
    seen = []
    torch.vmap(lambda x: seen.append(_core._statistics(x)) or x)(torch.ones(2, 3))
    assert seen == ["wrapper of other tensors"]
    for by in ("memory", "operations"):
        for tensor, reason in [
            (torch.ones(3, device="meta"), "meta tensor"),
            (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested tensor"),
            (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "nested tensor"),
            (fake, "wrapper of other tensors"),
            (torch.Tensor._make_wrapper_subclass(Wrapped, (3,)), "wrapper of other tensors"),
            (torch.Tensor._make_subclass(Wrapped, torch.ones(3)), "tensor subclass with a __torch_dispatch__"),
            (torch.ones(3, dtype=torch.int64), "dtype without statistics"),
            (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), None),
            (torch.ones(3, 4).to_mkldnn() if torch.backends.mkldnn.is_available() else None, "opaque layout"),
            (freed, "storage freed or too small"),
        ]:
            if tensor is None:
                continue
            answer = _core._statistics(tensor, by=by)
            assert isinstance(answer, str) and answer == (reason or answer), (by, reason, answer)


@pytest.mark.parametrize("by", ["memory", "operations"])
def test_observing_changes_nothing(by):
    class Listener(torch.utils._python_dispatch.TorchDispatchMode):
        seen = []

        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            self.seen.append(function)
            return function(*arguments, **(keywords or {}))

    leaf = torch.randn(50, requires_grad=True)
    x = leaf * 2
    version, node = x._version, x.grad_fn
    with profile(activities=[ProfilerActivity.CPU]) as profiler, Listener(), torch.autocast("cpu"):
        with torch.autograd.set_detect_anomaly(False):
            assert isinstance(_core._statistics(x, by=by), dict)
    assert not Listener.seen
    assert not [event.name for event in profiler.events() if event.name.startswith("aten::")]
    assert (x._version, x.grad_fn, leaf.grad) == (version, node, None) and torch.is_grad_enabled()
    with torch.inference_mode():
        assert isinstance(_core._statistics(torch.ones(3) * 2, by=by), dict)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_operations_agree_with_memory(dtype):
    for n in (1, 100, 5000):
        x = values(dtype, n)
        x = torch.where(x.abs() > 1e150, torch.ones_like(x), x)
        check(x, "operations", ("subnormal", "absmin"))
    assert _core._statistics(torch.ones(3, dtype=torch.complex64), by="operations") == "dtype without statistics"


def test_operations_in_parts():
    """More than one part: 2^24 elements at a time."""
    x = torch.zeros((1 << 24) + 5, dtype=torch.bfloat16)
    x[3], x[-1], x[-2] = 3, -4, math.inf
    s = _core._statistics(x, by="operations")
    assert (s["n"], s["zero"], s["inf"], s["norm"], s["absmax"], s["sum"]) == (x.numel(), x.numel() - 3, 1, 5, 4, -1)


def test_far_faster_than_six_operations():
    """Twenty times and more is measured (tests/bench); only a change of kind fails here."""
    x = torch.randn(4096)

    def six():
        for _ in range(20):
            x.norm(), x.mean(), x.abs().max(), x.isnan().sum(), x.isinf().sum(), (x == 0).sum()

    def cost(function):
        start = time.process_time()
        function()
        return time.process_time() - start

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        pairs = [(cost(six), cost(lambda: _core._statistics(x, repeat=200))) for _ in range(15)]
    finally:
        torch.set_num_threads(before)
    assert statistics.median(theirs for theirs, _ in pairs) * 10 > 5 * statistics.median(ours for _, ours in pairs)


def test_bad_arguments():
    with pytest.raises(TypeError, match="tensor: expected a torch.Tensor, got list"):
        _core._statistics([1.0])
    with pytest.raises(ValueError, match="by: expected .*, got magic"):
        _core._statistics(torch.ones(1), by="magic")
