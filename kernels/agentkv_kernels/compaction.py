"""Eviction without order: the last kept slots move into the holes. Reference in torch."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def compact(halves: Tensor, half_index: Tensor, keep: Tensor, metadata: Sequence[Tensor] = ()) -> Tensor:
    """Make the kept slots of every head its first ones; only slots that must move are touched.

    A head has as many holes below its new end as kept slots above it. The k-th kept slot from there on moves into the
    k-th hole, with its keys, values and metadata. What lies above the new end afterwards is arbitrary.

    Args:
        halves: [half-pages, slots per page, D] of the region's format.
        half_index: [L, 2, H, P] integer, K at 0 and V at 1.
        keep: [L, H, S] bool.
        metadata: each [L, H, ≥ S] or, of K and of V, [L, 2, H, ≥ S], of 4-byte elements.

    Returns:
        [L, H] int32: slots kept.
    """
    per_page = halves.shape[1]
    counts = keep.sum(-1)
    for layer in range(keep.shape[0]):
        for head in range(keep.shape[1]):
            kept, end = keep[layer, head], int(counts[layer, head])
            holes, movers = (~kept[:end]).nonzero()[:, 0], kept[end:].nonzero()[:, 0] + end
            for part in (0, 1):
                pages = half_index[layer, part, head].long()
                target = pages[holes // per_page], holes % per_page
                halves[target] = halves[pages[movers // per_page], movers % per_page]
            for tensor in metadata:
                tensor[layer, ..., head, holes] = tensor[layer, ..., head, movers]
    return counts.int()
