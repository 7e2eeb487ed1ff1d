"""One chat call: what is asked, and what comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentkv.chat.sessions import KVSettings
from agentkv.chat.turns import Turn
from agentkv.errors import PromptTooLong
from agentkv.tools import CallDelta, ReplyForm, TextDelta, ToolCall

_TOKEN_CHARACTERS = 8
"""More than a token has on average in any text that is one: English has 4, HTML about 3."""
_TURN_CHARACTERS = 32
"""What the template writes around a turn."""


@dataclass(frozen=True)
class ChatRequest:
    """One call, with everything the engine's thread needs.

    Attributes:
        max_anonymous: idle sessions without an id that are kept.
        max_prompt: tokens that the messages may add to a session; None for as many as it takes.
    """

    turns: tuple[Turn, ...]
    settings: KVSettings
    params: Any
    session_id: str | None
    form: ReplyForm
    max_anonymous: int
    max_prompt: int | None = None

    def check_prompt(self, new_ids: Sequence[int]) -> None:
        """Raises PromptTooLong for more new tokens than `max_prompt`."""
        limit, count = self.max_prompt, len(new_ids)
        if limit is not None and count > limit:
            raise PromptTooLong(count, limit, f"{count} tokens, and a call may add {limit}")

    def check_length(self, new_turns: Sequence[Turn]) -> None:
        """Raises PromptTooLong for new turns that are too long by far, before time is spent on counting tokens."""
        limit = self.max_prompt
        if limit is None:
            return
        characters = sum(_TURN_CHARACTERS + turn.characters for turn in new_turns)
        most = limit * _TOKEN_CHARACTERS
        if characters > most:
            what = f"{characters} characters, and a call may add {most}: {_TOKEN_CHARACTERS} for each of {limit} tokens"
            raise PromptTooLong(characters // _TOKEN_CHARACTERS, limit, what)


@dataclass(frozen=True)
class Finished:
    """The reply is complete; `metadata` is what response_metadata["agentkv"] shows."""

    metadata: dict[str, Any]
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class Failed:
    """The call raised; nothing follows."""

    error: BaseException


Item = TextDelta | CallDelta | Finished | Failed


@dataclass(frozen=True)
class ChatCall:
    """A queued or running call. Setting `cancel` ends it within one token."""

    request: ChatRequest
    deliver: Callable[[Item], None]
    cancel: threading.Event = field(default_factory=threading.Event)
