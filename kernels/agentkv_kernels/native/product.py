"""Products of a few rows with int8 weights by the C++ kernel."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from agentkv_kernels.native.build import library

_POINTER, _INTEGER = ctypes.c_void_p, ctypes.c_int64
_SIGNATURE = (*(_INTEGER,) * 3, *(_POINTER,) * 4, _INTEGER, _POINTER)


@functools.cache
def _kernel() -> Callable[..., None] | None:
    compiled = library()
    if compiled is None:
        return None
    compiled.agentkv_multiply.argtypes = _SIGNATURE
    compiled.agentkv_multiply.restype = None
    kernel: Callable[..., None] = compiled.agentkv_multiply
    return kernel


def multiplier(codes: Tensor, scale: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor] | None:
    """What computes an `Int8Linear` of these weights, or None where the kernel cannot: it takes bfloat16 on the CPU."""
    kernel = _kernel() if codes.device.type == "cpu" and scale.dtype is torch.bfloat16 else None
    if kernel is None:
        return None
    kept = [tensor.contiguous() for tensor in (codes, scale, *(() if bias is None else (bias,)))]
    weights = *(tensor.data_ptr() for tensor in kept), *((0,) if bias is None else ())
    n, size = codes.shape

    def multiply(x: Tensor, kept: object = kept) -> Tensor:
        assert x.dtype is torch.bfloat16
        assert x.shape[1] == size
        x = x.contiguous()
        rows = len(x)
        out = x.new_empty(rows, n)
        kernel(rows, n, size, x.data_ptr(), *weights, torch.get_num_threads(), out.data_ptr())
        return out

    return multiply
