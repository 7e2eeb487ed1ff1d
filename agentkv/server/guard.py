"""Who is answered at all."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from agentkv.server.errors import ApiError, problem
from agentkv.server.settings import ServerSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_OPEN = {"/health", "/ready"}


class Guard:
    """Lets only requests through whose Host header and API key are right, and which no foreign web page made.

    Args:
        app: what they go on to.
        settings: of the server.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings):
        self._app = app
        self._hosts = settings.hosts
        self._key = None if settings.api_key is None else settings.api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refusal is None else problem(refusal).response())(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts is not None and _host(host) not in self._hosts:
            return ApiError("this server does not answer to that host name; see --allow-host", 403, "forbidden_host")
        if (origin := headers.get("origin")) is not None and _host(origin.partition("://")[2]) != _host(host):
            return ApiError("this server does not answer to pages of other hosts", 403, "forbidden_origin")
        if self._key is None or scope["path"] in _OPEN:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        sent = token.strip().encode("latin-1")  # the bytes as they came
        if scheme.lower() == "bearer" and hmac.compare_digest(sent, self._key):
            return None
        return ApiError("a wrong or missing API key", 401, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def _host(header: str) -> str:
    """A Host header without its port."""
    name, colon, port = header.rpartition(":")
    return name if colon and port.isdigit() else header
