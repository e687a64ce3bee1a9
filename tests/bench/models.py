"""The graphs that the benchmarks look at. Each function returns (loss, named parameters or None)."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=2))
        weights = q @ k.transpose(2, 3) / (width // self.heads) ** 0.5
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = F.dropout(weights.masked_fill(mask, float("-inf")).softmax(-1), 0.1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class GptLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + F.dropout(self.attention(self.norm1(x)), 0.1)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), 0.1)


class Gpt(nn.Module):
    def __init__(self, layers=12, width=64, heads=4, words=100, length=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(GptLayer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def gpt(layers=12):
    model = Gpt(layers)
    tokens = torch.randint(100, (2, 16))
    loss = F.cross_entropy(model(tokens).view(-1, 100), tokens.view(-1))
    return loss, dict(model.named_parameters())


class Bottleneck(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        channels_out = 4 * channels
        self.conv1, self.norm1 = nn.Conv2d(channels_in, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.conv3, self.norm3 = nn.Conv2d(channels, channels_out, 1, bias=False), nn.BatchNorm2d(channels_out)
        self.shortcut = None
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                                          nn.BatchNorm2d(channels_out))

    def forward(self, x):
        out = F.relu(self.norm1(self.conv1(x)), inplace=True)
        out = F.relu(self.norm2(self.conv2(out)), inplace=True)
        out = self.norm3(self.conv3(out))
        out += x if self.shortcut is None else self.shortcut(x)
        return F.relu(out, inplace=True)


def resnet50(base=8):
    """The 50-layer plan (3, 4, 6, 3 bottlenecks) with few channels: the graph is the same, the arithmetic small."""
    stages, channels_in = [], base
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            channels = base << stage
            stages.append(Bottleneck(channels_in, channels, 2 if stage and not block else 1))
            channels_in = 4 * channels
    model = nn.Sequential(nn.Conv2d(3, base, 7, 2, 3, bias=False), nn.BatchNorm2d(base), nn.ReLU(inplace=True),
                          nn.MaxPool2d(3, 2, 1), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(channels_in, 10))
    loss = F.cross_entropy(model(torch.randn(2, 3, 64, 64)), torch.tensor([1, 2]))
    return loss, dict(model.named_parameters())


def lstm(cells=200):
    model = nn.LSTMCell(8, 16)
    head = nn.Linear(16, 1)
    state = torch.zeros(2, 16), torch.zeros(2, 16)
    for _ in range(cells):
        state = unfused_cell(model, torch.randn(2, 8), state)
    loss = head(state[0]).mean()
    return loss, {f"{part}.{name}": p for part, module in (("cell", model), ("head", head))
                  for name, p in module.named_parameters()}


def unfused_cell(cell, x, state):
    """What an LSTM cell computes, op by op, as hand-written cells do: about 15 nodes each."""
    h, c = state
    gates = F.linear(x, cell.weight_ih, cell.bias_ih) + F.linear(h, cell.weight_hh, cell.bias_hh)
    i, f, g, o = gates.chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def chain(length):
    """x -> sin -> sin -> ...: one saved tensor and one edge a node."""
    x = torch.ones(1, requires_grad=True)
    for _ in range(length):
        x = x.sin()
    return x.sum(), None


GRAPHS = {
    "resnet50": resnet50,
    "gpt12": gpt,
    "lstm200": lstm,
    "chain1e4": lambda: chain(10_000),
    "chain1e5": lambda: chain(100_000),
    "chain3e5": lambda: chain(300_000),
    "chain1e6": lambda: chain(1_000_000),
}
