"""CONF-KV (Li & Miao, arXiv 2605.24786): the budget follows the model's confidence, old slots are INT8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast, get_args

from agentkv.errors import AgentKVError
from agentkv.policies.allocators import Allocator, Geometric, Uniform
from agentkv.policies.base import Policy
from agentkv.policies.precision import AgePrecision
from agentkv.policies.registry import register
from agentkv.policies.rules import AttentionRule
from agentkv.policies.scorers import MassAndRecency, Scale
from agentkv.policies.shares import Share, check_choice, check_count, check_positive, check_share, check_unit
from agentkv.policies.triggers import Confidence

EMA_DECAY = 0.9
# 0.9^64 = 0.1%: what older queries of a chunk still contribute is below the rounding of the rest.
EMA_QUERIES = 64


@register("conf-kv")
def conf_kv(
    *,
    threshold: float = 0.7,
    tight: Share = 0.75,
    recent: Share = 1 / 16,
    fp_window: Share = 1 / 16,
    sinks: int = 4,
    alpha: float = 0.65,
    scale: Scale = "largest",
) -> Policy:
    """Keep fewer slots while the model is confident, ranked by recent attention and recency; quantise old ones.

    The budget is the paper's N_low, the wide one; ``tight`` is its N_high. λ, α and τ are the paper's. It leaves open
    N_low, the protected window, the FP window and how the two scores are normalised: see docs/policies/conf-kv.md.

    Args:
        threshold: τ, confidence from which on the tight target holds.
        tight: slots kept when confident, a number or a share of the budget.
        recent: newest slots never evicted (the paper's P).
        fp_window: newest slots kept in the model's dtype (the paper's W).
        sinks: first tokens never evicted (the paper names none).
        alpha: weight of attention mass against recency.
        scale: how mass is brought to [0, 1]: divided by the largest of the head, by its sum, or its rank.
    """
    given = {"threshold": threshold, "tight": tight, "recent": recent, "fp_window": fp_window}
    return _following_confidence("conf-kv", Uniform(), given | {"sinks": sinks, "alpha": alpha, "scale": scale})


@register("conf-kv-l")
def conf_kv_l(
    *,
    threshold: float = 0.7,
    tight: Share = 0.75,
    recent: Share = 1 / 16,
    fp_window: Share = 1 / 16,
    sinks: int = 4,
    alpha: float = 0.65,
    scale: Scale = "largest",
    beta: float = 0.5,
    least: int = 96,
) -> Policy:
    """CONF-KV with more slots in early layers than in late ones.

    Args:
        threshold, tight, recent, fp_window, sinks, alpha, scale: as of :func:`conf_kv`.
        beta: slots of the layer after the last, as a multiple of the first's.
        least: slots below which no layer falls (the paper's N_min).
    """
    beta, least = check_positive("conf-kv-l", "beta", beta), check_count("conf-kv-l", "least", least)
    if beta > 1:
        raise AgentKVError(f"conf-kv-l: beta must be at most 1, not {beta!r}: late layers get fewer slots")
    given = {"threshold": threshold, "tight": tight, "recent": recent, "fp_window": fp_window}
    policy = _following_confidence(
        "conf-kv-l", Geometric(beta, least), given | {"sinks": sinks, "alpha": alpha, "scale": scale}
    )
    return replace(policy, options={**policy.options, "beta": beta, "least": least})


def _following_confidence(name: str, allocator: Allocator, given: Mapping[str, object]) -> Policy:
    """The policy from options as users gave them, checked here."""
    tight, recent, fp_window = (check_share(name, option, given[option]) for option in ("tight", "recent", "fp_window"))
    threshold, alpha = (check_unit(name, option, given[option]) for option in ("threshold", "alpha"))
    sinks = check_count(name, "sinks", given["sinks"])
    scale = check_choice(name, "scale", given["scale"], get_args(Scale))
    ema = AttentionRule(decay=EMA_DECAY, gain=1 - EMA_DECAY, queries=EMA_QUERIES)
    return Policy(
        name=name,
        scorer=MassAndRecency(alpha, ema, cast(Scale, scale)),
        sinks=sinks,
        recent=recent,
        allocator=allocator,
        trigger=Confidence(threshold, tight),
        precision=AgePrecision(fp_window),
        options=dict(given),
    )
