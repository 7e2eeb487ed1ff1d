"""SnapKV (Li et al., arXiv 2404.14469): what the last queries attend, pooled over neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from agentkv.cache.view import CacheView
from agentkv.policies.base import Policy, Scorer
from agentkv.policies.pooling import pooled
from agentkv.policies.registry import register
from agentkv.policies.rules import AttentionRule, WindowMass
from agentkv.policies.shares import check_count, check_odd
from agentkv.policies.triggers import Block


@dataclass(frozen=True)
class PooledMass(Scorer):
    """The rule's attention mass, averaged over neighbours in token order among the slots that compete.

    Attributes:
        kernel: slots that are averaged over, odd.
    """

    kernel: int = 5
    mass: AttentionRule | None = field(default_factory=WindowMass)

    def __call__(self, view: CacheView) -> Tensor:
        assert view.mass is not None
        return pooled(view.mass, view.token_index, view.filled & ~view.protected, self.kernel, "avg")


@register("snapkv")
def snapkv(window: int = 32, kernel: int = 5, sinks: int = 0) -> Policy:
    """Keep what the last ``window`` queries attend, neighbours included, beside the window itself.

    The paper selects once, after the prompt: that is ``prefill="whole"``. A full cache then frees ``window`` slots at a
    time, so that each decision in decoding has a window of its own.
    """
    return observing("snapkv", window, kernel, sinks)


def observing(name: str, window: int, kernel: int, sinks: int) -> Policy:
    """The policy under another name, for what varies it."""
    window = check_count(name, "window", window, least=1)
    kernel = check_odd(name, "kernel", kernel)
    sinks = check_count(name, "sinks", sinks)
    return Policy(
        name=name,
        scorer=PooledMass(kernel, WindowMass(queries=window)),
        sinks=sinks,
        recent=window,
        trigger=Block(window),
        options={"window": window, "kernel": kernel, "sinks": sinks},
    )
