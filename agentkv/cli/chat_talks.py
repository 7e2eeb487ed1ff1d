"""The conversations of one `agentkv chat`: each a session of the engine and its messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from agentkv.chat.call import ChatCall, ChatRequest
from agentkv.chat.host import ChatHost
from agentkv.chat.sessions import ChatSession, KVSettings
from agentkv.chat.turns import Turn
from agentkv.engine.persistence import read_notes
from agentkv.errors import AgentKVError, SessionFileError
from agentkv.tools import ReplyForm

if TYPE_CHECKING:
    from agentkv.engine import Engine, Explanation, SamplingParams, Session

_NOTHING = "the cache holds nothing of this session yet; say something first"


@dataclass(frozen=True)
class Talk:
    """A conversation; its KV may have been closed to make room, its messages stay."""

    name: str
    settings: KVSettings
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True)
class Memory:
    """What a session holds at one moment of a reply.

    Attributes:
        resident: bytes, pages and metadata.
        limit: bytes of the budget; None without one.
        evicted, quantized: tokens, means over layers and heads.
        reading: tokens that are being prefilled.
        confidence: of the model in the newest token, or the mean of a reply that is complete; None before any.
    """

    policy: str
    resident: int
    limit: int | None
    evicted: int
    quantized: int
    reading: int = 0
    confidence: float | None = None


@dataclass(frozen=True)
class Step:
    """What became certain of a reply, and what the session holds now. Only the last one has the facts of the reply."""

    text: str
    memory: Memory
    facts: dict[str, Any] | None = None


class Talks:
    """Every conversation of the chat, by name, and the one that is being held. For one thread."""

    def __init__(self, engine: Engine, settings: KVSettings, params: SamplingParams, name: str, system: str | None):
        """Raises AgentKVError for a policy or budget that cannot be."""
        engine.open_session(settings.policy, settings.budget).close()
        self._engine: Any = engine
        self._host = ChatHost(engine)
        self._params = params
        self._talks: dict[str, Talk] = {}
        self._enter(Talk(name, settings, (Turn("system", system),) if system else ()))

    def __iter__(self) -> Iterator[Talk]:
        return iter(self._talks.values())

    @property
    def current(self) -> Talk:
        return self._talks[self._name]

    def _enter(self, talk: Talk) -> None:
        self._talks[talk.name], self._name = talk, talk.name

    def live(self, talk: Talk) -> ChatSession | None:
        """The talk's KV; None before the first reply, or after it was closed to make room for another's."""
        return self._host.sessions.by_id(talk.settings, talk.name)

    def _require(self) -> ChatSession:
        session = self.live(self.current)
        if session is None:
            raise AgentKVError(_NOTHING)
        return session

    def say(self, text: str, cancel: threading.Event) -> Iterator[Step]:
        """Send a message; the reply comes step by step. Setting `cancel` ends it within one token.

        Raises AgentKVError; the conversation is then what it was before.
        """
        talk = self.current
        turns = (*talk.turns, Turn("user", text))
        request = ChatRequest(turns, talk.settings, self._params, talk.name, ReplyForm(), max_anonymous=0)
        answer = self._host.begin(ChatCall(request, lambda item: None, cancel), None)
        kv, rendered = answer.place.session.kv, answer.place.rendered
        certainties = []
        try:
            self._host.make_room(answer)
            kv.measures_confidence = True
            yield Step("", _memory(talk, kv, reading=len(kv.waiting) + len(rendered.ids)))
            for event in self._engine.generate(kv, rendered.ids, self._params, None, cancel, rendered.roles):
                answer.reply.take(event)
                if event.confidence is not None:
                    certainties.append(event.confidence)
                yield Step(event.text, _memory(talk, kv, confidence=event.confidence))
        except BaseException:
            self._host.abandon(answer)
            raise
        finished = self._host.finish(answer)
        self._enter(replace(talk, turns=(*turns, answer.reply.turn)))
        mean = fmean(certainties) if certainties else None
        yield Step("", _memory(talk, kv, confidence=mean), finished.metadata)

    def keep_kv_by(self, policy: str, budget: str | None) -> int:
        """Go on with this conversation under another policy and budget.

        Returns how many tokens the next reply computes again. Raises AgentKVError if policy and budget cannot be, or
        do not hold the conversation; then nothing has changed.
        """
        talk, session = self.current, self.live(self.current)
        settings = KVSettings(policy, budget)
        kv = self._engine.open_session(policy, budget)
        if settings.key == talk.settings.key or session is None:
            kv.close()
        else:
            try:
                kv.adopt_ledger(session.kv)
            except AgentKVError:
                kv.close()
                raise
            self._host.sessions.close(session)
            session = replace(session, settings=settings, kv=kv)
            self._host.sessions.add(session)
        self._enter(replace(talk, settings=settings))
        return 0 if session is None else len(session.kv.waiting)

    def explain(self) -> Explanation:
        """Which text the cache still holds. Raises AgentKVError before the first reply."""
        return self._engine.explain(self._require().kv)

    def fork(self, name: str) -> None:
        """Go on in a copy of this conversation. Raises AgentKVError if the name is taken, PoolExhausted."""
        if name in self._talks:
            raise AgentKVError(f"there is a session {name!r} already; /session {name} goes to it")
        session = self.live(self.current)
        if session is not None:
            copy = self._engine.fork_session(session.kv)
            self._host.sessions.add(replace(session, session_id=name, kv=copy))
        self._enter(replace(self.current, name=name))

    def go_to(self, name: str) -> None:
        """Go on with another conversation. Raises AgentKVError if there is none of that name."""
        if name not in self._talks:
            raise AgentKVError(f"there is no session {name!r}; there are: {', '.join(self._talks)}")
        self._name = name

    def save(self, path: Path) -> None:
        """Write the session and its conversation to a file, in place of an older session only.

        Raises AgentKVError before the first reply, SessionFileError.
        """
        session = self._require()
        if path.exists():
            try:
                read_notes(path)
            except SessionFileError as error:
                raise SessionFileError(f"{path} is there already and holds no session; choose another name") from error
        self._engine.save_session(session.kv, path, session.to_notes())

    def load(self, path: Path) -> None:
        """Go on with the session of a file, under its own policy and budget and a name that is free.

        Raises SessionFileError, PoolExhausted; then nothing has changed.
        """
        kv = self._engine.restore_session(path)
        notes = read_notes(path)
        if not isinstance(notes, dict) or "turns" not in notes:
            kv.close()
            raise SessionFileError(f"{path} holds a session without a conversation")
        settings, name = KVSettings(*json.loads(notes["settings"])), self._free_name(path.stem)
        session = ChatSession.from_notes(name, settings, kv, notes)
        self._host.sessions.add(session)
        self._enter(Talk(name, settings, session.turns))

    def _free_name(self, wanted: str) -> str:
        number, name = 2, wanted
        while name in self._talks:
            name, number = f"{wanted}-{number}", number + 1
        return name


def _memory(talk: Talk, kv: Session, reading: int = 0, confidence: float | None = None) -> Memory:
    stats = kv.stats
    limit = None if talk.settings.budget is None else stats.max_bytes
    evicted, quantized = stats.evicted_tokens, stats.quantized_tokens
    return Memory(talk.settings.policy, stats.resident_bytes, limit, evicted, quantized, reading, confidence)
