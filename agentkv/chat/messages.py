"""From LangChain messages to the plain turns that a chat template renders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage

from agentkv.chat.turns import Turn
from agentkv.errors import Unsupported
from agentkv.tools import ToolCall
from agentkv.tools.calls import parse_arguments

_ROLES = ((SystemMessage, "system"), (HumanMessage, "user"), (AIMessage, "assistant"), (ToolMessage, "tool"))
_TOLD_ELSEWHERE = {"tool_call", "tool_use", "tool_call_chunk", "function_call", "invalid_tool_call"}
"""Parts of a reply's content that its `tool_calls` say as well."""
_THOUGHTS = {"reasoning", "thinking", "redacted_thinking"}
"""What another model thought is nothing that this one said."""
_FILE_AS_TEXT = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=\s]{1000}")


def to_turns(messages: Sequence[BaseMessage]) -> tuple[Turn, ...]:
    """Flatten messages to turns.

    Raises:
        Unsupported: images, audio, files or broken tool calls; the message names the place.
    """
    if not messages:
        raise Unsupported("the list of messages is empty; send at least one")
    return tuple(_turn(message, place) for place, message in enumerate(messages, start=1))


def _turn(message: BaseMessage, place: int) -> Turn:
    role, text = _role(message, place), _text(message, place)
    if isinstance(message, ToolMessage):
        return Turn(role, text, name=message.name, call_id=message.tool_call_id)
    if not isinstance(message, AIMessage):
        return Turn(role, text)
    if message.invalid_tool_calls:
        raise Unsupported(f"message {place} holds a tool call that could not be read; leave it out or repair it")
    calls = (ToolCall(c["name"], parse_arguments(c["name"], c["args"]), c["id"] or "") for c in message.tool_calls)
    return Turn(role, text, tuple(calls))


def _role(message: BaseMessage, place: int) -> str:
    if isinstance(message, ChatMessage):
        return message.role
    role = next((role for kind, role in _ROLES if isinstance(message, kind)), None)
    if role is None:
        raise Unsupported(
            f"message {place} is a {type(message).__name__}; ChatAgentKV reads system, human, AI, tool, chat ones"
        )
    return role


def _text(message: BaseMessage, place: int) -> str:
    if isinstance(message.content, str):
        return _checked(message.content, place)
    silent = _TOLD_ELSEWHERE | _THOUGHTS if isinstance(message, AIMessage) else set()
    return "".join(_part_text(part, place, silent) for part in message.content)


def _part_text(part: str | dict[str, Any], place: int, silent: set[str]) -> str:
    if isinstance(part, str):
        return _checked(part, place)
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return _checked(str(part["text"]), place)
    if kind in silent:
        return ""
    raise Unsupported(f"message {place} holds content of type {kind!r}; the model reads text only")


def _checked(text: str, place: int) -> str:
    """Text that is not a file in disguise: a screenshot as base64 takes hundreds of thousands of tokens."""
    if _FILE_AS_TEXT.search(text):
        raise Unsupported(f"message {place} holds a file as base64 text, which a text model cannot read; leave it out")
    return text
