"""Attention of single queries by the C++ kernel: what :func:`agentkv_kernels.paged_mixed_attention` returns."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from agentkv_kernels.attention import AttentionResult
from agentkv_kernels.formats import KVFormat
from agentkv_kernels.native.build import library
from agentkv_kernels.paged_kv import PagedKV

_DTYPES = {torch.float32: 0, torch.bfloat16: 1}
_CODES = {KVFormat.INT8_TOKEN: 1, KVFormat.INT8_CHANNEL: 2, KVFormat.FP8_TOKEN: 3}
# As the source has them.
_MAX_GROUP, _MAX_DIM, _PIECE = 16, 256, 256
_POINTER, _INTEGER, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_SIGNATURE = (
    *(_INTEGER, _INTEGER, _INTEGER, _POINTER, _INTEGER, _FLOAT),  # heads, group, dim, query, dtype, scaling
    *(_POINTER, _INTEGER, _POINTER, _INTEGER, _INTEGER, _INTEGER),  # FP halves, page, index, strides, slots
    *(_POINTER, _INTEGER, _POINTER, _INTEGER, _INTEGER, _INTEGER, _INTEGER),  # the same of codes, format
    *(_POINTER, _INTEGER, _INTEGER, _POINTER, _INTEGER, _INTEGER),  # scales, scales of channels, strides
    *(_POINTER, _INTEGER, _POINTER, _INTEGER, _INTEGER, _INTEGER),  # tokens, queries, visible slots, window
    *(_FLOAT, _POINTER, _INTEGER, _POINTER, _POINTER, _POINTER, _POINTER),  # softcap, sinks, threads, results
)


@functools.cache
def _kernel() -> Callable[..., None] | None:
    compiled = library()
    if compiled is None:
        return None
    compiled.agentkv_attend.argtypes = _SIGNATURE
    compiled.agentkv_attend.restype = None
    kernel: Callable[..., None] = compiled.agentkv_attend
    return kernel


def available(dtype: torch.dtype) -> bool:
    """Whether there is a kernel for models of this dtype; it is compiled if it is not there yet."""
    return dtype in _DTYPES and _kernel() is not None


def supports(query: Tensor, kv: PagedKV) -> bool:
    """Whether the kernel can compute this call: one query per head, on the CPU, in the pages' float32 or bfloat16."""
    q_heads, n_queries, head_dim = query.shape
    return (
        n_queries == 1
        and kv.head_formats is None
        and query.device.type == "cpu"
        and query.dtype is kv.fp_halves.dtype
        and kv.fp_index.dtype is kv.code_index.dtype is kv.token_index.dtype is torch.int32
        and q_heads <= _MAX_GROUP * len(kv.token_index)
        and head_dim <= _MAX_DIM
        and _PIECE % kv.fp_halves.shape[1] == 0
        and _PIECE % kv.code_halves.shape[1] == 0
        and available(query.dtype)
    )


def attend(
    query: Tensor,
    kv: PagedKV,
    query_index: Tensor,
    scaling: float,
    mass_weights: Tensor | None,
    *,
    softcap: float | None,
    sinks: Tensor | None,
    window: int | None,
    probs_of: int,
) -> AttentionResult:
    """See :func:`agentkv_kernels.attention.paged_mixed_attention`.

    Sums are taken in float32, whatever the dtype. Only where :func:`supports` holds.
    """
    kernel = _kernel()
    assert kernel is not None
    heads, slots = kv.token_index.shape
    q_heads, _, dim = query.shape
    query = query.contiguous()
    fp, code, tokens, channels = _rows(kv.fp_index), _rows(kv.code_index), _rows(kv.token_index), kv.channel_scales
    scales, halves = _rows(kv.scales), kv.code_halves
    query_index = query_index.reshape(-1).to(torch.int32)
    sinks = None if sinks is None else sinks.float().contiguous()
    mass_weights = None if mass_weights is None else mass_weights.float()
    channels = None if channels is None else channels.contiguous()
    out = torch.empty_like(query)
    mass = None if mass_weights is None else torch.empty(heads, slots)
    probs = torch.empty(q_heads, 1, slots) if probs_of else None
    kernel(
        *(heads, q_heads // heads, dim, query.data_ptr(), _DTYPES[query.dtype], scaling),
        *(kv.fp_halves.data_ptr(), kv.fp_halves.shape[1], fp.data_ptr(), fp.stride(0), fp.stride(1), kv.fp_slots),
        *(halves.data_ptr(), halves.shape[1], code.data_ptr(), code.stride(0), code.stride(1), kv.code_slots),
        *(_CODES[kv.code_format], scales.data_ptr(), scales.stride(0), scales.stride(1)),
        *((0, 0, 0) if channels is None else (channels.data_ptr(), channels.stride(0), channels.stride(1))),
        *(tokens.data_ptr(), tokens.stride(0), query_index.data_ptr(), int(len(query_index) > 1)),
        *(kv.visible_slots, window or 0, softcap or 0.0, _pointer(sinks), torch.get_num_threads()),
        *(out.data_ptr(), _pointer(mass), _pointer(mass_weights), _pointer(probs)),
    )
    return AttentionResult(out, mass, probs)


def _rows(tensor: Tensor) -> Tensor:
    """With the last dimension dense."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def _pointer(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
