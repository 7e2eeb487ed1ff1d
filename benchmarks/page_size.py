"""What the size of a page costs: time per decoded token, and bytes that pages hold beyond their tokens.

    python benchmarks/page_size.py --page 16 --page 32 --page 64 --length 2048

All sizes decode in turns, one token each, on the same weights, so that whatever else the machine does falls on all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from agentkv.cache.arena import PageArena
from agentkv.engine import Engine, Session
from agentkv.engine.loading import as_device, load_model
from agentkv.models import resolve_model

ARMS = (("full", None), ("h2o", "512"), ("h2o", "128"), ("conf-kv", "512"))
POOL_BYTES = 2**30


@dataclass
class Arm:
    """One policy under one page size."""

    page_slots: int
    policy: str
    budget: str | None
    engine: Engine
    session: Session
    times: list[float]

    @property
    def waste(self) -> float:
        """Bytes of pages that hold no token, as a share of the bytes held."""
        store = self.session.cache.store
        per_vector = 2 * store.arena.layout.head_dim  # bytes of K and V in int8
        fp_bytes = int(store.fp.used.sum()) * per_vector * store.arena.layout.dtype.itemsize
        used = fp_bytes + int(store.code.used.sum()) * per_vector
        return 1 - used / store.page_bytes_held


def engine_with_pages(model: str, page_slots: int) -> Engine:
    """An engine on its own copy of the weights whose pages hold ``page_slots`` tokens."""
    loaded, tokenizer = load_model(resolve_model(model), "auto", as_device("cpu"))
    engine = Engine(loaded, tokenizer, model, "16MiB")
    engine.layout = replace(engine.layout, page_slots=page_slots)
    engine.arena = PageArena(engine.layout, POOL_BYTES)
    return engine


def measure(arms: Sequence[Arm], length: int, steps: int) -> None:
    """Fill every session with the same tokens, then decode in turns."""
    vocabulary = len(arms[0].engine.tokenizer)
    ids = torch.randint(vocabulary, (length,), generator=torch.Generator().manual_seed(0)).tolist()
    for arm in arms:
        arm.session.ledger.extend(ids)
        arm.engine.compute_waiting(arm.session)
    for step in range(steps):
        for arm in arms:
            arm.session.ledger.append(ids[step])
            started = time.perf_counter()
            arm.engine.compute_waiting(arm.session)
            arm.times.append(1e3 * (time.perf_counter() - started))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--page", type=int, action="append", help="slots of a page; repeatable")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    arms = []
    for page_slots in options.page or [16, 32, 64]:
        engine = engine_with_pages(options.model, page_slots)
        arms += [Arm(page_slots, p, b, engine, engine.open_session(p, b), []) for p, b in ARMS]
    measure(arms, options.length, options.steps)
    for arm in arms:
        row = {"bench": "page_size", "page_slots": arm.page_slots, "policy": arm.policy, "budget": arm.budget}
        row |= {"logical_length": options.length, "ms_median": round(statistics.median(arm.times), 2)}
        row |= {"kv_bytes": arm.session.stats.resident_bytes, "waste": round(arm.waste, 4)}
        print(json.dumps(row))


if __name__ == "__main__":
    main()
