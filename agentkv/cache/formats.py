"""How a slot is stored, and the one place that says how many bytes anything takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from agentkv_kernels import KVFormat

__all__ = ["KVFormat", "KVLayout", "SlotCaps", "ceil_div"]


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class SlotCaps:
    """The most slots that one KV head of a layer may hold at once: in the model's dtype, and quantised ("code")."""

    fp: int
    code: int = 0

    @property
    def total(self) -> int:
        return self.fp + self.code


@dataclass(frozen=True)
class KVLayout:
    """Shape of a model's cache and of its pages.

    Every page has the same size in bytes and holds K and V of one layer and one KV head in one format: a page freed
    by one format serves the other, and pages cannot fragment the arena. A page of codes therefore holds more slots.

    Attributes:
        layers, kv_heads, head_dim: of the model.
        dtype: the model's dtype, that of FP slots.
        page_slots: slots of an FP page.
        windows: per layer, the width of a sliding window, None for full attention; () if all layers are full.
        rebases: whether stored keys can be given new positions, so that a session can outlive the window.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    page_slots: int = 16
    windows: tuple[int | None, ...] = ()
    rebases: bool = False

    @property
    def page_bytes(self) -> int:
        return 2 * self.page_slots * self.head_dim * self.dtype.itemsize

    def window(self, layer: int) -> int | None:
        return self.windows[layer] if self.windows else None

    def slots_per_page(self, fmt: KVFormat) -> int:
        return self.page_slots if fmt is KVFormat.FP else self.page_slots * self.dtype.itemsize

    def pages_for(self, slots: int, fmt: KVFormat) -> int:
        """Pages that hold ``slots`` slots of one layer and head."""
        return ceil_div(slots, self.slots_per_page(fmt))

    def metadata_bytes(self, caps: Sequence[SlotCaps], fmt: KVFormat, columns: int = 0) -> int:
        """Bytes of a session's tensors beside its pages.

        Metadata is dense: as wide in every layer as in the one that holds most. Per layer and head, for each slot a
        token index (int32) and ``columns`` values (float32) that the policy keeps; for each quantised slot two scales
        (float32); for each page two half-page numbers (int32), and with scales per channel one float32 per channel.

        Args:
            caps: room in each layer.
            fmt: format of quantised slots.
            columns: values per slot, such as attention mass.
        """
        fp, code = max(cap.fp for cap in caps), max(cap.code for cap in caps)
        code_pages = self.pages_for(code, fmt)
        per_head = (fp + code) * (4 + 4 * columns) + code * 8 + (self.pages_for(fp, KVFormat.FP) + code_pages) * 8
        if fmt is KVFormat.INT8_CHANNEL:
            per_head += code_pages * self.head_dim * 4
        return self.layers * self.kv_heads * per_head

    def payload_bytes(self, slots: Sequence[SlotCaps], fmt: KVFormat = KVFormat.INT8_TOKEN) -> int:
        """Bytes of the pages that hold so many slots in every head of each layer."""
        pages = sum(self.pages_for(s.fp, KVFormat.FP) + self.pages_for(s.code, fmt) for s in slots)
        return self.kv_heads * pages * self.page_bytes

    def uniform(self, caps: SlotCaps) -> tuple[SlotCaps, ...]:
        """The same for every layer."""
        return (caps,) * self.layers

    @property
    def token_bytes(self) -> int:
        """K and V of one token over all layers and heads in the model's dtype, page waste and metadata left out."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize
