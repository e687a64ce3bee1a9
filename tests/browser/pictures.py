"""The twelve pictures by which the sheet is judged: draw each, and photograph it in Chromium.

    python tests/browser/pictures.py FOLDER [--only NAME ...] [--no-screenshots]

FOLDER gets NAME.svg, and NAME.fit.png (900x600, fitted to the window as VS Code shows it), NAME.full.png (full size)
and NAME.dark.png. Needs torch, numpy and torchgraphdbg; t5 also transformers; the screenshots need chromium.
"""

import argparse
import pathlib
import resource
import sys

import torch
import torch.nn.functional as F
from torch import nn

import torchgraphdbg


def recorded(model, step):
    """The report on a step that was recorded, whether its backward raised or not."""
    with torchgraphdbg.record(params=model) as recorder:
        try:
            step()
        except RuntimeError:
            pass
    return recorder.report()


# ---- a ResNet with `out += x` (the quickstart's) ----


class Residual(nn.Module):
    def __init__(self, channels, save_memory):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.save_memory = save_memory

    def forward(self, x):
        out = F.relu(self.norm1(self.conv1(x)))
        out = F.relu(self.norm2(self.conv2(out)))
        if self.save_memory:
            out += x  # relu saved its result for backward
        else:
            out = out + x
        return out


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.blocks = nn.Sequential(*(Residual(16, save_memory=i == 1) for i in range(3)))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.blocks(F.relu(self.stem(x)))
        return self.head(x.mean(dim=(2, 3)))


def resnet():
    model = ResNet()
    images, labels = torch.rand(64, 1, 8, 8), torch.randint(10, (64,))
    return recorded(model, lambda: F.cross_entropy(model(images), labels).backward())


# ---- a healthy GPT-2 of twelve layers ----


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, 4, width // 4).transpose(1, 2) for t in self.c_attn(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width)
        self.ln_2, self.mlp = nn.LayerNorm(width), MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, layers=12, width=128, words=512):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(words, width),
            "wpe": nn.Embedding(64, width),
            "h": nn.ModuleList(Block(width) for _ in range(layers)),
            "ln_f": nn.LayerNorm(width),
        })
        self.lm_head = nn.Linear(width, words, bias=False)

    def forward(self, words):
        x = self.transformer["wte"](words) + self.transformer["wpe"](torch.arange(words.shape[1]))
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


def gpt2():
    model = GPT2()
    words = torch.randint(512, (4, 65))
    return recorded(model, lambda: F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten()).backward())


# ---- fifty layers of sigmoid: the gradient vanishes ----


class SigmoidNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(784, 128)
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(50))
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        x = torch.sigmoid(self.stem(x))
        for layer in self.layers:
            x = torch.sigmoid(layer(x))
        return self.head(x)


def sigmoid50():
    model = SigmoidNet()
    images, labels = torch.randn(64, 784), torch.randint(10, (64,))
    return recorded(model, lambda: F.cross_entropy(model(images), labels).backward())


# ---- an LSTM unrolled over 200 steps, one of which is overwritten ----


class Unrolled(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.cell, self.head, self.fault = nn.LSTMCell(32, 64), nn.Linear(64, 1), fault

    def forward(self, steps):
        h = c = torch.zeros(steps.shape[1], 64)
        for t, x in enumerate(steps):
            h, c = self.cell(x, (h, c))
            if t == self.fault:
                h.mul_(0.9)  # the cell saved what made h, the next step saves h
                c = torch.tanh(c)
                c.add_(0.01)
        return self.head(h)


def lstm200():
    model = Unrolled(fault=17)
    return recorded(model, lambda: model(torch.randn(200, 8, 32)).square().mean().backward())


# ---- a GAN whose optimizer changes the weights that the other loss still needs ----


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
        self.discriminator = nn.Sequential(nn.Linear(32, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2),
                                           nn.Linear(64, 1))


def gan():
    model = GAN()
    of_generator = torch.optim.Adam(model.generator.parameters())
    of_discriminator = torch.optim.Adam(model.discriminator.parameters())

    def step():
        fake = model.generator(torch.randn(32, 16))
        verdict = model.discriminator(fake)
        real = model.discriminator(torch.randn(32, 32))
        loss_d = F.softplus(model.discriminator(fake.detach())).mean() + F.softplus(-real).mean()
        loss_g = F.softplus(-verdict).mean()
        of_discriminator.zero_grad()
        loss_d.backward()
        of_discriminator.step()  # the fault: the generator's loss was made with the old weights
        of_generator.zero_grad()
        loss_g.backward()

    return recorded(model, step)


# ---- a U-Net, looked at without a recorder ----


def convs(channels_in, channels_out):
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.BatchNorm2d(channels_out), nn.ReLU(),
                         nn.Conv2d(channels_out, channels_out, 3, padding=1), nn.BatchNorm2d(channels_out), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, widths=(8, 16, 32, 64)):
        super().__init__()
        self.down = nn.ModuleList(convs(a, b) for a, b in zip((1, *widths), widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(widths, widths[1:]))
        self.merge = nn.ModuleList(convs(2 * a, a) for a in widths[:-1])
        self.out = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        skips = []
        for i, stage in enumerate(self.down):
            x = stage(F.max_pool2d(x, 2) if i else x)
            skips.append(x)
        for i in reversed(range(len(self.up))):
            x = self.merge[i](torch.cat([skips[i], self.up[i](x)], dim=1))
        return self.out(x)


def unet():
    model = UNet()
    loss = F.cross_entropy(model(torch.randn(2, 1, 32, 32)), torch.randint(2, (2, 32, 32)))
    return torchgraphdbg.inspect(loss, params=model)


# ---- T5 ----


def t5():
    import transformers

    config = transformers.T5Config(vocab_size=256, d_model=64, d_kv=16, d_ff=128, num_layers=6, num_heads=4,
                                   decoder_start_token_id=0, dropout_rate=0.0)
    model = transformers.T5ForConditionalGeneration(config)
    words = torch.randint(256, (2, 16))
    return recorded(model, lambda: model(input_ids=words, labels=words).loss.backward())


# ---- the others ----


def chain():
    x = torch.ones(1, requires_grad=True)
    for _ in range(500_000):
        x = torch.sin(x) * 1.01
    return torchgraphdbg.inspect(x)


class FortyFaults(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(40))

    def forward(self, x):
        functions = (torch.exp, torch.sigmoid, torch.tanh, torch.relu, torch.sqrt)
        for i, layer in enumerate(self.layers):
            x = functions[i % 5](layer(x).abs())
            x.add_(1)  # overwrites what the function saved
            x = x * 1
        return x


def forty():
    model = FortyFaults()
    return recorded(model, lambda: model(torch.randn(4, 16)).sum().backward())


def hostile():
    """Names that break XML, HTML, dot, JSON, layouts and eyes."""
    names = ["</svg><script>alert(1)</script>", "\u202eright to left\u202c", "a" * 400, "&amp;&#0;&bogus;", 'q"u\'o`te\\N\\l',
             "new\nline\ttab\x00nul\x1b[31m", "\U0001f4a9" * 40, "deep." * 60 + "weight", "<b>{%s}|%d%n</b>", "W" * 90,
             "漢字" * 40, "mod.https://example.org/x?a=1&b=2#c.weight"]
    tensors = {name: torch.randn(8, 8, requires_grad=True) for name in names}
    x = torch.randn(8, 8)
    for weight in tensors.values():
        x = torch.exp((x @ weight).clamp(max=1))
    x.mul_(2)
    tensors["never <used> & \u202eforgotten"] = torch.randn(3, requires_grad=True)
    return torchgraphdbg.inspect(x.sum(), params=tensors)


def one_node():
    return torchgraphdbg.inspect(torch.ones(3, requires_grad=True).sum())


def no_grad_fn():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def step():
        with torch.no_grad():
            loss = model(torch.randn(16, 4)).mean()
        loss.backward()

    return recorded(model, step)


PICTURES = {f.__name__: f for f in (resnet, gpt2, sigmoid50, lstm200, gan, unet, t5, chain, forty, hostile, one_node,
                                     no_grad_fn)}


def report_of(name):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return PICTURES[name]()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES), metavar="NAME")
    parser.add_argument("--no-screenshots", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.only:
        report = report_of(name)
        svg = arguments.folder / f"{name}.svg"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        report.save(svg)
        took = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
        print(f"{name:12s} {svg.stat().st_size / 1000:6.0f} kB {took:7.3f} s of CPU   {report.verdict}", flush=True)
        if not arguments.no_screenshots:
            import browser

            for kind in ("fit", "full", "dark"):
                browser.screenshot(svg, svg.with_suffix(f".{kind}.png"), kind)
    return 0


if __name__ == "__main__":
    sys.exit(main())
