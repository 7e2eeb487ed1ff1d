"""Attention over pages of mixed precision in Triton: split-KV flash attention with grouped queries packed.

One program walks a share of one KV head's slots for a block of rows, a row being one query of one query head of the
group, so K and V are read once for the whole group; a second kernel joins the shares (flash-decoding, Dao et al.
2023). A scale per token multiplies a column of scores or of probabilities, a scale per channel the query: nothing
dequantised is ever written.

Where mass or probabilities are wanted, the walk also stores the scores of the queries concerned, and a third kernel
turns them into probabilities once the denominator is known; queries are tiled so that these scores stay small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from agentkv_kernels.attention import AttentionResult
from agentkv_kernels.paged_kv import PagedKV
from agentkv_kernels.triton.attention_kernels import MIXED, NO_CODES, attend_kernel, finish_kernel, join_kernel
from agentkv_kernels.triton.blocks import Blocks, blocks_for, capability_of, multiprocessors

_KEPT_BYTES = 32 << 20
"""Scores that wait for their denominator: they fit an H200's L2."""
_MIXED_REGISTERS = 4 * 255
"""Per lane of a program whose heads differ in format; left alone, ptxas spills to fit one more program."""
_JOIN = 16
"""Shares that the second kernel reads at once."""
_FINISH_SLOTS, _FINISH_ROWS = 128, 16
LARGEST_HEAD = 256
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def unsupported(query: Tensor, kv: PagedKV) -> str | None:
    """Why the kernel cannot compute this; None if it can."""
    if query.dtype not in DTYPES:
        return f"dtype {query.dtype}"
    if query.dtype is not kv.fp_halves.dtype:
        return f"queries of {query.dtype} on pages of {kv.fp_halves.dtype}"
    if query.shape[-1] > LARGEST_HEAD:
        return f"a head size of {query.shape[-1]}, above {LARGEST_HEAD}"
    page = kv.code_halves.shape[1]
    if kv.code_slots and _by_channel(kv) and (page < 16 or page & (page - 1)):
        return f"INT8_CHANNEL pages of {page} slots, not a power of two from 16 on"
    return None


def _by_channel(kv: PagedKV) -> bool:
    """Whether a head may have one scale per channel."""
    return kv.channel_scales is not None


@dataclass(frozen=True, slots=True)
class _Call:
    """One call's tensors and sizes. H KV heads, G query heads each, n queries."""

    query: Tensor
    kv: PagedKV
    query_index: Tensor
    scaling: float
    softcap: float | None
    sinks: Tensor | None
    window: int | None
    blocks: Blocks
    out: Tensor
    lse: Tensor

    @property
    def heads(self) -> int:
        return len(self.kv.token_index)

    @property
    def group(self) -> int:
        return len(self.query) // self.heads

    @property
    def slots(self) -> int:
        return self.kv.code_slots + self.kv.fp_slots

    @property
    def code_block(self) -> int:
        return min(self.blocks.slots, self.kv.code_halves.shape[1]) if _by_channel(self.kv) else self.blocks.slots

    @property
    def format(self) -> int:
        if not self.kv.code_slots:
            return NO_CODES
        return int(self.kv.code_format) if self.kv.head_formats is None else MIXED


def paged_mixed_attention(
    query: Tensor,
    kv: PagedKV,
    query_index: Tensor,
    scaling: float,
    mass_weights: Tensor | None = None,
    *,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    window: int | None = None,
    probs_of: int = 0,
    return_lse: bool = False,
    blocks: Blocks | None = None,
) -> AttentionResult:
    """As the reference, :func:`agentkv_kernels.attention.paged_mixed_attention`; ``unsupported`` says where not.

    A query that sees no slot gives zeros and a log-sum-exp of −inf. Shapes alone decide what is launched: a CUDA graph
    may replay a call on other contents.

    Args:
        blocks: tile sizes in place of the table's.
    """
    q_heads, n_queries, head_dim = query.shape
    query = query if query.stride(-1) == 1 else query.contiguous()
    call = _Call(
        query, kv, query_index.reshape(-1, n_queries), scaling, softcap, sinks, window,
        blocks or blocks_for(capability_of(query.device), head_dim, query.dtype.itemsize),
        out=torch.empty(q_heads, n_queries, head_dim, dtype=query.dtype, device=query.device),
        lse=torch.empty(q_heads, n_queries, device=query.device),
    )  # fmt: skip
    n_weights = 0 if mass_weights is None else len(mass_weights)
    n_probs = min(probs_of, n_queries)
    mass = None if mass_weights is None else torch.empty(call.heads, call.slots, device=query.device)
    probs = torch.empty(q_heads, n_probs, call.slots, device=query.device) if n_probs else None
    plain = n_queries - max(n_weights, n_probs)
    if plain:
        _attend(call, 0, plain, None)
    tile = max(1, _KEPT_BYTES // (4 * q_heads * max(1, call.slots)))
    for first in range(plain, n_queries, tile):
        count = min(tile, n_queries - first)
        kept = torch.empty(q_heads, count, call.slots, device=query.device)
        _attend(call, first, count, kept)
        _finish(call, first, count, kept, mass_weights, mass, probs, add=first > plain)
    return AttentionResult(call.out, mass, probs, call.lse if return_lse else None)


def _attend(call: _Call, first: int, count: int, kept: Tensor | None) -> None:
    """Output and log-sum-exp of ``count`` queries from ``first`` on, and their scores in ``kept``."""
    query, kv, blocks = call.query, call.kv, call.blocks
    head_dim, device = query.shape[-1], query.device
    rows = call.group * count
    m = min(blocks.rows, max(16, triton.next_power_of_2(rows)))
    row_blocks = triton.cdiv(rows, m)
    splits = _splits(call, row_blocks)
    part = (len(query), count, splits)
    direct = splits == 1
    nothing = call.lse
    part_acc = nothing if direct else torch.empty(*part, head_dim, device=device)
    part_peak = nothing if direct else torch.empty(part, device=device)
    part_total = nothing if direct else torch.empty(part, device=device)
    block_d = max(16, triton.next_power_of_2(head_dim))
    channels = kv.channel_scales if kv.channel_scales is not None else nothing
    attend_kernel[(splits, row_blocks, call.heads)](
        query, query.stride(0), query.stride(1),
        call.query_index, call.query_index.stride(0) if len(call.query_index) > 1 else 0,
        kv.fp_halves, kv.fp_index, kv.fp_index.stride(0), kv.fp_index.stride(1),
        kv.code_halves, kv.code_index, kv.code_index.stride(0), kv.code_index.stride(1),
        kv.scales, kv.scales.stride(0), kv.scales.stride(1), channels, channels.stride(0),
        kv.token_index, kv.token_index.stride(0),
        _or(kv.head_formats, nothing), *_counts(kv, nothing), _or(call.sinks, nothing),
        call.out, call.lse, part_acc, part_peak, part_total, _or(kept, nothing),
        kv.code_slots, kv.fp_slots, count, first, query.shape[1], splits,
        call.scaling, call.softcap or 1.0, call.window or 0,
        FORMAT=call.format, G=call.group, D=head_dim, BLOCK_D=block_d,
        FP_PAGE=kv.fp_halves.shape[1], CODE_PAGE=kv.code_halves.shape[1],
        M=m, FP_N=blocks.slots, CODE_N=call.code_block,
        SOFTCAP=call.softcap is not None, WINDOW=call.window is not None, SINKS=call.sinks is not None,
        COUNTS=kv.slot_counts is not None, KEEP=kept is not None, DIRECT=direct, STAGES=blocks.stages,
        num_warps=blocks.warps, maxnreg=_MIXED_REGISTERS // blocks.warps if call.format == MIXED else None,
    )  # fmt: skip
    if not direct:
        join_kernel[(len(query) * count,)](
            part_acc, part_peak, part_total, _or(call.sinks, nothing), call.out, call.lse,
            count, first, query.shape[1], splits,
            D=head_dim, BLOCK_D=block_d, SINKS=call.sinks is not None, JOIN=_JOIN,
        )  # fmt: skip


def _splits(call: _Call, row_blocks: int) -> int:
    """Shares of a head's slots that fill the device, each at least two blocks."""
    blocks = triton.cdiv(call.kv.code_slots, call.code_block) + triton.cdiv(call.kv.fp_slots, call.blocks.slots)
    wanted = triton.cdiv(multiprocessors(call.query.device) * call.blocks.programs, call.heads * row_blocks)
    return max(1, min(wanted, blocks // 2))


def _finish(
    call: _Call, first: int, count: int, kept: Tensor, weights: Tensor | None, mass: Tensor | None,
    probs: Tensor | None, add: bool,
) -> None:  # fmt: skip
    """Probabilities and mass out of the kept scores of ``count`` queries from ``first`` on."""
    all_queries, nothing = call.query.shape[1], call.lse
    n_weights, n_probs = (0 if weights is None else len(weights)), (0 if probs is None else probs.shape[1])
    finish_kernel[(triton.cdiv(call.slots, _FINISH_SLOTS), call.heads)](
        kept, call.lse, *_counts(call.kv, nothing), _or(weights, nothing), _or(mass, nothing), _or(probs, nothing),
        call.kv.code_slots, call.kv.fp_slots, count, first, all_queries,
        all_queries - n_weights, all_queries - n_probs, n_probs,
        G=call.group, ROWS=_FINISH_ROWS, N=_FINISH_SLOTS,
        COUNTS=call.kv.slot_counts is not None, MASS=mass is not None, ADD=add, PROBS=probs is not None,
    )  # fmt: skip


def _counts(kv: PagedKV, nothing: Tensor) -> tuple[Any, Any]:
    """Pointers to the filled slots of each head: of codes, of FP."""
    return (nothing, nothing) if kv.slot_counts is None else (kv.slot_counts[0], kv.slot_counts[1])


def _or(tensor: Tensor | None, nothing: Tensor) -> Tensor:
    """A pointer for the kernel even where it has nothing to read."""
    return nothing if tensor is None else tensor
