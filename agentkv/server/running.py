"""One call that is being answered, step by step, beside others."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from agentkv.cache.facts import Role
from agentkv.cache.formats import SlotCaps
from agentkv.chat.call import ChatCall, Item
from agentkv.engine.reply import Reply, TokenEvent
from agentkv.engine.sampling import TokenLogprob

if TYPE_CHECKING:
    from agentkv.chat.answer import Answer
    from agentkv.engine.engine import Engine
    from agentkv.engine.session import Session
    from agentkv.server.metrics import Metrics
    from agentkv.tools.constraint import ReplyConstraint


@dataclass(frozen=True)
class Started:
    """The call has its session and goes on; errors before it are those of the request."""

    session_id: str


@dataclass(frozen=True)
class Logprobs:
    """Of the tokens whose text comes next."""

    tokens: tuple[TokenLogprob, ...]


Sent = Item | Started | Logprobs
"""What a client's side of a call receives; nothing follows Finished or Failed."""


@dataclass(frozen=True)
class Ticket:
    """A call that waits or runs, and when it came in (seconds of `time.perf_counter`)."""

    call: ChatCall
    constraint: ReplyConstraint | None
    send: Callable[[Sent], None]
    arrived: float


class Running:
    """A call with its session. The session is held from `start` to `release`.

    Attributes:
        reserved: bytes that its session can come to.
        prefilling: not all of its prompt is computed.
    """

    def __init__(self, engine: Engine, ticket: Ticket, answer: Answer, metrics: Metrics):
        self.ticket = ticket
        self.call = ticket.call
        self.answer = answer
        self.kv: Session = answer.place.session.kv
        self._first: float | None = None
        self._evicted = self.kv.stats.evicted_tokens
        self._metrics = metrics
        constraint: Any = answer.constraint
        if constraint is not None:
            constraint = TimedConstraint(constraint, metrics.mask.observe)
        self.reply = Reply(engine, self.kv, self.call.request.params, constraint, self.call.cancel)
        self._prompt = answer.length + len(answer.place.rendered.ids)
        self.reserved = self._most_bytes(engine)
        self._held = ExitStack()

    @property
    def prefilling(self) -> bool:
        return self.kv.logical_length < self._prompt

    def start(self) -> TokenEvent | None:
        """Take the session and append the prompt; the client is told.

        Raises:
            PoolExhausted, SessionFileError: the session was spilled and cannot come back.
            ContextOverflow, BudgetTooSmall: the prompt does not fit it.
        """
        self._held.enter_context(self.kv.exclusive())
        rendered = self.answer.place.rendered
        event = self.reply.start(rendered.ids, [(Role(role), count) for role, count in rendered.roles])
        self.ticket.send(Started(self.answer.place.session.session_id))
        return event

    def compute_chunk(self, engine: Engine, at_most: int) -> TokenEvent | None:
        """Compute the next waiting tokens; with the last of them, choose what follows."""
        started = time.perf_counter()
        logits = engine.compute_chunk(self.kv, at_most)
        self._book(started)
        return None if self.kv.waiting else self.reply.take(logits)

    def take(self, logits: Tensor, started: float) -> TokenEvent | None:
        """Choose what follows, after a pass with others that `started` then."""
        self._book(started)
        return self.reply.take(logits)

    def pass_on(self, event: TokenEvent) -> None:
        """Deliver what an event says."""
        if self._first is None and event.token_ids:
            self._first = time.perf_counter()
            self._metrics.ttft.observe(self._first - self.ticket.arrived)
        if event.logprobs:
            self.ticket.send(Logprobs(event.logprobs))
        self.answer.reply.take(event)

    def release(self) -> None:
        """Let go of the session, and count what was done."""
        self._held.close()
        metrics, timings = self._metrics, self.kv.timings
        metrics.prompt_tokens.inc(self._prompt)
        metrics.cached_tokens.inc(self.answer.reused)
        metrics.generated_tokens.inc(timings.generated_tokens)
        metrics.evicted_tokens.inc(max(0, self.kv.stats.evicted_tokens - self._evicted))
        if self._first is not None and timings.generated_tokens > 1:
            metrics.tpot.observe((time.perf_counter() - self._first) / (timings.generated_tokens - 1))

    def _book(self, started: float) -> None:
        elapsed = 1e3 * (time.perf_counter() - started)
        if self.kv.logical_length <= self._prompt:
            self.kv.timings.prefill_ms += elapsed
        else:
            self.kv.timings.decode_ms += elapsed

    def _most_bytes(self, engine: Engine) -> int:
        layout, kv = engine.layout, self.kv
        tokens = min(self._prompt + self.call.request.params.max_tokens, kv.token_limit)
        pages = layout.payload_bytes(layout.uniform(SlotCaps(fp=tokens + layout.page_slots)))
        return min(pages, kv.limits.max_bytes)


class TimedConstraint:
    """A constraint whose masks are timed."""

    def __init__(self, inner: Any, observe: Callable[[float], None]):
        self._inner = inner
        self._observe = observe

    @property
    def done(self) -> bool:
        """Nothing may follow."""
        done: bool = self._inner.done
        return done

    def mask(self, logits: Tensor) -> Tensor:
        """Logits [V] with forbidden tokens at −inf."""
        started = time.perf_counter()
        masked: Tensor = self._inner.mask(logits)
        self._observe(time.perf_counter() - started)
        return masked

    def accept(self, token_id: int) -> None:
        """Advance by one token."""
        self._inner.accept(token_id)

    def forced(self) -> list[int]:
        """Tokens that must come next."""
        forced: list[int] = self._inner.forced()
        return forced
