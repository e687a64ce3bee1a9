"""Training steps, for what watching them costs. Each function returns (model, step): step() is one whole step."""

import torch
import torch.nn.functional as F
from torch import nn

import models


class TinyOps(nn.Module):
    """More than a hundred ops of 16x16: next to no arithmetic, so that every other cost shows."""

    def __init__(self, layers=20):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(16, 16) * 0.1) for _ in range(layers))

    def forward(self, x):
        for weight in self.weights:
            h = torch.tanh(x @ weight)
            x = (x + h * 0.5) * torch.sigmoid(h)
        return x


class BasicBlock(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels)
        self.shortcut = None
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                                          nn.BatchNorm2d(channels))

    def forward(self, x):
        out = F.relu(self.norm1(self.conv1(x)), inplace=True)
        out = self.norm2(self.conv2(out))
        out += x if self.shortcut is None else self.shortcut(x)
        return F.relu(out, inplace=True)


def resnet18():
    blocks, channels_in = [], 64
    for stage in range(4):
        for block in range(2):
            channels = 64 << stage
            blocks.append(BasicBlock(channels_in, channels, 2 if stage and not block else 1))
            channels_in = channels
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                         nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def training(model, loss):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return model, step


def tiny():
    model, x = TinyOps(), torch.randn(16, 16)
    return training(model, lambda: model(x).mean())


def transformer():
    model = models.Gpt(layers=6)
    tokens = torch.randint(100, (8, 16))
    return training(model, lambda: F.cross_entropy(model(tokens).view(-1, 100), tokens.view(-1)))


def resnet():
    model, x, y = resnet18(), torch.randn(8, 3, 64, 64), torch.randint(1000, (8,))
    return training(model, lambda: F.cross_entropy(model(x), y))


STEPS = {"tiny": tiny, "transformer": transformer, "resnet18": resnet}
