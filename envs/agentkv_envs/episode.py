"""One episode: sites, browser context, acting and observing. Everything here runs on the environment's event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from time import monotonic, perf_counter, time
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, Page
from playwright.async_api import Error as PlaywrightError

from agentkv_envs import hosts
from agentkv_envs.addresses import lasting
from agentkv_envs.captions import caption_of
from agentkv_envs.contexts import VIEWPORT, ContextPool, Window, open_context
from agentkv_envs.delta import Delta
from agentkv_envs.errors import ActionError, InfraError
from agentkv_envs.execute import Check, perform
from agentkv_envs.observe import PageState, Surroundings, change_view, dialog_observation, observe
from agentkv_envs.options import EnvOptions, TokenCounter
from agentkv_envs.resolve import resolve
from agentkv_envs.resting import at_rest
from agentkv_envs.sent import Sent
from agentkv_envs.sites import Site, World, open_site
from agentkv_envs.sites.server import SiteServer
from agentkv_envs.som import observe_som
from agentkv_envs.tabs import Tabs
from agentkv_envs.targets import Targets
from agentkv_envs.tasks import bind
from agentkv_envs.tasks.assemble import at_seed, with_reminder
from agentkv_envs.tasks.state import check_state
from agentkv_envs.types import Action, Observation, Task

# A page of more elements takes seconds to read; no agent could use it.
MAX_NODES = 20_000
_GONE = ("Execution context was destroyed", "Cannot find context", "navigat", "frame was detached")
_TRIES = 3
_MOVED = ("PageDown", "PageUp", "Home", "End")


class Episode:
    """Opens with `start`, ends with `close`; in between `act` and `observe`."""

    def __init__(self, options: EnvOptions, count_tokens: TokenCounter):
        self.options = options
        self.count_tokens = count_tokens
        self.sites: list[Site] = []
        self.urls: dict[str, str] = {}
        # For evaluators: the databases as they were at the start; the requests of the pages are in `sent`.
        self.before: dict[str, bytes] = {}
        self.task: Task | None = None
        self.context: BrowserContext | None = None
        self.tabs = Tabs()
        self.began = monotonic()
        self.last: Observation | None = None
        self._servers: list[SiteServer] = []
        self._states: dict[Page, PageState] = {}
        self._reports: dict[Page, dict[str, Any]] = {}
        self._blocked: asyncio.Task[None] | None = None
        self._delta = Delta(count_tokens) if options.form == "delta" else None

    # Life

    async def start(
        self,
        browser: Browser,
        targets: Targets,
        contexts: ContextPool,
        task: Task,
        world: World,
        logins: hosts.Logins,
    ) -> None:
        """Open the task's start pages: on its sites with fresh data, or on real hosts, signed in through `logins`.

        Raises:
            TaskError: a placeholder that stands for nothing, a picture that is not there, or a state to check that the
                databases do not have.
            InfraError: a start page cannot be reached.
        """
        if task.external:
            window = await self._open_hosts(browser, task, logins)
        else:
            window = await contexts.take(browser)
            self.context = window.context
            await self._open_sites(window.context, task, world)
        context, first = window.context, window.page
        self.tabs.adopt(first)
        self.tabs.watch(context, lambda: targets.count(window.key))
        since = time() * 1e3
        for number, url in enumerate(self.bound.start_url.split(" |AND| ")):
            await _open(first if number == 0 else await context.new_page(), url)
        self.tabs.current, self.tabs.new = first, None
        await self._settle(since)
        for site in self.sites:
            if site.started is not None:
                self.task = await site.started(first, self.bound)

    @property
    def bound(self) -> Task:
        """The task, with its placeholders filled in."""
        assert self.task is not None
        return self.task

    async def _open_hosts(self, browser: Browser, task: Task, logins: hosts.Logins) -> Window:
        hosts.require([task])
        self.urls.update(hosts.addresses())
        self.task = bind(task, self.values())
        await hosts.reset(self.task, self.urls)
        state = await logins.state(browser, self.urls, hosts.login_sites(task))
        viewport: Any = {**VIEWPORT, **task.raw.get("viewport_size", {})}
        window = await open_context(browser, real=True, viewport=viewport, storage=state)
        self.context = window.context
        await hosts.check_images(self.task, self.urls, self.context)
        return window

    async def _open_sites(self, context: BrowserContext, task: Task, world: World) -> None:
        self.sites = [open_site(name, world, self.urls) for name in task.sites]
        task = at_seed(task, world, self.sites)
        self.sites = with_reminder(task, self.sites)
        self._servers = [SiteServer(site.app) for site in self.sites]
        await asyncio.gather(*(server.start() for server in self._servers))
        self.urls.update({site.name: server.url for site, server in zip(self.sites, self._servers, strict=True)})
        self.task = bind(task, self.values())
        await hosts.check_images(self.task, self.urls, context)
        check_state(self.task, {site.name: site.database for site in self.sites})
        if "db_state" in task.eval["eval_types"]:
            self.before = {site.name: site.database.serialize() for site in self.sites}
        cookies: list[Any] = [
            {"name": name, "value": value, "url": self.urls[site.name]}
            for site in self.sites
            for name, value in site.cookies.items()
        ]
        await context.add_cookies(cookies)

    def values(self) -> dict[str, str]:
        """What the placeholders of tasks stand for in this episode."""
        known = {name.upper(): url for name, url in self.urls.items()}
        for site in self.sites:
            known.update(site.facts)
        return known

    async def close(self) -> None:
        """Close the context, the servers and the databases; never raises."""
        if self._blocked is not None:
            self._blocked.cancel()
        if self.context is not None:
            with contextlib.suppress(PlaywrightError, TimeoutError):
                await asyncio.wait_for(self.context.close(), 3.0)
        await asyncio.gather(*(server.stop() for server in self._servers), return_exceptions=True)
        for site in self.sites:
            site.close()

    # Acting

    async def act(self, action: Action) -> tuple[dict[str, float], str | None]:
        """Carry out an action and wait for the page to rest.

        Returns:
            Milliseconds by part, and what the page made of the action when that is not what was asked for.

        Raises:
            ActionError: it cannot be carried out; the page is as it was.
            InfraError: the page crashed.
        """
        began, since = perf_counter(), time() * 1e3
        checks: list[Check] = []
        if self.tabs.dialog is not None:
            await self._answer(action)
        elif action.kind == "dialog":
            raise ActionError("no dialog is open")
        else:
            assert self.last is not None
            action = resolve(action, self.last)
            if self._change_view(action):
                return {"action": (perf_counter() - began) * 1e3, "settle": 0.0}, None
            try:
                await self._until_dialog(perform(self, action, checks))
            except ActionError:
                # It may have changed the page all the same.
                await self._until_dialog(self._settle(since))
                raise
        acted = perf_counter()
        if self.tabs.dialog is None:
            await self._until_dialog(self._settle(since))
        problem = None
        if checks and self.tabs.dialog is None:
            problem = await checks[0].problem()
        return {"action": (acted - began) * 1e3, "settle": (perf_counter() - acted) * 1e3}, problem

    def _change_view(self, action: Action) -> bool:
        """`more` and `expand` change what is shown of the page, not the page."""
        state = self.state()
        if action.kind == "scroll" or (action.kind == "press" and action.text in _MOVED):
            state.view.follow = True
        if action.kind not in ("more", "expand", "click", "hover"):
            return False
        mark = state.shown.get(action.element_id or 0)
        if mark is None or mark.role not in ("more", "expand"):
            return False
        change_view(state.view, mark)
        return True

    async def _until_dialog(self, work: Coroutine[Any, Any, None]) -> None:
        """Run to the end, or until a dialog blocks it; then the rest runs once the dialog is answered."""
        task = asyncio.ensure_future(work)
        opened = asyncio.ensure_future(self.tabs.dialog_opened.wait())
        try:
            await asyncio.wait({task, opened}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            opened.cancel()
        if task.done():
            task.result()
        else:
            self._blocked = task

    async def _answer(self, action: Action) -> None:
        if action.kind != "dialog":
            raise ActionError("a dialog is open; answer it with dialog [accept] or dialog [dismiss]")
        dialog = self.tabs.take_dialog()
        assert dialog is not None
        verb, _, text = (action.text or "").partition(" ")
        if verb == "accept":
            await dialog.accept(text or dialog.default_value)
        else:
            await dialog.dismiss()
        blocked, self._blocked = self._blocked, None
        if blocked is not None:
            await self._until_dialog(self._rest(blocked))

    @property
    def sent(self) -> list[Sent]:
        """The requests of the pages, from the first on."""
        return self.tabs.sent

    @property
    def blocked(self) -> bool:
        """Whether an open dialog blocks the page."""
        return self.tabs.dialog is not None

    async def dismiss(self) -> None:
        """Close open dialogs without accepting them."""
        while self.tabs.dialog is not None:
            await self._answer(Action("dialog", text="dismiss"))
            await self._until_dialog(self._settle(time() * 1e3))

    @staticmethod
    async def _rest(blocked: asyncio.Task[None]) -> None:
        with contextlib.suppress(ActionError, PlaywrightError):
            await blocked

    def page(self) -> Page:
        """The current tab."""
        return self.tabs.page()

    def state(self) -> PageState:
        """What is remembered about the document of the current tab."""
        return self._states.setdefault(self.page(), PageState())

    # Resting and observing

    async def _settle(self, since: float) -> None:
        """Wait for pending navigations and tabs, then for a quiet DOM, on whatever tab is current in the end.

        Args:
            since: when the action began, in milliseconds since the epoch.
        """
        while True:
            page = self.page()
            while self.tabs.busy():
                await asyncio.sleep(0.003)
            try:
                mark = self.options.captions != "none" and bool(self.sites)
                report = await at_rest(page, since, mark, self.tabs.take_fresh(page))
            except PlaywrightError as error:
                self.tabs.check()
                if page in self.tabs.pages and not any(sign in str(error) for sign in _GONE):
                    raise
                await asyncio.sleep(0.005)
                continue
            if page is self.page() and not self.tabs.busy():
                self._reports[page] = report
                return

    async def observe(self) -> Observation:
        """The current page as the agent sees it.

        Raises:
            InfraError: the page is too large to be read, changes all the time, or crashed.
        """
        if self.tabs.dialog is not None and self.last is not None:
            dialog = self.tabs.dialog
            self.last = dialog_observation(self.last, self.lasting(f'{dialog.type} "{dialog.message}"'))
        else:
            self.last = await self._look()
        if self._delta is not None:
            self.last = self._delta.apply(self.last)
        return self.last

    async def _read(self) -> tuple[Page, str]:
        """The current tab and its accessibility tree; a page that is left while it is read is read again."""
        for _ in range(_TRIES):
            page = self.page()
            self._check_size(page)
            if self._reports.get(page, {}).get("bare"):  # no body: a picture or data, for which Playwright would wait
                return page, ""
            try:
                return page, await page.aria_snapshot(mode="ai", boxes=True, timeout=0)
            except PlaywrightError as error:
                self.tabs.check()
                if page in self.tabs.pages and not any(sign in str(error) for sign in _GONE):
                    raise
            await self._settle(time() * 1e3)
        raise InfraError("the page changes faster than it can be read")

    def _check_size(self, page: Page) -> None:
        nodes = self._reports.get(page, {}).get("nodes", 0)
        if nodes > MAX_NODES:
            raise InfraError(f"the page is too large to be read: {nodes} elements (at most {MAX_NODES})")

    async def _look(self) -> Observation:
        page, snapshot = await self._read()
        report = self._reports.get(page, {})
        state = self.state()
        if state.document != report.get("document", ""):
            state = self._states[page] = PageState(document=report["document"])
        around = Surroundings(
            url=self.lasting(page.url),
            title=self.lasting(report.get("title", "")),
            tabs=tuple([self.lasting(title) for title in await self._titles()]),
            current_tab=self.tabs.pages.index(page),
            new_tab=self.tabs.new is page,
            messages=tuple(map(self.lasting, (*self.tabs.take_messages(), *report.get("invalid", ())))),
            can_go_back=bool(report.get("canGoBack")),
            loading=bool(report.get("loading")),
            captions=self._captions(report.get("images", ())),
            inputs=tuple(report.get("inputs", ())),
            files=self._files(),
        )
        self.tabs.new = None
        look = observe_som if self.options.observation == "image_som" else observe
        return look(self.lasting(snapshot), state, around, self.options.style, self.count_tokens, self.options.limit)

    def lasting(self, text: str) -> str:
        """The text with the names of embedded sites in place of their addresses."""
        return lasting(text, self.urls) if self.sites else text

    def _files(self) -> tuple[str, ...]:
        raw = self.task.raw if self.task is not None else {}
        return tuple(raw.get("agentkv", {}).get("files", ()))

    def _captions(self, images: Any) -> dict[str, tuple[str, str]]:
        """Mark of each picture on the page to what is said of it and what it truly shows."""
        if self.options.captions == "none":
            return {}
        known: dict[str, tuple[str, str]] = {}
        for mark, src in images:
            site = next((s for s in self.sites if src.startswith(f"{self.urls[s.name]}/")), None)
            if site is None:
                continue
            parts = urlsplit(src)
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            if (truth := site.caption(path)) is not None:
                known[mark] = (caption_of(truth, f"{site.name}{path}", self.options.captions), truth)
        return known

    async def side_page(self) -> Page:
        """A tab of the same context that the agent does not see, for evaluators; the caller closes it."""
        assert self.context is not None
        with self.tabs.unwatched(self.context):
            return await self.context.new_page()

    async def _titles(self) -> tuple[str, ...]:
        pages = self.tabs.pages
        if len(pages) == 1:
            return (self._reports.get(pages[0], {}).get("title", ""),)
        return tuple([await page.title() for page in pages])


async def _open(page: Page, url: str) -> None:
    try:
        await page.goto(url, wait_until="commit", timeout=0)
    except PlaywrightError as error:
        reason = str(error).split("\n", 1)[0].rpartition(": ")[2]
        raise InfraError(f"the start page {url} cannot be reached: {reason}") from None
