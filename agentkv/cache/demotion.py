"""Quantising slots: codes and scales of what leaves the model's dtype, and their way into the code region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from agentkv.cache.formats import KVFormat
from agentkv_kernels import demote, demote_pages, promote

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


def encode(rows: Tensor, sources: Tensor, fmt: KVFormat, page_slots: int) -> tuple[Tensor, Tensor, Tensor]:
    """Quantise the keys and values at rows ``sources`` [m, 2] of ``rows`` [·, D].

    Returns codes [m, 2, D] int8, scales [m, 2], and key scales [pages, D] where the format has one per channel.
    """
    m, dim = len(sources), rows.shape[-1]
    codes = torch.empty(2 * m, dim, dtype=torch.int8, device=rows.device)
    at = torch.arange(2 * m, device=rows.device)
    if fmt is not KVFormat.INT8_CHANNEL:
        scales = torch.empty(2 * m, device=rows.device)
        demote(rows, sources.flatten(), codes, at, fmt, scales, at)
        return codes.view(m, 2, dim), scales.view(m, 2), scales.new_zeros(0, dim)
    assert m % page_slots == 0, "a page with scales per channel is filled at once"
    pages = m // page_slots
    scales, channels = torch.empty(m, device=rows.device), torch.empty(pages, dim, device=rows.device)
    origin, target = (x.view(pages, page_slots, 2).transpose(1, 2) for x in (sources, at))
    demote_pages(rows, origin, codes, target, scales, at[:m].view(pages, -1), channels, at[:pages])
    return codes.view(m, 2, dim), scales.unsqueeze(1).expand(-1, 2), channels


def decode(
    rows: Tensor,
    sources: Tensor,
    fmt: KVFormat,
    scales: Tensor,
    scale_at: Tensor,
    channels: Tensor,
    channel_at: Tensor,
) -> Tensor:
    """Vectors [m, D] float32 from rows of codes; see :func:`agentkv_kernels.promote`.

    Args:
        rows, sources, scales, scale_at: as of ``promote``, all of ``sources`` wanted.
        channels: [pages, D], of a format with scales per channel.
        channel_at: [m]: whose scales a key has, negative for a value.
    """
    out = torch.empty(len(sources), rows.shape[-1], device=rows.device)
    per_channel = (channels, channel_at) if fmt is KVFormat.INT8_CHANNEL else (None, None)
    promote(rows, sources, fmt, scales, scale_at, out, torch.arange(len(out), device=rows.device), *per_channel)
    return out


def read_code_keys(store: KVStore) -> Tensor:
    """The quantised keys in use: [L, H, S, D] float32; arbitrary at empty slots."""
    shape = (*store.code.used.shape, store.code_slots)
    slot = torch.arange(shape[-1], device=store.arena.device).expand(shape)
    pages, page_slots = store.channel_scales.shape[2], store.code.page_slots
    head = torch.arange(shape[0] * shape[1], device=slot.device).view(*shape[:2], 1)
    keys = decode(
        store.code.rows,
        store.code.rows_of(slot)[:, 0].flatten(),
        store.code_format,
        store.scales,
        scale_places(store, slot)[:, 0].flatten(),
        store.channel_scales.view(-1, store.arena.layout.head_dim),
        (head * pages + slot // page_slots).flatten(),
    )
    return keys.view(*shape, -1)


def scale_places(store: KVStore, slot: Tensor) -> Tensor:
    """Where in ``store.scales``, flattened, those of code slots [L, H, n] are: [L, 2, H, n], of K at 0 and V at 1."""
    layers, parts, heads, cap = store.scales.shape
    place = torch.arange(layers * parts * heads, device=slot.device).view(layers, parts, heads, 1)
    return place * cap + slot.unsqueeze(1)


def stage(store: KVStore, chosen: Tensor) -> Staged:
    """What becomes of the ``chosen`` FP slots, [L, H, FP slots] bool; changes nothing."""
    layer, head, slot = chosen.nonzero(as_tuple=True)
    rows = store.fp.rows_at(layer, head, slot)
    codes, scales, channels = encode(store.fp.rows, rows, store.code_format, store.code.page_slots)
    where = (layer, head, slot + store.code_cap)
    meta = [meta[where] for meta in store.slot_metadata.values()]
    return Staged(layer, head, codes, scales, channels, meta, chosen.sum(-1))


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
    code_slot = victims.clamp_max(store.code_slots - 1).unsqueeze(-1)
    demote(
        store.fp.rows,
        store.fp.rows_of(oldest.unsqueeze(-1)).flatten(),
        store.code.rows,
        store.code.rows_of(code_slot).masked_fill(~chosen[:, None, :, None], -1).flatten(),
        store.code_format,
        store.scales,
        scale_places(store, code_slot).flatten(),
    )
    fp_slot = (oldest + store.code_cap).unsqueeze(-1)
    for meta in store.slot_metadata.values():
        moved = torch.where(chosen.unsqueeze(-1), meta.gather(-1, fp_slot), meta.gather(-1, code_slot))
        meta.scatter_(-1, code_slot, moved)
