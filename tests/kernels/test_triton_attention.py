"""The attention kernel against the textbook formula in float64, in Triton's interpreter or on a GPU.

Tolerances: scores, mass and log-sum-exp are float32 whatever the model's dtype. An output differs by the rounding of
the probabilities and of itself to that dtype: a step of 2⁻¹¹ in float16 and 2⁻⁸ in bfloat16 (the interpreter cuts off
instead of rounding), of values of size 4.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv_kernels import KVFormat
from tests.kernels.devices import DEVICE, fast, moved
from tests.kernels.paged_cases import CODED, Case, random_case, textbook

attention = fast("attention")
blocks = fast("blocks")

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp")  # tanh of large scores

SCALING = 0.3
OUT = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
LSE = {torch.float32: 2e-5, torch.float16: 1e-4, torch.bfloat16: 1e-3}
MASS = {torch.float32: 2e-5, torch.float16: 1e-4, torch.bfloat16: 1e-3}
SMALL = blocks.Blocks(rows=16, slots=16)
OPTIONS = {
    "plain": {},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": torch.tensor([-2.0, 0.0, 1.0, 2.0, 4.0, 30.0])},
    "window": {"window": 6},
    "all at once": {"softcap": 1.5, "sinks": torch.linspace(-1, 3, 6), "window": 9},
}


def check(case: Case, weights: torch.Tensor | None = None, probs_of: int = 0, tiles=SMALL, **options) -> None:
    """Every result of the kernel, of a case whose unwritten memory is NaN."""
    dtype = case.query.dtype
    expected = textbook(case, SCALING, **options)
    there = moved(case)
    result = attention.paged_mixed_attention(
        there.query, there.kv, there.query_index, SCALING, None if weights is None else weights.to(DEVICE),
        probs_of=probs_of, return_lse=True, blocks=tiles,
        **{key: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for key, x in options.items()},
    )  # fmt: skip
    assert result.out.dtype is dtype
    close(result.out, expected.out, OUT[dtype])
    close(result.lse, expected.lse, LSE[dtype])
    assert (result.mass is None) == (weights is None)
    assert (result.probs is None) == (not probs_of)
    if weights is not None:
        close(result.mass, expected.mass(weights, case.heads), MASS[dtype])
    if probs_of:
        close(result.probs, expected.probs[:, -probs_of:], MASS[dtype])


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found.double().cpu(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("fmt", CODED)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_format_and_head_size(dtype, fmt, head_dim) -> None:
    case = random_case([(33, 5), (16, 9)], [fmt] * 2, group=3, head_dim=head_dim, dtype=dtype, holes=0.2)
    check(replace(case, query=case.query / 4), torch.ones(1), probs_of=1, tiles=None)


@pytest.mark.parametrize("n_queries", [1, 7], ids=["decode", "append"])
@pytest.mark.parametrize("fmt", CODED)
@pytest.mark.parametrize("option", OPTIONS)
def test_options(option, fmt, n_queries) -> None:
    case = random_case([(21, 14), (3, 8)], [fmt] * 2, group=3, n_queries=n_queries, holes=0.3)
    check(case, torch.linspace(0.2, 1.0, min(3, n_queries)), probs_of=3, **OPTIONS[option])


@settings(max_examples=30 if DEVICE.type == "cpu" else 8, deadline=None)  # a GPU's are compiled
@given(data=st.data())
def test_any_shape(data) -> None:
    check_any_shape(data.draw)


@pytest.mark.full
@settings(max_examples=1000, deadline=None)
@given(data=st.data())
def test_any_shape_at_length(data) -> None:
    check_any_shape(data.draw)


def check_any_shape(draw) -> None:
    """Heads of different lengths and formats in one launch, tables and tiles of any size."""
    n_queries = draw(st.sampled_from([1, 1, 2, 5]))
    heads = draw(st.integers(1, 3))
    counts = [(draw(st.integers(0, 40)), n_queries + draw(st.integers(0, 20))) for _ in range(heads)]
    formats = [draw(st.sampled_from(CODED)) for _ in range(heads)]
    group = draw(st.integers(1, 5))
    case = random_case(
        counts, formats,
        group=group, n_queries=n_queries,
        head_dim=draw(st.sampled_from([8, 16, 20])),
        dtype=draw(st.sampled_from(list(OUT))),
        page=draw(st.sampled_from([1, 4, 16])), code_page=draw(st.sampled_from([16, 32])),
        holes=draw(st.sampled_from([0.0, 0.5, 1.0])),
        with_counts=draw(st.booleans()),
        seed=draw(st.integers(0, 2**31)),
    )  # fmt: skip
    n_weights = draw(st.integers(0, n_queries))
    check(
        case,
        torch.rand(n_weights) if n_weights else None,
        probs_of=draw(st.integers(0, 7)),
        tiles=blocks.Blocks(rows=16, slots=draw(st.sampled_from([16, 32])), programs=draw(st.integers(1, 9))),
        softcap=draw(st.none() | st.floats(0.5, 50.0)),
        window=draw(st.none() | st.integers(1, 60)),
        sinks=torch.randn(heads * group) if draw(st.booleans()) else None,
    )


@pytest.mark.parametrize(
    "counts",
    [
        [(0, 1)],
        [(0, 1), (16, 1)],
        [(16, 4), (32, 8)],
        [(15, 3), (17, 5)],
        [(0, 1), (160, 40)],
    ],
    ids=["one slot", "no codes beside one page", "full pages", "a slot less and more", "very unequal"],
)
@pytest.mark.parametrize("fmt", CODED)
def test_page_boundaries(fmt, counts) -> None:
    check(random_case(counts, [fmt] * len(counts)), torch.ones(1))


@pytest.mark.parametrize("join", [2, 16])
def test_more_shares_than_are_joined_at_once(monkeypatch, join) -> None:
    """Few at once, so that the largest score is hardly ever among the first."""
    monkeypatch.setattr(attention, "_JOIN", join)
    many = blocks.Blocks(rows=16, slots=16, programs=9)
    for seed in range(3):
        case = random_case([(560, 60)], [CODED[0]], seed=seed)
        assert attention._splits(call_of(case, many), 1) > 16
        check(replace(case, query=case.query * 2), torch.ones(1), tiles=many)


def call_of(case: Case, tiles) -> object:
    return attention._Call(
        case.query, case.kv, case.query_index, SCALING, None, None, None, tiles, case.query, case.query
    )


@pytest.mark.parametrize("with_counts", [True, False])
def test_all_slots_evicted_but_one(with_counts) -> None:
    """Holes everywhere: the query's own token is what is left, and its value the output."""
    case = random_case([(40, 9)], CODED[:1], holes=1.0, with_counts=with_counts)
    assert int((case.kv.token_index >= 0).sum()) == 1
    check(case, torch.ones(1), probs_of=1)


@pytest.mark.parametrize("sinks", [None, torch.tensor([0.5, -1.0])])
def test_a_query_that_sees_nothing_gives_zeros(sinks) -> None:
    case = random_case([(20, 9)], CODED[:1])
    blind = moved(replace(case, query_index=torch.full_like(case.query_index, -5)))
    result = attention.paged_mixed_attention(
        blind.query, blind.kv, blind.query_index, SCALING, torch.ones(1, device=DEVICE),
        sinks=None if sinks is None else sinks.to(DEVICE), return_lse=True, blocks=SMALL,
    )  # fmt: skip
    assert not result.out.any()
    assert not result.mass.any()
    expected = torch.full((2, 1), -math.inf) if sinks is None else sinks.unsqueeze(-1)
    torch.testing.assert_close(result.lse.cpu(), expected)


def test_a_head_without_any_slot_is_left_out() -> None:
    """A place in a batch that no session takes."""
    case = random_case([(20, 9), (20, 9)], CODED[:1] * 2)
    counts = case.kv.slot_counts.clone()
    counts[:, 1] = 0
    empty = moved(replace(case, kv=replace(case.kv, slot_counts=counts)))
    result = attention.paged_mixed_attention(
        empty.query, empty.kv, empty.query_index, SCALING, torch.ones(1, device=DEVICE), blocks=SMALL
    )
    close(result.out[:2], textbook(case, SCALING).out[:2], 2e-5)
    assert not result.out[2:].any()
    assert not result.mass[1].any()


def test_queries_in_tiles_give_the_same(monkeypatch) -> None:
    """Scores are kept for a few queries at a time; mass adds up over the tiles, and earlier queries keep none."""
    case = random_case([(21, 14), (9, 30)], CODED[:2], n_queries=7)
    monkeypatch.setattr(attention, "_KEPT_BYTES", 2 * 4 * 4 * case.kv.token_index.shape[1])
    check(case, torch.rand(5), probs_of=3)


def test_a_query_with_strides_and_a_slice_of_a_table() -> None:
    """As the runtime passes them: queries transposed, one layer of page tables that are wider than needed."""
    case = random_case([(21, 14), (9, 30)], CODED[:1] * 2, n_queries=3)
    wide = torch.zeros(2, 2, 12, dtype=torch.int32)
    wide[..., : case.kv.fp_index.shape[-1]] = case.kv.fp_index
    tokens = torch.full((2, 90), -1, dtype=torch.int32)
    tokens[:, 5 : 5 + case.kv.token_index.shape[1]] = case.kv.token_index
    kv = replace(
        case.kv,
        fp_index=wide[..., : case.kv.fp_index.shape[-1]],
        token_index=tokens[:, 5 : 5 + case.kv.token_index.shape[1]],
        scales=torch.cat([case.kv.scales, case.kv.scales], dim=-1)[..., : case.kv.code_slots],
    )
    query = case.query.transpose(0, 1).contiguous().transpose(0, 1)
    assert not query.is_contiguous()
    check(replace(case, kv=kv, query=query), torch.ones(2))


def test_one_query_index_for_all_heads() -> None:
    case = random_case([(21, 14), (21, 14)], CODED[:1] * 2, n_queries=3)
    shared = case.query_index[1]
    check(replace(case, query_index=shared.expand(2, -1)))
    there = moved(replace(case, query_index=shared))
    found = attention.paged_mixed_attention(there.query, there.kv, there.query_index, SCALING, blocks=SMALL).out
    close(found, textbook(replace(case, query_index=shared.expand(2, -1)), SCALING).out, 2e-5)


@pytest.mark.skipif(DEVICE.type != "cpu", reason="needs memory that is reserved and never touched")
def test_addresses_beyond_two_to_the_31(monkeypatch) -> None:
    """Pages far apart: an index that overflows 32 bits reads elsewhere. Untouched memory is not committed."""
    case = random_case([(20, 9)], CODED[:1], head_dim=64, dtype=torch.float16, code_page=32)
    kv = case.kv

    def far(halves: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = 2**31 // halves[0].numel() + 1
        spread = torch.empty(before + len(halves), *halves.shape[1:], dtype=halves.dtype)
        spread[before:] = halves
        return spread, index + before

    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    fp_halves, fp_index = far(kv.fp_halves, kv.fp_index)
    code_halves, code_index = far(kv.code_halves, kv.code_index)
    monkeypatch.undo()
    kv = replace(kv, fp_halves=fp_halves, fp_index=fp_index, code_halves=code_halves, code_index=code_index)
    check(replace(case, kv=kv), torch.ones(1))


def test_what_is_not_supported_is_said() -> None:
    case = random_case([(20, 9)], [KVFormat.INT8_CHANNEL], code_page=16)
    assert attention.unsupported(case.query, case.kv) is None
    assert attention.unsupported(case.query.double(), case.kv) == "dtype torch.float64"
    assert attention.unsupported(case.query.half(), case.kv) == "queries of torch.float16 on pages of torch.float32"
    wide = case.query.new_zeros(2, 1, 320)
    assert attention.unsupported(wide, case.kv) == "a head size of 320, above 256"
    odd = replace(case.kv, code_halves=case.kv.code_halves[:, :12])
    assert attention.unsupported(case.query, odd) == "INT8_CHANNEL pages of 12 slots, not a power of two from 16 on"


def test_the_reference_agrees_with_the_textbook_on_log_sums() -> None:
    """The CPU's reference computes the log-sum-exp too, and the same of mixed batches as the kernel."""
    from agentkv_kernels.attention import paged_mixed_attention
    from agentkv_kernels.mixed import attention_by_format

    sinks = torch.linspace(-1, 2, 6)
    case = random_case([(21, 14), (0, 6), (40, 5)], CODED, n_queries=3)
    expected = textbook(case, SCALING, sinks=sinks)
    found = attention_by_format(
        case.query, case.kv, case.query_index, SCALING, torch.ones(2), sinks=sinks, probs_of=2, return_lse=True
    )
    close(found.out, expected.out, 2e-5)
    close(found.lse, expected.lse, 2e-5)
    close(found.mass, expected.mass(torch.ones(2), 3), 2e-5)
    close(found.probs, expected.probs[:, -2:], 2e-5)
    alone = random_case([(21, 14)], CODED[:1], n_queries=2)
    lse = paged_mixed_attention(alone.query, alone.kv, alone.query_index, SCALING, return_lse=True).lse
    close(lse, textbook(alone, SCALING).lse, 2e-5)
