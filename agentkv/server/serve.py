"""Running a server until it is told to stop."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn

from agentkv.errors import AgentKVError
from agentkv.server.app import create_app
from agentkv.server.scheduler import Scheduler
from agentkv.server.settings import ServerSettings

if TYPE_CHECKING:
    from agentkv.engine.engine import Engine

_GRACE_SECONDS = 3
"""What replies that are under way get when the server is told to stop."""


def serve(settings: ServerSettings, load: Callable[[], Engine], host: str, port: int) -> None:
    """Serve until the process is told to stop.

    Args:
        load: gives the engine; requests before get 503.
        host, port: to listen at; port 0 takes a free one.

    Raises:
        AgentKVError: the address cannot be used, or the model cannot be loaded.
    """
    failures: list[BaseException] = []

    def failed(error: BaseException) -> None:
        failures.append(error)
        server.should_exit = True

    listener = listen(host, port)
    config = uvicorn.Config(
        create_app(Scheduler(settings, load, failed)),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = uvicorn.Server(config)
    address, port = listener.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    print(f"agentkv: {settings.model} at http://{shown}:{port}/v1 (Ctrl-C ends it)", file=sys.stderr, flush=True)
    server.run(sockets=[listener])
    if failures:
        raise failures[0]


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises AgentKVError."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        raise AgentKVError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
