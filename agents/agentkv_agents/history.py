"""What an agent shows its model of the episode so far.

`append` keeps every page and every action and renders nothing again, so the prompt of a step is a prefix of
the next one and its KV cache is reused (and grows: this is what a KV policy has to keep in bounds).
`official` is VisualWebArena's: only the page of now and the action before it.
"""

from __future__ import annotations

from typing import Protocol

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from agentkv.errors import UnknownName
from agentkv_agents import prompts


class History(Protocol):
    """Turns observations and replies into the messages of the next model call."""

    def ask(self, observation_text: str, feedback: str | None, *, parse_failed: bool) -> list[BaseMessage]:
        """The messages to send now. `parse_failed`: the last reply was no action."""
        ...

    def answer(self, reply: AIMessage, action: str | None) -> None:
        """Takes the model's reply and the action that was read from it (None: it was none)."""
        ...


class AppendHistory:
    """System prompt, then one message per page and the model's own reply to it, for ever."""

    def __init__(self, system: str) -> None:
        self._messages: list[BaseMessage] = [SystemMessage(system)]

    def ask(self, observation_text: str, feedback: str | None, *, parse_failed: bool) -> list[BaseMessage]:
        if parse_failed and feedback:
            text = prompts.correction_message(feedback)
        else:
            text = prompts.observation_message(observation_text, feedback)
        self._messages.append(HumanMessage(text))
        return list(self._messages)

    def answer(self, reply: AIMessage, action: str | None) -> None:
        self._messages.append(reply)


class OfficialHistory:
    """System prompt and one message: the page of now, the action before it."""

    def __init__(self, system: str) -> None:
        self._system = SystemMessage(system)
        self._previous: str | None = None

    def ask(self, observation_text: str, feedback: str | None, *, parse_failed: bool) -> list[BaseMessage]:
        text = prompts.official_message(observation_text, self._previous, feedback)
        return [self._system, HumanMessage(text)]

    def answer(self, reply: AIMessage, action: str | None) -> None:
        self._previous = action


_HISTORIES: dict[str, type[AppendHistory] | type[OfficialHistory]] = {
    "append": AppendHistory,
    "official": OfficialHistory,
}


def history_names() -> tuple[str, ...]:
    """Names that `make_history` knows."""
    return tuple(_HISTORIES)


def make_history(name: str, system: str) -> History:
    """A new history that starts with the system prompt. Raises UnknownName."""
    if name not in _HISTORIES:
        raise UnknownName(f"unknown history {name!r}; there are: {', '.join(_HISTORIES)}")
    return _HISTORIES[name](system)
