"""Linear layers with int8 weights, for products of a few rows: they take as long as reading the weights."""

from __future__ import annotations

import torch
from torch import Tensor

from agentkv_kernels import native
from agentkv_kernels.dispatch import uses_native


class Int8Linear:
    """x [B, K] to [B, N], in bfloat16; in C++ where that can be, as `AGENTKV_KERNELS` says when it is made.

    Args:
        codes: [N, K] int8.
        scale: [N] bfloat16; a weight is its code times that.
        bias: [N] bfloat16, or None.
    """

    def __init__(self, codes: Tensor, scale: Tensor, bias: Tensor | None = None):
        self.codes, self.scale, self.bias = codes, scale.contiguous(), bias
        self._multiply = native.multiplier(codes, self.scale, bias) if uses_native(codes.device) else None

    def __call__(self, x: Tensor) -> Tensor:
        return self.reference(x) if self._multiply is None else self._multiply(x)

    def reference(self, x: Tensor) -> Tensor:
        """The same by torch's own product."""
        product: Tensor = torch._weight_int8pack_mm(x, self.codes, self.scale)
        return product if self.bias is None else product.add_(self.bias)
