"""H2O (Zhang et al., arXiv 2306.14048): heavy hitters and a recent window."""

from __future__ import annotations

from agentkv.policies.base import Policy
from agentkv.policies.registry import register
from agentkv.policies.rules import AttentionRule
from agentkv.policies.scorers import AttentionMass
from agentkv.policies.shares import Share, check_count, check_share


@register("h2o")
def h2o(recent: Share = 0.5, sinks: int = 4) -> Policy:
    """Keep the slots with most accumulated attention, beside a window of the newest ones.

    Mass is summed over every query since the slot was made, prefill included, and over the query heads that share a
    KV head. Half of the slots are the window, as in the paper's equal split. The paper protects no sinks; they
    collect so much mass that protecting them changes nothing but their certainty.
    """
    recent = check_share("h2o", "recent", recent)
    sinks = check_count("h2o", "sinks", sinks)
    options = {"recent": recent, "sinks": sinks}
    return Policy(name="h2o", scorer=AttentionMass(AttentionRule()), sinks=sinks, recent=recent, options=options)
