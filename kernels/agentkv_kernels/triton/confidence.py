"""Entropy, margin and top probability in one pass over the logits, in Triton; see :mod:`agentkv_kernels.confidence`."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from agentkv_kernels.confidence import ConfidenceTerms

_TOKENS = 1024
_SHARE = 8192
"""Tokens of one program; a vocabulary of 150,000 keeps 19 busy per row."""
_NEVER = tl.constexpr(float("-inf"))


@triton.jit
def _merge(top, total, slope, other_top, other_total, other_slope):
    """Join Σ e^(x − top) and Σ (x − top) e^(x − top) of two sets; both tops finite, or of an empty set −inf."""
    new = tl.maximum(top, other_top)
    down, other_down = tl.where(total > 0, top - new, 0.0), tl.where(other_total > 0, other_top - new, 0.0)
    weight, other_weight = tl.exp(down), tl.exp(other_down)
    total_of_both = total * weight + other_total * other_weight
    slope_of_both = (slope + down * total) * weight + (other_slope + other_down * other_total) * other_weight
    return new, total_of_both, slope_of_both


@triton.jit
def _top_two(first, second):
    """The two largest of lanes that each know their two largest."""
    top = tl.max(first, 0)
    where = tl.argmax(first, 0)
    rest = tl.where(tl.arange(0, first.shape[0]) == where, _NEVER, first)
    return top, tl.maximum(tl.max(rest, 0), tl.max(second, 0))


@triton.jit(do_not_specialize=["vocabulary", "shares"])
def share_kernel(logits, by_row, parts, vocabulary, shares, N: tl.constexpr, SHARE: tl.constexpr):
    """Terms of one share of one row; grid (shares, rows)."""
    share, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    first, second = tl.full([N], _NEVER, tl.float32), tl.full([N], _NEVER, tl.float32)
    top, total, slope = tl.full([1], _NEVER, tl.float32), tl.zeros([1], tl.float32), tl.zeros([1], tl.float32)
    for start in range(0, tl.minimum(SHARE, vocabulary - share * SHARE), N):  # each block has a token
        token = share * SHARE + start + tl.arange(0, N)
        x = tl.load(logits + row * by_row + token, mask=token < vocabulary, other=_NEVER).to(tl.float32)
        second = tl.maximum(second, tl.minimum(first, x))
        first = tl.maximum(first, x)
        peak = tl.max(x, 0)
        below = tl.where(x == _NEVER, 0.0, x - peak)
        weight = tl.where(x == _NEVER, 0.0, tl.exp(below))
        top, total, slope = _merge(top, total, slope, peak, tl.sum(weight, 0), tl.sum(below * weight, 0))
    largest, runner_up = _top_two(first, second)
    parts += (row * shares + share) * 4
    tl.store(parts, largest)
    tl.store(parts + 1, runner_up)
    tl.store(parts + 2 + tl.arange(0, 1), total)
    tl.store(parts + 3 + tl.arange(0, 1), slope)


@triton.jit(do_not_specialize=["shares"])
def terms_kernel(parts, out, shares, rows, log_vocabulary, N: tl.constexpr):
    """Join a row's shares, all at once; grid (rows)."""
    row = tl.program_id(0).to(tl.int64)
    share = tl.arange(0, N)
    there = share < shares
    parts += (row * shares + share) * 4
    tops = tl.load(parts, mask=there, other=_NEVER)
    largest, runner_up = _top_two(tops, tl.load(parts + 1, mask=there, other=_NEVER))
    totals, slopes = tl.load(parts + 2, mask=there, other=0.0), tl.load(parts + 3, mask=there, other=0.0)
    down = tl.where(there, tops - largest, 0.0)
    weight = tl.exp(down)
    total = tl.sum(totals * weight, 0)
    slope = tl.sum((slopes + down * totals) * weight, 0)
    tl.store(out + row, (tl.log(total) - slope / total) / log_vocabulary)
    tl.store(out + rows + row, largest - runner_up)
    tl.store(out + 2 * rows + row, 1.0 / total)


def confidence_terms(logits: Tensor) -> ConfidenceTerms:
    """See :func:`agentkv_kernels.confidence.confidence_terms`."""
    shape, vocabulary = logits.shape[:-1], logits.shape[-1]
    flat = logits.reshape(-1, vocabulary)
    flat = flat if flat.stride(-1) == 1 else flat.contiguous()
    rows, shares = len(flat), triton.cdiv(vocabulary, _SHARE)
    parts = torch.empty(rows, shares, 4, device=logits.device)
    out = torch.empty(3, rows, device=logits.device)
    share_kernel[(shares, rows)](flat, flat.stride(0), parts, vocabulary, shares, N=_TOKENS, SHARE=_SHARE)
    terms_kernel[(rows,)](parts, out, shares, rows, math.log(vocabulary), N=max(2, triton.next_power_of_2(shares)))
    return ConfidenceTerms(*out.view(3, *shape))
