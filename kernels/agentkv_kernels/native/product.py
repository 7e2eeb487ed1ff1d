"""Products of a few rows with int8 or bfloat16 weights by the C++ kernel."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from agentkv_kernels.native.build import library

_POINTER, _INTEGER = ctypes.c_void_p, ctypes.c_int64
_SIGNATURE = (*(_INTEGER,) * 3, _POINTER, _POINTER, _INTEGER, _POINTER, _POINTER, _INTEGER, _POINTER)


@functools.cache
def _kernel() -> Callable[..., None] | None:
    compiled = library()
    if compiled is None:
        return None
    compiled.agentkv_multiply.argtypes = _SIGNATURE
    compiled.agentkv_multiply.restype = None
    kernel: Callable[..., None] = compiled.agentkv_multiply
    return kernel


def multiplier(weights: Tensor, scale: Tensor | None, bias: Tensor | None) -> Callable[[Tensor], Tensor] | None:
    """What computes a linear layer of these weights, or None where the kernel cannot: it takes bfloat16 on the CPU.

    Args:
        weights: [N, K], bfloat16 or int8.
        scale: [N] bfloat16, of int8 weights.
        bias: [N] bfloat16, or None.

    Raises:
        ValueError: shapes or dtypes that do not go together.
    """
    if weights.dim() != 2 or any(t is not None and t.shape != weights.shape[:1] for t in (scale, bias)):
        raise ValueError("a linear layer has weights [N, K], and a scale and a bias of [N]")
    if (weights.dtype is torch.int8) != (scale is not None):
        raise ValueError(
            f"weights of {weights.dtype} {'have' if scale is None else 'take'} no scale; int8 ones have one"
        )
    narrow = {weights.dtype if scale is None else scale.dtype, torch.bfloat16 if bias is None else bias.dtype}
    kernel = _kernel() if weights.device.type == "cpu" and narrow == {torch.bfloat16} else None
    if kernel is None:
        return None
    kept = [None if tensor is None else tensor.detach().contiguous() for tensor in (weights, scale, bias)]
    at, scale_at, bias_at = (0 if tensor is None else tensor.data_ptr() for tensor in kept)
    coded, (n, size) = int(weights.dtype is torch.int8), weights.shape

    def multiply(x: Tensor, kept: object = kept) -> Tensor:
        assert x.dtype is torch.bfloat16
        assert x.shape[1] == size
        x = x.contiguous()
        rows = len(x)
        out = x.new_empty(rows, n)
        threads = torch.get_num_threads()
        kernel(rows, n, size, x.data_ptr(), at, coded, scale_at, bias_at, threads, out.data_ptr())
        return out

    return multiply
