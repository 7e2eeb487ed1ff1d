"""How many slots each layer and head gets out of the same total."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


class Allocator(Protocol):
    """A pure function of the mean number of slots per head."""

    def layer_slots(self, slots: int, layers: int, protected: int) -> tuple[int, ...]:
        """The most slots of a head in each layer.

        Args:
            slots: mean over layers; the sum of the result is at most ``layers · slots`` unless ``global_total``.
            layers: how many layers share.
            protected: slots that every head must be able to hold: what is never evicted, and what a trigger frees.
        """
        ...

    @property
    def global_total(self) -> bool:
        """Whether heads compete for one total, ``layer_slots`` being only the most that any of them may reach."""
        ...


@dataclass(frozen=True)
class Uniform:
    """The same for all."""

    global_total: bool = False

    def layer_slots(self, slots: int, layers: int, protected: int) -> tuple[int, ...]:
        return (slots,) * layers


@dataclass(frozen=True)
class Pyramid:
    """Linear from many slots in the first layer to few in the last (PyramidKV, Cai et al., arXiv 2406.02069).

    Of the mean C of unprotected slots, the last layer gets C / beta and the first 2C − C / beta.
    """

    beta: float = 20.0
    global_total: bool = False

    def layer_slots(self, slots: int, layers: int, protected: int) -> tuple[int, ...]:
        spare = max(0, slots - protected)
        least = spare / self.beta
        most = 2 * spare - least
        step = (most - least) / max(1, layers - 1)
        return tuple(protected + math.floor(most - step * layer) for layer in range(layers)) if layers > 1 else (slots,)


@dataclass(frozen=True)
class Geometric:
    """N(l) = max(least, N₀ · beta^(l/L)), with N₀ such that the mean is what was granted (CONF-KV-L).

    Attributes:
        beta: ratio of the last layer to the first; 0.5 in the paper.
        least: slots below which no layer falls (the paper's N_min, 96), or all of them if the mean is less.
    """

    beta: float = 0.5
    least: int = 96
    global_total: bool = False

    def layer_slots(self, slots: int, layers: int, protected: int) -> tuple[int, ...]:
        least = min(slots, max(self.least, protected + 1))

        def at(first: float) -> tuple[int, ...]:
            return tuple(max(least, math.floor(first * self.beta ** (layer / layers))) for layer in range(layers))

        low, high = float(slots), slots / self.beta + 1
        while high - low > 0.5:
            middle = (low + high) / 2
            low, high = (middle, high) if sum(at(middle)) <= layers * slots else (low, middle)
        return at(low)


@dataclass(frozen=True)
class Global:
    """All heads of all layers compete for one total (TRIM-KV's dynamic budget, arXiv 2605.09649).

    Attributes:
        ceiling: the most slots of one head, in multiples of the mean: slot metadata is as wide as that everywhere.
    """

    ceiling: float = 4.0
    global_total: bool = True

    def layer_slots(self, slots: int, layers: int, protected: int) -> tuple[int, ...]:
        return (math.floor(self.ceiling * slots),) * layers
