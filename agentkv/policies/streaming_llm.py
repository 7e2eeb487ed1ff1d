"""StreamingLLM (Xiao et al., arXiv 2309.17453): attention sinks and a window."""

from __future__ import annotations

from agentkv.policies.base import Policy
from agentkv.policies.registry import register
from agentkv.policies.scorers import Recency
from agentkv.policies.shares import check_count


@register("streaming-llm")
def streaming_llm(sinks: int = 4) -> Policy:
    """Keep the first tokens (sinks, 4 in the paper) and the newest ones.

    Keys keep their absolute positions; the authors' release stores un-rotated keys and numbers the kept ones densely.
    """
    sinks = check_count("streaming-llm", "sinks", sinks)
    return Policy(name="streaming-llm", scorer=Recency(), sinks=sinks, options={"sinks": sinks})
