"""Capacity of retention gates in Triton, forward and backward; see :mod:`agentkv_kernels.retention`."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 64


@triton.jit(do_not_specialize=["length"])
def capacity_kernel(log_beta, capacity, length, N: tl.constexpr):
    """S_t of one block of t; grid (blocks, rows)."""
    row = tl.program_id(1).to(tl.int64) * length
    t = tl.program_id(0) * N + tl.arange(0, N)
    summed = tl.zeros([N], log_beta.dtype.element_ty)
    for first in range(0, tl.program_id(0) * N + 1, N):
        i = first + tl.arange(0, N)
        gates = tl.load(log_beta + row + i, mask=i < length, other=0.0)
        age = t[:, None] - i[None, :]
        kept = tl.exp(tl.maximum(age, 0).to(gates.dtype) * gates[None, :])
        summed += tl.sum(tl.where(age >= 0, kept, 0.0), 1)
    tl.store(capacity + row + t, summed, mask=t < length)


@triton.jit(do_not_specialize=["length"])
def slope_kernel(log_beta, grad, out, length, N: tl.constexpr):
    """dL/d log β_i = Σ_{t > i} g_t (t − i) β_i^(t − i) of one block of i; grid (blocks, rows)."""
    row = tl.program_id(1).to(tl.int64) * length
    i = tl.program_id(0) * N + tl.arange(0, N)
    gates = tl.load(log_beta + row + i, mask=i < length, other=0.0)
    summed = tl.zeros([N], log_beta.dtype.element_ty)
    for first in range(tl.program_id(0) * N, length, N):
        t = first + tl.arange(0, N)
        grads = tl.load(grad + row + t, mask=t < length, other=0.0)
        age = tl.maximum(t[None, :] - i[:, None], 0).to(gates.dtype)
        summed += tl.sum(grads[None, :] * age * tl.exp(age * gates[:, None]), 1)
    tl.store(out + row + i, summed, mask=i < length)


class _RetentionCapacity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_beta: Tensor) -> Tensor:
        log_beta = log_beta.contiguous()
        ctx.save_for_backward(log_beta)
        capacity = torch.empty_like(log_beta)
        length = log_beta.shape[-1]
        capacity_kernel[(triton.cdiv(length, _BLOCK), log_beta.numel() // length)](log_beta, capacity, length, N=_BLOCK)
        return capacity

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (log_beta,) = ctx.saved_tensors
        out = torch.empty_like(log_beta)
        length = log_beta.shape[-1]
        slope_kernel[(triton.cdiv(length, _BLOCK), log_beta.numel() // length)](
            log_beta, grad.contiguous(), out, length, N=_BLOCK
        )
        return out


def retention_capacity(log_beta: Tensor) -> Tensor:
    """See :func:`agentkv_kernels.retention.retention_capacity`; float32 or float64."""
    capacity: Tensor = _RetentionCapacity.apply(log_beta)
    return capacity
