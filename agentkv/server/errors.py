"""Errors as OpenAI's clients expect them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse

from agentkv.errors import (
    AgentKVError,
    BudgetTooSmall,
    ContextOverflow,
    PoolExhausted,
    SessionFileError,
    Unsupported,
)

logger = logging.getLogger("agentkv.server")

_LONGEST = 600
"""Characters of a message."""
RETRY_AFTER = {"Retry-After": "1"}


class ApiError(AgentKVError):
    """A call that is refused, and how HTTP says so.

    Attributes:
        status: of HTTP.
        code: for programs.
        param: the field of the request that is wrong.
        headers: of the response.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = dict(headers or {})


@dataclass(frozen=True)
class Problem:
    """An error on its way to a client."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    def response(self) -> Json:
        """As a response of its own."""
        return Json(self.body, self.status, self.headers)


class Json(JSONResponse):
    """JSON in ASCII: half a surrogate pair in a text has no UTF-8, and some clients take U+2028 for a line's end."""

    def render(self, content: Any) -> bytes:
        return to_text(content).encode()


def to_text(content: Any) -> str:
    """Compact JSON in ASCII."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def problem(error: BaseException) -> Problem:
    """What a client is told of an error. The text of one that is no user's mistake is kept back."""
    if isinstance(error, ApiError):
        return _problem(error.status, str(error), error.code, error.param, error.headers)
    if isinstance(error, ContextOverflow):
        more = {"prompt_tokens": error.prompt_tokens, "limit": error.limit}
        # Clients that tell this error from others look for these words.
        return _problem(400, f"prompt is too long: {error}", "context_length_exceeded", "messages", more=more)
    if isinstance(error, PoolExhausted):
        return _problem(503, str(error), "kv_pool_exhausted", headers=RETRY_AFTER)
    if isinstance(error, SessionFileError):
        return _problem(409, str(error), "session_file")
    if isinstance(error, AgentKVError):
        codes = {BudgetTooSmall: "budget_too_small", Unsupported: "unsupported"}
        return _problem(400, str(error), codes.get(type(error), "invalid_request"))
    return _problem(500, "the server failed; its log says how", "internal_error")


def _sentence(message: str) -> str:
    """One line of a length that can be read: messages quote what was sent."""
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def log_bug(error: BaseException) -> None:
    """Log an error that is no user's mistake."""
    if not isinstance(error, AgentKVError):
        logger.error("a call failed", exc_info=error)


def _problem(
    status: int,
    message: str,
    code: str | None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Problem:
    kinds = {401: "authentication_error", 404: "not_found_error", 409: "conflict_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": _sentence(message), "type": kind, "param": param, "code": code, **(more or {})}
    return Problem(status, {"error": error}, dict(headers or {}))
