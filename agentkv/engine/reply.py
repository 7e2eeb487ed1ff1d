"""The decode loop of one reply."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from agentkv.cache.facts import Role, Span
from agentkv.engine.sampling import Sampler, SamplingParams, TokenLogprob, token_logprob
from agentkv.engine.session import Roles, Session, Timings
from agentkv.engine.text import TextStream
from agentkv.policies.confidence import confidence

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine


class Constraint(Protocol):
    """Says which tokens may come next. Serves one reply."""

    @property
    def done(self) -> bool:
        """Nothing may follow."""
        ...

    def mask(self, logits: Tensor) -> Tensor:
        """Logits [V] with forbidden tokens at −inf."""
        ...

    def accept(self, token_id: int) -> None:
        """Advance by one token."""
        ...

    def forced(self) -> list[int]:
        """Tokens that must come next; they are not accepted yet."""
        ...


@dataclass(frozen=True)
class TokenEvent:
    """One step of a reply.

    Attributes:
        token_ids: what was added to the ledger: the sampled token and those a grammar forced after it.
        text: text that became certain with it; what may yet become a stop string is held back.
        finish_reason: "stop", "length", "cancelled" or "context_full" on the last event, None before.
        confidence: of the model in the sampled token, where the session measures it.
        logprobs: of each of the tokens, where the sampling parameters ask for them.
    """

    token_ids: tuple[int, ...] = ()
    text: str = ""
    finish_reason: str | None = None
    confidence: float | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


def conclude_step(session: Session, logits: Tensor, outcome: Callable[[Tensor], Tensor]) -> tuple[float, float | None]:
    """What is taken from a token's logits [V]: a scalar, and the model's confidence where the session measures it.

    The confidence is measured before `outcome` sees the logits, which may mask them, and is booked for the next token.
    Both reach the host in one copy; a float64 holds every token id exactly.
    """
    if not session.measures_confidence:
        return float(outcome(logits)), None
    measured = confidence(logits).double()
    number, certainty = torch.stack((outcome(logits).double(), measured)).tolist()
    session.cache.confidence = certainty
    return number, certainty


class Reply:
    """Generates one reply into a session; see :meth:`Engine.generate`."""

    def __init__(
        self,
        engine: Engine,
        session: Session,
        params: SamplingParams,
        constraint: Constraint | None,
        cancel: threading.Event | None,
    ):
        self._engine = engine
        self._session = session
        self._params = params
        self._constraint = constraint
        self._cancel = cancel
        self._text = TextStream(engine.tokenizer, params.stop)
        self._sampler = Sampler(params, engine.eos_token_ids, engine.device)
        self._generated = 0
        self._finished = False
        self._chosen_from: Tensor | None = None
        """Logits that the newest token was drawn from, where its probability is asked for."""
        self._cut_short = False
        """Whether forced tokens did not all fit."""

    @property
    def finished(self) -> bool:
        """Whether its last event has a finish reason."""
        return self._finished

    def events(self, new_ids: list[int], roles: Roles = ()) -> Iterator[TokenEvent]:
        """Append the new tokens, then alternate between computing what waits and choosing what follows."""
        with self._session.exclusive():
            event = self.start(new_ids, roles)
            while True:
                if event is not None:
                    yield event
                if self._finished:
                    return
                logits = self.compute()
                if logits is None:
                    yield self.cancelled()
                    return
                event = self.take(logits)

    def start(self, new_ids: list[int], roles: Roles = ()) -> TokenEvent | None:
        """Append the new tokens. The caller holds the session."""
        session = self._session
        session.check_room(len(new_ids), roles)
        if new_ids:
            session.checkpoint_turn()
            # What the model was sure of in the last turn says nothing of this one.
            session.cache.confidence = None
        session.timings = Timings(reused_tokens=session.logical_length, new_tokens=len(session.waiting) + len(new_ids))
        session.mark(roles)
        session.ledger.extend(new_ids)
        # What a grammar forces at the start is computed together with the prompt.
        return self._emit(self._add([]), None)

    def compute(self) -> Tensor | None:
        """Compute what waits: logits [V], or None if cancelled."""
        started = time.perf_counter()
        timings = self._session.timings
        logits = self._engine.compute_waiting(self._session, self._cancel)
        elapsed = 1e3 * (time.perf_counter() - started)
        if self._generated and timings.prefill_ms:
            timings.decode_ms += elapsed
        else:
            timings.prefill_ms += elapsed
        return logits

    def cancelled(self) -> TokenEvent:
        """End it where it is; the last event."""
        self._finished = True
        return TokenEvent(text=self._text.flush(), finish_reason="cancelled")

    def take(self, logits: Tensor) -> TokenEvent | None:
        """Choose what follows, given the logits [V] after the newest token, and append it."""
        started = time.perf_counter()
        sampled, certainty = self._choose(logits)
        tokens = self._add([sampled])
        self._session.timings.decode_ms += 1e3 * (time.perf_counter() - started)
        return self._emit(tokens, certainty)

    def _emit(self, tokens: list[int], certainty: float | None) -> TokenEvent | None:
        """The event of tokens that were added; None if there is nothing to say."""
        session = self._session
        reason = self._finish_reason(tokens)
        delta = self._text.push([t for t in tokens if t not in self._engine.eos_token_ids])
        if self._text.stopped:
            reason = "stop"
            if not delta:  # all of it belongs to the stop string, and none was computed yet
                del session.ledger[len(session.ledger) - len(tokens) :]
                session.cache.facts.truncate(len(session.ledger))
                tokens = []
        if reason is not None:
            self._finished = True
            delta += self._text.flush()
        if not tokens and reason is None:
            return None
        return TokenEvent(tuple(tokens), delta, reason, certainty, self._logprobs(tokens))

    def _logprobs(self, tokens: list[int]) -> tuple[TokenLogprob, ...]:
        """Of tokens of which the first was sampled, if any was, and a grammar forced the others."""
        top, logits, self._chosen_from = self._params.logprobs, self._chosen_from, None
        if top is None or not tokens:
            return ()
        sampled = [] if logits is None else [token_logprob(logits, tokens[0], top)]
        return (*sampled, *(TokenLogprob(token, 0.0) for token in tokens[len(sampled) :]))

    def _choose(self, logits: Tensor) -> tuple[int, float | None]:
        """Sample the next token."""
        number, certainty = conclude_step(self._session, logits, self._draw)
        return int(number), certainty

    def _draw(self, logits: Tensor) -> Tensor:
        if self._constraint is not None:
            logits = self._constraint.mask(logits)
        self._chosen_from = None if self._params.logprobs is None else logits
        return self._sampler.draw(logits, self._generated)

    def _add(self, sampled: list[int]) -> list[int]:
        """Append sampled tokens and those the grammar forces after them, as far as there is room."""
        tokens = list(sampled)
        ended = any(token in self._engine.eos_token_ids for token in sampled)
        if self._constraint is not None and not ended:
            for token in sampled:
                self._constraint.accept(token)
            while not self._constraint.done and (forced := self._constraint.forced()):
                for token in forced:
                    self._constraint.accept(token)
                tokens.extend(forced)
        session = self._session
        room = min(self._params.max_tokens - self._generated, session.token_limit - len(session.ledger))
        self._cut_short = len(tokens) > room
        tokens = tokens[:room]
        length = len(session.ledger)
        session.cache.facts.add_span(Span(Role.ACTION, length, length + len(tokens)))
        session.ledger.extend(tokens)
        self._generated += len(tokens)
        session.timings.generated_tokens = self._generated
        return tokens

    def _finish_reason(self, tokens: list[int]) -> str | None:
        if any(token in self._engine.eos_token_ids for token in tokens):
            return "stop"
        if self._constraint is not None and self._constraint.done and not self._cut_short:
            return "stop"
        if self._generated >= self._params.max_tokens:
            return "length"
        if len(self._session.ledger) >= self._session.token_limit:
            return "context_full"
        return None
