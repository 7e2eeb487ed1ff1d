"""Full KV: the reference that every other policy is measured against."""

from __future__ import annotations

from agentkv.policies.base import Policy
from agentkv.policies.registry import register


@register("full")
def full() -> Policy:
    """Keep every token in the model's dtype; nothing is ever dropped."""
    return Policy(name="full", scorer=None)
