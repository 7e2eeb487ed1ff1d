"""Eviction without order: the last kept slots move into the holes. Reference in torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
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
    counts = keep.sum(-1, dtype=torch.int32)
    inside = torch.arange(keep.shape[-1], device=keep.device) < counts.unsqueeze(-1)
    # In row-major order the k-th hole and the k-th slot to move are of the same head.
    layer, head, hole = (~keep & inside).nonzero(as_tuple=True)
    mover = (keep & ~inside).nonzero(as_tuple=True)[2]
    from_half, to_half = (half_index[layer, :, head, slot // per_page].long() for slot in (mover, hole))
    halves[to_half, (hole % per_page).unsqueeze(-1)] = halves[from_half, (mover % per_page).unsqueeze(-1)]
    for tensor in metadata:
        tensor[layer, ..., head, hole] = tensor[layer, ..., head, mover]
    return counts
