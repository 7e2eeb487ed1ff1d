"""How a model writes tool calls, and how it is told about tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentkv.tools.calls import Tool, ToolCall

_PROBES = ({"probe_one": "alpha"}, {"probe_two": "beta"})
_SAID = "probe said"
_TOLD = """You are an expert in composing functions. You are given a question and a set of possible functions. \
If one of them helps to answer it, call it; otherwise answer the question.

You have access to the following tools:
{tools}

The output of a call MUST strictly adhere to the following format, and NO other text MUST be included.
{example}"""
"""In the words that SmolLM2 was trained on; with others it hardly tells questions for a tool from the rest."""


@dataclass(frozen=True)
class Dialect:
    """The text around calls: opener, call, separator, call, closer. A call is `{"name": ..., "arguments": ...}`.

    Attributes:
        arguments_key: what the call's arguments are called.
        native: whether the model's own chat template renders tools, calls and results; otherwise they are written
            into the system message and into ordinary messages.
    """

    opener: str
    separator: str
    closer: str
    arguments_key: str = "arguments"
    native: bool = False

    def head(self, name: str) -> str:
        """A call up to its arguments."""
        return f'{{"name": {json.dumps(name)}, "{self.arguments_key}": '

    def write(self, calls: Iterable[ToolCall]) -> str:
        """Calls as the model would have written them."""
        texts = (self.head(call.name) + to_json(call.arguments) + "}" for call in calls)
        return self.opener + self.separator.join(texts) + self.closer

    def describe(self, tools: Sequence[Tool]) -> str:
        """What a model whose template knows no tools is told about them."""
        lines = "\n".join(_tool_line(tool) for tool in tools)
        example = self.opener + '{"name": "tool", "' + self.arguments_key + '": {"key": value}}' + self.closer
        return _TOLD.format(tools=lines, example=example)

    def write_result(self, content: str) -> str:
        """A tool's result as a user's message."""
        return f"<tool_response>\n{content}\n</tool_response>"


HERMES = Dialect("<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>")
"""What Hermes, Qwen and others were trained on; for models whose template knows no tools."""


def to_json(value: Any) -> str:
    """JSON as constrained replies have it, and as models mostly saw it: blanks after separators, no escapes."""
    return json.dumps(value, ensure_ascii=False)


def probe(render: Callable[[list[dict[str, Any]], list[dict[str, Any]]], str]) -> Dialect | None:
    """The dialect of a chat template, found by rendering calls with it; None if it is not one that we can write.

    Args:
        render: from messages and tools to text; what it raises means None.
    """
    tool = Tool("probe_tool", "probe", {"type": "object", "properties": {"probe_one": {"type": "string"}}})
    try:
        said, one, two = (render(_conversation(calls), [tool.to_openai()]) for calls in (0, 1, 2))
        before, found, after = said.partition(_SAID)
        if not found or "probe_tool" not in before or not one.startswith(before):
            return None
        (first,) = _objects(one[len(before) :], 1)
        *_, second = _objects(two[len(before) :], 2)
    except Exception:  # a template may raise anything about a conversation it does not like
        return None
    tail = one[len(before) + first[1] :]
    closer = tail[: len(tail) - len(after)]
    between = two[len(before) + first[1] : len(before) + second[0]]
    if not tail.endswith(after) or first[2] != second[2]:
        return None
    opener = one[len(before) : len(before) + first[0]]
    return Dialect(opener, between, closer, first[2], native=True) if opener.strip() else None


def _conversation(calls: int) -> list[dict[str, Any]]:
    asked = {"role": "user", "content": "probe asked"}
    if not calls:
        return [asked, {"role": "assistant", "content": _SAID}]
    made = [
        {"type": "function", "id": f"probe000{n}", "function": {"name": "probe_tool", "arguments": arguments}}
        for n, arguments in enumerate(_PROBES[:calls])
    ]
    return [asked, {"role": "assistant", "content": "", "tool_calls": made}]


def _objects(text: str, count: int) -> list[tuple[int, int, str]]:
    """Start, end and arguments key of the calls in `text`, which must be written as this dialect writes them."""
    found: list[tuple[int, int, str]] = []
    at = text.find("{")
    while at >= 0 and len(found) < count:
        value, end = json.JSONDecoder().raw_decode(text, at)
        expected = _PROBES[len(found)]
        key = next((key for key, part in value.items() if part == expected), None)
        if key is None or list(value) != ["name", key] or value["name"] != "probe_tool":
            raise ValueError("another shape of call")
        found.append((at, end, key))
        at = text.find("{", end)
    if len(found) != count:
        raise ValueError("calls are missing")
    return found


def _tool_line(tool: Tool) -> str:
    """`- name(key: type, key?: type): description`: a small model reads it better than the whole schema."""
    properties = tool.schema.get("properties") or {}
    required = set(tool.schema.get("required") or ())
    keys = ", ".join(f"{key}{'' if key in required else '?'}: {_type(part)}" for key, part in properties.items())
    return f"- {tool.name}({keys})" + (f": {_one_line(tool.description)}" if tool.description else "")


def _type(schema: Any) -> str:
    """A schema in a few words: its type, its choices, what it is for."""
    if not isinstance(schema, Mapping):
        return "any"
    if "const" in schema or "enum" in schema:
        kind = " | ".join(to_json(value) for value in schema.get("enum", [schema.get("const")]))
    elif options := schema.get("anyOf") or schema.get("oneOf"):
        kind = " | ".join(_type(option) for option in options)
    elif schema.get("type") == "array":
        kind = f"array of {_type(schema.get('items'))}"
    else:
        named = schema.get("type") or str(schema.get("$ref", "any")).rpartition("/")[2]
        kind = " | ".join(named) if isinstance(named, list) else str(named)
    about = schema.get("description")
    return f"{kind} ({_one_line(about)})" if about else kind


def describe_schema(schema: Mapping[str, Any]) -> str:
    """A line that asks for JSON of `schema`."""
    keys = schema.get("properties")
    if not keys:
        return f"Reply with JSON of this schema only: {to_json(schema)}"
    return "Reply with a JSON object only: {" + ", ".join(f'"{key}": {_type(part)}' for key, part in keys.items()) + "}"


def _one_line(text: str) -> str:
    return " ".join(str(text).split())
