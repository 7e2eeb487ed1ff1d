"""The lean decode step: the same numbers as transformers' own forward, and int8 weights close to them."""

from __future__ import annotations

import pytest
import torch

from agentkv.cache.batch import ForwardPass
from agentkv.cache.lean import FAMILIES, INT8_ROWS, LeanDecoder, lean_decoder
from agentkv.engine import Engine
from agentkv.errors import AgentKVError, Unsupported
from tests.runtime_helpers import (
    ARCHITECTURES,
    DigitTokenizer,
    logits_after,
    random_ids,
    tiny_engine,
    tiny_model,
)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_known_families_are_decoded_without_their_modules(architecture: str) -> None:
    assert (tiny_engine(architecture)._paged.lean is not None) == (architecture in FAMILIES)


@pytest.mark.parametrize("policy", ["full", "h2o", "conf-kv", "trim-kv", "surprise"])
@pytest.mark.parametrize("architecture", FAMILIES)
def test_a_step_equals_the_modules(monkeypatch: pytest.MonkeyPatch, architecture: str, policy: str) -> None:
    ids = random_ids(120, seed=2)

    def logits(lean: bool) -> torch.Tensor:
        engine = tiny_engine(architecture)
        if not lean:
            engine._paged.lean = None
        session = engine.open_session(policy, None if policy == "full" else 48)
        first = logits_after(engine, session, ids[:30])
        return torch.stack([first, *(logits_after(engine, session, [token]) for token in ids[30:])])

    torch.testing.assert_close(logits(lean=True), logits(lean=False), rtol=0.0, atol=1e-9)


def test_steps_of_few_sessions_are_lean_and_those_of_many_tokens_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, computed = tiny_engine(), []
    lean = LeanDecoder.__call__

    def counted(self: LeanDecoder, ids: torch.Tensor, run: ForwardPass) -> torch.Tensor:
        computed.append(tuple(ids.shape))
        return lean(self, ids, run)

    monkeypatch.setattr(LeanDecoder, "__call__", counted)
    sessions = [engine.open_session() for _ in range(9)]
    for session in sessions:
        logits_after(engine, session, random_ids(5))
    assert computed == []
    engine.decode_batch(sessions[:8], [3] * 8)
    engine.decode_batch(sessions, [4] * 9)
    assert computed == [(8, 1)]


@pytest.mark.parametrize("architecture", FAMILIES)
def test_int8_weights_are_close(architecture: str) -> None:
    ids, logits = random_ids(60, seed=4), {}
    for weights in ("model", "int8"):
        model = tiny_model(architecture, torch.bfloat16)
        # torch's product takes rows of whole vectors, as those of real models are.
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
    lean = LeanDecoder(model, tiny_engine("qwen2", torch.bfloat16).layout, "int8")
    assert lean.most_rows == INT8_ROWS
    (projection,) = lean._layers[0].qkv
    attention = model.model.layers[0].self_attn
    weight = torch.cat([part.weight for part in (attention.q_proj, attention.k_proj, attention.v_proj)]).float()
    error = (projection.weight.float() * projection.scale.float().unsqueeze(1) - weight).abs()
    assert bool((error <= projection.scale.float().unsqueeze(1) * 0.51).all())
    assert bool((projection.weight.float().abs().amax(1) >= 126).all())


@pytest.mark.parametrize(
    ("architecture", "dtype", "weights", "error", "message"),
    [
        ("gpt2", torch.bfloat16, "int8", Unsupported, "knows llama, mistral, qwen2, qwen3, not gpt2"),
        ("llama", torch.float32, "int8", Unsupported, "int8 weights need a bfloat16 model on the CPU"),
        ("llama", torch.bfloat16, "int4", AgentKVError, "unknown weights 'int4'; they are one of model, int8"),
    ],
)
def test_what_cannot_be_is_refused(architecture, dtype, weights, error, message) -> None:
    with pytest.raises(error, match=message):
        Engine(tiny_model(architecture, dtype), DigitTokenizer(), "tiny", "8MiB", weights=weights)


def test_auto_never_refuses() -> None:
    model = tiny_model("gpt2")
    assert lean_decoder(model, tiny_engine("gpt2").layout, "auto") is None


@pytest.mark.model
def test_the_embedded_model_decodes_with_int8_weights_unless_told_otherwise() -> None:
    assert Engine.load("smollm2-135m", kv_pool="8MiB").decode_weights == "int8"
    assert Engine.load("smollm2-135m", kv_pool="8MiB", weights="model").decode_weights == "model"
    assert Engine.load("smollm2-135m", kv_pool="8MiB", dtype="float32").decode_weights == "model"
