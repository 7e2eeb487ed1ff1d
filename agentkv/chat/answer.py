"""A chat call that is being answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentkv.chat.call import ChatCall
from agentkv.chat.sessions import ChatSession
from agentkv.chat.template import Rendered
from agentkv.chat.turns import Turn
from agentkv.errors import ReplyTruncated
from agentkv.tools import CallDelta, ReplyReader, TextDelta

if TYPE_CHECKING:
    from agentkv.engine.reply import TokenEvent
    from agentkv.tools import Dialect
    from agentkv.tools.constraint import ReplyConstraint


@dataclass(frozen=True)
class Place:
    """Where a call is answered: its ledger holds the first `covered` turns, and lacks what is rendered."""

    session: ChatSession
    state: str
    rendered: Rendered
    covered: int


@dataclass(frozen=True)
class Answer:
    """A call that is being answered.

    Attributes:
        turns: the conversation so far.
        constraint: of the reply.
        length: tokens of the session's ledger before.
        reused: how many of them are in its cache.
    """

    call: ChatCall
    place: Place
    turns: tuple[Turn, ...]
    constraint: ReplyConstraint | None
    reply: ReplySoFar
    length: int
    reused: int


class ReplySoFar:
    """What has come of a reply so far."""

    def __init__(self, call: ChatCall, dialect: Dialect):
        self._call = call
        self._reader = ReplyReader(dialect) if call.request.form.may_call else None
        self._raw: list[str] = []
        self._words: list[str] = []
        self._reason = "cancelled"

    def take(self, event: TokenEvent) -> None:
        """Pass on what an event makes certain."""
        self._reason = event.finish_reason or self._reason
        self._raw.append(event.text)
        items: list[TextDelta | CallDelta] = [TextDelta(event.text)] if event.text else []
        if self._reader is not None:
            items = self._reader.push(event.text) + (self._reader.flush() if event.finish_reason else [])
        for item in items:
            if isinstance(item, TextDelta):
                self._words.append(item.text)
            self._call.deliver(item)

    @property
    def turn(self) -> Turn:
        """The reply as a turn. Half a call is none."""
        return Turn("assistant", "".join(self._words), tuple(self._reader.calls) if self._reader else ())

    @property
    def finish_reason(self) -> str:
        """Why it ended."""
        return "tool_calls" if self.turn.calls and self._reason != "cancelled" else self._reason

    def check_whole(self, constraint: ReplyConstraint | None) -> None:
        """Raise ReplyTruncated for half a tool call and half a JSON document."""
        form = self._call.request.form
        if self._reason == "cancelled":
            return
        missing = form.choice == "required" and not self.turn.calls
        if self._reader is not None and (self._reader.inside_call or missing):
            raise ReplyTruncated("a tool call", self._reason, "".join(self._raw))
        if form.schema is None or self.turn.calls or self._reason == "stop":
            return
        if constraint is None or not constraint.accepting:
            raise ReplyTruncated("the JSON reply", self._reason, "".join(self._raw))
        self._reason = "stop"


def metadata(session: ChatSession, state: str, finish_reason: str) -> dict[str, Any]:
    """What there is to tell of a session and of the reply that it gave last."""
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
