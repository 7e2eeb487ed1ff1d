"""The lean forward pass: the same numbers as transformers' own, and int8 weights close to them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agentkv.cache.lean import FAMILIES, INT8_ROWS, INT8_ROWS_WIDENED, LeanForward, lean_forward
from agentkv.engine import Engine
from agentkv.errors import AgentKVError, Unsupported
from agentkv_kernels import Int8Linear, OwnLinear
from tests.runtime_helpers import (
    ARCHITECTURES,
    DigitTokenizer,
    logits_after,
    random_ids,
    tiny_engine,
    tiny_model,
)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_known_families_are_computed_without_their_modules(architecture: str) -> None:
    assert (tiny_engine(architecture)._paged.lean is not None) == (architecture in FAMILIES)


@pytest.mark.parametrize("policy", ["full", "h2o", "conf-kv", "trim-kv", "surprise"])
@pytest.mark.parametrize("architecture", FAMILIES)
def test_prompts_and_steps_equal_the_modules(monkeypatch: pytest.MonkeyPatch, architecture: str, policy: str) -> None:
    ids = random_ids(120, seed=2)

    def logits(lean: bool) -> torch.Tensor:
        engine = tiny_engine(architecture)
        if not lean:
            engine._paged.lean = None
        session = engine.open_session(policy, None if policy == "full" else 48)
        first = logits_after(engine, session, ids[:30])
        return torch.stack([first, *(logits_after(engine, session, [token]) for token in ids[30:])])

    torch.testing.assert_close(logits(lean=True), logits(lean=False), rtol=0.0, atol=1e-9)


def _count_products(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, torch.dtype]]:
    """From now on, rows and weight dtype of every product."""
    seen: list[tuple[int, torch.dtype]] = []

    def count(kind: type, dtype: torch.dtype) -> None:
        multiply = kind.__call__

        def counted(self: Any, x: torch.Tensor) -> torch.Tensor:
            seen.append((len(x), dtype))
            return multiply(self, x)

        monkeypatch.setattr(kind, "__call__", counted)

    count(OwnLinear, torch.bfloat16)
    count(Int8Linear, torch.int8)
    return seen


@pytest.mark.parametrize(("fast", "most"), [(True, INT8_ROWS), (False, INT8_ROWS_WIDENED)])
def test_int8_weights_serve_few_rows_only(monkeypatch: pytest.MonkeyPatch, fast: bool, most: int) -> None:
    monkeypatch.setattr("agentkv.cache.lean.multiplies_fast", lambda dtype, device: fast)
    engine = Engine(tiny_model("llama", torch.bfloat16), DigitTokenizer(), "tiny", "8MiB", weights="int8")
    sessions = [engine.open_session() for _ in range(most + 1)]
    seen = _count_products(monkeypatch)
    for session in sessions:
        logits_after(engine, session, random_ids(30))
    assert {dtype for rows, dtype in seen if rows == 30} == {torch.bfloat16}
    for count, dtype in ((most, torch.int8), (most + 1, torch.bfloat16)):
        seen.clear()
        engine.decode_batch(sessions[:count], [3] * count)
        assert set(seen) == {(count, dtype)}


@pytest.mark.parametrize("architecture", FAMILIES)
def test_products_are_widened_where_half_precision_is_slow(monkeypatch: pytest.MonkeyPatch, architecture: str) -> None:
    ids, logits = random_ids(60, seed=4), {}
    for fast in (True, False):
        monkeypatch.setattr("agentkv_kernels.product._WIDENED_AT_ONCE", 100)  # in several blocks, the last one smaller
        for module in ("agentkv.cache.lean", "agentkv_kernels.attention", "agentkv_kernels.product"):
            monkeypatch.setattr(f"{module}.multiplies_fast", lambda dtype, device, fast=fast: fast)
        engine = Engine(tiny_model(architecture, torch.bfloat16), DigitTokenizer(), "tiny", "8MiB")
        session = engine.open_session()
        parts = [ids[:40], *([token] for token in ids[40:])]
        logits[fast] = torch.stack([logits_after(engine, session, part) for part in parts]).float()
        assert engine.arena.layout.dtype is torch.bfloat16
    exact = tiny_engine(architecture, torch.float32)
    reference = exact.open_session()
    expected = torch.stack([logits_after(exact, reference, part) for part in parts])
    off = {fast: float((logits[fast] - expected).std() / expected.std()) for fast in logits}
    assert 0 < off[False] < 0.1
    assert off[False] < 1.5 * off[True]


@pytest.mark.parametrize("architecture", FAMILIES)
def test_int8_weights_are_close(architecture: str) -> None:
    ids, logits = random_ids(60, seed=4), {}
    for weights in ("model", "int8"):
        model = tiny_model(architecture, torch.bfloat16)
        engine = Engine(model, DigitTokenizer(), "tiny", "8MiB", weights=weights)
        session = engine.open_session()
        logits_after(engine, session, ids[:20])
        logits[weights] = torch.stack([logits_after(engine, session, [token]) for token in ids[20:]]).float()
    difference = (logits["int8"] - logits["model"]).std() / logits["model"].std()
    assert 0 < difference < 0.1
    agree = (logits["int8"].argmax(-1) == logits["model"].argmax(-1)).float().mean()
    assert agree > 0.8


def test_int8_weights_round_to_the_nearest_of_a_row() -> None:
    model = tiny_model("qwen2", torch.bfloat16)
    lean = LeanForward(model, tiny_engine("qwen2", torch.bfloat16).layout, "int8")
    (projection,) = lean._of_few_rows.layers[0].qkv
    attention = model.model.layers[0].self_attn
    weight = torch.cat([part.weight for part in (attention.q_proj, attention.k_proj, attention.v_proj)]).float()
    assert isinstance(projection, Int8Linear)
    error = (projection.codes.float() * projection.scale.float().unsqueeze(1) - weight).abs()
    assert bool((error <= projection.scale.float().unsqueeze(1) * 0.51).all())
    assert bool((projection.codes.float().abs().amax(1) >= 126).all())


@pytest.mark.parametrize(
    ("architecture", "dtype", "weights", "error", "message"),
    [
        ("gpt2", torch.bfloat16, "int8", Unsupported, "^weights='int8' cannot be: .* not gpt2; use 'model' or 'auto'$"),
        ("llama", torch.float32, "int8", Unsupported, "int8 weights need a bfloat16 model on the CPU"),
        ("llama", torch.bfloat16, "int4", AgentKVError, "unknown weights 'int4'; they are one of auto, model, int8"),
    ],
)
def test_what_cannot_be_is_refused(architecture, dtype, weights, error, message) -> None:
    with pytest.raises(error, match=message):
        Engine(tiny_model(architecture, dtype), DigitTokenizer(), "tiny", "8MiB", weights=weights)


class Doubling(torch.nn.Linear):
    """As an adapter or a quantiser has them: more than its weight says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def test_layers_that_are_not_plainly_linear_are_computed_by_the_modules() -> None:
    model = tiny_model("llama", torch.float32)
    expected = model(torch.tensor([[5, 6, 7]])).logits[0, -1]
    projection = model.model.layers[1].mlp.down_proj
    projection.__class__ = Doubling
    with torch.no_grad():
        projection.weight.mul_(0.5)
    engine = Engine(model, DigitTokenizer(), "tiny", "8MiB")
    assert engine._paged.lean is None
    torch.testing.assert_close(logits_after(engine, engine.open_session(), [5, 6, 7]), expected, rtol=1e-4, atol=1e-4)


def test_auto_never_refuses() -> None:
    model = tiny_model("gpt2")
    assert lean_forward(model, tiny_engine("gpt2").layout, "auto") is None


@pytest.mark.model
def test_the_embedded_model_decodes_with_int8_weights_unless_told_otherwise() -> None:
    assert Engine.load("smollm2-135m", kv_pool="8MiB").decode_weights == "int8"
    assert Engine.load("smollm2-135m", kv_pool="8MiB", weights="model").decode_weights == "model"
    assert Engine.load("smollm2-135m", kv_pool="8MiB", dtype="float32").decode_weights == "model"
