"""The ops as callers see them: each by a kernel or its torch reference, as :mod:`.dispatch` decides.

Both are functions of one name and signature, in a module of one name; the reference's docstring holds for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from importlib import import_module
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from agentkv_kernels import attention, native, transfer
from agentkv_kernels.attention import AttentionResult
from agentkv_kernels.confidence import ConfidenceTerms
from agentkv_kernels.dispatch import uses_native, uses_triton, warn_once
from agentkv_kernels.formats import KVFormat
from agentkv_kernels.mixed import attention_by_format
from agentkv_kernels.paged_kv import PagedKV


def computed_by(device: torch.device, dtype: torch.dtype) -> str:
    """Who computes the attention of a model on this device, in words."""
    if uses_triton(device):
        return "Triton"
    native_here = uses_native(device) and native.available(dtype)
    return "C++ for decode steps, torch reference for prompts" if native_here else "torch reference"


def _module(name: str, device: torch.device) -> Any:
    """Where the op is computed."""
    return _imported(f"agentkv_kernels.triton.{name}" if uses_triton(device) else f"agentkv_kernels.{name}")


_imported = lru_cache(maxsize=None)(import_module)

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _where_it_lies(op: Callable[Concatenate[Tensor, _P], _R]) -> Callable[Concatenate[Tensor, _P], _R]:
    """Triton launches on the current GPU, which need not be the one that the tensors are on."""

    @wraps(op)
    def launched(first: Tensor, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        device = first.device
        if device.type != "cuda" or device.index == torch.cuda.current_device():
            return op(first, *args, **kwargs)
        with torch.cuda.device(device):
            return op(first, *args, **kwargs)

    return launched


@_where_it_lies
def paged_mixed_attention(
    query: Tensor,
    kv: PagedKV,
    query_index: Tensor,
    scaling: float,
    mass_weights: Tensor | None = None,
    *,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    window: int | None = None,
    probs_of: int = 0,
    return_lse: bool = False,
) -> AttentionResult:
    """See :func:`agentkv_kernels.attention.paged_mixed_attention`; heads may differ in format."""
    attend = attention_by_format if kv.head_formats is not None else attention.paged_mixed_attention
    if uses_native(query.device) and not return_lse and native.supports(query, kv):
        return native.attend(
            query,
            kv,
            query_index,
            scaling,
            mass_weights,
            softcap=softcap,
            sinks=sinks,
            window=window,
            probs_of=probs_of,
        )
    if uses_triton(query.device):
        kernel = _module("attention", query.device)
        if (lacking := kernel.unsupported(query, kv)) is None:
            attend = kernel.paged_mixed_attention
        else:
            warn_once("paged_mixed_attention", lacking)
    result: AttentionResult = attend(
        query, kv, query_index, scaling, mass_weights,
        softcap=softcap, sinks=sinks, window=window, probs_of=probs_of, return_lse=return_lse,
    )  # fmt: skip
    return result


@_where_it_lies
def confidence_terms(logits: Tensor) -> ConfidenceTerms:
    """See :func:`agentkv_kernels.confidence.confidence_terms`."""
    terms: ConfidenceTerms = _module("confidence", logits.device).confidence_terms(logits)
    return terms


@_where_it_lies
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
    by = _module("transfer", rows.device)
    if key.dtype is torch.float64 and uses_triton(rows.device):  # the kernel carries every vector as float32
        warn_once("append_kv", "dtype torch.float64")
        by = transfer
    by.append_kv(key, value, rows, targets, fmt, scales, scale_at)


@_where_it_lies
def demote(
    rows: Tensor, sources: Tensor, codes: Tensor, targets: Tensor, fmt: KVFormat, scales: Tensor, scale_at: Tensor
) -> None:
    """See :func:`agentkv_kernels.transfer.demote`."""
    _module("transfer", rows.device).demote(rows, sources, codes, targets, fmt, scales, scale_at)


@_where_it_lies
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
    by = _module("transfer", rows.device)
    by.demote_pages(rows, sources, codes, targets, scales, scale_at, channels, channel_at)


@_where_it_lies
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
    by = _module("transfer", rows.device)
    by.promote(codes, sources, fmt, scales, scale_at, rows, targets, channels, channel_at)


@_where_it_lies
def compact(halves: Tensor, half_index: Tensor, keep: Tensor, metadata: Sequence[Tensor] = ()) -> Tensor:
    """See :func:`agentkv_kernels.compaction.compact`."""
    counts: Tensor = _module("compaction", halves.device).compact(halves, half_index, keep, metadata)
    return counts


@_where_it_lies
def ema_mass(mass: Tensor, new: Tensor, decay: float) -> None:
    """See :func:`agentkv_kernels.mass.ema_mass`."""
    _module("mass", mass.device).ema_mass(mass, new, decay)


@_where_it_lies
def retention_capacity(log_beta: Tensor) -> Tensor:
    """See :func:`agentkv_kernels.retention.retention_capacity`."""
    capacity: Tensor = _module("retention", log_beta.device).retention_capacity(log_beta)
    return capacity
