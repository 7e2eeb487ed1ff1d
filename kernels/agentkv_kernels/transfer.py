"""Vectors on their way into pages, or from pages of one format into those of another. References in torch.

A *row* is one K or V vector in the arena seen in one format, [rows, D]; ``targets`` and ``sources`` name rows. Scales
per token lie in any contiguous tensor, and ``scale_at`` names places in it, flattened. What is read and what is written
in one call must not overlap. Which vectors move is decided on the device: nothing waits to learn how many do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from agentkv_kernels.formats import KVFormat
from agentkv_kernels.quantize import dequantize, quantize, quantize_channel


def append_kv(
    key: Tensor,
    value: Tensor,
    rows: Tensor,
    targets: Tensor,
    fmt: KVFormat = KVFormat.FP,
    scales: Tensor | None = None,
    scale_at: Tensor | None = None,
) -> None:
    """Write new keys and values into pages, quantised on the way if ``fmt`` says so.

    Args:
        key, value: [B, H, n, D] in the model's dtype.
        rows: of the arena in ``fmt``, [rows, D].
        targets: [B, 2, H, n] int64, or flat; K at 0 and V at 1.
        fmt: FP, or a format with a scale per token.
        scales, scale_at: where the scales go, float32 and [B, 2, H, n] int64; only if quantised.
    """
    vectors = torch.stack((key, value), dim=1).view(-1, key.shape[-1])
    if fmt is not KVFormat.FP:
        assert scales is not None
        assert scale_at is not None
        vectors, found = quantize(vectors, fmt)
        scales.view(-1).index_copy_(0, scale_at.reshape(-1), found)
    rows.index_copy_(0, targets.reshape(-1), vectors)


def demote(
    rows: Tensor, sources: Tensor, codes: Tensor, targets: Tensor, fmt: KVFormat, scales: Tensor, scale_at: Tensor
) -> None:
    """Quantise vectors of FP pages into pages of codes.

    Args:
        rows: FP rows.
        sources, targets, scale_at: [m] int64; a negative target: this one stays where it is, nothing is written. Its
            source and the place of its scale must exist all the same.
        codes: rows of codes.
        fmt: a format with a scale per token.
        scales: float32.
    """
    found, scale = quantize(rows[sources], fmt)
    _put(codes, targets, found, targets >= 0)
    _put(scales.view(-1), scale_at, scale, targets >= 0)


def demote_pages(
    rows: Tensor,
    sources: Tensor,
    codes: Tensor,
    targets: Tensor,
    scales: Tensor,
    scale_at: Tensor,
    channels: Tensor,
    channel_at: Tensor,
) -> None:
    """Quantise whole pages to INT8_CHANNEL: a scale per channel of the keys, per token of the values.

    Args:
        rows, codes: as in :func:`demote`.
        sources, targets: [m, 2, S] int64, K at 0 and V at 1; S slots of a page of codes.
        scales, scale_at: of the values; [m, S] int64.
        channels, channel_at: of the keys, [pages, D] float32; [m] int64.
    """
    keys, of_channel = quantize_channel(rows[sources[:, 0]])
    values, scale = quantize(rows[sources[:, 1]], KVFormat.INT8_TOKEN)
    codes.index_copy_(0, targets.reshape(-1), torch.stack((keys, values), dim=1).flatten(0, 2))
    scales.view(-1).index_copy_(0, scale_at.reshape(-1), scale.flatten())
    channels.index_copy_(0, channel_at, of_channel)


def promote(
    codes: Tensor,
    sources: Tensor,
    fmt: KVFormat,
    scales: Tensor,
    scale_at: Tensor,
    rows: Tensor,
    targets: Tensor,
    channels: Tensor | None = None,
    channel_at: Tensor | None = None,
) -> None:
    """Dequantise vectors of code pages into FP pages.

    Args:
        sources, targets, scale_at: [m] int64; a negative target is skipped, as by :func:`demote`.
        channels: [pages, D] float32, only for INT8_CHANNEL.
        channel_at: [m] int64: whose scales a key has; negative for a value, which has a scale per token.
        others: as in :func:`demote`.
    """
    numbers = dequantize(codes[sources], scales.view(-1)[scale_at], fmt, torch.float32)
    if channels is not None:
        assert channel_at is not None
        keys = codes[sources].float() * channels[channel_at.clamp_min(0)]
        numbers = torch.where((channel_at >= 0).unsqueeze(-1), keys, numbers)
    _put(rows, targets, numbers.to(rows.dtype), targets >= 0)


def _put(out: Tensor, at: Tensor, values: Tensor, chosen: Tensor) -> None:
    """Write ``values`` [m, …] to the places ``at`` [m] of ``out`` where ``chosen`` [m], and nothing elsewhere.

    The others repeat the first that is chosen; if none is, they write back what is there.
    """
    if not len(at):
        return
    order = torch.where(chosen, torch.arange(len(at), device=at.device), chosen.int().argmax())
    places = at[order].clamp_min(0)
    out.index_copy_(0, places, torch.where(chosen.any(), values[order], out[places]))
