"""When a policy acts, and how far: the number of slots a session may hold for its next token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agentkv.policies.shares import Share, as_slots


class Trigger(Protocol):
    """Pure functions of the confidence and of the slots a head may hold at most."""

    @property
    def needs_confidence(self) -> bool: ...

    def slots(self, confidence: float | None, max_slots: int) -> int:
        """Slots per head for the next token, at most ``max_slots``."""
        ...

    def headroom(self, max_slots: int) -> int:
        """When a decoded token finds no room: how many slots are emptied in one go. 1 replaces slot by slot."""
        ...


@dataclass(frozen=True)
class EachToken:
    """Every token that finds the cache full replaces one slot of each head."""

    needs_confidence: bool = False

    def slots(self, confidence: float | None, max_slots: int) -> int:
        return max_slots

    def headroom(self, max_slots: int) -> int:
        return 1


@dataclass(frozen=True)
class Block:
    """A full cache is cut down by a block, then grows back: one decision serves many tokens.

    Attributes:
        size: slots emptied at once.
    """

    size: Share = 32
    needs_confidence: bool = False

    def slots(self, confidence: float | None, max_slots: int) -> int:
        return max_slots

    def headroom(self, max_slots: int) -> int:
        return max(1, as_slots(self.size, max_slots))


@dataclass(frozen=True)
class Confidence:
    """Fewer slots while the model is sure of its next token (CONF-KV).

    Attributes:
        threshold: τ; at this confidence or above, the tight number holds.
        tight: slots kept when confident.
    """

    threshold: float = 0.7
    tight: Share = 0.75
    needs_confidence: bool = True

    def slots(self, confidence: float | None, max_slots: int) -> int:
        if confidence is None or confidence < self.threshold:
            return max_slots
        return as_slots(self.tight, max_slots)

    def headroom(self, max_slots: int) -> int:
        return 1
