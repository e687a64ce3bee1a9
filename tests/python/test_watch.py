"""watch(): what is written when a step goes wrong, and that nothing is when it does not."""
import gc
import json
import os
import pathlib
import signal
import warnings
import weakref

import pytest
import torch
from torch import nn

from torchgraphdbg import record, watch


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "a" / "b"


def train(model, optimizer, x=None):
    optimizer.zero_grad()
    loss = model(torch.randn(3, 4) if x is None else x).pow(2).mean()
    loss.backward()
    optimizer.step()


def sgd(model):
    return torch.optim.SGD(model.parameters(), 0.01)


def poisoned():
    x = torch.randn(3, 4)
    x[1, 2] = float("nan")
    return x


def broken(model):
    s = torch.sigmoid(model(torch.randn(3, 4)))
    loss = s.sum()
    s.add_(1)
    return loss


def stems(folder):
    if not folder.exists():
        return []
    found = {path.name.rsplit(".", 1)[0] for path in folder.iterdir()}
    for stem in found:
        for suffix in ("txt", "json", "svg"):
            assert (folder / f"{stem}.{suffix}").stat().st_size > 0
    assert len(list(folder.iterdir())) == 3 * len(found)  # no file that is half written lies about
    return sorted(found)


def document(folder, stem):
    return json.loads((folder / f"{stem}.json").read_text())


def kinds(folder, stem):
    return [finding["kind"] for finding in document(folder, stem)["findings"] if finding["severity"] == "error"]


def notes(error):
    return "\n".join(getattr(error, "__notes__", []))


# ---- healthy programs ----


def test_healthy_training_writes_nothing(model, out, capfd):
    optimizer = torch.optim.Adam(model.parameters())
    with watch(model, out, forward=True):
        for _ in range(20):
            train(model, optimizer)
    assert not out.exists()
    assert capfd.readouterr() == ("", "")


def accumulation(model, optimizer):
    for k in range(8):
        model(torch.randn(3, 4)).sum().backward()
        if k % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def closures(model, optimizer):
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    x = torch.randn(3, 4)

    def closure():
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)


def gradient_penalty(model, optimizer):
    for _ in range(3):
        x = torch.randn(3, 4, requires_grad=True)
        y = model(x).sum()
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        (y + gradient.pow(2).sum()).backward()
        optimizer.step()


def clipped(model, optimizer):
    for _ in range(3):
        optimizer.zero_grad()
        (model(torch.randn(3, 4)).sum() * 1e6).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def retained(model, optimizer):
    loss = model(torch.randn(3, 4)).sum()
    loss.backward(retain_graph=True)
    loss.backward()


def masked(model, optimizer):
    """Infinities inside a forward are how attention masks."""
    for _ in range(3):
        scores = model(torch.randn(3, 4)).masked_fill(torch.tensor([[True, False]]), float("-inf"))
        scores.softmax(-1)[:, 1].sum().backward()
        optimizer.step()


def unused_parameter(model, optimizer):
    model.extra = nn.Parameter(torch.randn(3))
    for _ in range(3):
        model[0](torch.randn(3, 4)).sum().backward()


def guarded_batch(model, optimizer):
    """A program that looks before it calls backward."""
    loss = model(poisoned()).sum()
    if torch.isfinite(loss):
        loss.backward()


def validation(model, optimizer):
    model.eval()
    with torch.no_grad():
        model(poisoned())
    train(model, optimizer)


HEALTHY = [accumulation, closures, gradient_penalty, clipped, retained, masked, unused_parameter, guarded_batch,
           validation]


@pytest.mark.parametrize("program", HEALTHY, ids=lambda p: p.__name__)
def test_healthy_programs_are_silent(program, model, out, capfd):
    with watch(model, out, forward=True):
        program(model, sgd(model))
    assert not out.exists()
    assert capfd.readouterr() == ("", "")


# ---- backward raises ----


def test_predicted_error_is_on_disk_before_backward(model, out):
    loss = broken(model)
    seen = []
    loss.register_hook(lambda grad: seen.append(stems(out)))
    with watch(model, out), pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
        loss.backward()
    assert seen == [["step-000000"]] == [stems(out)]
    assert kinds(out, "step-000000") == ["modified-in-place"]
    assert "SigmoidBackward0" in notes(caught.value)
    assert "it is at version 1; expected version 0" in notes(caught.value)
    assert str(out / "step-000000.svg") in notes(caught.value)


def test_one_line_on_stderr(model, out, capfd):
    with watch(model, out), pytest.raises(RuntimeError):
        broken(model).backward()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("torchgraphdbg: step 0: backward() will raise at SigmoidBackward0")
    assert line.endswith(str(out / "step-000000.svg"))


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        raise LookupError("not here")


class WrongShape(Fails):
    @staticmethod
    def backward(ctx, grad):
        return torch.zeros(7)


def failing_function(model):
    return Fails.apply(model(torch.randn(3, 4))).sum()


def wrong_shape(model):
    return WrongShape.apply(model(torch.randn(3, 4))).sum()


def failing_hook(model):
    h = model[0](torch.randn(3, 4))
    h.register_hook(lambda grad: {}["missing"])
    return model[2](torch.tanh(h)).sum()


@pytest.mark.parametrize("program", [failing_function, wrong_shape, failing_hook], ids=lambda p: p.__name__)
def test_other_exceptions(program, model, out):
    try:
        program(model).backward()
    except Exception as error:  # noqa: BLE001
        plain = error
    with watch(model, out), pytest.raises(type(plain)) as caught:
        program(model).backward()
    assert str(caught.value) == str(plain) and caught.value.args == plain.args
    assert stems(out) == ["step-000000"]
    answer = document(out, "step-000000")
    assert type(plain).__name__ in answer["verdict"] and answer["raised"].endswith(str(plain))
    assert not answer["findings"]  # what this very run released is no fault
    assert type(plain).__name__ in notes(caught.value)


@pytest.mark.parametrize("type_", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass(type_, model, out, capfd):
    def hook(grad):
        raise type_("now")

    h = model(torch.randn(3, 4))
    h.register_hook(hook)
    with watch(model, out), pytest.raises(type_) as caught:
        h.sum().backward()
    assert not out.exists() and not notes(caught.value) and capfd.readouterr().err == ""


class Reads(torch.autograd.Function):
    """Whether a modified tensor is an error is for its own backward to decide."""

    @staticmethod
    def forward(ctx, x, read):
        ctx.save_for_backward(x)
        ctx.read = read
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        if ctx.read:
            ctx.saved_tensors
        return grad * 2, None


def may(model, read):
    h = model(torch.randn(3, 4))
    y = Reads.apply(h, read)
    h.detach().add_(1)
    return y.sum()


def test_what_only_may_fail_is_said_when_it_does(model, out):
    with watch(model, out):
        may(model, False).backward()
        assert not out.exists()
        with pytest.raises(RuntimeError) as caught:
            may(model, True).backward()
    (stem,) = stems(out)
    assert kinds(out, stem) == ["modified-in-place"]
    assert "raised at ReadsBackward" in document(out, stem)["verdict"]
    assert "ReadsBackward" in notes(caught.value) and "expected version 0" in notes(caught.value)


def test_record_says_it_too(model):
    with record(model) as rec:
        may(model, False).backward()
    assert [f.severity for f in rec.report().findings if f.kind == "modified-in-place"] == ["warning"]
    with pytest.raises(RuntimeError) as caught, record(model) as rec:
        may(model, True).backward()
    (finding,) = [f for f in rec.report().findings if f.kind == "modified-in-place"]
    assert finding.severity == "error" and not rec.report().ok
    assert finding.message in notes(caught.value)


def test_refused_root(model, out):
    with watch(model, out), pytest.raises(RuntimeError, match="scalar") as caught:
        model(torch.randn(3, 4)).backward()
    assert kinds(out, "step-000000") == ["bad-root"]
    assert "scalar" in notes(caught.value)


def test_root_without_grad_fn(model, out):
    with watch(model, out), pytest.raises(RuntimeError, match="does not require grad") as caught:
        model(torch.randn(3, 4)).sum().detach().backward()
    assert kinds(out, "step-000000")[0] == "no-grad-fn"
    assert "grad_fn" in notes(caught.value)


def test_second_backward(model, out):
    loss = model(torch.randn(3, 4)).sum()
    with watch(model, out):
        loss.backward()
        with pytest.raises(RuntimeError, match="second time") as caught:
            loss.backward()
    assert kinds(out, "step-000001")[0] == "graph-freed"
    assert "earlier backward" in notes(caught.value)


def test_note_without_a_dump(model, out):
    with watch(model, out, max_dumps=0), pytest.raises(RuntimeError) as caught:
        broken(model).backward()
    assert not out.exists() and "SigmoidBackward0" in notes(caught.value)


def test_python_without_notes(model, out, capfd):
    """As on Python 3.10: the exception keeps the note where tools look for it, and it is printed."""

    class Old(Exception):
        @property
        def add_note(self):
            raise AttributeError("add_note")

    def hook(grad):
        raise Old("one", 2)

    for guard in (watch(model, out), record(model)):
        h = model(torch.randn(3, 4))
        s = torch.sigmoid(h)
        s.register_hook(hook)
        with pytest.raises(Old) as caught, guard:
            s.sum().backward()
        assert caught.value.args == ("one", 2) and str(caught.value) == "('one', 2)"
    assert "Old" in (out / "step-000000.txt").read_text()
    assert "torchgraphdbg: backward() raised" in capfd.readouterr().err


def test_error_of_old_python_record_shows(model, capfd):
    class OldError(RuntimeError):
        @property
        def add_note(self):
            raise AttributeError("add_note")

    error = OldError("plain")
    with pytest.raises(OldError), record(model):
        raise error  # not backward's: nothing is added
    assert not hasattr(error, "__notes__") and capfd.readouterr().err == ""


# ---- values ----


def test_nan_is_dumped_once(model, out, capfd):
    optimizer = sgd(model)
    with watch(model, out):
        for step in range(12):
            train(model, optimizer, poisoned() if step == 3 else None)
    assert stems(out) == ["step-000003", "step-000004"]  # where it began, and once more with full recording
    assert kinds(out, "step-000003") == ["nan-forward"] + 4 * ["nan-gradient"]
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 3 and "7 more faults were seen" in lines[2]


def test_gradient_alone(model, out):
    """sqrt at 0: the forward is finite."""
    optimizer = sgd(model)
    with watch(model, out):
        train(model, optimizer)
        optimizer.zero_grad()
        h = model(torch.randn(3, 4))
        (h.sum() + (h * 0).sqrt().sum() + model[2].weight.sum()).backward()
    (stem,) = stems(out)
    answer = document(out, stem)
    found = [f for f in answer["findings"] if f["severity"] == "error"]
    assert {f["kind"] for f in found} == {"nan-gradient"}
    assert found[0]["parameter"] == "2.bias"  # backward reaches it first
    assert "of its 2 elements 2 are NaN" in found[0]["message"]
    assert "gradients are NaN in 4 of 4 parameters" in answer["verdict"]


def test_infinite_gradient(model, out):
    with watch(model, out):
        bias = model[2].bias
        with torch.no_grad():
            bias.zero_()
        bias.sqrt().sum().backward()
    (finding,) = [f for f in document(out, "step-000000")["findings"] if f["severity"] == "error"]
    assert (finding["kind"], finding["parameter"]) == ("inf-gradient", "2.bias")
    assert "of its 2 elements 2 are infinite" in finding["message"]
    assert "this parameter's alone" in finding["message"]


def test_a_second_fault_is_dumped_too(model, out):
    optimizer = sgd(model)
    with watch(model, out):
        for step in range(8):
            before = [p.detach().clone() for p in model.parameters()]
            train(model, optimizer, poisoned() if step in (1, 5) else None)
            with torch.no_grad():
                for p, q in zip(model.parameters(), before):
                    p.copy_(q)
    assert stems(out) == ["step-000001", "step-000005"]


def test_first_module(model, out):
    class Inner(nn.Module):
        def forward(self, x):
            return torch.log(x - x) * 0

    model.insert(1, nn.Sequential(nn.Identity(), Inner()))
    with watch(model, out, forward=True):
        model(torch.randn(3, 4)).sum().backward()
    first = document(out, "step-000000")["findings"][0]
    assert first["kind"] == "nan-forward" and "1.1 (Inner)" in first["message"]
    assert "of its 24 elements 24 are NaN" in first["message"]


def test_forward_is_not_looked_at_unless_asked(model, out):
    hooks = torch.nn.modules.module._global_forward_hooks
    before = dict(hooks)
    with watch(model, out):
        assert dict(hooks) == before
    with watch(model, out, forward=True):
        assert len(hooks) == len(before) + 1
    assert dict(hooks) == before


# ---- files ----


def test_max_dumps(model, out, capfd):
    with watch(model, out, max_dumps=3) as armed:
        for k in range(6):
            with pytest.raises(RuntimeError):
                broken(model[:1] if k % 2 else model).backward()
            h = model(torch.randn(3, 4))
            h.register_hook(lambda grad, k=k: {}[k])
            with pytest.raises(KeyError):
                h.sum().backward()
        assert "3 dumps" in repr(armed)
    assert len(stems(out)) == 3
    errors = capfd.readouterr().err.splitlines()
    assert len(errors) == 5 and "max_dumps=3" in errors[3] and "more faults were seen" in errors[4]


def test_an_older_run_is_not_overwritten(model, out):
    for _ in range(3):
        with watch(model, out), pytest.raises(RuntimeError):
            broken(model).backward()
    assert stems(out) == ["step-000000", "step-000000-2", "step-000000-3"]


@pytest.mark.parametrize("program", ["file in the way", "no rights"])
def test_directory_that_cannot_be_written(program, model, out, capfd):
    out.parent.mkdir()
    out.write_text("a file")
    optimizer = sgd(model)
    with warnings.catch_warnings(record=True) as caught, watch(model, out) as armed:
        warnings.simplefilter("always")
        for step in range(6):
            train(model, optimizer, poisoned() if step == 2 else None)
        with pytest.raises(RuntimeError) as error:
            broken(model).backward()
        assert "on, 0 dumps" in repr(armed)
    assert [w.category for w in caught] == [RuntimeWarning] and "write" in str(caught[0].message)
    assert "SigmoidBackward0" in notes(error.value)
    assert out.read_text() == "a file"


def test_default_directory(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with watch(model):
        monkeypatch.chdir("/")
        with pytest.raises(RuntimeError):
            broken(model).backward()
    assert stems(tmp_path / "torchgraphdbg") == ["step-000000"]


def test_step_counts_optimizer_steps(model, out):
    optimizer = sgd(model)
    with watch(model, out):
        for _ in range(5):
            for _ in range(3):
                model(torch.randn(3, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        with pytest.raises(RuntimeError):
            broken(model).backward()
    assert stems(out) == ["step-000005"]
    assert "step 5, in backward 16" in document(out, "step-000005")["occasion"]


def test_every(model, out):
    with watch(model, out, every=4):
        for k in range(9):
            model.zero_grad()
            model(poisoned() if k in (2, 6) else torch.randn(3, 4)).sum().backward()
        assert not out.exists()
        with pytest.raises(RuntimeError, match="inplace") as caught:  # not one of those that are looked at before
            broken(model).backward()
    (stem,) = stems(out)
    assert kinds(out, stem) == ["modified-in-place"] and "SigmoidBackward0" in notes(caught.value)


# ---- several ----


def test_two_models_two_watches(out):
    torch.manual_seed(0)
    one, two = nn.Linear(4, 2), nn.Linear(4, 2)
    with watch(one, out / "one"), watch(two, out / "two"):
        for _ in range(3):
            one(torch.randn(3, 4)).sum().backward()
            two(torch.randn(3, 4)).sum().backward()
        with pytest.raises(RuntimeError):
            broken(two).backward()
        one(poisoned()).sum().backward()
    assert [kinds(out / "one", s)[0] for s in stems(out / "one")] == ["nan-forward"]
    assert [kinds(out / "two", s) for s in stems(out / "two")] == [["modified-in-place"]]


def test_nested_and_repeated(model, out):
    armed = watch(model, out / "outer")
    with watch(model, out / "inner") as inner:
        with pytest.raises(RuntimeError):
            broken(model).backward()
    inner.remove()
    with pytest.raises(RuntimeError):
        broken(model).backward()
    armed.remove()
    armed.remove()
    with pytest.raises(RuntimeError):
        broken(model).backward()
    assert len(stems(out / "inner")) == 1 and len(stems(out / "outer")) == 2  # one more, with full recording
    with armed, pytest.raises(RuntimeError):
        model(torch.randn(3, 4)).backward()
    assert len(stems(out / "outer")) == 3


def test_it_stays_without_its_handle(model, out):
    watch(model, out)
    gc.collect()
    with pytest.raises(RuntimeError):
        broken(model).backward()
    assert stems(out)
    for found in gc.get_objects():
        if type(found) is watch:
            found.remove()
    with pytest.raises(RuntimeError):
        broken(model).backward()
    assert len(stems(out)) == 1


# ---- arguments ----


@pytest.mark.parametrize("arguments, keywords, error, words", [
    ((), {}, TypeError, "params"),
    ((3,), {}, TypeError, "params: expected a module.*got int"),
    ((torch.zeros(2),), {}, TypeError, "params.*put a single tensor into a list"),
    ((nn.Linear(1, 1), 3), {}, TypeError, "directory: expected a str.*got int"),
    ((nn.Linear(1, 1), "a\0b"), {}, ValueError, "directory.*NUL"),
    ((nn.Linear(1, 1),), {"every": 0}, ValueError, "every: expected 1 or more, got 0"),
    ((nn.Linear(1, 1),), {"every": "2"}, TypeError, "every: expected an int, got str"),
    ((nn.Linear(1, 1),), {"max_dumps": -1}, ValueError, "max_dumps: expected 0 or more, got -1"),
    ((nn.Linear(1, 1),), {"max_dumps": 2.5}, TypeError, "max_dumps: expected an int, got float"),
    ((nn.Linear(1, 1), "d", 3), {}, TypeError, "positional"),
])
def test_wrong_arguments(arguments, keywords, error, words):
    with pytest.raises(error, match=words):
        watch(*arguments, **keywords)


@pytest.mark.parametrize("form", ["module", "optimizer", "dict", "pairs", "tensors", "generator", "none"])
def test_forms_of_params(form, model, out):
    params = {"module": model, "optimizer": sgd(model), "dict": dict(model.named_parameters()),
              "pairs": list(model.named_parameters()), "tensors": list(model.parameters()),
              "generator": model.named_parameters(), "none": None}[form]
    with watch(params, pathlib.Path(out)):
        for x in (None, None, poisoned()):
            model.zero_grad()
            model(torch.randn(3, 4) if x is None else x).pow(2).sum().backward()
    found = kinds(out, "step-000002")
    assert found == ["nan-forward"] + ([] if form == "none" else 4 * ["nan-gradient"])


def test_tied_weights_are_one_finding(out):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4, bias=False)
            self.b = nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    model = Tied()
    with watch(model, out):
        model(poisoned()).sum().backward()
    assert kinds(out, "step-000000") == ["nan-forward", "nan-gradient"]


def test_replaced_parameters_are_looked_at_and_let_go(model, out):
    with watch(model, out):
        train(model, sgd(model))
        gone = model[2].bias
        model[2].bias = nn.Parameter(torch.zeros(2))
        dead = weakref.ref(gone)
        del gone
        gc.collect()
        assert dead() is None
        (model[2].bias.sqrt().sum()).backward()
    (finding,) = [f for f in document(out, stems(out)[0])["findings"] if f["severity"] == "error"]
    assert (finding["kind"], finding["parameter"]) == ("inf-gradient", "2.bias")


def test_own_failure_is_one_warning(model, out, monkeypatch):
    class Odd(nn.Linear):
        def named_parameters(self, *args, **keywords):
            if odd:
                raise OSError("out of order")
            return super().named_parameters(*args, **keywords)

    odd = False
    model = Odd(4, 2)
    armed = watch(model, out)
    odd = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            model(poisoned()).sum().backward()
    assert [w.category for w in caught] == [RuntimeWarning] and "out of order" in str(caught[0].message)
    assert "off" in repr(armed)
    odd = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(poisoned()).sum().backward()


def test_an_interrupt_meant_for_the_program_reaches_it(model, out, monkeypatch):
    def interrupted(*args, **keywords):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    with watch(model, out) as armed:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(os, "makedirs", interrupted)
            model(poisoned()).sum().backward()
            for _ in range(1000):
                pass
        assert "on, 0 dumps" in repr(armed)
    signal.signal(signal.SIGINT, before)
