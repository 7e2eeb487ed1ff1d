"""The smaller Triton kernels against their torch references, in Triton's interpreter or on a GPU."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agentkv_kernels import KVFormat, compaction, confidence, mass, transfer
from agentkv_kernels.retention import retention_capacity, retention_capacity_dense
from tests.kernels.devices import DEVICE, fast

fast_transfer, fast_compaction = fast("transfer"), fast("compaction")
fast_mass, fast_confidence, fast_retention = fast("mass"), fast("confidence"), fast("retention")

PER_TOKEN = (KVFormat.INT8_TOKEN, KVFormat.FP8_TOKEN)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
CUT_OFF = 2.0**-7
"""Triton's interpreter cuts bfloat16 off where a GPU rounds."""
seeds = st.integers(0, 2**31)
quick = settings(max_examples=10, deadline=None)


def both(reference, kernel, *arguments: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    """Call both on copies of the arguments: what became of the reference's, and of the kernel's."""
    ours = [x.clone() if isinstance(x, Tensor) else x for x in arguments]
    theirs = [x.to(DEVICE, copy=True) if isinstance(x, Tensor) else x for x in arguments]
    reference(*ours, **options)
    kernel(*theirs, **{key: x.to(DEVICE) if isinstance(x, Tensor) else x for key, x in options.items()})
    return ours, [x.cpu() if isinstance(x, Tensor) else x for x in theirs]


def agree(ours: list[Any], theirs: list[Any], rtol: float = 0.0) -> None:
    """Equal, bit for bit unless said otherwise; NaN where nothing was written included."""
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, Tensor):
            torch.testing.assert_close(other, one, rtol=rtol, atol=0, equal_nan=True)


def places(count: int, among: int, rng: torch.Generator) -> Tensor:
    """Different numbers, at random."""
    return torch.randperm(among, generator=rng)[:count]


@quick
@given(
    dtype=st.sampled_from(DTYPES), fmt=st.sampled_from((KVFormat.FP, *PER_TOKEN)),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 5)),
    head_dim=st.sampled_from([8, 20, 64]), transposed=st.booleans(), seed=seeds,
)  # fmt: skip
def test_append(dtype, fmt, shape, head_dim, transposed, seed) -> None:
    rng = torch.Generator().manual_seed(seed)
    batch, heads, tokens = shape
    key, value = (torch.randn(batch, heads, tokens, head_dim, generator=rng).to(dtype) for _ in range(2))
    if transposed:  # as a model's projections come
        key, value = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (key, value))
    count = 2 * batch * heads * tokens
    rows = poison(count + 7, head_dim, dtype if fmt is KVFormat.FP else torch.int8)
    targets = places(count, count + 7, rng).view(batch, 2, heads, tokens)
    scales = torch.full((count + 3,), math.nan)
    scale_at = places(count, count + 3, rng).view(batch, 2, heads, tokens)
    rest = () if fmt is KVFormat.FP else (fmt, scales, scale_at)
    agree(*both(transfer.append_kv, fast_transfer.append_kv, key, value, rows, targets, *rest))


def poison(rows: int, head_dim: int, dtype: torch.dtype) -> Tensor:
    return torch.full((rows, head_dim), math.nan if dtype.is_floating_point else 0x7F, dtype=dtype)


@quick
@given(
    dtype=st.sampled_from(DTYPES), fmt=st.sampled_from(PER_TOKEN), count=st.integers(1, 20),
    head_dim=st.sampled_from([8, 20, 128]), size=st.floats(1e-5, 1e3), seed=seeds,
)  # fmt: skip
def test_demote_and_promote(dtype, fmt, count, head_dim, size, seed) -> None:
    """A third of the vectors stay where they are, an all-zero one among the others."""
    rng = torch.Generator().manual_seed(seed)
    rows = (torch.randn(count + 4, head_dim, generator=rng) * size).to(dtype)
    rows[0] = 0.0
    sources = places(count, count + 4, rng)
    targets = places(count, count + 9, rng)
    targets[torch.rand(count, generator=rng) < 1 / 3] = -1
    codes = poison(count + 9, head_dim, torch.int8)
    scales, scale_at = torch.full((count + 5,), math.nan), places(count, count + 5, rng)
    ours, theirs = both(transfer.demote, fast_transfer.demote, rows, sources, codes, targets, fmt, scales, scale_at)
    agree(ours, theirs)
    back = torch.full_like(rows, math.nan)
    agree(
        *both(
            transfer.promote, fast_transfer.promote, ours[2], targets.clamp_min(0), fmt, ours[5], scale_at,
            back, torch.where(targets >= 0, sources, -1),
        ),
        rtol=CUT_OFF if dtype is torch.bfloat16 else 0.0,
    )  # fmt: skip


@quick
@given(
    dtype=st.sampled_from(DTYPES), pages=st.integers(1, 3), slots=st.sampled_from([4, 16, 20]),
    head_dim=st.sampled_from([8, 20]), seed=seeds,
)  # fmt: skip
def test_demote_and_promote_whole_pages(dtype, pages, slots, head_dim, seed) -> None:
    rng = torch.Generator().manual_seed(seed)
    count = 2 * pages * slots
    rows = torch.randn(count + 3, head_dim, generator=rng).to(dtype)
    sources = places(count, count + 3, rng).view(pages, 2, slots)
    targets = places(count, count + 9, rng).view(pages, 2, slots)
    codes, channels = poison(count + 9, head_dim, torch.int8), torch.full((pages + 2, head_dim), math.nan)
    scales, scale_at = torch.full((count,), math.nan), places(pages * slots, count, rng).view(pages, slots)
    channel_at = places(pages, pages + 2, rng)
    ours, theirs = both(
        transfer.demote_pages, fast_transfer.demote_pages,
        rows, sources, codes, targets, scales, scale_at, channels, channel_at,
    )  # fmt: skip
    agree(ours, theirs)
    of_key = channel_at.view(-1, 1, 1).expand(-1, 1, slots)
    back = torch.full_like(rows, math.nan)
    ours, theirs = both(
        transfer.promote, fast_transfer.promote, ours[2], targets.flatten(), KVFormat.INT8_CHANNEL,
        ours[4], torch.stack((torch.zeros_like(scale_at), scale_at), dim=1).flatten(), back, sources.flatten(),
        channels=ours[6], channel_at=torch.cat((of_key, torch.full_like(of_key, -1)), dim=1).flatten(),
    )  # fmt: skip
    agree(ours, theirs, rtol=CUT_OFF if dtype is torch.bfloat16 else 0.0)
    lost = (ours[5].float() - rows.float())[sources.flatten()].abs().max()
    assert float(lost) <= float(rows.float().abs().max()) / 127


@quick
@given(
    heads=st.integers(1, 3), slots=st.integers(1, 40), page=st.sampled_from([1, 4, 16]), share=st.floats(0, 1),
    dtype=st.sampled_from([torch.int8, torch.bfloat16]), seed=seeds,
)  # fmt: skip
def test_compact(heads, slots, page, share, dtype, seed) -> None:
    """Kept slots are the first ones afterwards, whatever moved; those that need not move stay where they are."""
    rng = torch.Generator().manual_seed(seed)
    layers, pages = 2, -(-slots // page)
    halves = torch.randint(-100, 100, (4 * heads * pages + 3, page, 8), generator=rng).to(dtype)
    half_index = places(2 * layers * heads * pages, len(halves), rng).view(layers, 2, heads, pages).int()
    keep = torch.rand(layers, heads, slots, generator=rng) < share
    tokens = torch.arange(slots + 5, dtype=torch.int32).repeat(layers, heads, 1)
    scales = torch.rand(layers, 2, heads, slots, generator=rng)
    ours = [halves.clone(), tokens.clone(), scales.clone()]
    theirs = [halves.to(DEVICE, copy=True), tokens.to(DEVICE, copy=True), scales.to(DEVICE, copy=True)]
    counts = compaction.compact(ours[0], half_index, keep, ours[1:])
    found = fast_compaction.compact(theirs[0], half_index.to(DEVICE), keep.to(DEVICE), theirs[1:])
    assert torch.equal(found.cpu(), counts)
    agree(ours, [x.cpu() for x in theirs])

    def vectors(cache: Tensor, layer: int, head: int) -> Tensor:
        return cache[half_index[layer, :, head].long()].view(2, -1, 8)

    for layer in range(layers):
        for head in range(heads):
            end = int(counts[layer, head])
            assert end == int(keep[layer, head].sum())
            left = ours[1][layer, head, :end].long()
            assert sorted(left.tolist()) == keep[layer, head].nonzero()[:, 0].tolist()
            stayed = keep[layer, head, :end]
            assert torch.equal(left[stayed], torch.arange(end)[stayed])
            assert torch.equal(vectors(ours[0], layer, head)[:, :end], vectors(halves, layer, head)[:, left])
            assert torch.equal(ours[2][layer, :, head, :end], scales[layer, :, head, left])


@quick
@given(slots=st.integers(0, 40), spare=st.integers(0, 5), decay=st.floats(0, 1), seed=seeds)
def test_ema_mass(slots, spare, decay, seed) -> None:
    rng = torch.Generator().manual_seed(seed)
    held = torch.rand(2, 3, slots + spare, generator=rng)
    new = torch.rand(2, 3, slots, generator=rng)
    (ours, *_), (theirs, *_) = both(mass.ema_mass, fast_mass.ema_mass, held, new, decay)
    torch.testing.assert_close(theirs, ours, rtol=1e-6, atol=1e-6)
    assert torch.equal(theirs[..., slots:], held[..., slots:])


@quick
@given(
    rows=st.integers(1, 3), vocabulary=st.sampled_from([2, 100, 1024, 1025, 9000, 17000]),
    dtype=st.sampled_from(DTYPES), size=st.floats(0.01, 30), ties=st.booleans(), seed=seeds,
)  # fmt: skip
def test_confidence(rows, vocabulary, dtype, size, ties, seed) -> None:
    rng = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, vocabulary, generator=rng) * size).to(dtype)
    if ties:
        logits[:, places(2, vocabulary, rng)] = logits.max() + 1
    ours = confidence.confidence_terms(logits.double())
    theirs = fast_confidence.confidence_terms(logits.to(DEVICE))
    for name, one, other in zip(ours._fields, ours, theirs, strict=True):
        torch.testing.assert_close(
            other.cpu(), one.float(), rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}"
        )
    if ties:
        assert not theirs.margin.any()


def test_confidence_keeps_leading_dimensions() -> None:
    logits = torch.randn(2, 3, 50, device=DEVICE)
    assert fast_confidence.confidence_terms(logits).margin.shape == (2, 3)
    turned = torch.randn(50, 4, device=DEVICE).T
    ours, theirs = confidence.confidence_terms(turned), fast_confidence.confidence_terms(turned)
    torch.testing.assert_close(theirs.normalized_entropy, ours.normalized_entropy)


RETENTION = {"tiled torch": retention_capacity, "triton": fast_retention.retention_capacity}


@pytest.mark.parametrize("name", RETENTION)
@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 300])
def test_retention_capacity(name, length) -> None:
    """Values and gradients equal those of the T × T formula; gates at one and next to zero are among them."""
    rng = torch.Generator().manual_seed(length)
    log_beta = torch.nn.functional.logsigmoid(torch.randn(2, 2, length, generator=rng).double() * 8)
    log_beta[0, 0, 0] = 0.0
    weights = torch.randn(2, 2, length, generator=rng).double()
    ours, theirs = (log_beta.to(DEVICE).requires_grad_() for _ in range(2))
    expected, found = retention_capacity_dense(ours), RETENTION[name](theirs)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    (expected * weights.to(DEVICE)).sum().backward()
    (found * weights.to(DEVICE)).sum().backward()
    torch.testing.assert_close(theirs.grad, ours.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", RETENTION)
def test_retention_capacity_gradients(name) -> None:
    log_beta = (-torch.rand(2, 7).double() - 0.01).to(DEVICE).requires_grad_()
    assert torch.autograd.gradcheck(RETENTION[name], (log_beta,))


def test_retention_capacity_needs_memory_linear_in_the_length() -> None:
    """Of the T × T matrix nothing is held for the backward pass."""
    held: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: held.append(x.numel()) or x, lambda x: x):
        retention_capacity(torch.full((1, 700), -0.1, requires_grad=True))
    assert held == [700]
