"""Does a model compute the same on pages as in plain transformers, here, on this machine?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from agentkv.cache.adapter import cache_keyword
from agentkv.cache.arena import PageArena
from agentkv.cache.formats import KVFormat, KVLayout, SlotCaps
from agentkv.cache.plan import Plan
from agentkv.cache.store import KVStore
from agentkv.engine.engine import Engine
from agentkv.engine.loading import move
from agentkv.engine.merging import plain_model

_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-6, torch.bfloat16: 0.02, torch.float16: 0.02}
"""Largest mean KL divergence (nats) that counts as equal; half precision differs between any two ways to compute."""

_LEAST_CHUNK, _LARGEST_CHUNK = 64, 1024
_MEASURED_TOKENS = 256


@dataclass(frozen=True)
class SelfCheck:
    """Outcome of :func:`compare_with_transformers`.

    Attributes:
        length: tokens of the session.
        positions: logits compared: after a chunk, after each of some decoded tokens, and after a second chunk.
        mean_kl: mean KL divergence of our distribution from transformers', in nats.
        same_top: share of positions whose likeliest token is the same.
        tolerance: the largest mean_kl that passes.
    """

    length: int
    positions: int
    mean_kl: float
    same_top: float
    tolerance: float

    @property
    def passed(self) -> bool:
        return self.mean_kl <= self.tolerance


def compare_with_transformers(engine: Engine, source: Path | str, decoded: int = 8) -> SelfCheck:
    """Run the same random tokens through a session and through transformers' own cache and attention.

    Args:
        engine: with the model on pages.
        source: folder or hub id of the same model; it is loaded a second time.
        decoded: single tokens between two chunks, which together reach past sliding windows of up to 1,024 tokens.
    """
    widest = max((width for width in engine.layout.windows if width is not None), default=0)
    tokens = min(max(_LEAST_CHUNK, min(widest, _LARGEST_CHUNK)), (engine.context_window - decoded) // 2)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(len(engine.tokenizer), (2 * tokens + decoded,), generator=generator).tolist()
    turns = [ids[:tokens], *([token] for token in ids[tokens : tokens + decoded]), ids[tokens + decoded :]]
    reference = plain_model(source, dtype=engine.layout.dtype, attn_implementation="eager")
    reference = move(reference, engine.device)
    theirs = torch.stack(list(_plain_logits(reference, turns))).double().log_softmax(-1)
    ours = torch.stack(list(_paged_logits(engine, turns))).double().log_softmax(-1)
    return SelfCheck(
        length=len(ids),
        positions=len(turns),
        mean_kl=float((theirs.exp() * (theirs - ours)).sum(-1).mean().clamp_min(0.0)),
        same_top=float((theirs.argmax(-1) == ours.argmax(-1)).double().mean()),
        tolerance=_TOLERANCE[engine.layout.dtype],
    )


def bytes_per_token(layout: KVLayout, device: torch.device) -> dict[KVFormat, float]:
    """Pages and metadata per token over all layers and heads, measured on 256 tokens in each format."""
    measured = {}
    pages = 2 * layout.layers * layout.kv_heads * layout.pages_for(_MEASURED_TOKENS, KVFormat.FP) + 1
    arena = PageArena(layout, pages * layout.page_bytes, device)
    arena.rows(KVFormat.FP).zero_()
    for fmt in KVFormat:
        caps = SlotCaps(_MEASURED_TOKENS) if fmt is KVFormat.FP else SlotCaps(0, _MEASURED_TOKENS)
        store = KVStore(arena, [caps] * layout.layers, _MEASURED_TOKENS, fmt)
        store.append(0, _MEASURED_TOKENS)
        if fmt is not KVFormat.FP:
            everything = store.in_use(store.token_index) >= 0
            store.apply(Plan(everything, everything))
        measured[fmt] = store.resident_bytes / _MEASURED_TOKENS
        store.release()
    return measured


def _paged_logits(engine: Engine, turns: list[list[int]]) -> Iterator[Tensor]:
    session = engine.open_session()
    for turn in turns:
        session.ledger.extend(turn)
        logits = engine.compute_waiting(session)
        assert logits is not None
        yield logits.clone()
    session.close()


@torch.inference_mode()
def _plain_logits(model: PreTrainedModel, turns: list[list[int]]) -> Iterator[Tensor]:
    arguments: dict[str, Any] = {cache_keyword(model): DynamicCache(config=model.config)}
    for turn in turns:
        yield model(torch.tensor([turn], device=model.device), use_cache=True, **arguments).logits[0, -1]
