"""How a slot is stored, and the one place that says how many bytes anything takes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch


class KVFormat(IntEnum):
    """Storage format of a page. The numbers are what kernels and files see."""

    FP = 0
    """K and V in the model's dtype."""
    INT8_TOKEN = 1
    """Symmetric INT8, one scale per token and head, for K and V apart."""


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class SlotCaps:
    """The most slots of each format that one (layer, KV head) may hold at once."""

    fp: int
    code: int = 0

    @property
    def total(self) -> int:
        return self.fp + self.code


@dataclass(frozen=True)
class KVLayout:
    """Shape of a model's cache and of its pages.

    Every page has the same size in bytes and holds K and V of one layer and one KV head in one format: a page freed
    by one format serves the other, and pages cannot fragment the arena. An INT8 page therefore holds more slots.

    Attributes:
        layers, kv_heads, head_dim: of the model.
        dtype: the model's dtype, that of FP slots.
        page_slots: slots of an FP page.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    page_slots: int = 16

    @property
    def page_bytes(self) -> int:
        return 2 * self.page_slots * self.head_dim * self.dtype.itemsize

    def slots_per_page(self, fmt: KVFormat) -> int:
        return self.page_slots if fmt is KVFormat.FP else self.page_slots * self.dtype.itemsize

    def pages_for(self, slots: int, fmt: KVFormat) -> int:
        """Pages that hold ``slots`` slots of one layer and head."""
        return ceil_div(slots, self.slots_per_page(fmt))

    def metadata_bytes(self, caps: SlotCaps, with_mass: bool) -> int:
        """Bytes of a session's tensors beside its pages.

        Per layer and head: token index (int32) and, where the policy asks, attention mass (float32) for each slot;
        two scales (float32) for each INT8 slot; two half-page numbers (int32) for each page.
        """
        pages = self.pages_for(caps.fp, KVFormat.FP) + self.pages_for(caps.code, KVFormat.INT8_TOKEN)
        per_head = caps.total * (8 if with_mass else 4) + caps.code * 8 + pages * 8
        return self.layers * self.kv_heads * per_head

    def payload_bytes(self, slots: SlotCaps) -> int:
        """Bytes of the pages that hold so many slots in every layer and head."""
        pages = self.pages_for(slots.fp, KVFormat.FP) + self.pages_for(slots.code, KVFormat.INT8_TOKEN)
        return self.layers * self.kv_heads * pages * self.page_bytes

    @property
    def token_bytes(self) -> int:
        """K and V of one token over all layers and heads in the model's dtype, page waste and metadata left out."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize
