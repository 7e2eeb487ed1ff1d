"""Which conversations live in the KV pool, and which of them a call continues."""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agentkv.chat.turns import Turn, common_turns
from agentkv.tools import Tool, ToolCall


@dataclass(frozen=True)
class KVSettings:
    """How a session keeps its KV; sessions of different settings never mix."""

    policy: str = "full"
    budget: int | str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def key(self) -> str:
        """Equal for equal settings."""
        return json.dumps([self.policy, self.budget, dict(self.options)], sort_keys=True, default=repr)


@dataclass
class ChatSession:
    """A conversation whose turns are all in the ledger of `kv`.

    Attributes:
        tools: that its turns tell the model of.
        ends: where each turn ends in the ledger; None where that is not known, or inside a token.
        busy: whether a call is being answered with it.
    """

    session_id: str
    anonymous: bool
    settings: KVSettings
    kv: Any
    turns: tuple[Turn, ...] = ()
    tools: tuple[Tool, ...] = ()
    ends: tuple[int | None, ...] = ()
    busy: bool = False

    def to_notes(self) -> dict[str, Any]:
        """What a session file says of the conversation, as JSON."""
        return {
            "settings": self.settings.key,
            "turns": [asdict(turn) for turn in self.turns],
            "tools": [asdict(tool) for tool in self.tools],
            "ends": list(self.ends),
        }

    @classmethod
    def from_notes(cls, session_id: str, settings: KVSettings, kv: Any, notes: Mapping[str, Any]) -> ChatSession:
        """The conversation of a session file."""
        turns = tuple(Turn(**turn | {"calls": tuple(ToolCall(**c) for c in turn["calls"])}) for turn in notes["turns"])
        tools = tuple(Tool(**tool) for tool in notes["tools"])
        return cls(session_id, False, settings, kv, turns, tools, tuple(notes["ends"]))

    def shared(self, turns: Sequence[Turn], tools: Sequence[Tool]) -> int:
        """How many turns a conversation with these tools has in common with this one."""
        return common_turns(self.turns, turns) if self.tools == tuple(tools) else 0

    def last_end(self, turns: int) -> int:
        """The newest of its first `turns` turns whose end in the ledger is known, counted from one; 0 if none is."""
        return next((n for n in range(turns, 0, -1) if self.ends[n - 1] is not None), 0)

    def extend(self, turns: Sequence[Turn], ends: Sequence[int | None], reply: Turn) -> None:
        """Take in new turns and the reply, which is the newest text of the ledger."""
        self.turns = (*turns, reply)
        self.ends = (*self.ends, *ends, len(self.kv.ledger))


class SessionTable:
    """Live chat sessions, least recently used first. Used by the engine's thread only."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[tuple[str, str], ChatSession] = OrderedDict()

    def __iter__(self) -> Iterator[ChatSession]:
        return iter(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def by_id(self, settings: KVSettings, session_id: str) -> ChatSession | None:
        """The session of that id under those settings."""
        return self._sessions.get((settings.key, session_id))

    def by_turns(self, settings: KVSettings, turns: Sequence[Turn], tools: Sequence[Tool]) -> ChatSession | None:
        """The idle anonymous session that `turns` go on from, or else the one that most of them begin like."""
        shared = [
            (session, common)
            for session in self
            if session.anonymous and not session.busy and session.settings.key == settings.key
            if (common := session.shared(turns, tools))
        ]
        whole = [pair for pair in shared if pair[1] == len(pair[0].turns)]
        return max(whole or shared, key=lambda pair: pair[1], default=(None, 0))[0]

    def add(self, session: ChatSession) -> None:
        """Put in a session as the most recently used one."""
        self._sessions[_key(session)] = session

    def touch(self, session: ChatSession) -> None:
        """Mark a session as the most recently used one."""
        self._sessions.move_to_end(_key(session))

    def close(self, session: ChatSession) -> None:
        """Forget a session and give its pages back."""
        self._sessions.pop(_key(session), None)
        session.kv.close()

    def close_oldest(self, keep: ChatSession | None = None) -> bool:
        """Close the least recently used idle session other than `keep`; False if there is none."""
        oldest = next((session for session in self if session is not keep and not session.busy), None)
        if oldest is not None:
            self.close(oldest)
        return oldest is not None

    def limit_anonymous(self, count: int) -> None:
        """Close the least recently used idle anonymous sessions beyond `count`."""
        anonymous = [session for session in self if session.anonymous and not session.busy]
        for session in anonymous[: max(0, len(anonymous) - count)]:
            self.close(session)

    def limit(self, count: int) -> int:
        """Close the least recently used idle sessions beyond `count` of all; returns how many that were."""
        before = len(self)
        while len(self) > count and self.close_oldest():
            pass
        return before - len(self)


def anonymous_id() -> str:
    """A fresh id for a session that was asked for without one."""
    return f"auto-{uuid.uuid4().hex[:12]}"


def _key(session: ChatSession) -> tuple[str, str]:
    return session.settings.key, session.session_id
