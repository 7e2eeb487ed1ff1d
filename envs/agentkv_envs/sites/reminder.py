"""A note on a site's page that repeats a fact, for tasks that measure what forgetting it costs."""

from __future__ import annotations

import fnmatch
import html
import re
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MAIN = re.compile(rb"<main\b[^>]*>")


@dataclass(frozen=True)
class Reminder:
    """`text` stands at the top of every page whose path and query match `path`, where `*` stands for anything."""

    path: str
    text: str


def remind(app: ASGIApp, reminder: Reminder) -> ASGIApp:
    """The application with the note on its pages; other answers pass unchanged.

    As a status the note is among the page's alerts, which no observation cuts short.
    """
    note = f'<p class="reminder" role="status">Note: {html.escape(reminder.text)}</p>'.encode()

    async def reminded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _matches(scope, reminder.path):
            await app(scope, receive, send)
            return
        start: dict[str, Any] = {}
        body = b""

        async def hold(message: Message) -> None:
            nonlocal body
            if message["type"] == "http.response.start":
                start.update(message)
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            changed = _MAIN.sub(lambda m: m.group(0) + note, body, count=1)
            headers = [(k, v) for k, v in start["headers"] if k.lower() != b"content-length"]
            headers.append((b"content-length", str(len(changed)).encode()))
            await send({**start, "type": "http.response.start", "headers": headers})
            await send({"type": "http.response.body", "body": changed})

        await app(scope, receive, hold)

    return reminded


def _matches(scope: Scope, pattern: str) -> bool:
    query = scope["query_string"].decode()
    address = f"{scope['path']}?{query}" if query else scope["path"]
    return fnmatch.fnmatchcase(address, pattern)
