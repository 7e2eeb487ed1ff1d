"""Any sequence of what a session can do, under any policy: the cap holds, protected tokens stay, bytes are right."""

from __future__ import annotations

import contextlib
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv import policies
from agentkv.engine import Engine, Session
from agentkv.engine.checkpoints import Checkpoint
from agentkv.errors import AgentKVError, Unsupported
from tests.runtime_helpers import ARCHITECTURES, logits_after, random_ids, tiny_engine

BUDGET = 72
MOST_TOKENS = 700
"""Sessions that outlive the tiny models' window of 256 do so more than once; the others are stopped by it."""


@lru_cache
def engine_of(architecture: str) -> Engine:
    return tiny_engine(architecture, torch.float32)


def live_bytes(session: Session) -> int:
    """Bytes held, counted without the store's own arithmetic: distinct pages in its tables, and its tensors."""
    store = session.cache.store
    pages = {
        page for region in (store.fp, store.code) for page in (region.half_index[:, 0] // 2).flatten().tolist() if page
    }
    arena = store.arena._bytes.untyped_storage().data_ptr()
    owned = [*vars(store).values(), *vars(store.fp).values(), *vars(store.code).values(), *store.columns.values()]
    tensors = [t for t in owned if isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() != arena]
    return len(pages) * store.arena.layout.page_bytes + sum(t.nbytes for t in tensors)


def check(session: Session) -> None:
    store, limits = session.cache.store, session.limits
    assert store.resident_bytes == live_bytes(session) == session.stats.resident_bytes
    if session.cache.prefill == "chunked":
        assert store.peak_bytes <= limits.max_bytes
    held = store.in_use(store.token_index)
    assert int((held >= 0).sum()) == int(store.used.sum())
    length = session.logical_length
    dropped = {token for start, end in session.cache.facts.dropped for token in range(start, end)}
    protected = {*range(min(session.policy.sinks, length))}
    protected |= {*range(max(0, length - session.policy.recent_slots(limits.max_slots)), length)}
    for layer in range(held.shape[0]):
        for head in range(held.shape[1]):
            tokens = held[layer, head][held[layer, head] >= 0].tolist()
            assert len(set(tokens)) == len(tokens), "a token is held twice"
            assert not dropped & set(tokens), "a dropped token is still there"
            if store.arena.layout.window(layer) is None:
                assert protected - dropped <= set(tokens), "a protected token is gone"
    if session.logical_length > limits.dense_slots and session.cache.prefill == "chunked":
        assert all((store.used[layer] <= limits.shape.layer_slots[layer]).all() for layer in range(held.shape[0]))
        if limits.shape.total is not None:
            assert store.used[list(limits.shape.managed)].sum() <= limits.shape.total


OPERATION = st.one_of(
    st.tuples(st.just("append"), st.integers(2, 60)),
    st.tuples(st.just("decode"), st.integers(1, 12)),
    st.tuples(st.just("fork")),
    st.tuples(st.just("restore")),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("rollback")),
    st.tuples(st.just("rewind"), st.floats(0, 1)),
    st.tuples(st.just("drop_span"), st.floats(0, 1), st.integers(1, 20)),
    st.tuples(st.just("spill")),
)


class Machine:
    """A few sessions of one engine, driven by the same operations as a user has."""

    def __init__(self, engine: Engine, policy: str, prefill: str, seed: int):
        self.engine = engine
        self.sessions = [engine.open_session(policy, BUDGET, prefill=prefill)]
        self.checkpoints: dict[Session, Checkpoint] = {}
        self.generator = torch.Generator().manual_seed(seed)
        self.seed = seed

    def run(self, which: int, name: str, *arguments: Any) -> None:
        session = self.sessions[which % len(self.sessions)]
        getattr(self, name)(session, *arguments)
        for one in self.sessions:
            check(one)

    def room(self, session: Session, wanted: int) -> int:
        return min(wanted, MOST_TOKENS - len(session.ledger), session.token_limit - len(session.ledger))

    def append(self, session: Session, n: int) -> None:
        if (n := self.room(session, n)) > 0:
            assert bool(logits_after(self.engine, session, random_ids(n, self.seed + n)).isfinite().all())

    def decode(self, session: Session, n: int) -> None:
        for token in random_ids(max(0, self.room(session, n)), self.seed):
            session.cache.confidence = float(torch.rand((), generator=self.generator))
            logits_after(self.engine, session, [token])

    def fork(self, session: Session) -> None:
        if len(self.sessions) < 3:
            self.sessions.append(self.engine.fork_session(session))

    def restore(self, session: Session) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "session.safetensors"
            self.engine.save_session(session, path)
            self.sessions[self.sessions.index(session)] = self.engine.restore_session(path)
        session.close()

    def checkpoint(self, session: Session) -> None:
        self.checkpoints[session] = session.checkpoint()

    def rollback(self, session: Session) -> None:
        if session in self.checkpoints:
            then = self.checkpoints[session]
            session.rollback(then)
            assert (tuple(session.ledger), session.logical_length) == (then.ledger, then.logical_length)

    def rewind(self, session: Session, share: float) -> None:
        index = int(share * len(session.ledger))
        before = session.ledger[:index]
        session.rewind(index)
        assert session.ledger == before
        if session in self.checkpoints and self.checkpoints[session].logical_length > index:
            del self.checkpoints[session]

    def drop_span(self, session: Session, share: float, width: int) -> None:
        start = int(share * session.logical_length)
        end = min(start + width, session.logical_length)
        if start < end:
            with contextlib.suppress(Unsupported):  # part of a page whose scales are per channel
                session.drop_span(start, end)

    def spill(self, session: Session) -> None:
        before = session.stats
        self.engine.spill(session)
        assert session.cache.store.page_bytes_held == 0
        with session.exclusive():
            assert session.stats.fp_tokens == before.fp_tokens
            assert session.stats.quantized_tokens == before.quantized_tokens

    def close(self) -> None:
        for session in self.sessions:
            session.close()
        assert self.engine.arena.used_pages == 0


def any_sequence(architecture: str, policy: str, prefill: str, operations: list, seed: int) -> None:
    try:
        machine = Machine(engine_of(architecture), policy, prefill, seed)
    except AgentKVError as refusal:
        pytest.fail(f"{policy}: {refusal}")
    for which, operation in operations:
        machine.run(which, *operation)
    machine.close()


@pytest.mark.parametrize("policy", policies.names())
@settings(max_examples=6, deadline=None)
@given(
    architecture=st.sampled_from(ARCHITECTURES),
    prefill=st.sampled_from(["chunked", "whole"]),
    operations=st.lists(st.tuples(st.integers(0, 2), OPERATION), min_size=2, max_size=7),
    seed=st.integers(0, 999),
)
def test_any_sequence_of_operations(policy: str, architecture: str, prefill: str, operations: list, seed: int) -> None:
    any_sequence(architecture, policy, prefill, operations, seed)


@pytest.mark.full
@pytest.mark.parametrize("policy", policies.names())
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@settings(max_examples=40, deadline=None)
@given(
    prefill=st.sampled_from(["chunked", "whole"]),
    operations=st.lists(st.tuples(st.integers(0, 2), OPERATION), min_size=3, max_size=14),
    seed=st.integers(0, 9999),
)
def test_any_long_sequence(policy: str, architecture: str, prefill: str, operations: list, seed: int) -> None:
    any_sequence(architecture, policy, prefill, operations, seed)
