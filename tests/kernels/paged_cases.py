"""Random caches in pages, and attention over them by the textbook formula in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from agentkv_kernels import KVFormat, PagedKV

CODED = (KVFormat.INT8_TOKEN, KVFormat.FP8_TOKEN, KVFormat.INT8_CHANNEL)
NAN_CODE = 0x7F


@dataclass(frozen=True)
class Case:
    """A layer's cache and queries, and what they stand for.

    Attributes:
        kv: scattered pages; what no slot holds is NaN, or codes that would be.
        query: [H · G, n, D].
        query_index: [H, n] int32.
        dense: per head the filled slots' keys and values [s, D] float64 and where those slots are, [s] int64.
    """

    kv: PagedKV
    query: Tensor
    query_index: Tensor
    dense: tuple[tuple[Tensor, Tensor, Tensor], ...]

    @property
    def heads(self) -> int:
        return len(self.dense)


def random_case(
    counts: Sequence[tuple[int, int]],
    formats: Sequence[KVFormat],
    *,
    group: int = 2,
    n_queries: int = 1,
    head_dim: int = 16,
    dtype: torch.dtype = torch.float32,
    page: int = 4,
    code_page: int = 16,
    holes: float = 0.0,
    with_counts: bool = True,
    seed: int = 0,
) -> Case:
    """A cache whose heads differ.

    Args:
        counts: per head, code slots and FP slots; the queries' own tokens are the last FP slots, so at least n_queries.
        formats: per head.
        page, code_page: slots of a page.
        holes: share of the older slots that is empty (token index −1) somewhere among the filled ones.
        with_counts: whether the kernel is told the counts.
    """
    rng = torch.Generator().manual_seed(seed)
    heads = len(counts)
    code_slots, fp_slots = max(c for c, _ in counts), max(f for _, f in counts)
    code_pages, fp_pages = -(-code_slots // code_page), -(-fp_slots // page)
    code_halves = torch.full((2 * heads * code_pages + 3, code_page, head_dim), NAN_CODE, dtype=torch.int8)
    fp_halves = torch.full((2 * heads * fp_pages + 3, page, head_dim), math.nan, dtype=dtype)
    # Half-page 0 is the dummy page's: padding names it, and it holds rubbish like any other.
    code_index = torch.zeros(2, heads, code_pages, dtype=torch.int32)
    fp_index = torch.zeros(2, heads, fp_pages, dtype=torch.int32)
    free_codes = iter((torch.randperm(len(code_halves) - 1, generator=rng) + 1).tolist())
    free_fp = iter((torch.randperm(len(fp_halves) - 1, generator=rng) + 1).tolist())
    scales = torch.rand(2, heads, code_slots, generator=rng) / 30 + 0.01
    channels = torch.rand(heads, code_pages, head_dim, generator=rng) / 30 + 0.01
    token_index = torch.full((heads, code_slots + fp_slots), -1, dtype=torch.int32)
    query_index, dense = [], []
    for head, ((codes, fps), fmt) in enumerate(zip(counts, formats, strict=True)):
        start = 11 * head
        older = torch.randperm(codes + fps - n_queries, generator=rng)
        tokens = torch.cat([older, torch.arange(codes + fps - n_queries, codes + fps)]) + start
        empty = torch.rand(codes + fps, generator=rng) < holes
        empty[codes + fps - n_queries :] = False
        numbers = torch.zeros(2, codes, head_dim, dtype=torch.float64)
        for number in range(-(-codes // code_page)):
            for part in (0, 1):
                code_index[part, head, number] = next(free_codes)
        for number in range(-(-fps // page)):
            for part in (0, 1):
                fp_index[part, head, number] = next(free_fp)
        for slot in range(codes):
            if empty[slot]:
                continue
            for part in (0, 1):
                bits, values = _codes(head_dim, fmt, rng)
                code_halves[code_index[part, head, slot // code_page], slot % code_page] = bits
                by_channel = part == 0 and fmt is KVFormat.INT8_CHANNEL
                scale = channels[head, slot // code_page] if by_channel else scales[part, head, slot]
                numbers[part, slot] = values * scale.double()
        exact = torch.randn(2, fps, head_dim, generator=rng).to(dtype)
        for slot in range(fps):
            if not empty[codes + slot]:
                for part in (0, 1):
                    fp_halves[fp_index[part, head, slot // page], slot % page] = exact[part, slot]
        token_index[head, :codes] = tokens[:codes]
        token_index[head, code_slots : code_slots + fps] = tokens[codes:]
        places = torch.cat([torch.arange(codes), code_slots + torch.arange(fps)])
        token_index[head, places[empty]] = -1
        keys, values = torch.cat([numbers, exact.double()], dim=1)[:, ~empty]
        dense.append((keys, values, places[~empty]))
        query_index.append(tokens[codes + fps - n_queries :])
    uniform = len(set(formats)) == 1
    kv = PagedKV(
        fp_halves, fp_index, fp_slots, code_halves, code_index, code_slots, scales, token_index,
        visible_slots=0,
        fp_filled=0,
        code_format=formats[0],
        channel_scales=channels if KVFormat.INT8_CHANNEL in formats else None,
        head_formats=None if uniform else torch.tensor([int(f) for f in formats], dtype=torch.int32),
        slot_counts=torch.tensor(counts, dtype=torch.int32).T.contiguous() if with_counts else None,
    )  # fmt: skip
    query = torch.randn(heads * group, n_queries, head_dim, generator=rng).mul_(2).to(dtype)
    return Case(kv, query, torch.stack(query_index).int(), tuple(dense))


def _codes(head_dim: int, fmt: KVFormat, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random codes [D] int8 and the numbers they stand for."""
    x = torch.randn(head_dim, generator=rng)
    if fmt is KVFormat.FP8_TOKEN:
        eight = (x * 40).clamp(-448, 448).to(torch.float8_e4m3fn)
        return eight.view(torch.int8), eight.double()
    codes = (x * 40).clamp(-127, 127).to(torch.int8)
    return codes, codes.double()


@dataclass(frozen=True)
class Expected:
    """Float64: out [Hq, n, D], lse [Hq, n], probs [Hq, n, slots]."""

    out: Tensor
    lse: Tensor
    probs: Tensor

    def mass(self, weights: Tensor, heads: int) -> Tensor:
        """[H, slots]: of the last len(weights) queries, summed over the group."""
        last = self.probs[:, -len(weights) :].unflatten(0, (heads, -1))
        return torch.einsum("hgqs,q->hs", last, weights.double())


def textbook(
    case: Case,
    scaling: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    window: int | None = None,
) -> Expected:
    """Softmax attention, one query of one query head at a time."""
    q_heads, n_queries, head_dim = case.query.shape
    group = q_heads // case.heads
    slots = case.kv.token_index.shape[1]
    out = torch.zeros(q_heads, n_queries, head_dim, dtype=torch.float64)
    lse = torch.zeros(q_heads, n_queries, dtype=torch.float64)
    probs = torch.zeros(q_heads, n_queries, slots, dtype=torch.float64)
    for q_head in range(q_heads):
        keys, values, places = case.dense[q_head // group]
        tokens = case.kv.token_index[q_head // group, places]
        for n in range(n_queries):
            at = case.query_index[q_head // group, n]
            seen = tokens <= at if window is None else (tokens <= at) & (tokens > at - window)
            scores = keys[seen] @ case.query[q_head, n].double() * scaling
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            logits = scores if sinks is None else torch.cat([scores, sinks[q_head].double().view(1)])
            lse[q_head, n] = logits.logsumexp(0)
            weights = (scores - lse[q_head, n]).exp()
            out[q_head, n] = weights @ values[seen]
            probs[q_head, n, places[seen]] = weights
    return Expected(out, lse, probs)


def of_dtype(case: Case, dtype: torch.dtype) -> Case:
    """The same numbers in another dtype, for the reference in float64."""
    kv = replace(case.kv, fp_halves=case.kv.fp_halves.to(dtype))
    return replace(case, kv=kv, query=case.query.to(dtype))
