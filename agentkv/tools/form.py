"""What a reply may look like, from OpenAI's parameters `tools`, `tool_choice` and `response_format`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agentkv.errors import Unsupported
from agentkv.tools.calls import Tool, parse_tools

Choice = Literal["auto", "none", "required"]
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True)
class ReplyForm:
    """Constraints of one reply.

    Attributes:
        tools: what the model is told of.
        choice: "auto": text or calls, as the model decides. "none": text. "required": at least one call.
        only: with "required", the one tool that may be called.
        parallel: whether a reply may hold several calls.
        bias: added to the logits of the tokens that open a call, as long as a reply with a choice has begun with them.
        schema: of a JSON document that the reply must be, unless it is a call.
        hint: whether the model is told of `schema`.
        grammar: a Lark grammar that the reply must match, in llguidance's dialect.
    """

    tools: tuple[Tool, ...] = ()
    choice: Choice = "auto"
    only: str | None = None
    parallel: bool = False
    bias: float = 0.0
    schema: Mapping[str, Any] | None = field(default=None, hash=False)
    hint: bool = True
    grammar: str | None = None

    @classmethod
    def parse(
        cls,
        tools: Any = None,
        tool_choice: Any = None,
        parallel_tool_calls: Any = None,
        response_format: Any = None,
        grammar: Any = None,
        tool_call_bias: float = 0.0,
    ) -> ReplyForm:
        """From OpenAI's parameters; of `tool_choice` also LangChain's "any", true, false and names of tools.

        Raises:
            Unsupported: a value that means nothing, or values that contradict each other.
        """
        if tools is not None and not isinstance(tools, list | tuple):
            raise Unsupported(f"tools are a list, not {type(tools).__name__}")
        if not isinstance(parallel_tool_calls, bool | None):
            raise Unsupported(f"parallel_tool_calls must be true or false, not {parallel_tool_calls!r}")
        if grammar is not None and not isinstance(grammar, str):
            raise Unsupported(f"grammar must be the text of a Lark grammar, not {grammar!r}")
        form = cls(parse_tools(tools or ()), parallel=bool(parallel_tool_calls), bias=tool_call_bias, grammar=grammar)
        form = form._with_choice(tool_choice)._with_format(response_format)
        if grammar is not None and (form.may_call or form.schema is not None):
            raise Unsupported("a call takes a grammar, or tools and a response_format, not both")
        if form.schema is not None and form.choice == "required":
            raise Unsupported("tool_choice demands a tool call and response_format a JSON reply; drop one of them")
        return form

    @property
    def may_call(self) -> bool:
        """Whether the reply may hold tool calls."""
        return bool(self.tools) and self.choice != "none"

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools that may be called now."""
        return tuple(tool for tool in self.tools if self.only in (None, tool.name))

    @property
    def constrained(self) -> bool:
        """Whether the whole reply follows a grammar, which then ends it."""
        return self.grammar is not None or self.schema is not None or (self.may_call and self.choice == "required")

    def _with_choice(self, choice: Any) -> ReplyForm:
        names = [tool.name for tool in self.tools]
        if isinstance(choice, Mapping):
            function = choice.get("function")
            name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
            if name is None:
                raise Unsupported(f"tool_choice {dict(choice)!r} names no function")
            return self._only(name, names)
        if choice in (None, "auto", False) or choice == "none":
            return replace(self, choice="none" if choice in ("none", False) else "auto")
        if choice in ("any", "required", True):
            if not names:
                raise Unsupported(f"tool_choice {choice!r} demands a tool call, but there are no tools")
            return replace(self, choice="required")
        return self._only(choice, names)

    def _only(self, name: Any, names: list[str]) -> ReplyForm:
        if name not in names:
            known = ", ".join(["auto", "none", "any", *names])
            raise Unsupported(f"tool_choice {name!r} is unknown; choose one of {known}")
        return replace(self, choice="required", only=name)

    def _with_format(self, wanted: Any) -> ReplyForm:
        kind = wanted.get("type") if isinstance(wanted, Mapping) else None
        if wanted is None or kind == "text":
            return self
        if kind == "json_object":
            # A schema beside it is ours: the document is valid JSON anyway, and then of that schema too.
            schema = wanted.get("schema") or ANY_OBJECT
            if not isinstance(schema, Mapping):
                raise Unsupported(f"the schema of response_format is a JSON schema, not {schema!r}")
            return replace(self, schema=schema, hint=False)
        named = wanted.get("json_schema") if kind == "json_schema" else None
        schema = named.get("schema") if isinstance(named, Mapping) else None
        if not isinstance(schema, Mapping):
            raise Unsupported(
                'response_format is {"type": "text"}, {"type": "json_object"} or '
                f'{{"type": "json_schema", "json_schema": {{"name": ..., "schema": {{...}}}}}}, not {wanted!r}'
            )
        return replace(self, schema=schema)
