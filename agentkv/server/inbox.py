"""What the model's thread says of one call, on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from agentkv.chat.call import Failed, Finished
from agentkv.server.running import Sent

if TYPE_CHECKING:
    from starlette.requests import Request


T = TypeVar("T")


class Inbox:
    """Items of one call. Made on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Sent] = asyncio.Queue()

    def put(self, item: Sent) -> None:
        """Add an item, from any thread. Raises RuntimeError when the loop is closed."""
        self._loop.call_soon_threadsafe(self._items.put_nowait, item)

    async def get(self) -> Sent:
        """The next item. Raises what the call raised."""
        item = await self._items.get()
        if isinstance(item, Failed):
            raise item.error
        return item

    async def rest(self) -> AsyncIterator[Sent]:
        """Items up to the last one."""
        while True:
            item = await self.get()
            yield item
            if isinstance(item, Finished):
                return


class ClientGone(Exception):
    """Whoever asked does not wait for the answer."""


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client goes away. Raises ClientGone then."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _gone(request: Request) -> None:
    """Returns when the connection is closed; the body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
