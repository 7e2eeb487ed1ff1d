"""Taking a span out of a session: as if attention to it were masked from then on."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv import policies
from agentkv.cache.store import KVStore
from agentkv.engine import Engine, SamplingParams
from agentkv.errors import AgentKVError, ContextOverflow, Unsupported
from tests.runtime_helpers import (
    WINDOW,
    logits_after,
    oracle_logits,
    random_ids,
    recording,
    tiny_engine,
    tiny_model,
)

_engines: dict[str, Engine] = {}


def engine_of(architecture: str) -> Engine:
    if architecture not in _engines:
        _engines[architecture] = tiny_engine(architecture)
    return _engines[architecture]


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3"])
@pytest.mark.parametrize("policy", ["full", "window", "streaming-llm", "h2o", "tova"])
def test_a_dropped_span_is_masked_attention(architecture: str, policy: str) -> None:
    """Before and after evictions, with chunks, single tokens and a turn of many to follow."""
    engine, ids = engine_of(architecture), random_ids(120, seed=3)
    session = engine.open_session(policy, None if policy == "full" else 40)
    turns = [ids[:30], ids[30:50], *([t] for t in ids[50:64]), ids[64:90], *([t] for t in ids[90:])]
    drops = {30: (5, 12), 50: (20, 49), 64: (50, 62), 91: (0, 3)}
    got = {}
    with recording(session) as log:
        for turn in turns:
            logits = logits_after(engine, session, turn)
            got[len(session.ledger) - 1] = logits
            if len(session.ledger) in drops:
                session.drop_span(*drops[len(session.ledger)])
    layout = engine.layout
    visible = log.visible(layout.layers, layout.kv_heads, len(ids))
    for length, (start, end) in drops.items():
        assert not visible[:, :, length:, start:end].any()
    expected = oracle_logits(tiny_model(architecture), ids, visible)
    for position, logits in got.items():
        torch.testing.assert_close(logits, expected[position], rtol=0, atol=1e-9)
    assert session.stats.dropped_tokens == 7 + 29 + 12 + 3
    assert session.stats.evicted_tokens >= session.stats.dropped_tokens
    if policy == "full":
        assert visible[1, :, -1].sum(-1).tolist() == [120 - 51] * layout.kv_heads
    session.close()


@settings(max_examples=25, deadline=None)
@given(
    policy=st.sampled_from(["full", *(name for name in policies.names() if policies.build(name).evicts)]),
    steps=st.lists(st.tuples(st.integers(1, 25), st.floats(0, 1), st.integers(1, 30)), min_size=2, max_size=6),
)
def test_dropping_anything_keeps_every_session_inside_its_bytes(policy: str, steps: list) -> None:
    """Also where a head loses all of its slots in the model's dtype; layer 0's keys say that nothing got mixed up."""
    engine = engine_of("float32") if "float32" in _engines else _engines.setdefault(
        "float32", tiny_engine(dtype=torch.float32)
    )  # fmt: skip
    built = policies.build(policy)
    session = engine.open_session(policy, max(40, built.least_slots(40) + 8) if built.evicts else None)
    reference, store = engine.open_session(), session.cache.store
    with recording(session) as log:
        for seed, (n, where, length) in enumerate(steps):
            logits_after(engine, session, random_ids(n, seed))
            for token in random_ids(3, seed + 50):
                session.cache.confidence = where
                logits_after(engine, session, [token])
            start = int(where * (session.logical_length - 1))
            session.drop_span(start, min(start + length, session.logical_length))
    logits_after(engine, session, [9])
    logits_after(engine, reference, session.ledger)
    assert max(log.resident) <= session.limits.max_bytes
    tokens, keys = store.in_use(store.token_index)[0].long(), store.read_keys()[0]
    expected = reference.cache.store.read_keys()[0]
    order = reference.cache.store.in_use(reference.cache.store.token_index)[0].long().argsort(-1)
    for head in range(engine.layout.kv_heads):
        held = tokens[head] >= 0
        there = expected[head][order[head]][tokens[head][held]]
        error = (keys[head][held] - there).abs().amax(-1)
        assert (error <= there.abs().amax(-1) * (1 / 15 if store.code_slots else 1e-5)).all()
    session.close()
    reference.close()


def test_a_token_goes_beside_quantised_slots_when_those_in_the_models_dtype_were_dropped() -> None:
    """The heads hold just what a confident model is granted, so that one slot could take the new token's place."""
    engine, ids = engine_of("llama"), random_ids(60, seed=4)
    by_age = engine.open_session("conf-kv", 40)
    logits_after(engine, by_age, ids)
    quantised, oldest_fp = by_age.cache.store.code_slots, _oldest_fp_token(by_age.cache.store)
    session = engine.open_session("conf-kv", 40, tight=quantised)
    logits_after(engine, session, ids)
    session.drop_span(oldest_fp, 60)
    store = session.cache.store
    assert (store.fp.used == 0).all()
    assert (store.used == quantised).all()
    before = store.in_use(store.token_index)[:, :, :quantised].clone()
    session.cache.confidence = 1.0
    logits_after(engine, session, [9])
    assert (store.fp.used == 1).all()
    held = store.in_use(store.token_index)
    assert (held[:, :, store.code_slots :] == 60).sum().item() == engine.layout.layers * engine.layout.kv_heads
    kept = held[:, :, : store.code_slots].flatten(0, 1)
    for old, now in zip(before.flatten(0, 1), kept, strict=True):
        assert set(now[now >= 0].tolist()) < set(old.tolist())
    session.close()
    by_age.close()


def _oldest_fp_token(store: KVStore) -> int:
    """The oldest token that any head holds in the model's dtype; what is quantised is older in all of them."""
    tokens = store.in_use(store.token_index)
    newer = tokens[:, :, store.code_slots :]
    oldest = int(newer[newer >= 0].min())
    assert int(tokens[:, :, : store.code_slots].max()) < oldest
    return oldest


def test_full_counts_what_it_holds_against_its_budget_and_everything_against_the_window() -> None:
    engine = engine_of("llama")
    session = engine.open_session("full", 64)
    limit = session.token_limit
    logits_after(engine, session, random_ids(60))
    with pytest.raises(ContextOverflow, match=f"needs 110 tokens but its budget holds {limit}"):
        engine.generate(session, random_ids(50))
    session.drop_span(0, 40)
    assert session.token_limit == limit + 40
    logits_after(engine, session, random_ids(limit - 20))
    assert session.cache.store.slots_used == limit
    with pytest.raises(ContextOverflow, match="its budget holds"):
        engine.generate(session, [5])
    session.drop_span(40, 80)
    assert session.stats.peak_bytes <= session.limits.max_bytes
    events = list(engine.generate(session, [5], SamplingParams(max_tokens=400, min_tokens=400)))
    assert events[-1].finish_reason == "context_full"
    assert len(session.ledger) == limit + 80
    whole = engine.open_session("full")
    logits_after(engine, whole, random_ids(200))
    whole.drop_span(0, 100)
    assert whole.token_limit == WINDOW
    with pytest.raises(ContextOverflow, match=f"the model's window holds {WINDOW}"):
        engine.generate(whole, random_ids(100))


def test_everything_can_be_dropped() -> None:
    engine = engine_of("llama")
    session, fresh = engine.open_session(), engine.open_session("window", 8)
    logits_after(engine, session, random_ids(40))
    session.drop_span(0, 40)
    assert session.cache.store.page_bytes_held == 0
    for token in [5, 6, 7]:
        logits = logits_after(engine, session, [token])
    torch.testing.assert_close(logits, logits_after(engine, fresh, [5, 6, 7]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 3), (5, 2), (10, 51), (0.5, 2), ("a", 3)])
def test_a_span_that_is_not_there_is_refused(start: object, end: object) -> None:
    session = engine_of("llama").open_session()
    logits_after(engine_of("llama"), session, random_ids(50))
    session.ledger.append(5)
    with pytest.raises(AgentKVError, match="must lie in the 50 tokens computed so far"):
        session.drop_span(start, end)


def test_pages_with_scales_per_channel_are_dropped_whole_or_not_at_all() -> None:
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session("int8-channel")
    logits_after(engine, session, random_ids(230))
    store = session.cache.store
    per_page = store.code.page_slots
    assert store.code_slots >= 2 * per_page
    tokens, keys = store.in_use(store.token_index).clone(), store.read_keys()
    assert tokens[0, 0, :per_page].tolist() == list(range(per_page))
    before = session.stats
    with pytest.raises(Unsupported, match=f"covers whole pages of {per_page} tokens"):
        session.drop_span(3, per_page)
    assert session.stats == before
    session.drop_span(0, per_page)
    assert session.stats.quantized_tokens == before.quantized_tokens - per_page
    held, now = store.in_use(store.token_index), store.read_keys()
    for layer in range(2):
        for head in range(2):
            then = {int(t): key for t, key in zip(tokens[layer, head], keys[layer, head], strict=True)}
            for token, key in zip(held[layer, head].tolist(), now[layer, head], strict=True):
                if token >= 0:
                    assert token >= per_page
                    assert torch.equal(key, then[token])
    logits_after(engine, session, random_ids(20))
