"""CONF-KV (Li & Miao, arXiv 2605.24786): the budget follows the model's confidence, old slots are INT8."""

from __future__ import annotations

from agentkv.policies.base import Policy
from agentkv.policies.precision import AgePrecision
from agentkv.policies.registry import register
from agentkv.policies.rules import AttentionRule
from agentkv.policies.scorers import MassAndRecency
from agentkv.policies.shares import Share, check_count, check_share, check_unit
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
    """
    tight, recent, fp_window = (
        check_share("conf-kv", name, value)
        for name, value in (("tight", tight), ("recent", recent), ("fp_window", fp_window))
    )
    sinks = check_count("conf-kv", "sinks", sinks)
    threshold, alpha = (
        check_unit("conf-kv", name, value) for name, value in (("threshold", threshold), ("alpha", alpha))
    )
    ema = AttentionRule(decay=EMA_DECAY, gain=1 - EMA_DECAY, queries=EMA_QUERIES)
    return Policy(
        name="conf-kv",
        scorer=MassAndRecency(alpha, ema),
        sinks=sinks,
        recent=recent,
        trigger=Confidence(threshold, tight),
        precision=AgePrecision(fp_window),
        options={
            "threshold": threshold,
            "tight": tight,
            "recent": recent,
            "fp_window": fp_window,
            "sinks": sinks,
            "alpha": alpha,
        },
    )
