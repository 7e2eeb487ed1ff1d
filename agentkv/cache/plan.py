"""A structural change of a cache, made by a policy from a read-only view and checked before anything moves."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from agentkv.cache.formats import SlotCaps
from agentkv.cache.view import CacheView
from agentkv.errors import AgentKVError


class InvalidPlan(AgentKVError):
    """A policy's plan that would break an invariant; the cache is left as it was."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of each slot. Slots are numbered INT8 first, then FP, as in the view.

    Attributes:
        keep: [L, H, slots] bool; a filled slot that is not kept is evicted.
        demote: [L, H, FP slots] bool, or None: kept FP slots to be stored in INT8 from now on.
    """

    keep: Tensor
    demote: Tensor | None = None


def validate(plan: Plan, view: CacheView, max_slots: int, caps: SlotCaps) -> None:
    """Refuse a plan that loses a protected slot, exceeds the budget or a format's room, or names a slot in vain.

    Args:
        plan: the plan.
        view: what it was made from.
        max_slots: the most slots a head may keep.
        caps: the most slots of each format a head may hold afterwards.

    Raises:
        InvalidPlan: with the reason.
    """
    keep, filled = plan.keep, view.token_index >= 0
    if keep.shape != filled.shape:
        raise InvalidPlan(f"plan.keep has shape {tuple(keep.shape)}, the cache {tuple(filled.shape)}")
    if bool((keep & ~filled).any()):
        raise InvalidPlan("the plan keeps a slot that is empty")
    if bool((view.protected & filled & ~keep).any()):
        raise InvalidPlan("the plan evicts a protected slot")
    most = int(keep.sum(-1).max())
    if most > max_slots:
        raise InvalidPlan(f"the plan keeps {most} slots of a head, the budget allows {max_slots}")
    fp, code = keep[..., view.code_slots :].sum(-1), keep[..., : view.code_slots].sum(-1)
    if plan.demote is not None:
        if bool((plan.demote & ~keep[..., view.code_slots :]).any()):
            raise InvalidPlan("the plan quantises a slot that it does not keep")
        moved = plan.demote.sum(-1)
        fp, code = fp - moved, code + moved
    if int(fp.max()) > caps.fp or int(code.max()) > caps.code:
        raise InvalidPlan(
            f"the plan leaves {int(fp.max())} FP and {int(code.max())} INT8 slots in a head, there is room for "
            f"{caps.fp} and {caps.code}"
        )
