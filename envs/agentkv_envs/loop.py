"""An event loop on a thread of its own, for callers with and without a loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from agentkv_envs.errors import EnvError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for any thread and any other loop, until it is closed."""

    def __init__(self, name: str):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.closed = False
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start `work`; the future is the caller's to wait for."""
        if self.closed:
            work.close()
            raise EnvError("this environment is closed; make a new one")
        return asyncio.run_coroutine_threadsafe(self._run(work), self._loop)

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        except asyncio.CancelledError:
            if self.closed:
                raise EnvError("this environment was closed while it worked") from None
            raise
        finally:
            self._tasks.discard(task)

    async def _end(self, last: Coroutine[Any, Any, None]) -> None:
        """Whoever waits for something under way learns that it will not come; then `last`."""
        if tasks := set(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await last

    def close(self, last: Coroutine[Any, Any, None], timeout_s: float) -> None:
        """Cancel what runs, run `last`, for at most `timeout_s`, then end the thread."""
        self.closed = True
        future = asyncio.run_coroutine_threadsafe(self._end(last), self._loop)
        concurrent.futures.wait([future], timeout_s)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._loop.close()
