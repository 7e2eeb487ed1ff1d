"""Reading a reply while it is generated: text, and tool calls argument by argument."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from agentkv.tools.calls import ToolCall
from agentkv.tools.dialect import Dialect


@dataclass(frozen=True)
class TextDelta:
    """More text of the reply."""

    text: str


@dataclass(frozen=True)
class CallDelta:
    """More of a tool call.

    Attributes:
        index: which call of the reply.
        arguments: more of the JSON text of its arguments.
        id, name: on the first delta of a call only; clients that join deltas would join them too.
    """

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


class ReplyReader:
    """Takes the text of a reply piece by piece and tells words from calls.

    What may yet become the opener of a call is held back. From the opener on, the text must be as a grammar of
    :mod:`agentkv.tools.grammar` lets it be.

    Attributes:
        calls: those that are complete.
    """

    def __init__(self, dialect: Dialect):
        self._dialect = dialect
        self._held = ""
        self._state = self._text
        self._arguments = ""
        self._depth = 0
        self._in_string = self._escaped = False
        self._name = self._id = ""
        self.calls: list[ToolCall] = []

    @property
    def inside_call(self) -> bool:
        """Whether the reply has begun a call and not ended it."""
        return self._state in (self._head, self._body, self._end)

    def push(self, text: str) -> list[TextDelta | CallDelta]:
        """Add text; returns what is now certain."""
        self._held += text
        return list(self._advance())

    def flush(self) -> list[TextDelta | CallDelta]:
        """What was held back, at the end of the reply."""
        text, self._held = self._held if self._state == self._text else "", ""
        return [TextDelta(text)] if text else []

    def _advance(self) -> Iterator[TextDelta | CallDelta]:
        while True:
            state, held = self._state, self._held
            yield from state()
            if self._state == state and self._held == held:
                return

    # --- one state each: takes from what is held, and may go on to the next ---

    def _text(self) -> Iterator[TextDelta | CallDelta]:
        opener = self._dialect.opener
        text, found, rest = self._held.partition(opener)
        if found:
            self._state = self._head
        else:
            keep = overlap(text, opener)
            text, rest = text[: len(text) - keep], text[len(text) - keep :]
        self._held = rest
        if text:
            yield TextDelta(text)

    def _head(self) -> Iterator[TextDelta | CallDelta]:
        before, found, rest = self._held.partition(f', "{self._dialect.arguments_key}": ')
        if found:
            self._name = json.loads(before.partition(": ")[2])
            self._id = uuid.uuid4().hex[:9]  # some templates demand just nine letters and digits
            self._held, self._state = rest, self._body
            yield CallDelta(len(self.calls), "", self._id, self._name)

    def _body(self) -> Iterator[TextDelta | CallDelta]:
        end = next((at + 1 for at, char in enumerate(self._held) if self._closes(char)), None)
        part, self._held = self._held[:end], "" if end is None else self._held[end:]
        self._arguments += part
        if part:
            yield CallDelta(len(self.calls), part)
        if end is not None:
            self._state = self._end

    def _end(self) -> Iterator[TextDelta | CallDelta]:
        yield from ()
        if self._held.startswith("}"):
            self.calls.append(ToolCall(self._name, json.loads(self._arguments), self._id))
            self._held, self._state, self._arguments = self._held[1:], self._between, ""

    def _between(self) -> Iterator[TextDelta | CallDelta]:
        yield from ()
        if self._held.startswith(self._dialect.separator):
            self._held, self._state = self._held[len(self._dialect.separator) :], self._head

    def _closes(self, char: str) -> bool:
        """Whether the arguments end with `char`."""
        if self._escaped:
            self._escaped = False
        elif self._in_string:
            self._escaped = char == "\\"
            self._in_string = char != '"'
        elif char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            return self._depth == 0
        return False


def overlap(text: str, opener: str) -> int:
    """Length of the longest end of `text` that `opener` begins with."""
    return next((n for n in range(min(len(text), len(opener) - 1), 0, -1) if text.endswith(opener[:n])), 0)
