"""A copy of everything that one session's cache is: content of the store, and what is known beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from agentkv.cache.facts import LedgerFacts
from agentkv.cache.rotary import Rebased
from agentkv.cache.snapshot import Snapshot

BESIDE = (
    "logical_length",
    "confidence",
    "layer_stats",
    "last_logits",
    "changed_at",
    "position_offset",
    "rebased",
)
"""Attributes of a controller that its state has under the same name."""


@dataclass(frozen=True, slots=True)
class CacheState:
    """A copy of everything a controller holds; see :class:`agentkv.cache.controller.CacheController`."""

    snapshot: Snapshot
    facts: LedgerFacts
    logical_length: int
    confidence: float | None
    layer_stats: Tensor | None
    last_logits: Tensor | None
    changed_at: int
    position_offset: int
    rebased: Rebased

    @property
    def nbytes(self) -> int:
        tensors = (self.layer_stats, self.last_logits)
        return self.snapshot.nbytes + self.facts.nbytes + sum(t.nbytes for t in tensors if t is not None)

    def to(self, device: torch.device | str) -> CacheState:
        """The same with its slots on another device."""
        return replace(self, snapshot=self.snapshot.to(device))
