"""Scorers that several policies share. Each is a pure function of the view."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from agentkv.cache.view import CacheView
from agentkv.policies.base import MassRule


@dataclass(frozen=True)
class Recency:
    """The newer, the better."""

    mass: MassRule | None = None

    def __call__(self, view: CacheView) -> Tensor:
        return view.token_index.float()


@dataclass(frozen=True)
class Noise:
    """Uniform noise. The same seed and length give the same noise, so a run can be repeated."""

    seed: int = 0
    mass: MassRule | None = None

    def __call__(self, view: CacheView) -> Tensor:
        generator = torch.Generator(device=view.token_index.device)
        generator.manual_seed(self.seed * 1_000_003 + view.logical_length)
        return torch.rand(view.token_index.shape, generator=generator, device=view.token_index.device)


@dataclass(frozen=True)
class AttentionMass:
    """Attention mass as accumulated by the rule."""

    mass: MassRule | None = field(default_factory=MassRule)

    def __call__(self, view: CacheView) -> Tensor:
        assert view.mass is not None
        return view.mass


@dataclass(frozen=True)
class MassAndRecency:
    """alpha · mass + (1 − alpha) · recency, each scaled to [0, 1] within its layer and head.

    Mass is divided by the largest mass of an unprotected slot: the sinks' mass is far above every other and would
    flatten the rest. Recency is the token index divided by the session's length.
    """

    alpha: float
    mass: MassRule | None

    def __call__(self, view: CacheView) -> Tensor:
        assert view.mass is not None
        largest = view.mass.masked_fill(view.protected, 0.0).amax(-1, keepdim=True).clamp_min(1e-20)
        recency = view.token_index.float() / max(1, view.logical_length)
        return self.alpha * (view.mass / largest).clamp_max(1.0) + (1 - self.alpha) * recency
