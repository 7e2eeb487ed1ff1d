"""A saved session and a forked one continue token for token, and a bad file is refused."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from agentkv import policies
from agentkv.engine import Engine, SamplingParams
from agentkv.engine.persistence import FORMAT
from agentkv.errors import PoolExhausted, SessionFileError
from tests.runtime_helpers import random_ids, tiny_engine

PARAMS = SamplingParams(max_tokens=12, min_tokens=12)
OPTIONS: dict[str, dict[str, object]] = {
    "conf-kv": {"fp_window": 8, "recent": 4, "tight": 0.75, "threshold": 0.3},
    "arkv": {"window": 8},
    "snapkv": {"window": 8},
    "pyramidkv": {"window": 8, "beta": 2.0},
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_engine(dtype=torch.float32)


def grown(engine: Engine, policy: str, budget: int | None = 40):
    """A session that has evicted (and, under conf-kv, quantised), with a token waiting."""
    session = engine.open_session(policy, budget if policies.build(policy).evicts else None, **OPTIONS.get(policy, {}))
    list(engine.generate(session, random_ids(70), SamplingParams(max_tokens=9, min_tokens=9)))
    return session


def going_on(engine: Engine, session) -> list[int]:
    turns = [random_ids(11, seed=5), random_ids(3, seed=6)]
    return [t for turn in turns for event in engine.generate(session, turn, PARAMS) for t in event.token_ids]


@pytest.mark.parametrize("policy", policies.names())
def test_a_restored_session_continues_token_for_token(engine: Engine, policy: str, tmp_path: Path) -> None:
    session = grown(engine, policy)
    engine.save_session(session, tmp_path / "deep" / "s.safetensors")
    restored = engine.restore_session(tmp_path / "deep" / "s.safetensors")
    assert restored.ledger == session.ledger
    assert restored.logical_length == session.logical_length
    before, after = session.stats, restored.stats
    assert (after.fp_tokens, after.quantized_tokens) == (before.fp_tokens, before.quantized_tokens)
    assert after.resident_bytes <= before.resident_bytes
    assert going_on(engine, restored) == going_on(engine, session)
    assert restored.timings.reused_tokens > 80
    for one in (session, restored):
        one.close()
    assert engine.arena.used_pages == 0


@pytest.mark.parametrize("policy", policies.names())
def test_a_fork_goes_its_own_way(engine: Engine, policy: str) -> None:
    session = grown(engine, policy)
    fork, other = engine.fork_session(session), engine.fork_session(session)
    list(engine.generate(other, random_ids(20, seed=9), PARAMS))
    other.close()
    assert going_on(engine, fork) == going_on(engine, session)
    fork.close()
    session.close()
    assert engine.arena.used_pages == 0


def test_a_restored_session_says_what_need_not_be_computed_again(engine: Engine, tmp_path: Path) -> None:
    """And it is not: the next call runs what waits and what is new, in as many passes as the session itself."""
    session = grown(engine, "streaming-llm")
    session.drop_span(10, 20)
    engine.save_session(session, tmp_path / "s")
    restored = engine.restore_session(tmp_path / "s")
    assert restored.reusable_tokens == session.logical_length == 78
    assert restored.stats.dropped_tokens == 10
    list(engine.generate(restored, random_ids(5), PARAMS))
    assert (restored.timings.reused_tokens, restored.timings.new_tokens) == (78, 1 + 5)
    assert restored.timings.forward_passes == 1 + 11


@pytest.mark.parametrize("failure", [MemoryError(), PoolExhausted("the KV pool is full")])
def test_a_change_that_fails_leaves_the_session_as_it_was(monkeypatch, failure: Exception) -> None:
    """No memory while slots are being quantised: the session goes on like one that never knew."""
    engine = tiny_engine(dtype=torch.float32)
    session, twin = (engine.open_session("conf-kv", 40, **OPTIONS["conf-kv"]) for _ in range(2))
    for one in (session, twin):
        list(engine.generate(one, random_ids(session.limits.dense_slots), SamplingParams(max_tokens=1)))
    before = session.cache.state()

    def failing(*args: object) -> None:
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr("agentkv.cache.store.stage", failing)
        with pytest.raises(type(failure)):
            list(engine.generate(session, random_ids(20), PARAMS))
    after = session.cache.state()
    assert after.logical_length == before.logical_length
    for name, tensor in before.snapshot.tensors().items():
        assert torch.equal(tensor, after.snapshot.tensors()[name]), name
    list(engine.generate(session, [], PARAMS))
    list(engine.generate(twin, random_ids(20), PARAMS))
    assert session.ledger == twin.ledger
    assert session.stats.quantized_tokens == twin.stats.quantized_tokens > 0


def test_a_session_that_found_no_pages_goes_on_when_there_are_some() -> None:
    engine = tiny_engine(dtype=torch.float32, kv_pool="64KiB")
    session = engine.open_session("conf-kv", 14, fp_window=3, recent=2, sinks=1)
    list(engine.generate(session, random_ids(14), SamplingParams(max_tokens=1)))
    hoard = engine.arena.allocate(engine.arena.free_pages)
    with pytest.raises(PoolExhausted):
        list(engine.generate(session, random_ids(20), PARAMS))
    assert len(session.ledger) == 15 + 20
    engine.arena.release(hoard)
    list(engine.generate(session, [], PARAMS))
    assert len(session.ledger) == 15 + 20 + 12
    assert session.stats.peak_bytes <= session.limits.max_bytes


def test_an_empty_session_can_be_saved(engine: Engine, tmp_path: Path) -> None:
    engine.save_session(engine.open_session("h2o", 64), tmp_path / "empty")
    restored = engine.restore_session(tmp_path / "empty")
    assert restored.ledger == []
    assert going_on(engine, restored)


def test_a_fork_without_room_takes_nothing() -> None:
    engine = tiny_engine(dtype=torch.float32, kv_pool="30KiB")
    session = engine.open_session()
    list(engine.generate(session, random_ids(60), SamplingParams(max_tokens=1)))
    used = engine.arena.used_pages
    with pytest.raises(PoolExhausted):
        engine.fork_session(session)
    assert engine.arena.used_pages == used


class TestBadFiles:
    @pytest.fixture
    def saved(self, engine: Engine, tmp_path: Path) -> Path:
        path = tmp_path / "s.safetensors"
        engine.save_session(grown(engine, "conf-kv"), path)
        return path

    def refused(self, engine: Engine, path: Path, reason: str) -> None:
        with pytest.raises(SessionFileError, match=reason) as refusal:
            engine.restore_session(path)
        assert "\n" not in str(refusal.value)

    @pytest.mark.parametrize("text", ["{", "[]", "5", "{}", json.dumps({"format": FORMAT})])
    def test_edited_metadata(self, engine: Engine, saved: Path, text: str) -> None:
        tensors = load_file(saved)
        save_file(tensors, saved, {"agentkv": text})
        self.refused(engine, saved, "is damaged|has format None")

    def test_missing(self, engine: Engine, tmp_path: Path) -> None:
        self.refused(engine, tmp_path / "none", "there is no session file")

    @pytest.mark.parametrize("length", [0, 5, 300, -1])
    def test_truncated(self, engine: Engine, saved: Path, length: int) -> None:
        saved.write_bytes(saved.read_bytes()[:length])
        self.refused(engine, saved, "no whole session file")

    def test_every_part_is_covered_by_the_checksum(self, engine: Engine, saved: Path) -> None:
        with safe_open(saved, framework="pt") as file:
            about = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        for name in tensors:
            changed = dict(tensors)
            if changed[name].numel() == 0:
                continue
            changed[name] = changed[name].clone()
            changed[name].view(-1)[-1] += 1
            save_file(changed, saved, about)
            self.refused(engine, saved, "checksum does not match")
        edited = json.loads(about["agentkv"])
        for key, value in {"ledger": edited["ledger"][:-1], "budget": 64, "policy": "h2o", "confidence": 0.1}.items():
            save_file(tensors, saved, {"agentkv": json.dumps(edited | {key: value})})
            self.refused(engine, saved, "checksum does not match")

    def test_of_another_model_or_dtype(self, saved: Path) -> None:
        for other in (tiny_engine("qwen3", torch.float32), tiny_engine("llama", torch.float64)):
            self.refused(other, saved, "was saved with the model 'tiny-llama'")

    def test_of_something_else(self, engine: Engine, tmp_path: Path) -> None:
        save_file({"x": torch.zeros(2)}, tmp_path / "x.safetensors")
        self.refused(engine, tmp_path / "x.safetensors", "not of a session")

    @pytest.mark.parametrize("limit", [0, 4096])
    def test_a_full_disk_leaves_the_old_file(self, engine: Engine, saved: Path, limit: int) -> None:
        """The system's own refusal, in the middle of the file."""
        before, session = saved.read_bytes(), grown(engine, "h2o")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(SessionFileError, match="cannot write the session file"):
                engine.save_session(session, saved)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert saved.read_bytes() == before
        assert [p.name for p in saved.parent.iterdir()] == [saved.name]
        assert going_on(engine, session)

    def test_a_failed_write_leaves_the_old_file(self, engine: Engine, saved: Path, monkeypatch) -> None:
        before = saved.read_bytes()

        def full(*args: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("agentkv.engine.persistence.save_file", full)
        with pytest.raises(SessionFileError, match="No space left"):
            engine.save_session(grown(engine, "h2o"), saved)
        assert saved.read_bytes() == before
        assert [p.name for p in saved.parent.iterdir()] == [saved.name]
