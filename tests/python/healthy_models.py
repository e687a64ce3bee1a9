"""Healthy models in training, for the gate of the triage: none of their steps may get a warning. name -> function that
returns (model, step), where step(i) runs forward and returns the loss of the i-th step."""
import math

import torch
from torch import nn
from torch.nn import functional as F

MODELS = {}


def model(function):
    MODELS[function.__name__] = function
    return function


def digits(n=96, classes=10, seed=0):
    """Small pictures of classes that can be told apart."""
    g = torch.Generator().manual_seed(seed)
    means = torch.randn(classes, 64, generator=g)
    y = torch.randint(0, classes, (n,), generator=g)
    return means[y] + 0.5 * torch.randn(n, 64, generator=g), y


def classify(net, shape=(64,), n=96):
    x, y = digits(n)
    return net, lambda i: F.cross_entropy(net(x.reshape(-1, *shape)), y)


@model
def mlp():
    return classify(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))


@model
def deep_mlp_kaiming():
    net = nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(64, 64), nn.ReLU())], nn.Linear(64, 10))
    for m in net:
        if isinstance(m, nn.Linear):
            nn.init.kaiming_normal_(m.weight)
            nn.init.zeros_(m.bias)
    return classify(net)


@model
def deep_tanh_xavier():
    net = nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(64, 64), nn.Tanh())], nn.Linear(64, 10))
    for m in net:
        if isinstance(m, nn.Linear):
            nn.init.xavier_normal_(m.weight, gain=5 / 3)
    return classify(net)


@model
def sigmoid_mlp():
    return classify(nn.Sequential(nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, 32), nn.Sigmoid(), nn.Linear(32, 10)))


@model
def dropout_mlp():
    return classify(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10)))


@model
def cnn():
    return classify(nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3),
                                  nn.ReLU(), nn.Flatten(), nn.Linear(64, 10)), (1, 8, 8))


class Block(nn.Module):
    def __init__(self, width, norm):
        super().__init__()
        self.a, self.b = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.na, self.nb = norm(width), norm(width)

    def forward(self, x):
        return F.relu(x + self.nb(self.b(F.relu(self.na(self.a(x))))))


def resnet(norm, zero=False):
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), *[Block(8, norm) for _ in range(4)], nn.AdaptiveAvgPool2d(1),
                        nn.Flatten(), nn.Linear(8, 10))
    for m in net.modules():
        if zero and isinstance(m, Block):
            nn.init.zeros_(m.nb.weight)
    return classify(net, (1, 8, 8), 32)


@model
def resnet_with_batch_norm():
    return resnet(nn.BatchNorm2d)


@model
def resnet_without_norm():
    return resnet(lambda width: nn.Identity())


@model
def resnet_with_zero_init():
    return resnet(nn.BatchNorm2d, True)


class Gpt(nn.Module):
    def __init__(self, n=2, d=32, words=17):
        super().__init__()
        self.words, self.places = nn.Embedding(words, d), nn.Parameter(torch.zeros(12, d))
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(d, 4, 4 * d, 0.0, "gelu", batch_first=True,
                                                               norm_first=True) for _ in range(n))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, words, bias=False)

    def forward(self, x):
        mask = torch.full((x.shape[1], x.shape[1]), -math.inf).triu(1)
        h = self.words(x) + self.places[:x.shape[1]]
        for block in self.blocks:
            h = block(h, src_mask=mask)
        return self.head(self.norm(h))


@model
def gpt():
    net = Gpt()
    x = torch.arange(8 * 13).reshape(8, 13) % 17
    return net, lambda i: F.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


@model
def gpt_bfloat16():
    net, step = gpt()

    def cast(i):
        with torch.autocast("cpu", torch.bfloat16):
            return step(i)
    return net, cast


def recurrent(cell, steps=24):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = cell(4, 24, batch_first=True), nn.Linear(24, 10)

        def forward(self, x):
            return self.head(self.cell(x)[0][:, -1])
    net = Net()
    x, y = digits(48)
    return net, lambda i: F.cross_entropy(net(x.reshape(48, 16, 4)), y)


@model
def lstm():
    return recurrent(nn.LSTM)


@model
def gru():
    return recurrent(nn.GRU)


@model
def tanh_rnn_orthogonal_200_steps():
    first, rec, head = nn.Linear(3, 16), nn.Linear(16, 16, bias=False), nn.Linear(16, 1)
    nn.init.orthogonal_(rec.weight)
    net = nn.ModuleList([first, rec, head])
    x = 0.02 * torch.randn(200, 4, 3)

    def step(i):
        h = torch.zeros(4, 16)
        for t in range(200):
            h = torch.tanh(rec(h) + 0.05 * first(x[t]))
        return (head(h) - 1).square().mean()
    return net, step


@model
def autoencoder():
    net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4), nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 64))
    x = digits()[0]
    return net, lambda i: F.mse_loss(net(x), x)


@model
def vae():
    encoder, decoder = nn.Linear(64, 8), nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64))
    x = digits()[0]

    def step(i):
        mean, log = encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (log / 2).exp()
        return F.mse_loss(decoder(z), x) + 1e-3 * (mean.square() + log.exp() - 1 - log).sum(1).mean()
    return nn.ModuleList([encoder, decoder]), step


@model
def gan():
    make = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64), nn.Tanh())
    judge = nn.Sequential(nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    x = digits()[0].tanh()

    def step(i):
        fake = make(torch.randn(96, 8))
        if i % 2:
            return F.binary_cross_entropy_with_logits(judge(fake), torch.ones(96, 1))
        return F.relu(1 - judge(x)).mean() + F.relu(1 + judge(fake.detach())).mean()
    return nn.ModuleList([make, judge]), step


@model
def discriminator_with_sigmoid_and_bce():
    net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
    x, y = digits()
    return net, lambda i: F.binary_cross_entropy(net(x), (y > 4).float()[:, None])


@model
def policy_gradient():
    net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))

    def step(i):
        x = torch.randn(32, 6)
        d = torch.distributions.Categorical(logits=net(x))
        action = d.sample()
        reward = (action == x[:, :3].argmax(1)).float() * (i % 7 > 0)  # no reward at all now and then
        return -(d.log_prob(action) * reward).mean() if i % 5 else -(d.log_prob(action) * (reward * 0)).mean()
    return net, step


@model
def ppo_clip():
    net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
    old = [None]

    def step(i):
        x = torch.randn(32, 6, generator=torch.Generator().manual_seed(i // 4))
        d = torch.distributions.Categorical(logits=net(x))
        if i % 4 == 0:
            a = d.sample()
            old[0] = (a, d.log_prob(a).detach(), torch.randn(32))
        a, log, advantage = old[0]
        ratio = (d.log_prob(a) - log).exp()
        return -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    return net, step


@model
def triplet_margin():
    net = nn.Linear(64, 8)
    x, y = digits()
    first = x[y == 0][:3]
    return net, lambda i: F.triplet_margin_loss(net(first[:1]), net(first[1:2]), net(x[y != 0][:1]), margin=0.1)


@model
def lora():
    base, a, b = nn.Linear(64, 10), nn.Linear(64, 4, bias=False), nn.Linear(4, 10, bias=False)
    base.requires_grad_(False)
    nn.init.zeros_(b.weight)
    x, y = digits()
    return nn.ModuleList([a, b]), lambda i: F.cross_entropy(base(x) + b(a(x)), y)


@model
def zero_head():
    net = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 10))
    nn.init.zeros_(net[2].weight)
    return classify(net)


@model
def large_embedding_sparse():
    table, head = nn.Embedding(20000, 32, sparse=True), nn.Linear(32, 10)
    x, y = torch.randint(0, 20000, (48,)), torch.randint(0, 10, (48,))
    return nn.ModuleList([head, table]), lambda i: F.cross_entropy(head(table(x)), y)


@model
def large_matmul():
    return classify(nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 10)))


@model
def stochastic_depth():
    """Whole layers are dropped, now and then all samples of a small batch at once."""
    layers, head = nn.ModuleList(nn.Linear(64, 64) for _ in range(4)), nn.Linear(64, 10)
    x, y = digits(2)

    def step(i):
        h = x
        for layer in layers:
            keep = torch.empty(2, 1).bernoulli_(0.6)
            h = h + F.relu(layer(h)) * keep.div_(0.6)
        return F.cross_entropy(head(h), y)
    return nn.ModuleList([layers, head]), step


@model
def loss_scaled_by_hand():
    """As amp.GradScaler does: a power of two, warm-up and all."""
    net, step = mlp()
    return net, lambda i: step(i) * torch.tensor(2.0 ** 16)


@model
def learning_rate_warm_up_converged():
    net = nn.Linear(64, 10)
    x, y = digits(24)
    return net, lambda i: F.cross_entropy(net(x) * min(1 + i, 30), y)
