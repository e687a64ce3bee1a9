"""What root, params and inputs may be, and what is said where they are something else."""
import collections
import gc
import types

import pytest
import torch

import torchgraphdbg
from torchgraphdbg import inspect

THINGS = [None, 3, 2.5, "loss", b"loss", bytearray(b"loss"), object(), {"loss": 1}, {1}, int, torch, torch.nn.Linear,
          torch.float32, ...]
WANTED_ROOT = "expected a tensor, a grad_fn node"


@pytest.fixture
def leaf():
    return torch.randn(3, requires_grad=True)


def parameters(report):
    return [p["name"] for p in report.to_dict()["parameters"]]


# ---- root ----

def roots(loss):
    from torch.autograd.graph import get_gradient_edge
    yield "tensor", loss
    yield "node", loss.grad_fn
    yield "edge", get_gradient_edge(loss)
    yield "list", [loss]
    yield "tuple", (loss,)
    yield "generator", (x for x in [loss])
    yield "deque", collections.deque([loss])
    yield "dict values", {"a": loss}.values()
    yield "set", {loss}
    yield "mixed", [loss, loss.grad_fn, get_gradient_edge(loss)]


def test_every_kind_of_root(healthy):
    expected = len(inspect(healthy).graph.nodes)
    for name, root in roots(healthy):
        report = inspect(root)
        assert len(report.graph.nodes) == expected, name
        assert report.ok, name
        assert all(node == report.graph.nodes[0] for node in report.graph.roots), name


def test_root_that_is_no_scalar(leaf):
    report = inspect(leaf * 2)
    assert report.ok
    assert [(f.kind, f.severity) for f in report.findings] == [("bad-root", "note")]


def test_root_that_is_a_leaf(leaf):
    report = inspect(leaf.sum().detach().requires_grad_())
    assert not [f for f in report.findings if f.severity == "error"]


def test_edge_of_a_second_output(leaf):
    edge = torch.autograd.graph.get_gradient_edge(leaf.view(3, 1).unbind(0)[2])
    assert edge.output_nr == 2
    assert inspect(edge).graph.roots[0].name == "UnbindBackward0"


def test_edge_of_a_wrong_output(leaf):
    node = leaf.sum().grad_fn
    for number in (1, 7, 2**31):
        with pytest.raises(ValueError, match=r"^root: output_nr is \d+ and the node has 1 output$"):
            inspect(torch.autograd.graph.GradientEdge(node, number))
    for number in (-1, 2**40, 2**80):
        with pytest.raises(ValueError, match="^root: output_nr is out of range"):
            inspect(torch.autograd.graph.GradientEdge(node, number))
    with pytest.raises(TypeError, match="^root: .*output_nr is an int, got str"):
        inspect(torch.autograd.graph.GradientEdge(node, "0"))
    with pytest.raises(TypeError, match="^root: .*grad_fn node, got Tensor"):
        inspect(torch.autograd.graph.GradientEdge(leaf, 0))


@pytest.mark.parametrize("thing", THINGS)
def test_wrong_roots(thing, healthy):
    for call in (inspect, torchgraphdbg.assert_healthy, lambda root: torchgraphdbg.dump(root, None, quiet=True)):
        with pytest.raises(TypeError, match=rf"^root(\[0\])?: {WANTED_ROOT}.*, got "):
            call(thing)
    with pytest.raises(TypeError, match=rf"^root\[1\]: {WANTED_ROOT} or a GradientEdge, got [\w.]*{type(thing).__name__}"):
        inspect([healthy, thing])


def test_message_for_a_wrong_root():
    with pytest.raises(TypeError) as raised:
        inspect(3)
    assert str(raised.value) == "root: expected a tensor, a grad_fn node, a GradientEdge or a sequence of them, got int"


@pytest.mark.parametrize("empty", [[], (), iter([]), {}.values()])
def test_empty_root(empty):
    with pytest.raises(ValueError, match="^root: expected at least one"):
        inspect(empty)


def test_missing_and_unknown_arguments(healthy):
    for arguments in ({}, {"root": healthy, "parameters": []}, {"root": healthy, "details": "all"}):
        for call in (inspect, torchgraphdbg.dump, torchgraphdbg.assert_healthy):
            with pytest.raises(TypeError):
                call(**arguments)
    with pytest.raises(TypeError):
        inspect(healthy, [])


def test_errors_of_an_iterator_come_through(healthy):
    def failing(first):
        yield first
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        inspect(failing(healthy))
    with pytest.raises(LookupError, match="mine"):
        inspect(healthy, params=failing(torch.ones(2)))
    with pytest.raises(LookupError, match="mine"):
        inspect(healthy, inputs=failing(torch.ones(2)))


def test_tensor_subclasses(leaf):
    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if Sub.closed:
                raise AssertionError("called")
            return super().__torch_function__(func, types, args, kwargs)
        closed = False

    x = torch.randn(3).as_subclass(Sub).requires_grad_()
    loss = (x * x).sum()
    Sub.closed = True
    try:
        report = inspect(loss, params={"x": x}, inputs=x)
        assert report.ok
        assert report.summary["parameters_reached"] == 1
    finally:
        Sub.closed = False


def test_no_node_wrapper_is_made(healthy):
    def nodes():
        return sum(type(o).__name__.endswith(("Backward0", "AccumulateGrad")) for o in gc.get_objects())
    before = nodes()
    report = inspect(healthy)
    list(report.graph.nodes), str(report)
    assert nodes() == before


def test_arguments_live_through_the_capture():
    """A generator hands over the only references there are."""
    def losses():
        for _ in range(100):
            yield (torch.randn(3, requires_grad=True) * 2).sum()

    def named():
        for i in range(100):
            yield f"p{i}", torch.randn(3, requires_grad=True)

    report = inspect(losses(), params=named())
    assert report.summary["nodes"] == 300
    assert report.summary["parameters"] == 100


# ---- params ----

def test_module(mlp, healthy):
    assert parameters(inspect(healthy, params=mlp)) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert parameters(inspect(healthy, params=torch.nn.ReLU())) == []
    assert parameters(inspect(healthy)) == []


def test_tied_weights():
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3, bias=False), "b": torch.nn.Linear(3, 3, bias=False)})
    model["b"].weight = model["a"].weight
    report = inspect(model["a"](torch.ones(2, 3)).sum(), params=model)
    assert parameters(report) == ["a.weight", "b.weight"]
    assert report.ok
    assert report.summary["parameters_reached"] == 2


def test_module_with_its_own_named_parameters(healthy):
    class Own(torch.nn.Module):
        def named_parameters(self):
            yield "mine", torch.nn.Parameter(torch.ones(2))

    report = inspect(healthy, params=Own())
    assert parameters(report) == ["mine"]


def test_module_whose_named_parameters_fails(healthy):
    class Failing(torch.nn.Module):
        def named_parameters(self, *args, **kwargs):
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        inspect(healthy, params=Failing())

    class Wrong(torch.nn.Module):
        def named_parameters(self, *args, **kwargs):
            return 3

    with pytest.raises(TypeError):
        inspect(healthy, params=Wrong())


def test_module_hooks_do_not_run(mlp, healthy):
    def refuse(*args):
        raise AssertionError("called")

    mlp.register_state_dict_pre_hook(refuse)
    mlp.register_forward_pre_hook(refuse)
    assert inspect(healthy, params=mlp).ok


def test_optimizer(mlp, healthy):
    optimizer = torch.optim.SGD([{"params": mlp[0].parameters()}, {"params": mlp[2].parameters(), "lr": 1}], 0.1)
    report = inspect(healthy, params=optimizer)
    assert report.ok
    assert parameters(report) == ["group 0 / param 0", "group 0 / param 1", "group 1 / param 0", "group 1 / param 1"]


@pytest.mark.parametrize("make", [dict, collections.OrderedDict, types.MappingProxyType, collections.ChainMap])
def test_mappings(make, leaf):
    report = inspect(leaf.sum(), params=make({"leaf": leaf}))
    assert parameters(report) == ["leaf"]
    assert report.ok


def test_iterables(leaf):
    other = torch.randn(64, 10, requires_grad=True)
    scalar = torch.tensor(1.0, requires_grad=True)
    loss = leaf.sum() + other.sum() + scalar
    named = [("leaf", leaf), ["other", other]]
    for params in (named, tuple(named), iter(named), (pair for pair in named), dict(named).items()):
        assert parameters(inspect(loss, params=params)) == ["leaf", "other"]
    tensors = [leaf, other, scalar]
    for params in (tensors, tuple(tensors), iter(tensors)):
        report = inspect(loss, params=params)
        assert parameters(report) == ["param 0 (3)", "param 1 (64x10)", "param 2 (scalar)"]
        assert report.ok
    assert inspect(loss, params=[]).ok


def test_a_generator_is_used_once(mlp, healthy):
    assert inspect(healthy, params=mlp.parameters()).summary["parameters_reached"] == 4
    assert inspect(healthy, params=mlp.named_parameters()).summary["parameters_reached"] == 4


def test_finding_bears_the_name(healthy):
    report = inspect(healthy, params={"mine": torch.nn.Parameter(torch.ones(2))})
    assert [f.parameter for f in report.findings if f.kind == "unreached-parameter"] == ["mine"]


@pytest.mark.parametrize("thing", [t for t in THINGS if t is not None and not isinstance(t, (dict, set))])
def test_wrong_params(thing, healthy, leaf):
    with pytest.raises(TypeError, match="^params: expected a module, an optimizer, a mapping.*, got "):
        inspect(healthy, params=thing)
    with pytest.raises(TypeError, match=r"^params\[1\]: expected a tensor or a pair"):
        inspect(healthy, params=[leaf, thing])
    with pytest.raises(TypeError, match="^params: expected a tensor under the name 'x', got"):
        inspect(healthy, params=[("x", thing)])
    with pytest.raises(TypeError, match="^params: expected a tensor under the name 'x', got"):
        inspect(healthy, params={"x": thing})


def test_a_single_tensor_is_no_params(healthy, leaf):
    with pytest.raises(TypeError, match="^params: .*, got Tensor; put a single tensor into a list"):
        inspect(healthy, params=leaf)
    with pytest.raises(TypeError, match="^params: .*, got Parameter"):
        inspect(healthy, params=torch.nn.Parameter(leaf))


@pytest.mark.parametrize("name", [3, None, b"name", ("a",), 1.5])
def test_names_that_are_no_str(name, healthy, leaf):
    for params in ({name: leaf}, [("first", leaf), (name, leaf)]):
        with pytest.raises(TypeError, match=r"^params\[\d\]: expected a name of type str, got"):
            inspect(healthy, params=params)


def test_duplicate_names(healthy, leaf):
    with pytest.raises(ValueError, match="^params: two tensors have the name 'same'"):
        inspect(healthy, params=[("same", leaf), ("other", leaf), ("same", torch.ones(2))])


HOSTILE = {
    "quotes": "\"'`",
    "markup": "</text><script>alert(1)</script>&amp;<!--",
    "cdata": "]]>",
    "newline": "a\nb\r\nc\td",
    "escape": "\x1b[31m\x07\x08",
    "c1": "\x80\x9b",
    "backslash": "\\N\\G\\l\\",
    "braces": "{|<f0>|}",
    "percent": "%s%n%d",
    "cjk": "権重.偏り.权重.가중치",
    "emoji": "🔥👩‍👩‍👧",
    "rtl": "\u202egnp.exe",
    "noncharacter": "\ufffe\uffff\U0010ffff",
    "surrogate": "a\udcffb\ud800",
    "empty": "",
    "spaces": "   ",
    "url": "javascript:alert(1)",
    "megabyte": "long" * 250_000,
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names(name, leaf):
    import xml.etree.ElementTree as ElementTree
    reached, unreached = "reached " + name, "unreached " + name
    report = inspect((leaf * 2).sum(), params={name: leaf, reached: leaf, unreached: torch.nn.Parameter(torch.ones(2))})
    finding, = (f for f in report.findings if f.kind == "unreached-parameter")
    assert finding.parameter == unreached
    assert report.graph.nodes[-1].parameter == name
    for text in (str(report), repr(report), report.verdict, finding.message, str(finding), repr(finding)):
        text.encode()
        assert not set(text) & set(map(chr, range(32))) - {"\n"}
    assert len(str(report)) < 20_000
    repr(report.graph.nodes[-1])
    svg = report._repr_svg_()
    ElementTree.fromstring(svg)
    assert "<script" not in svg and len(svg) < 100_000
    document = report.to_dict()
    assert document["parameters"][0]["name"].replace("\ufffd", "") == "".join(
        c for c in name if not "\ud800" <= c <= "\udfff")


def test_nul_in_a_name(leaf):
    report = inspect(leaf.sum(), params={"a\0b": leaf})
    assert report.graph.nodes[-1].parameter == "a\ufffdb"


def test_subclass_of_str_as_a_name(leaf):
    class Name(str):
        def __hash__(self):
            raise AssertionError("called")

        def __eq__(self, other):
            raise AssertionError("called")

        def encode(self, *args):
            raise AssertionError("called")

    assert parameters(inspect(leaf.sum(), params=[(Name("leaf"), leaf)])) == ["leaf"]
    assert type(inspect(leaf.sum(), params=[(Name("leaf"), leaf)]).graph.nodes[-1].parameter) is str


# ---- inputs ----

def test_inputs(leaf):
    other = torch.randn(3, requires_grad=True)
    loss = (leaf * other).sum()
    for inputs in (leaf, [leaf], (leaf,), iter([leaf])):
        report = inspect(loss, params={"leaf": leaf, "other": other}, inputs=inputs)
        assert report.summary["parameters_reached"] == 1
        assert [n.parameter for n in report.graph.nodes if n.name == "AccumulateGrad" and n.order is not None] == ["leaf"]


@pytest.mark.parametrize("thing", [t for t in THINGS if t is not None])
def test_wrong_inputs(thing, healthy, leaf):
    with pytest.raises(TypeError, match=r"^inputs(\[0\])?: expected a tensor.*, got"):
        inspect(healthy, inputs=thing)
    with pytest.raises(TypeError, match=rf"^inputs\[1\]: expected a tensor, got [\w.]*{type(thing).__name__}"):
        inspect(healthy, inputs=[leaf, thing])


def test_empty_inputs(healthy):
    with pytest.raises(ValueError, match="^inputs: expected at least one tensor"):
        inspect(healthy, inputs=[])
