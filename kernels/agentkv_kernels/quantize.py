"""Quantised keys and values: one scale per vector (a token's K or V of one head), or one per channel over a page."""

from __future__ import annotations

import torch
from torch import Tensor

from agentkv_kernels.formats import KVFormat
from agentkv_kernels.scratch import scratch

_LARGEST = {KVFormat.INT8_TOKEN: 127.0, KVFormat.FP8_TOKEN: 448.0}
"""The code of the largest element of a vector."""
# Keeps the scale of an all-zero vector finite; its codes are zero whatever the scale.
_SMALLEST = torch.finfo(torch.float32).tiny
_SIGN_EXPONENT_MANTISSA = 0x87F0_0000 - (1 << 32)
"""Where float32 bits, as int32, hold those of e4m3 once shifted."""


def quantize(x: Tensor, fmt: KVFormat) -> tuple[Tensor, Tensor]:
    """Quantise each vector along the last dimension, so that its largest element has the largest code.

    Args:
        x: [..., D], any floating dtype, finite.
        fmt: INT8_TOKEN or FP8_TOKEN.

    Returns:
        codes [..., D] int8 and scale [...] float32, with x ≈ number(code) · scale. INT8: the codes are the numbers, in
        [-127, 127], and the error of an element is at most scale / 2. FP8: the codes are the bits of e4m3 numbers,
        never NaN, and the error of an element is at most |x| / 16, or scale / 1024 where that is more.

    Raises:
        ValueError: for a format that is not per vector.
    """
    if fmt not in _LARGEST:
        raise ValueError(f"{fmt.name} has no scale per vector")
    largest = _LARGEST[fmt]
    x = x.float()
    scale = (x.abs().amax(-1) / largest).clamp_min(_SMALLEST)
    scaled = (x / scale.unsqueeze(-1)).clamp_(-largest, largest)
    if fmt is KVFormat.FP8_TOKEN:
        return scaled.to(torch.float8_e4m3fn).view(torch.int8), scale
    return scaled.round_().to(torch.int8), scale


def dequantize(codes: Tensor, scale: Tensor, fmt: KVFormat, dtype: torch.dtype) -> Tensor:
    """Inverse of :func:`quantize`: codes [..., D] int8 and scale [...] to [..., D] of ``dtype``, through float32."""
    numbers = decode(codes, fmt, torch.empty_like(codes, dtype=torch.float32))
    return numbers.mul_(scale.unsqueeze(-1)).to(dtype)


def quantize_channel(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise keys to INT8 with one scale per channel.

    Args:
        x: [..., S, D], any floating dtype, finite; S is the slots of a page.

    Returns:
        codes [..., S, D] int8 in [-127, 127] and scale [..., D] float32; the error of an element is at most scale / 2.
    """
    codes, scale = quantize(x.transpose(-1, -2), KVFormat.INT8_TOKEN)
    return codes.transpose(-1, -2).contiguous(), scale


def dequantize_channel(codes: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Inverse of :func:`quantize_channel`: codes [..., S, D] int8 and scale [..., D] to [..., S, D] of ``dtype``."""
    return (codes.float() * scale.unsqueeze(-2)).to(dtype)


def decode(codes: Tensor, fmt: KVFormat, out: Tensor) -> Tensor:
    """Write the numbers that codes stand for, unscaled, into ``out``: int8 to any floating dtype. Always finite.

    FP8 equals torch's own conversion, subnormals included, in every dtype that can hold 448; the two NaN codes,
    which only an unwritten slot can show, give ±480. On a CPU it takes a twelfth of that conversion's time to bfloat16
    (25 against 312 µs for 3 heads of 512 slots of 64 channels, one thread).
    """
    if fmt is not KVFormat.FP8_TOKEN:
        return out.copy_(codes)
    exact = out if out.dtype is torch.float32 else scratch("e4m3", codes.shape, torch.float32, codes.device)
    # Exponent and mantissa move to where float32 has the low end of its exponent and the high end of its mantissa.
    # What is missing then is the difference of the exponents' biases, 127 − 7. The sign comes by sign extension.
    bits = exact.view(torch.int32).copy_(codes)
    bits.bitwise_left_shift_(20).bitwise_and_(_SIGN_EXPONENT_MANTISSA)
    exact.mul_(2.0**120)
    return out if exact is out else out.copy_(exact)
