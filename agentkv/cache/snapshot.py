"""A store's content apart from where it lies: what a copy or a file of a session holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RegionContent:
    """The filled slots of one region in row-major order of (layer, head, slot); m of them, D = head size.

    Attributes:
        used: [L, H] int64 filled slots.
        vectors: [m, 2, D] keys and values: in the model's dtype, or int8 codes.
        scales: [m, 2] float32; of no rows for a region in the model's dtype.
        meta: per slot [m]: "token_index" (int32) and the policy's columns.
    """

    used: Tensor
    vectors: Tensor
    scales: Tensor
    meta: Mapping[str, Tensor]

    def to(self, device: torch.device) -> RegionContent:
        meta = {name: value.to(device) for name, value in self.meta.items()}
        return RegionContent(self.used.cpu(), self.vectors.to(device), self.scales.to(device), meta)


@dataclass(frozen=True)
class Snapshot:
    """A copy of a store.

    Attributes:
        fp, code: the two regions.
        channel_scales: [pages, D] float32: of the keys of each page whose scales are per channel, in row-major order.
    """

    fp: RegionContent
    code: RegionContent
    channel_scales: Tensor

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def to(self, device: torch.device | str) -> Snapshot:
        """The same on another device."""
        device = torch.device(device)
        return Snapshot(self.fp.to(device), self.code.to(device), self.channel_scales.to(device))

    def tensors(self) -> dict[str, Tensor]:
        """By name, contiguous, for a file."""
        named = {"channel_scales": self.channel_scales}
        for name, content in (("fp", self.fp), ("code", self.code)):
            named |= {f"{name}.{part}": getattr(content, part) for part in ("used", "vectors", "scales")}
            named |= {f"{name}.meta.{column}": value for column, value in content.meta.items()}
        return {name: tensor.contiguous() for name, tensor in named.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Snapshot:
        """Inverse of :meth:`tensors`. Raises KeyError if one is missing."""

        def content(region: str) -> RegionContent:
            prefix = f"{region}.meta."
            meta = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
            used, vectors, scales = (tensors[f"{region}.{part}"] for part in ("used", "vectors", "scales"))
            return RegionContent(used, vectors, scales, meta)

        return cls(content("fp"), content("code"), tensors["channel_scales"])
