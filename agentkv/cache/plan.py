"""A structural change of a cache, made by a policy from a read-only view and checked before anything moves."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

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


def validate(plan: Plan, filled: Tensor, protected: Tensor, max_slots: int, int8_slots: int) -> None:
    """Refuse a plan that loses a protected slot, exceeds the budget or names a slot twice or in vain.

    Args:
        plan: the plan.
        filled: [L, H, slots] bool, slots that hold a token.
        protected: [L, H, slots] bool, slots that must stay.
        max_slots: the most slots a head may keep.
        int8_slots: how many of the slots (the first ones) are INT8.

    Raises:
        InvalidPlan: with the reason.
    """
    if plan.keep.shape != filled.shape:
        raise InvalidPlan(f"plan.keep has shape {tuple(plan.keep.shape)}, the cache {tuple(filled.shape)}")
    if bool((plan.keep & ~filled).any()):
        raise InvalidPlan("the plan keeps a slot that is empty")
    if bool((protected & filled & ~plan.keep).any()):
        raise InvalidPlan("the plan evicts a protected slot")
    most = int(plan.keep.sum(-1).max())
    if most > max_slots:
        raise InvalidPlan(f"the plan keeps {most} slots of a head, the budget allows {max_slots}")
    if plan.demote is not None and bool((plan.demote & ~plan.keep[..., int8_slots:]).any()):
        raise InvalidPlan("the plan quantises a slot that it does not keep")
