"""Random eviction: the control. A policy that does not beat it knows nothing."""

from __future__ import annotations

from agentkv.policies.base import Policy
from agentkv.policies.registry import register
from agentkv.policies.scorers import Noise
from agentkv.policies.shares import Share, check_count, check_share


@register("random")
def random(seed: int = 0, sinks: int = 4, recent: Share = 1 / 16) -> Policy:
    """Evict an unprotected slot drawn uniformly, for each layer and head on its own."""
    recent = check_share("random", "recent", recent)
    sinks = check_count("random", "sinks", sinks)
    seed = check_count("random", "seed", seed)
    options = {"seed": seed, "sinks": sinks, "recent": recent}
    return Policy(name="random", scorer=Noise(seed), sinks=sinks, recent=recent, options=options)
