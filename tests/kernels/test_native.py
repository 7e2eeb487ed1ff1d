"""The C++ kernel against dense attention in float64, and its fallback."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv_kernels import Int8Linear, KVFormat, OwnLinear, native, ops, paged_mixed_attention
from agentkv_kernels.native import attend, build, supports
from tests.kernels import test_attention as dense

needs_compiler = pytest.mark.skipif(build.library() is None, reason="there is no C++ compiler")


def check(cache: dense.Cache, query: torch.Tensor, weights: torch.Tensor | None, probs_of: int, **options) -> None:
    assert supports(query, cache.kv)
    options = {"softcap": None, "sinks": None, "window": None, **options}
    out, mass, probs, _ = attend(
        query, cache.kv, cache.query_index, dense.SCALING, weights, probs_of=probs_of, **options
    )
    close = dense.CLOSE[query.dtype]
    expected = dense.dense_probs(query, cache, **options)
    values = torch.einsum("hgqs,hsd->hgqd", expected, cache.values).flatten(0, 1)
    torch.testing.assert_close(out.double(), values, **close)
    assert (mass is None, probs is None) == (weights is None, not probs_of)
    if weights is not None:
        summed = expected[:, :, 0].sum(1) * weights.double()
        torch.testing.assert_close(mass, summed.float(), rtol=1e-4, atol=1e-5)
    if probs_of:
        torch.testing.assert_close(probs, expected.flatten(0, 1).float(), rtol=1e-4, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("change", dense.CHANGES)
@pytest.mark.parametrize("option", dense.OPTIONS)
@pytest.mark.parametrize("fmt", dense.CODED)
def test_it_equals_dense_attention(fmt, option, change, dtype) -> None:
    cache = dense.CHANGES[change](dense.random_cache(fmt, 21, 14, 1, dtype))
    check(cache, dense.random_query(1, dtype), torch.tensor([0.7]), 1, **dense.OPTIONS[option])


@needs_compiler
@settings(max_examples=100)
@given(
    fmt=st.sampled_from(dense.CODED),
    heads=st.integers(1, 3),
    group=st.integers(1, 5),
    fp_slots=st.integers(1, 600),
    code_slots=st.integers(0, 600),
    change=st.sampled_from(list(dense.CHANGES)),
    threads=st.integers(1, 3),
    softcap=st.none() | st.floats(0.5, 50.0),
    window=st.none() | st.integers(1, 900),
    with_sinks=st.booleans(),
    measured=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_shape_in_any_number_of_pieces(
    fmt, heads, group, fp_slots, code_slots, change, threads, softcap, window, with_sinks, measured, seed
) -> None:
    cache = dense.CHANGES[change](dense.random_cache(fmt, code_slots, fp_slots, 1, torch.float32, heads, seed))
    query = dense.random_query(1, torch.float32, heads, group, seed)
    sinks = torch.randn(heads * group) if with_sinks else None
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        weights = torch.tensor([0.3]) if measured else None
        check(cache, query, weights, int(measured), softcap=softcap, window=window, sinks=sinks)
    finally:
        torch.set_num_threads(before)


@needs_compiler
@pytest.mark.parametrize("dim", [16, 64, 80, 96, 128, 256])
def test_heads_of_any_size(monkeypatch: pytest.MonkeyPatch, dim: int) -> None:
    monkeypatch.setattr(dense, "DIM", dim)
    cache = dense.random_cache(KVFormat.INT8_TOKEN, 40, 40, 1, torch.float32)
    check(cache, dense.random_query(1, torch.float32), torch.ones(1), 1)


@needs_compiler
def test_views_of_larger_tensors_are_read_by_their_strides() -> None:
    cache = dense.random_cache(KVFormat.INT8_CHANNEL, 21, 14, 1, torch.float32)
    kv = cache.kv

    def inside(tensor: torch.Tensor) -> torch.Tensor:
        """The same numbers, as a view of a tensor that is larger in the last two dimensions."""
        shape = (*tensor.shape[:-2], tensor.shape[-2] + 1, tensor.shape[-1] + 3)
        larger = torch.full(shape, 77, dtype=tensor.dtype)
        larger[..., : tensor.shape[-2], : tensor.shape[-1]] = tensor
        return larger[..., : tensor.shape[-2], : tensor.shape[-1]]

    names = ("fp_index", "code_index", "scales", "token_index")
    viewed = replace(kv, **{name: inside(getattr(kv, name)) for name in names})
    check(replace(cache, kv=viewed), dense.random_query(1, torch.float32), torch.ones(1), 1)


def test_what_it_cannot_compute_is_left_to_the_reference() -> None:
    cache = dense.random_cache(KVFormat.INT8_TOKEN, 21, 14, 3, torch.float32)
    assert not supports(dense.random_query(3, torch.float32), cache.kv)
    assert not supports(dense.random_query(1, torch.float64), cache.kv)
    assert not supports(dense.random_query(1, torch.bfloat16), cache.kv), "of another dtype than the pages"


@pytest.mark.parametrize("name", ["fp_index", "code_index", "token_index"])
def test_tables_of_long_integers_give_the_same(name) -> None:
    cache, query = (
        dense.random_cache(KVFormat.INT8_TOKEN, 21, 14, 1, torch.float32),
        dense.random_query(1, torch.float32),
    )
    expected = paged_mixed_attention(query, cache.kv, cache.query_index, dense.SCALING)
    longer = replace(cache.kv, **{name: getattr(cache.kv, name).long()})
    found = paged_mixed_attention(query, longer, cache.query_index.long(), dense.SCALING)
    torch.testing.assert_close(found.out, expected.out)


@needs_compiler
@settings(max_examples=150, deadline=None)
@given(
    coded=st.booleans(),
    rows=st.integers(0, 16),
    size=st.integers(1, 200),
    n=st.integers(1, 70),
    threads=st.integers(1, 3),
    with_bias=st.booleans(),
    seed=st.integers(0, 999),
)
def test_products_of_few_rows(
    coded: bool, rows: int, size: int, n: int, threads: int, with_bias: bool, seed: int
) -> None:
    """Against float64: summed in float32 and rounded once, so at most half a step of bfloat16 off, plus its sums'."""
    torch.manual_seed(seed)
    x = torch.randn(rows, size).bfloat16()
    bias = torch.randn(n).bfloat16() if with_bias else None
    if coded:
        codes, scale = torch.randint(-128, 128, (n, size), dtype=torch.int8), torch.rand(n).bfloat16()
        weight, multiply = codes.double() * scale.double().unsqueeze(-1), native.multiplier(codes, scale, bias)
    else:
        own = torch.randn(n, size).bfloat16()
        weight, multiply = own.double(), native.multiplier(own, None, bias)
    assert multiply is not None
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = multiply(x)
    finally:
        torch.set_num_threads(before)
    terms = x.double().unsqueeze(1) * weight
    exact = terms.sum(-1) + (0 if bias is None else bias.double())
    slack = 1e-5 * (terms.abs().sum(-1) + 1)
    assert found.shape == (rows, n)
    assert bool(((found.double() - exact).abs() <= exact.abs() * 2**-8 + slack).all())


@pytest.mark.parametrize(
    ("weights", "scale", "bias"),
    [
        (torch.zeros(8, 4, dtype=torch.int8), torch.zeros(3).bfloat16(), None),
        (torch.zeros(8, 4, dtype=torch.int8), torch.zeros(8).bfloat16(), torch.zeros(9).bfloat16()),
        (torch.zeros(8, 4, dtype=torch.uint8), torch.zeros(8).bfloat16(), None),
        (torch.zeros(8, 4, dtype=torch.int8), None, None),
        (torch.zeros(8).bfloat16(), None, None),
    ],
)
def test_weights_that_make_no_layer_are_refused(weights, scale, bias) -> None:
    with pytest.raises(ValueError, match=r"a linear layer has weights|int8 ones have one"):
        native.multiplier(weights, scale, bias)


@needs_compiler
def test_products_of_views_and_of_what_is_no_number() -> None:
    layer = Int8Linear(torch.randint(-9, 9, (40, 96), dtype=torch.int8)[::2, ::2], torch.rand(20, 2).bfloat16()[:, 0])
    x = torch.randn(6, 96).bfloat16()[::2, ::2]
    torch.testing.assert_close(layer(x), layer(x.contiguous()), rtol=0, atol=0)
    expected = x.float() @ (layer.codes.float() * layer.scale.float().unsqueeze(1)).T
    torch.testing.assert_close(layer(x).float(), expected, rtol=2**-7, atol=1e-3)
    for odd in (float("nan"), float("inf")):
        x = x.clone()
        x[1, 3] = odd
        assert layer(x).isfinite().all(-1).tolist() == [True, False, True]


@pytest.mark.parametrize("bias", [None, torch.ones(32).bfloat16()], ids=["plain", "bias"])
@pytest.mark.parametrize("rows", [1, 3, 16, 17])
def test_products_without_the_kernel(monkeypatch: pytest.MonkeyPatch, bias: torch.Tensor | None, rows: int) -> None:
    monkeypatch.setattr("agentkv_kernels.product.multiplies_fast", lambda dtype, device: False)
    codes, scale = torch.randint(-128, 128, (32, 64), dtype=torch.int8), torch.rand(32).bfloat16()
    weight, x = torch.randn(32, 64).bfloat16(), torch.randn(rows, 64).bfloat16()
    usual = Int8Linear(codes, scale, bias), OwnLinear(weight, bias)
    monkeypatch.setenv("AGENTKV_KERNELS", "reference")
    plain = Int8Linear(codes, scale, bias), OwnLinear(weight, bias)
    for one, other in zip(usual, plain, strict=True):
        assert (other._multiply is None, one._multiply is None) == (True, build.library() is None)
        torch.testing.assert_close(one(x), other(x), rtol=2**-6, atol=0.1)


def test_where_half_precision_is_fast_own_weights_are_multiplied_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkv_kernels.product.multiplies_fast", lambda dtype, device: True)
    assert OwnLinear(torch.randn(8, 8).bfloat16())._multiply is None
    assert OwnLinear(torch.randn(8, 8))._multiply is None


@pytest.mark.parametrize(
    ("cxx", "reason"),
    [
        ("", "there is no C++ compiler (g++ or clang++)"),
        ("no-such-compiler -m64", "CXX names the C++ compiler 'no-such-compiler', which is not here"),
    ],
)
def test_without_a_compiler_it_says_so_once(monkeypatch, caplog, tmp_path, cxx, reason) -> None:
    monkeypatch.setenv("AGENTKV_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", cxx)
    build.library.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert build.library() is None
            assert build.library() is None
    finally:
        build.library.cache_clear()
    assert [record.message for record in caplog.records] == [
        f"no native CPU kernels, plain torch computes in their place: {reason}"
    ]


@needs_compiler
def test_a_broken_compiler_is_named(monkeypatch, caplog, tmp_path) -> None:
    broken = tmp_path / "broken"
    broken.write_text('#!/bin/sh\necho "it is broken, not by $1 $2" >&2\nexit 1\n')
    broken.chmod(0o755)
    monkeypatch.setenv("AGENTKV_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", f"{broken} --with arguments")
    build.library.cache_clear()
    try:
        assert build.library() is None
    finally:
        build.library.cache_clear()
    assert "the compiler failed: it is broken, not by --with arguments" in caplog.text
    assert not list(Path(tmp_path, "kernels").iterdir())


@needs_compiler
def test_it_brings_no_second_openmp_runtime() -> None:
    script = (
        "import torch; from agentkv_kernels.native import build; assert build.library();"
        "print(len({l.split()[-1] for l in open('/proc/self/maps') if 'omp' in l.split()[-1].rpartition('/')[2]}))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "1\n"


@needs_compiler
@pytest.mark.parametrize(("setting", "native"), [("auto", True), ("reference", False)])
def test_the_environment_says_who_computes(monkeypatch: pytest.MonkeyPatch, setting: str, native: bool) -> None:
    monkeypatch.setenv("AGENTKV_KERNELS", setting)
    cache, query = (
        dense.random_cache(KVFormat.INT8_TOKEN, 21, 14, 1, torch.float32),
        dense.random_query(1, torch.float32),
    )
    calls = []
    monkeypatch.setattr(ops.native, "attend", lambda *a, **k: calls.append(a) or attend(*a, **k))
    options = {"softcap": None, "sinks": None, "window": None, "probs_of": 0}
    here = paged_mixed_attention(query, cache.kv, cache.query_index, dense.SCALING, torch.ones(1))
    assert len(calls) == native
    there = attend(query, cache.kv, cache.query_index, dense.SCALING, torch.ones(1), **options)
    torch.testing.assert_close(here.out, there.out)
    torch.testing.assert_close(here.mass, there.mass)
