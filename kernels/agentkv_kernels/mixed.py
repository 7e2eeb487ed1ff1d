"""Attention of a batch whose sessions differ in format, by the reference: one call per format."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from agentkv_kernels.attention import AttentionResult, paged_mixed_attention
from agentkv_kernels.formats import KVFormat
from agentkv_kernels.paged_kv import PagedKV


def attention_by_format(
    query: Tensor, kv: PagedKV, query_index: Tensor, scaling: float, mass_weights: Tensor | None, **options: Any
) -> AttentionResult:
    """As :func:`paged_mixed_attention`, of heads that have their formats from ``kv.head_formats``."""
    assert kv.head_formats is not None
    heads = len(kv.token_index)
    group = len(query) // heads
    sinks = options.pop("sinks", None)
    per_head = query_index.view(-1, query.shape[1]).expand(heads, -1)
    places, results = [], []
    for number in kv.head_formats.unique().tolist():
        (mine,) = (kv.head_formats == number).nonzero(as_tuple=True)
        rows = (mine.unsqueeze(-1) * group + torch.arange(group, device=mine.device)).flatten()
        places.append((mine, rows))
        own_sinks = None if sinks is None else sinks[rows]
        part = _heads_of(kv, mine, KVFormat(number))
        results.append(
            paged_mixed_attention(query[rows], part, per_head[mine], scaling, mass_weights, sinks=own_sinks, **options)
        )
    merged: list[Any] = []
    for field, values in zip(AttentionResult._fields, zip(*results, strict=True), strict=True):
        if values[0] is None:
            merged.append(None)
            continue
        whole = values[0].new_empty(heads if field == "mass" else len(query), *values[0].shape[1:])
        for (mine, rows), value in zip(places, values, strict=True):
            whole[mine if field == "mass" else rows] = value
        merged.append(whole)
    return AttentionResult(*merged)


def _heads_of(kv: PagedKV, heads: Tensor, fmt: KVFormat) -> PagedKV:
    """The cache of some heads, all of one format."""
    channels = kv.channel_scales if fmt is KVFormat.INT8_CHANNEL else None
    return replace(
        kv,
        fp_index=kv.fp_index[:, heads],
        code_index=kv.code_index[:, heads],
        scales=kv.scales[:, heads],
        token_index=kv.token_index[heads],
        code_format=fmt,
        channel_scales=None if channels is None else channels[heads],
        head_formats=None,
        slot_counts=None if kv.slot_counts is None else kv.slot_counts[:, heads],
    )
