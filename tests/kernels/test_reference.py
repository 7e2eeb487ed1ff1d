"""The reference kernels against the textbook formula."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv_kernels import KVFormat, PagedKV, attention, confidence_terms, dequantize, paged_mixed_attention, quantize

PAGE, RATIO = 4, 4


def random_cache(heads: int, fp_slots: int, code_slots: int, dim: int, n_new: int, seed: int):
    """Scattered pages in both formats, and the dense keys and values [2, H, S, D] that they stand for."""
    generator = torch.Generator().manual_seed(seed)
    fp_pages, int8_pages = -(-fp_slots // PAGE), -(-code_slots // (PAGE * RATIO))
    fp_halves = torch.randn(2 * heads * fp_pages + 5, PAGE, dim, generator=generator)
    codes, scales = quantize(
        torch.randn(2 * heads * int8_pages + 5, PAGE * RATIO, dim, generator=generator), KVFormat.INT8_TOKEN
    )
    fp_index = torch.randperm(len(fp_halves), generator=generator)[: 2 * heads * fp_pages].view(2, heads, -1)
    code_index = torch.randperm(len(codes), generator=generator)[: 2 * heads * int8_pages].view(2, heads, -1)
    slot_scales = scales[code_index].view(2, heads, -1)[..., :code_slots]
    total = fp_slots + code_slots
    token_index = torch.stack([torch.randperm(total - n_new, generator=generator) for _ in range(heads)])
    token_index = torch.cat([token_index, torch.arange(total - n_new, total).expand(heads, -1)], dim=-1).int()
    kv = PagedKV(
        fp_halves, fp_index.int(), fp_slots, codes, code_index.int(), code_slots, slot_scales, token_index,
        visible_slots=total - n_new if n_new > 1 else total,
    )  # fmt: skip
    dense_fp = fp_halves[fp_index].view(2, heads, -1, dim)[:, :, :fp_slots]
    dense_int8 = dequantize(
        codes[code_index].view(2, heads, -1, dim)[:, :, :code_slots],
        slot_scales,
        KVFormat.INT8_TOKEN,
        torch.float32,
    )
    return kv, torch.cat([dense_int8, dense_fp], dim=2)


@settings(max_examples=60, deadline=None)
@given(
    heads=st.integers(1, 3),
    group=st.integers(1, 3),
    n_new=st.integers(1, 7),
    fp_extra=st.integers(0, 9),
    code_slots=st.integers(0, 21),
    tile=st.sampled_from([1, 50, 1 << 21]),
    with_mass=st.booleans(),
    mass_queries=st.integers(1, 7),
    seed=st.integers(0, 99),
)
def test_attention_equals_dense_attention(
    heads, group, n_new, fp_extra, code_slots, tile, with_mass, mass_queries, seed
):
    kv, (keys, values) = random_cache(heads, n_new + fp_extra, code_slots, 8, n_new, seed)
    total = keys.shape[1]
    query = torch.randn(heads * group, n_new, 8, generator=torch.Generator().manual_seed(seed))
    query_index = torch.arange(total - n_new, total).int()
    weights = torch.rand(min(mass_queries, n_new)) if with_mass else None

    before, attention._TILE_ELEMENTS = attention._TILE_ELEMENTS, tile
    try:
        out, mass = paged_mixed_attention(query, kv, query_index, 0.3, weights)
    finally:
        attention._TILE_ELEMENTS = before

    scores = torch.einsum("hgqd,hsd->hgqs", query.view(heads, group, n_new, 8), keys) * 0.3
    hidden = kv.token_index[:, None, None] > query_index[:, None]
    probs = scores.masked_fill(hidden, -math.inf).softmax(-1)
    expected = torch.einsum("hgqs,hsd->hgqd", probs, values).reshape(heads * group, n_new, 8)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    if weights is None:
        assert mass is None
    else:
        torch.testing.assert_close(mass, torch.einsum("hgqs,q->hs", probs[:, :, -len(weights) :], weights))


def test_empty_slots_of_ragged_heads_are_not_seen() -> None:
    kv, (keys, values) = random_cache(2, 6, 3, 8, 1, seed=4)
    token_index = kv.token_index.clone()
    token_index[1, [0, 4]] = -1
    halves = kv.fp_halves.clone()
    page, offset = divmod(4 - 3, PAGE)
    halves[kv.fp_index[:, 1, page].long(), offset] = math.nan  # what an unused slot holds is arbitrary bits
    ragged = PagedKV(
        halves, kv.fp_index, 6, kv.code_halves, kv.code_index, 3, kv.scales, token_index, visible_slots=0, ragged=True
    )
    query = torch.randn(2, 1, 8)
    out, _ = paged_mixed_attention(query, ragged, torch.tensor([8], dtype=torch.int32), 1.0)
    kept = [s for s in range(9) if s not in (0, 4)]
    expected = (query[1] @ keys[1, kept].T).softmax(-1) @ values[1, kept]
    torch.testing.assert_close(out[1], expected, rtol=1e-4, atol=1e-5)


def test_bfloat16_stays_close_to_float32() -> None:
    kv, _ = random_cache(2, 40, 64, 64, 5, seed=2)
    query = torch.randn(6, 5, 64)
    index = torch.arange(99, 104).int()
    exact, _ = paged_mixed_attention(query, kv, index, 0.125)
    half = PagedKV(
        kv.fp_halves.bfloat16(), kv.fp_index, 40, kv.code_halves, kv.code_index, 64, kv.scales, kv.token_index,
        kv.visible_slots,
    )  # fmt: skip
    rounded, _ = paged_mixed_attention(query.bfloat16(), half, index, 0.125)
    torch.testing.assert_close(rounded.float(), exact, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("vocabulary", [2, 1000])
def test_confidence_terms(vocabulary: int) -> None:
    sure, unsure = torch.full((vocabulary,), -30.0), torch.zeros(vocabulary)
    sure[1] = 30.0
    terms = confidence_terms(torch.stack([sure, unsure]))
    torch.testing.assert_close(terms.normalized_entropy, torch.tensor([0.0, 1.0]), rtol=0, atol=1e-5)
    torch.testing.assert_close(terms.margin, torch.tensor([60.0, 0.0]), rtol=0, atol=1e-4)
    torch.testing.assert_close(terms.top_probability, torch.tensor([1.0, 1 / vocabulary]), rtol=0, atol=1e-5)
