"""One forward pass over a session's cache: what it reads, where it writes, and what it measures on the way."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from agentkv.cache.store import KVStore, Placement
from agentkv.policies.base import Policy


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass over n new tokens of one session. L = layers, H = KV heads, S = slots in use, the new included.

    Attributes:
        store: where keys and values go.
        policy: whose rules say what is measured on the way.
        first_token: token index of the first new token; the session's logical length before this step.
        query_index: [n] int32 token indices of the new tokens.
        positions: [n] int64 positions that the model is told.
        placement: where the new tokens go.
        rows: [L, 2 · H · n] int64 rows of the arena for the new keys, then the new values.
        mass: [L, H, S] float32, filled by the forward pass, or None.
        mass_weights: [m ≤ n] float32, or None.
        creation: [L, H, n] float32, filled by the layers, or None.
        layer_stats: per layer what the attention rule says of it; filled by the layers.
        hidden: per layer the attention's input [n, hidden], where the policy reads it.
        surprise: −log p of the tokens [n], where the policy reads it; filled by the model, empty until then.
    """

    store: KVStore
    policy: Policy
    first_token: int
    query_index: Tensor
    positions: Tensor
    placement: Placement
    rows: Tensor
    mass: Tensor | None
    mass_weights: Tensor | None
    creation: Tensor | None
    layer_stats: dict[int, Tensor]
    hidden: dict[int, Tensor]
    surprise: list[Tensor]

    @property
    def tokens(self) -> int:
        return len(self.query_index)

    def note_created(self, layer: int, key: Tensor) -> None:
        """A layer's new keys [H, n, D] are there: value them, if the policy does."""
        if self.creation is not None and self.policy.creation is not None:
            self.creation[layer] = self.policy.creation(layer, key, self.hidden.pop(layer, None))
