"""Scorers made of scorers: by whose words a token belongs to, and by what several scorers think of it together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from agentkv.cache.view import CacheView
from agentkv.policies.base import Scorer
from agentkv.policies.rules import AttentionRule, CreationRule, ModelFacts


@dataclass(frozen=True)
class Combined(Scorer):
    """Reads what its parts read. At most one part reads attention, and at most one what is fixed at creation.

    Attributes:
        parts: the scorers.
    """

    parts: tuple[Scorer, ...] = ()

    @property
    def ranks(self) -> bool:  # type: ignore[override]
        return True

    @property
    def mass(self) -> AttentionRule | None:  # type: ignore[override]  # follows from the parts
        return next((part.mass for part in self.parts if part.mass is not None), None)

    @property
    def creation(self) -> CreationRule | None:  # type: ignore[override]
        return next((part.creation for part in self.parts if part.creation is not None), None)

    @property
    def needs_segments(self) -> bool:  # type: ignore[override]
        return any(part.needs_segments for part in self.parts)

    @property
    def needs_surprise(self) -> bool:  # type: ignore[override]
        return any(part.needs_surprise for part in self.parts)

    @property
    def needs_ids(self) -> bool:  # type: ignore[override]
        return any(part.needs_ids for part in self.parts)

    @property
    def needs_observations(self) -> bool:  # type: ignore[override]
        return any(part.needs_observations for part in self.parts)

    @property
    def settled(self) -> Mapping[str, object]:
        return {name: value for part in self.parts for name, value in part.settled.items()}

    def bind(self, model: ModelFacts) -> Combined:
        return replace(self, parts=tuple(part.bind(model) for part in self.parts))


@dataclass(frozen=True)
class Mixture(Combined):
    """The weighted sum of the ranks that several scorers give a slot within its layer and head.

    Attributes:
        weights: of the parts.
    """

    weights: tuple[float, ...] = ()

    def __call__(self, view: CacheView) -> Tensor:
        counts = _compared(view)
        ranks = [weight * ranked(part(view), counts) for part, weight in zip(self.parts, self.weights, strict=True)]
        return torch.stack(ranks).sum(0)


@dataclass(frozen=True)
class ByRole(Combined):
    """Adds to the rank that the one part gives, which is below 1, so much for what is no observation (what the agent
    was told and said), and so much for the newest observation. Where no roles are known, the part decides.

    A rank is the share of all tokens read that are worth less, where the part scores tokens; else of the head's slots.

    Attributes:
        own, newest: with 2 and 1, own words go last and the newest observation before them.
    """

    own: float = 2.0
    newest: float = 1.0
    needs_observations: bool = True

    @property
    def ranks(self) -> bool:  # type: ignore[override]
        return not self.parts[0].by_token

    @property
    def by_segment(self) -> bool:  # type: ignore[override]
        return all(part.by_segment for part in self.parts)

    def __call__(self, view: CacheView) -> Tensor:
        assert view.observations is not None
        (part,) = self.parts
        score = part(view)
        # What is known of a token is its rank already; else slots are compared head by head, which costs a sort.
        rank = score / max(1, view.logical_length) if part.by_token else ranked(score, _compared(view))
        newest = view.observations.max() if len(view.observations) else 0
        observation = view.of_tokens(view.observations)
        return rank + self.own * (observation < 0) + self.newest * ((observation >= 0) & (observation == newest))


def _compared(view: CacheView) -> Tensor:
    """[L, H, S] bool: slots of which some will go."""
    free = view.filled & ~view.protected
    return free if view.expired is None else free & ~view.expired


def ranked(score: Tensor, counts: Tensor) -> Tensor:
    """The share of a head's slots that are worth less, [L, H, S] float32 in [0, 1); equal scores have equal ranks.

    Args:
        score: [L, H, S].
        counts: [L, H, S] bool: slots that are compared; others get arbitrary ranks.
    """
    own = score.double().masked_fill(~counts, float("inf"))
    ordered = own.sort(-1).values
    return torch.searchsorted(ordered, own).float() / max(1, score.shape[-1])


def clash(parts: Sequence[Scorer]) -> str | None:
    """Why these cannot be parts of one scorer."""
    if sum(part.mass is not None for part in parts) > 1:
        return "only one part can read attention, since there is one sum of it per slot"
    if sum(part.creation is not None for part in parts) > 1:
        return "only one part can read gates, since there is one value of them per slot"
    return None
