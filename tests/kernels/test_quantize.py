"""Quantisation: error bounds, and FP8 against torch's own conversion."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentkv_kernels import KVFormat, dequantize, dequantize_channel, quantize, quantize_channel
from agentkv_kernels.quantize import decode

PER_VECTOR = (KVFormat.INT8_TOKEN, KVFormat.FP8_TOKEN)
ALL_CODES = torch.arange(-128, 128).to(torch.int8)


def vectors(seed: int, magnitude: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[3, 5, 16], channels of very different size among them."""
    x = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(seed)) * magnitude
    return (x * torch.logspace(0, -6, 16)).to(dtype)


@given(magnitude=st.floats(1e-6, 1e6), seed=st.integers(0, 99))
def test_int8_error_is_at_most_half_a_step(magnitude: float, seed: int) -> None:
    x = vectors(seed, magnitude)
    codes, scale = quantize(x, KVFormat.INT8_TOKEN)
    error = (dequantize(codes, scale, KVFormat.INT8_TOKEN, torch.float32) - x).abs().amax(-1)
    assert bool((error <= scale * 0.5001).all())
    assert codes.abs().max() == 127


@given(magnitude=st.floats(1e-6, 1e6), seed=st.integers(0, 99))
def test_fp8_error_is_at_most_a_sixteenth_or_half_a_subnormal_step(magnitude: float, seed: int) -> None:
    x = vectors(seed, magnitude)
    codes, scale = quantize(x, KVFormat.FP8_TOKEN)
    error = (dequantize(codes, scale, KVFormat.FP8_TOKEN, torch.float32) - x).abs()
    assert bool((error <= torch.maximum(x.abs() / 16, scale.unsqueeze(-1) / 1024) * 1.0001).all())
    largest = codes.view(torch.float8_e4m3fn).float().abs().amax(-1)
    assert bool((largest == 448).all())


@given(magnitude=st.floats(1e-6, 1e6), seed=st.integers(0, 99))
def test_channel_error_is_at_most_half_a_step_of_the_channel(magnitude: float, seed: int) -> None:
    x = vectors(seed, magnitude)
    codes, scale = quantize_channel(x)
    assert codes.shape == x.shape
    assert scale.shape == (3, 16)
    error = (dequantize_channel(codes, scale, torch.float32) - x).abs().amax(-2)
    assert bool((error <= scale * 0.5001).all())
    assert bool((codes.abs().amax(-2) == 127).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_fp8_bits_are_those_of_torch(dtype: torch.dtype) -> None:
    """Every code, subnormals and both zeros included, without rounding; NaN codes give a finite number."""
    native = ALL_CODES.view(torch.float8_e4m3fn).to(dtype)
    ours = decode(ALL_CODES, KVFormat.FP8_TOKEN, torch.empty(256, dtype=dtype))
    number = ~native.isnan()
    assert number.sum() == 254
    assert torch.equal(ours[number], native[number])
    assert torch.equal(ours[number].signbit(), native[number].signbit())
    assert ours[~number].abs().tolist() == [480.0, 480.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_fp8_codes_are_those_of_torch(dtype: torch.dtype) -> None:
    x = vectors(1, 100.0, dtype)
    codes, scale = quantize(x, KVFormat.FP8_TOKEN)
    native = (x.float() / scale.unsqueeze(-1)).to(torch.float8_e4m3fn)
    assert torch.equal(codes.view(torch.float8_e4m3fn).float(), native.float())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("fmt", PER_VECTOR)
def test_the_largest_number_of_a_dtype_survives(fmt: KVFormat, dtype: torch.dtype) -> None:
    """No code overflows into NaN, and none is the NaN of e4m3."""
    x = torch.tensor([[torch.finfo(dtype).max, -1.0], [-torch.finfo(dtype).max, torch.finfo(dtype).tiny]], dtype=dtype)
    codes, scale = quantize(x, fmt)
    back = dequantize(codes, scale, fmt, torch.float32)
    torch.testing.assert_close(back[:, 0], x[:, 0].float(), rtol=1e-6, atol=0.0)
    assert fmt is KVFormat.INT8_TOKEN or not bool(((codes & 0x7F) == 0x7F).any())
    assert bool(back.isfinite().all())


@pytest.mark.parametrize("fmt", PER_VECTOR)
def test_a_zero_vector_quantises_to_zero(fmt: KVFormat) -> None:
    codes, scale = quantize(torch.zeros(2, 4), fmt)
    assert not codes.any()
    assert bool(scale.isfinite().all())
    assert not dequantize(codes, scale, fmt, torch.float32).any()


def test_a_zero_channel_quantises_to_zero() -> None:
    x = torch.ones(2, 4, 3)
    x[:, :, 1] = 0.0
    codes, scale = quantize_channel(x)
    assert torch.equal(dequantize_channel(codes, scale, torch.float32), x)


def test_a_channel_far_larger_than_the_others_costs_them_nothing() -> None:
    """Why keys have a scale per channel: an outlier channel takes the levels of a token's other channels."""
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))
    x[:, 3] *= 100.0
    others = torch.arange(16) != 3

    def error(back: torch.Tensor) -> float:
        return (back - x)[:, others].abs().max().item()

    per_token = dequantize(*quantize(x, KVFormat.INT8_TOKEN), KVFormat.INT8_TOKEN, torch.float32)
    per_channel = dequantize_channel(*quantize_channel(x), torch.float32)
    assert error(per_channel) < error(per_token) / 20


@pytest.mark.parametrize("fmt", [KVFormat.FP, KVFormat.INT8_CHANNEL])
def test_a_format_without_a_scale_per_vector_is_refused(fmt: KVFormat) -> None:
    with pytest.raises(ValueError, match=fmt.name):
        quantize(torch.ones(2, 4), fmt)
