"""The triage names the cause: nets whose fault is known, beside the same nets well initialised."""
import pytest
import torch
import torchgraphdbg as tgd
from torch import nn
from torch.nn import functional as F

from healthy_models import Block, Gpt


def look(make, params=None):
    with tgd.record() as rec:
        make().backward()
    return rec.report(params=params)


def loud(report):
    return [f for f in report.findings if f.severity != "note"]


def the(report, kind):
    found = [f for f in loud(report) if f.kind == kind]
    assert found, [str(f) for f in report.findings]
    return found[0]


def stack(layers, activation, gain=None, width=32):
    torch.manual_seed(3)
    net = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), activation())],
                        nn.Linear(width, 4))
    for m in net:
        if gain is not None and isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=gain / width ** 0.5)
            nn.init.zeros_(m.bias)
    x, y = torch.randn(16, width), torch.randint(0, 4, (16,))
    return net, lambda: F.cross_entropy(net(x), y)


@pytest.mark.parametrize("layers", [20, 50, 90])
def test_a_deep_sigmoid_net_vanishes_at_its_sigmoids(layers):
    net, step = stack(layers, nn.Sigmoid)
    report = look(step, net)
    finding = the(report, "vanishing-gradient")
    assert finding.node.name == "SigmoidBackward0" and finding.op == "sigmoid"
    assert "vanishes" in report.verdict and "SigmoidBackward0" in report.verdict


def test_a_deep_relu_net_well_initialised_is_silent():
    net, step = stack(50, nn.ReLU, 2 ** 0.5)
    assert not loud(look(step, net))


def test_a_deep_net_with_large_weights_explodes_at_its_layers():
    net, step = stack(20, nn.ReLU, 6.0)
    assert the(look(step, net), "exploding-gradient").node.name == "AddmmBackward0"


def recurrence(scale, steps=200):
    torch.manual_seed(4)
    first, rec, head = nn.Linear(3, 16), nn.Linear(16, 16, bias=False), nn.Linear(16, 1)
    with torch.no_grad():
        nn.init.orthogonal_(rec.weight).mul_(scale)
    net, x = nn.ModuleList([first, rec, head]), 0.02 * torch.randn(steps, 4, 3)

    def step():
        h = torch.zeros(4, 16)
        for t in range(steps):
            h = torch.tanh(rec(h) + 0.05 * first(x[t]))
        return (head(h) - 1).square().mean()
    return net, step


def test_a_long_tanh_recurrence_fades_over_its_steps():
    net, step = recurrence(0.6)
    report = look(step, net)
    finding = the(report, "vanishing-gradient")
    assert "time steps" in report.verdict and "time steps" in finding.message


def test_the_same_recurrence_orthogonal_is_silent():
    net, step = recurrence(1.0)
    assert not loud(look(step, net))


def test_a_module_rnn_of_200_steps_fades_over_its_steps():
    torch.manual_seed(5)
    net, x = nn.RNN(3, 16), torch.randn(200, 2, 3)
    assert "time steps" in look(lambda: net(x)[0][-1].square().mean(), net).verdict


class ResNet18(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *[Block(8, norm) for _ in range(8)])
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, lambda width: nn.Identity()], ids=["norm", "plain"])
def test_a_residual_net_is_silent_and_with_large_weights_without_norm_explodes(norm):
    torch.manual_seed(6)
    net, x, y = ResNet18(norm), torch.randn(4, 3, 12, 12), torch.randint(0, 10, (4,))
    assert not loud(look(lambda: F.cross_entropy(net(x), y), net))
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.normal_(m.weight, std=0.5)
    report = look(lambda: F.cross_entropy(net(x), y), net)
    if norm is nn.BatchNorm2d:
        assert not loud(report)  # the norm takes the scale out
    else:
        assert the(report, "exploding-gradient").node.name == "ConvolutionBackward0"


def test_a_gpt_with_large_weights_is_told_from_one_well_initialised():
    torch.manual_seed(7)
    net, x = Gpt(6), torch.arange(8 * 13).reshape(8, 13) % 17

    def step():
        return F.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    assert not loud(look(step, net))
    for name, p in net.named_parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=5.0)
    report = look(step, net)

    assert "explodes" in report.verdict and the(report, "exploding-gradient").node.name != "AccumulateGrad"


def test_float16_without_a_scale_underflows_and_with_one_does_not():
    torch.manual_seed(8)
    net, x, y = nn.Linear(6, 6), torch.randn(8, 6), torch.randn(8, 6)

    def step(scale=1.0):
        return F.mse_loss(F.linear(x.half(), net.weight.half()).float(), y) * 1e-8 * scale
    finding = the(look(step, net), "gradient-underflow")
    assert finding.parameter == "weight" and "GradScaler" in finding.hint
    assert not [f for f in loud(look(lambda: step(1e8), net)) if f.kind != "unreached-parameter"]


def test_an_infinity_while_the_scale_settles_is_a_note():
    torch.manual_seed(9)
    net, x = nn.Linear(6, 6, bias=False), torch.randn(8, 6)
    scale = torch.tensor(2.0 ** 40)

    def step():
        return (F.linear(x.half(), net.weight.half()).float().square().mean()) * scale
    report = look(step, net)
    assert not loud(report)
    assert any(f.kind == "inf-gradient" and f.severity == "note" for f in report.findings)


BIRTHS = {
    "sqrt": (lambda w: w.sqrt(), [0.0, 1.0], "inf-gradient", "SqrtBackward0"),
    "log": (lambda w: w.log(), [0.0, 1.0], "inf-gradient", "LogBackward0"),
    "norm": (lambda w: w.pow(0.5), [0.0, 1.0], "inf-gradient", "PowBackward0"),
    "where": (lambda w: torch.where(w > 0, w.sqrt(), w), [0.0, 1.0], "nan-gradient", "SqrtBackward0"),
    "divide": (lambda w: torch.where(w > 0, 1 / w, w), [0.0, 1.0], "nan-gradient", "ReciprocalBackward0"),
    "acos": (lambda w: w.acos(), [1.0, 0.5], "inf-gradient", "AcosBackward0"),
}


@pytest.mark.parametrize("name", BIRTHS)
def test_births_are_named_at_the_node_that_makes_them(name):
    make, values, kind, node = BIRTHS[name]
    w = nn.Parameter(torch.tensor(values))
    report = look(lambda: make(w).sum(), {"w": w})
    finding = the(report, kind)
    assert finding.node.name == node and finding.severity == "error" and finding.hint
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        w.grad = None
        make(w).sum().backward()
    assert not torch.isfinite(w.grad).all()  # plain PyTorch agrees


def test_dropout_of_everything_is_named_and_a_layer_dropped_by_chance_is_not():
    torch.manual_seed(12)
    first, head, x = nn.Linear(6, 6), nn.Linear(6, 2), torch.randn(5, 6)
    params = nn.ModuleList([first, head])
    finding = the(look(lambda: (head(F.dropout(first(x), 1.0)) - 1).square().mean(), params), "zero-gradient")
    assert finding.op == "dropout" and finding.node.name == "MulBackward0" and not first.weight.grad.any()
    report = look(lambda: (head(first(x) * torch.empty(5, 1).bernoulli_(0.0)) - 1).square().mean(), params)
    assert not loud(report)


def test_a_mean_in_float16_of_a_tiny_gradient_underflows():
    torch.manual_seed(13)
    net, scale = nn.Linear(64, 64).half(), nn.Parameter(torch.ones((), dtype=torch.half))
    x = torch.randn(64, 64).half()

    def step(factor):
        return (net(x).square().mean() * scale * factor).float()
    finding = the(look(lambda: step(1e-5), {"weight": net.weight, "scale": scale}), "gradient-underflow")
    assert finding.node.name == "MeanBackward0" and finding.parameter == "weight" and not net.weight.grad.any()
    net.weight.grad = None
    assert not loud(look(lambda: step(1.0), {"weight": net.weight, "scale": scale})) and net.weight.grad.any()


def test_a_hinge_that_is_satisfied_is_no_dead_unit():
    net = nn.Linear(3, 1)
    x = torch.randn(5, 3)
    report = look(lambda: F.relu(net(x) - 100).mean(), net)
    assert not loud(report) and any(f.kind == "zero-gradient" for f in report.findings)


def test_a_zero_gradient_counts_only_where_a_whole_parameter_has_none():
    torch.manual_seed(10)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        net[0].bias[:7] = -50.0
        net[0].bias[7] = 50.0
    x = torch.randn(6, 4)
    assert not loud(look(lambda: net(x).square().mean(), net))
    with torch.no_grad():
        net[0].bias[7] = -50.0
    finding = the(look(lambda: net(x).square().mean(), net), "zero-gradient")
    assert finding.op == "relu" and finding.parameter == "0.weight"


def test_a_gradient_that_faded_to_zero_vanished_and_was_not_cut():
    net, step = stack(90, nn.Sigmoid)
    kinds = {f.kind for f in loud(look(step, net))}
    assert kinds == {"vanishing-gradient"}


def test_findings_come_back_from_json(tmp_path):
    net, step = stack(20, nn.Sigmoid)
    report = look(step, net)
    report.save(tmp_path / "r.json")
    again = tgd.load(tmp_path / "r.json")
    assert again.verdict == report.verdict
    assert [(f.kind, f.message, f.hint) for f in again.findings] == \
        [(f.kind, f.message, f.hint) for f in report.findings]


def test_slow_lookups_are_named_and_quick_ones_are_not():
    torch.manual_seed(11)
    rows = torch.randint(0, 200_000, (8,))
    for sparse in (False, True):
        table, head = nn.Embedding(200_000, 64, sparse=sparse), nn.Linear(64, 4)
        report = look(lambda: head(table(rows)).square().mean(), {"table": table.weight})
        slow = [f for f in loud(report) if f.kind == "slow-node"]
        assert len(slow) == (not sparse)
        if slow:
            assert slow[0].node.name == "EmbeddingBackward0" and "sparse=True" in slow[0].hint
