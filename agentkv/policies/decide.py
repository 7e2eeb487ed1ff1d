"""From scores to decisions. Pure functions; only the store changes anything."""

from __future__ import annotations

import torch
from torch import Tensor

from agentkv.cache.plan import Plan
from agentkv.cache.view import CacheView
from agentkv.policies.base import Policy


def protected_slots(token_index: Tensor, sinks: int, first_recent: int) -> Tensor:
    """[L, H, S] bool: tokens before ``sinks`` and from ``first_recent`` on."""
    return (token_index >= 0) & ((token_index < sinks) | (token_index >= first_recent))


def victims(policy: Policy, view: CacheView) -> Tensor:
    """The one slot of each head that makes room for the next token: [L, H] int64, never a protected one."""
    assert policy.scorer is not None
    untouchable = view.protected | (view.token_index < 0)
    return policy.scorer(view).masked_fill(untouchable, float("inf")).argmin(-1)


def shrink(policy: Policy, view: CacheView, slots: int, fp_window: int) -> Plan:
    """Keep the ``slots`` best slots of each head, protected ones first; quantise what left the FP window.

    Args:
        policy: whose scorer ranks, and whose precision rule applies.
        view: the cache.
        slots: slots to keep per head; all are kept if there are no more.
        fp_window: how many newest slots stay FP.
    """
    filled = view.token_index >= 0
    keep = filled
    if slots < view.token_index.shape[-1]:
        assert policy.scorer is not None
        rank = policy.scorer(view).masked_fill(view.protected, float("inf")).masked_fill(~filled, float("-inf"))
        best = rank.topk(slots, dim=-1).indices
        keep = torch.zeros_like(filled).scatter_(-1, best, True) & filled
    return Plan(keep, None if policy.precision is None else _aged(view, keep, fp_window))


def _aged(view: CacheView, keep: Tensor, fp_window: int) -> Tensor:
    """[L, H, FP slots] bool: kept FP slots that are not among the newest ``fp_window`` kept FP slots."""
    fp_tokens = view.token_index[..., view.code_slots :].masked_fill(~keep[..., view.code_slots :], -1)
    if fp_tokens.shape[-1] <= fp_window:
        return torch.zeros_like(fp_tokens, dtype=torch.bool)
    newest = fp_tokens.topk(fp_window, dim=-1).values[..., -1:]
    return (fp_tokens >= 0) & (fp_tokens < newest)
