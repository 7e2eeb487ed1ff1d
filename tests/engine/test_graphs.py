"""Decode steps replayed from buffers alone give what they give operation by operation.

On a GPU the replays are CUDA graphs; elsewhere those of :mod:`tests.engine.recorded`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from agentkv.cache.static import room_for
from agentkv.engine import Engine, Session, graphs
from agentkv.engine.graphs import _MOST_SHAPES, CudaCapture, DecodeGraphs, GraphCounts
from agentkv.errors import AgentKVError
from tests.engine.recorded import recorded
from tests.runtime_helpers import ARCHITECTURES, DigitTokenizer, grid, logits_after, random_ids, tiny_model

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PLAIN = tuple(name for name in ARCHITECTURES if name != "gpt_oss")
"""Models of which every operation can be captured; gpt-oss asks which expert has tokens."""


@pytest.fixture(autouse=True)
def operations_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the C++ kernel would not be recorded."""
    if DEVICE.type == "cpu":
        monkeypatch.setenv("AGENTKV_KERNELS", "reference")


def make_engine(architecture: str, replays: bool, lean: bool = False) -> Engine:
    model = tiny_model(architecture, torch.float32).to(DEVICE)
    engine = Engine(model, DigitTokenizer(), architecture, "8MiB", decode_graph="off")
    if not lean:
        engine._paged.lean = None
    if replays:
        capture = CudaCapture(DEVICE) if DEVICE.type == "cuda" else recorded
        engine.graphs = DecodeGraphs(engine._paged, engine.arena, capture)
    return engine


@dataclass
class Run:
    """What became of some sessions: the logits of every step, and the tokens every slot holds at the end."""

    logits: Tensor
    slots: list[Tensor]
    mass: list[Tensor]
    counts: GraphCounts


def decode(engine: Engine, sessions: list[Session], steps: int) -> Tensor:
    """Greedily: logits [steps, B, V]."""
    last, logits = [5] * len(sessions), []
    for _ in range(steps):
        logits.append(engine.decode_batch(sessions, last))
        last = logits[-1].argmax(-1).tolist()
    return torch.stack(logits)


def run_of(engine: Engine, policy: str, budget: int | None, lengths: tuple[int, ...], steps: int = 30) -> Run:
    sessions = [engine.open_session(policy, budget, exempt=()) for _ in lengths]
    for place, (session, length) in enumerate(zip(sessions, lengths, strict=True)):
        logits_after(engine, session, random_ids(length, seed=place))
    logits = decode(engine, sessions, steps)
    stores = [session.cache.store for session in sessions]
    masses = [store.in_use(store.mass) for store in stores if store.mass is not None]
    return Run(logits, [store.in_use(store.token_index) for store in stores], masses, engine.graphs.counts)


def check_same(replayed: Run, eager: Run) -> None:
    assert torch.equal(replayed.logits.argmax(-1), eager.logits.argmax(-1))
    torch.testing.assert_close(replayed.logits, eager.logits, rtol=1e-4, atol=1e-4)
    for one, other in zip(replayed.slots, eager.slots, strict=True):
        assert torch.equal(one, other)
    for one, other in zip(replayed.mass, eager.mass, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


SESSIONS = [(100,), (70, 60), (150, 40, 20)]
"""One, two of like length that are one attention call, and three that are two."""
POLICIES = [("full", None), ("window", 32), ("h2o", 32), ("conf-kv", 48), ("int8", None), ("fp8", None)]


@pytest.mark.parametrize(("policy", "lengths", "lean"), grid(POLICIES, SESSIONS, [True, False]))
def test_replays_give_the_same_tokens(policy, lengths, lean) -> None:
    name, budget = policy
    found = run_of(make_engine("llama", True, lean), name, budget, lengths)
    check_same(found, run_of(make_engine("llama", False, lean), name, budget, lengths))
    assert found.counts.replayed >= 20
    assert found.counts.refused is None


@pytest.mark.parametrize("architecture", PLAIN)
def test_every_architecture_can_be_replayed(architecture) -> None:
    found = run_of(make_engine(architecture, True), "conf-kv", 48, (90, 30), steps=12)
    check_same(found, run_of(make_engine(architecture, False), "conf-kv", 48, (90, 30), steps=12))
    assert found.counts.replayed >= 6


def test_scales_per_channel_can_be_replayed() -> None:
    found = run_of(make_engine("qwen3", True, lean=True), "int8-channel", None, (190,), steps=40)
    check_same(found, run_of(make_engine("qwen3", False, lean=True), "int8-channel", None, (190,), steps=40))
    assert found.counts.replayed >= 20


def test_a_graph_serves_other_sessions_of_its_shape() -> None:
    """Between replays sessions come, go, fork and lose a span; what a graph saw at its capture plays no role."""

    def play(engine: Engine) -> Tensor:
        first, second = (engine.open_session("h2o", 48) for _ in range(2))
        logits_after(engine, first, random_ids(60, seed=1))
        logits_after(engine, second, random_ids(90, seed=2))
        logits = [decode(engine, [session], 8) for session in (first, second, first)]
        third = engine.fork_session(first)
        first.close()
        third.drop_span(40, 50)
        logits += [decode(engine, [session], 8) for session in (third, second)]
        return torch.stack(logits)

    engine = make_engine("llama", True, lean=True)
    found, expected = play(engine), play(make_engine("llama", False, lean=True))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert engine.graphs.counts.captured == 1
    assert engine.graphs.counts.replayed >= 30


def test_replays_can_be_turned_off_and_on() -> None:
    engine = make_engine("llama", True)
    session = engine.open_session("window", 32)
    logits_after(engine, session, random_ids(60))
    for enabled, replayed in ((True, 3), (False, 3), (True, 8)):
        engine.graphs.enabled = enabled
        decode(engine, [session], 5)
        assert engine.graphs.counts.replayed == replayed
    assert engine.graphs.counts.captured == 1
    heads, slots = 2 * 2, 64  # of two layers, and one room
    tables_and_counts = heads * (2 * 4 * 4 + 2 * 4) + 2 * 4
    token_position_rows = 8 + 8 + heads * 2 * 8
    assert engine.graphs.counts.buffer_bytes == heads * slots * 4 + tables_and_counts + token_position_rows


def test_what_a_replay_returned_outlives_the_next() -> None:
    engine = make_engine("llama", True)
    session = engine.open_session("window", 32)
    logits_after(engine, session, random_ids(60))
    kept = decode(engine, [session], 6)[-1]
    copy = kept.clone()
    assert not torch.equal(decode(engine, [session], 1)[0], copy)
    assert torch.equal(kept, copy)


@pytest.mark.parametrize("policy", ["arkv", "knorm", "surprise"])
def test_policies_that_look_into_layers_are_computed_as_ever(policy) -> None:
    found = run_of(make_engine("llama", True), policy, 64, (100,), steps=8)
    check_same(found, run_of(make_engine("llama", False), policy, 64, (100,), steps=8))
    assert (found.counts.captured, found.counts.replayed) == (0, 0)
    assert found.counts.eager >= 8


def test_a_model_that_cannot_be_captured_is_computed_as_ever(caplog) -> None:
    caplog.set_level(logging.WARNING)
    found = run_of(make_engine("gpt_oss", True), "h2o", 48, (60,), steps=12)
    check_same(found, run_of(make_engine("gpt_oss", False), "h2o", 48, (60,), steps=12))
    assert found.counts.replayed == 0
    assert found.counts.refused is not None
    assert "captur" in found.counts.refused
    (said,) = (record.message for record in caplog.records if record.name == "agentkv.engine.graphs")
    assert said.startswith("decode steps run without CUDA graphs, since one could not be captured (")


@pytest.mark.parametrize("wrong", [lambda logits: logits.mul_(1.5), lambda logits: logits.fill_(float("nan"))])
def test_a_replay_that_computes_something_else_is_not_used(wrong) -> None:
    engine = make_engine("llama", False)

    def capture(run: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], Any]]:
        logits = run()
        return logits, lambda: wrong(logits)

    engine.graphs = DecodeGraphs(engine._paged, engine.arena, capture)
    check_same(run_of(engine, "h2o", 32, (60,), 6), run_of(make_engine("llama", False), "h2o", 32, (60,), 6))
    assert engine.graphs.counts.replayed == 0
    assert "a replay gave other logits, off by" in str(engine.graphs.counts.refused)


def test_only_so_many_shapes_are_kept() -> None:
    engine = make_engine("llama", True)
    sessions = [engine.open_session("window", 32) for _ in range(2)]
    for session in sessions:
        logits_after(engine, session, random_ids(40))
    for shape in range(_MOST_SHAPES + 3):
        engine.graphs._shapes[("used once", shape)] = 1  # type: ignore[index]  # stands for another shape
        decode(engine, sessions, 1)
    assert len(engine.graphs._shapes) == _MOST_SHAPES
    assert engine.graphs.counts.captured == 1, "the shape in use stays"


def test_buffers_take_a_share_of_the_pool_at_most(monkeypatch) -> None:
    """Those of the newest graph are kept, whatever they take."""
    engine = make_engine("llama", True)
    sessions = [engine.open_session("window", 32) for _ in range(2)]
    for session in sessions:
        logits_after(engine, session, random_ids(40))
    kept = []
    for share in (0.25, 0.0):
        monkeypatch.setattr(graphs, "_BUFFER_SHARE", share)
        engine.graphs._shapes.clear()
        decode(engine, sessions[:1], 4)
        alone = engine.graphs.counts.buffer_bytes
        decode(engine, sessions, 4)
        kept.append(engine.graphs.counts.buffer_bytes / alone)
    assert kept == [3, 2], "of one session and of two; of two alone"
    assert engine.graphs.counts.captured == 4


def test_without_memory_for_buffers_sessions_go_on(monkeypatch, caplog) -> None:
    def allocate(shape: object, arena: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(graphs, "StaticPass", allocate)
    found = run_of(make_engine("llama", True), "h2o", 48, (60,), steps=6)
    check_same(found, run_of(make_engine("llama", False), "h2o", 48, (60,), steps=6))
    assert found.counts.refused == "OutOfMemoryError: CUDA out of memory"
    assert "decode steps run without CUDA graphs" in caplog.text


def test_the_setting_is_checked() -> None:
    model = tiny_model("llama", torch.float32)
    with pytest.raises(
        AgentKVError, match="decode_graph='on' needs a CUDA device, and the model is on cpu; use 'auto'"
    ):
        Engine(model, DigitTokenizer(), "tiny", "8MiB", decode_graph="on")
    with pytest.raises(AgentKVError, match="unknown decode_graph 'maybe'; it is one of auto, on, off"):
        Engine(model, DigitTokenizer(), "tiny", "8MiB", decode_graph="maybe")
    engine = Engine(model, DigitTokenizer(), "tiny", "8MiB")
    session = engine.open_session("window", 32)
    logits_after(engine, session, random_ids(40))
    decode(engine, [session], 6)
    assert (engine.graphs.counts.captured, engine.graphs.counts.replayed) == (0, 0)


def test_tritons_kernels_run_on_the_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two sessions of different lengths; the pass is run anew in place of a capture."""
    pytest.importorskip("triton")

    def rerun(run: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], Any]]:
        result = run()
        return result, lambda: result.copy_(run())

    found = []
    for replays in (False, True):
        monkeypatch.setenv("AGENTKV_KERNELS", "reference")
        engine = make_engine("llama", replays, lean=True)
        if replays:
            engine.graphs = DecodeGraphs(engine._paged, engine.arena, rerun)
        sessions = [engine.open_session("conf-kv", 32, exempt=()) for _ in range(2)]
        for session, length in zip(sessions, (50, 37), strict=True):
            logits_after(engine, session, random_ids(length))
        first = decode(engine, sessions, 2)
        monkeypatch.setenv("AGENTKV_KERNELS", "triton" if replays else "reference")
        found.append(torch.cat([first, decode(engine, sessions, 1)]))
    assert engine.graphs.counts.replayed == 1
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


@given(st.integers(1, 10**7))
def test_rooms_are_few_and_not_much_larger(slots: int) -> None:
    room = room_for(slots)
    assert slots <= room <= max(64, slots + 64, slots * 5 // 4)
    assert room_for(room) == room
    assert room_for(0) == 0
