"""The ops that `agentkv bench kernels` times: tensors to call them on, and the bytes that each has to move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from agentkv_kernels import (
    AttentionResult,
    KVFormat,
    PagedKV,
    append_kv,
    compact,
    confidence_terms,
    demote,
    ema_mass,
    native,
    paged_mixed_attention,
)
from agentkv_kernels.attention import paged_mixed_attention as reference_attention
from agentkv_kernels.dispatch import uses_native

PAGE = 16
VOCABULARY = 151_936
"""Qwen3's."""


@dataclass(frozen=True)
class Shape:
    """What one decode step reads.

    Attributes:
        batch: sessions.
        slots: per session and head.
        coded: share of the slots that is quantised.
        group: query heads per KV head.
    """

    batch: int
    slots: int
    coded: float
    group: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    fmt: KVFormat
    device: torch.device

    @property
    def heads(self) -> int:
        """KV heads of all sessions."""
        return self.batch * self.kv_heads

    @property
    def code_page(self) -> int:
        return PAGE * self.dtype.itemsize

    @property
    def code_slots(self) -> int:
        """In whole pages, as INT8_CHANNEL wants them."""
        return round(self.slots * self.coded / self.code_page) * self.code_page

    @property
    def payload(self) -> int:
        """Bytes of all keys and values."""
        per_head = self.code_slots + (self.slots - self.code_slots) * self.dtype.itemsize
        return 2 * self.heads * self.head_dim * per_head

    @property
    def attention_bytes(self) -> int:
        """Keys and values, their scales, token indices and page numbers, each read once; queries and outputs."""
        per_code_page = 8 * self.code_page if self.fmt is not KVFormat.INT8_CHANNEL else 4 * self.code_page
        if self.fmt is KVFormat.INT8_CHANNEL:
            per_code_page += 4 * self.head_dim
        code_pages, fp_pages = self.code_slots // self.code_page, -(-(self.slots - self.code_slots) // PAGE)
        metadata = code_pages * (per_code_page + 8) + fp_pages * 8 + 4 * self.slots
        ends = 2 * self.group * self.head_dim * self.dtype.itemsize
        return self.payload + self.heads * (metadata + ends)

    @property
    def flops(self) -> int:
        """Of the two products of a decode step."""
        return 4 * self.heads * self.group * self.slots * self.head_dim


@dataclass(frozen=True)
class Timed:
    """One op on tensors.

    Attributes:
        impl: "triton", "native" (C++ on the CPU), "reference" or "sdpa".
        bytes: that must be moved, each counted once.
        flops: 0 where nothing is multiplied to speak of.
        check: the largest error relative to the largest number, against float64; None where there is no such check.
    """

    op: str
    impl: str
    format: str
    call: Callable[[], object]
    bytes: int
    flops: int = 0
    check: Callable[[], float] | None = None


def random_kv(shape: Shape) -> tuple[Tensor, PagedKV, Tensor]:
    """Queries [Hq, 1, D], scattered pages, and where the queries stand [H, 1]."""
    device, heads, dim = shape.device, shape.heads, shape.head_dim
    code_slots, fp_slots = shape.code_slots, shape.slots - shape.code_slots
    code_pages, fp_pages = code_slots // shape.code_page, -(-fp_slots // PAGE)

    def table(pages: int) -> Tensor:
        # One half-page more than needed: number 0 must exist.
        return (torch.randperm(2 * heads * pages, device=device).view(2, heads, pages) + 1).int()

    fp = torch.empty(2 * heads * fp_pages + 1, PAGE, dim, dtype=shape.dtype, device=device).normal_()
    codes = torch.randint(
        -127, 127, (2 * heads * code_pages + 1, shape.code_page, dim), dtype=torch.int8, device=device
    )
    by_channel = shape.fmt is KVFormat.INT8_CHANNEL and code_slots
    counts = torch.tensor([[code_slots], [fp_slots]], dtype=torch.int32, device=device).expand(2, heads).contiguous()
    kv = PagedKV(
        fp, table(fp_pages), fp_slots, codes, table(code_pages), code_slots,
        scales=torch.rand(2, heads, code_slots, device=device) / 64,
        token_index=torch.arange(shape.slots, dtype=torch.int32, device=device).repeat(heads, 1),
        visible_slots=shape.slots,
        code_format=shape.fmt,
        channel_scales=torch.rand(heads, code_pages, dim, device=device) / 64 if by_channel else None,
        slot_counts=counts,
    )  # fmt: skip
    query = torch.randn(heads * shape.group, 1, dim, device=device).to(shape.dtype)
    at = torch.full((heads, 1), shape.slots - 1, dtype=torch.int32, device=device)
    return query, kv, at


def attention_ops(shape: Shape, impl: str, sdpa: bool) -> Iterator[Timed]:
    """A decode step's attention, without and with attention mass, and torch's on dense tensors of the same slots."""
    query, kv, at = random_kv(shape)
    scaling = shape.head_dim**-0.5
    weights = torch.ones(1, device=shape.device)
    name = shape.fmt.name if shape.code_slots else KVFormat.FP.name
    if uses_native(shape.device) and native.supports(query, kv):
        impl = "native"

    def exact() -> AttentionResult:
        return reference_attention(query.double(), replace(kv, fp_halves=kv.fp_halves.double()), at, scaling, weights)

    def attend() -> AttentionResult:
        return paged_mixed_attention(query, kv, at, scaling)

    def attend_with_mass() -> AttentionResult:
        return paged_mixed_attention(query, kv, at, scaling, weights)

    def mass_error() -> float:
        found, expected = attend_with_mass(), exact()
        assert found.mass is not None
        assert expected.mass is not None
        return max(_error(found.out, expected.out), _error(found.mass, expected.mass))

    moved = shape.attention_bytes
    yield Timed("attention", impl, name, attend, moved, shape.flops, lambda: _error(attend().out, exact().out))
    with_mass = moved + 4 * shape.heads * shape.slots
    yield Timed("attention+mass", impl, name, attend_with_mass, with_mass, shape.flops, mass_error)
    if sdpa and not shape.code_slots:
        yield _sdpa(shape)


def _sdpa(shape: Shape) -> Timed:
    """torch's fused attention in the model's dtype; on a GPU flash or what torch takes for faster."""
    dims = (shape.batch, shape.kv_heads, shape.slots, shape.head_dim)
    keys = torch.empty(dims, dtype=shape.dtype, device=shape.device).normal_()
    values = torch.empty_like(keys).normal_()
    query = torch.randn(shape.batch, shape.kv_heads * shape.group, 1, shape.head_dim, device=shape.device).to(
        shape.dtype
    )

    def attend() -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)

    moved = shape.payload + 2 * query.nbytes
    return Timed("attention", "sdpa", KVFormat.FP.name, attend, moved, shape.flops)


def other_ops(shape: Shape, impl: str) -> Iterator[Timed]:
    """One layer's share of the other work of a decode step, or of an eviction."""
    device, dim, heads = shape.device, shape.head_dim, shape.heads
    size = shape.dtype.itemsize
    key = torch.randn(shape.batch, shape.kv_heads, 1, dim, device=device).to(shape.dtype)
    rows = torch.empty(2 * heads * shape.slots, dim, dtype=shape.dtype, device=device).normal_()
    targets = torch.randperm(len(rows), device=device)[: 2 * heads]
    placed = targets.view(shape.batch, 2, shape.kv_heads, 1)
    yield Timed("append", impl, "FP", lambda: append_kv(key, key, rows, placed), 2 * heads * (2 * dim * size + 8))

    count = 2 * heads * max(1, shape.slots // 8)
    codes = torch.empty(count, dim, dtype=torch.int8, device=device)
    sources, everywhere = torch.randperm(len(rows), device=device)[:count], torch.arange(count, device=device)
    scales = torch.empty(count, device=device)
    for fmt in (KVFormat.INT8_TOKEN, KVFormat.FP8_TOKEN):
        yield Timed(
            "demote", impl, fmt.name,
            lambda fmt=fmt: demote(rows, sources, codes, everywhere, fmt, scales, everywhere),  # type: ignore[misc]
            count * (dim * (size + 1) + 4 + 24),
        )  # fmt: skip

    pages = -(-shape.slots // PAGE)
    halves = torch.empty(2 * heads * pages, PAGE, dim, dtype=shape.dtype, device=device).normal_()
    index = torch.randperm(len(halves), device=device).view(1, 2, heads, pages).int()
    keep = torch.rand(1, heads, shape.slots, device=device) < 0.75
    ends = keep.sum(-1, keepdim=True)
    moves = int((keep & (torch.arange(shape.slots, device=device) >= ends)).sum())
    tokens = torch.zeros(1, heads, shape.slots, dtype=torch.int32, device=device)
    yield Timed(
        "compact",
        impl,
        "FP",
        lambda: compact(halves, index, keep, [tokens]),
        moves * (4 * dim * size + 8) + keep.nbytes,
    )

    held, new = (torch.rand(1, heads, shape.slots, device=device) for _ in range(2))
    yield Timed("ema_mass", impl, "-", lambda: ema_mass(held, new, 0.9), 3 * new.nbytes)
    logits = torch.randn(shape.batch, VOCABULARY, device=device).to(shape.dtype)
    yield Timed("confidence", impl, "-", lambda: confidence_terms(logits), logits.nbytes)


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).abs().max() / expected.double().abs().max())
