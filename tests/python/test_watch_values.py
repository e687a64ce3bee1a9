"""Which numbers a watch finds: every dtype, layout and place, against what torch itself says."""
import json

import pytest
import torch
from torch import nn

from torchgraphdbg import watch

NAN, INF = float("nan"), float("inf")
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128]


def findings_in(folder):
    """The errors of the first dump there, if any."""
    files = sorted(folder.glob("*.json")) if folder.exists() else []
    return [f for f in json.loads(files[0].read_text())["findings"] if f["severity"] == "error"] if files else []


def gradient_findings(parameter, gradient, folder, every=1, backwards=1):
    """What a watch says of a parameter whose .grad is this."""
    other = torch.ones(2, requires_grad=True)
    with watch({"p": parameter, "other": other}, folder, every=every):
        parameter.grad = gradient
        for _ in range(backwards):
            other.sum().backward()
    return findings_in(folder)


def expected(gradient):
    """The words for its counts."""
    values = gradient.coalesce().values() if gradient.layout == torch.sparse_coo else gradient
    values = values.resolve_conj()
    nan = torch.isnan(values)
    inf = torch.isinf(values) & ~nan
    words = []
    for n, what in ((int(nan.sum()), "NaN"), (int(inf.sum()), "infinite")):
        if n:
            words.append(f"{n} {'is' if n == 1 else 'are'} {what}")
    return f"of its {values.numel():,} elements " + " and ".join(words) if words else None


def check(gradient, folder, parameter=None):
    parameter = torch.zeros_like(gradient).requires_grad_() if parameter is None else parameter
    found = gradient_findings(parameter, gradient, folder)
    words = expected(gradient)
    if words is None:
        assert found == []
    else:
        assert len(found) == 1 and found[0]["parameter"] == "p", found
        assert words in found[0]["message"]
        assert found[0]["kind"] == ("nan-gradient" if "NaN" in words else "inf-gradient")


@pytest.mark.parametrize("value", [NAN, INF, -INF, None, "largest", "subnormal"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype, value, tmp_path):
    """All in one backward, which names every parameter that is not finite and no other."""
    parameters, wanted = {}, {}
    for n in (2, 3, 7, 31, 257):
        for place in {0, 1, n // 2, n - 1}:
            gradient = torch.randn(n, dtype=torch.float32).to(dtype)
            if value == "largest":
                gradient[place] = torch.finfo(dtype).max
            elif value == "subnormal":
                gradient[place] = torch.finfo(dtype).tiny / 2
            elif value is not None:
                gradient[place] = complex(1, value) if dtype.is_complex else value
            name = f"{n}-{place}"
            parameters[name] = torch.zeros_like(gradient).requires_grad_()
            parameters[name].grad = gradient
            if expected(gradient):
                wanted[name] = expected(gradient)
    parameters["finite"] = torch.ones(2, requires_grad=True)
    with watch(parameters, tmp_path / "out"):
        parameters["finite"].sum().backward()
    found = {f["parameter"]: f["message"] for f in findings_in(tmp_path / "out")}
    assert found.keys() == wanted.keys() and len(found) in (0, 17)
    assert all(words in found[name] for name, words in wanted.items())


def test_both_are_counted(tmp_path):
    gradient = torch.tensor([1, NAN, INF, -INF, NAN, 0, 2])
    check(gradient, tmp_path)


def strided(kind):
    base = torch.randn(12, 10)
    base[7, 4] = NAN
    return {
        "transposed": lambda: base.t(),
        "part": lambda: base[2:9, 1:6],
        "part without it": lambda: base[:7, :4],
        "every other": lambda: base[1::2, ::2],
        "every other without it": lambda: base[::2, ::2],
        "expanded": lambda: base[7, 4].expand(5, 3),
        "expanded rows": lambda: base[:, 4:5].expand(12, 6),
        "channels last": lambda: base.view(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "scalar": lambda: base[7, 4],
        "empty": lambda: base[:0],
        "permuted": lambda: base.view(2, 6, 5, 2).permute(3, 1, 0, 2),
        "conjugated": lambda: torch.complex(base, base).conj(),
        "negated": lambda: torch.complex(base, base).conj().imag,
    }[kind]()


@pytest.mark.parametrize("kind", ["transposed", "part", "part without it", "every other", "every other without it",
                                  "expanded", "expanded rows", "channels last", "empty", "permuted", "conjugated",
                                  "negated"])
def test_strides(kind, tmp_path):
    check(strided(kind), tmp_path)


def test_scalar(tmp_path):
    (finding,) = gradient_findings(torch.zeros((), requires_grad=True), strided("scalar"), tmp_path)
    assert "it is NaN" in finding["message"]


def test_sparse(tmp_path):
    embedding = nn.Embedding(10, 3, sparse=True)
    out = embedding(torch.tensor([1, 4, 4]))
    with watch(embedding, tmp_path / "good"):
        out.sum().backward()
    assert not (tmp_path / "good").exists()
    with torch.sparse.check_sparse_tensor_invariants(False):
        gradient = torch.sparse_coo_tensor([[1, 4]], torch.tensor([[1.0, NAN, 2], [3, 4, INF]]), (10, 3))
        check(gradient.coalesce(), tmp_path / "bad", nn.Parameter(torch.zeros(10, 3)))


def matmul(nan_row, nan_column):
    """The gradient of a weight in the step that a NaN comes from above or from the input."""
    weight = torch.zeros(300, 200, requires_grad=True)
    x, above = torch.randn(5, 200), torch.randn(5, 300)
    if nan_row is not None:
        above[2, nan_row] = NAN
    if nan_column is not None:
        x[1, nan_column] = NAN
    torch.autograd.backward(nn.functional.linear(x, weight), above)
    return weight.grad


@pytest.mark.parametrize("row, column", [(0, None), (299, None), (151, None), (None, 0), (None, 199), (None, 77),
                                         (None, None)])
def test_a_large_gradient_is_seen_at_once_where_it_comes_from_upstream(row, column, tmp_path):
    gradient = matmul(row, column)
    assert gradient.numel() == 60_000
    check(gradient, tmp_path / "dense")
    check(gradient.t().contiguous().t(), tmp_path / "transposed")
    wide = torch.zeros(300, 400)[:, ::2]
    wide.copy_(gradient)
    check(wide, tmp_path / "strided", torch.zeros(300, 200, requires_grad=True))


def test_a_convolution_is_seen_at_once(tmp_path):
    for channel in (0, 5, 63):
        weight = torch.zeros(64, 32, 3, 3, requires_grad=True)
        above = torch.randn(2, 64, 6, 6)
        above[1, channel, 3, 3] = NAN
        torch.autograd.backward(nn.functional.conv2d(torch.randn(2, 32, 6, 6), weight, padding=1), above)
        check(weight.grad, tmp_path / str(channel))


def test_a_single_element_of_a_large_gradient_is_seen_within_16_backwards(tmp_path):
    for k, place in enumerate((61, 20_000, 59_999)):
        gradient = torch.zeros(300, 200)
        gradient.view(-1)[place] = INF
        for form, name in ((gradient, "dense"), (torch.zeros(300, 400)[:, ::2].copy_(gradient), "strided")):
            found = gradient_findings(torch.zeros(300, 200, requires_grad=True), form, tmp_path / f"{name}{k}",
                                      backwards=16)
            assert len(found) == 1 and "1 is infinite" in found[0]["message"]


def test_a_large_finite_gradient_is_silent(tmp_path):
    for dtype in DTYPES:
        gradient = torch.full((300, 200), torch.finfo(dtype).max, dtype=dtype)
        assert gradient_findings(torch.zeros_like(gradient).requires_grad_(), gradient, tmp_path / str(dtype),
                                 backwards=20) == []


def test_what_cannot_be_read_is_left_alone(tmp_path):
    """Meta tensors, subclasses that hold their data elsewhere, freed storages: nothing is read, nothing breaks."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.testing._internal.two_tensor import TwoTensor

    with FakeTensorMode():
        fake = torch.zeros(3)
    freed = torch.full((3,), NAN)
    freed.untyped_storage().resize_(0)
    for k, gradient in enumerate((torch.zeros(3, device="meta"), fake, freed,
                                  TwoTensor(torch.full((3,), NAN), torch.zeros(3)))):
        parameter = torch.zeros(3, requires_grad=True)
        parameter = parameter.to(gradient.device).detach().requires_grad_() if k == 0 else parameter
        other = torch.ones(2, requires_grad=True)
        with watch([parameter, other], tmp_path / str(k)):
            try:
                parameter.grad = gradient
            except (RuntimeError, TypeError):
                continue
            other.sum().backward()
        assert not (tmp_path / str(k)).exists()


def test_roots(tmp_path):
    p = torch.ones(3, requires_grad=True)
    with watch({"p": p}, tmp_path):
        torch.autograd.backward([p.sum(), (p * torch.tensor([1, NAN, INF])).exp()],
                                [torch.ones(()), torch.zeros(3)])
    found = json.loads((tmp_path / "step-000000.json").read_text())["findings"]
    first = [f for f in found if f["kind"] == "nan-forward"]
    assert len(first) == 1 and first[0]["root"] == 1
    assert "of its 3 elements 1 is NaN and 1 is infinite" in first[0]["message"]
