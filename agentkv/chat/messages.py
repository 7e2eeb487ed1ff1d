"""From LangChain messages to the plain turns that a chat template renders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, SystemMessage

from agentkv.errors import Unsupported


@dataclass(frozen=True)
class Turn:
    """One message as the model sees it."""

    role: str
    content: str


def to_turns(messages: Sequence[BaseMessage]) -> tuple[Turn, ...]:
    """Flatten messages to text turns.

    Raises:
        Unsupported: images, audio, files, tool calls or tool results; the message names the place.
    """
    if not messages:
        raise Unsupported("the list of messages is empty; send at least one")
    return tuple(Turn(_role(message, place), _text(message, place)) for place, message in enumerate(messages, start=1))


def roles_of(turns: Sequence[Turn]) -> tuple[str, ...]:
    """Whose words each turn is, as policies know roles: "system", "task", "observation" or "action".

    The first message that is neither a system message nor the model's is the task; what comes after is observed.
    """
    roles: list[str] = []
    for turn in turns:
        known = {"system": "system", "developer": "system", "assistant": "action"}.get(turn.role)
        roles.append(known or ("observation" if "task" in roles else "task"))
    return tuple(roles)


def _role(message: BaseMessage, place: int) -> str:
    if isinstance(message, ChatMessage):
        return message.role
    for kind, role in ((SystemMessage, "system"), (HumanMessage, "user"), (AIMessage, "assistant")):
        if isinstance(message, kind):
            return role
    raise Unsupported(
        f"message {place} is a {type(message).__name__}; ChatAgentKV reads system, human, AI and chat messages"
    )


def _text(message: BaseMessage, place: int) -> str:
    if isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls):
        raise Unsupported(f"message {place} holds tool calls, which ChatAgentKV does not render")
    if isinstance(message.content, str):
        return message.content
    return "".join(_part_text(part, place) for part in message.content)


def _part_text(part: str | dict[str, Any], place: int) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise Unsupported(f"message {place} holds content of type {kind!r}; the model reads text only")
