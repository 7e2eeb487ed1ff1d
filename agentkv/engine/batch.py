"""Several sessions in one forward pass."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from torch import Tensor

from agentkv.engine.reply import Reply
from agentkv.engine.sampling import SamplingParams
from agentkv.engine.session import Session
from agentkv.errors import AgentKVError
from agentkv.policies.confidence import confidence

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine


def decode_batch(engine: Engine, sessions: Sequence[Session], last: Sequence[int]) -> Tensor:
    """See :meth:`Engine.decode_batch`."""
    _check(engine, sessions, len(last), "tokens")
    engine.check_tokens(last)
    with ExitStack() as held:
        for session in sessions:
            held.enter_context(session.exclusive())
        for session in sessions:
            if session.waiting:
                raise AgentKVError(f"a session has {len(session.waiting)} tokens waiting to be computed; do that first")
            session.check_room(1)
        for session, token in zip(sessions, last, strict=True):
            session.ledger.append(token)
        try:
            logits = engine.compute_last(sessions)
        finally:
            for session in sessions:  # those of a pass that was not made
                del session.ledger[session.logical_length :]
        _book_confidence(sessions, logits)
        return logits


def generate_batch(
    engine: Engine, sessions: Sequence[Session], prompts: Sequence[Sequence[int]], params: SamplingParams | None = None
) -> list[list[int]]:
    """See :meth:`Engine.generate_batch`."""
    _check(engine, sessions, len(prompts), "prompts")
    for prompt in prompts:
        engine.check_tokens(prompt)
    with ExitStack() as held:
        for session in sessions:
            held.enter_context(session.exclusive())
        for session, prompt in zip(sessions, prompts, strict=True):
            if not prompt and not session.waiting:
                raise AgentKVError("there are no tokens to compute: give every session at least one new token")
            session.check_room(len(prompt))
        replies = [Reply(engine, session, params or SamplingParams(), None, None) for session in sessions]
        generated: list[list[int]] = []
        for reply, prompt in zip(replies, prompts, strict=True):
            events = [reply.start(list(prompt))]
            if not reply.finished:
                logits = reply.compute()
                assert logits is not None, "nothing cancels it"
                events.append(reply.take(logits))
            generated.append([token for event in events if event is not None for token in event.token_ids])
        while going := [place for place, reply in enumerate(replies) if not reply.finished]:
            started = time.perf_counter()
            batch = engine.compute_last([sessions[place] for place in going])
            elapsed = 1e3 * (time.perf_counter() - started)
            for place, own in zip(going, batch, strict=True):
                sessions[place].timings.decode_ms += elapsed
                event = replies[place].take(own)
                generated[place] += event.token_ids if event is not None else ()
        return generated


def _check(engine: Engine, sessions: Sequence[Session], given: int, what: str) -> None:
    if not sessions:
        raise AgentKVError("there are no sessions to decode")
    if given != len(sessions):
        raise AgentKVError(f"{len(sessions)} sessions but {given} {what}: one for each is needed")
    if len(set(map(id, sessions))) < len(sessions):
        raise AgentKVError("the same session is listed twice; a batch takes different ones")
    if any(session.cache.store.arena is not engine.arena for session in sessions):
        raise AgentKVError("a session of another engine is listed; a batch shares one model and one page pool")


def _book_confidence(sessions: Sequence[Session], logits: Tensor) -> None:
    """What the model is sure of after each session's newest token, for the policies that ask."""
    if any(session.policy.needs_confidence for session in sessions):
        for session, measured in zip(sessions, confidence(logits).tolist(), strict=True):
            session.cache.confidence = measured if session.policy.needs_confidence else None
