"""Browser contexts ahead of time: the next one is ready when an episode starts, an old one closes while it runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass
from importlib import resources
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page, StorageState, ViewportSize
from playwright.async_api import Error as PlaywrightError

from agentkv_envs.targets import context_id

VIEWPORT: ViewportSize = {"width": 1280, "height": 800}
_MAX_CLOSING = 2
_CLOSE_S = 3.0


def _script(name: str) -> str:
    return resources.files(__package__ or "agentkv_envs").joinpath(name).read_text()


@dataclass(frozen=True)
class Window:
    """A browser context with its first page; `key` is the browser's own name for the context."""

    context: BrowserContext
    page: Page
    key: str


async def open_context(
    browser: Browser, real: bool = False, viewport: ViewportSize = VIEWPORT, storage: StorageState | None = None
) -> Window:
    """A context of its own cookies and storage, with one blank page.

    Args:
        browser: a running browser.
        real: for real hosts, whose pages know the time and may have service workers.
        viewport: size of the page in CSS pixels.
        storage: cookies to begin with.
    """
    context = await browser.new_context(
        viewport=viewport,
        locale="en-US",
        timezone_id=None if real else "UTC",
        accept_downloads=False,
        service_workers="allow" if real else "block",
        storage_state=storage,
    )
    await context.add_init_script(_script("settle.js"))
    if not real:
        await context.add_init_script(_script("clock.js"))
    page = await context.new_page()
    return Window(context, page, await context_id(page))


class ContextPool:
    """Opens contexts and closes episodes in the background, so that no episode waits for either."""

    def __init__(self) -> None:
        self._spare: asyncio.Task[Window] | None = None
        self._browser: Browser | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def take(self, browser: Browser) -> Window:
        """The context that was prepared, or a new one."""
        spare, self._spare = self._spare, None
        if spare is not None and self._browser is browser:
            with contextlib.suppress(PlaywrightError):
                window = await spare
                if not window.page.is_closed():
                    return window
        return await open_context(browser)

    def prepare(self, browser: Browser) -> None:
        """Begin to open the context of the next episode."""
        if self._spare is None or self._browser is not browser:
            self._browser = browser
            self._spare = asyncio.ensure_future(open_context(browser))
            self._spare.add_done_callback(_seen)

    async def retire(self, closing: Coroutine[Any, Any, None]) -> None:
        """Close an episode in the background; waits only when several are being closed already."""
        while len(self._closing) >= _MAX_CLOSING:
            await asyncio.wait(self._closing, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.ensure_future(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def drain(self) -> None:
        """Wait until all that was retired is closed, and give up the spare context."""
        spare, self._spare = self._spare, None
        if spare is not None:
            with contextlib.suppress(PlaywrightError, TimeoutError):
                window = await asyncio.wait_for(spare, _CLOSE_S)
                await asyncio.wait_for(window.context.close(), _CLOSE_S)
        if self._closing:
            await asyncio.wait(self._closing)


def _seen(task: asyncio.Task[Any]) -> None:
    """A spare context that failed to open is no one's error: the next episode opens its own."""
    if not task.cancelled():
        task.exception()
