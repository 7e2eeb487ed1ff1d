"""KeyDiff (Park et al., arXiv 2504.15364): keep keys that differ from the average key."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from agentkv.cache.view import CacheView
from agentkv.policies.base import Policy, Scorer
from agentkv.policies.registry import register
from agentkv.policies.shares import Share, check_count, check_share
from agentkv.policies.triggers import Block


@dataclass(frozen=True)
class KeyDifference(Scorer):
    """−cos(k, a), where the anchor a is the mean of the head's normalised keys, all that the cache holds."""

    def __call__(self, view: CacheView) -> Tensor:
        # Empty slots read as zero and add nothing; a cosine does not depend on the length of the anchor.
        unit = functional.normalize(view.read_keys(), dim=-1)
        anchor = functional.normalize(unit.sum(2, keepdim=True), dim=-1)
        return -(unit * anchor).sum(-1)


@register("keydiff")
def keydiff(block: Share = 32, recent: Share = 0, sinks: int = 0) -> Policy:
    """Keep the keys that are least like the mean key of their head; no attention is looked at.

    The anchor moves with the cache, so all keys are read at each decision: one decision frees ``block`` slots.
    """
    block, recent = (check_share("keydiff", name, value) for name, value in (("block", block), ("recent", recent)))
    sinks = check_count("keydiff", "sinks", sinks)
    return Policy(
        name="keydiff",
        scorer=KeyDifference(),
        sinks=sinks,
        recent=recent,
        trigger=Block(block),
        options={"block": block, "recent": recent, "sinks": sinks},
    )
