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
        self.closed = False
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start `work`; the future is the caller's to wait for."""
        if self.closed:
            work.close()
            raise EnvError("this environment is closed; make a new one")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, last: Coroutine[Any, Any, None], timeout_s: float) -> None:
        """Run `last`, for at most `timeout_s`, then end the thread."""
        future = self.submit(last)
        self.closed = True
        concurrent.futures.wait([future], timeout_s)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._loop.close()
