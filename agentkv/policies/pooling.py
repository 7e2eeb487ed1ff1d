"""Smoothing of scores over neighbours, in the order of the tokens: slots have none."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Mode = Literal["avg", "max"]
_NEVER = torch.iinfo(torch.int32).max
"""A token index above every real one."""


def pooled(scores: Tensor, token_index: Tensor, valid: Tensor, kernel: int, mode: Mode = "avg") -> Tensor:
    """Each slot's score averaged with, or replaced by the largest of, those of its neighbours among the valid slots.

    Neighbours are the slots whose tokens come next before and after it, not adjacent positions: what was evicted is not
    there. As in SnapKV's release an average divides by ``kernel`` at both ends too.

    Args:
        scores: [..., S] float32.
        token_index: [..., S] int32, of a shape that broadcasts to that of ``scores``.
        valid: [..., S] bool, likewise; other slots are nobody's neighbours.
        kernel: odd number of slots, the slot itself included.
        mode: "avg" or "max".

    Returns:
        [..., S] float32, 0 where a slot is not valid.
    """
    empty = 0.0 if mode == "avg" else float("-inf")
    token_index, valid = token_index.expand_as(scores), valid.expand_as(scores)
    order = token_index.masked_fill(~valid, _NEVER).argsort(-1)
    rows = scores.masked_fill(~valid, empty).gather(-1, order).flatten(0, -2).unsqueeze(1)
    pool = functional.avg_pool1d if mode == "avg" else functional.max_pool1d
    smooth = pool(rows, kernel, stride=1, padding=kernel // 2).squeeze(1).view_as(scores)
    return torch.zeros_like(scores).scatter_(-1, order, smooth).masked_fill(~valid, 0.0)
