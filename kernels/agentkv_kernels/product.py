"""Linear layers of one model: with its own weights, and with int8 ones for products of a few rows.

A product of few rows takes as long as reading the weights. torch's own take longer where they widen them slowly; there
the C++ kernel computes, as `AGENTKV_KERNELS` says when a layer is made.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from agentkv_kernels import native
from agentkv_kernels.arithmetic import multiplies_fast
from agentkv_kernels.dispatch import uses_native

NATIVE_ROWS = 16
"""Up to so many rows the C++ kernel is faster than widened products."""
_WIDENED_AT_ONCE = 1 << 20
"""Weights in float32 at a time: fresh memory for a whole output layer takes longer than the product."""


class OwnLinear:
    """x [B, K] to [B, N] with weights in the model's dtype.

    A CPU without half-precision arithmetic multiplies many rows 8 times faster in float32: there weights and inputs are
    widened, a block of weights at a time, so that the model keeps its bytes.

    Args:
        weight: [N, K]; it may be changed in place, but stays where it is in memory.
        bias: [N], or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.bias = weight, bias
        self._widens = not multiplies_fast(weight.dtype, weight.device)
        self._multiply = native.multiplier(weight, None, bias) if self._widens and uses_native(weight.device) else None

    def __call__(self, x: Tensor) -> Tensor:
        if self._multiply is not None and len(x) <= NATIVE_ROWS:
            return self._multiply(x)
        if self._widens and len(x) > 1:
            return self._widened(x.float()).to(x.dtype)
        return functional.linear(x, self.weight, self.bias)

    def _widened(self, x: Tensor) -> Tensor:
        """In float32, the weight a block of rows at a time."""
        blocks = self.weight.split(max(1, _WIDENED_AT_ONCE // self.weight.shape[1]))
        products = [functional.linear(x, block.float()) for block in blocks]
        product = products[0] if len(products) == 1 else torch.cat(products, dim=-1)
        return product if self.bias is None else product.add_(self.bias)


class Int8Linear:
    """x [B, K] to [B, N], in bfloat16, with weights rounded to int8.

    Args:
        codes: [N, K] int8.
        scale: [N] bfloat16; a weight is its code times that.
        bias: [N] bfloat16, or None.
    """

    def __init__(self, codes: Tensor, scale: Tensor, bias: Tensor | None = None):
        self.codes, self.scale, self.bias = codes, scale.contiguous(), bias
        self._multiply = native.multiplier(codes, self.scale, bias) if uses_native(codes.device) else None

    def __call__(self, x: Tensor) -> Tensor:
        if self._multiply is not None:
            return self._multiply(x)
        product: Tensor = torch._weight_int8pack_mm(x, self.codes, self.scale)
        return product if self.bias is None else product.add_(self.bias)
