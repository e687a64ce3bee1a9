"""Real model code stays silent before backward, works, and is known to be spent afterwards."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchgraphdbg


def judge(build, unused=()):
    """build() gives (loss, params). `unused` names parameters that the forward really leaves out."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss, params = build()
    named = list(params.named_parameters() if isinstance(params, nn.Module) else params.items())
    report = torchgraphdbg.inspect(loss, params=params)
    said = {f.parameter for f in report.findings if f.kind == "unreached-parameter"}
    loud = [f for f in report.findings if f.severity != "note" and f.kind != "unreached-parameter"]
    assert not loud, str(report)
    assert report.ok == (not unused), str(report)
    assert said == set(unused)
    assert not report.summary["unchecked"] or "checkpoint" in build.__name__, report.summary
    loss.backward()
    for name, parameter in named:
        assert (parameter.grad is None) == (name in said), name
    after = torchgraphdbg.inspect(loss, params=params)
    errors = [f for f in after.findings if f.severity == "error"]
    try:
        loss.backward()
        raised = None
    except RuntimeError as error:
        raised = str(error)
    if raised is None:
        assert not errors, str(after)
    else:
        assert "second time" in raised or "already been" in raised, raised
        feared = errors or [f for f in after.findings if f.severity == "warning"]
        assert feared and feared[0].kind == "graph-freed", str(after)


# ---- transformers, with random weights ----


def transformers():
    return pytest.importorskip("transformers")


def ids():
    return torch.randint(0, 60, (2, 9))


def gpt2(t):
    model = t.GPT2LMHeadModel(t.GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    tokens = ids()
    return model(input_ids=tokens, labels=tokens).loss, model


def bert(t):
    model = t.BertForMaskedLM(
        t.BertConfig(vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    )
    tokens = ids()
    return model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=tokens).loss, model


def llama(t):
    model = t.LlamaForCausalLM(
        t.LlamaConfig(
            vocab_size=64,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )
    tokens = ids()
    return model(input_ids=tokens, labels=tokens).loss, model


def vit(t):
    model = t.ViTForImageClassification(
        t.ViTConfig(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=16,
            patch_size=8,
            num_labels=3,
        )
    )
    return model(pixel_values=torch.randn(2, 3, 16, 16), labels=torch.tensor([0, 2])).loss, model


def t5(t):
    model = t.T5ForConditionalGeneration(
        t.T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0)
    )
    tokens = ids()
    return model(input_ids=tokens, labels=tokens).loss, model


@pytest.mark.parametrize("make", [gpt2, bert, llama, vit, t5], ids=lambda f: f.__name__)
def test_transformers(make):
    t = transformers()
    judge(lambda: make(t))


def test_llama_with_gradient_checkpointing():
    t = transformers()

    def checkpointed():
        model = t.LlamaForCausalLM(
            t.LlamaConfig(
                vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4
            )
        )
        model.gradient_checkpointing_enable()
        model.train()
        tokens = ids()
        return model(input_ids=tokens, labels=tokens).loss, model

    judge(checkpointed)


def test_bert_pooler_is_unused():
    t = transformers()

    def headless():
        model = t.BertModel(
            t.BertConfig(
                vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
            )
        )
        return model(input_ids=ids()).last_hidden_state.square().mean(), model

    judge(headless, unused=("pooler.dense.weight", "pooler.dense.bias"))


# ---- torch's own ----


def lstm():
    model = nn.LSTM(5, 6, num_layers=2, bidirectional=True)
    out, (h, c) = model(torch.randn(7, 2, 5))
    return out.square().mean() + h.mean() + c.mean(), model


def gru():
    model = nn.GRU(5, 6, num_layers=2, dropout=0.1)
    return model(torch.randn(7, 2, 5))[0].square().mean(), model


def packed():
    model = nn.LSTM(5, 6, batch_first=True)
    sequence = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 7, 5), [7, 4, 2], batch_first=True)
    return nn.utils.rnn.pad_packed_sequence(model(sequence)[0])[0].square().mean(), model


def transformer():
    model = nn.Transformer(16, 2, 2, 2, 32, batch_first=True)
    x = torch.randn(2, 5, 16)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    return model(x, x, tgt_mask=mask).square().mean(), model


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.body(x)
        out += self.skip(x)
        return self.relu(out)


def residual():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        Block(8, 8, 1),
        Block(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    )
    return nn.functional.cross_entropy(model(torch.randn(2, 3, 32, 32)), torch.tensor([1, 3])), model


def densely_connected():
    layers = nn.ModuleList(nn.Conv2d(3 + 4 * k, 4, 3, padding=1) for k in range(4))
    x = torch.randn(1, 3, 8, 8)
    for layer in layers:
        x = torch.cat([x, layer(x).relu_()], 1)
    return x.square().mean(), layers


def unet():
    down, up = nn.Conv2d(1, 4, 3, 2, 1), nn.ConvTranspose2d(4, 4, 2, 2)
    model = nn.ModuleDict({"down": down, "up": up, "last": nn.Conv2d(5, 1, 1)})
    x = torch.randn(1, 1, 8, 8)
    return model["last"](torch.cat([x, up(nn.functional.silu(down(x), inplace=True))], 1)).square().mean(), model


def checkpoint_plain():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    return checkpoint(model, torch.randn(3, 4), use_reentrant=False).square().mean(), model


def checkpoint_reentrant():
    first, model = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    return checkpoint(model, first(torch.randn(3, 4)), use_reentrant=True).square().mean(), nn.ModuleList(
        [first, model]
    )


def autocast():
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 2))
    with torch.autocast("cpu", torch.bfloat16):
        return nn.functional.mse_loss(model(torch.randn(3, 4)), torch.zeros(3, 2)), model


def tied():
    model = nn.Module()
    model.table = nn.Embedding(7, 4)
    model.out = nn.Linear(4, 7, bias=False)
    model.out.weight = model.table.weight
    return model.out(model.table(torch.tensor([1, 2, 3])).tanh()).logsumexp(-1).mean(), model


def adversarial():
    critic, generator = nn.Linear(4, 1), nn.Linear(3, 4)
    real = torch.randn(5, 4)
    mix = torch.lerp(real, generator(torch.randn(5, 3)).detach(), torch.rand(5, 1)).requires_grad_()
    (slope,) = torch.autograd.grad(critic(mix).square().sum(), mix, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean(), {"weight": critic.weight, "bias": critic.bias}


def stacked_experts():
    experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    gate = nn.Linear(4, 3)
    x = torch.randn(12, 4)
    weights, chosen = gate(x).softmax(-1).topk(2)
    out = torch.zeros_like(x)
    for k, expert in enumerate(experts):
        token, slot = torch.where(chosen == k)
        out.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
    return out.square().mean(), nn.ModuleList([gate, experts])


@pytest.mark.parametrize(
    "build",
    [
        lstm,
        gru,
        packed,
        transformer,
        residual,
        densely_connected,
        unet,
        checkpoint_plain,
        checkpoint_reentrant,
        autocast,
        tied,
        adversarial,
        stacked_experts,
    ],
    ids=lambda f: f.__name__,
)
def test_torch(build):
    judge(build)


def test_compiled():
    def compiled():
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        return torch.compile(model, backend="aot_eager")(torch.randn(3, 4)).square().mean(), dict(
            model.named_parameters()
        )

    judge(compiled)


def test_training_loop_stays_silent():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 3))
    for optimizer in (
        torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
        torch.optim.AdamW(model.parameters(), fused=True),
        torch.optim.RMSprop(model.parameters(), foreach=True),
    ):
        for _ in range(3):
            loss = nn.functional.cross_entropy(model(torch.randn(4, 1, 8, 8)), torch.randint(0, 3, (4,)))
            report = torchgraphdbg.inspect(loss, params=optimizer)
            assert report.ok and report.summary["parameters_reached"] == 6, str(report)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
