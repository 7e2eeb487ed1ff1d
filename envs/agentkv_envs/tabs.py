"""What a browser context does by itself: tabs open and close, dialogs appear, pages crash, documents load."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from time import monotonic
from typing import Any

from playwright.async_api import BrowserContext, Dialog, Page, Request
from playwright.async_api import Error as PlaywrightError

from agentkv_envs.errors import InfraError
from agentkv_envs.sent import Sent, form_fields

_MAX_MESSAGES = 5
# A tab whose server says nothing for so long is looked at when it does.
_OPENING_S = 5.0


class Tabs:
    """The open tabs of an episode, the current one, and what happened in them since it was last asked.

    Attributes:
        pages: in the order they were opened.
        current: the tab the agent looks at; None when the last one was closed.
        new: the tab that opened since the last observation, or None.
        dialog: the confirm or prompt dialog that blocks a page, or None.
        dialog_opened: set while there is one.
        sent: the requests of all pages.
    """

    def __init__(self) -> None:
        self.pages: list[Page] = []
        self.current: Page | None = None
        self.new: Page | None = None
        self.dialog: Dialog | None = None
        self.dialog_opened = asyncio.Event()
        self.sent: list[Sent] = []
        self._messages: list[str] = []
        self._navigating: set[Request] = set()
        self._fresh: set[Page] = set()
        self._count: Callable[[], int] = lambda: len(self.pages)
        self._given_up = 0
        self._opening_since = 0.0
        self._crashed = False

    def watch(self, context: BrowserContext, count: Callable[[], int]) -> None:
        """Take over every tab that opens in this context from now on; `count` tells how many the browser has there."""
        self._count = count
        context.on("page", self._opened)

    @contextlib.contextmanager
    def unwatched(self, context: BrowserContext) -> Any:
        """While this lasts, a new tab is nobody's."""
        context.remove_listener("page", self._opened)
        try:
            yield
        finally:
            context.on("page", self._opened)

    def _opened(self, page: Page) -> None:
        self.adopt(page)
        self.new = page

    def adopt(self, page: Page) -> None:
        """Watch a tab; it becomes the current one."""
        self.pages.append(page)
        self.current = page
        page.on("dialog", self._on_dialog)
        page.on("close", self._forget)
        page.on("crash", self._on_crash)
        page.on("request", self._on_request)
        for event in ("response", "requestfailed"):
            page.on(event, self._on_answer)

    def _forget(self, page: Page) -> None:
        if page in self.pages:
            index = self.pages.index(page)
            self.pages.remove(page)
            self._fresh.discard(page)
            if self.current is page:
                self.current = self.pages[max(0, index - 1)] if self.pages else None

    def page(self) -> Page:
        """The current tab.

        Raises:
            InfraError: a page crashed.
        """
        self.check()
        if self.current is None:
            raise InfraError("the last tab is gone")
        return self.current

    def check(self) -> None:
        """Raises InfraError when a page has crashed."""
        if self._crashed:
            raise InfraError("the page crashed")

    def _on_crash(self, page: Page) -> None:
        self._crashed = True

    def _on_request(self, request: Request) -> None:
        if request.resource_type in ("document", "xhr", "fetch"):
            self.sent.append(Sent(request.method, request.url, form_fields(request.post_data_buffer)))
        if request.is_navigation_request() and request.frame.parent_frame is None:
            self._navigating.add(request)
            self._fresh.add(request.frame.page)

    def _on_answer(self, answer: Any) -> None:
        self._navigating.discard(getattr(answer, "request", answer))

    def take_fresh(self, page: Page) -> bool:
        """Whether the tab has asked for a document since the last call."""
        fresh = page in self._fresh
        self._fresh.discard(page)
        return fresh

    @property
    def navigating(self) -> bool:
        """Whether a document has been asked for and has not answered yet."""
        return bool(self._navigating) and not self._crashed

    def opening(self) -> bool:
        """Whether the browser has made a tab that Playwright has not told of, its first document being under way."""
        missing = self._count() - len(self.pages)
        self._given_up = max(0, min(self._given_up, missing))
        if missing <= self._given_up or self._crashed:
            self._opening_since = 0.0
            return False
        self._opening_since = self._opening_since or monotonic()
        if monotonic() - self._opening_since < _OPENING_S:
            return True
        self._given_up, self._opening_since = missing, 0.0
        return False

    def busy(self) -> bool:
        """Whether a document or a tab is under way."""
        return self.navigating or self.opening()

    async def _on_dialog(self, dialog: Dialog) -> None:
        """Alerts are noted and accepted, questions wait for the agent."""
        if dialog.type in ("alert", "beforeunload"):
            if dialog.type == "alert":
                self._messages.append(dialog.message)
            with contextlib.suppress(PlaywrightError):
                await dialog.accept()
            return
        self.dialog = dialog
        self.dialog_opened.set()

    def take_dialog(self) -> Dialog | None:
        """The open dialog, which the caller answers."""
        dialog, self.dialog = self.dialog, None
        self.dialog_opened.clear()
        return dialog

    def take_messages(self) -> tuple[str, ...]:
        """Texts of the alerts since the last call; of many, the first and how many more there were."""
        messages, self._messages = self._messages, []
        if len(messages) <= _MAX_MESSAGES:
            return tuple(messages)
        return (*messages[:_MAX_MESSAGES], f"and {len(messages) - _MAX_MESSAGES} more alerts")
