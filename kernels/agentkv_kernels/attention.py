"""Attention over pages of mixed precision, reference implementation.

A layer's cache is two regions per KV head: INT8 slots first, then slots in the model's dtype (FP). Slots are in no
particular order: RoPE is baked into the keys, and a softmax does not care. What a query may see is decided by the
token index of each slot, never by where the slot lies.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Scores of one tile of queries; small enough to stay in a CPU's last-level cache, where a whole chunk's would not.
_TILE_ELEMENTS = 1 << 21
# Up to so many rows the scores are float32 even for a half-precision model. A score of 40 has a step of 0.25 in
# bfloat16, which now and then turns a decoded token; in prefill, where it would cost most, the errors average out.
_EXACT_ROWS = 16


@dataclass(frozen=True, slots=True)
class PagedKV:
    """One layer's cache, as views of the arena. H = KV heads, D = head size.

    A *half-page* is the K part or the V part of a page; ``*_halves`` is the whole arena seen in one format, and
    ``*_index`` names this layer's half-pages, K at 0 and V at 1. Heads that hold fewer slots than ``*_slots`` are
    padded with slots whose token index is −1.

    Attributes:
        fp_halves: [half-pages, slots per FP page, D] in the model's dtype.
        fp_index: [2, H, FP pages] integer.
        fp_slots: FP slots to read per head.
        code_halves: [half-pages, slots per INT8 page, D] int8.
        code_index: [2, H, INT8 pages] integer.
        code_slots: INT8 slots to read per head.
        scales: [2, H, code_slots] float32: of K, of V.
        token_index: [H, code_slots + fp_slots] int32, INT8 slots first; −1 marks an empty slot.
        visible_slots: the first so many slots of every head are filled and older than every query, so that no
            mask is needed for them.
        ragged: whether some heads are padded. What a padding slot reads is arbitrary bits, NaN among them.
    """

    fp_halves: Tensor
    fp_index: Tensor
    fp_slots: int
    code_halves: Tensor
    code_index: Tensor
    code_slots: int
    scales: Tensor
    token_index: Tensor
    visible_slots: int
    ragged: bool = False


def paged_mixed_attention(
    query: Tensor,
    kv: PagedKV,
    query_index: Tensor,
    scaling: float,
    mass_weights: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Softmax attention of ``query`` over one layer's pages.

    Scales of INT8 slots are folded into the scores and the probabilities, so no dequantised tile is formed.

    Args:
        query: [Hq, Sq, D] in the model's dtype; query head h reads KV head h // (Hq / H).
        kv: the layer's pages, the queries' own tokens included.
        query_index: [Sq] int32, token index of each query: it sees slots whose token index is at most its own.
        scaling: multiplies the scores.
        mass_weights: [m ≤ Sq] float32, or None. If given, the second result is the attention mass of each slot:
            probabilities summed over the group's query heads and, with these weights, over the last m queries.

    Returns:
        out [Hq, Sq, D] in the query's dtype, and mass [H, code_slots + fp_slots] float32 or None.
    """
    heads, slots = kv.token_index.shape
    q_heads, n_queries, head_dim = query.shape
    group = q_heads // heads
    # GQA packed: the group's heads and queries are the rows of one matrix product per KV head.
    score_dtype = torch.promote_types(query.dtype, torch.float32) if group * n_queries <= _EXACT_ROWS else query.dtype
    packed = (query.to(score_dtype) * scaling).view(heads, group, n_queries, head_dim)
    out = torch.empty(heads, group, n_queries, head_dim, dtype=query.dtype, device=query.device)
    regions = _read_regions(kv, score_dtype, query.dtype)
    mass = None if mass_weights is None else torch.zeros(heads, slots, device=query.device)

    tile = max(1, _TILE_ELEMENTS // (q_heads * slots))
    for start in range(0, n_queries, tile):
        chosen = slice(start, min(start + tile, n_queries))
        rows = packed[:, :, chosen].reshape(heads, -1, head_dim)
        scores = _scores(rows, regions, kv)
        _mask_hidden(scores.view(heads, group, -1, slots), kv, query_index[chosen])
        probs = torch.softmax(scores, dim=-1, out=_scratch("probs", scores.shape, scores))
        if mass is not None and mass_weights is not None:
            _add_mass(mass, probs.view(heads, group, -1, slots), mass_weights, n_queries - chosen.start)
        out[:, :, chosen] = _weighted_values(probs, regions, kv).view(heads, group, -1, head_dim)
    return out.view(q_heads, n_queries, head_dim), mass


@dataclass(frozen=True, slots=True)
class _Regions:
    """Keys (in the scores' dtype) and values (in the model's) of a layer, each [H, slots, D]; codes stay unscaled."""

    fp_keys: Tensor
    fp_values: Tensor
    code_keys: Tensor | None
    code_values: Tensor | None


def _read_regions(kv: PagedKV, key_dtype: torch.dtype, value_dtype: torch.dtype) -> _Regions:
    fp_keys = _gather(kv.fp_halves, kv.fp_index[0], kv.fp_slots, "fp_keys").to(key_dtype)
    fp_values = _gather(kv.fp_halves, kv.fp_index[1], kv.fp_slots, "fp_values")
    if kv.ragged:  # a probability of zero does not silence a NaN
        fp_values.masked_fill_((kv.token_index[:, kv.code_slots :] < 0).unsqueeze(-1), 0.0)
    if not kv.code_slots:
        return _Regions(fp_keys, fp_values, None, None)
    code_keys = _gather(kv.code_halves, kv.code_index[0], kv.code_slots, "code_keys").to(key_dtype)
    code_values = _gather(kv.code_halves, kv.code_index[1], kv.code_slots, "code_values").to(value_dtype)
    return _Regions(fp_keys, fp_values, code_keys, code_values)


def _gather(halves: Tensor, index: Tensor, slots: int, name: str) -> Tensor:
    """[H, slots, D] out of half-pages [N, P, D] named by index [H, pages]."""
    heads, pages = index.shape
    _, per_page, head_dim = halves.shape
    target = _scratch(name, (heads * pages, per_page, head_dim), halves)
    torch.index_select(halves, 0, index.reshape(-1), out=target)
    return target.view(heads, pages * per_page, head_dim)[:, :slots]


def _scores(rows: Tensor, regions: _Regions, kv: PagedKV) -> Tensor:
    """[H, rows, slots] in the rows' dtype, INT8 slots first."""
    heads, n_rows, _ = rows.shape
    fp_keys = regions.fp_keys.transpose(1, 2)
    if regions.code_keys is None:
        return torch.bmm(rows, fp_keys, out=_scratch("scores", (heads, n_rows, kv.fp_slots), rows))
    scores = _scratch("scores", (heads, n_rows, kv.code_slots + kv.fp_slots), rows)
    by_code = torch.bmm(rows, regions.code_keys.transpose(1, 2))
    torch.mul(by_code, kv.scales[0].unsqueeze(1), out=scores[..., : kv.code_slots])
    scores[..., kv.code_slots :] = torch.bmm(rows, fp_keys)
    return scores


def _weighted_values(probs: Tensor, regions: _Regions, kv: PagedKV) -> Tensor:
    """[H, rows, D] in the values' dtype from probabilities [H, rows, slots]."""
    dtype = regions.fp_values.dtype
    if regions.code_values is None:
        return torch.bmm(probs.to(dtype), regions.fp_values)
    folded = (probs[..., : kv.code_slots] * kv.scales[1].unsqueeze(1)).to(dtype)
    return torch.bmm(folded, regions.code_values) + torch.bmm(probs[..., kv.code_slots :].to(dtype), regions.fp_values)


def _mask_hidden(scores: Tensor, kv: PagedKV, query_index: Tensor) -> None:
    """Set to −inf, in place, what a query must not see: empty slots and its own future. scores [H, G, Sq, slots]."""
    if kv.visible_slots == scores.shape[-1]:
        return
    slots = kv.token_index[:, None, None, kv.visible_slots :]
    hidden = (slots > query_index[:, None]) | (slots < 0)
    scores[..., kv.visible_slots :].masked_fill_(hidden, float("-inf"))


def _add_mass(mass: Tensor, probs: Tensor, weights: Tensor, queries_left: int) -> None:
    """Add a tile's weighted probabilities [H, G, tile, slots] to mass [H, slots], in place.

    ``weights`` belong to the last queries of all; ``queries_left`` counts from the tile's first query to the end.
    """
    skipped = max(0, queries_left - len(weights))
    if skipped >= probs.shape[2]:
        return
    first = len(weights) - (queries_left - skipped)
    tile_weights = weights[first : first + probs.shape[2] - skipped].to(probs.dtype)
    mass += torch.einsum("hgqs,q->hs", probs[:, :, skipped:], tile_weights).float()


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.by_use: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}


_buffers = _Buffers()


def _scratch(use: str, shape: Sequence[int], like: Tensor) -> Tensor:
    """A buffer of this thread, valid until the next request for the same use.

    Fresh memory of several MiB costs more in page faults than the arithmetic that fills it.
    """
    key = (use, like.dtype, like.device)
    size = math.prod(shape)
    buffer = _buffers.by_use.get(key)
    if buffer is None or buffer.numel() < size:
        with torch.inference_mode(False):  # usable outside inference mode too
            buffer = _buffers.by_use[key] = torch.empty(size, dtype=like.dtype, device=like.device)
    return buffer[:size].view(*shape)
