"""Every softmax layer of every architecture lives in pages, sliding ones too; what does not fit is refused."""

from __future__ import annotations

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.llama import modeling_llama

from agentkv import policies
from agentkv.cache.architecture import layout_of
from agentkv.engine import Engine, SamplingParams
from agentkv.errors import Unsupported
from tests.runtime_helpers import (
    ARCHITECTURES,
    HYBRID,
    SLIDING,
    VOCABULARY,
    DigitTokenizer,
    causal_logits,
    grid,
    logits_after,
    oracle_logits,
    random_ids,
    recording,
    tiny_engine,
    tiny_model,
)

CLOSE = {"rtol": 0.0, "atol": 1e-9}
WINDOWED = ("mistral", *HYBRID)
EVICTING = tuple(name for name in policies.names() if policies.build(name).evicts)


def plain_logits(model: PreTrainedModel, ids: list[int], monkeypatch) -> Tensor:
    """Logits [T, V] of transformers' own eager attention under its own masks, with its softmax in the model's dtype."""
    softmax = nn.functional.softmax
    monkeypatch.setattr(nn.functional, "softmax", lambda x, dim, dtype=None: softmax(x, dim))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([ids]), use_cache=False).logits[0]
    monkeypatch.undo()
    return logits


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_session_equals_plain_transformers_past_every_window(architecture: str, monkeypatch) -> None:
    """Chunks, single tokens, a second turn; and the oracle of the other tests is the same function."""
    ids = random_ids(5 * SLIDING, seed=2)
    expected = plain_logits(tiny_model(architecture), ids, monkeypatch)
    torch.testing.assert_close(causal_logits(tiny_model(architecture), ids), expected, **CLOSE)
    engine = tiny_engine(architecture)
    session = engine.open_session()
    for start, end in ((0, 50), *((n, n + 1) for n in range(50, 62)), (62, 100)):
        torch.testing.assert_close(logits_after(engine, session, ids[start:end]), expected[end - 1], **CLOSE)


@pytest.mark.parametrize("architecture", WINDOWED)
def test_a_sliding_layer_keeps_only_its_window(architecture: str) -> None:
    """Whatever the policy, also while everything else is kept; its pages go back to the pool."""
    engine = tiny_engine(architecture)
    for policy in ("full", "h2o"):
        session = engine.open_session(policy)
        logits_after(engine, session, random_ids(120))
        for token in random_ids(10):
            logits_after(engine, session, [token])
        store = session.cache.store
        for layer, width in enumerate(engine.layout.windows):
            held = store.token_index[layer][store.token_index[layer] >= 0].view(engine.layout.kv_heads, -1)
            assert held.sort(-1).values.tolist() == [list(range(130 - (width or 130), 130))] * engine.layout.kv_heads
        assert store.page_bytes_held < engine.layout.payload_bytes(session.limits.shape.caps)
        session.close()


@pytest.mark.parametrize(("architecture", "policy"), grid(HYBRID, EVICTING))
def test_full_layers_obey_the_policy_and_sliding_ones_their_window(architecture: str, policy: str) -> None:
    engine = tiny_engine(architecture, torch.float32)
    least = policies.build(policy).least_slots(64)
    session = engine.open_session(policy, 64)
    list(engine.generate(session, random_ids(100), SamplingParams(max_tokens=30, min_tokens=30)))
    used = session.cache.store.used
    assert used[0].tolist() == [SLIDING] * engine.layout.kv_heads
    assert least <= used[1].sum() <= 64 * engine.layout.kv_heads


@settings(max_examples=30, deadline=None)
@given(
    architecture=st.sampled_from(WINDOWED),
    policy=st.sampled_from(policies.names()),
    kib=st.integers(70, 200),
    turns=st.lists(st.integers(1, 50), min_size=1, max_size=8),
    seed=st.integers(0, 99),
)
def test_the_cap_holds_with_sliding_layers(architecture: str, policy: str, kib: int, turns: list[int], seed: int):
    engine = _float32_engine(architecture)
    session = engine.open_session(policy, f"{kib}KiB")
    generator = torch.Generator().manual_seed(seed)
    with recording(session) as log:
        for turn in turns:
            if not session.policy.evicts and len(session.ledger) + turn > session.token_limit:
                break
            session.cache.confidence = float(torch.rand((), generator=generator))
            logits_after(engine, session, random_ids(turn, seed))
    assert max(log.resident, default=0) <= session.limits.max_bytes <= kib * 1024
    session.close()


_engines: dict[str, Engine] = {}


def _float32_engine(architecture: str) -> Engine:
    if architecture not in _engines:
        _engines[architecture] = tiny_engine(architecture, torch.float32)
    return _engines[architecture]


def test_a_small_budget_manages_the_layers_of_a_model_that_only_slides() -> None:
    """Fewer slots than the window: the policy chooses, and what has left the window goes first."""
    engine = tiny_engine("mistral")
    session = engine.open_session("h2o", 16, sinks=0, recent=4)
    ids = random_ids(90, seed=6)
    with recording(session) as log:
        logits_after(engine, session, ids[:60])
        for token in ids[60:]:
            last = logits_after(engine, session, [token])
            held = session.cache.store.in_use(session.cache.store.token_index)
            assert held.shape[-1] <= 16
    assert int(held.min()) > len(ids) - 1 - SLIDING
    visible = log.visible(engine.layout.layers, engine.layout.kv_heads, len(ids))
    torch.testing.assert_close(last, oracle_logits(tiny_model("mistral"), ids, visible)[-1], **CLOSE)


def test_a_window_as_wide_as_the_context_is_none() -> None:
    config = transformers.MistralConfig(sliding_window=4096, max_position_embeddings=4096)
    assert layout_of(config, torch.float32).windows == ()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (transformers.MambaConfig(), "mamba is not supported"),
        (transformers.Qwen3NextConfig(), "layers of type linear_attention keep more than keys and values"),
        (transformers.JambaConfig(), "jamba is not supported"),
        (transformers.DeepseekV3Config(), "latent attention"),
        (transformers.Llama4TextConfig(), "layers of type chunked_attention"),
        (transformers.T5Config(), "encoder-decoder"),
        (transformers.BartConfig(), "encoder-decoder"),
        (transformers.Gemma3nTextConfig(), "some layers read the keys and values of others"),
        (transformers.BltConfig(), "its configuration has no num_hidden_layers"),
        (transformers.BloomConfig(), "positions without a stated maximum"),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_what_is_more_than_keys_and_values_is_refused_with_the_reason(config: PreTrainedConfig, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        layout_of(config, torch.float32)


def _small(**extra) -> dict[str, object]:
    return {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, **extra}


def test_models_with_an_attention_of_their_own_are_refused_at_load() -> None:
    config = transformers.GPTNeoConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_layers=2, num_heads=2, attention_types=[[["global"], 2]]
    )
    with pytest.raises(Unsupported, match="gpt_neo: its attention cannot run on pages"):
        Engine(transformers.GPTNeoForCausalLM(config).eval(), DigitTokenizer(), "neo", "8MiB")


def test_attention_that_is_not_causal_is_refused_at_load() -> None:
    model = transformers.BertLMHeadModel(transformers.BertConfig(**_small())).eval()
    with pytest.raises(Unsupported, match="bert: its attention is not causal"):
        Engine(model, DigitTokenizer(), "bert", "8MiB")


def test_a_model_that_computes_something_else_on_pages_is_refused_at_load(monkeypatch) -> None:
    eager = modeling_llama.eager_attention_forward

    def doubled(*args: object, **kwargs: object):
        out, weights = eager(*args, **kwargs)
        return 2 * out, weights

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", doubled)
    with pytest.raises(Unsupported, match="computes something else on pages than by itself"):
        Engine(tiny_model("llama", torch.float32), DigitTokenizer(), "odd", "8MiB")


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        ("gpt2", "attends within None tokens where its configuration says 3"),
        ("llama", "computes something else on pages than by itself"),  # its modules do not run at all
    ],
)
def test_a_window_that_attention_does_not_confirm_is_refused_at_load(architecture: str, message: str) -> None:
    model = tiny_model(architecture, torch.float32)
    model.config.sliding_window = 3
    with pytest.raises(Unsupported, match=message):
        Engine(model, DigitTokenizer(), "odd", "8MiB")


def test_two_engines_can_share_a_model() -> None:
    model = tiny_model("llama")
    first = Engine(model, DigitTokenizer(), "one", "8MiB")
    second = Engine(model, DigitTokenizer(), "two", "8MiB")
    ids = random_ids(20)
    torch.testing.assert_close(
        logits_after(first, first.open_session(), ids), logits_after(second, second.open_session(), ids), **CLOSE
    )
