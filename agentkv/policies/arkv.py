"""ARKV (Lei & Ilager, arXiv 2603.08727): each token is kept whole, kept in FP8, or evicted."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agentkv.policies.base import Policy
from agentkv.policies.precision import ScorePrecision
from agentkv.policies.registry import register
from agentkv.policies.rules import AttentionRule
from agentkv.policies.shares import Share, check_count, check_positive, check_share
from agentkv.policies.snapkv import PooledMass
from agentkv.policies.triggers import Block

_LEAST_SHARE = 4
"""Statistics of layers need a quarter of a window: two or three queries have no kurtosis to speak of."""


@dataclass(frozen=True)
class WindowStatistics(AttentionRule):
    """What the last ``probs_of`` queries make of every older slot, and how their attention is spread in each layer.

    The mass of a slot is mean + gamma · variance of its probability over those queries, averaged over the query heads
    that share the KV head. A single query has no variance: its probabilities are the mass.

    Statistics of a layer, [3] float32, summed over query heads and the slots older than the newest ``probs_of`` tokens:
    the entropy of the attention over all those queries (dispersion, nats), and the variance and kurtosis of each slot's
    probability over them.

    Attributes:
        gamma: weight of the variance.
    """

    decay: float = 0.0
    probs_of: int = 32
    gamma: float = 263.8

    def reduce(self, probs: Tensor, token_index: Tensor, query_index: Tensor) -> tuple[Tensor, Tensor | None]:
        queries = probs.shape[2]
        mass = probs.mean((1, 2))
        if queries == 1:
            return mass, None
        mass = mass + self.gamma * probs.var(2).mean(1)
        if queries * _LEAST_SHARE < self.probs_of:
            return mass, None
        older = (token_index >= 0) & (token_index <= query_index[-1] - self.probs_of)
        return mass, _statistics(probs * older[:, None, None])


def _statistics(probs: Tensor) -> Tensor:
    """Dispersion, variance and kurtosis [3] of probabilities [H, group, m ≥ 2, S]."""
    dispersion = -(probs * (probs + 1e-10).log()).sum()
    square = (probs - probs.mean(2, keepdim=True)) ** 2
    second, fourth = square.mean(2), (square**2).mean(2)
    kurtosis = (fourth / second.clamp_min(1e-8) ** 2).sum()
    return torch.stack((dispersion.clamp_min(0.0), probs.var(2).sum(), kurtosis))


@dataclass(frozen=True)
class OriginShare:
    """OQ = dispersion^(1/τ1) · variance^(1/τ2) · kurtosis^(1/τ3) of a layer, divided by the largest of all layers.

    The taus are those of the authors' release, one set for all models.
    """

    tau_dispersion: float = 7.774
    tau_variance: float = 5.407
    tau_kurtosis: float = 5.528

    @property
    def rule(self) -> type[AttentionRule]:
        return WindowStatistics

    def __call__(self, layer_stats: Tensor) -> Tensor:
        taus = layer_stats.new_tensor((self.tau_dispersion, self.tau_variance, self.tau_kurtosis))
        score = (layer_stats ** (1 / taus)).prod(-1)
        largest = score.max()
        # A prompt inside the window leaves nothing to measure: then no layer is worth less than another.
        return torch.where(largest > 0, score / largest.clamp_min(1e-30), torch.ones_like(score))


@register("arkv")
def arkv(
    *,
    window: int = 32,
    gamma: float = 263.8,
    tau_dispersion: float = 7.774,
    tau_variance: float = 5.407,
    tau_kurtosis: float = 5.528,
    freed: Share = 0.25,
    sinks: int = 0,
) -> Policy:
    """Keep what the last queries attend strongly or unevenly; of the kept, each layer's best whole and the rest in FP8.

    Args:
        window: last queries that rank, and newest tokens that stay whole.
        gamma: weight of the variance of attention against its mean.
        tau_dispersion, tau_variance, tau_kurtosis: roots in a layer's OQ score.
        freed: slots given up when the cache is full, a number or a share of the budget.
        sinks: first tokens never evicted (the paper names none).
    """
    window = check_count("arkv", "window", window, least=2)
    given = {
        "gamma": gamma,
        "tau_dispersion": tau_dispersion,
        "tau_variance": tau_variance,
        "tau_kurtosis": tau_kurtosis,
    }
    gamma, *taus = (check_positive("arkv", name, value) for name, value in given.items())
    freed = check_share("arkv", "freed", freed)
    sinks = check_count("arkv", "sinks", sinks)
    return Policy(
        name="arkv",
        scorer=PooledMass(mass=WindowStatistics(probs_of=window, gamma=gamma)),
        sinks=sinks,
        recent=window,
        trigger=Block(freed),
        precision=ScorePrecision(OriginShare(*taus)),
        options={"window": window, **given, "freed": freed, "sinks": sinks},
    )
