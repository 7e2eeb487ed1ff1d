"""Sliding window: the newest tokens and nothing else."""

from __future__ import annotations

from agentkv.policies.base import Policy
from agentkv.policies.registry import register
from agentkv.policies.scorers import Recency


@register("window")
def window() -> Policy:
    """Keep the newest tokens. Without sinks it degrades badly once the first tokens are gone: see streaming-llm."""
    return Policy(name="window", scorer=Recency())
