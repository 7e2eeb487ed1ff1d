"""One forward pass over a session's cache: what it reads, where it writes, and what it measures on the way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agentkv.cache.store import KVStore, Placement
from agentkv.policies.base import Policy
from agentkv_kernels import PagedKV


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
        views: arguments of the attention kernel, one per layer.
        mass: [L, H, S] float32, filled by the layers, or None.
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
    views: list[PagedKV]
    mass: Tensor | None
    mass_weights: Tensor | None
    creation: Tensor | None
    layer_stats: dict[int, Tensor]
    hidden: dict[int, Tensor]
    surprise: list[Tensor]

    @property
    def tokens(self) -> int:
        return len(self.query_index)

    @property
    def reads_surprise(self) -> bool:
        return self.policy.scorer is not None and self.policy.scorer.needs_surprise

    def note_mass(self, layer: int, mass: Tensor) -> None:
        """Put a layer's mass [H, S of the layer] where that layer's slots are in the metadata in use."""
        assert self.mass is not None
        code = self.views[layer].code_slots
        first_fp, fp = self.mass.shape[-1] - self.store.fp_slots, mass.shape[-1] - code
        self.mass[layer, :, :code] = mass[:, :code]
        self.mass[layer, :, first_fp : first_fp + fp] = mass[:, code:]

    def note_created(self, layer: int, key: Tensor) -> None:
        """A layer's new keys [H, n, D] are there: value them, if the policy does."""
        if self.creation is not None and self.policy.creation is not None:
            self.creation[layer] = self.policy.creation(layer, key, self.hidden.pop(layer, None))


def paged_views(store: KVStore, new_tokens: int) -> list[PagedKV]:
    """Arguments of the attention kernel for each layer, the slots of the ``new_tokens`` newest included."""
    fp_most, code_most = store.fp.used.max(1), store.code.used.max(1)
    even = (store.fp.used == fp_most[:, None]).all(1) & (store.code.used == code_most[:, None]).all(1)
    fp_index, code_index = store.fp.page_index(), store.code.page_index()
    views = []
    for layer, (fp, code, uniform) in enumerate(zip(fp_most.tolist(), code_most.tolist(), even, strict=True)):
        tokens = store.token_index[layer, :, store.code_cap : store.code_cap + fp]
        if code:
            tokens = torch.cat([store.token_index[layer, :, :code], tokens], dim=-1)
        code_pages = -(-code // store.code.page_slots)
        views.append(
            PagedKV(
                fp_halves=store.fp.halves,
                fp_index=fp_index[layer, ..., : -(-fp // store.fp.page_slots)],
                fp_slots=fp,
                code_halves=store.code.halves,
                code_index=code_index[layer, ..., :code_pages],
                code_slots=code,
                scales=store.scales[layer, ..., :code],
                token_index=tokens,
                # A single query sees its own slot too; several see one another's only as far as they are older.
                visible_slots=(code + fp - (new_tokens if new_tokens > 1 else 0)) if uniform else 0,
                ragged=not uniform,
                code_format=store.code_format,
                channel_scales=store.channel_scales[layer, :, :code_pages],
            )
        )
    return views
