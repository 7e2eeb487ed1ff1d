"""What an evaluator has before it: the episode, how it ended, and the rules to judge by."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from agentkv_envs.episode import Episode
from agentkv_envs.errors import InfraError
from agentkv_envs.scoring.forum import EmbeddedForum, Forum, PostmillForum
from agentkv_envs.scoring.functions import Sources, call
from agentkv_envs.scoring.judges import Judges
from agentkv_envs.scoring.shop import EmbeddedShop, MagentoShop, Shop
from agentkv_envs.types import Task

_LOAD_MS = 20_000
# Real sites go on after `load`; the benchmark sleeps 3 s, which is the longest wait here.
_REST = "wait => window.__agentkv ? window.__agentkv.settle(wait) : null"
_WAIT = {"quiet": 200, "cap": 3000, "since": 0}


@dataclass(frozen=True)
class Case:
    """One episode to be scored.

    Attributes:
        episode: the episode, its browser context and databases.
        answer: the text of the final `stop`, "" without one.
        dialect: "official" or "fixed".
        judges: the judges there are.
    """

    episode: Episode
    answer: str
    dialect: str
    judges: Judges

    @property
    def task(self) -> Task:
        """The task, with its placeholders filled in."""
        return self.episode.bound

    @property
    def eval(self) -> dict[str, Any]:
        """The task's evaluators."""
        return self.task.eval

    def shop(self) -> Shop | None:
        """Where to ask about the shop: the episode's database, a real shop, or nowhere."""
        for site in self.episode.sites:
            if site.name == "shopping":
                return EmbeddedShop(site.database, self.episode.urls["shopping"])
        url = self.episode.urls.get("shopping")
        return MagentoShop(url) if url and self.task.external else None

    def forum(self) -> Forum:
        """Where to ask about the forum: the episode's database, or the page."""
        database = next((site.database for site in self.episode.sites if site.name == "forum"), None)
        return PostmillForum() if database is None else EmbeddedForum(database)

    async def resolve(self, url: str) -> str:
        """A target's address, with `func:` and `__last_url__` worked out."""
        if url.startswith("func:"):
            return await self.call(url, self.episode.page())
        return url.replace("__last_url__", self.episode.page().url)

    async def call(self, text: str, page: Page) -> str:
        """The result of a `func:` expression."""
        return await call(text.removeprefix("func:"), Sources(page, self.shop(), self.forum()), self.task.task_id)

    @contextlib.asynccontextmanager
    async def page_at(self, url: str) -> AsyncIterator[Page | None]:
        """The page to look at: "last" is the agent's own; None when the address does not open.

        Other addresses are opened on a tab of their own. "official" navigates the agent's tab as the benchmark's
        released code does, so that whatever is checked next sees the wrong page.

        Raises:
            InfraError: a real site does not answer.
        """
        address = await self.resolve(url)
        if address == "last":
            yield self.episode.page()
            return
        own = self.dialect == "official"
        page = self.episode.page() if own else await self.episode.side_page()
        try:
            yield page if await self._goto(page, address) else None
        finally:
            if not own:
                await page.close()

    async def _goto(self, page: Page, address: str) -> bool:
        try:
            state = "load" if self.task.external else "domcontentloaded"
            await page.goto(address, wait_until=state, timeout=_LOAD_MS)  # type: ignore[arg-type]
            if self.task.external:
                await page.evaluate(_REST, _WAIT)
        except PlaywrightError as error:
            if self.task.external:
                raise InfraError(f"an evaluator cannot open {address}: {str(error).splitlines()[0]}") from None
            return False
        return True
