"""PyramidKV (Cai et al., arXiv 2406.02069): SnapKV's ranking, most slots in the first layers."""

from __future__ import annotations

from dataclasses import replace

from agentkv.errors import AgentKVError
from agentkv.policies.allocators import Pyramid
from agentkv.policies.base import Policy
from agentkv.policies.registry import register
from agentkv.policies.shares import check_positive
from agentkv.policies.snapkv import observing


@register("pyramidkv")
def pyramidkv(beta: float = 20.0, window: int = 32, kernel: int = 5, sinks: int = 0) -> Policy:
    """SnapKV with slots that fall linearly from the first layer to the last, at the same total.

    Beside the window, the last layer has 1/``beta`` of the mean and the first as much more.
    """
    beta = check_positive("pyramidkv", "beta", beta)
    if beta < 1:
        raise AgentKVError(f"pyramidkv: beta must be at least 1, not {beta!r}; 1 gives every layer the same")
    even = observing("pyramidkv", window, kernel, sinks)
    return replace(even, allocator=Pyramid(beta), options={"beta": beta, **even.options})
