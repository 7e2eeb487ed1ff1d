"""Key norms (Devoto et al., arXiv 2406.11430): keys with a small norm are the ones that get attended."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from agentkv.cache.view import CacheView
from agentkv.policies.base import Policy, Scorer
from agentkv.policies.registry import register
from agentkv.policies.rules import CreationRule, ModelFacts
from agentkv.policies.shares import Share, check_count, check_share


@dataclass(frozen=True)
class KeyNorm:
    """‖k‖₂ of each key as stored. RoPE does not change it, and quantising the slot later does not either."""

    needs_hidden: bool = False

    def bind(self, model: ModelFacts) -> KeyNorm:
        return self

    def __call__(self, layer: int, keys: Tensor, hidden: Tensor | None) -> Tensor:
        return keys.float().norm(dim=-1)


@dataclass(frozen=True)
class SmallNorm(Scorer):
    """−‖k‖."""

    creation: CreationRule | None = field(default_factory=KeyNorm)

    def __call__(self, view: CacheView) -> Tensor:
        assert view.creation is not None
        return -view.creation


@register("knorm")
def knorm(recent: Share = 0, sinks: int = 0) -> Policy:
    """Keep the keys with the smallest norm; no attention is looked at.

    The paper protects no token, and neither do the defaults.
    """
    recent = check_share("knorm", "recent", recent)
    sinks = check_count("knorm", "sinks", sinks)
    options = {"recent": recent, "sinks": sinks}
    return Policy(name="knorm", scorer=SmallNorm(), sinks=sinks, recent=recent, options=options)
