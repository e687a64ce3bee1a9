"""What the gradients were like that each node received: against torch's own hooks."""

import math

import pytest
import torch
from torch import nn

import torchgraphdbg


def expected(tensor):
    finite = tensor[tensor.isfinite()].double()
    return {"numel": tensor.numel(), "nan": int(tensor.isnan().sum()), "inf": int(tensor.isinf().sum()),
            "zeros": int((tensor == 0).sum()), "norm": float(finite.norm()),
            "mean": float(finite.mean()) if finite.numel() else 0.0,
            "absmax": float(finite.abs().max()) if finite.numel() else 0.0,
            "rms": math.sqrt(float(finite.square().mean())) if finite.numel() else 0.0}


def assert_like(gradient, tensor):
    assert gradient.unchecked is None
    for name, value in expected(tensor).items():
        assert getattr(gradient, name) == pytest.approx(value, rel=1e-5, abs=1e-12), name


def backward_with_hooks(make, **options):
    """The report, and what a hook on each node saw, by the node's number."""
    seen = {}
    with torchgraphdbg.record(**options) as rec:
        loss = make()
        stack, known = [loss.grad_fn], set()
        while stack:
            node = stack.pop()
            if node is None or node in known:
                continue
            known.add(node)
            if node.name() != "torch::autograd::AccumulateGrad":
                number = node._sequence_nr()
                node.register_prehook(lambda g, number=number: seen.setdefault(number, [
                    None if each is None else each.clone() for each in g]) and None)
            stack.extend(each for each, _ in node.next_functions)
        loss.backward()
    return rec.report(), seen


def without_hooks(make, **options):
    with torchgraphdbg.record(**options) as rec:
        make().backward()
    return rec.report()


def model_and_input():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))
    return model, torch.randn(16, 32)


@pytest.mark.parametrize("hooked", [True, False])
def test_each_input_of_each_node(hooked):
    """With hooks memory is read at each node, without them what is known of it is used again."""
    model, x = model_and_input()

    def make():
        h = model(x)
        return (h.transpose(0, 1).reshape(8, 4, 4).expand(2, 8, 4, 4) + h.sum()).square().mean()

    report, seen = backward_with_hooks(make)
    if not hooked:
        numbers = [node.sequence_nr for node in report.graph.nodes]
        report = without_hooks(make)
        seen = {new.sequence_nr: seen[old] for old, new in zip(numbers, report.graph.nodes) if old in seen}
    looked = 0
    for node in report.graph.nodes:
        for k, each in enumerate(node.inputs):
            if node.sequence_nr is not None and seen[node.sequence_nr][k] is not None:
                assert_like(each.gradient, seen[node.sequence_nr][k])
                looked += 1
    assert looked >= 13
    parameters = dict(model.named_parameters())
    report = without_hooks(make, params=model)
    model.zero_grad()
    make().backward()
    for node in report.graph.nodes:
        if node.parameter is not None:
            assert_like(node.gradient, parameters[node.parameter].grad)


def test_kinds_of_values():
    values = torch.tensor([0.0, 1.0, float("nan"), float("inf"), -2.0, 1e-40])
    x = torch.ones(6, requires_grad=True)
    with torchgraphdbg.record() as rec:
        (x * 1).backward(values)
    for gradient in (rec.report().graph.nodes[0].gradient, rec.report().graph.nodes[1].gradient):
        assert (gradient.numel, gradient.nan, gradient.inf, gradient.zeros, gradient.underflowed) == (6, 1, 1, 1, 1)
        assert gradient.norm == pytest.approx(math.sqrt(5)) and gradient.absmax == 2.0


def test_none_is_not_zero():
    x = torch.randn(4, 3, requires_grad=True)
    with torchgraphdbg.record() as rec:
        first, _ = x.unbind(0)[:2]
        first.sum().backward()
    node = next(node for node in rec.report().graph.nodes if node.name == "UnbindBackward0")
    assert [each.gradient.unchecked for each in node.inputs] == [None, "no tensor", "no tensor", "no tensor"]
    assert node.inputs[1].gradient.norm is None
    assert node.gradient.numel == 3 and node.gradient.unchecked is None


def test_edges_that_share_an_input():
    x = torch.ones(3, requires_grad=True)
    with torchgraphdbg.record() as rec:
        y = x * 2
        (y.exp() + y.sin()).sum().backward()
    nodes = {node.name: node for node in rec.report().graph.nodes}
    assert nodes["MulBackward0"].inputs[0].gradient.edges == 2
    assert nodes["ExpBackward0"].next[0].gradient == nodes["MulBackward0"].inputs[0].gradient
    assert nodes["MulBackward0"].next[0].gradient.edges == 1
    assert_like(nodes["MulBackward0"].next[0].gradient, x.grad)
    assert nodes["MulBackward0"].next[1].gradient is None


def test_a_hook_that_changes_its_gradient():
    """Behind the version counter's back, too."""
    def double(gradient):
        gradient.data.mul_(2)

    x = torch.randn(500, requires_grad=True)
    with torchgraphdbg.record() as rec:
        y = x.view(50, 10)
        z = y.view(10, 50)
        z.register_hook(double)
        (z.view(500) * torch.linspace(0, 1, 500)).sum().backward()
    node = next(node for node in rec.report().graph.nodes if node.name == "AccumulateGrad")
    assert_like(node.gradient, x.grad)
    assert node.gradient.norm == pytest.approx(2 * torch.linspace(0, 1, 500).norm().item(), rel=1e-5)


def test_a_sum_in_place():
    """The engine adds the second gradient into the first one's memory."""
    x = torch.randn(600, requires_grad=True)
    with torchgraphdbg.record() as rec:
        y = x.view(20, 30)
        sum((y * (k + 1)).sum() for k in range(4)).backward()
    node = next(node for node in rec.report().graph.nodes if node.name == "ViewBackward0")
    assert node.inputs[0].gradient.edges == 4
    assert_like(node.gradient, torch.full((600,), 10.0))
    assert_like(next(n for n in rec.report().graph.nodes if n.name == "AccumulateGrad").gradient, x.grad)


def test_sparse():
    embedding = nn.Embedding(10, 4, sparse=True)
    with torchgraphdbg.record(params=embedding) as rec:
        embedding(torch.tensor([1, 3])).sum().backward()
    node = next(node for node in rec.report().graph.nodes if node.parameter)
    assert (node.gradient.numel, node.gradient.zeros, node.gradient.absmax) == (40, 32, 1.0)


def test_what_is_not_looked_at():
    x = torch.randn(3, requires_grad=True, device="meta")
    with torchgraphdbg.record() as rec:
        (x * 2).sum().backward()
    node = rec.report().graph.nodes[1]
    assert node.gradient.unchecked == "meta tensor" and node.gradient.norm is None and node.time is not None


def test_gradients_are_taken_over_as_ever():
    """AccumulateGrad keeps the very tensor that it is given where nobody else holds it: nor do we."""
    def pointer(record):
        addresses = []
        w = torch.randn(64, 64, requires_grad=True)
        y = w * torch.randn(64, 64)
        y.grad_fn.register_hook(lambda out, _: addresses.append(out[0].data_ptr()) if out[0] is not None else None)
        if record:
            with torchgraphdbg.record():
                y.sum().backward()
        else:
            y.sum().backward()
        return addresses[0] == w.grad.data_ptr()

    assert pointer(True) == pointer(False)


def test_nothing_is_kept_alive():
    import weakref

    x = torch.randn(1000, requires_grad=True)
    with torchgraphdbg.record() as rec:
        gone = []
        y = x * 2
        y.register_hook(lambda gradient: gone.append(weakref.ref(gradient)) or None)
        y.view(10, 100).sum().backward()
        del y
        assert gone[0]() is None
    assert rec.report().graph.nodes[1].gradient.numel == 1000


def test_the_same_numbers_with_and_without():
    def train(record):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 20)).square().mean()
            if record:
                with torchgraphdbg.record(params=model):
                    loss.backward()
            else:
                loss.backward()
            optimizer.step()
        return [parameter.detach().clone() for parameter in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(train(True), train(False)))
