"""Checkpoints, rollback and rewind: a session is as it was, or the result says what has to be computed again."""

from __future__ import annotations

import pytest
import torch

from agentkv import policies
from agentkv.cache.facts import Role
from agentkv.engine import Engine, SamplingParams, Session
from agentkv.errors import AgentKVError, PoolExhausted
from tests.runtime_helpers import logits_after, random_ids, recording, tiny_engine

PARAMS = SamplingParams(max_tokens=12, min_tokens=12)
OPTIONS: dict[str, dict[str, object]] = {"conf-kv": {"fp_window": 8, "recent": 4, "tight": 0.75, "threshold": 0.3}}
WITHOUT_MASS = ("window", "streaming-llm", "random")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_engine(dtype=torch.float32)


def opened(engine: Engine, policy: str, **options: object) -> Session:
    """Under a budget that 60 tokens exceed, where the policy has one."""
    built = policies.build(policy)
    budget = max(40, built.least_slots(40) + 8) if built.evicts else None
    return engine.open_session(policy, budget, **OPTIONS.get(policy, {}), **options)


def say(engine: Engine, session: Session, ids: list[int], params: SamplingParams = PARAMS) -> list[int]:
    return [token for event in engine.generate(session, ids, params) for token in event.token_ids]


@pytest.mark.parametrize("policy", policies.names())
def test_a_rollback_is_exact(engine: Engine, policy: str) -> None:
    session = opened(engine, policy)
    say(engine, session, random_ids(70))
    checkpoint = session.checkpoint()
    before, confidence, ledger = session.stats, session.cache.confidence, list(session.ledger)
    columns = {name: c.clone() for name, c in session.cache.state().snapshot.fp.meta.items()}
    spans = list(session.cache.facts.spans)
    expected = say(engine, session, random_ids(30, 1))
    session.mark([(Role.TASK, 5)])
    session.rollback(checkpoint)
    after = session.stats
    assert (session.ledger, session.cache.confidence) == (ledger, confidence)
    assert (after.fp_tokens, after.quantized_tokens) == (before.fp_tokens, before.quantized_tokens)
    assert session.cache.facts.spans == spans
    for name, column in session.cache.state().snapshot.fp.meta.items():
        assert torch.equal(column, columns[name]), name
    assert say(engine, session, random_ids(30, 1)) == expected
    session.rollback(checkpoint)
    assert say(engine, session, random_ids(30, 1)) == expected
    session.close()
    assert engine.arena.used_pages == 0


def test_bytes_of_checkpoints_are_counted_and_freed(engine: Engine) -> None:
    session = opened(engine, "conf-kv")
    say(engine, session, random_ids(70))
    assert session.stats.checkpoint_bytes == 0
    first, second = session.checkpoint(), session.checkpoint()
    payload = session.stats.fp_tokens * engine.layout.token_bytes
    assert session.stats.checkpoint_bytes == first.nbytes + second.nbytes > 2 * payload
    first.drop()
    assert session.stats.checkpoint_bytes == second.nbytes
    session.close()
    assert second.nbytes == 0
    with pytest.raises(AgentKVError, match="was dropped"):
        _ = second.state


def test_a_rollback_without_room_changes_nothing() -> None:
    engine = tiny_engine(dtype=torch.float32, kv_pool="28KiB")
    session, other = engine.open_session(), engine.open_session()
    logits_after(engine, session, random_ids(60))
    checkpoint = session.checkpoint()
    session.rewind(10)
    logits_after(engine, other, random_ids(60))
    with pytest.raises(PoolExhausted, match="close idle sessions"):
        session.rollback(checkpoint)
    assert session.logical_length == len(session.ledger) == 10
    other.close()
    session.rollback(checkpoint)
    assert session.logical_length == 60


# --- rewind ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["full", "window", "streaming-llm", "random", "int8", "knorm"])
def test_a_rewind_of_what_is_whole_equals_a_session_that_never_went_on(policy: str) -> None:
    engine = tiny_engine()
    session, fresh = engine.open_session(policy, 128), engine.open_session(policy, 128)
    ids = random_ids(50)
    logits_after(engine, session, ids)
    rewind = session.rewind(30)
    assert (rewind.how, len(rewind.recompute), session.ledger) == ("exact", 0, ids[:30])
    logits_after(engine, fresh, ids[:30])
    other = random_ids(25, seed=2)
    torch.testing.assert_close(
        logits_after(engine, session, other), logits_after(engine, fresh, other), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("policy", WITHOUT_MASS)
def test_a_rewind_after_the_last_eviction_is_exact(engine: Engine, policy: str) -> None:
    """What is held then is what the token before could see. Further back, what was evicted is missing."""
    session, ids = opened(engine, policy), random_ids(70)
    with recording(session) as log:
        logits_after(engine, session, ids)
    seen = log.visible(2, 2, 70)
    dropped = session.cache.changed_at
    assert 40 < dropped < 69
    for index in (69, dropped + 1):
        assert session.rewind(index).how == "exact"
        held = session.cache.store.token_index
        for layer in range(2):
            for head in range(2):
                expected = seen[layer, head, index - 1].nonzero()[:, 0].tolist()
                assert sorted(t for t in held[layer, head].tolist() if t >= 0) == expected
    assert session.rewind(dropped).how == "prefill"
    assert session.waiting == ids[:dropped]


def test_attention_mass_cannot_be_rewound(engine: Engine) -> None:
    session = engine.open_session("h2o", 200)
    ids = random_ids(50)
    logits_after(engine, session, ids)
    session.ledger.extend([5, 6])
    assert session.rewind(51).how == "exact"  # that token was never in the cache
    assert session.waiting == [5]
    rewind = session.rewind(40)
    assert (rewind.how, rewind.recompute) == ("prefill", range(0, 40))
    assert session.stats.fp_tokens == 0
    fresh = engine.open_session("h2o", 200)
    torch.testing.assert_close(logits_after(engine, session, [7]), logits_after(engine, fresh, [*ids[:40], 7]))
    torch.testing.assert_close(*(one.cache.store.in_use(one.cache.store.mass) for one in (session, fresh)))


@pytest.mark.parametrize("policy", policies.names())
def test_a_rewind_to_the_start_of_a_turn_finds_its_checkpoint(engine: Engine, policy: str) -> None:
    session = opened(engine, policy, checkpoints=2)
    say(engine, session, random_ids(60))
    ledger = list(session.ledger)
    expected = say(engine, session, random_ids(30, 1))
    rewind = session.rewind(len(ledger))
    assert rewind.how == "exact"
    assert session.ledger == ledger
    # The last token of a reply waits for the next call, then as now.
    assert rewind.recompute == range(len(ledger) - 1, len(ledger)) or not policies.build(policy).evicts
    assert say(engine, session, random_ids(30, 1)) == expected
    session.close()


def test_a_rewind_between_checkpoints_says_what_is_computed_again(engine: Engine) -> None:
    session = opened(engine, "h2o", checkpoints=8)
    for turn in range(4):
        say(engine, session, random_ids(20, turn))
    ledger, third = list(session.ledger), 2 * 32
    rewind = session.rewind(third + 10)
    assert (rewind.how, rewind.recompute) == ("checkpoint", range(third - 1, third + 10))
    assert session.ledger == ledger[: third + 10]
    assert session.waiting == ledger[third - 1 : third + 10]
    assert say(engine, session, random_ids(3))
    assert session.timings.reused_tokens == third - 1


def test_only_the_newest_automatic_checkpoints_are_kept(engine: Engine) -> None:
    session = opened(engine, "streaming-llm", checkpoints=2)
    kept = session.checkpoint()
    for turn in range(5):
        say(engine, session, random_ids(20, turn))
    live = [c for c in session.checkpoints._live if not c.dropped]
    assert [c.automatic for c in live] == [False, True, True]
    assert kept in live
    assert [c.logical_length for c in live[1:]] == [3 * 32 - 1, 4 * 32 - 1]
    session.rewind(3 * 32)
    assert [c.logical_length for c in session.checkpoints._live if c.automatic] == [3 * 32 - 1]


def test_a_checkpoint_of_another_past_is_not_used_for_a_rewind(engine: Engine) -> None:
    session = opened(engine, "h2o")
    logits_after(engine, session, random_ids(70))
    kept = session.checkpoint()
    session.rewind(0)
    logits_after(engine, session, random_ids(90, seed=1))
    assert session.rewind(80).how == "prefill"
    session.rollback(kept)
    assert session.ledger == random_ids(70)


def test_roles_and_dropped_spans_go_back_too(engine: Engine) -> None:
    session = opened(engine, "streaming-llm", protect=["task"])
    list(engine.generate(session, random_ids(30), PARAMS, roles=[(Role.TASK, 3), (Role.OBSERVATION, 27)]))
    session.drop_span(10, 15)
    checkpoint = session.checkpoint()
    list(engine.generate(session, random_ids(30), PARAMS, roles=[(Role.ACTION, 30)]))
    session.drop_span(40, 60)
    spans = list(session.cache.facts.spans)
    assert session.rewind(50).how == "checkpoint"
    facts = session.cache.facts
    assert facts.dropped == [(10, 15)]
    assert [(span.role, span.start, span.end) for span in facts.spans][:2] == [
        (span.role, span.start, span.end) for span in spans[:2]
    ]
    assert facts.spans[-1].end == 50
    session.rollback(checkpoint)
    assert session.stats.dropped_tokens == 5
    assert session.rewind(5).how == "prefill"
    assert session.stats.dropped_tokens == 0


@pytest.mark.parametrize("index", [-1, 51, 1.5, "a", None])
def test_a_token_that_is_not_there_is_refused(engine: Engine, index: object) -> None:
    session = engine.open_session()
    logits_after(engine, session, random_ids(50))
    with pytest.raises(AgentKVError, match=f"cannot rewind to token {index!r}: the session has 50"):
        session.rewind(index)
    assert session.logical_length == 50


def test_a_checkpoint_of_another_session_is_refused(engine: Engine) -> None:
    full, evicting = opened(engine, "full"), opened(engine, "h2o")
    logits_after(engine, full, random_ids(70))
    foreign = full.checkpoint()
    with pytest.raises(AgentKVError, match="of another session"):
        evicting.rollback(foreign)
    fork = engine.fork_session(full)
    with pytest.raises(AgentKVError, match="of another session"):
        fork.rollback(foreign)
    assert evicting.ledger == []
    for session in (full, evicting, fork):
        session.close()


@pytest.mark.parametrize("checkpoints", [-1, True, "3"])
def test_a_bad_number_of_checkpoints_is_refused(engine: Engine, checkpoints: object) -> None:
    with pytest.raises(AgentKVError, match="checkpoints must be a number"):
        engine.open_session(checkpoints=checkpoints)  # type: ignore[arg-type]


def test_going_back_while_a_call_runs_is_refused(engine: Engine) -> None:
    session = engine.open_session()
    stream = engine.generate(session, random_ids(9), PARAMS)
    next(stream)
    for back in (session.checkpoint, lambda: session.rewind(3), lambda: session.drop_span(1, 2)):
        with pytest.raises(AgentKVError, match="in use by another call"):
            back()
    stream.close()


def test_a_rewind_by_nothing_changes_nothing(engine: Engine) -> None:
    """Not even what the model's confidence says of the next token."""
    session = engine.open_session("conf-kv", 48)
    list(engine.generate(session, random_ids(60), SamplingParams(max_tokens=4, min_tokens=4)))
    confidence = session.cache.confidence
    assert session.rewind(len(session.ledger)).how == "exact"
    assert session.cache.confidence == confidence is not None
    session.close()


def test_roles_that_are_no_pairs_are_refused(engine: Engine) -> None:
    session = engine.open_session("h2o", 48)
    with pytest.raises(AgentKVError, match="roles are pairs of a role and a number of tokens"):
        list(engine.generate(session, [5, 6], roles=[Role.TASK]))  # type: ignore[list-item]
    assert session.ledger == []
    session.close()
