"""Attention over pages against a dense softmax in float64 over the numbers that the pages stand for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agentkv_kernels import KVFormat, PagedKV, attention, paged_mixed_attention

PAGE, CODE_PAGE, DIM = 4, 16, 8
SCALING = 0.3
CODED = (KVFormat.INT8_TOKEN, KVFormat.FP8_TOKEN, KVFormat.INT8_CHANNEL)
CLOSE = {
    torch.float64: {"rtol": 1e-6, "atol": 1e-6},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.bfloat16: {"rtol": 0.03, "atol": 0.03},
}


@dataclass(frozen=True)
class Cache:
    """Scattered pages, where the queries stand, and the dense keys and values [H, S, D] float64 of it all."""

    kv: PagedKV
    query_index: Tensor
    keys: Tensor
    values: Tensor


def random_cache(
    fmt: KVFormat, code_slots: int, fp_slots: int, n_new: int, dtype: torch.dtype, heads: int = 2, seed: int = 0
) -> Cache:
    """The last ``n_new`` FP slots are the queries' own tokens; the older ones lie in any order."""
    generator = torch.Generator().manual_seed(seed)
    code_pages, fp_pages = -(-code_slots // CODE_PAGE), -(-fp_slots // PAGE)
    numbers = torch.randn(2 * heads * code_pages + 5, CODE_PAGE, DIM, generator=generator)
    if fmt is KVFormat.FP8_TOKEN:
        codes = numbers.to(torch.float8_e4m3fn).view(torch.int8)
        numbers = codes.view(torch.float8_e4m3fn).double()
    else:
        codes = (numbers * 40).clamp(-127, 127).to(torch.int8)
        numbers = codes.double()
    fp_halves = torch.randn(2 * heads * fp_pages + 5, PAGE, DIM, generator=generator).to(dtype)
    code_index = torch.randperm(len(codes), generator=generator)[: 2 * heads * code_pages].view(2, heads, -1)
    fp_index = torch.randperm(len(fp_halves), generator=generator)[: 2 * heads * fp_pages].view(2, heads, -1)
    scales = torch.rand(2, heads, code_slots, generator=generator) / 20
    channel_scales = torch.rand(heads, code_pages, DIM, generator=generator) / 20
    total = code_slots + fp_slots
    older = torch.stack([torch.randperm(total - n_new, generator=generator) for _ in range(heads)])
    new = torch.arange(total - n_new, total)
    kv = PagedKV(
        fp_halves, fp_index.int(), fp_slots, codes, code_index.int(), code_slots, scales,
        torch.cat([older, new.expand(heads, -1)], dim=-1).int(),
        visible_slots=total - n_new if n_new > 1 else total,
        code_format=fmt,
        channel_scales=channel_scales if fmt is KVFormat.INT8_CHANNEL else None,
    )  # fmt: skip
    dense_codes = numbers[code_index].view(2, heads, -1, DIM)[:, :, :code_slots]
    token_scales = scales.double().unsqueeze(-1)
    by_channel = channel_scales.double().repeat_interleave(CODE_PAGE, dim=1)[:, :code_slots]
    key_scales = by_channel if fmt is KVFormat.INT8_CHANNEL else token_scales[0]
    dense_fp = fp_halves[fp_index].view(2, heads, -1, DIM)[:, :, :fp_slots].double()
    return Cache(
        kv,
        new.int(),
        torch.cat([dense_codes[0] * key_scales, dense_fp[0]], dim=1),
        torch.cat([dense_codes[1] * token_scales[1], dense_fp[1]], dim=1),
    )


def with_padding(cache: Cache, seed: int = 0) -> Cache:
    """Take a third of the older slots away; what lies there is NaN, or codes that would be."""
    kv = cache.kv
    taken = torch.rand(kv.token_index.shape, generator=torch.Generator().manual_seed(seed)) < 1 / 3
    taken[:, -len(cache.query_index) :] = False
    codes, halves, scales = kv.code_halves.clone(), kv.fp_halves.clone(), kv.scales.clone()
    for head, slot in taken.nonzero().tolist():
        if slot < kv.code_slots:
            page, offset = divmod(slot, CODE_PAGE)
            codes[kv.code_index[:, head, page].long(), offset] = 0x7F  # the NaN of e4m3
            scales[:, head, slot] = 0.0
        else:
            page, offset = divmod(slot - kv.code_slots, PAGE)
            halves[kv.fp_index[:, head, page].long(), offset] = math.nan
    ragged = replace(
        kv,
        code_halves=codes,
        fp_halves=halves,
        scales=scales,
        token_index=kv.token_index.masked_fill(taken, -1),
        visible_slots=0,
        fp_filled=0,
    )
    return replace(cache, kv=ragged)


def at_other_positions(cache: Cache) -> Cache:
    """Each head belongs to a session of its own, further along than the one before."""
    start = 7 * torch.arange(len(cache.kv.token_index), dtype=torch.int32).unsqueeze(1)
    token_index = torch.where(cache.kv.token_index < 0, -1, cache.kv.token_index + start)
    return replace(cache, kv=replace(cache.kv, token_index=token_index), query_index=cache.query_index + start)


def dense_probs(
    query: Tensor, cache: Cache, softcap: float | None = None, sinks: Tensor | None = None, window: int | None = None
) -> Tensor:
    """The textbook formula: [H, G, Sq, S] float64."""
    heads = len(cache.keys)
    scores = torch.einsum("hgqd,hsd->hgqs", query.double().unflatten(0, (heads, -1)), cache.keys) * SCALING
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    slots = cache.kv.token_index[:, None, None, :]
    at = cache.query_index.expand(heads, -1)[:, None, :, None]
    hidden = (slots > at) | (slots < 0)
    if window is not None:
        hidden |= slots <= at - window
    scores = scores.masked_fill(hidden, -math.inf)
    if sinks is None:
        return scores.softmax(-1)
    sink = sinks.double().view(heads, -1, 1, 1).expand(*scores.shape[:3], 1)
    return torch.cat([scores, sink], dim=-1).softmax(-1)[..., :-1]


def check(cache: Cache, query: Tensor, mass_weights: Tensor | None = None, probs_of: int = 0, **options) -> None:
    close = CLOSE[query.dtype]
    result = paged_mixed_attention(
        query, cache.kv, cache.query_index, SCALING, mass_weights, probs_of=probs_of, **options
    )
    probs = dense_probs(query, cache, **options)
    expected = torch.einsum("hgqs,hsd->hgqd", probs, cache.values).flatten(0, 1)
    assert result.out.dtype is query.dtype
    torch.testing.assert_close(result.out.double(), expected, **close)
    if mass_weights is None:
        assert result.mass is None
    else:
        mass = torch.einsum("hgqs,q->hs", probs[:, :, -len(mass_weights) :], mass_weights.double())
        torch.testing.assert_close(result.mass, mass.float(), rtol=max(close["rtol"], 1e-5), atol=close["atol"])
    if not probs_of:
        assert result.probs is None
    else:
        torch.testing.assert_close(result.probs, probs[:, :, -probs_of:].flatten(0, 1).float(), **close)


def random_query(n_new: int, dtype: torch.dtype, heads: int = 2, group: int = 3, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(heads * group, n_new, DIM, generator=generator).mul_(2).to(dtype)


OPTIONS = {
    "plain": {},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": torch.tensor([-2.0, 0.0, 1.0, 2.0, 4.0, 30.0])},
    "window": {"window": 5},
    "window that hides codes only": {"window": 20},
    "all at once": {"softcap": 1.5, "sinks": torch.linspace(-1, 3, 6), "window": 9},
}
CHANGES = {
    "even": lambda cache: cache,
    "ragged": with_padding,
    "per head": at_other_positions,
    "ragged, per head": lambda cache: at_other_positions(with_padding(cache)),
}


@pytest.mark.parametrize("n_new", [1, 7], ids=["decode", "append"])
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("fmt", CODED)
def test_attention_equals_dense_attention(fmt, option, change, dtype, n_new) -> None:
    cache = CHANGES[change](random_cache(fmt, 21, 14, n_new, dtype))
    weights = torch.linspace(0.2, 1.0, min(3, n_new))
    check(cache, random_query(n_new, dtype), weights, probs_of=3, **OPTIONS[option])


@settings(max_examples=150, deadline=None)
@given(
    fmt=st.sampled_from(CODED),
    heads=st.integers(1, 3),
    group=st.integers(1, 3),
    n_new=st.integers(1, 7),
    fp_extra=st.integers(0, 9),
    code_slots=st.integers(0, 37),
    change=st.sampled_from(list(CHANGES)),
    tile=st.sampled_from([1, 50, 300, 1 << 21]),
    mass_queries=st.integers(0, 7),
    probs_of=st.integers(0, 9),
    softcap=st.none() | st.floats(0.5, 50.0),
    window=st.none() | st.integers(1, 60),
    with_sinks=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_shape_and_tile_equals_dense_attention(
    fmt, heads, group, n_new, fp_extra, code_slots, change, tile, mass_queries, probs_of, softcap, window, with_sinks,
    seed,
) -> None:  # fmt: skip
    cache = CHANGES[change](random_cache(fmt, code_slots, n_new + fp_extra, n_new, torch.float64, heads, seed))
    sinks = torch.randn(heads * group) if with_sinks else None
    weights = torch.rand(min(mass_queries, n_new)) if mass_queries else None
    query = random_query(n_new, torch.float64, heads, group, seed)
    with mock.patch.object(attention, "_TILE_ELEMENTS", tile):
        check(cache, query, weights, probs_of, softcap=softcap, sinks=sinks, window=window)


def test_the_window_overrides_visible_slots() -> None:
    """``visible_slots`` speaks of causality; it must not open the window again."""
    cache = random_cache(KVFormat.INT8_TOKEN, 10, 10, 1, torch.float64)
    assert cache.kv.visible_slots == 20
    probs = paged_mixed_attention(
        random_query(1, torch.float64), cache.kv, cache.query_index, SCALING, window=4, probs_of=1
    ).probs
    assert probs is not None
    seen = cache.kv.token_index.repeat_interleave(3, dim=0) > 19 - 4
    assert torch.equal(probs[:, 0] > 0, seen)


def test_a_result_survives_the_next_call() -> None:
    """Work buffers are reused; what is returned is not among them."""
    cache = random_cache(KVFormat.FP8_TOKEN, 21, 14, 2, torch.float32)
    first, second = random_query(2, torch.float32), random_query(2, torch.float32, seed=1)
    kept = paged_mixed_attention(first, cache.kv, cache.query_index, SCALING, torch.ones(2), probs_of=2)[:3]
    copies = [part.clone() for part in kept]
    other = paged_mixed_attention(second, cache.kv, cache.query_index, SCALING, torch.ones(2), probs_of=2)[:3]
    for part, copy, changed in zip(kept, copies, other, strict=True):
        assert torch.equal(part, copy)
        assert not torch.equal(part, changed)


def test_sessions_of_a_batch_do_not_see_each_other() -> None:
    """A batch as more heads gives what each session gives alone."""
    cache = at_other_positions(random_cache(KVFormat.INT8_CHANNEL, 21, 14, 3, torch.float64))
    query = random_query(3, torch.float64)
    both = paged_mixed_attention(query, cache.kv, cache.query_index, SCALING, window=12).out
    for head in range(2):
        kv, one = cache.kv, slice(head, head + 1)
        alone = replace(
            kv,
            fp_index=kv.fp_index[:, one],
            code_index=kv.code_index[:, one],
            scales=kv.scales[:, one],
            token_index=kv.token_index[one],
            channel_scales=kv.channel_scales[one],
        )
        rows = slice(3 * head, 3 * head + 3)
        out = paged_mixed_attention(query[rows], alone, cache.query_index[head], SCALING, window=12).out
        torch.testing.assert_close(both[rows], out, rtol=0.0, atol=1e-12)
