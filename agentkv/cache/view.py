"""What a policy sees of a session's cache: tensors to read, nothing to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class CacheView:
    """L = layers, H = KV heads, S = slots in use, quantised slots first, then FP slots, each in no particular order.

    Attributes:
        token_index: [L, H, S] int32: index of the slot's token in the ledger; −1 for an empty slot.
        mass: [L, H, S] float32 attention as the scorer's ``AttentionRule`` accumulates it, or None.
        creation: [L, H, S] float32: what the scorer's ``CreationRule`` gave each slot when it was made, or None.
        protected: [L, H, S] bool: slots that must stay (sinks, newest tokens, protected roles).
        code_slots: how many of the S slots are quantised.
        logical_length: tokens the session has seen.
        confidence: the model's confidence at the newest token, in [0, 1], or None where nothing was generated yet.
        recent: how many newest tokens are protected.
        segments: [T] int32: for every token of the ledger the number of its segment (a sentence or a line), or None.
        surprise: [T] float32: −log p of every token of the ledger when it was read, in nats, or None.
        ids: [T] int32: ids of the ledger's tokens, or None.
        layer_stats: [L, k] float32: what the ``AttentionRule`` says of whole layers, or None.
        read_keys: reads all keys, dequantised: [L, H, S, D] float32. As costly as an attention pass.
        observations: [T] int32: for every token of the ledger the number of the observation it belongs to, −1 for
            none, or None where no roles are known.
        expired: [L, H, S] bool: slots that have left a sliding window, which no query will see again, or None: none.
    """

    token_index: Tensor
    mass: Tensor | None
    protected: Tensor
    code_slots: int
    logical_length: int
    confidence: float | None
    read_keys: Callable[[], Tensor]
    recent: int = 0
    creation: Tensor | None = None
    segments: Tensor | None = None
    surprise: Tensor | None = None
    ids: Tensor | None = None
    layer_stats: Tensor | None = None
    observations: Tensor | None = None
    expired: Tensor | None = None

    @property
    def filled(self) -> Tensor:
        """[L, H, S] bool."""
        return self.token_index >= 0

    def of_tokens(self, values: Tensor) -> Tensor:
        """Values of ledger tokens [T] at each slot: [L, H, S]; arbitrary at empty slots."""
        return values[self.token_index.long().clamp_min(0)]
