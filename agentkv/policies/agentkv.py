"""agentkv: the agent's own words, the newest page, and of older pages the lines that say what nothing else says."""

from __future__ import annotations

from agentkv.cache.formats import KVFormat
from agentkv.policies.base import Policy
from agentkv.policies.combined import ByRole
from agentkv.policies.precision import AgePrecision
from agentkv.policies.rarity import SegmentRarity
from agentkv.policies.registry import register
from agentkv.policies.shares import Share, check_choice, check_count, check_share
from agentkv.policies.surprise import FORMATS


@register("agentkv")
def agentkv(sinks: int = 4, recent: Share = 1 / 8, format: str = "int8", fp_window: Share = 1 / 16) -> Policy:
    """Keep the agent's own words, then the newest page, then the rarest lines of older pages; old slots in INT8.

    Who says which tokens are observations: ``roles`` of ``Engine.generate``, or the chat model by itself. Without that
    the rarest sentences and lines of all there is stay.

    Args:
        sinks: first tokens never evicted.
        recent: newest slots never evicted.
        format: "int8" for slots older than ``fp_window``, or "fp".
        fp_window: newest slots kept in the model's dtype, with ``format="int8"``.
    """
    sinks = check_count("agentkv", "sinks", sinks)
    recent, fp_window = (
        check_share("agentkv", name, value) for name, value in (("recent", recent), ("fp_window", fp_window))
    )
    check_choice("agentkv", "format", format, FORMATS)
    return Policy(
        name="agentkv",
        scorer=ByRole((SegmentRarity(),)),
        sinks=sinks,
        recent=recent,
        precision=AgePrecision(fp_window, KVFormat.INT8_TOKEN) if format == "int8" else None,
        options={"sinks": sinks, "recent": recent, "format": format, "fp_window": fp_window},
    )
