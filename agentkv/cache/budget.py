"""Budgets: tokens, bytes or a share, resolved to slots. The cap is hard, so the worst case is computed up front."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentkv.cache.formats import KVFormat, KVLayout, SlotCaps
from agentkv.errors import AgentKVError, BudgetTooSmall
from agentkv.policies.base import Policy

_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_PATTERN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z%]*)\s*")

BudgetLike = int | str | None
_LEAST = 4
"""Slots below which no session makes sense."""
DENSE_CHUNK = 256
"""Tokens per step while nothing needs to be dropped."""


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
class Shape:
    """How a number of slots is laid out over a model. L = layers.

    Attributes:
        max_slots: slots of a head on average over the layers that the policy manages: tokens attended to.
        layer_slots: [L] the most slots of a head in each layer.
        fixed: [L] sliding-window layers outside the policy: they hold their window, whatever the budget.
        caps: [L] room in each format once slots are quantised.
        total: the most slots of all heads of managed layers together, where heads compete; else None.
        chunk: the most tokens of one forward pass once slots have to be given up.
    """

    max_slots: int
    layer_slots: tuple[int, ...]
    fixed: tuple[bool, ...]
    caps: tuple[SlotCaps, ...]
    total: int | None
    chunk: int

    @property
    def managed(self) -> tuple[int, ...]:
        """Layers that the policy manages."""
        return tuple(layer for layer, fixed in enumerate(self.fixed) if not fixed)

    @property
    def least_layer(self) -> int:
        """Slots that every head of a managed layer can count on: the layer that has fewest, or a share of the total."""
        return min([self.max_slots, *(self.layer_slots[layer] for layer in self.managed)])


@dataclass(frozen=True)
class Limits:
    """A budget resolved for one session.

    Attributes:
        shape: slots per layer, and what a chunk may bring.
        dense_slots: as long as the session has no more tokens than this, all of them are kept in the model's dtype,
            whatever the policy: nothing is dropped or quantised before the budget demands it.
        max_bytes: bytes that pages and metadata can never exceed.
    """

    shape: Shape
    dense_slots: int
    max_bytes: int

    @property
    def max_slots(self) -> int:
        return self.shape.max_slots


def full_bytes(layout: KVLayout, tokens: int) -> int:
    """Pages and metadata of so many tokens under policy ``full``: what shares are shares of."""
    return dense_bytes(Policy(name="full", scorer=None), layout, tokens)


def dense_bytes(policy: Policy, layout: KVLayout, slots: int, width: int = 0) -> int:
    """Pages and metadata of ``slots`` tokens kept whole in the model's dtype (as far as windows reach).

    Metadata is at least ``width`` slots wide.
    """
    caps = [SlotCaps(min(slots, _window_slots(layout, layer) or slots)) for layer in range(layout.layers)]
    metadata = layout.metadata_bytes([SlotCaps(max(slots, width))], policy.code_format, len(policy.columns))
    return metadata + layout.payload_bytes(caps)


def worst_bytes(policy: Policy, layout: KVLayout, slots: int, exempt: frozenset[int] = frozenset()) -> int:
    """The most bytes a session of ``slots`` slots can hold once the policy is at work, whatever it is fed."""
    shape = shape_of(policy, layout, slots, exempt)
    counted = range(layout.layers) if shape.total is None else set(range(layout.layers)) - set(shape.managed)
    pages = layout.kv_heads * sum(
        _worst_pages(policy, layout, shape.layer_slots[layer], shape.caps[layer]) for layer in counted
    )
    if shape.total is not None:  # whoever holds them, each head rounds up to a page
        heads = len(shape.managed) * layout.kv_heads
        pages += (shape.total + heads * (layout.page_slots - 1)) // layout.page_slots
    # Whoever outlives the window keeps each slot's position, an int32, beside its token index.
    columns = len(policy.columns) + (policy.evicts and layout.rebases)
    return layout.metadata_bytes(shape.caps, policy.code_format, columns) + pages * layout.page_bytes


def _worst_pages(policy: Policy, layout: KVLayout, slots: int, cap: SlotCaps) -> int:
    """The most pages of a head of ``slots`` slots, over all mixes of formats it can have."""
    if policy.precision is None or not cap.code:
        return layout.pages_for(slots, KVFormat.FP)
    least = min(policy.precision.least_fp(slots), cap.fp)
    fp = np.arange(least, cap.fp + 1)
    fmt = policy.code_format
    pages = -(-fp // layout.slots_per_page(KVFormat.FP)) + -(-(slots - fp) // layout.slots_per_page(fmt))
    return int(pages.max())


def _window_slots(layout: KVLayout, layer: int) -> int | None:
    """Slots that a sliding-window layer fills while chunks are as large as they get."""
    window = layout.window(layer)
    return None if window is None else window - 1 + DENSE_CHUNK


def shape_of(policy: Policy, layout: KVLayout, slots: int, exempt: frozenset[int] = frozenset()) -> Shape:
    """Lay ``slots`` slots per head out over the layers; slots of ``exempt`` layers are never quantised."""
    windows = [layout.window(layer) for layer in range(layout.layers)]
    hybrid = any(window is None for window in windows)
    # In a model of sliding layers only, the policy manages those for which there is less room than they need.
    most = policy.prefill_chunk(slots, slots)
    fixed = tuple(w is not None and (hybrid or not policy.evicts or slots >= w - 1 + most) for w in windows)
    shares = policy.allocator.layer_slots(slots, fixed.count(False), policy.least_slots(slots))
    chunk = policy.prefill_chunk(slots, min([slots, *shares]))
    managed = iter(shares)
    # A fixed layer holds what the first of a chunk's tokens sees, and the chunk.
    layer_slots = tuple(
        w - 1 + chunk if w and outside else next(managed) for w, outside in zip(windows, fixed, strict=True)
    )

    def caps(layer: int) -> SlotCaps:
        n = layer_slots[layer]
        if policy.precision is None or fixed[layer] or layer in exempt:
            return SlotCaps(n)
        return policy.precision.caps(n, chunk, layout)

    return Shape(
        max_slots=slots,
        layer_slots=layer_slots,
        fixed=fixed,
        caps=tuple(caps(layer) for layer in range(layout.layers)),
        total=fixed.count(False) * layout.kv_heads * slots if policy.allocator.global_total else None,
        chunk=chunk,
    )


def resolve(
    budget: Budget, policy: Policy, layout: KVLayout, window: int, exempt: frozenset[int] = frozenset()
) -> Limits:
    """Slots, bytes and chunk size of a session.

    Args:
        budget: as parsed.
        policy: whose protected set must fit.
        layout: of the model.
        window: the model's context window in tokens.
        exempt: layers whose slots are never quantised.

    Raises:
        BudgetTooSmall: the protected set does not fit.
    """
    if budget.unlimited:
        slots = window
    elif budget.tokens is not None:
        slots = min(budget.tokens, window)
    else:
        allowed = budget.bytes if budget.bytes is not None else int((budget.share or 0.0) * full_bytes(layout, window))
        slots = _most(lambda n: worst_bytes(policy, layout, n, exempt) <= allowed, window)
    _check_protected(budget, policy, layout, slots, window, exempt)
    shape = shape_of(policy, layout, slots, exempt)
    at_work = worst_bytes(policy, layout, slots, exempt)
    most = max(at_work, budget.bytes or 0)
    # Where nothing is quantised, metadata has from the start the width that the widest layer needs.
    width = 0 if any(cap.code for cap in shape.caps) else max(cap.fp for cap in shape.caps)
    dense = _most(lambda n: dense_bytes(policy, layout, n, width) <= most, window)
    if budget.tokens is not None and policy.precision is None:
        dense = min(dense, slots)  # bytes set aside for what a session may hold later are no tokens
    if budget.unlimited:
        # Who asks for quantisation and sets no budget wants it from the start; the others have nothing to do.
        quantises = policy.precision is not None and not policy.evicts
        dense = min(window, max((cap.fp for cap in shape.caps if cap.code), default=window)) if quantises else window
    return Limits(shape, dense, max(at_work, dense_bytes(policy, layout, dense, width)))


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


def _check_protected(
    budget: Budget, policy: Policy, layout: KVLayout, slots: int, window: int, exempt: frozenset[int]
) -> None:
    if slots >= _LEAST and _holds_protected(policy, layout, slots):
        return
    least = next((n for n in range(_LEAST, window + 1) if _holds_protected(policy, layout, n)), None)
    if least is None:
        raise BudgetTooSmall(
            f"policy {policy.name!r} protects {policy.sinks} sinks and {policy.recent!r} newest tokens, which leaves "
            f"nothing to evict within the window of {window} tokens; lower sinks or recent"
        )
    size = worst_bytes(policy, layout, least, exempt)
    why = f"policy {policy.name!r} protects {policy.sinks} sinks and {policy.recent_slots(slots)} newest tokens"
    if (freed := policy.trigger.headroom(least)) > 1:
        why += f" and frees {freed} at a time"
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


def _holds_protected(policy: Policy, layout: KVLayout, slots: int) -> bool:
    """Whether the smallest managed layer holds the protected set and has room to work."""
    return min(shape_of(policy, layout, slots).least_layer, slots) >= policy.least_slots(slots)
