"""A structural change of a cache, made by a policy from a read-only view and checked before anything moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agentkv.cache.view import CacheView
from agentkv.errors import AgentKVError


class InvalidPlan(AgentKVError):
    """A policy's plan that would break an invariant; the cache is left as it was."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of each slot. Slots are numbered quantised first, then FP, as in the view.

    Attributes:
        keep: [L, H, slots] bool; a filled slot that is not kept is evicted.
        demote: [L, H, FP slots] bool, or None: kept FP slots to be quantised from now on.
    """

    keep: Tensor
    demote: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """What a cache may hold after a plan. L = layers, H = KV heads.

    Attributes:
        slots: [L, H] int64 numpy: the most slots of each head.
        total: the most slots of all heads of managed layers together, or None.
        fp, code: [L] int64 numpy: the most slots of a head in the model's dtype, and quantised.
        managed: [L] bool numpy: layers that the policy manages.
    """

    slots: np.ndarray
    total: int | None
    fp: np.ndarray
    code: np.ndarray
    managed: np.ndarray


def validate(plan: Plan, view: CacheView, room: Room) -> None:
    """Refuse a plan that loses a protected slot, exceeds the budget or a format's room, or names a slot in vain.

    Raises:
        InvalidPlan: with the reason.
    """
    keep, filled = plan.keep, view.filled
    if keep.shape != filled.shape:
        raise InvalidPlan(f"plan.keep has shape {tuple(keep.shape)}, the cache {tuple(filled.shape)}")
    if bool((keep & ~filled).any()):
        raise InvalidPlan("the plan keeps a slot that is empty")
    if bool((view.protected & filled & ~keep).any()):
        raise InvalidPlan("the plan evicts a protected slot")
    fp, code = keep[..., view.code_slots :], keep[..., : view.code_slots]
    fp_counts, code_counts = _host(fp), _host(code)
    if plan.demote is not None:
        if bool((plan.demote & ~fp).any()):
            raise InvalidPlan("the plan quantises a slot that it does not keep")
        moved = _host(plan.demote)
        fp_counts, code_counts = fp_counts - moved, code_counts + moved
    kept = fp_counts + code_counts
    if (kept > room.slots).any():
        at = np.unravel_index(int((kept - room.slots).argmax()), kept.shape)
        raise InvalidPlan(f"the plan keeps {kept[at]} slots of a head, the budget allows {room.slots[at]}")
    if room.total is not None and (together := kept[room.managed].sum()) > room.total:
        raise InvalidPlan(f"the plan keeps {together} slots in all heads, the budget allows {room.total}")
    if (fp_counts > room.fp[:, None]).any() or (code_counts > room.code[:, None]).any():
        raise InvalidPlan(
            f"the plan leaves {fp_counts.max()} FP and {code_counts.max()} quantised slots in a head, there is room "
            f"for {room.fp.max()} and {room.code.max()}"
        )


def _host(mask: Tensor) -> np.ndarray:
    counts: np.ndarray = mask.sum(-1, dtype=torch.int64).cpu().numpy()
    return counts
