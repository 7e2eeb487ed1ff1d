"""How many tabs there are in a browser, known from the moment the browser makes them.

Playwright tells of a tab only once the server has answered its first request. Until then a click that opens one
seems to have done nothing.
"""

from __future__ import annotations

from typing import Any

from playwright.async_api import Browser, Page


class Targets:
    """The tabs of one browser by browser context; `await watch(browser)`, then `count`."""

    def __init__(self) -> None:
        self._contexts: dict[str, str] = {}  # target to context

    async def watch(self, browser: Browser) -> None:
        """Hear of every tab, those that are open already as well."""
        session = await browser.new_browser_cdp_session()
        session.on("Target.targetCreated", self._created)
        session.on("Target.targetDestroyed", self._destroyed)
        only_tabs = [{"type": "page"}, {"exclude": True}]
        await session.send("Target.setDiscoverTargets", {"discover": True, "filter": only_tabs})

    def _created(self, event: dict[str, Any]) -> None:
        target = event["targetInfo"]
        self._contexts[target["targetId"]] = target.get("browserContextId", "")

    def _destroyed(self, event: dict[str, Any]) -> None:
        self._contexts.pop(event["targetId"], None)

    def count(self, context: str) -> int:
        """Tabs that are open in a context, by its id from `context_id`."""
        return sum(1 for owner in self._contexts.values() if owner == context)


async def context_id(page: Page) -> str:
    """The browser's own name for the context a page is in."""
    session = await page.context.new_cdp_session(page)
    try:
        answer = await session.send("Target.getTargetInfo")
    finally:
        await session.detach()
    return str(answer["targetInfo"].get("browserContextId", ""))
