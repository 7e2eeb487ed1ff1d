"""Idle sessions outside the pool: they come back as they were, or stay as they are."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest
import torch

from agentkv import policies
from agentkv.engine import Engine, SamplingParams, Session
from agentkv.errors import AgentKVError, PoolExhausted, SessionFileError
from tests.runtime_helpers import DigitTokenizer, random_ids, tiny_engine, tiny_model

PARAMS = SamplingParams(max_tokens=12, min_tokens=12)
OPTIONS: dict[str, dict[str, object]] = {"conf-kv": {"fp_window": 8, "recent": 4, "tight": 0.75, "threshold": 0.3}}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_engine(dtype=torch.float32)


def small_pool(spill: str | Path | None, kv_pool: str = "28KiB") -> Engine:
    """Room for one session of 60 tokens of full KV, not for two."""
    return Engine(tiny_model("llama", torch.float32), DigitTokenizer(), "tiny", kv_pool, spill)


def say(engine: Engine, session: Session, ids: list[int]) -> list[int]:
    return [token for event in engine.generate(session, ids, PARAMS) for token in event.token_ids]


def grown(engine: Engine, policy: str) -> Session:
    built = policies.build(policy)
    budget = max(40, built.least_slots(40) + 8) if built.evicts else None
    session = engine.open_session(policy, budget, **OPTIONS.get(policy, {}))
    say(engine, session, random_ids(70))
    return session


@pytest.mark.parametrize("where", ["cpu", "disk"])
@pytest.mark.parametrize("policy", policies.names())
def test_a_spilled_session_goes_on_token_for_token(engine: Engine, policy: str, where: str, tmp_path: Path) -> None:
    session, twin = grown(engine, policy), grown(engine, policy)
    before, pages = session.stats, engine.arena.used_pages
    engine.spill(session, where if where == "cpu" else tmp_path)
    assert engine.arena.used_pages == pages // 2
    assert engine.spilled_bytes > before.fp_tokens * engine.layout.token_bytes
    assert session.spilled == ("cpu" if where == "cpu" else str(next(tmp_path.iterdir())))
    stats = session.stats
    assert stats.resident_bytes == stats.metadata_bytes < before.resident_bytes
    assert (stats.fp_tokens, stats.quantized_tokens) == (before.fp_tokens, before.quantized_tokens)
    engine.spill(session)  # it is elsewhere already
    assert say(engine, session, random_ids(30, 1)) == say(engine, twin, random_ids(30, 1))
    assert session.spilled is None
    assert engine.spilled_bytes == 0
    assert list(tmp_path.iterdir()) == []
    assert session.stats == twin.stats
    for one in (session, twin):
        one.close()
    assert engine.arena.used_pages == 0


@pytest.mark.parametrize("where", ["cpu", "disk"])
def test_a_full_pool_spills_who_was_idle_longest(where: str, tmp_path: Path) -> None:
    engine, roomy = small_pool("cpu" if where == "cpu" else tmp_path), small_pool(None, "8MiB")
    sessions, twins = ([one.open_session() for _ in range(4)] for one in (engine, roomy))
    for turn in range(3):
        for number, (session, twin) in enumerate(zip(sessions, twins, strict=True)):
            ids = random_ids(9, 10 * turn + number)
            assert say(engine, session, ids) == say(roomy, twin, ids)
            if turn:
                assert sessions[(number + 1) % 4].spilled is not None
            assert session.spilled is None
    assert engine.spilled_bytes > 0
    for session in sessions:
        session.close()
    gc.collect()
    assert engine.spilled_bytes == 0
    assert list(tmp_path.iterdir()) == []


def test_without_a_place_to_go_a_full_pool_is_an_error() -> None:
    engine = small_pool(None)
    first, second = engine.open_session(), engine.open_session()
    say(engine, first, random_ids(60))
    with pytest.raises(PoolExhausted):
        say(engine, second, random_ids(60))
    engine.spill(first)
    assert say(engine, second, []) is not None
    with pytest.raises(PoolExhausted):  # its content has nowhere to come back to
        say(engine, first, [5])
    assert first.spilled == "cpu"
    second.close()
    assert say(engine, first, [5])


def test_everything_brings_a_spilled_session_back(engine: Engine, tmp_path: Path) -> None:
    session = grown(engine, "streaming-llm")
    kept = session.checkpoint()
    length = len(session.ledger)

    def used(action: object) -> None:
        engine.spill(session)
        assert callable(action)
        action()
        assert session.spilled is None

    used(lambda: engine.fork_session(session).close())
    used(lambda: engine.save_session(session, tmp_path / "s"))
    used(session.checkpoint)
    used(lambda: session.drop_span(60, 65))
    used(lambda: session.rewind(length - 1))
    used(lambda: session.rollback(kept))
    assert len(session.ledger) == length
    session.close()


@pytest.mark.parametrize("automatic", [False, True])
def test_a_full_disk_leaves_the_session_as_it_was(
    automatic: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = small_pool(tmp_path)
    session, twin = engine.open_session(), tiny_engine(dtype=torch.float32).open_session()
    ids = random_ids(60)
    say(engine, session, ids)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    before = session.stats
    with monkeypatch.context() as patched:
        patched.setattr("agentkv.engine.persistence.save_file", full)
        if automatic:
            with pytest.raises(PoolExhausted, match=r"could not be spilled: .*No space left"):
                say(engine, engine.open_session(), random_ids(60))
        else:
            with pytest.raises(SessionFileError, match="No space left"):
                engine.spill(session, tmp_path)
    assert session.stats == before
    assert session.spilled is None
    assert list(tmp_path.iterdir()) == []
    del twin
    assert len(say(engine, session, [5])) == 12


def test_a_damaged_file_is_refused_and_the_session_says_so(engine: Engine, tmp_path: Path) -> None:
    session = grown(engine, "streaming-llm")
    engine.spill(session, tmp_path)
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(SessionFileError, match="checksum does not match"):
        say(engine, session, [5])
    data[-1] ^= 1
    file.write_bytes(data)
    assert say(engine, session, [5])


def test_files_go_with_their_sessions(engine: Engine, tmp_path: Path) -> None:
    closed, forgotten = grown(engine, "window"), grown(engine, "window")
    for session in (closed, forgotten):
        engine.spill(session, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    closed.close()
    assert len(list(tmp_path.iterdir())) == 1
    del session, forgotten
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_session_in_use_or_closed_is_not_spilled(engine: Engine) -> None:
    session = grown(engine, "window")
    stream = engine.generate(session, [5], PARAMS)
    next(stream)
    with pytest.raises(AgentKVError, match="only an idle one can be spilled"):
        engine.spill(session)
    stream.close()
    session.close()
    with pytest.raises(AgentKVError, match="only an idle one can be spilled"):
        engine.spill(session)


def test_threads_that_share_a_pool_do_not_disturb_each_other() -> None:
    """Two threads, two sessions each, room for two: each spills the other's idle one, and no call is refused for it."""
    engine, roomy = small_pool("cpu", "56KiB"), small_pool(None, "8MiB")
    said: dict[int, list[int]] = {}

    def talk(one: Engine, thread: int) -> None:
        sessions = [one.open_session() for _ in range(2)]
        replies = []
        for turn in range(4):
            for number, session in enumerate(sessions):
                replies += say(one, session, random_ids(9, 100 * thread + 10 * turn + number))
        said[thread] = replies

    for thread in (0, 1):
        talk(roomy, thread)
    expected, said = said, {}
    threads = [threading.Thread(target=talk, args=(engine, thread)) for thread in (0, 1)]
    for started in threads:
        started.start()
    for started in threads:
        started.join(timeout=120)
    assert said == expected
