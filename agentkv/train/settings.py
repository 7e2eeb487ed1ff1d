"""How to train."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from agentkv.train.errors import TrainError


@dataclass(frozen=True)
class TrainSettings:
    """All that decides the result, beside model and documents.

    Attributes:
        tokens: to train on; documents come again, in another order, until there are so many.
        length: the most tokens of a pack, which is computed at once.
        batch: packs per step of the optimizer.
        rank, alpha: of the adapter; its product is scaled by alpha / rank.
        lr: the highest learning rate, reached after the share `warmup` of all steps; then a cosine down to a tenth.
        clip: the gradient's largest norm.
        validations: how often to validate.
        patience: so many validations without a lower loss end the training.
    """

    tokens: int = 2_000_000
    length: int = 4096
    batch: int = 2
    rank: int = 16
    alpha: int = 32
    lr: float = 1e-3
    warmup: float = 0.05
    weight_decay: float = 0.0
    clip: float = 1.0
    validations: int = 20
    patience: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("tokens", "length", "batch", "rank", "alpha", "validations", "patience"):
            if getattr(self, name) < 1:
                raise TrainError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise TrainError(f"--lr must be a number above 0, not {self.lr}")
        if not 0 <= self.warmup < 1:
            raise TrainError(f"--warmup must be a share from 0 to below 1, not {self.warmup}")

    def lr_at(self, step: int, steps: int) -> float:
        """The learning rate of step `step`, counted from 0, of `steps`."""
        warm = max(1, round(self.warmup * steps))
        if step < warm:
            return self.lr * (step + 1) / warm
        done = (step - warm) / max(1, steps - warm)
        return self.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)
