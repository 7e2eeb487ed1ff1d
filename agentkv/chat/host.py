"""The thread that owns an engine, and the chat calls that queue for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentkv.chat.answer import Answer, Place, ReplySoFar, metadata
from agentkv.chat.call import ChatCall, ChatRequest, Failed, Finished, Item
from agentkv.chat.sessions import ChatSession, KVSettings, SessionTable, anonymous_id
from agentkv.chat.template import ChatTemplate
from agentkv.chat.turns import Turn, with_hint, with_tools
from agentkv.errors import AgentKVError, PoolExhausted, SessionFileError

if TYPE_CHECKING:
    from agentkv.cache.formats import KVLayout
    from agentkv.chat.template import Rendered
    from agentkv.engine.explain import Explanation
    from agentkv.engine.persistence import PackedSession
    from agentkv.engine.session import SessionStats
    from agentkv.tools.constraint import ReplyConstraint

_host_lock = threading.Lock()


class EngineThread(Protocol):
    """Runs what it is given on one thread, one after the other."""

    def submit(self, work: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Queue `work(*args)`."""
        ...


class ChatHost:
    """Runs the calls of every chat model that shares one engine, one after the other.

    A caller that answers several calls at a time does so on the `thread` that it gives: it takes a call with `begin`,
    generates, passes on every event to the answer's `reply`, and ends with `finish` or `abandon`.
    """

    def __init__(self, engine: Any, thread: EngineThread | None = None):
        self.engine = engine
        self.template = ChatTemplate(engine.tokenizer, engine.eos_token_ids)
        self._sessions = SessionTable()
        self._thread = thread or ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentkv-engine")

    @property
    def sessions(self) -> SessionTable:
        """The live sessions. For the engine's thread."""
        return self._sessions

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

    def pack_session(self, settings: KVSettings, session_id: str) -> Future[PackedSession | None]:
        """Queue copying a session and its conversation, for a file; None if there is no such session."""
        return self._thread.submit(self._pack_session, settings, session_id)

    def _pack_session(self, settings: KVSettings, session_id: str) -> PackedSession | None:
        session = self._sessions.by_id(settings, session_id)
        return None if session is None else self.pack(session)

    def pack(self, session: ChatSession) -> PackedSession:
        """Copy a session and its conversation, for a file. For the engine's thread."""
        from agentkv.engine.persistence import pack_session

        return pack_session(self.engine, session.kv, session.to_notes())

    def read_session(self, settings: KVSettings, path: Path) -> PackedSession:
        """What a file holds of a session with these settings. From any thread. Raises SessionFileError."""
        from agentkv.engine.persistence import read_packed

        packed = read_packed(self.engine, path)
        notes = packed.notes
        if not isinstance(notes, dict) or "turns" not in notes:
            raise SessionFileError(f"{path} holds a session of an engine, not the conversation of a chat model")
        if notes["settings"] != settings.key:
            raise SessionFileError(
                f"{path} was saved under the policy, budget and options {notes['settings']}, and this chat model has "
                f"{settings.key}; use one with the same"
            )
        return packed

    def restore_session(self, settings: KVSettings, session_id: str, packed: PackedSession) -> Future[None]:
        """Queue opening a session that was read, in place of one of that id."""
        return self._thread.submit(self.restore, settings, session_id, packed)

    def restore(self, settings: KVSettings, session_id: str, packed: PackedSession) -> None:
        """Open a session that was read, in place of one of that id. For the engine's thread. Raises PoolExhausted."""
        from agentkv.engine.persistence import open_packed

        try:
            kv = open_packed(self.engine, packed)  # what cannot be opened must not cost the session that is there
        except PoolExhausted:
            self._close_session(settings, session_id)
            kv = open_packed(self.engine, packed)
        self._close_session(settings, session_id)
        self._sessions.add(ChatSession.from_notes(session_id, settings, kv, packed.notes))

    def _serve(self, call: ChatCall) -> None:
        if call.cancel.is_set():
            return
        try:
            call.deliver(self._answer(call))
        except BaseException as error:  # the caller's thread raises it
            call.deliver(Failed(error))
        finally:
            self._sessions.limit_anonymous(call.request.max_anonymous)

    def _answer(self, call: ChatCall) -> Finished:
        answer = self.begin(call, self.constraint(call.request))
        rendered, params = answer.place.rendered, call.request.params
        try:
            self.make_room(answer)
            for event in self.engine.generate(
                answer.place.session.kv, rendered.ids, params, answer.constraint, call.cancel, rendered.roles
            ):
                answer.reply.take(event)
        except BaseException:
            self.abandon(answer)
            raise
        return self.finish(answer)

    def constraint(self, request: ChatRequest) -> ReplyConstraint | None:
        """Compile what holds a reply to its form; None if nothing has to. From any thread.

        It serves one call. Raises AgentKVError for a grammar or schema that is wrong.
        """
        form = request.form
        if form.grammar is None and form.schema is None and not form.tools:
            return None
        from agentkv.tools.constraint import build_constraint

        return build_constraint(self.engine, self.template.dialect, form, request.params.max_tokens)

    def begin(self, call: ChatCall, constraint: ReplyConstraint | None) -> Answer:
        """Find or open the session that answers; until the answer ends, no other call gets it.

        Args:
            constraint: of the reply, by :meth:`constraint`.

        Raises AgentKVError for a call that cannot be answered; then every session is as it was.
        """
        request, form = call.request, call.request.form
        turns = with_tools(request.turns, form.tools, self.template.dialect)
        place = self._place(request, turns)
        session = place.session
        session.busy = True
        session.turns, session.ends = session.turns[: place.covered], session.ends[: place.covered]
        length, reused = len(session.kv.ledger), session.kv.logical_length
        if constraint is not None:
            constraint.limit(session.kv.token_limit - length - len(place.rendered.ids))
        return Answer(call, place, tuple(turns), constraint, ReplySoFar(call, self.template.dialect), length, reused)

    def finish(self, answer: Answer) -> Finished:
        """Take the reply into its session.

        Raises ReplyTruncated if it had to be whole and is not. The session has what there is of it, and
        :meth:`report` still tells of it.
        """
        session, place, form = answer.place.session, answer.place, answer.call.request.form
        session.busy, session.tools = False, form.tools
        ends = [None if end is None else answer.length + end for end in place.rendered.ends]
        if form.schema is not None and form.hint:
            ends[-1:] = [None]  # what follows the message there is the hint, which another call has not
        session.extend(answer.turns, ends, answer.reply.turn)
        answer.reply.check_whole(answer.constraint)
        return self.report(answer)

    def abandon(self, answer: Answer) -> None:
        """Give up an answer without a reply; a session that has tokens of it cannot go on."""
        session = answer.place.session
        session.busy = False
        if len(session.kv.ledger) != answer.length or not session.turns:
            self._sessions.close(session)

    def report(self, answer: Answer) -> Finished:
        """What there is to tell of an answer that ended."""
        prompt = answer.length + len(answer.place.rendered.ids)
        counts: dict[str, Any] = {
            "prompt_tokens": prompt,
            "reused_tokens": answer.reused,
            "new_tokens": prompt - answer.reused,
        }
        if answer.call.request.form.tools:
            counts["tool_prompt"] = "template" if self.template.dialect.native else "system message"
        told = metadata(answer.place.session, answer.place.state, answer.reply.finish_reason)
        return Finished(told | counts, answer.reply.turn.calls)

    def _place(self, request: ChatRequest, turns: Sequence[Turn]) -> Place:
        """The session that answers, how it came about, and the tokens its ledger lacks."""
        tools, shown = request.form.tools, with_hint(turns, request.form)
        if request.session_id is None:
            found = self._sessions.by_turns(request.settings, turns, tools)
        else:
            found = self._sessions.by_id(request.settings, request.session_id)
        shared = 0 if found is None else found.shared(turns, tools)
        if found is not None and shared and shared == len(found.turns):
            rendered = self._continued(request, shown, shared, found.kv.ledger[-1])
            if rendered is not None:
                self._sessions.touch(found)
                return Place(found, "continued", rendered, shared)
        # Rendered and measured first: a call that is refused leaves every session as it was.
        request.check_length(shown)
        rendered = self.template.prompt(shown, tools)
        request.check_prompt(rendered.ids)
        settings = request.settings
        kv = self.engine.open_session(settings.policy, settings.budget, **settings.options)
        try:
            kv.check_room(len(rendered.ids), rendered.roles)
        except AgentKVError:
            kv.close()
            raise
        back = None if found is None else self._go_back(found, request, shown, shared)
        if back is not None:
            kv.close()
            return back
        if found is not None and not found.anonymous:
            self._sessions.close(found)
        session_id = request.session_id or anonymous_id()
        session = ChatSession(session_id, request.session_id is None, settings, kv)
        self._sessions.add(session)
        return Place(session, "new" if found is None or found.anonymous else "restarted", rendered, 0)

    def _continued(self, request: ChatRequest, shown: Sequence[Turn], covered: int, last_token: int) -> Rendered | None:
        """What follows the first `covered` turns; None where the template does not show. Raises PromptTooLong."""
        request.check_length(shown[covered:])
        rendered = self.template.delta(shown, covered, last_token, request.form.tools)
        if rendered is not None:
            request.check_prompt(rendered.ids)
        return rendered

    def _go_back(self, found: ChatSession, request: ChatRequest, shown: Sequence[Turn], shared: int) -> Place | None:
        """The session as it was after the turns that it shares with a conversation that goes on differently.

        A message was edited, older ones were summed up, or a reply is asked for again. An anonymous session is left
        alone, and a copy goes back: its conversation may go on too. None where nothing of the cache would be reused.
        """
        covered = found.last_end(shared)
        if not covered:
            return None
        end = found.ends[covered - 1] or 0
        rendered = self._continued(request, shown, covered, found.kv.ledger[end - 1])
        if rendered is None:
            return None
        session, state = found, "rewound"
        if found.anonymous:
            try:
                kv = self.engine.fork_session(found.kv)
            except PoolExhausted:
                return None
            session = ChatSession(anonymous_id(), True, found.settings, kv, found.turns, found.tools, found.ends)
            state = "forked"
        session.kv.rewind(end)
        if not session.kv.logical_length and session is not found:
            session.kv.close()
            return None
        self._sessions.add(session)
        self._sessions.touch(session)
        return Place(session, state if session.kv.logical_length else "restarted", rendered, covered)

    def make_room(self, answer: Answer) -> None:
        """Close idle sessions, least recently used first, until the pool has room for what the answer may add.

        An engine that spills does that itself, when it comes to it, and loses nothing.
        """
        if self.engine.spill_to is not None:
            return
        arena, layout, session = self.engine.arena, self.engine.layout, answer.place.session
        tokens = len(answer.place.rendered.ids) + answer.call.request.params.max_tokens
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
