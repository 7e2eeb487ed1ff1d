"""One layer's cache as kernels get it, and how the reference kernels read it.

A layer's cache is two regions per KV head: slots of codes in one quantised format first, then slots in the model's
dtype (FP). Slots are in no particular order: RoPE is baked into the keys, and a softmax does not care. What a query
may see is decided by the token index of each slot, never by where the slot lies.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agentkv_kernels.formats import KVFormat
from agentkv_kernels.quantize import decode
from agentkv_kernels.scratch import scratch


@dataclass(frozen=True, slots=True)
class PagedKV:
    """One layer's cache, as views of the arena. H = KV heads, D = head size.

    A *half-page* is the K part or the V part of a page; ``*_halves`` is the whole arena seen in one format, and
    ``*_index`` names this layer's half-pages, K at 0 and V at 1. Heads that hold fewer slots than ``*_slots`` are
    padded with slots whose token index is −1.

    Attributes:
        fp_halves: [half-pages, slots per FP page, D] in the model's dtype.
        fp_index: [2, H, FP pages] integer.
        fp_slots: FP slots to read per head.
        code_halves: [half-pages, slots per code page, D] int8.
        code_index: [2, H, code pages] integer.
        code_slots: slots of codes to read per head.
        scales: [2, H, code_slots] float32: of K, of V; finite in padding slots too. Those of K are unused in
            INT8_CHANNEL.
        token_index: [H, code_slots + fp_slots] int32, codes first; −1 marks an empty slot.
        visible_slots: the first so many slots of every head are filled and older than every query, so that causality
            needs no mask for them.
        fp_filled: FP slots that every head fills, from the first on; None: all. What a slot beyond them reads may be
            arbitrary bits, NaN among them.
        code_format: how ``code_halves`` is to be read.
        channel_scales: [H, code pages, D] float32, scales of K in INT8_CHANNEL; None in the other formats.
        head_formats: [H] int32, a format per head in place of ``code_format``, where sessions differ; or None.
        slot_counts: [2, H] int32: of each head the code slots and the FP slots that may be filled; those beyond are
            empty. A kernel reads no further. None: unknown.
    """

    fp_halves: Tensor
    fp_index: Tensor
    fp_slots: int
    code_halves: Tensor
    code_index: Tensor
    code_slots: int
    scales: Tensor
    token_index: Tensor
    visible_slots: int
    fp_filled: int | None = None
    code_format: KVFormat = KVFormat.INT8_TOKEN
    channel_scales: Tensor | None = None
    head_formats: Tensor | None = None
    slot_counts: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Regions:
    """A layer's keys and values, each in the dtype it is multiplied in, each [H, slots, D], in work buffers.

    What has a scale per token is not multiplied by it: ``key_scales`` belongs to the scores of ``code_keys`` and
    ``value_scales`` to the probabilities of ``code_values``, both [H, code slots] float32. None: there is none.
    """

    fp_keys: Tensor
    fp_values: Tensor
    code_keys: Tensor | None = None
    code_values: Tensor | None = None
    key_scales: Tensor | None = None
    value_scales: Tensor | None = None


def read_regions(kv: PagedKV, key_dtype: torch.dtype, value_dtype: torch.dtype) -> Regions:
    """Gather a layer's pages. A value of a padding slot is finite; its key is arbitrary and must be masked."""
    fp_keys = _gather(kv.fp_halves, kv.fp_index[0], "fp_keys")[:, : kv.fp_slots]
    if key_dtype is not fp_keys.dtype:
        fp_keys = scratch("fp_keys", fp_keys.shape, key_dtype, fp_keys.device).copy_(fp_keys)
    fp_values = _gather(kv.fp_halves, kv.fp_index[1], "fp_values")[:, : kv.fp_slots]
    if value_dtype is not fp_values.dtype:
        fp_values = scratch("fp_values", fp_values.shape, value_dtype, fp_values.device).copy_(fp_values)
    if kv.fp_filled is not None and kv.fp_filled < kv.fp_slots:  # a probability of zero does not silence a NaN
        empty = kv.token_index[:, kv.code_slots + kv.fp_filled :] < 0
        fp_values[:, kv.fp_filled :].masked_fill_(empty.unsqueeze(-1), 0.0)
    if not kv.code_slots:
        return Regions(fp_keys, fp_values)
    per_channel = kv.code_format is KVFormat.INT8_CHANNEL
    return Regions(
        fp_keys,
        fp_values,
        _channel_keys(kv, key_dtype) if per_channel else _numbers(kv, 0, key_dtype, "code_keys"),
        _numbers(kv, 1, value_dtype, "code_values"),
        None if per_channel else kv.scales[0],
        kv.scales[1],
    )


def _channel_keys(kv: PagedKV, dtype: torch.dtype) -> Tensor:
    """[H, code slots, D], scaled.

    Scaling the query instead, once per page, makes many small products of one large: 3 times slower in prefill, no
    faster in decoding. And no more is written than without scales, since codes must become numbers anyway.
    """
    assert kv.channel_scales is not None, "INT8_CHANNEL needs channel_scales"
    pages = _gather(kv.code_halves, kv.code_index[0], "code_keys").view(
        *kv.code_index.shape[1:], *kv.code_halves[0].shape
    )
    keys = scratch("channel_keys", pages.shape, torch.float32, pages.device).copy_(pages)
    keys.mul_(kv.channel_scales.unsqueeze(2))
    return keys.flatten(1, 2)[:, : kv.code_slots].to(dtype)


def _numbers(kv: PagedKV, part: int, dtype: torch.dtype, name: str) -> Tensor:
    """[H, code slots, D], unscaled: of K (part 0) or V (1)."""
    codes = _gather(kv.code_halves, kv.code_index[part], name)
    return decode(codes, kv.code_format, scratch(name, codes.shape, dtype, codes.device))[:, : kv.code_slots]


def _gather(halves: Tensor, index: Tensor, name: str) -> Tensor:
    """[H, slots of whole pages, D] out of half-pages [N, P, D] named by index [H, pages]."""
    heads, pages = index.shape
    _, per_page, head_dim = halves.shape
    target = scratch(name, (heads * pages, per_page, head_dim), halves.dtype, halves.device)
    torch.index_select(halves, 0, index.reshape(-1), out=target)
    return target.view(heads, pages * per_page, head_dim)
