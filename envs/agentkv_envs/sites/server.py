"""Serving an embedded site on a free port of 127.0.0.1, inside the environment's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState


class SiteServer:
    """One ASGI application on its own port. `await start()`, then `url`; `await stop()` frees the port.

    Uvicorn's protocol without its server, whose main loop wakes every 100 ms and so takes up to 200 ms to stop.
    """

    def __init__(self, app: ASGIApp):
        # The protocol must be named: asyncio turns Nagle's algorithm off only for sockets that say they are TCP,
        # and with it every second response waits 40 ms for a delayed acknowledgement.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._config = uvicorn.Config(
            app, lifespan="off", log_config=None, access_log=False, ws="none", server_header=False, date_header=False
        )
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._config.load()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: H11Protocol(config=self._config, server_state=self._state, app_state={}), sock=self._socket
        )

    async def stop(self) -> None:
        """Break all connections, cancel what is still being answered, and free the port."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        running = list(self._state.tasks)
        for task in running:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*running, return_exceptions=True)
        self._socket.close()
