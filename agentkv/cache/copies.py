"""Copying a store's content out of its pages, and back into an empty store."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from agentkv.cache.formats import KVFormat
from agentkv.cache.region import Region
from agentkv.cache.snapshot import RegionContent, Snapshot
from agentkv.cache.store import KVStore


def snapshot(store: KVStore) -> Snapshot:
    """A copy of every filled slot."""
    fp, code = (_content(store, region) for region in (store.fp, store.code))
    return Snapshot(fp, code, store.channel_scales[_channel_pages(store)])


def check_pages(store: KVStore, copy: Snapshot) -> None:
    """Raises PoolExhausted if the copy would not fit in place of what the store holds."""
    wanted = store.fp.pages_for(copy.fp.used.numpy()).sum() + store.code.pages_for(copy.code.used.numpy()).sum()
    store.check_pages(int(wanted))


def load(store: KVStore, copy: Snapshot) -> None:
    """Fill an empty store. Raises PoolExhausted, leaving it empty, if pages are lacking."""
    copy = copy.to(store.arena.device)
    store.reserve(copy.fp.used.numpy(), copy.code.used.numpy())
    if "rope_pos" in copy.fp.meta:
        store.open_positions()
    for region, content in ((store.fp, copy.fp), (store.code, copy.code)):
        layer, head, slot = filled(region)
        region.rows[region.rows_at(layer, head, slot)] = content.vectors
        at = (layer, head, slot + store.offset(region))
        for name, meta in store.slot_metadata.items():
            meta[at] = content.meta[name]
        if region is store.code:
            store.scales[layer, :, head, slot] = content.scales
    store.channel_scales[_channel_pages(store)] = copy.channel_scales


def filled(region: Region) -> tuple[Tensor, Tensor, Tensor]:
    """Layer, head and slot of every filled slot, in row-major order; three [m] int64."""
    used = torch.from_numpy(region.used).to(region.rows.device)
    inside = torch.arange(region.max_used, device=used.device) < used.unsqueeze(-1)
    layer, head, slot = inside.nonzero(as_tuple=True)
    return layer, head, slot


def _content(store: KVStore, region: Region) -> RegionContent:
    layer, head, slot = filled(region)
    at = (layer, head, slot + store.offset(region))
    meta = {name: values[at] for name, values in store.slot_metadata.items()}
    scales = store.scales[layer, :, head, slot] if region is store.code else store.scales.new_zeros(0, 2)
    vectors = region.rows[region.rows_at(layer, head, slot)]
    return RegionContent(torch.from_numpy(region.used.copy()), vectors, scales, meta)


def _channel_pages(store: KVStore) -> tuple[Tensor, Tensor, Tensor]:
    """Layer, head and page of every held page whose key scales are per channel."""
    pages = store.code.held if store.code_format is KVFormat.INT8_CHANNEL else np.zeros_like(store.code.held)
    held = torch.from_numpy(pages).to(store.arena.device).unsqueeze(-1)
    inside = torch.arange(store.channel_scales.shape[2], device=held.device) < held
    layer, head, page = inside.nonzero(as_tuple=True)
    return layer, head, page
