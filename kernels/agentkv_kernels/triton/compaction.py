"""The last kept slots move into the holes, in Triton; see :mod:`agentkv_kernels.compaction`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_SLOTS, _MOVES = 256, 16


@triton.jit(do_not_specialize=["slots", "most"])
def pair_kernel(keep, counts, moves, holes, movers, slots, most, N: tl.constexpr):
    """Of one head: how many slots stay, and the pairs (hole below the new end, kept slot above it); grid (L · H)."""
    head = tl.program_id(0).to(tl.int64)
    keep += head * slots
    end = tl.zeros([1], tl.int32)
    for first in range(0, slots, N):
        slot = first + tl.arange(0, N)
        end += tl.sum(tl.load(keep + slot, mask=slot < slots, other=0).to(tl.int32), 0)
    found, moved = tl.zeros([1], tl.int32), tl.zeros([1], tl.int32)
    for first in range(0, slots, N):
        slot = first + tl.arange(0, N)
        kept = tl.load(keep + slot, mask=slot < slots, other=0).to(tl.int32)
        hole = ((kept == 0) & (slot < end)).to(tl.int32)
        mover = ((kept == 1) & (slot >= end)).to(tl.int32)
        tl.store(holes + head * most + found + tl.cumsum(hole, 0) - 1, slot, mask=hole == 1)
        tl.store(movers + head * most + moved + tl.cumsum(mover, 0) - 1, slot, mask=mover == 1)
        found += tl.sum(hole, 0)
        moved += tl.sum(mover, 0)
    tl.store(counts + head + tl.arange(0, 1), end)
    tl.store(moves + head + tl.arange(0, 1), moved)


@triton.jit(do_not_specialize=["heads", "pages", "most"])
def move_kernel(
    halves, half_index, moves, holes, movers, heads, pages, most,
    PAGE: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Keys (part 0) or values (1) of a block of moves; grid (blocks, 2, L · H)."""
    part, at = tl.program_id(1), tl.program_id(2).to(tl.int64)
    nth = tl.program_id(0) * R + tl.arange(0, R)
    valid = nth < tl.load(moves + at)
    hole = tl.load(holes + at * most + nth, mask=valid, other=0)
    mover = tl.load(movers + at * most + nth, mask=valid, other=0)
    half_index += ((at // heads * 2 + part) * heads + at % heads) * pages
    to_half = tl.load(half_index + hole // PAGE, mask=valid, other=0).to(tl.int64)
    from_half = tl.load(half_index + mover // PAGE, mask=valid, other=0).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    there = valid[:, None] & (d < D)[None, :]
    vectors = tl.load(halves + (from_half * PAGE + mover % PAGE)[:, None] * D + d[None, :], mask=there, other=0)
    tl.store(halves + (to_half * PAGE + hole % PAGE)[:, None] * D + d[None, :], vectors, mask=there)


@triton.jit(do_not_specialize=["heads", "most"])
def move_column_kernel(
    column, by_layer, by_part, by_head, moves, holes, movers, heads, most, R: tl.constexpr
):  # fmt: skip
    """Metadata [L, parts, H, ·] of a block of moves; grid (blocks, parts, L · H)."""
    part, at = tl.program_id(1), tl.program_id(2).to(tl.int64)
    nth = tl.program_id(0) * R + tl.arange(0, R)
    valid = nth < tl.load(moves + at)
    column += at // heads * by_layer + part * by_part + at % heads * by_head
    values = tl.load(column + tl.load(movers + at * most + nth, mask=valid, other=0), mask=valid, other=0)
    tl.store(column + tl.load(holes + at * most + nth, mask=valid, other=0), values, mask=valid)


def compact(halves: Tensor, half_index: Tensor, keep: Tensor, metadata: Sequence[Tensor] = ()) -> Tensor:
    """See :func:`agentkv_kernels.compaction.compact`. No host synchronisation: shapes alone decide what is launched."""
    layers, heads, slots = keep.shape
    counts = torch.zeros(layers, heads, dtype=torch.int32, device=keep.device)
    most = slots // 2  # as many holes as movers, and they share the slots
    if not most:
        return keep.sum(-1, dtype=torch.int32)
    half_index = half_index.contiguous()
    moves = torch.empty_like(counts)
    holes = torch.empty(layers, heads, most, dtype=torch.int32, device=keep.device)
    movers = torch.empty_like(holes)
    pair_kernel[(layers * heads,)](
        keep.contiguous().view(torch.int8), counts, moves, holes, movers, slots, most, N=_SLOTS
    )
    _, page, head_dim = halves.shape
    blocks = triton.cdiv(most, _MOVES)
    move_kernel[(blocks, 2, layers * heads)](
        halves, half_index, moves, holes, movers, heads, half_index.shape[-1], most,
        PAGE=page, D=head_dim, BLOCK_D=triton.next_power_of_2(head_dim), R=_MOVES,
    )  # fmt: skip
    for tensor in metadata:
        parts = tensor.shape[1] if tensor.dim() == 4 else 1
        by_layer, by_head = tensor.stride(0), tensor.stride(-2)
        by_part = tensor.stride(1) if tensor.dim() == 4 else 0
        move_column_kernel[(blocks, parts, layers * heads)](
            tensor, by_layer, by_part, by_head, moves, holes, movers, heads, most, R=_MOVES
        )
    return counts
