"""One session's cache under its policy: makes room before tokens go in, and books what the forward pass did."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from agentkv.cache.arena import PageArena
from agentkv.cache.budget import Limits
from agentkv.cache.plan import validate
from agentkv.cache.store import KVStore
from agentkv.cache.view import CacheView
from agentkv.errors import AgentKVError
from agentkv.policies import decide
from agentkv.policies.base import Policy
from agentkv_kernels import PagedKV

DENSE_CHUNK = 256
"""Tokens per step while nothing needs to be dropped."""


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass over n new tokens of one session. L = layers, H = KV heads, S = slots in use, the new included.

    Attributes:
        store: where keys and values go.
        first_token: token index of the first new token; the session's logical length before this step.
        query_index: [n] int32 token indices of the new tokens.
        rows: [L, 2 · H · n] int64 rows of the arena for the new keys, then the new values.
        views: arguments of the attention kernel, one per layer.
        mass: [L, H, S] float32, filled by the layers, or None.
        mass_weights: [m ≤ n] float32, or None.
    """

    store: KVStore
    first_token: int
    query_index: Tensor
    rows: Tensor
    views: list[PagedKV]
    mass: Tensor | None
    mass_weights: Tensor | None

    @property
    def tokens(self) -> int:
        return len(self.query_index)

    def write(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Store a layer's new keys and values, each [H, n, D] in the model's dtype."""
        rows = self.store.fp.rows
        rows.index_copy_(0, self.rows[layer], torch.stack((key, value)).view(-1, rows.shape[-1]))


class CacheController:
    """Keeps a store inside its limits as its policy decides.

    The cap is hard: before n tokens go in, the store holds at most the budget minus n. The plan for step t + 1 uses
    what is known after step t (CONF-KV's own order).

    Args:
        arena: where pages come from.
        policy: decides what stays.
        limits: the resolved budget.
    """

    def __init__(self, arena: PageArena, policy: Policy, limits: Limits):
        self.policy = policy
        self.limits = limits
        self.store = KVStore(
            arena, policy.caps(limits.max_slots), limits.dense_slots, with_mass=policy.mass is not None
        )
        self.logical_length = 0
        self.confidence: float | None = None

    @property
    def token_limit(self) -> int | None:
        """The most tokens the session can see, where its policy drops nothing; None where it evicts."""
        return None if self.policy.evicts else self.limits.dense_slots

    def chunk(self, waiting: int) -> int:
        """How many of ``waiting`` tokens the next step may take."""
        dense = min(waiting, DENSE_CHUNK)
        if self.logical_length + dense <= self.limits.dense_slots:
            return dense
        return min(waiting, self.limits.chunk)

    def begin(self, n: int) -> Step:
        """Make room for n new tokens and say where they go.

        Raises:
            AgentKVError: n exceeds the chunk size, or the policy cannot drop anything and the budget is reached.
            PoolExhausted: no pages left. The cache is whole and the call can be repeated, but what was evicted to make
                room is gone.
        """
        if n > self.chunk(n):
            raise AgentKVError(f"{n} tokens at once exceed the chunk size {self.chunk(n)}")
        rows, visible = self._make_room(n)
        views = self.store.views(visible)
        device = rows.device
        rule = self.policy.mass
        shape = (len(views), *views[0].token_index.shape)
        return Step(
            store=self.store,
            first_token=self.logical_length,
            query_index=torch.arange(self.logical_length, self.logical_length + n, dtype=torch.int32, device=device),
            rows=rows.flatten(1),
            views=views,
            mass=None if rule is None else torch.zeros(shape, device=device),
            mass_weights=None if rule is None else rule.weights(n).to(device),
        )

    def _make_room(self, n: int) -> tuple[Tensor, int]:
        """Rows for n new tokens, and how many leading slots are older than all of them."""
        store, policy, most = self.store, self.policy, self.limits.max_slots
        if self.logical_length + n <= self.limits.dense_slots:
            return self._append(n)
        if not policy.evicts:
            raise AgentKVError(
                f"policy {policy.name!r} drops nothing, and {self.logical_length + n} tokens exceed its budget of "
                f"{most}; raise the budget or choose an evicting policy"
            )
        target = policy.target_slots(self.confidence, most) if n == 1 else most
        used = store.slots_used
        if used + n > target:
            if n == 1 and used == target:
                victims = decide.victims(policy, self._view())
                # One query, newer than everything: it sees all slots, its own included.
                return store.overwrite(victims, self.logical_length), store.code_slots + store.fp_slots
            self._restructure(target - n)
        elif store.fp_slots + n > store.fp_cap:
            self._restructure(used)
        return self._append(n)

    def _append(self, n: int) -> tuple[Tensor, int]:
        store = self.store
        # A single query sees its own slot too; several see one another's only as far as they are older.
        visible = store.code_slots + store.fp_slots + (1 if n == 1 else 0)
        return store.append(self.logical_length, n), visible

    def _restructure(self, slots: int) -> None:
        """Evict down to ``slots`` per head and quantise what left the FP window: plan, validate, apply."""
        view = self._view()
        plan = decide.shrink(self.policy, view, slots, self.policy.fp_window(self.limits.max_slots))
        validate(plan, view, slots, self.store.caps_after(plan))
        self.store.apply(plan)

    def _view(self) -> CacheView:
        store, policy = self.store, self.policy
        token_index = store.in_use(store.token_index)
        first_recent = self.logical_length - policy.recent_slots(self.limits.max_slots)
        return CacheView(
            token_index=token_index,
            mass=None if store.mass is None else store.in_use(store.mass),
            protected=decide.protected_slots(token_index, policy.sinks, first_recent),
            code_slots=store.code_slots,
            logical_length=self.logical_length,
            confidence=self.confidence,
        )

    def commit(self, step: Step) -> None:
        """Book a finished forward pass."""
        self.logical_length += step.tokens
        rule = self.policy.mass
        if rule is not None and step.mass is not None:
            self.store.add_mass(step.mass, rule.decay**step.tokens)
