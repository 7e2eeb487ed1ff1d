"""Scorers that several policies share. Each is a pure function of the view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from agentkv.cache.view import CacheView
from agentkv.policies.base import Scorer
from agentkv.policies.rules import AttentionRule, CreationRule, ModelFacts


@dataclass(frozen=True)
class Recency(Scorer):
    """The newer, the better."""

    by_token: bool = True

    def __call__(self, view: CacheView) -> Tensor:
        return view.token_index.float()


@dataclass(frozen=True)
class Noise(Scorer):
    """Uniform noise. The same seed and length give the same noise, so a run can be repeated."""

    seed: int = 0

    def __call__(self, view: CacheView) -> Tensor:
        generator = torch.Generator(device=view.token_index.device)
        generator.manual_seed(self.seed * 1_000_003 + view.logical_length)
        return torch.rand(view.token_index.shape, generator=generator, device=view.token_index.device)


@dataclass(frozen=True)
class AttentionMass(Scorer):
    """Attention mass as accumulated by the rule."""

    mass: AttentionRule | None = field(default_factory=AttentionRule)

    def __call__(self, view: CacheView) -> Tensor:
        assert view.mass is not None
        return view.mass


Scale = Literal["largest", "rank", "sum"]
"""What attention mass is divided by: the largest mass of a slot, replaced by its rank, or divided by the sum."""


@dataclass(frozen=True)
class MassAndRecency(Scorer):
    """alpha · mass + (1 − alpha) · recency, each scaled to [0, 1] within its layer and head.

    Recency is the token index divided by the session's length. Mass is scaled among the unprotected slots: the sinks'
    mass is far above every other and would flatten the rest.
    """

    alpha: float = 0.65
    mass: AttentionRule | None = field(default_factory=AttentionRule)
    scale: Scale = "largest"

    def __call__(self, view: CacheView) -> Tensor:
        assert view.mass is not None
        recency = view.token_index.float() / max(1, view.logical_length)
        return self.alpha * _scaled(view.mass, view.protected, self.scale) + (1 - self.alpha) * recency


def _scaled(mass: Tensor, protected: Tensor, scale: Scale) -> Tensor:
    """[L, H, S] in [0, 1]."""
    free = mass.masked_fill(protected, 0.0)
    if scale == "rank":
        return free.argsort(-1).argsort(-1) / max(1, free.shape[-1] - 1)
    whole = free.amax(-1, keepdim=True) if scale == "largest" else free.sum(-1, keepdim=True)
    return (free / whole.clamp_min(1e-20)).clamp_max(1.0)


@dataclass(frozen=True)
class SegmentMean(Scorer):
    """Every slot is worth the mean worth of its segment's slots in that layer and head.

    A segment is a sentence or a line. Isolated tokens lose what binds a name to its number; whole segments keep it.
    Of two segments of equal worth, and within one, the newer slot is worth more.

    Attributes:
        inner: scores single slots.
    """

    inner: Scorer = field(default_factory=Recency)
    mass: AttentionRule | None = None
    creation: CreationRule | None = None
    needs_segments: bool = True
    by_segment: bool = True

    @classmethod
    def over(cls, inner: Scorer) -> SegmentMean:
        return cls(inner, inner.mass, inner.creation)

    @property
    def needs_surprise(self) -> bool:  # type: ignore[override]  # follows from what it wraps
        return self.inner.needs_surprise

    @property
    def needs_ids(self) -> bool:  # type: ignore[override]
        return self.inner.needs_ids

    @property
    def needs_observations(self) -> bool:  # type: ignore[override]
        return self.inner.needs_observations

    @property
    def ranks(self) -> bool:  # type: ignore[override]
        return self.inner.ranks

    @property
    def settled(self) -> Mapping[str, object]:
        return self.inner.settled

    def bind(self, model: ModelFacts) -> SegmentMean:
        return replace(self, inner=self.inner.bind(model), creation=self.creation and self.creation.bind(model))

    def __call__(self, view: CacheView) -> Tensor:
        assert view.segments is not None
        counts = view.filled & ~view.protected
        segment = view.of_tokens(view.segments).long()
        score = self.inner(view).double().masked_fill(~counts, 0.0)
        shape = (*score.shape[:2], int(view.segments[-1]) + 1 if len(view.segments) else 1)
        total = score.new_zeros(shape).scatter_add_(-1, segment, score)
        size = score.new_zeros(shape).scatter_add_(-1, segment, counts.double()).clamp_min(1.0)
        mean = (total / size).gather(-1, segment)
        # The tie-break is below the spread of the means, so it orders slots only within what scored the same. It would
        # be below the rounding of float32.
        spread = (mean.amax(-1, keepdim=True) - mean.amin(-1, keepdim=True)).clamp_min(1e-12)
        return mean + 1e-6 * spread * view.token_index / max(1, view.logical_length)
