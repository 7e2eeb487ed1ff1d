"""One session's cache under its policy: makes room before tokens go in, and books what the forward pass did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from agentkv.cache import copies
from agentkv.cache.arena import PageArena
from agentkv.cache.budget import DENSE_CHUNK, Limits
from agentkv.cache.facts import LedgerFacts, Span, protected_ranges
from agentkv.cache.formats import KVFormat, ceil_div
from agentkv.cache.plan import Plan, Room, validate
from agentkv.cache.rotary import Rebased, Rotary, rebase
from agentkv.cache.snapshot import Snapshot
from agentkv.cache.state import BESIDE, CacheState
from agentkv.cache.step import Step
from agentkv.cache.store import KVStore, Placement
from agentkv.cache.view import CacheView
from agentkv.errors import AgentKVError, BudgetTooSmall, PoolExhausted
from agentkv.policies import decide
from agentkv.policies.base import Policy

Prefill = Literal["chunked", "whole"]
_ANY = np.iinfo(np.int64).max // 2
"""Room without a limit."""


class CacheController:
    """Keeps a store inside its limits as its policy decides.

    The cap is hard: before n tokens go in, the store holds at most the budget minus n. The plan for step t + 1 uses
    what is known after step t (CONF-KV's own order).

    Args:
        arena: where pages come from.
        policy: decides what stays.
        limits: the resolved budget.
        facts: of the ledger's tokens.
        prefill: "whole" lets several tokens in before anything is given up (the papers' protocol); the peak is then
            whatever it is, and the cap holds from the next decoded token on.
        window: positions the model has.
        rotary: of each layer; given, an evicting policy goes on beyond the window by a rebase.

    Attributes:
        logical_length: tokens the session has seen.
        confidence: of the model in its newest token.
        layer_stats: [L, k] what the attention rule says of whole layers, or None.
        last_logits: [V] of the newest token, kept where a policy reads surprise.
        changed_at: logical length at the newest change that dropped, quantised or moved a slot; −1 if there was none.
        rebased: what rebases did so far.
    """

    def __init__(
        self,
        arena: PageArena,
        policy: Policy,
        limits: Limits,
        facts: LedgerFacts | None = None,
        prefill: Prefill = "chunked",
        window: int = _ANY,
        rotary: Sequence[Rotary | None] | None = None,
    ):
        self.policy = policy
        self.limits = limits
        self.prefill = prefill
        self.facts = facts or LedgerFacts(None, False, arena.device)
        shape = limits.shape
        self._arena = arena
        self._window, self._rotary = window, rotary
        self.store = self._new_store()
        self.logical_length = 0
        self.confidence: float | None = None
        self.layer_stats: Tensor | None = None
        self.last_logits: Tensor | None = None
        self.changed_at = -1
        self.rebased = Rebased()
        fixed = np.array(shape.fixed)
        self._fixed = fixed[:, None]
        self._fixed_mask = torch.from_numpy(fixed).to(arena.device) if fixed.any() else None
        self._exempt_mask = torch.tensor([cap.code == 0 for cap in shape.caps], device=arena.device)
        self._layer_slots = np.array(shape.layer_slots)[:, None]
        windows = np.array([arena.layout.window(layer) or 0 for layer in range(arena.layout.layers)])
        self._window_slots = windows[:, None]
        managed = torch.from_numpy(np.where((windows > 0) & ~fixed, windows, _ANY)).to(arena.device)
        self._managed_windows = managed.view(-1, 1, 1) if bool((managed < _ANY).any()) else None

    @property
    def position_offset(self) -> int:
        """Token index minus position of the newest tokens; above 0 after a rebase."""
        return self.store.position_offset

    @position_offset.setter
    def position_offset(self, offset: int) -> None:
        self.store.position_offset = offset

    @property
    def rebases(self) -> bool:
        """Whether the session can outlive the model's window."""
        return self.policy.evicts and self._rotary is not None

    @property
    def held_tokens(self) -> int:
        """Tokens seen, less those taken out by hand."""
        return self.logical_length - self.facts.dropped_tokens

    @property
    def token_limit(self) -> int | None:
        """The most tokens the session can hold; None where its policy evicts, or every layer slides."""
        dropping = self.policy.evicts or bool(self._fixed.all())
        return None if dropping else max(self.limits.dense_slots, self.limits.max_slots)

    def chunk(self, waiting: int) -> int:
        """How many of ``waiting`` tokens the next step may take."""
        if self.prefill == "whole" and waiting > 1:
            # Pieces of equal size: the last one is what an observation window sees.
            return ceil_div(waiting, ceil_div(waiting, DENSE_CHUNK))
        dense = min(waiting, DENSE_CHUNK)
        if self.logical_length + dense <= self.limits.dense_slots:
            return dense
        free = self.limits.shape.least_layer - self._protected_tokens(self.logical_length)
        most = min(waiting, self.limits.shape.chunk, max(1, free))
        return min(most, self._window - self._held_by_windows) if self._is_due(most) else most

    def begin(self, ids: Sequence[int]) -> Step:
        """Make room for new tokens and say where they go.

        Raises:
            AgentKVError: more tokens than the chunk size, or the policy cannot drop anything and the budget is reached.
            BudgetTooSmall: protected tokens leave no room.
            PoolExhausted: no pages left. The cache is whole and the call can be repeated, but what was evicted to make
                room is gone.
        """
        n, first = len(ids), self.logical_length
        if n > self.chunk(n):
            raise AgentKVError(f"{n} tokens at once exceed the chunk size {self.chunk(n)}")
        device = self.store.arena.device
        self.facts.note_tokens(first, torch.tensor(ids, device=device))
        placement = self._make_room(n)
        rule = self.policy.mass
        slots = self.store.code_slots + self.store.fp_slots
        heads = placement.slots.shape[:2]
        query_index = torch.arange(first, first + n, dtype=torch.int32, device=device)
        return Step(
            store=self.store,
            policy=self.policy,
            first_token=first,
            query_index=query_index,
            positions=query_index.long() - self.position_offset,
            placement=placement,
            rows=placement.rows.flatten(1),
            mass=None if rule is None else torch.zeros(*heads, slots, device=device),
            mass_weights=None if rule is None or rule.probs_of else rule.weights(n).to(device),
            creation=None if self.policy.creation is None else torch.zeros(*heads, n, device=device),
            layer_stats={},
            hidden={},
            surprise=[],
        )

    def abandon(self, step: Step) -> None:
        """Undo the newest :meth:`begin` instead of computing it: its slots are given back.

        What was evicted to make room is gone, as it would be a token later; beginning again takes the empty place.
        """
        token_index = self.store.in_use(self.store.token_index)
        self.store.apply(Plan((token_index >= 0) & (token_index < step.first_token)))

    # --- room ----------------------------------------------------------------------------------------------------

    def _make_room(self, n: int) -> Placement:
        store = self.store
        dense = self.logical_length + n <= self.limits.dense_slots or (self.prefill == "whole" and n > 1)
        limit = self.token_limit
        if not dense and limit is not None and self.held_tokens + n > limit:
            raise AgentKVError(
                f"policy {self.policy.name!r} drops nothing, and {self.held_tokens + n} tokens exceed its budget of "
                f"{limit}; raise the budget or choose an evicting policy"
            )
        due = self._is_due(n)
        room, total = self._room(n, dense)
        if due:
            room = np.minimum(room, self._room_after_rebase)
        used = store.used
        full = used + n > room
        crowded = total is not None and int(used[~self._fixed[:, 0]].sum()) + n * self._managed_heads > total
        growing = ~full if n == 1 else np.ones_like(full)
        fp_full = not dense and bool((growing & (store.fp.used + n > store.fp_caps[:, None])).any())
        fp_full |= due and store.whole
        if not (full.any() or crowded or fp_full or due):
            self._start_windows(n)
            return store.append(self.logical_length, n)
        self.changed_at = self.logical_length
        if n == 1 and not (crowded or fp_full or due) and self._is_steady(full, used, room):
            self._check_protected(full)
            victims = decide.victims(self.policy, self._view(), self._fixed_mask)
            return store.overwrite(victims, self.logical_length, None if full.all() else ~full)
        if full.any() or crowded or fp_full:
            self._restructure(n, room, full, total, crowded, dense)
        if due and self._rotary is not None:
            self.rebased += rebase(store, self._rotary, self.logical_length)
        return store.append(self.logical_length, n)

    def _is_due(self, n: int) -> bool:
        """Whether n more tokens would pass the window, so that positions have to begin again."""
        return self.rebases and self.logical_length - self.position_offset + n > self._window

    @property
    def _held_by_windows(self) -> int:
        """Slots that a head of a sliding-window layer outside the policy keeps, whatever the budget."""
        return max(0, int((self._window_slots * self._fixed).max()) - 1)

    @property
    def _room_after_rebase(self) -> np.ndarray:
        """[L, 1] slots a head may hold, new tokens included, when positions begin again.

        An eighth of the window at least is free then, however large the budget: a rebase costs as much as moving
        every key.
        """
        least = self.policy.least_slots(self.limits.max_slots)
        most = max(self._window - self._window // 8, least)
        return np.where(self._fixed, _ANY, most)

    @property
    def _managed_heads(self) -> int:
        return int((~self._fixed).sum()) * self.store.arena.layout.kv_heads

    def _room(self, n: int, dense: bool) -> tuple[np.ndarray, int | None]:
        """[L, H] slots a head may hold, and those all heads may hold together, once n tokens are in."""
        limits, policy, heads = self.limits, self.policy, self.store.arena.layout.kv_heads
        # Fixed layers keep what the first of n new tokens can see.
        window = self._window_slots - 1 + n
        if dense:
            slots = np.where(self._fixed, window, _ANY)
            return np.broadcast_to(slots, (len(slots), heads)), None
        most = limits.max_slots
        target = policy.target_slots(self.confidence, most) if n == 1 else most
        least = policy.least_slots(most)
        scaled = np.maximum(self._layer_slots * target // most, np.minimum(self._layer_slots, least))
        slots = np.where(self._fixed, window, scaled)
        total = None if limits.shape.total is None else limits.shape.total * target // most
        return np.broadcast_to(slots, (len(slots), heads)), total

    def _is_steady(self, full: np.ndarray, used: np.ndarray, room: np.ndarray) -> bool:
        """Whether one slot of each full head can make room for one token, and nothing else is to be done."""
        exact = bool((used[full] == room[full]).all())
        # A victim among quantised slots takes in an FP slot; a span dropped by hand may have left none.
        if self.store.code_slots and not self.store.fp.used[full].all():
            return False
        managed = full & ~self._fixed
        by_slot = self.policy.steady and self.policy.trigger.headroom(self.limits.max_slots) == 1
        return exact and (by_slot or not managed.any())

    def _restructure(
        self, n: int, room: np.ndarray, full: np.ndarray, total: int | None, crowded: bool, dense: bool
    ) -> None:
        """Evict until n tokens fit and quantise what the precision rule says: plan, validate, apply."""
        store, policy = self.store, self.policy
        self._check_protected(full)
        headroom = max(n, policy.trigger.headroom(self.limits.max_slots)) if n == 1 else n
        give = np.where(full & ~self._fixed, headroom, n)
        slots = np.maximum(room - give, 0)
        if total is not None:
            total -= (headroom if crowded else n) * self._managed_heads
        device = store.arena.device
        target = decide.Target(
            slots=torch.from_numpy(np.minimum(slots, store.slots_used)).to(device),
            total=total,
            fixed=self._fixed_mask,
            layer_slots=torch.from_numpy(self._layer_slots[:, 0]).to(device),
            demote=not dense,
            exempt=self._exempt_mask,
            granule=store.code.page_slots if store.code_format is KVFormat.INT8_CHANNEL else 1,
        )
        view = self._view()
        plan = decide.shrink(policy, view, target)
        fp_room, code_room = store.caps_after(plan)
        # While everything is kept whole there may be more than a policy at work has room for.
        fp_room = np.full_like(fp_room, _ANY) if dense else fp_room
        validate(plan, view, Room(slots, total, fp_room, code_room, ~self._fixed[:, 0]))
        store.apply(plan)
        if policy.mass is not None and policy.mass.resets:
            store.clear_mass(np.ones_like(full) if crowded else full)

    def _start_windows(self, n: int) -> None:
        """An observation window reaches back so many queries from the decision: where it begins, mass begins anew."""
        rule = self.policy.mass
        if rule is None or not rule.resets or rule.queries is None:
            return
        room, total = self._room(1, dense=False)
        left = room - self.store.used
        if total is not None:
            managed = int(self.store.used[~self._fixed[:, 0]].sum())
            left = np.minimum(left, (total - managed) // self._managed_heads)
        left = np.maximum(left, self.limits.dense_slots - self.logical_length)
        begins = (left >= rule.queries) & (left - n < rule.queries)
        if begins.any():
            self.store.clear_mass(begins)

    def _ranges(self, length: int, upcoming: Sequence[Span] = ()) -> list[tuple[int, int]]:
        recent = self.policy.recent_slots(self.limits.max_slots)
        spans = [*self.facts.spans, *upcoming]
        return protected_ranges(spans, self.policy.protect, self.policy.sinks, length - recent, length)

    def _protected_tokens(self, length: int, upcoming: Sequence[Span] = ()) -> int:
        return sum(end - start for start, end in self._ranges(length, upcoming))

    def check_protected(self, length: int, upcoming: Sequence[Span] = ()) -> None:
        """Raises BudgetTooSmall if at ``length`` tokens the protected ones would leave no room for another."""
        if not self.policy.protect or not self.policy.evicts or length <= self.limits.dense_slots:
            return
        least = self.limits.shape.least_layer
        if self.rebases and length > self._window:
            least = min(least, int(self._room_after_rebase.min()))
        protected = self._protected_tokens(length, upcoming)
        if protected + self.policy.trigger.headroom(self.limits.max_slots) > least:
            raise BudgetTooSmall(
                f"{protected} tokens are protected (roles {', '.join(self.policy.protect)}, sinks, newest), and the "
                f"budget holds {least} of a head; raise the budget or protect fewer roles"
            )

    def _check_protected(self, full: np.ndarray) -> None:
        if bool((full & ~self._fixed).any()):
            self.check_protected(self.logical_length)

    def _view(self) -> CacheView:
        store, policy, facts, length = self.store, self.policy, self.facts, self.logical_length
        token_index = store.in_use(store.token_index)
        columns = {name: store.in_use(column) for name, column in store.columns.items()}
        protected = decide.protected_slots(token_index, self._ranges(length), self._fixed_mask)
        expired = None if self._managed_windows is None else token_index <= length - self._managed_windows
        by_observation = policy.whole_observations or (policy.scorer is not None and policy.scorer.needs_observations)
        return CacheView(
            token_index=token_index,
            mass=columns.get("mass"),
            creation=columns.get("creation"),
            protected=protected if expired is None else protected & ~expired,
            code_slots=store.code_slots,
            logical_length=length,
            confidence=self.confidence,
            recent=policy.recent_slots(self.limits.max_slots),
            segments=facts.segments(length),
            surprise=facts.surprise(length),
            ids=facts.ids(length),
            layer_stats=self.layer_stats,
            read_keys=store.read_keys,
            observations=facts.observations(length) if by_observation else None,
            expired=expired,
        )

    # --- after the forward pass ----------------------------------------------------------------------------------

    def commit(self, step: Step) -> None:
        """Book a finished forward pass."""
        rule, store = self.policy.mass, self.store
        if rule is not None and step.mass is not None:
            store.add_mass(step.mass, rule.keeps(step.tokens))
        if step.creation is not None:
            store.set_column("creation", step.placement.slots, step.creation)
        if step.layer_stats:
            self.layer_stats = torch.stack([step.layer_stats[layer] for layer in sorted(step.layer_stats)])
        if step.surprise:
            self.facts.note_surprise(step.first_token, step.surprise[0])
        self.logical_length += step.tokens

    # --- copies --------------------------------------------------------------------------------------------------

    def state(self) -> CacheState:
        """A copy of it all."""
        beside = {name: getattr(self, name) for name in BESIDE}
        return CacheState(snapshot=copies.snapshot(self.store), facts=self.facts.copy(), **beside)

    def load(self, state: CacheState) -> None:
        """Become a copy, whatever was here before. Raises PoolExhausted, changing nothing, if pages are lacking."""
        self.fill(state.snapshot)
        self.facts = state.facts.copy()
        for name in BESIDE:
            setattr(self, name, getattr(state, name))

    def fill(self, snapshot: Snapshot) -> None:
        """Replace the store's content. Raises PoolExhausted, changing nothing, if pages are lacking.

        If another thread takes the pages in that moment, the controller is as before its first token.
        """
        copies.check_pages(self.store, snapshot)
        self.empty(keep_positions=True)
        try:
            copies.load(self.store, snapshot)
        except PoolExhausted:  # another thread was quicker: the ledger is there, and can be computed again
            self.reset()
            raise

    def empty(self, keep_positions: bool = False) -> None:
        """Give all slots up; what is known beside them stays. Positions begin at 0 unless they are kept."""
        old = self.store
        old.release()
        self.store = self._new_store()
        self.store.peak_bytes = max(old.peak_bytes, self.store.peak_bytes)
        self.store.position_offset = old.position_offset if keep_positions else 0

    def reset(self) -> None:
        """Become what a controller is before its first token; what is known of the ledger's tokens stays."""
        self.empty()
        self.facts.dropped.clear()
        self.logical_length, self.changed_at = 0, -1
        self.confidence = self.layer_stats = self.last_logits = None

    def release(self) -> None:
        """Give every page back. Safe in a finalizer."""
        self.store.release()

    def _new_store(self) -> KVStore:
        shape, policy = self.limits.shape, self.policy
        return KVStore(self._arena, shape.caps, self.limits.dense_slots, policy.code_format, policy.columns)
