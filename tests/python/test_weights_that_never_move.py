"""A parameter that gets a gradient and does not move: who should have moved it, and healthy loops stay silent."""
import gc
import sys
import warnings
import weakref

import pytest
import torch
from torch import nn

from torchgraphdbg import inspect, record


@pytest.fixture(autouse=True)
def no_optimizers_of_other_tests():
    gc.collect()


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def loss_of(model):
    return model(torch.randn(5, 4)).square().mean()


def line():
    return sys._getframe(1).f_lineno


def found(report):
    return [f for f in report.findings if f.kind == "not-in-optimizer"]


def check(report, names, where, *words, severity="warning"):
    findings = found(report)
    assert {f.parameter for f in findings} == set(names)
    for finding in findings:
        assert finding.severity == severity and finding.where.line == where and finding.where.file == __file__
        for word in words:
            assert word in finding.message, finding.message
        assert finding.hint
    assert report.ok == (severity == "note")


def test_in_no_optimizer():
    model = net()
    opt = torch.optim.SGD(model[0].parameters(), lr=0.1)
    with record(params=model) as rec:
        loss_of(model).backward()
        opt.step(); where = line()
    check(rec.report(), ["2.weight", "2.bias"], where, "in no optimizer")
    assert "never move" in rec.report().verdict and rec.report() is rec.reports[-1]
    check(rec.report(params=model), ["2.weight", "2.bias"], where)
    assert rec.report(params=model[0]).ok


def test_known_before_the_next_backward():
    model = net()
    opt = torch.optim.Adam(model[0].parameters())
    with record(params=model):
        loss_of(model).backward()
        assert inspect(loss_of(model), params=model).ok
        opt.step(); where = line()
        opt.zero_grad()
        check(inspect(loss_of(model), params=model), ["2.weight", "2.bias"], where)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}])
def test_replaced_after_the_optimizer_was_made(optimizer, options):
    model = net()
    opt = optimizer(model.parameters(), lr=0.1, **options)
    model[2].weight = nn.Parameter(torch.randn(1, 8))
    with record(params=model) as rec:
        for _ in range(2):
            opt.zero_grad()
            loss_of(model).backward()
            opt.step(); where = line()
    check(rec.report(), ["2.weight"], where, f"{optimizer.__name__}, group 0 / param 2", "replaced")


def test_every_parameter_replaced():
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for module in (model[0], model[2]):
        module.weight, module.bias = nn.Parameter(module.weight.clone()), nn.Parameter(module.bias.clone())
    with record(params=model) as rec:
        loss_of(model).backward()
        opt.step(); where = line()
    check(rec.report(), [n for n, _ in model.named_parameters()], where, "replaced")


def test_learning_rate_zero():
    model = net()
    groups = [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters()}]
    opt = torch.optim.SGD(groups, lr=0.1)
    with record(params=model) as rec:
        loss_of(model).backward()
        opt.step(); where = line()
        check(rec.report(), ["0.weight", "0.bias"], where, "learning rate is 0", severity="note")
        loss_of(model).backward()
        opt.step(); where = line()
    check(rec.report(), ["0.weight", "0.bias"], where, "learning rate is 0", "2 steps", "SGD, group 0 / param")


def test_scheduler_that_nobody_steps():
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: k / 10)
    with record(params=model) as rec:
        for k in range(4):
            opt.zero_grad()
            loss_of(model).backward()
            opt.step(); where = line()
            assert rec.report().ok == (k < 2)
    check(rec.report(), [n for n, _ in model.named_parameters()], where, "scheduler was never stepped")
    assert "scheduler.step()" in found(rec.report())[0].hint and scheduler.last_epoch == 0


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("to_none", [True, False])
def test_zero_grad_between(optimizer, to_none):
    model = net()
    opt = optimizer(model.parameters(), lr=0.1)
    with record(params=model) as rec:
        loss_of(model).backward()
        opt.zero_grad(set_to_none=to_none); where = line()
        opt.step()
    check(rec.report(), [n for n, _ in model.named_parameters()], where, "zeroed between backward and step()")
    assert f"test_weights_that_never_move.py:{where}" in rec.report().verdict


def test_grads_dropped_between():
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with record(params=model) as rec:
        loss_of(model).backward()
        model.zero_grad()
        opt.step(); where = line()
    check(rec.report(), [n for n, _ in model.named_parameters()], where, "gone when step() was called")


# ---- healthy ----

def silent(model, step, n=5):
    """Every report of n steps is ok."""
    with record(params=model) as rec:
        for k in range(n):
            step(k)
            report = rec.report()
            assert report.ok and not found(report), str(report)
    assert rec.report().ok


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad])
@pytest.mark.parametrize("options", [{}, {"foreach": False}])
def test_plain_training(optimizer, options):
    model = net()
    opt = optimizer(model.parameters(), lr=0.01, **options)

    def step(k):
        opt.zero_grad(set_to_none=k % 2 == 0)
        loss_of(model).backward()
        opt.step()
    silent(model, step)


@pytest.mark.parametrize("by_hand", [False, True])
def test_warm_up_from_zero(by_hand):
    model = net()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = None if by_hand else torch.optim.lr_scheduler.LambdaLR(opt, lambda k: min(1, k / 3))
    with record(params=model) as rec:
        for k in range(5):
            if by_hand:
                for group in opt.param_groups:
                    group["lr"] = 0.01 * k / 3
            opt.zero_grad()
            loss_of(model).backward()
            opt.step()
            assert rec.report().ok
            if scheduler is not None:
                scheduler.step()
                assert not found(rec.report())


def test_decay_to_zero():
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=4)

    def step(k):
        opt.zero_grad()
        loss_of(model).backward()
        opt.step()
        scheduler.step()
    silent(model, step, 4)


def test_gan_with_two_optimizers():
    generator, critic = net(), nn.Linear(1, 1)
    both = nn.ModuleDict({"generator": generator, "critic": critic})
    of_generator = torch.optim.Adam(generator.parameters())
    of_critic = torch.optim.Adam(critic.parameters())

    def step(k):
        fake = generator(torch.randn(5, 4))
        of_critic.zero_grad()
        (critic(fake.detach()).mean() - critic(torch.randn(5, 1)).mean()).backward()
        of_critic.step()
        of_generator.zero_grad()
        (-critic(fake).mean()).backward()
        of_generator.step()
    silent({n: p for n, p in both.named_parameters() if n.startswith("generator")}, step)
    silent(both, step)


def test_gan_where_only_one_steps_here():
    generator, critic = net(), nn.Linear(1, 1)
    both = nn.ModuleDict({"generator": generator, "critic": critic})
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)

    def step(k):
        of_generator.zero_grad()
        (-critic(generator(torch.randn(5, 4))).mean()).backward()
        of_critic.zero_grad()
        of_generator.step()
    silent(both, step)
    assert of_critic.param_groups


def test_no_step_at_all():
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(k):
        opt.zero_grad()
        loss_of(model).backward()
    silent(model, step)


def test_updated_by_hand():
    model = net()
    opt = torch.optim.SGD(model[0].parameters(), lr=0.1)

    def step(k):
        model.zero_grad()
        loss_of(model).backward()
        opt.step()
        with torch.no_grad():
            for p in model[2].parameters():
                p -= 0.1 * p.grad
    with record(params=model) as rec:
        for k in range(4):
            step(k)
    assert rec.report().ok


def test_updated_by_hand_every_other_step():
    model = net()
    opt = torch.optim.SGD(model[0].parameters(), lr=0.1)
    with record(params=model) as rec:
        for k in range(4):
            model.zero_grad()
            loss_of(model).backward()
            opt.step()
            if k % 2 == 0:
                for p in model[2].parameters():
                    p.data.add_(p.grad, alpha=-0.1)
    assert rec.report().ok


def test_accumulation_over_micro_batches():
    model = net()
    opt = torch.optim.Adam(model.parameters())

    def step(k):
        for _ in range(3):
            loss_of(model).backward()
        if k % 2 == 1:
            opt.step()
            opt.zero_grad()
    silent(model, step, 6)


def test_step_that_a_scaler_skips():
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device="cpu", init_scale=2.0 ** 60)
    with record(params=model) as rec:
        for _ in range(3):
            opt.zero_grad()
            scaler.scale(loss_of(model) * 1e30).backward()
            scaler.step(opt)
            scaler.update()
            assert rec.report().ok
        scaler = torch.amp.GradScaler(device="cpu", init_scale=8.0)
        for _ in range(2):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.step(opt)
            scaler.update()
            assert rec.report().ok


def test_lbfgs():
    model = net()
    opt = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        opt.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss
    silent(model, lambda k: opt.step(closure), 3)


def test_frozen_backbone_and_average():
    model, average = net(), net()
    model[0].requires_grad_(False)
    average.requires_grad_(False)
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    def step(k):
        opt.zero_grad()
        loss_of(model).backward()
        opt.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.lerp_(p, 0.1)
    silent(model, step)


def test_optimizer_that_is_gone():
    model = net()

    def train():
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        loss_of(model).backward()
        opt.step()
    other = torch.optim.SGD(net().parameters(), lr=0.1)
    silent(model, lambda k: train())
    assert other.param_groups


def test_gradients_taken_and_not_accumulated():
    model = net()
    opt = torch.optim.SGD(model[0].parameters(), lr=0.1)
    with record(params=model) as rec:
        loss_of(model).backward(inputs=list(model[0].parameters()))
        opt.step()
    assert rec.report().ok
    with record(params=model) as rec:
        for p, g in zip(model.parameters(), torch.autograd.grad(loss_of(model), list(model.parameters()))):
            p.grad = g
        opt.step()
    assert rec.report().ok


def test_params_given_as_the_optimizer():
    model = net()
    opt = torch.optim.SGD(model[0].parameters(), lr=0.1)
    with record(params=opt) as rec:
        loss_of(model).backward()
        opt.step()
    assert rec.report().ok


def test_own_optimizer_class():
    class Plain(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data = p.data - 0.1 * p.grad
    model = net()
    opt = Plain(model.parameters())

    def step(k):
        model.zero_grad()
        loss_of(model).backward()
        opt.step()
    silent(model, step)


def test_optimizer_that_steps_now_and_then():
    """step() returns early while it collects gradients of its own."""
    class Lazy(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})
            self.sums, self.calls = {}, 0

        @torch.no_grad()
        def step(self, closure=None):
            self.calls += 1
            for p in (p for g in self.param_groups for p in g["params"]):
                self.sums[p] = self.sums.get(p, 0) + p.grad.clone()
                if self.calls % 3 == 0:
                    p -= 0.1 * self.sums.pop(p)
    model = net()
    opt = Lazy(model.parameters())

    def step(k):
        loss_of(model).backward()
        opt.step()
        model.zero_grad()
    silent(model, step)


def test_own_optimizer_with_learning_rate_zero():
    class Own(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.0})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p -= group["lr"] * p.grad
    model = net()
    opt = Own(model.parameters())
    with record(params=model) as rec:
        for _ in range(2):
            loss_of(model).backward()
            opt.step(); where = line()
    check(rec.report(), [n for n, _ in model.named_parameters()], where, "Own, group 0", "2 steps")


def test_clipped_weights_of_a_critic():
    model = net()
    opt = torch.optim.RMSprop(model.parameters())

    def step(k):
        opt.zero_grad()
        loss_of(model).backward()
        opt.step()
        for p in model.parameters():
            p.data.clamp_(-0.01, 0.01)
    silent(model, step)


def test_compiled_step_is_left_alone():
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(opt.step, backend="eager")

    def step(k):
        opt.zero_grad()
        loss_of(model).backward()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled()
    silent(model, step, 3)


def test_nothing_is_kept_alive():
    model = net()
    opt = torch.optim.SGD(model[0].parameters(), lr=0.1)
    with record() as rec:
        loss_of(model).backward()
        opt.step()
    report = rec.report(params=model)
    assert found(report)
    dead = [weakref.ref(opt), weakref.ref(model), *(weakref.ref(p) for p in model.parameters())]
    del model, opt
    gc.collect()
    assert [d() for d in dead] == [None] * len(dead) and found(report)[0].parameter
