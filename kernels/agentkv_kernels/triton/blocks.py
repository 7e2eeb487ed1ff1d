"""How large the tiles of the attention kernel are, by architecture and head size."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import torch

from agentkv_kernels.dispatch import SettingError

_VARIABLE = "AGENTKV_BLOCKS"


@dataclass(frozen=True, slots=True)
class Blocks:
    """Tile sizes.

    Attributes:
        rows: the most rows (queries × query heads of a group) of a program; a power of two, at least 16.
        slots: slots read at once; a power of two, at least 16.
        warps: warps of a program.
        stages: of the software pipeline. The page number, then the tile: a tile is loaded ahead from 5 on.
        programs: programs per multiprocessor that the slots of a head are split for.
    """

    rows: int = 64
    slots: int = 64
    warps: int = 4
    stages: int = 2
    programs: int = 2

    def __post_init__(self) -> None:
        for name, least in (("rows", 16), ("slots", 16), ("warps", 1)):
            size = getattr(self, name)
            if size < least or size & (size - 1):
                raise ValueError(f"{name} must be a power of two and at least {least}, not {size}")
        if self.stages < 1 or self.programs < 1:
            raise ValueError("stages and programs must be at least 1")


_TABLE = {
    # (compute capability at least, head size up to): tiles. Larger tiles spill or leave one program per multiprocessor.
    (9, 128): Blocks(slots=64, stages=5),
    (9, 256): Blocks(rows=32, slots=32, stages=5),
    (8, 128): Blocks(slots=64, stages=5),
    (8, 256): Blocks(rows=32, slots=32, stages=5),
    (0, 256): Blocks(slots=32, stages=1),
}


_FLOAT32 = Blocks(rows=16, slots=16, warps=8, stages=3)
"""Products of float32 are exact, without tensor cores, and take most registers."""


def blocks_for(capability: int, head_dim: int, itemsize: int = 2) -> Blocks:
    """Of the table, changed as the environment variable AGENTKV_BLOCKS says: ``slots=32,warps=8``.

    Args:
        capability: major compute capability.
        itemsize: of the model's dtype, in bytes.

    Raises:
        SettingError: the variable is not understood.
    """
    return _blocks_for(capability, head_dim, itemsize, os.environ.get(_VARIABLE, ""))


@lru_cache(maxsize=64)
def _blocks_for(capability: int, head_dim: int, itemsize: int, changes: str) -> Blocks:
    chosen = next(blocks for (least, most), blocks in _TABLE.items() if capability >= least and head_dim <= most)
    if itemsize > 2:
        chosen = _FLOAT32
    known = [field.name for field in fields(Blocks)]
    for change in filter(None, changes.split(",")):
        name, _, value = change.partition("=")
        if name.strip() not in known or not value.strip().isdecimal():
            raise SettingError(
                f"{_VARIABLE}: cannot read {change!r}; write for example slots=32, of {', '.join(known)}"
            )
        try:
            chosen = replace(chosen, **{name.strip(): int(value)})
        except ValueError as error:
            raise SettingError(f"{_VARIABLE}: {error}") from error
    return chosen


def capability_of(device: torch.device) -> int:
    """Major compute capability, 0 for anything but an NVIDIA GPU."""
    return torch.cuda.get_device_capability(device)[0] if device.type == "cuda" else 0


@lru_cache(maxsize=16)
def multiprocessors(device: torch.device) -> int:
    """Of a GPU; elsewhere, as if there were 8, so that Triton's interpreter splits too."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 8
