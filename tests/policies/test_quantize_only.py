"""Quantise-only policies keep every token, in fewer bytes, and say what to do when there are too many."""

from __future__ import annotations

import pytest
import torch

from agentkv import policies
from agentkv.cache.formats import KVFormat
from agentkv.engine import SamplingParams
from agentkv.errors import AgentKVError, ContextOverflow
from agentkv.policies.base import Policy
from agentkv.policies.precision import AgePrecision
from agentkv.policies.scorers import Recency
from tests.runtime_helpers import causal_logits, logits_after, random_ids, tiny_engine, tiny_model

NAMES = ("int8", "fp8", "int8-channel")
SMALL: dict[str, object] = {"fp_window": 16}


@pytest.fixture(scope="module")
def engine():
    return tiny_engine(dtype=torch.float32)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_budget_old_slots_are_quantised_from_the_start(engine, name: str) -> None:
    session, full = engine.open_session(name, **SMALL), engine.open_session()
    ids = random_ids(240)
    for turn in (ids[:150], *([token] for token in ids[150:])):
        logits_after(engine, session, turn)
    logits_after(engine, full, ids)
    stats, store = session.stats, session.cache.store
    assert stats.evicted_tokens == 0
    assert stats.quantized_tokens >= 64  # at least the one page that a scale per channel waits for
    assert stats.fp_tokens + stats.quantized_tokens == len(ids)
    assert stats.resident_bytes < full.stats.resident_bytes
    assert int(store.token_index[..., : store.code_slots].max()) < len(ids) - 16
    assert store.code_format is {"int8": KVFormat.INT8_TOKEN, "fp8": KVFormat.FP8_TOKEN}.get(
        name, KVFormat.INT8_CHANNEL
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_same_tokens_are_attended_in_fewer_bits(engine, name: str) -> None:
    """Logits stay near those of full attention; the exact equality under codes is held in tests/cache."""
    session, ids = engine.open_session(name, **SMALL), random_ids(200, seed=2)
    for turn in (ids[:199], ids[199:]):
        logits = logits_after(engine, session, turn)
    expected = causal_logits(tiny_model("llama", torch.float32), ids)[-1]
    error = float((logits - expected).abs().max() / expected.abs().max())
    assert 0 < error < {"fp8": 0.25}.get(name, 0.05)


@pytest.mark.parametrize("name", NAMES)
def test_with_a_budget_all_is_whole_while_it_fits(engine, name: str) -> None:
    session, full = engine.open_session(name, "50KiB", **SMALL), engine.open_session()
    dense = session.limits.dense_slots
    ids = random_ids(session.token_limit)
    assert dense < session.token_limit
    assert torch.equal(logits_after(engine, session, ids[:dense]), logits_after(engine, full, ids[:dense]))
    assert session.stats.quantized_tokens == 0
    for token in ids[dense:]:
        logits_after(engine, session, [token])
        assert session.stats.resident_bytes <= session.limits.max_bytes <= 50 * 1024
    assert session.stats.quantized_tokens > 0
    assert session.stats.evicted_tokens == 0


@pytest.mark.parametrize("name", NAMES)
def test_what_does_not_fit_is_refused_with_what_to_do(engine, name: str) -> None:
    session = engine.open_session(name, 64, **SMALL)
    limit = session.token_limit
    events = list(engine.generate(session, random_ids(limit - 3), SamplingParams(max_tokens=20, min_tokens=20)))
    assert events[-1].finish_reason == "context_full"
    with pytest.raises(ContextOverflow) as refusal:
        engine.generate(session, [5])
    assert str(refusal.value) == (
        f"the session needs {limit + 1} tokens but its budget holds {limit}; policy {name!r} drops nothing: raise the "
        "budget or choose an evicting policy"
    )


def test_a_scale_per_channel_goes_with_no_eviction() -> None:
    with pytest.raises(AgentKVError, match=r"^mine: precision: with a scale per channel .* none can be evicted"):
        Policy(name="mine", scorer=Recency(), precision=AgePrecision(format=KVFormat.INT8_CHANNEL))


@pytest.mark.parametrize(("option", "value"), [("fp_window", -1), ("block", 0)])
def test_bad_options_are_refused(option: str, value: object) -> None:
    with pytest.raises(AgentKVError, match=f"^int8: {option} must be"):
        policies.build("int8", **{option: value})
