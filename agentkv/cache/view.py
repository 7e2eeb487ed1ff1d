"""What a policy sees of a session's cache: tensors to read, nothing to change."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class CacheView:
    """L = layers, H = KV heads, S = slots in use, INT8 slots first, then FP slots, each in no particular order.

    Attributes:
        token_index: [L, H, S] int32: index of the slot's token in the ledger; −1 for an empty slot.
        mass: [L, H, S] float32 attention mass as the policy's ``MassRule`` accumulates it, or None.
        protected: [L, H, S] bool: slots that must stay (sinks, newest tokens).
        code_slots: how many of the S slots are INT8.
        logical_length: tokens the session has seen.
        confidence: the model's confidence at the newest token, in [0, 1], or None where nothing was generated yet.
    """

    token_index: Tensor
    mass: Tensor | None
    protected: Tensor
    code_slots: int
    logical_length: int
    confidence: float | None
