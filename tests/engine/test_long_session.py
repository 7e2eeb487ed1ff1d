"""Two hundred turns in one session, many times the model's window: memory stays flat."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
import torch

from agentkv.engine import SamplingParams
from tests.runtime_helpers import WINDOW, random_ids, tiny_engine

TURNS = 200
PARAMS = SamplingParams(max_tokens=6, min_tokens=6)


@pytest.mark.parametrize(
    "policy",
    ["conf-kv", *(pytest.param(name, marks=pytest.mark.full) for name in ("surprise", "obs-window", "h2o", "arkv"))],
)
def test_memory_stays_flat_over_two_hundred_turns(policy: str) -> None:
    engine = tiny_engine(dtype=torch.float32)
    session = engine.open_session(policy, 96, checkpoints=1)
    resident, pages, traced = [], [], []
    tracemalloc.start()
    try:
        for turn in range(TURNS):
            for _ in engine.generate(session, random_ids(12, seed=turn), PARAMS, roles=[("observation", 12)]):
                pass
            resident.append(session.stats.resident_bytes)
            pages.append(engine.arena.used_pages)
            if turn + 1 in (TURNS // 2, TURNS):
                gc.collect()
                traced.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert len(session.ledger) == TURNS * 18 > 10 * WINDOW
    assert max(resident) <= session.stats.peak_bytes <= session.limits.max_bytes
    assert max(pages[TURNS // 2 :]) <= max(pages[: TURNS // 2])
    # A ledger of ints, spans and what a policy notes of each token grow with the text; nothing else may.
    assert traced[1] - traced[0] < TURNS // 2 * 18 * 128
    session.close()
    assert engine.arena.used_pages == 0
