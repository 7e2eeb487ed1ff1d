"""Symmetric INT8 with one scale per vector (a token's K or V of one head)."""

from __future__ import annotations

import torch
from torch import Tensor

_LEVELS = 127.0
# Keeps the scale of an all-zero vector finite; its codes are zero whatever the scale.
_SMALLEST = torch.finfo(torch.float32).tiny


def quantize_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise each vector along the last dimension.

    Args:
        x: [..., D], any floating dtype.

    Returns:
        codes [..., D] int8 in [-127, 127] and scale [...] float32, with x ≈ codes · scale. The error of an element
        is at most half a scale.
    """
    x = x.float()
    scale = (x.abs().amax(-1) / _LEVELS).clamp_min(_SMALLEST)
    codes = torch.round(x / scale.unsqueeze(-1)).clamp_(-_LEVELS, _LEVELS).to(torch.int8)
    return codes, scale


def dequantize_int8(codes: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Inverse of :func:`quantize_int8`: codes [..., D] int8 and scale [...] to [..., D] of ``dtype``."""
    return (codes.float() * scale.unsqueeze(-1)).to(dtype)
