"""Vectors into pages and between formats, in Triton; see :mod:`agentkv_kernels.transfer`."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from agentkv_kernels.formats import KVFormat
from agentkv_kernels.triton.attention_kernels import decode

_ROWS = 8
_FP = tl.constexpr(int(KVFormat.FP))
_FP8_TOKEN = tl.constexpr(int(KVFormat.FP8_TOKEN))
_INT8_CHANNEL = tl.constexpr(int(KVFormat.INT8_CHANNEL))
_SMALLEST = tl.constexpr(torch.finfo(torch.float32).tiny)
_ROUNDER = tl.constexpr(1.5 * 2**23)
"""Added and taken away it rounds to whole numbers, halves to even."""
_E4M3_BIAS = tl.constexpr(2.0**-120)


@triton.jit
def encode(x, largest, FORMAT: tl.constexpr, AXIS: tl.constexpr):
    """Codes int8 of x float32 and the scale along AXIS, as :func:`agentkv_kernels.quantize.quantize`."""
    scale = tl.maximum(tl.div_rn(tl.max(tl.abs(x), AXIS), largest), _SMALLEST)
    scaled = tl.div_rn(x, tl.zeros_like(x) + tl.expand_dims(scale, AXIS))
    scaled = tl.minimum(tl.maximum(scaled, -largest), largest)
    if FORMAT == _FP8_TOKEN:  # rounded to four significant bits, halves to even, where float32 has e4m3's subnormals
        bits = (scaled * _E4M3_BIAS).to(tl.int32, bitcast=True)
        size = bits & 0x7FFFFFFF
        size = (size + 0x7FFFF + ((size >> 20) & 1)) >> 20
        return (size | ((bits >> 24) & -128)).to(tl.int8), scale
    return ((scaled + _ROUNDER) - _ROUNDER).to(tl.int8), scale


@triton.jit(do_not_specialize=["count", "tokens", "heads"])
def transfer_kernel(
    key, value, by_batch, by_head, by_token, heads, tokens,
    rows, sources, from_scales, from_scale_at, channels, channel_at,
    out, targets, scales, scale_at, count, largest,
    DENSE: tl.constexpr, FROM: tl.constexpr, TO: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Vectors of FROM into rows of TO. DENSE: of key and value, in the order [B, 2, H, n]; else ``rows[sources]``."""
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    valid = i < count
    target = tl.load(targets + i, mask=valid, other=-1)
    valid &= target >= 0
    d = tl.arange(0, BLOCK_D)
    there = valid[:, None] & (d < D)[None, :]
    if DENSE:
        token, head, batch = i % tokens, i // tokens % heads, i // (2 * tokens * heads)
        at = (batch * by_batch + head * by_head + token * by_token)[:, None] + d[None, :]
        is_value = (i // (tokens * heads) % 2 == 1)[:, None]
        x = tl.load(value + at, mask=there & is_value, other=0.0).to(tl.float32)
        x += tl.load(key + at, mask=there & ~is_value, other=0.0).to(tl.float32)
    else:
        source = tl.load(sources + i, mask=valid, other=0)
        x = decode(tl.load(rows + source[:, None] * D + d[None, :], mask=there, other=0), FROM, tl.float32)
    if FROM != _FP:
        scale = tl.load(from_scales + tl.load(from_scale_at + i, mask=valid, other=0), mask=valid, other=0.0)[:, None]
        if FROM == _INT8_CHANNEL:
            page = tl.load(channel_at + i, mask=valid, other=-1)[:, None]
            scale = tl.where(page >= 0, tl.load(channels + page * D + d[None, :], mask=there & (page >= 0)), scale)
        x *= scale
    spot = out + target[:, None] * D + d[None, :]
    if TO == _FP:
        tl.store(spot, x.to(out.dtype.element_ty), mask=there)
    else:
        codes, found = encode(x, largest, TO, 1)
        tl.store(spot, codes, mask=there)
        tl.store(scales + tl.load(scale_at + i, mask=valid, other=0), found, mask=valid)


@triton.jit
def demote_page_kernel(
    rows, sources, codes, targets, scales, scale_at, channels, channel_at,
    S: tl.constexpr, BLOCK_S: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    """One page: K with a scale per channel, V with one per token."""
    page = tl.program_id(0).to(tl.int64)
    s, d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    there = (s < S)[:, None] & (d < D)[None, :]
    source = tl.load(sources + page * 2 * S + s, mask=s < S, other=0)
    target = tl.load(targets + page * 2 * S + s, mask=s < S, other=0)
    keys = tl.load(rows + source[:, None] * D + d[None, :], mask=there, other=0.0).to(tl.float32)
    found, of_channel = encode(keys, 127.0, FORMAT, 0)
    tl.store(codes + target[:, None] * D + d[None, :], found, mask=there)
    tl.store(channels + tl.load(channel_at + page) * D + d, of_channel, mask=d < D)
    source = tl.load(sources + page * 2 * S + S + s, mask=s < S, other=0)
    target = tl.load(targets + page * 2 * S + S + s, mask=s < S, other=0)
    values = tl.load(rows + source[:, None] * D + d[None, :], mask=there, other=0.0).to(tl.float32)
    found, of_token = encode(values, 127.0, FORMAT, 1)
    tl.store(codes + target[:, None] * D + d[None, :], found, mask=there)
    tl.store(scales + tl.load(scale_at + page * S + s, mask=s < S, other=0), of_token, mask=s < S)


def append_kv(
    key: Tensor,
    value: Tensor,
    rows: Tensor,
    targets: Tensor,
    fmt: KVFormat = KVFormat.FP,
    scales: Tensor | None = None,
    scale_at: Tensor | None = None,
) -> None:
    """See :func:`agentkv_kernels.transfer.append_kv`."""
    if key.stride() != value.stride() or key.stride(-1) != 1:
        key, value = key.contiguous(), value.contiguous()
    batch, heads, tokens, _ = key.shape
    dense = {
        "key": key, "value": value, "heads": heads, "tokens": tokens,
        "by_batch": key.stride(0), "by_head": key.stride(1), "by_token": key.stride(2),
    }  # fmt: skip
    _transfer(2 * batch * heads * tokens, KVFormat.FP, fmt, rows, targets.contiguous(), dense, scales, scale_at)


def demote(
    rows: Tensor, sources: Tensor, codes: Tensor, targets: Tensor, fmt: KVFormat, scales: Tensor, scale_at: Tensor
) -> None:
    """See :func:`agentkv_kernels.transfer.demote`."""
    gathered = {"rows": rows, "sources": sources.contiguous()}
    _transfer(sources.numel(), KVFormat.FP, fmt, codes, targets.contiguous(), gathered, scales, scale_at)


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
    """See :func:`agentkv_kernels.transfer.promote`."""
    gathered = {
        "rows": codes, "sources": sources.contiguous(),
        "from_scales": scales, "from_scale_at": scale_at.contiguous(),
    }  # fmt: skip
    if channels is not None and channel_at is not None:
        gathered |= {"channels": channels, "channel_at": channel_at.contiguous()}
    _transfer(sources.numel(), fmt, KVFormat.FP, rows, targets.contiguous(), gathered)


def _transfer(
    count: int,
    source: KVFormat,
    target: KVFormat,
    out: Tensor,
    targets: Tensor,
    origin: dict[str, Any],
    scales: Tensor | None = None,
    scale_at: Tensor | None = None,
) -> None:
    """Launch the kernel; ``origin`` has its arguments that say where vectors come from."""
    if not count:
        return
    head_dim = out.shape[-1]
    # Pointers and sizes that the kernel does not read in this case.
    pointers = ("key", "value", "rows", "sources", "from_scales", "from_scale_at", "channels", "channel_at")
    unused = dict.fromkeys(pointers, out) | dict.fromkeys(("by_batch", "by_head", "by_token", "heads", "tokens"), 1)
    transfer_kernel[(triton.cdiv(count, _ROWS),)](
        **unused | origin, out=out, targets=targets,
        scales=out if scales is None else scales, scale_at=targets if scale_at is None else scale_at.contiguous(),
        count=count, largest=448.0 if target is KVFormat.FP8_TOKEN else 127.0,
        DENSE="key" in origin, FROM=int(source), TO=int(target), D=head_dim, BLOCK_D=triton.next_power_of_2(head_dim),
        ROWS=_ROWS,
    )  # fmt: skip


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
    """See :func:`agentkv_kernels.transfer.demote_pages`."""
    pages, _, slots = sources.shape
    if not pages:
        return
    head_dim = rows.shape[-1]
    demote_page_kernel[(pages,)](
        rows, sources.contiguous(), codes, targets.contiguous(), scales, scale_at.contiguous(), channels,
        channel_at.contiguous(), S=slots, BLOCK_S=triton.next_power_of_2(slots),
        D=head_dim, BLOCK_D=triton.next_power_of_2(head_dim), FORMAT=int(KVFormat.INT8_TOKEN),
    )  # fmt: skip
