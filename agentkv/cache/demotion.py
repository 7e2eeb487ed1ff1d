"""Quantising slots: codes and scales of what leaves the model's dtype, and their way into the code region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from agentkv.cache.arena import DUMMY_PAGE
from agentkv.cache.formats import KVFormat
from agentkv_kernels import dequantize, dequantize_channel, quantize, quantize_channel

if TYPE_CHECKING:
    from agentkv.cache.store import KVStore


@dataclass(frozen=True, slots=True)
class Staged:
    """m slots on their way into the code region, in row-major order of (layer, head, slot).

    Attributes:
        layer, head: [m] int64.
        codes, scales: [m, 2, D] int8 and [m, 2] float32.
        channels: [pages, D] float32: of the keys of each page, where the format has one scale per channel.
        meta: per slot metadata tensor of the store, [m].
        per_head: [L, H] int64: how many of the m.
    """

    layer: Tensor
    head: Tensor
    codes: Tensor
    scales: Tensor
    channels: Tensor
    meta: list[Tensor]
    per_head: Tensor


def encode(vectors: Tensor, fmt: KVFormat, page_slots: int) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values [m, 2, D] to codes [m, 2, D] int8, scales [m, 2], and key scales [pages, D] of whole pages."""
    if fmt is not KVFormat.INT8_CHANNEL:
        codes, scales = quantize(vectors, fmt)
        return codes, scales, scales.new_zeros(0, vectors.shape[-1])
    assert len(vectors) % page_slots == 0, "a page with scales per channel is filled at once"
    keys, channels = quantize_channel(vectors[:, 0].unflatten(0, (-1, page_slots)))
    values, scales = quantize(vectors[:, 1], KVFormat.INT8_TOKEN)
    return torch.stack((keys.flatten(0, 1), values), dim=1), scales.unsqueeze(1).expand(-1, 2), channels


def decode_keys(codes: Tensor, scales: Tensor, channels: Tensor, fmt: KVFormat) -> Tensor:
    """Keys [..., S, D] float32 from codes [..., S, D], scales [..., S] and scales per channel [..., pages, D]."""
    if fmt is not KVFormat.INT8_CHANNEL:
        return dequantize(codes, scales, fmt, torch.float32)
    pages = codes.unflatten(-2, (channels.shape[-2], -1))
    return dequantize_channel(pages, channels, torch.float32).flatten(-3, -2)


def stage(store: KVStore, demote: Tensor) -> Staged:
    """What becomes of the FP slots chosen by ``demote`` [L, H, FP slots] bool; changes nothing."""
    layer, head, slot = demote.nonzero(as_tuple=True)
    vectors = store.fp.rows[store.fp.rows_at(layer, head, slot)]
    codes, scales, channels = encode(vectors, store.code_format, store.code.page_slots)
    where = (layer, head, slot + store.code_cap)
    meta = [meta[where] for meta in store.slot_metadata.values()]
    return Staged(layer, head, codes, scales, channels, meta, demote.sum(-1))


def write_staged(store: KVStore, staged: Staged, first_slot: np.ndarray) -> None:
    """Put staged slots behind the code slots [0, first_slot) of each head, [L, H]; the pages must be there."""
    layer, head = staged.layer, staged.head
    # The k-th demoted slot of a head goes to that head's code slot first_slot + k.
    begins = staged.per_head.flatten().cumsum(0) - staged.per_head.flatten()
    rank = torch.arange(len(layer), device=layer.device) - begins[layer * staged.per_head.shape[1] + head]
    slot = torch.from_numpy(first_slot).to(layer.device)[layer, head] + rank
    store.code.rows.index_copy_(0, store.code.rows_at(layer, head, slot).flatten(), staged.codes.flatten(0, 1))
    store.scales[layer, :, head, slot] = staged.scales
    for meta, values in zip(store.slot_metadata.values(), staged.meta, strict=True):
        meta[layer, head, slot] = values
    if len(staged.channels):
        first = slice(None, None, store.code.page_slots)
        page = slot[first] // store.code.page_slots
        store.channel_scales[layer[first], head[first], page] = staged.channels


def demote_into(store: KVStore, victims: Tensor, oldest: Tensor, chosen: Tensor) -> None:
    """Quantise FP slot oldest[l, h] into code slot victims[l, h] wherever chosen[l, h]; all [L, H]."""
    source = store.fp.rows_of(oldest.unsqueeze(-1)).squeeze(-1)  # [L, 2, H]
    codes, scales = quantize(store.fp.rows[source], store.code_format)
    code_slot = victims.clamp_max(store.code_slots - 1).unsqueeze(-1)
    target = store.code.rows_of(code_slot).squeeze(-1)
    # Heads that demote nothing write to the dummy page: shapes stay fixed and no host decision is needed.
    dummy_row = 2 * DUMMY_PAGE * store.code.page_slots
    target = torch.where(chosen.unsqueeze(1), target, dummy_row)
    store.code.rows.index_copy_(0, target.flatten(), codes.flatten(0, -2))
    both = code_slot.unsqueeze(1).expand(-1, 2, -1, -1)
    kept = store.scales.gather(-1, both)
    store.scales.scatter_(-1, both, torch.where(chosen[:, None, :, None], scales.unsqueeze(-1), kept))
    fp_slot = (oldest + store.code_cap).unsqueeze(-1)
    for meta in store.slot_metadata.values():
        moved = torch.where(chosen.unsqueeze(-1), meta.gather(-1, fp_slot), meta.gather(-1, code_slot))
        meta.scatter_(-1, code_slot, moved)
