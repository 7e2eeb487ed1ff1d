"""Attention over pages of mixed precision, reference implementation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from agentkv_kernels.arithmetic import multiplies_fast
from agentkv_kernels.paged_kv import PagedKV, Regions, read_regions
from agentkv_kernels.scratch import scratch

# Scores of one tile of queries; small enough to stay in a CPU's last-level cache, where a whole chunk's would not.
_TILE_ELEMENTS = 1 << 21
# Up to so many rows the scores are float32 even for a half-precision model. A score of 40 has a step of 0.25 in
# bfloat16, which now and then turns a decoded token; in prefill, where it would cost most, the errors average out.
_EXACT_ROWS = 16


class AttentionResult(NamedTuple):
    """What :func:`paged_mixed_attention` returns; None is what was not asked for.

    Attributes:
        out: [Hq, Sq, D] in the query's dtype.
        mass: [H, code_slots + fp_slots] float32.
        probs: [Hq, min(probs_of, Sq), code_slots + fp_slots] float32.
        lse: [Hq, Sq] float32, log of each softmax's denominator, the sink's share included.
    """

    out: Tensor
    mass: Tensor | None
    probs: Tensor | None
    lse: Tensor | None = None


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
    """Softmax attention of ``query`` over one layer's pages.

    Scales per token are folded into the scores and the probabilities, those per channel into the keys. A batch of
    sessions is one call: their heads are further heads, padded to equal slot counts.

    Args:
        query: [Hq, Sq, D] in the model's dtype; query head h reads KV head h // (Hq / H).
        kv: the layer's pages, the queries' own tokens included. Every query must see at least one slot.
        query_index: [Sq] or [H, Sq] int32, token index of each query: it sees slots whose token index is at most its
            own.
        scaling: multiplies the scores.
        mass_weights: [m ≤ Sq] float32, or None. If given, the result has the attention mass of each slot:
            probabilities summed over the group's query heads and, with these weights, over the last m queries.
        softcap: bounds the scaled scores s softly to softcap · tanh(s / softcap) (Gemma 2).
        sinks: [Hq], a further logit per query head, whose probability goes nowhere (gpt-oss). Probabilities and mass
            then sum to less than one.
        window: a query at token index t sees only slots with a token index above t − window, ``visible_slots`` or not.
        probs_of: the result has the probabilities of so many last queries.
        return_lse: the result has the log-sum-exp of each query's scores.
    """
    heads, slots = kv.token_index.shape
    q_heads, n_queries, head_dim = query.shape
    group = q_heads // heads
    # GQA packed: the group's heads and queries are the rows of one matrix product per KV head.
    exact = torch.promote_types(query.dtype, torch.float32)
    fast = query.dtype if multiplies_fast(query.dtype, query.device) else exact
    score_dtype = exact if group * n_queries <= _EXACT_ROWS else fast
    packed = (query.to(score_dtype) * (scaling / (softcap or 1.0))).view(heads, group, n_queries, head_dim)
    query_index = query_index.view(-1, 1, n_queries, 1)
    outs, sums = [], []
    mass = None if mass_weights is None else torch.zeros(heads, slots, device=query.device)
    kept = torch.empty(heads, group, min(probs_of, n_queries), slots, device=query.device) if probs_of else None
    regions = read_regions(kv, score_dtype, fast)

    tile = max(1, _TILE_ELEMENTS // (q_heads * slots))
    for start in range(0, n_queries, tile):
        chosen = slice(start, min(start + tile, n_queries))
        rows = packed[:, :, chosen].reshape(heads, -1, head_dim)
        scores = _scores(rows, regions).view(heads, group, -1, slots)
        if softcap is not None:
            scores.tanh_().mul_(softcap)  # the query is divided by it already
        _mask_hidden(scores, kv, query_index[:, :, chosen], window)
        probs = torch.softmax(scores, dim=-1, out=scratch("probs", scores.shape, score_dtype, query.device))
        if return_lse:
            sums.append(_log_sums(scores, sinks))
        if sinks is not None:
            _yield_to_sinks(probs, scores, sinks)
        if mass is not None and mass_weights is not None:
            _add_mass(mass, probs, mass_weights, n_queries - start)
        if kept is not None:
            _keep_last(kept, probs, n_queries - start)
        outs.append(_weighted_values(probs.flatten(1, 2), regions).to(query.dtype).view(q_heads, -1, head_dim))
    lse = torch.cat(sums, dim=1) if return_lse else None
    return AttentionResult(torch.cat(outs, dim=1), mass, None if kept is None else kept.flatten(0, 1), lse)


def _scores(rows: Tensor, regions: Regions) -> Tensor:
    """[H, rows, slots] in the rows' dtype, codes first."""
    heads, n_rows, _ = rows.shape
    fp_keys = regions.fp_keys.transpose(1, 2)
    fp_slots = fp_keys.shape[2]
    if regions.code_keys is None:
        return torch.bmm(rows, fp_keys, out=scratch("scores", (heads, n_rows, fp_slots), rows.dtype, rows.device))
    code_slots = regions.code_keys.shape[1]
    scores = scratch("scores", (heads, n_rows, code_slots + fp_slots), rows.dtype, rows.device)
    by_code = torch.bmm(rows, regions.code_keys.transpose(1, 2))
    if regions.key_scales is None:
        scores[..., :code_slots] = by_code
    else:
        torch.mul(by_code, regions.key_scales.unsqueeze(1), out=scores[..., :code_slots])
    scores[..., code_slots:] = torch.bmm(rows, fp_keys)
    return scores


def _weighted_values(probs: Tensor, regions: Regions) -> Tensor:
    """[H, rows, D] in the values' dtype from probabilities [H, rows, slots]."""
    dtype = regions.fp_values.dtype
    if regions.code_values is None or regions.value_scales is None:
        return torch.bmm(probs.to(dtype), regions.fp_values)
    code_slots = regions.code_values.shape[1]
    folded = (probs[..., :code_slots] * regions.value_scales.unsqueeze(1)).to(dtype)
    return torch.bmm(folded, regions.code_values) + torch.bmm(probs[..., code_slots:].to(dtype), regions.fp_values)


def _mask_hidden(scores: Tensor, kv: PagedKV, query_index: Tensor, window: int | None) -> None:
    """Set to −inf, in place, what a query must not see: empty slots, its own future, what lies before its window.

    scores [H, G, Sq, slots], query_index [1 or H, 1, Sq, 1].
    """
    first = kv.visible_slots if window is None else 0
    if first == scores.shape[-1]:
        return
    slots = kv.token_index[:, None, None, first:]
    too_old = slots < 0 if window is None else slots <= (query_index - window).clamp_min(-1)
    scores[..., first:].masked_fill_((slots > query_index) | too_old, float("-inf"))


def _yield_to_sinks(probs: Tensor, scores: Tensor, sinks: Tensor) -> None:
    """Give each head's sink its share of the softmax, in place: probs and scores [H, G, Sq, slots], sinks [Hq]."""
    exact = torch.promote_types(scores.dtype, torch.float32)
    # The log of the softmax's denominator is any score less its log-probability; at the largest, both are exact.
    denominator = scores.amax(-1, keepdim=True).to(exact) - probs.amax(-1, keepdim=True).to(exact).log()
    share = torch.sigmoid(denominator - sinks.view(*scores.shape[:2], 1, 1))
    probs.mul_(share.to(probs.dtype))  # of one dtype: torch multiplies mixed ones up to 30 times slower


def _log_sums(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """[Hq, Sq] float32 of masked scores [H, G, Sq, slots] and sinks [Hq]."""
    sums = scores.float().logsumexp(-1).flatten(0, 1)
    return sums if sinks is None else torch.logaddexp(sums, sinks.float().unsqueeze(-1))


def _add_mass(mass: Tensor, probs: Tensor, weights: Tensor, queries_left: int) -> None:
    """Add a tile's weighted probabilities [H, G, tile, slots] to mass [H, slots], in place.

    ``weights`` belong to the last queries of all; ``queries_left`` counts from the tile's first query to the end.
    """
    of_tile, of_last = _last_queries(probs.shape[2], queries_left, len(weights))
    tile_weights = weights[of_last].to(probs.dtype)
    mass += torch.matmul(tile_weights, probs[:, :, of_tile]).sum(1, dtype=mass.dtype)


def _keep_last(kept: Tensor, probs: Tensor, queries_left: int) -> None:
    """Copy what ``kept`` [H, G, m, slots], the probabilities of the last m queries of all, wants of a tile's."""
    of_tile, of_last = _last_queries(probs.shape[2], queries_left, kept.shape[2])
    kept[:, :, of_last] = probs[:, :, of_tile]


def _last_queries(tile: int, queries_left: int, last: int) -> tuple[slice, slice]:
    """Where a tile's queries and the last so many of all meet: as a slice of the tile's, and one of the last."""
    skipped = min(tile, max(0, queries_left - last))
    first = max(0, last - queries_left)
    return slice(skipped, tile), slice(first, first + tile - skipped)
