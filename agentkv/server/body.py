"""What requests look like: OpenAI's fields and a few of ours."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from agentkv.server.errors import ApiError
from agentkv.server.settings import NAME, NAME_RULE
from agentkv.tools.calls import MAX_DEPTH, deeper

B = TypeVar("B", bound=BaseModel)
_HARMLESS = {"user", "store", "metadata", "service_tier", "safety_identifier"}
"""Fields that would not change a reply."""


def _named(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(NAME_RULE)
    return name


Name = Annotated[str, AfterValidator(_named)]
"""A session's id."""


class _Body(BaseModel):
    """Types are as in JSON: no numbers in strings. Unknown fields are kept, to be told of."""

    model_config = ConfigDict(strict=True, extra="allow")


class Function(_Body):
    """What a tool call asks for; the arguments are JSON text."""

    name: str
    arguments: str = ""


class Call(_Body):
    """A tool call of an earlier reply."""

    id: str = ""
    type: Literal["function"] = "function"
    function: Function


class Message(_Body):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None


class StreamOptions(_Body):
    """Of a streamed reply."""

    include_usage: bool = False


class ChatBody(_Body):
    """POST /v1/chat/completions."""

    model: str | None = None
    messages: list[Message] = Field(min_length=1, max_length=10_000)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    n: Literal[1] | None = None
    session_id: Name | None = None
    prompt_cache_key: str | None = None
    functions: Any = None

    @field_validator("functions")
    @classmethod
    def _no_functions(cls, functions: Any) -> None:
        """OpenAI's old way to pass tools: better an error than tools that never arrive."""
        if functions is not None:
            raise ValueError("this field was replaced by tools; pass them there")

    @field_validator("stop")
    @classmethod
    def _few_stops(cls, stop: str | list[str] | None) -> str | list[str] | None:
        if isinstance(stop, list) and len(stop) > 16:
            raise ValueError("at most 16 stop strings")
        return stop

    @property
    def ignored(self) -> list[str]:
        """Fields of the request that have no effect here."""
        extra = self.model_extra or {}
        return sorted(name for name, value in extra.items() if value is not None and name not in _HARMLESS)


class TokenizeBody(_Body):
    """POST /tokenize: a text, or the messages of a conversation."""

    model: str | None = None
    text: str | None = None
    messages: list[Message] | None = None
    tools: list[dict[str, Any]] | None = None


class FileBody(_Body):
    """POST /v1/sessions/{id}/save and /restore."""

    name: Name | None = None


class ForkBody(_Body):
    """POST /v1/sessions/{id}/fork."""

    to: Name


def parse(raw: bytes, kind: type[B]) -> B:
    """A request's body. Raises ApiError."""
    try:
        value = json.loads(raw)
        text = json.dumps(value, ensure_ascii=False)
        # Half a surrogate pair, of a text that was cut inside an emoji, becomes a replacement character.
        value = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except (ValueError, RecursionError) as error:
        raise ApiError(f"the request is not JSON: {_short(error)}", code="invalid_json") from error
    if deeper(value):
        raise ApiError(f"the request is nested more than {MAX_DEPTH} levels deep", code="invalid_json")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        said = str(first["msg"]).removeprefix("Value error, ")
        message = f"{place}: {said}" if place else said
        raise ApiError(_short(message), code="invalid_value", param=place[:200] or None) from error


def _short(error: object) -> str:
    return " ".join(str(error).split())[:300]
