"""Serving an embedded site on a free port of 127.0.0.1, inside the environment's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import uvicorn
from starlette.types import ASGIApp


class SiteServer:
    """One ASGI application on its own port. `await start()`, then `url`; `await stop()` frees the port."""

    def __init__(self, app: ASGIApp):
        # The protocol must be named: asyncio turns Nagle's algorithm off only for sockets that say they are TCP,
        # and with it every second response waits 40 ms for a delayed acknowledgement.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(
            app, lifespan="off", log_config=None, access_log=False, http="h11", ws="none", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._server.serve([self._socket]))
        while not self._server.started:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.001)

    async def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        if self._task is not None:
            with contextlib.suppress(Exception):
                await self._task
        self._socket.close()
