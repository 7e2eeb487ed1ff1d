"""Gates in training: attention fades as the formula says, and the loss is what the paper says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from agentkv.cache.architecture import layout_of
from agentkv.policies.trim_gates import Gates, random_gates
from agentkv.train.attention import use_packed_attention
from agentkv.train.documents import Document, as_batch
from agentkv.train.gated import GatedRun, gated_attention
from agentkv.train.measure import learned_logits
from agentkv.train.retention import RetentionObjective, trainable
from agentkv_kernels.retention import retention_capacity_dense
from tests.runtime_helpers import random_ids, tiny_model

LAYERS_WITH = ("llama", "qwen3", "phi3", "gpt2")


def documents() -> tuple[Document, Document]:
    long, short = random_ids(40, seed=1), random_ids(13, seed=2)
    return Document(tuple(long), ((5, 9), (20, 40)), "long"), Document(tuple(short), ((1, 13),), "short")


def lively(model: torch.nn.Module, bias: float = 1.0) -> Gates:
    """Gates that forget within some tokens, differently from head to head."""
    layout = layout_of(model.config, torch.float64)
    gates = random_gates(layout.layers, model.config.hidden_size, layout.kv_heads, seed=3)
    generator = torch.Generator().manual_seed(4)
    return replace(gates, w2=torch.randn(gates.w2.shape, generator=generator) * 0.5, b2=torch.full_like(gates.b2, bias))


def packed(architecture: str, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    model = tiny_model(architecture, dtype).eval()
    use_packed_attention(model)
    return model


def objective_of(model: torch.nn.Module, gates: Gates, **options) -> RetentionObjective:
    return RetentionObjective(model, trainable(gates), **{"capacity": 4, **options})


@pytest.mark.parametrize("architecture", LAYERS_WITH)
def test_gates_that_forget_nothing_change_nothing(architecture: str) -> None:
    model, batch = packed(architecture), as_batch(documents())
    objective = objective_of(model, lively(model, bias=500.0))
    with objective.ready():
        figures = objective.measure([documents()])
        plain = learned_logits(model, batch)
        faded = learned_logits(model, batch, gated_run=GatedRun(lively(model, bias=500.0)))
    torch.testing.assert_close(faded, plain)
    assert figures.kl == pytest.approx(0, abs=1e-6)
    assert figures.nll == pytest.approx(figures.nll_full)
    assert figures.held == pytest.approx((40 + 13) / 2)


def faded_by_the_formula(query: Tensor, key: Tensor, value: Tensor, log_beta: Tensor, scaling: float) -> Tensor:
    """[Hq, T, D], head by head and query by query."""
    group = len(query) // len(key)
    out = torch.empty_like(query)
    for head, rows in enumerate(query):
        k, v, fading = key[head // group], value[head // group], log_beta[head // group]
        for t, row in enumerate(rows):
            logits = torch.stack([row @ k[i] * scaling + (t - i) * fading[i] for i in range(t + 1)])
            out[head, t] = torch.softmax(logits, -1) @ v[: t + 1]
    return out


def test_attention_fades_by_the_formula_inside_each_document() -> None:
    generator = torch.Generator().manual_seed(6)
    query, key, value = (torch.randn(1, heads, 17, 8, generator=generator, dtype=torch.float64) for heads in (6, 2, 2))
    log_beta = -torch.rand(2, 17, generator=generator, dtype=torch.float64)
    run = GatedRun(random_gates(1, 8, 2))
    run.log_beta[0] = log_beta
    module = torch.nn.Module()
    module.layer_idx = 0
    out, _ = gated_attention(module, query, key, value, None, 0.3, document_lengths=(11, 6), gated_run=run)
    for part in (slice(0, 11), slice(11, 17)):
        expected = faded_by_the_formula(query[0, :, part], key[0, :, part], value[0, :, part], log_beta[:, part], 0.3)
        torch.testing.assert_close(out[0, part].transpose(0, 1), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_documents_fade_as_exactly_as_float32_can_say(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(7)
    query, key, value = (torch.randn(1, 2, 2000, 8, generator=generator).to(dtype) for _ in range(3))
    log_beta = -5 * torch.rand(2, 2000, generator=generator) ** 4
    run = GatedRun(random_gates(1, 8, 2))
    run.log_beta[0] = log_beta
    module = torch.nn.Module()
    module.layer_idx = 0
    out, _ = gated_attention(module, query, key, value, None, 0.3, document_lengths=(2000,), gated_run=run)
    age = torch.arange(2000, dtype=torch.float64)[:, None] - torch.arange(2000)
    bias = (age * log_beta[:, None].double()).masked_fill(age < 0, float("-inf"))
    scores = query[0].double() @ key[0].double().transpose(-1, -2) * 0.3 + bias
    expected = (scores.softmax(-1) @ value[0].double()).to(dtype)
    torch.testing.assert_close(out[0].transpose(0, 1), expected, atol=2e-3 if dtype is torch.float32 else 1e-2, rtol=0)


def test_the_loss_is_the_mean_of_both_and_the_hinge_of_what_is_above_capacity() -> None:
    model = packed("llama")
    gates = lively(model)
    objective = objective_of(model, gates, weight=0.5)
    batch = as_batch(documents())
    with objective.ready():
        loss, figures = objective.loss(batch), objective.measure([documents()])
        run = GatedRun(gates)
        faded = learned_logits(model, batch, gated_run=run).log_softmax(-1)
        full = learned_logits(model, batch).log_softmax(-1)
    n = len(batch.targets)
    kl = float((full.exp() * (full - faded)).sum() / n)
    nll = float(-faded[range(n), batch.targets].mean())
    hinges = []
    for start, length in ((0, 40), (40, 13)):
        for log_beta in run.log_beta.values():
            for held in retention_capacity_dense(log_beta[:, start : start + length]):
                hinges += [max(0.0, (float(s) - 4) / max(1, t + 1 - 4)) for t, s in enumerate(held)]
    above = [hinge for hinge in hinges if hinge > 0]
    assert above
    excess = sum(above) / len(above)
    assert figures.kl == pytest.approx(kl, rel=1e-4)
    assert figures.nll == pytest.approx(nll, rel=1e-4)
    assert figures.excess == pytest.approx(excess, rel=1e-4)
    assert figures.loss == pytest.approx((kl + nll) / 2 + 0.5 * excess, rel=1e-4)
    assert float(loss.detach()) / n == pytest.approx(figures.loss, rel=1e-4)
    assert figures.tokens == n


def test_pooled_heads_share_one_hinge() -> None:
    model = packed("llama")
    gates = lively(model)
    # One head of four holds everything, the others nothing: apart they exceed, together they do not.
    b2 = torch.full_like(gates.b2, -50.0)
    b2[0, 0] = 50.0
    gates = replace(gates, w2=torch.zeros_like(gates.w2), b2=b2)
    figures = {}
    for pooled in (False, True):
        objective = objective_of(model, gates, capacity=20, pooled=pooled)
        with objective.ready():
            figures[pooled] = objective.measure([documents()])
    assert figures[False].excess > 0
    assert figures[True].excess == 0


def test_only_gates_learn_and_they_learn_to_hold_less() -> None:
    model = packed("llama", torch.float32)
    parameters = trainable(lively(model, bias=6.0))
    objective = RetentionObjective(model, parameters, capacity=4)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    optimizer = torch.optim.AdamW(parameters.values(), lr=2e-3)
    with objective.ready():
        first = objective.measure([documents()])
        for _ in range(40):
            optimizer.zero_grad()
            objective.loss(as_batch(documents())).backward()
            optimizer.step()
        last = objective.measure([documents()])
    assert last.loss < first.loss
    assert last.held < 0.8 * first.held
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert model.config._attn_implementation == "agentkv_packed"
