"""What is measured per slot while the model runs: attention, and values fixed when a slot is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@dataclass(frozen=True)
class AttentionRule:
    """How attention mass per slot is accumulated over queries.

    For each query in turn mass ← decay · mass + gain · p, where p is the query's probability on the slot, summed over
    the query heads that share the KV head.

    Attributes:
        decay: 1 adds up for ever; λ < 1 with gain 1 − λ is an exponential moving average.
        gain: weight of a query's probabilities.
        queries: only so many last queries of a chunk are looked at, since older ones have decayed away; None is all.
        resets: whether the mass of a head starts again at zero when that head gives slots up, and where the last
            ``queries`` queries before it has to do so begin.
        probs_of: the rule reads the probabilities themselves, of so many last queries, through :meth:`reduce`.
    """

    decay: float = 1.0
    gain: float = 1.0
    queries: int | None = None
    resets: bool = False
    probs_of: int = 0

    def weights(self, n: int) -> Tensor:
        """[m] float32: weights of the last m of n queries, oldest first."""
        m = n if self.queries is None else min(n, self.queries)
        return self.gain * self.decay ** torch.arange(m - 1, -1, -1, dtype=torch.float32)

    def keeps(self, n: int) -> float:
        """Factor of the mass there was before n queries."""
        return self.decay**n

    def reduce(self, probs: Tensor, token_index: Tensor, query_index: Tensor) -> tuple[Tensor, Tensor | None]:
        """Mass of one layer from the probabilities of the last m queries, for rules with ``probs_of``.

        Args:
            probs: [H, group, m, S] float32.
            token_index: [H, S] int32 of the slots.
            query_index: [m] int32 of the queries.

        Returns:
            mass [H, S] float32, and statistics of the layer [k] float32 or None to leave them as they are.

        Raises:
            NotImplementedError: here; a rule with ``probs_of`` brings its own.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class WindowMass(AttentionRule):
    """Mass summed over the newest ``queries`` queries before a decision (the observation window of SnapKV).

    A chunk of at least so many queries replaces what was there. Decoded tokens add to it, and it starts again at zero
    for a head that gives slots up or whose next ``queries`` tokens will fill it. With a trigger that acts every
    ``queries`` tokens or less often, the sum is over exactly the last ones once so many were decoded.
    """

    queries: int | None = 32
    resets: bool = True

    def weights(self, n: int) -> Tensor:
        return torch.ones(min(n, self.queries or n))

    def keeps(self, n: int) -> float:
        return 0.0 if n >= (self.queries or n) else 1.0


@dataclass(frozen=True)
class ModelFacts:
    """What a policy may know of the model it serves.

    Attributes:
        layers, kv_heads, head_dim, hidden_size: its shape.
        fingerprint: identifies the weights, in whatever dtype; computed on the first call.
        device: where it runs.
    """

    layers: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    fingerprint: Callable[[], str]
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


@runtime_checkable
class CreationRule(Protocol):
    """A value of each slot, fixed when the slot is made."""

    @property
    def needs_hidden(self) -> bool:
        """Whether it reads the input of the attention layer."""
        ...

    def bind(self, model: ModelFacts) -> CreationRule:
        """The rule for one model. Raises AgentKVError if it does not fit."""
        ...

    def __call__(self, layer: int, keys: Tensor, hidden: Tensor | None) -> Tensor:
        """keys [H, n, D] as stored (RoPE applied) and the attention layer's input [n, hidden] to [H, n] float32."""
        ...
