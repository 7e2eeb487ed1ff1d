"""A session: the tokens it has seen, for ever, and the cache of those its policy kept."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from agentkv.cache.arena import PageArena
from agentkv.cache.budget import Budget, BudgetLike, Limits, resolve
from agentkv.cache.controller import CacheController, CacheState, Prefill
from agentkv.cache.facts import LedgerFacts, Role, Span
from agentkv.cache.formats import SlotCaps
from agentkv.errors import AgentKVError, ContextOverflow, PoolExhausted
from agentkv.policies.base import Policy

Roles = Sequence[tuple[Role, int]]
"""Whose words some tokens are: (role, number of tokens) in order."""


@dataclass(frozen=True)
class SessionStats:
    """Measured from the session's live tensors. Token counts are means over layers and KV heads, rounded.

    Attributes:
        resident_bytes: pages held plus metadata, now.
        peak_bytes: the most there ever were, chunks of a prefill included.
        max_bytes: what they can never exceed.
        metadata_bytes: the part of resident_bytes that is not pages.
        logical_length: tokens seen.
        fp_tokens, quantized_tokens, evicted_tokens: how many of those are in which state.
    """

    resident_bytes: int
    peak_bytes: int
    max_bytes: int
    metadata_bytes: int
    logical_length: int
    fp_tokens: int
    quantized_tokens: int
    evicted_tokens: int


@dataclass
class Timings:
    """Of the newest generate call. Times in milliseconds."""

    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    reused_tokens: int = 0
    new_tokens: int = 0
    generated_tokens: int = 0
    forward_passes: int = 0


class Session:
    """Opened by :meth:`Engine.open_session`.

    Attributes:
        budget: as it was asked for.
        ledger: token ids, append-only. The last ones may not be in the cache yet: they go in with the next call.
        limits: the resolved budget.
        token_limit: the most tokens the ledger may hold.
        timings: of the newest call.
    """

    def __init__(
        self,
        arena: PageArena,
        policy: Policy,
        budget: BudgetLike,
        window: int,
        prefill: Prefill = "chunked",
        facts: LedgerFacts | None = None,
        exempt: frozenset[int] = frozenset(),
    ):
        self.policy = policy
        self.budget = budget
        self._window = window
        self.limits: Limits = resolve(Budget.parse(budget), policy, arena.layout, window, exempt)
        self.cache = CacheController(arena, policy, self.limits, facts, prefill)
        self.token_limit = min(window, self.cache.token_limit or window)
        self.ledger: list[int] = []
        self.timings = Timings()
        self._in_use = threading.Lock()
        self._closing = False
        # A session that is dropped without being closed must not keep its pages.
        self._release = weakref.finalize(self, self.cache.store.release)

    @property
    def logical_length(self) -> int:
        """Tokens whose keys and values were computed; the policy may have dropped some since."""
        return self.cache.logical_length

    @property
    def waiting(self) -> list[int]:
        """Tokens of the ledger that are not in the cache yet."""
        return self.ledger[self.cache.logical_length :]

    @property
    def busy(self) -> bool:
        return self._in_use.locked()

    @property
    def closed(self) -> bool:
        return self._closing

    @property
    def stats(self) -> SessionStats:
        store = self.cache.store
        fp, quantized = round(float(store.fp.used.mean())), round(float(store.code.used.mean()))
        resident = store.resident_bytes
        return SessionStats(
            resident_bytes=resident,
            peak_bytes=store.peak_bytes,
            max_bytes=self.limits.max_bytes,
            metadata_bytes=resident - store.page_bytes_held,
            logical_length=self.logical_length,
            fp_tokens=fp,
            quantized_tokens=quantized,
            evicted_tokens=self.logical_length - fp - quantized,
        )

    def adopt(self, state: CacheState, ledger: Sequence[int]) -> None:
        """Take over another session's content; this one must be empty. Raises PoolExhausted, leaving it empty."""
        self.cache.load(state)
        self.ledger = list(ledger)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the session for one call. Raises AgentKVError if another call has it or it is closed."""
        if not self._in_use.acquire(blocking=False):
            raise AgentKVError("the session is in use by another call; wait for it or open a second session")
        try:
            if self.closed:
                raise AgentKVError("the session is closed; open a new one")
            yield
        finally:
            self._in_use.release()
            if self._closing:
                self._release()

    def mark(self, roles: Roles) -> None:
        """Say whose words the next tokens of the ledger are."""
        self.cache.facts.spans.extend(self._spans(roles))

    def _spans(self, roles: Roles) -> list[Span]:
        spans, start = [], len(self.ledger)
        for role, count in roles:
            spans.append(Span(Role(role), start, start + count))
            start += count
        return spans

    def check_room(self, new_tokens: int, roles: Roles = ()) -> None:
        """Say at once if the session cannot take so many more tokens.

        Raises:
            ContextOverflow: they exceed the window, or the budget of a policy that drops nothing.
            BudgetTooSmall: with them, the tokens whose roles are protected leave no room.
            PoolExhausted: they would not fit the pool even if every other session were closed.
        """
        self.cache.check_protected(len(self.ledger) + new_tokens, self._spans(roles))
        needed = len(self.ledger) + new_tokens
        if needed <= self.token_limit:
            arena = self.cache.store.arena
            payload = arena.layout.payload_bytes(arena.layout.uniform(SlotCaps(fp=needed)))
            wanted = payload if self.cache.prefill == "whole" else min(payload, self.limits.max_bytes)
            if wanted > (arena.pages - 1) * arena.layout.page_bytes:
                raise PoolExhausted(
                    f"{needed} tokens take {wanted} bytes under policy {self.policy.name!r}, and the whole KV pool has "
                    f"{(arena.pages - 1) * arena.layout.page_bytes}; enlarge kv_pool or set a smaller budget"
                )
            return
        if self.cache.token_limit is None or self._window <= self.cache.token_limit:
            raise ContextOverflow(needed, self._window)
        hint = f"policy {self.policy.name!r} drops nothing: raise the budget or choose an evicting policy"
        raise ContextOverflow(needed, self.token_limit, hint, what="its budget")

    def close(self) -> None:
        """Give the session's pages back: at once, or when the call that uses it ends. Closing twice is fine."""
        self._closing = True
        if self._in_use.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._in_use.release()
