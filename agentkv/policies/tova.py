"""TOVA (Oren et al., arXiv 2401.06104): drop what the newest token attends least."""

from __future__ import annotations

from agentkv.policies.base import Policy
from agentkv.policies.registry import register
from agentkv.policies.rules import AttentionRule
from agentkv.policies.scorers import AttentionMass
from agentkv.policies.shares import Share, check_count, check_share

LAST_QUERY = AttentionRule(decay=0.0, gain=1.0, queries=1)


@register("tova")
def tova(recent: Share = 0, sinks: int = 0) -> Policy:
    """Keep the slots that the newest query attends most; nothing else is protected, as in the paper.

    The paper averages the weights of all heads of a layer; here each KV head decides from those that share it.
    """
    recent = check_share("tova", "recent", recent)
    sinks = check_count("tova", "sinks", sinks)
    options = {"recent": recent, "sinks": sinks}
    return Policy(name="tova", scorer=AttentionMass(LAST_QUERY), sinks=sinks, recent=recent, options=options)
