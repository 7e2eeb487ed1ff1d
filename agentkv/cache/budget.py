"""Budgets: tokens, bytes or a share, resolved to slots. The cap is hard, so the worst case is computed up front."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from agentkv.cache.formats import KVLayout, SlotCaps
from agentkv.errors import AgentKVError, BudgetTooSmall
from agentkv.policies.base import Policy

_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_PATTERN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z%]*)\s*")

BudgetLike = int | str | None
_LEAST = 4
"""Slots below which no session makes sense."""


@dataclass(frozen=True)
class Budget:
    """What the user asked for; exactly one field is set, or none for "as much as the window holds"."""

    tokens: int | None = None
    bytes: int | None = None
    share: float | None = None

    @classmethod
    def parse(cls, text: BudgetLike) -> Budget:
        """``512`` or "512" (tokens), "24MiB" (bytes), "25%" (share of full KV at the model's window), None.

        Raises AgentKVError for anything else.
        """
        if text is None:
            return cls()
        match = _PATTERN.fullmatch(str(text))
        if match is None or isinstance(text, bool):
            raise AgentKVError(f"budget {text!r} is not understood; write tokens (512), bytes (24MiB) or a share (25%)")
        number, unit = float(match[1]), match[2].lower()
        if number <= 0:
            raise AgentKVError(f"budget {text!r} must be above zero")
        if unit == "":
            if not number.is_integer():
                raise AgentKVError(f"budget {text!r}: a number of tokens is whole; for bytes add a unit, as in 24MiB")
            return cls(tokens=int(number))
        if unit == "%":
            if number > 100:
                raise AgentKVError(f"budget {text!r} is above 100%")
            return cls(share=number / 100)
        if unit not in _UNITS:
            raise AgentKVError(f"budget {text!r}: unknown unit {match[2]!r}; units: B, KiB, MiB, GiB, KB, MB, GB, %")
        return cls(bytes=int(number * _UNITS[unit]))

    @property
    def unlimited(self) -> bool:
        return self.tokens is None and self.bytes is None and self.share is None


@dataclass(frozen=True)
class Limits:
    """A budget resolved for one session.

    Attributes:
        max_slots: the most slots of a (layer, head), and so the most tokens attended to.
        dense_slots: as long as the session has no more tokens than this, all of them are kept in the model's dtype,
            whatever the policy: nothing is dropped or quantised before the budget demands it.
        max_bytes: bytes that pages and metadata can never exceed.
        chunk: the most tokens of one forward pass.
    """

    max_slots: int
    dense_slots: int
    max_bytes: int
    chunk: int


def full_bytes(layout: KVLayout, tokens: int) -> int:
    """Pages and metadata of so many tokens under policy ``full``: what shares are shares of."""
    caps = SlotCaps(fp=tokens)
    return layout.metadata_bytes(caps, with_mass=False) + layout.payload_bytes(caps)


def dense_bytes(policy: Policy, layout: KVLayout, slots: int) -> int:
    """Pages and metadata of ``slots`` tokens kept whole in the model's dtype."""
    caps = SlotCaps(fp=slots)
    return layout.metadata_bytes(caps, policy.mass is not None) + layout.payload_bytes(caps)


def worst_bytes(policy: Policy, layout: KVLayout, slots: int) -> int:
    """The most bytes a session of ``slots`` slots can hold once the policy is at work, whatever it is fed."""
    if policy.precision is None:
        return dense_bytes(policy, layout, slots)
    caps = policy.caps(slots)
    metadata = layout.metadata_bytes(caps, policy.mass is not None)
    widths = range(min(policy.fp_window(slots), caps.fp), caps.fp + 1)
    return metadata + max(layout.payload_bytes(SlotCaps(fp, slots - fp)) for fp in widths)


def resolve(budget: Budget, policy: Policy, layout: KVLayout, window: int) -> Limits:
    """Slots, bytes and chunk size of a session.

    Args:
        budget: as parsed.
        policy: whose protected set must fit.
        layout: of the model.
        window: the model's context window in tokens.

    Raises:
        BudgetTooSmall: the protected set does not fit.
    """
    if budget.unlimited:
        _check_protected(budget, policy, layout, window, window)
        return Limits(window, window, dense_bytes(policy, layout, window), policy.prefill_chunk(window))
    if budget.tokens is not None:
        slots = min(budget.tokens, window)
    else:
        allowed = budget.bytes if budget.bytes is not None else int((budget.share or 0.0) * full_bytes(layout, window))
        slots = _most(lambda n: worst_bytes(policy, layout, n) <= allowed, window)
    _check_protected(budget, policy, layout, slots, window)
    at_work = worst_bytes(policy, layout, slots)
    max_bytes = max(at_work, budget.bytes or 0)
    dense = _most(lambda n: dense_bytes(policy, layout, n) <= max_bytes, window)
    return Limits(slots, dense, max(at_work, dense_bytes(policy, layout, dense)), policy.prefill_chunk(slots))


def _most(fits: Callable[[int], bool], most: int) -> int:
    """The largest number from 0 to ``most`` that fits, for a test that only ever goes from true to false."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _check_protected(budget: Budget, policy: Policy, layout: KVLayout, slots: int, window: int) -> None:
    if slots >= max(_LEAST, policy.least_slots(slots)):
        return
    least = next((n for n in range(_LEAST, window + 1) if n >= policy.least_slots(n)), None)
    if least is None:
        raise BudgetTooSmall(
            f"policy {policy.name!r} protects {policy.sinks} sinks and {policy.recent!r} newest tokens, which leaves "
            f"nothing to evict within the window of {window} tokens; lower sinks or recent"
        )
    size = worst_bytes(policy, layout, least)
    why = f"policy {policy.name!r} protects {policy.sinks} sinks and {policy.recent_slots(slots)} newest tokens"
    if least == _LEAST:
        why = f"a session needs {_LEAST}"
    raise BudgetTooSmall(
        f"the budget {_as_text(budget)} holds {slots} tokens, but {why}; give at least {least} tokens ({size} bytes)"
    )


def _as_text(budget: Budget) -> str:
    if budget.unlimited:
        return "of the whole window"
    if budget.tokens is not None:
        return f"of {budget.tokens} tokens"
    return f"of {budget.bytes} bytes" if budget.bytes is not None else f"of {100 * (budget.share or 0):g}%"
