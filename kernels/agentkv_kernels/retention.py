"""How many tokens a head with retention gates would hold, for training the gates in memory linear in the length.

TRIM-KV (arXiv 2512.03324): S_t = Σ_{i ≤ t} β_i^(t − i); the loss is a hinge on S_t − M, which is the caller's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_TILE = 256


def retention_capacity_dense(log_beta: Tensor) -> Tensor:
    """The formula as it stands, with a T × T matrix: log β [..., T] to S [..., T]."""
    at = torch.arange(log_beta.shape[-1], device=log_beta.device)
    age = at.unsqueeze(-1) - at  # [t, i]
    kept = torch.exp(age.clamp_min(0) * log_beta.unsqueeze(-2))
    return torch.where(age >= 0, kept, 0.0).sum(-1)


def retention_capacity(log_beta: Tensor) -> Tensor:
    """S_t = Σ_{i ≤ t} β_i^(t − i), differentiable once, in O(T) memory and O(T²) time.

    Args:
        log_beta: [..., T] floating, ≤ 0: logarithms of the gates.

    Returns:
        [..., T] in the same dtype.
    """
    capacity: Tensor = _RetentionCapacity.apply(log_beta)
    return capacity


class _RetentionCapacity(torch.autograd.Function):
    """Tiles of queries by tiles of keys; nothing of the matrix outlives its tile."""

    @staticmethod
    def forward(ctx: Any, log_beta: Tensor) -> Tensor:
        ctx.save_for_backward(log_beta)
        capacity = torch.zeros_like(log_beta)
        for queries, keys, age in _tiles(log_beta):
            kept = torch.exp(age.clamp_min(0) * log_beta[..., None, keys])
            capacity[..., queries] += torch.where(age >= 0, kept, 0.0).sum(-1)
        return capacity

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (log_beta,) = ctx.saved_tensors
        out = torch.zeros_like(log_beta)
        for queries, keys, age in _tiles(log_beta):
            slope = age * torch.exp(age.clamp_min(0) * log_beta[..., None, keys])
            out[..., keys] += (grad[..., queries].unsqueeze(-1) * slope.clamp_min(0.0)).sum(-2)
        return out


def _tiles(log_beta: Tensor) -> Any:
    """(queries, keys, age [queries, keys]) of every tile that is not wholly in the future."""
    length = log_beta.shape[-1]
    at = torch.arange(length, device=log_beta.device)
    for first in range(0, length, _TILE):
        queries = slice(first, first + _TILE)
        for second in range(0, first + 1, _TILE):
            keys = slice(second, second + _TILE)
            yield queries, keys, at[queries].unsqueeze(-1) - at[keys]
