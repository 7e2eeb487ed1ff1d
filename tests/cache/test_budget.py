"""Budgets: what is understood, what it resolves to, and that the cap is hard at every step."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv import policies
from agentkv.cache.budget import Budget, full_bytes, resolve, worst_bytes
from agentkv.cache.formats import KVLayout
from agentkv.engine import SamplingParams
from agentkv.errors import AgentKVError, BudgetTooSmall
from tests.runtime_helpers import WINDOW, logits_after, random_ids, recording, tiny_engine

LAYOUT = KVLayout(layers=30, kv_heads=3, head_dim=64, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        (None, Budget()),
        (512, Budget(tokens=512)),
        ("512", Budget(tokens=512)),
        ("24MiB", Budget(bytes=24 * 2**20)),
        (" 1.5 GiB ", Budget(bytes=3 * 2**29)),
        ("100kb", Budget(bytes=100_000)),
        ("25%", Budget(share=0.25)),
    ],
)
def test_budgets_that_are_understood(text, budget: Budget) -> None:
    assert Budget.parse(text) == budget


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lots", "not understood"),
        ("-5", "not understood"),
        (True, "not understood"),
        (0, "above zero"),
        ("12.5", "whole"),
        ("120%", "above 100%"),
        ("3 parsecs", "unknown unit 'parsecs'"),
    ],
)
def test_budgets_that_are_refused(text, reason: str) -> None:
    with pytest.raises(AgentKVError, match=reason):
        Budget.parse(text)


@given(policy=st.sampled_from(policies.names()), mib=st.integers(2, 200))
def test_a_byte_budget_is_never_exceeded_and_well_used(policy: str, mib: int) -> None:
    built = policies.build(policy)
    limits = resolve(Budget(bytes=mib * 2**20), built, LAYOUT, window=8192)
    assert worst_bytes(built, LAYOUT, limits.max_slots) <= limits.max_bytes <= mib * 2**20
    assert limits.dense_slots <= 8192
    if limits.max_slots < 8192:
        assert worst_bytes(built, LAYOUT, limits.max_slots + 32) > mib * 2**20


def test_quantising_buys_tokens() -> None:
    """At equal bytes conf-kv holds at least 1.5 times the tokens of a policy in the model's dtype."""
    mixed, plain = (
        resolve(Budget(bytes=24 * 2**20), policies.build(name), LAYOUT, 8192).max_slots for name in ("conf-kv", "h2o")
    )
    assert 1.5 < mixed / plain < 2


def test_a_share_is_of_full_kv_at_the_window() -> None:
    limits = resolve(Budget(share=0.25), policies.build("streaming-llm"), LAYOUT, window=8192)
    assert 0.97 * 2048 <= limits.max_slots <= 2048
    assert limits.max_bytes <= full_bytes(LAYOUT, 8192) // 4


@pytest.mark.parametrize("budget", [Budget(tokens=3), Budget(bytes=10_000), Budget(share=0.0001)])
@pytest.mark.parametrize("policy", policies.names())
def test_a_budget_below_the_protected_set_is_refused(policy: str, budget: Budget) -> None:
    with pytest.raises(BudgetTooSmall, match=r"give at least \d+ tokens \(\d+ bytes\)"):
        resolve(budget, policies.build(policy), LAYOUT, 8192)


def test_a_refusal_names_what_is_freed_at_a_time() -> None:
    with pytest.raises(BudgetTooSmall, match="0 sinks and 32 newest tokens and frees 32 at a time; give at least 64"):
        resolve(Budget(tokens=40), policies.build("snapkv"), LAYOUT, 8192)


@pytest.mark.parametrize("budget", [None, 512, "24MiB"])
@pytest.mark.parametrize("policy", ["h2o", "random", "conf-kv"])
def test_protecting_everything_is_refused(policy: str, budget) -> None:
    with pytest.raises(BudgetTooSmall, match="leaves nothing to evict"):
        resolve(Budget.parse(budget), policies.build(policy, recent=1.0), LAYOUT, 8192)


def test_the_whole_share_holds_the_whole_window() -> None:
    assert resolve(Budget(share=1.0), policies.build("full"), LAYOUT, 8192).max_slots == 8192


@pytest.mark.parametrize("policy", policies.names())
def test_the_least_budget_named_by_the_refusal_works(policy: str) -> None:
    engine = tiny_engine()
    with pytest.raises(BudgetTooSmall) as refusal:
        engine.open_session(policy, 3)
    least = int(str(refusal.value).split("at least ")[1].split()[0])
    session = engine.open_session(policy, least)
    if not session.policy.evicts:
        return
    list(engine.generate(session, random_ids(40), SamplingParams(max_tokens=10, min_tokens=10)))
    assert session.cache.store.slots_used <= max(least, session.limits.dense_slots)


@settings(max_examples=30, deadline=None)
@given(
    policy=st.sampled_from([name for name in policies.names() if policies.build(name).evicts]),
    kib=st.integers(40, 130),
    turns=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
def test_the_cap_holds_at_every_step(policy: str, kib: int, turns: list[tuple[int, int]], seed: int) -> None:
    """Prefill, decoding with changing confidence, and further turns: never a byte or a slot too many."""
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session(policy, f"{kib}KiB")
    store, generator = session.cache.store, torch.Generator().manual_seed(seed)
    with recording(session) as log:
        for prompt, decoded in turns:
            logits_after(engine, session, random_ids(prompt, seed))
            for token in random_ids(decoded, seed + 1):
                session.cache.confidence = float(torch.rand((), generator=generator))
                logits_after(engine, session, [token])
                assert store.slots_used <= max(session.limits.max_slots, session.limits.dense_slots)
    assert max(log.resident) <= store.peak_bytes <= session.limits.max_bytes <= kib * 1024
    if session.logical_length <= session.limits.dense_slots:
        assert session.stats.evicted_tokens == session.stats.quantized_tokens == 0
    session.close()
    assert engine.arena.used_pages == 0


def test_full_refuses_more_than_its_budget_and_loses_nothing() -> None:
    engine = tiny_engine()
    session = engine.open_session("full", 32)
    logits_after(engine, session, random_ids(20))
    with pytest.raises(AgentKVError, match="drops nothing: raise the budget or choose an evicting policy"):
        engine.generate(session, random_ids(20))
    assert len(session.ledger) == session.logical_length == 20
    assert list(engine.generate(session, [5], SamplingParams(max_tokens=100, min_tokens=100)))[-1].finish_reason == (
        "context_full"
    )
    assert session.limits.max_slots < WINDOW


@pytest.mark.parametrize("policy", ["streaming-llm", "h2o", "conf-kv"])
def test_after_a_whole_prefill_the_cap_holds_from_the_next_token_on(policy: str) -> None:
    engine = tiny_engine(kv_pool="1MiB")
    session = engine.open_session(policy, 32, prefill="whole")
    list(engine.generate(session, random_ids(90), SamplingParams(max_tokens=1, min_tokens=1)))
    assert session.stats.resident_bytes > session.limits.max_bytes
    list(engine.generate(session, [], SamplingParams(max_tokens=2, min_tokens=2)))
    assert session.stats.resident_bytes <= session.limits.max_bytes
