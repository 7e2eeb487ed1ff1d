"""The thread that owns an engine, and the chat calls that queue for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentkv.chat.messages import Turn
from agentkv.chat.sessions import ChatSession, KVSettings, SessionTable, anonymous_id
from agentkv.chat.template import ChatTemplate, Rendered
from agentkv.errors import AgentKVError

if TYPE_CHECKING:
    from agentkv.cache.formats import KVLayout
    from agentkv.engine.explain import Explanation
    from agentkv.engine.session import SessionStats

_host_lock = threading.Lock()


@dataclass(frozen=True)
class ChatRequest:
    """One call, with everything the engine's thread needs."""

    turns: tuple[Turn, ...]
    settings: KVSettings
    params: Any
    session_id: str | None
    grammar: str | None
    max_anonymous: int


@dataclass(frozen=True)
class TextDelta:
    """More text of the reply."""

    text: str


@dataclass(frozen=True)
class Finished:
    """The reply is complete; `metadata` is what response_metadata["agentkv"] shows."""

    metadata: dict[str, Any]


@dataclass(frozen=True)
class Failed:
    """The call raised; nothing follows."""

    error: BaseException


Item = TextDelta | Finished | Failed


@dataclass(frozen=True)
class ChatCall:
    """A queued or running call. Setting `cancel` ends it within one token."""

    request: ChatRequest
    deliver: Callable[[Item], None]
    cancel: threading.Event = field(default_factory=threading.Event)


class ChatHost:
    """Runs the calls of every chat model that shares one engine, one after the other."""

    def __init__(self, engine: Any):
        self.engine = engine
        self.template = ChatTemplate(engine.tokenizer, engine.eos_token_ids)
        self._sessions = SessionTable()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentkv-engine")

    def submit(self, request: ChatRequest, deliver: Callable[[Item], None]) -> ChatCall:
        """Queue a call. `deliver` runs on the engine's thread: deltas, then one Finished or Failed."""
        call = ChatCall(request, deliver)
        self._thread.submit(self._serve, call)
        return call

    def close_session(self, settings: KVSettings, session_id: str) -> Future[bool]:
        """Queue the end of a session; the result says whether there was one."""
        return self._thread.submit(self._close_session, settings, session_id)

    def _close_session(self, settings: KVSettings, session_id: str) -> bool:
        session = self._sessions.by_id(settings, session_id)
        if session is not None:
            self._sessions.close(session)
        return session is not None

    def explain(self, settings: KVSettings, session_id: str) -> Future[Explanation | None]:
        """Queue a look at what a session holds of its text; None if there is no such session."""
        return self._thread.submit(self._explain, settings, session_id)

    def _explain(self, settings: KVSettings, session_id: str) -> Explanation | None:
        session = self._sessions.by_id(settings, session_id)
        return None if session is None else self.engine.explain(session.kv)

    def _serve(self, call: ChatCall) -> None:
        if call.cancel.is_set():
            return
        try:
            call.deliver(Finished(self._answer(call)))
        except BaseException as error:  # the caller's thread raises it
            call.deliver(Failed(error))
        finally:
            self._sessions.limit_anonymous(call.request.max_anonymous)

    def _answer(self, call: ChatCall) -> dict[str, Any]:
        request = call.request
        # Compiled first: a grammar that is wrong must leave every session as it was.
        constraint = _constraint(self.engine, request.grammar)
        session, state, rendered = self._place(request)
        new_ids = rendered.ids
        length, reused = len(session.kv.ledger), session.kv.logical_length
        text, finish_reason = [], "cancelled"
        try:
            self._make_room(session, len(new_ids) + request.params.max_tokens)
            for event in self.engine.generate(
                session.kv, new_ids, request.params, constraint, call.cancel, rendered.roles
            ):
                finish_reason = event.finish_reason or finish_reason
                if event.text:
                    text.append(event.text)
                    call.deliver(TextDelta(event.text))
        except BaseException:
            if len(session.kv.ledger) != length or not session.turns:
                self._sessions.close(session)
            raise
        session.turns = (*request.turns, Turn("assistant", "".join(text)))
        prompt = length + len(new_ids)
        return _metadata(session, state, finish_reason) | {
            "prompt_tokens": prompt,
            "reused_tokens": reused,
            "new_tokens": prompt - reused,
        }

    def _place(self, request: ChatRequest) -> tuple[ChatSession, str, Rendered]:
        """The session that answers, how it came about, and the tokens its ledger lacks."""
        found = self._find(request)
        if found is not None and found.is_prefix_of(request.turns):
            last_token = found.kv.ledger[-1]
            rendered = self.template.delta(request.turns, len(found.turns), last_token)
            if rendered is not None:
                self._sessions.touch(found)
                return found, "continued", rendered
        # Rendered and measured first: a call that is refused leaves every session as it was.
        rendered = self.template.prompt(request.turns)
        settings = request.settings
        kv = self.engine.open_session(settings.policy, settings.budget, **settings.options)
        try:
            kv.check_room(len(rendered.ids), rendered.roles)
        except AgentKVError:
            kv.close()
            raise
        if found is not None:
            self._sessions.close(found)
        session_id = request.session_id or anonymous_id()
        session = ChatSession(session_id, request.session_id is None, settings, kv)
        self._sessions.add(session)
        return session, "new" if found is None else "restarted", rendered

    def _find(self, request: ChatRequest) -> ChatSession | None:
        if request.session_id is None:
            return self._sessions.by_prefix(request.settings, request.turns)
        return self._sessions.by_id(request.settings, request.session_id)

    def _make_room(self, session: ChatSession, tokens: int) -> None:
        """Close idle sessions, least recently used first, until the pool has room for `tokens` more.

        An engine that spills does that itself, when it comes to it, and loses nothing.
        """
        if self.engine.spill_to is not None:
            return
        arena, layout = self.engine.arena, self.engine.layout
        wanted = growth_bytes(layout, session.kv.stats, tokens)
        while arena.free_pages * layout.page_bytes < wanted and self._sessions.close_oldest(keep=session):
            pass


def growth_bytes(layout: KVLayout, stats: SessionStats, tokens: int) -> int:
    """Upper bound of the pages that `tokens` more tokens take: one page of each head may be newly begun."""
    from agentkv.cache.formats import SlotCaps

    pages = layout.payload_bytes(layout.uniform(SlotCaps(fp=tokens + layout.page_slots)))
    return min(pages, stats.max_bytes - stats.resident_bytes)


def host_of(engine: Any) -> ChatHost:
    """The one host of `engine`; it is kept on the engine, so that both are collected together."""
    with _host_lock:
        host: ChatHost | None = getattr(engine, "_chat_host", None)
        if host is None:
            host = engine._chat_host = ChatHost(engine)
        return host


def _constraint(engine: Any, grammar: str | None) -> Any:
    if grammar is None:
        return None
    from agentkv.engine.constraints import GrammarConstraint

    return GrammarConstraint(engine, grammar)


def _metadata(session: ChatSession, state: str, finish_reason: str) -> dict[str, Any]:
    stats, timings = session.kv.stats, session.kv.timings
    return {
        "policy": session.settings.policy,
        "budget": session.settings.budget,
        "session_id": session.session_id,
        "session": state,
        "generated_tokens": timings.generated_tokens,
        "logical_length": session.kv.logical_length,
        "resident_kv_bytes": stats.resident_bytes,
        "peak_kv_bytes": stats.peak_bytes,
        "evicted_tokens": stats.evicted_tokens,
        "quantized_tokens": stats.quantized_tokens,
        "prefill_ms": timings.prefill_ms,
        "decode_ms": timings.decode_ms,
        "finish_reason": finish_reason,
    }
