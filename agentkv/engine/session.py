"""A session: the tokens it has seen, for ever, and the cache of those its policy kept."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from agentkv.cache import edits
from agentkv.cache.arena import PageArena
from agentkv.cache.budget import Budget, BudgetLike, Limits, resolve
from agentkv.cache.controller import CacheController, Prefill
from agentkv.cache.facts import LedgerFacts, Role, Span
from agentkv.cache.formats import SlotCaps
from agentkv.cache.rotary import Rotary
from agentkv.cache.state import CacheState
from agentkv.engine.checkpoints import Checkpoint, Checkpoints, Rewind
from agentkv.engine.explain import Explanation, explain
from agentkv.errors import AgentKVError, ContextOverflow, PoolExhausted
from agentkv.policies.base import Policy

if TYPE_CHECKING:
    from agentkv.engine.spill import SessionPool, SpilledCopy

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
        dropped_tokens: how many of the evicted ones were taken out by :meth:`Session.drop_span`.
        checkpoint_bytes: what the session's checkpoints hold, in host memory outside the KV pool.
        rebases: how often the session passed the model's window and its positions began again.
        rerotated, requantized: keys moved by that, over all layers and heads: in the model's dtype, and quantised.
    """

    resident_bytes: int
    peak_bytes: int
    max_bytes: int
    metadata_bytes: int
    logical_length: int
    fp_tokens: int
    quantized_tokens: int
    evicted_tokens: int
    dropped_tokens: int = 0
    checkpoint_bytes: int = 0
    rebases: int = 0
    rerotated: int = 0
    requantized: int = 0


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
        exempt: layers whose slots are never quantised.
        timings: of the newest call.
        checkpoints: those it can go back to.
        measures_confidence: whether :meth:`Engine.generate` measures the model's confidence in every token; by default
            if the policy asks for it.
        spilled_copy: its slots while they are not in the page pool.
        moving: held while slots go to or come from a spilled copy, and while a call takes the session.

    Args:
        rotary: how each layer's keys turn with position; given, an evicting policy outlives the window.
        checkpoints: how many automatic checkpoints to keep.
        pool: that spills idle sessions and brings them back.
        no_rebase: why there is no ``rotary``, for the error message.
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
        rotary: Sequence[Rotary | None] | None = None,
        checkpoints: int = 0,
        pool: SessionPool | None = None,
        no_rebase: str | None = None,
    ):
        self.policy = policy
        self.budget = budget
        self.exempt = exempt
        self._window = window
        self.limits: Limits = resolve(Budget.parse(budget), policy, arena.layout, window, exempt)
        # Prefill of a whole prompt gives nothing up on the way, positions included.
        if prefill == "whole":
            rotary, no_rebase = None, "a session that prefills whole prompts does not outlive it"
        self._no_rebase = no_rebase
        self.cache = CacheController(arena, policy, self.limits, facts, prefill, window, rotary)
        self.checkpoints = Checkpoints(checkpoints)
        self.ledger: list[int] = []
        self.timings = Timings()
        self.measures_confidence = policy.needs_confidence
        self.last_used = 0
        self.spilled_copy: SpilledCopy | None = None
        self.moving = threading.Lock()
        self._pool = pool
        self._in_use = threading.Lock()
        self._closing = False
        # A session that is dropped without being closed must not keep its pages.
        self._release = weakref.finalize(self, self.cache.release)

    @property
    def logical_length(self) -> int:
        """Tokens whose keys and values were computed; the policy may have dropped some since."""
        return self.cache.logical_length

    @property
    def reusable_tokens(self) -> int:
        """Tokens that the next call need not compute, in a session restored from a file too."""
        return self.logical_length

    @property
    def token_limit(self) -> int:
        """The most tokens the ledger may hold; ``sys.maxsize`` where there is no limit.

        A policy that drops nothing is limited by the model's window, which counts every token, and by its budget,
        which does not count those that :meth:`drop_span` took out.
        """
        if self.cache.rebases:
            return sys.maxsize
        if self.cache.token_limit is None:
            return self._window
        return min(self._window, self.cache.token_limit + self.cache.facts.dropped_tokens)

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
        held = (store.fp.used, store.code.used) if self.spilled_copy is None else self.spilled_copy.used
        fp, quantized = (round(float(used.mean())) for used in held)
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
            dropped_tokens=self.cache.facts.dropped_tokens,
            checkpoint_bytes=self.checkpoints.nbytes,
            rebases=self.cache.rebased.rebases,
            rerotated=self.cache.rebased.rerotated,
            requantized=self.cache.rebased.requantized,
        )

    def adopt(self, state: CacheState, ledger: Sequence[int]) -> None:
        """Take over another session's content; this one must be empty. Raises PoolExhausted, leaving it empty."""
        self.cache.load(state)
        self.ledger = list(ledger)

    def adopt_ledger(self, other: Session) -> None:
        """Take over another session's tokens and none of its cache: the next call computes them, under this session's
        policy and budget. This one must be empty, and is to be closed if it cannot; raises as :meth:`check_room`.
        """
        self.cache.facts.spans = list(other.cache.facts.spans)
        self.check_room(len(other.ledger))
        self.ledger = list(other.ledger)

    # --- going back ----------------------------------------------------------------------------------------------

    def checkpoint(self) -> Checkpoint:
        """A copy of the session as it is now, to roll back to. It holds host memory until it is dropped or the session
        closed; see ``stats.checkpoint_bytes``.
        """
        with self.exclusive():
            return self._checkpoint(automatic=False)

    def checkpoint_turn(self) -> None:
        """Make an automatic checkpoint, if the session keeps any. For the engine, which holds the session."""
        if self.checkpoints.keep and self.logical_length:
            self._checkpoint(automatic=True)

    def _checkpoint(self, automatic: bool) -> Checkpoint:
        checkpoint = Checkpoint(tuple(self.ledger), self.logical_length, automatic, self.cache.state().to("cpu"))
        self.checkpoints.add(checkpoint)
        return checkpoint

    def rollback(self, to: Checkpoint) -> None:
        """Become exactly what the session was at a checkpoint: ledger, cache, roles, all that a policy knows.

        Raises:
            AgentKVError: the checkpoint was dropped, or is of another session.
            PoolExhausted: no room; the session is as it was.
        """
        with self.exclusive():
            state = to.state
            if to not in self.checkpoints:
                raise AgentKVError("the checkpoint is of another session, and a session goes back only to its own")
            self.cache.load(state)
            self.ledger = list(to.ledger)
            self.checkpoints.forget_after(self.logical_length)

    def rewind(self, token_index: int) -> Rewind:
        """Cut the ledger down to its first ``token_index`` tokens.

        Exact where no slot of the cache was dropped, quantised or moved since, and the policy keeps no account of
        attention or surprise. Otherwise the session goes back to its newest checkpoint at or before that token, or to
        its beginning, and the tokens from there on wait to be computed with the next call: the result says which.
        Going back to the beginning, or to a checkpoint from before a span was dropped, also brings that span back.

        Raises:
            AgentKVError: there is no such token.
            PoolExhausted: no room; the session is as it was.
        """
        with self.exclusive():
            if not isinstance(token_index, int) or not 0 <= token_index <= len(self.ledger):
                raise AgentKVError(f"cannot rewind to token {token_index!r}: the session has {len(self.ledger)}")
            if token_index == len(self.ledger):
                return Rewind("exact", range(self.logical_length, token_index))
            how = self._go_back(token_index)
            self.ledger = self.ledger[:token_index]
            self.cache.facts.truncate(token_index)
            self.cache.confidence = None
            self.checkpoints.forget_after(token_index)
            return Rewind(how, range(self.logical_length, token_index))

    def _go_back(self, index: int) -> Literal["exact", "checkpoint", "prefill"]:
        """Put the cache into a state of the first ``index`` tokens or fewer."""
        if index >= self.logical_length or edits.can_truncate(self.cache, index):
            edits.truncate(self.cache, min(index, self.logical_length))
            return "exact"
        spans = list(self.cache.facts.spans)
        checkpoint = self.checkpoints.newest(index, self.ledger)
        if checkpoint is None:
            self.cache.reset()
            return "prefill"
        self.cache.load(checkpoint.state)
        self.cache.facts.spans = spans
        # What was waiting then waits again.
        return "exact" if index <= len(checkpoint.ledger) else "checkpoint"

    def drop_span(self, start: int, end: int) -> None:
        """Take the tokens start ≤ index < end out of the cache now, whatever the policy.

        What follows is computed as if attention to them were masked: later tokens keep their positions. The ledger
        keeps them too, and :meth:`explain` marks them.

        Raises:
            AgentKVError: not all of these tokens are in the cache's past.
            Unsupported: they share quantised pages with others that cannot be split.
        """
        with self.exclusive():
            whole = isinstance(start, int) and isinstance(end, int)
            if not whole or not 0 <= start < end <= self.logical_length:
                raise AgentKVError(
                    f"cannot drop tokens {start!r} to {end!r}: the span must lie in the {self.logical_length} tokens "
                    f"computed so far"
                )
            edits.drop(self.cache, start, end)

    def explain(self, tokenizer: Any = None) -> Explanation:
        """Which tokens the cache holds, in what form, and in how many heads; with a tokenizer, as text."""
        with self.exclusive():
            return explain(self, tokenizer)

    # --- use -----------------------------------------------------------------------------------------------------

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the session for one call, and bring it back if it was spilled.

        Raises:
            AgentKVError: another call has it or it is closed.
            PoolExhausted, SessionFileError: it was spilled, and there is no room or its file is damaged.
        """
        with self.moving:  # a session on its way out is not in use: its call waits
            taken = self._in_use.acquire(blocking=False)
        if not taken:
            raise AgentKVError("the session is in use by another call; wait for it or open a second session")
        try:
            if self.closed:
                raise AgentKVError("the session is closed; open a new one")
            self.recall()
            yield
        finally:
            self._in_use.release()
            if self._closing:
                self._release()

    def recall(self) -> None:
        """Into the page pool, if it was spilled. Raises as :meth:`exclusive`."""
        if self._pool is not None:
            self._pool.touch(self)
            self._pool.recall(self)

    @property
    def spilled(self) -> str | None:
        """Where its slots are while they are not in the page pool: "cpu" or the path of a file; else None."""
        copy = self.spilled_copy
        if copy is None:
            return None
        return "cpu" if copy.path is None else str(copy.path)

    def mark(self, roles: Roles) -> None:
        """Say whose words the next tokens of the ledger are."""
        self.cache.facts.spans.extend(self._spans(roles))

    def _spans(self, roles: Roles) -> list[Span]:
        spans, start = [], len(self.ledger)
        if not all(isinstance(part, Sequence) and not isinstance(part, str) and len(part) == 2 for part in roles):
            raise AgentKVError(f"roles are pairs of a role and a number of tokens, not {list(roles)!r}")
        for role, count in roles:
            if role not in set(Role) or not isinstance(count, int) or count < 0:
                known = ", ".join(Role)
                raise AgentKVError(
                    f"({role!r}, {count!r}) says nothing of tokens; write a role of {known}, and how many"
                )
            spans.append(Span(Role(role), start, start + count))
            start += count
        return spans

    def check_room(self, new_tokens: int, roles: Roles = ()) -> None:
        """Say at once if the session cannot take so many more tokens.

        Raises:
            ContextOverflow: they exceed the window and the session cannot outlive it, or the budget of a policy that
                drops nothing.
            AgentKVError: roles of more tokens than there are.
            BudgetTooSmall: with them, the tokens whose roles are protected leave no room.
            PoolExhausted: they would not fit the pool even if every other session were closed.
        """
        needed = len(self.ledger) + new_tokens
        spans = self._spans(roles)
        if spans and spans[-1].end > needed:
            raise AgentKVError(
                f"the roles are of {spans[-1].end - len(self.ledger)} tokens, but there are only {new_tokens} new ones"
            )
        self.cache.check_protected(needed, spans)
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
        if self.cache.token_limit is None or self.token_limit == self._window:
            why = f"{self._no_rebase}; " if self.policy.evicts and self._no_rebase else ""
            raise ContextOverflow(needed, self._window, f"{why}shorten the prompt or start a new session")
        hint = f"policy {self.policy.name!r} drops nothing: raise the budget or choose an evicting policy"
        raise ContextOverflow(needed - self.cache.facts.dropped_tokens, self.cache.token_limit, hint, what="its budget")

    def close(self) -> None:
        """Give the session's pages back: at once, or when the call that uses it ends. Closing twice is fine."""
        self._closing = True
        self.checkpoints.clear()
        with self.moving:
            if self._in_use.acquire(blocking=False):
                try:
                    self._release()
                finally:
                    self._in_use.release()
            if self.spilled_copy is not None:
                self.spilled_copy.discard()
