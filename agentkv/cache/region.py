"""The slots of one format in one session: which pages hold them, and where each slot's K and V lie."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from agentkv.cache.arena import DUMMY_PAGE, PageArena
from agentkv.cache.formats import KVFormat

_DUMMY_HALVES = torch.tensor([2 * DUMMY_PAGE, 2 * DUMMY_PAGE + 1], dtype=torch.int32)


class Region:
    """Slots [0, used) of every (layer, KV head) in one format. L = layers, H = KV heads.

    Attributes:
        half_index: [L, 2, H, page capacity] int32: half-pages of K (0) and V (1); unused entries name the dummy page.
        used: [L, H] int64 numpy: filled slots.
        held: [L, H] int64 numpy: pages held.
    """

    def __init__(self, arena: PageArena, fmt: KVFormat, cap: int):
        layout = arena.layout
        self.arena = arena
        self.fmt = fmt
        self.page_slots = layout.slots_per_page(fmt)
        self.halves = arena.halves(fmt)
        self.rows = arena.rows(fmt)
        self.used = np.zeros((layout.layers, layout.kv_heads), dtype=np.int64)
        self.held = np.zeros_like(self.used)
        self.half_index = self._empty_index(layout.pages_for(cap, fmt))

    def _empty_index(self, pages: int) -> Tensor:
        layout = self.arena.layout
        dummy = _DUMMY_HALVES.to(self.arena.device).view(1, 2, 1, 1)
        return dummy.expand(layout.layers, 2, layout.kv_heads, pages).contiguous()

    @property
    def max_used(self) -> int:
        return int(self.used.max())

    def pages_for(self, counts: np.ndarray) -> np.ndarray:
        return -(-counts // self.page_slots)

    def set_capacity(self, cap: int) -> None:
        """Make the index as wide as ``cap`` slots need; held pages must fit, and none is taken."""
        pages = self.arena.layout.pages_for(cap, self.fmt)
        extra = max(0, pages - self.half_index.shape[-1])
        self.half_index = torch.cat([self.half_index[..., :pages], self._empty_index(extra)], dim=-1)

    def resize(self, counts: np.ndarray) -> None:
        """Hold exactly the pages for ``counts`` [L, H] slots: take or give back pages, and set ``used``.

        Raises PoolExhausted, changing nothing, if the arena has too few pages.
        """
        need = self.pages_for(counts)
        if (need == self.held).all():
            self.used = counts.copy()
            return
        order = np.arange(self.half_index.shape[-1])
        added = (order >= self.held[..., None]) & (order < need[..., None])
        removed = (order >= need[..., None]) & (order < self.held[..., None])
        fresh = self.arena.allocate(int(added.sum()))
        if removed.any():
            self.arena.release(self._pages_at(removed))
            self._set_pages(removed, np.full(int(removed.sum()), DUMMY_PAGE, dtype=np.int32))
        if len(fresh):
            self._set_pages(added, fresh)
        self.held, self.used = need, counts.copy()

    def _pages_at(self, where: np.ndarray) -> np.ndarray:
        """Page numbers at the True entries of ``where`` [L, H, pages], in row-major order."""
        k_halves: np.ndarray = self.half_index[:, 0].cpu().numpy()
        return (k_halves[where] // 2).astype(np.int32)

    def _set_pages(self, where: np.ndarray, pages: np.ndarray) -> None:
        layer, head, slot = (torch.from_numpy(i).to(self.arena.device) for i in np.nonzero(where))
        first_half = torch.from_numpy(pages).to(self.arena.device) * 2
        for part in (0, 1):
            self.half_index[layer, part, head, slot] = first_half + part

    def rows_of(self, slots: Tensor) -> Tensor:
        """Rows of the arena that hold slots [L, H, n] (int64): [L, 2, H, n] int64, K at 0 and V at 1."""
        page = slots.div(self.page_slots, rounding_mode="floor").unsqueeze(1).expand(-1, 2, -1, -1)
        half = self.half_index.gather(-1, page).long()
        return half * self.page_slots + (slots % self.page_slots).unsqueeze(1)

    def rows_at(self, layer: Tensor, head: Tensor, slot: Tensor) -> Tensor:
        """Rows of single slots: three [m] int64 index tensors to [m, 2] int64."""
        half = self.half_index[layer, :, head, slot // self.page_slots].long()
        return half * self.page_slots + (slot % self.page_slots).unsqueeze(1)

    @property
    def page_bytes_held(self) -> int:
        return int(self.held.sum()) * self.arena.layout.page_bytes
