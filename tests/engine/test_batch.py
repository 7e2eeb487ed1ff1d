"""A batch of sessions computes what each of them would alone."""

from __future__ import annotations

import pytest
import torch

from agentkv import policies
from agentkv.engine import Engine, SamplingParams, Session
from agentkv.errors import AgentKVError, ContextOverflow, PoolExhausted
from tests.runtime_helpers import ARCHITECTURES, WINDOW, grid, logits_after, random_ids, tiny_engine

TIGHT = {"conf-kv": {"fp_window": 8, "recent": 4, "tight": 0.5, "threshold": 0.5}}
MIXED = (
    ("full", None),
    ("h2o", 40),
    ("conf-kv", 64),
    ("streaming-llm", 24),
    ("snapkv", 80),
    ("tova", 33),
    ("int8", None),
    ("fp8", None),
    ("int8-channel", None),
    ("arkv", 64),
    ("surprise", 48),
)
LENGTHS = (3, 90, 60, 17, 100, 41, 70, 50, 65, 80, 110)


def opened(engine: Engine, mixed=MIXED) -> list[Session]:
    return [engine.open_session(policy, budget, **TIGHT.get(policy, {})) for policy, budget in mixed]


def alone(engine: Engine, sessions: list[Session], prompts: list[list[int]], params: SamplingParams) -> list[list[int]]:
    return [
        [token for event in engine.generate(session, prompt, params) for token in event.token_ids]
        for session, prompt in zip(sessions, prompts, strict=True)
    ]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_mixed_policies_formats_and_lengths_equal_each_session_alone(dtype: torch.dtype) -> None:
    """Token for token over two turns, and slot for slot: what each policy kept, and the mass it kept it by."""
    engine = tiny_engine("llama", dtype)
    single, batch = opened(engine), opened(engine)
    params = SamplingParams(max_tokens=40, min_tokens=40, temperature=0.8, seed=5)
    for turn in range(2):
        prompts = [random_ids(length, seed + 20 * turn) for seed, length in enumerate(LENGTHS)]
        assert engine.generate_batch(batch, prompts, params) == alone(engine, single, prompts, params)
        for one, other in zip(single, batch, strict=True):
            assert one.ledger == other.ledger
            if one.policy.needs_confidence:
                assert one.cache.confidence == pytest.approx(other.cache.confidence, rel=1e-4)
            stores = one.cache.store, other.cache.store
            for names in zip(*(store.slot_metadata for store in stores), strict=True):
                tensors = [store.slot_metadata[name] for store, name in zip(stores, names, strict=True)]
                torch.testing.assert_close(*tensors, rtol=1e-3, atol=1e-4)
    quantised = {session.policy.name for session in batch if session.stats.quantized_tokens}
    # A page with scales per channel holds 128 tokens in float64, more than fill a head of any session here.
    assert quantised >= {"conf-kv", "int8", "fp8", *(["int8-channel"] if dtype is torch.float32 else [])}
    assert sum(session.stats.evicted_tokens > 0 for session in batch) == 7


@pytest.mark.parametrize(
    ("architecture", "policy"), grid(ARCHITECTURES, [name for name in policies.names() if name != "full"])
)
def test_every_architecture_and_policy_equals_each_session_alone(architecture: str, policy: str) -> None:
    """In float64: knorm sees equal norms in equal tokens' keys, and in float32 the order of sums would choose."""
    engine = tiny_engine(architecture)
    mixed = ((policy, 70), ("full", None), (policy, 90))
    single, batch = opened(engine, mixed), opened(engine, mixed)
    prompts = [random_ids(length, seed) for seed, length in enumerate((61, 66, 12))]
    if not single[0].policy.evicts:  # then the budget is the end
        prompts[0] = prompts[0][:30]
    params = SamplingParams(max_tokens=35, min_tokens=35)
    assert engine.generate_batch(batch, prompts, params) == alone(engine, single, prompts, params)
    assert [one.ledger for one in single] == [other.ledger for other in batch]


def test_logits_are_those_of_each_session_alone() -> None:
    engine = tiny_engine()
    single, batch = opened(engine), opened(engine)
    for sessions in (single, batch):
        for seed, (session, length) in enumerate(zip(sessions, LENGTHS, strict=True)):
            logits_after(engine, session, random_ids(length, seed))
    for step in range(30):
        last = random_ids(len(batch), step)
        together = engine.decode_batch(batch, last)
        for session, token, logits in zip(single, last, together, strict=True):
            torch.testing.assert_close(logits, engine.decode_batch([session], [token])[0], rtol=0, atol=1e-6)
    assert [session.logical_length for session in batch] == [length + 30 for length in LENGTHS]


def test_confidence_is_booked_for_each_session() -> None:
    """A budget that follows the model's confidence reads its own session's, not another's."""
    engine = tiny_engine()
    sessions = [engine.open_session("conf-kv", 64, **TIGHT["conf-kv"]) for _ in range(3)]
    for seed, session in enumerate(sessions):
        logits_after(engine, session, random_ids(30, seed))
    engine.decode_batch(sessions, [5, 6, 7])
    booked = [session.cache.confidence for session in sessions]
    assert len(set(booked)) == 3
    assert all(0 < value < 1 for value in booked)


def test_sessions_beyond_the_window_are_rebased_in_a_batch_too() -> None:
    engine = tiny_engine(dtype=torch.float32)
    mixed = (("streaming-llm", 40), ("h2o", 60), ("conf-kv", 50))
    single, batch = opened(engine, mixed), opened(engine, mixed)
    prompts = [random_ids(length, seed) for seed, length in enumerate((WINDOW - 9, 100, WINDOW - 30))]
    params = SamplingParams(max_tokens=50, min_tokens=50)
    assert engine.generate_batch(batch, prompts, params) == alone(engine, single, prompts, params)
    assert [session.stats.rebases for session in batch] == [1, 0, 1]


def test_a_session_whose_reply_ends_leaves_the_batch() -> None:
    engine = tiny_engine(dtype=torch.float32)
    single, batch = (opened(engine, (("full", None), ("full", 50), ("h2o", 30))) for _ in range(2))
    prompts = [random_ids(length, seed) for seed, length in enumerate((9, 40, 20))]
    params = SamplingParams(max_tokens=25, min_tokens=25)
    generated = engine.generate_batch(batch, prompts, params)
    assert generated == alone(engine, single, prompts, params)
    assert [len(tokens) for tokens in generated] == [25, 10, 25]  # the second's budget was full
    assert [s.timings.generated_tokens for s in batch] == [s.timings.generated_tokens for s in single]
    assert not any(session.busy for session in batch)


def test_a_window_that_is_full_ends_a_reply_before_it_begins() -> None:
    engine = tiny_engine(dtype=torch.float32)
    sessions = [engine.open_session(), engine.open_session()]
    prompts = [random_ids(WINDOW), random_ids(5)]
    assert [len(tokens) for tokens in engine.generate_batch(sessions, prompts, SamplingParams(max_tokens=3))] == [0, 3]


class TestErrors:
    def test_what_cannot_be_decoded_together_is_refused(self) -> None:
        engine, other = tiny_engine(dtype=torch.float32), tiny_engine(dtype=torch.float32)
        first, second = engine.open_session(), engine.open_session()
        for session in (first, second):
            logits_after(engine, session, random_ids(5))
        cases = [
            ([], [], "no sessions"),
            ([first], [1, 2], "1 sessions but 2 tokens"),
            ([first, first], [1, 2], "listed twice"),
            ([first, other.open_session()], [1, 2], "another engine"),
        ]
        for sessions, last, reason in cases:
            with pytest.raises(AgentKVError, match=reason):
                engine.decode_batch(sessions, last)
        second.ledger.append(4)
        with pytest.raises(AgentKVError, match="1 tokens waiting"):
            engine.decode_batch([first, second], [1, 2])
        second.close()
        with pytest.raises(AgentKVError, match="closed"):
            engine.decode_batch([first, second], [1, 2])
        assert first.ledger == random_ids(5)
        assert not first.busy

    def test_a_session_without_room_is_refused_before_any_is_computed(self) -> None:
        engine = tiny_engine(dtype=torch.float32)
        short, full = engine.open_session(), engine.open_session()
        logits_after(engine, short, random_ids(5))
        logits_after(engine, full, random_ids(WINDOW))
        with pytest.raises(ContextOverflow):
            engine.decode_batch([short, full], [3, 4])
        with pytest.raises(ContextOverflow):
            engine.generate_batch([short, full], [[3], [4]])
        assert short.ledger == random_ids(5)
        with pytest.raises(AgentKVError, match="at least one new token"):
            engine.generate_batch([short], [[]])

    def test_a_full_pool_leaves_every_session_usable(self) -> None:
        """One session needs a page that nobody has, after another already made room: all go on, token for token."""
        engine, roomy = tiny_engine(kv_pool="80KiB"), tiny_engine()
        policies_used = (("h2o", 16), ("conf-kv", 16), ("full", None))
        crowd, free = (opened(e, policies_used) for e in (engine, roomy))
        for number, pair in enumerate(zip(crowd, free, strict=True)):
            for e, session in zip((engine, roomy), pair, strict=True):
                logits_after(e, session, random_ids(30 if number < 2 else 16, number))
        hold = engine.arena.allocate(engine.arena.free_pages)
        before = [list(session.ledger) for session in crowd]
        with pytest.raises(PoolExhausted):
            engine.decode_batch(crowd, [5, 6, 7])
        assert [session.ledger for session in crowd] == before
        assert [session.logical_length for session in crowd] == [30, 30, 16]
        assert not any(session.busy or session.closed for session in crowd)
        engine.arena.release(hold)
        for step in range(12):
            last = random_ids(3, step)
            torch.testing.assert_close(
                engine.decode_batch(crowd, last), roomy.decode_batch(free, last), rtol=0, atol=1e-9
            )

    def test_a_full_pool_in_a_reply_keeps_what_was_generated(self) -> None:
        engine = tiny_engine(dtype=torch.float32, kv_pool="20KiB")
        sessions = [engine.open_session(), engine.open_session()]
        with pytest.raises(PoolExhausted):
            engine.generate_batch(
                sessions, [random_ids(30), random_ids(30, 1)], SamplingParams(max_tokens=60, min_tokens=60)
            )
        generated = [len(session.ledger) - 30 for session in sessions]
        assert generated[0] == generated[1] > 1
        sessions[1].close()
        assert engine.generate_batch(sessions[:1], [[]], SamplingParams(max_tokens=4, min_tokens=4))[0]
        assert sessions[0].logical_length == 30 + generated[0] + 3

    def test_a_failed_pass_closes_its_sessions(self, monkeypatch) -> None:
        engine = tiny_engine(dtype=torch.float32)
        sessions = [engine.open_session(), engine.open_session()]
        for session in sessions:
            logits_after(engine, session, random_ids(5))

        def broken(*args: object) -> None:
            raise MemoryError

        monkeypatch.setattr(engine._paged, "forward", broken)
        with pytest.raises(MemoryError):
            engine.decode_batch(sessions, [1, 2])
        assert all(session.closed for session in sessions)
        assert engine.arena.used_pages == 0
