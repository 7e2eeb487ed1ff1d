"""Tools that a model may call, and its calls."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentkv.errors import Unsupported

MAX_DEPTH = 64
"""Nesting of JSON from outside; templates and grammars are recursive as well."""
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


@dataclass(frozen=True)
class Tool:
    """A function that the model may ask to call.

    Attributes:
        parameters: JSON schema of the object of its arguments.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def parse(cls, spec: Any) -> Tool:
        """From OpenAI's shape, `{"type": "function", "function": {"name", "description", "parameters"}}`.

        Raises:
            Unsupported: another shape, or a name that is no name.
        """
        function = spec.get("function") if isinstance(spec, Mapping) else None
        if not isinstance(function, Mapping):
            raise Unsupported(f'a tool is {{"type": "function", "function": {{"name": ...}}}}, not {_short(spec)}')
        name, parameters = function.get("name"), function.get("parameters") or {}
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise Unsupported(f"a tool's name is letters, digits and _ . : / -, not {name!r}")
        if not isinstance(parameters, Mapping):
            raise Unsupported(f"the parameters of tool {name!r} are a JSON schema, not {_short(parameters)}")
        return cls(name, str(function.get("description") or ""), _untitled(dict(parameters)))

    @property
    def schema(self) -> dict[str, Any]:
        """Its parameters as the schema of an object; a tool without parameters takes none."""
        return {"type": "object", "properties": {}} | dict(self.parameters)

    def to_openai(self) -> dict[str, Any]:
        """The shape that chat templates expect."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool. Calls are equal if they ask for the same, whatever their ids."""

    name: str
    arguments: Mapping[str, Any] = field(hash=False)
    id: str = field(default="", compare=False)


def parse_tools(specs: Sequence[Any]) -> tuple[Tool, ...]:
    """Tools with different names; the same tool twice is one. Raises Unsupported."""
    parsed = [Tool.parse(spec) for spec in specs]
    tools = tuple(tool for n, tool in enumerate(parsed) if tool not in parsed[:n])
    names = [tool.name for tool in tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Unsupported(f"there are two tools called {twice!r}; a call could not tell them apart")
    return tools


def parse_arguments(name: str, arguments: Any) -> Mapping[str, Any]:
    """Arguments of a call as a mapping: OpenAI's wire format has them as JSON text, templates expect a mapping.

    Raises:
        Unsupported: neither, or nested too deep.
    """
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise Unsupported(f"the arguments of a call of {name!r} are not JSON: {error}") from error
    if not isinstance(arguments, Mapping):
        raise Unsupported(f"the arguments of a call of {name!r} are an object, not {_short(arguments)}")
    if deeper(arguments):
        raise Unsupported(f"the arguments of a call of {name!r} are nested more than {MAX_DEPTH} levels deep")
    return arguments


def deeper(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether JSON is nested deeper than so many levels."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return levels == 0 or any(deeper(part, levels - 1) for part in parts)


def _untitled(schema: Any) -> Any:
    """A schema without the titles that pydantic gives to everything: they say nothing that names do not."""
    if isinstance(schema, dict):
        return {k: _untitled(part) for k, part in schema.items() if not (k == "title" and isinstance(part, str))}
    return [_untitled(part) for part in schema] if isinstance(schema, list) else schema


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
