"""From scores to decisions. Pure functions; only the store changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentkv.cache.plan import Plan
from agentkv.cache.view import CacheView
from agentkv.policies.base import Policy


@dataclass(frozen=True, slots=True)
class Target:
    """What a decision has to reach. L = layers, H = KV heads.

    Attributes:
        slots: [L, H] int64: slots a head may keep.
        total: slots all heads of the policy's layers may keep together, or None.
        fixed: [L] bool: sliding-window layers that the policy does not manage; they keep the newest slots. None: none.
        layer_slots: [L] int64: the most slots of a head, which shares of slots refer to.
        demote: whether slots may be quantised now.
        exempt: [L] bool: layers whose slots are never quantised, fixed ones among them.
        granule: heads quantise a multiple of so many slots.
    """

    slots: Tensor
    total: int | None
    fixed: Tensor | None
    layer_slots: Tensor
    demote: bool
    exempt: Tensor
    granule: int = 1


def protected_slots(token_index: Tensor, ranges: Sequence[tuple[int, int]], fixed: Tensor | None) -> Tensor:
    """[L, H, S] bool: slots of tokens in any of the ranges, in layers that are not ``fixed`` [L]."""
    inside = torch.zeros_like(token_index, dtype=torch.bool)
    for start, end in ranges:
        inside |= (token_index >= start) & (token_index < end)
    return inside if fixed is None else inside & ~fixed.view(-1, 1, 1)


def ranking(policy: Policy, view: CacheView, fixed: Tensor | None) -> Tensor:
    """[L, H, S] float32: the policy's scores with protected slots at +inf and empty ones at −inf."""
    recency = view.token_index.float()
    score = recency if policy.scorer is None else policy.scorer(view)
    if fixed is not None:
        score = torch.where(fixed.view(-1, 1, 1), recency, score)
    if view.expired is not None:
        score = score.masked_fill(view.expired, torch.finfo(score.dtype).min)
    return score.masked_fill(view.protected, float("inf")).masked_fill(~view.filled, float("-inf"))


def victims(policy: Policy, view: CacheView, fixed: Tensor | None) -> Tensor:
    """The one slot of each head that makes room for the next token: [L, H] int64, never a protected one."""
    score = ranking(policy, view, fixed)
    return score.masked_fill(~view.filled, float("inf")).argmin(-1)


def shrink(policy: Policy, view: CacheView, target: Target) -> Plan:
    """Keep the best slots within the target, protected ones first, and quantise what the precision rule says."""
    score = ranking(policy, view, target.fixed)
    keep = _best(score, view.filled, target)
    if policy.whole_observations and view.observations is not None:
        keep = _whole_observations(view, keep, target.fixed)
    if policy.precision is None or not target.demote:
        return Plan(keep)
    demote = policy.precision.demote(view, keep, score, target.layer_slots, target.granule)
    return Plan(keep, demote & ~target.exempt.view(-1, 1, 1))


def _best(score: Tensor, filled: Tensor, target: Target) -> Tensor:
    """[L, H, S] bool: the slots with the highest scores that a head, and all heads together, may keep."""
    order = score.argsort(-1, descending=True)
    place = torch.arange(score.shape[-1], device=score.device)
    keep = torch.zeros_like(score, dtype=torch.bool).scatter_(-1, order, place < target.slots.unsqueeze(-1))
    keep &= filled
    if target.total is None:
        return keep
    managed = keep if target.fixed is None else keep & ~target.fixed.view(-1, 1, 1)
    if int(managed.sum()) <= target.total:
        return keep
    competing = score.masked_fill(~managed, float("-inf")).flatten()
    best = torch.zeros_like(competing, dtype=torch.bool)
    best[competing.topk(target.total).indices] = True
    return keep & (best.view_as(keep) | ~managed)


def _whole_observations(view: CacheView, keep: Tensor, fixed: Tensor | None) -> Tensor:
    """Also drop what is left of an observation that lost a slot; of the newest observation only what was lost."""
    assert view.observations is not None
    number = view.of_tokens(view.observations)
    newest = int(view.observations.max()) if len(view.observations) else -1
    lost = view.filled & ~keep & (number >= 0) & (number < newest)
    gone = torch.zeros(*keep.shape[:2], newest + 2, dtype=torch.bool, device=keep.device)
    gone.scatter_(-1, torch.where(lost, number.long(), newest + 1), True)
    gone[..., newest + 1] = False
    hit = gone.gather(-1, number.long().clamp_min(0)) & (number >= 0)
    if fixed is not None:
        hit = hit & ~fixed.view(-1, 1, 1)
    return keep & (~hit | view.protected)
