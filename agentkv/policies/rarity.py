"""Rarity of segments: whole sentences or lines stay, those that say what nothing else in the session says."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from agentkv.cache.view import CacheView
from agentkv.policies.base import Scorer
from agentkv.policies.surprise import ranks_by_segment

RUN = 3
"""Tokens of a run: of single ones, digits are common, and a number is rare only as a whole."""
SHORT = 5.0
"""Nats that a segment loses whatever its length: a label of two tokens may be unique and says little."""
_MOST_IDS = 1 << 20  # of a vocabulary: a run is then one number of 60 bits


@dataclass(frozen=True)
class SegmentRarity(Scorer):
    """The rank of a token's segment by the mean rarity of its tokens, whether or not they are still kept.

    A token is the rarer, the seldomer it and the two before it occur in the ledger, one after the other: pages repeat
    their menus, lists and forms, and a fact stands once. Reads no attention and no logits. Of segments of equal worth,
    and within one, the newer token is worth more.
    """

    needs_segments: bool = True
    needs_ids: bool = True
    by_segment: bool = True
    by_token: bool = True

    def __call__(self, view: CacheView) -> Tensor:
        assert view.segments is not None
        assert view.ids is not None
        return view.of_tokens(ranks_by_segment(rarity(view.ids), view.segments, SHORT))


def rarity(ids: Tensor) -> Tensor:
    """[T] float64: −log of how often each token occurs after the same two, itself included.

    Args:
        ids: [T] integer; what stands before the first token is like nothing else.
    """
    runs = torch.zeros(len(ids), dtype=torch.int64, device=ids.device)
    for back in range(RUN):
        runs = runs * _MOST_IDS + pad(ids.long() + 1, (back, 0))[: len(ids)]
    order = runs.argsort()  # equal ones side by side, and no transfer to the host as with `unique`
    starts = runs[order].diff(prepend=runs.new_full((1,), -1)) != 0
    group = starts.long().cumsum(0) - 1
    counts = torch.zeros_like(runs).scatter_add_(0, group, torch.ones_like(runs))
    return -torch.empty_like(runs).index_copy_(0, order, counts[group]).double().log()
