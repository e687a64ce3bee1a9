"""Train a small ResNet on scanned digits, break one step the way people do, and ask torchgraphdbg what is wrong.

    python examples/quickstart.py [--picture torchgraphdbg.svg]

Needs scikit-learn for its 1,797 scanned digits, which come with that package. Runs on the CPU.
"""

import argparse
import pathlib
import sys

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import torchgraphdbg


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.save_memory = False

    def forward(self, x):
        out = F.relu(self.norm1(self.conv1(x)))
        out = F.relu(self.norm2(self.conv2(out)))
        if self.save_memory:
            out += x  # the fault: relu saved its result for backward, and this overwrites it
        else:
            out = out + x
        return out


class DigitsResNet(nn.Module):
    def __init__(self, channels=16, blocks=3):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.blocks = nn.Sequential(*(Residual(channels) for _ in range(blocks)))
        self.head = nn.Linear(channels, 10)

    def forward(self, x):
        x = self.blocks(F.relu(self.stem(x)))
        return self.head(x.mean(dim=(2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=pathlib.Path, default=pathlib.Path("torchgraphdbg.svg"))
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)  # the net is too small for more to help
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)

    model = DigitsResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def loss_of_batch():
        batch = torch.randint(len(images), (64,))
        return F.cross_entropy(model(images[batch]), labels[batch])

    print(f"torch {torch.__version__}: {len(images)} scanned digits, "
          f"{sum(p.numel() for p in model.parameters()):,} weights")
    for step in range(arguments.steps):
        loss = loss_of_batch()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == arguments.steps - 1:
            print(f"step {step:3d}   loss {loss.item():.3f}")

    print('\nNow block 1 "saves memory" with `out += x`. torchgraphdbg.dump(loss, params=model) before backward:\n',
          flush=True)
    model.blocks[1].save_memory = True
    with torchgraphdbg.record(params=model):  # without it: the same fault, but no line
        loss = loss_of_batch()
        report = torchgraphdbg.dump(loss, arguments.picture, params=model, file=sys.stdout)

    print("\nWhat loss.backward() does:\n", flush=True)
    try:
        loss.backward()
    except RuntimeError as error:
        print(f"RuntimeError: {error}")
        if report.ok:
            sys.exit("torchgraphdbg had not seen it coming: " + report.verdict)
    else:
        sys.exit("backward passed, and torchgraphdbg had said: " + report.verdict)

    print(f"\nVerdict: {report.verdict}\nPicture: {arguments.picture}")


if __name__ == "__main__":
    main()
