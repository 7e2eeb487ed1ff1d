"""Carrying the items of a call from the engine's thread to the caller, synchronously or not."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import AsyncIterator, Iterator

from agentkv.chat.call import ChatRequest, Failed, Finished, Item
from agentkv.chat.host import ChatHost
from agentkv.tools import CallDelta, TextDelta

Part = TextDelta | CallDelta | Finished


def run(host: ChatHost, request: ChatRequest, timeout: float | None) -> Iterator[Part]:
    """Items of one call; closing the iterator cancels the call.

    Raises:
        TimeoutError: the call took longer than `timeout` seconds, waiting included.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    items: queue.SimpleQueue[Item] = queue.SimpleQueue()
    call = host.submit(request, items.put)
    try:
        while True:
            try:
                item = items.get(timeout=_remaining(deadline))
            except queue.Empty:
                raise _too_slow(timeout) from None
            yield _unwrap(item)
            if isinstance(item, Finished):
                return
    finally:
        call.cancel.set()


async def arun(host: ChatHost, request: ChatRequest, timeout: float | None) -> AsyncIterator[Part]:
    """Like `run`; cancelling the task that awaits cancels the call as well."""
    deadline = None if timeout is None else time.monotonic() + timeout
    loop = asyncio.get_running_loop()
    items: asyncio.Queue[Item] = asyncio.Queue()

    def deliver(item: Item) -> None:
        if loop.is_closed():
            call.cancel.set()
        else:
            loop.call_soon_threadsafe(items.put_nowait, item)

    call = host.submit(request, deliver)
    try:
        while True:
            try:
                item = await asyncio.wait_for(items.get(), _remaining(deadline))
            except TimeoutError:
                raise _too_slow(timeout) from None
            yield _unwrap(item)
            if isinstance(item, Finished):
                return
    finally:
        call.cancel.set()


def _unwrap(item: Item) -> Part:
    if isinstance(item, Failed):
        raise item.error
    return item


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _too_slow(timeout: float | None) -> TimeoutError:
    return TimeoutError(f"the reply took longer than timeout={timeout} s; generation was cancelled")
