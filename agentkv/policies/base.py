"""What a KV policy is: a scorer, a target for the number of slots, a precision rule and protection, put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from agentkv.cache.formats import SlotCaps
from agentkv.cache.view import CacheView
from agentkv.errors import AgentKVError

Share = int | float
"""A number of slots (int), or a share of the session's slots (float from 0 to 1)."""


def as_slots(share: Share, max_slots: int) -> int:
    """Resolve a :data:`Share` against the session's slots."""
    return round(share * max_slots) if isinstance(share, float) else share


@dataclass(frozen=True)
class MassRule:
    """How attention mass per slot is accumulated over queries.

    For each query in turn mass ← decay · mass + gain · p, where p is the query's probability on the slot, summed over
    the query heads that share the KV head.

    Attributes:
        decay: 1 adds up for ever; λ < 1 with gain 1 − λ is an exponential moving average.
        gain: weight of a query's probabilities.
        queries: only so many last queries of a chunk are looked at, since older ones have decayed away; None is all.
    """

    decay: float = 1.0
    gain: float = 1.0
    queries: int | None = None

    def weights(self, n: int) -> Tensor:
        """[m] float32: weights of the last m of n queries, oldest first."""
        m = n if self.queries is None else min(n, self.queries)
        return self.gain * self.decay ** torch.arange(m - 1, -1, -1, dtype=torch.float32)


class Scorer(Protocol):
    """Says how much each slot is worth. A pure function of the view."""

    @property
    def mass(self) -> MassRule | None:
        """The attention mass it reads, if any."""
        ...

    def __call__(self, view: CacheView) -> Tensor:
        """[L, H, S] float32, higher is kept. Values of protected and empty slots are ignored."""
        ...


@dataclass(frozen=True)
class ConfidenceTarget:
    """How many slots a session may keep: fewer where the model is sure of its next token (CONF-KV).

    Attributes:
        threshold: τ; at this confidence or above, the tight target holds.
        tight: slots kept when confident.
    """

    threshold: float
    tight: Share

    def slots(self, confidence: float | None, max_slots: int) -> int:
        if confidence is None or confidence < self.threshold:
            return max_slots
        return as_slots(self.tight, max_slots)


@dataclass(frozen=True)
class AgePrecision:
    """The newest slots stay in the model's dtype, older ones are stored in INT8.

    Attributes:
        fp_window: how many newest slots of each head stay FP.
        block: slots by which the FP region may exceed the window before the excess is quantised in one go.
    """

    fp_window: Share
    block: int = 16


@dataclass(frozen=True)
class Policy:
    """A policy, resolved for nothing yet: the same object serves every session.

    Attributes:
        name: as registered.
        scorer: None never evicts.
        sinks: the first tokens of the session, never evicted.
        recent: the newest tokens, never evicted.
        target: None means the budget.
        precision: None stores everything in the model's dtype.
        options: what the policy was built with, for reports.
    """

    name: str
    scorer: Scorer | None
    sinks: int = 0
    recent: Share = 0
    target: ConfidenceTarget | None = None
    precision: AgePrecision | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def evicts(self) -> bool:
        return self.scorer is not None

    @property
    def mass(self) -> MassRule | None:
        return None if self.scorer is None else self.scorer.mass

    @property
    def needs_confidence(self) -> bool:
        return self.target is not None

    def recent_slots(self, max_slots: int) -> int:
        # With mixed precision the newest token is always there, at full width, to be the next one quantised.
        return max(as_slots(self.recent, max_slots), 0 if self.precision is None else 1)

    def fp_window(self, max_slots: int) -> int:
        return max_slots if self.precision is None else max(1, as_slots(self.precision.fp_window, max_slots))

    def target_slots(self, confidence: float | None, max_slots: int) -> int:
        """Slots per head the session may hold for its next token, at most ``max_slots``."""
        if self.target is None:
            return max_slots
        return max(self.target.slots(confidence, max_slots), self.least_slots(max_slots))

    def least_slots(self, max_slots: int) -> int:
        """The protected set and one slot more."""
        return self.sinks + self.recent_slots(max_slots) + 1

    def prefill_chunk(self, max_slots: int) -> int:
        """Tokens that go in at once: room for them is made first, so a large chunk costs kept slots."""
        # With mixed precision a chunk arrives at full width beside quantised slots: smaller pieces, more tokens kept.
        most, share = (256, 4) if self.precision is None else (128, 8)
        unprotected = max_slots - self.sinks - self.recent_slots(max_slots)
        return max(1, min(most, max_slots // share, unprotected))

    def caps(self, max_slots: int) -> SlotCaps:
        """The most slots of each format in a session of ``max_slots``."""
        if self.precision is None:
            return SlotCaps(fp=max_slots)
        window = self.fp_window(max_slots)
        slack = max(self.prefill_chunk(max_slots), self.precision.block)
        return SlotCaps(fp=min(max_slots, window + slack), code=max(0, max_slots - window))


def check_count(policy: str, name: str, value: object) -> int:
    """A whole number ≥ 0 given by a user. Raises AgentKVError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise AgentKVError(f"{policy}: {name} must be a whole number ≥ 0, not {value!r}")
    return value


def check_unit(policy: str, name: str, value: object) -> float:
    """A number from 0 to 1 given by a user. Raises AgentKVError otherwise."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise AgentKVError(f"{policy}: {name} must be a number from 0 to 1, not {value!r}")
    return float(value)


def check_share(policy: str, name: str, value: object) -> Share:
    """A share given by a user: an int ≥ 0 or a float in [0, 1]. Raises AgentKVError otherwise."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    share = isinstance(value, float) and 0 <= value <= 1
    if not (whole or share):
        raise AgentKVError(
            f"{policy}: {name} must be a whole number of slots or a share from 0.0 to 1.0, not {value!r}"
        )
    assert isinstance(value, int | float)
    return value
