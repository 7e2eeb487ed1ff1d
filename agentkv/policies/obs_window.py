"""Observation window: the oldest pages go, whole. What web agents do to their prompts, done to the cache."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from agentkv.cache.view import CacheView
from agentkv.policies.base import Policy, Scorer
from agentkv.policies.registry import register
from agentkv.policies.shares import Share, check_count, check_share


@dataclass(frozen=True)
class OldestObservation(Scorer):
    """Tokens of observations are worth less than all others; within both, the newer the better."""

    needs_observations: bool = True

    def __call__(self, view: CacheView) -> Tensor:
        assert view.observations is not None
        others = view.of_tokens(view.observations) < 0
        return view.token_index.float() + others * float(view.logical_length)


@register("obs-window")
def obs_window(sinks: int = 4, recent: Share = 0) -> Policy:
    """Drop the oldest page observations, each as a whole; keep system prompt, task, actions and notes.

    Who says which tokens are observations: ``roles`` of ``Engine.generate``, or the chat model by itself. Without that
    there are none, and the policy is ``streaming-llm``.

    Args:
        sinks: first tokens never evicted.
        recent: newest tokens never evicted.
    """
    sinks, recent = check_count("obs-window", "sinks", sinks), check_share("obs-window", "recent", recent)
    return Policy(
        name="obs-window",
        scorer=OldestObservation(),
        sinks=sinks,
        recent=recent,
        whole_observations=True,
        options={"sinks": sinks, "recent": recent},
    )
