"""Surprise of segments: whole sentences or lines stay, those that the model expected least."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agentkv.cache.formats import KVFormat
from agentkv.cache.view import CacheView
from agentkv.policies.base import Policy, Scorer
from agentkv.policies.precision import AgePrecision
from agentkv.policies.registry import register
from agentkv.policies.shares import Share, check_choice, check_count, check_share

FORMATS = ("fp", "int8")


@dataclass(frozen=True)
class SegmentSurprise(Scorer):
    """The rank of a token's segment by the mean −log p of its tokens, whether or not they are still kept.

    −log p is what the model gave a token when it read it, so a segment's worth is settled once the segment has ended.
    Within a segment, and of segments of equal worth, the newer token is worth more.
    """

    needs_segments: bool = True
    needs_surprise: bool = True
    by_segment: bool = True
    by_token: bool = True

    def __call__(self, view: CacheView) -> Tensor:
        assert view.segments is not None
        assert view.surprise is not None
        return view.of_tokens(ranks_by_segment(view.surprise, view.segments))


def ranks_by_segment(values: Tensor, segments: Tensor, less: float = 0.0) -> Tensor:
    """[T] float32: the rank of each token's segment by the mean of its tokens' values, of equal ones the newer above.

    Args:
        values: [T], of the tokens.
        segments: [T] integer: number of each token's segment.
        less: is taken once from each segment's sum, so that short ones are worth less.
    """
    segment = segments.long()
    total = torch.zeros(len(segment) + 1, dtype=torch.float64, device=segment.device)
    total.scatter_add_(0, segment, values.double())
    size = torch.zeros_like(total).scatter_add_(0, segment, torch.ones_like(total[: len(segment)]))
    mean = ((total - less) / size.clamp_min(1.0)).float()[segment]  # sums in any order: equal segments tie
    rank = torch.empty(len(segment), device=segment.device)
    rank[mean.argsort(stable=True)] = torch.arange(len(segment), dtype=torch.float32, device=segment.device)
    return rank


@register("surprise")
def surprise(recent: Share = 1 / 8, sinks: int = 4, format: str = "fp", fp_window: Share = 1 / 16) -> Policy:
    """Keep whole the sentences and lines that surprised the model most when it read them, beside the newest tokens.

    Args:
        recent: newest slots never evicted.
        sinks: first tokens never evicted.
        format: "fp", or "int8" for slots older than ``fp_window``.
        fp_window: newest slots kept in the model's dtype, with ``format="int8"``.
    """
    recent, fp_window = (
        check_share("surprise", name, value) for name, value in (("recent", recent), ("fp_window", fp_window))
    )
    sinks = check_count("surprise", "sinks", sinks)
    check_choice("surprise", "format", format, FORMATS)
    return Policy(
        name="surprise",
        scorer=SegmentSurprise(),
        sinks=sinks,
        recent=recent,
        precision=AgePrecision(fp_window, KVFormat.INT8_TOKEN) if format == "int8" else None,
        options={"recent": recent, "sinks": sinks, "format": format, "fp_window": fp_window},
    )
