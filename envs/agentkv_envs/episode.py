"""One episode: sites, browser context, tabs, dialogs. Everything here runs on the environment's event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from importlib import resources
from time import perf_counter
from typing import Any

from playwright.async_api import Browser, BrowserContext, Dialog, Page, Request, ViewportSize
from playwright.async_api import Error as PlaywrightError

from agentkv_envs import hosts
from agentkv_envs.errors import ActionError, InfraError
from agentkv_envs.execute import perform
from agentkv_envs.observe import PageState, Surroundings, TokenCounter, change_view, dialog_observation, observe
from agentkv_envs.resolve import resolve
from agentkv_envs.sent import Sent, form_fields
from agentkv_envs.sites import Site, World, open_site
from agentkv_envs.sites.server import SiteServer
from agentkv_envs.tasks import bind
from agentkv_envs.tasks.assemble import at_seed, with_reminder
from agentkv_envs.types import Action, Observation, Task

VIEWPORT: ViewportSize = {"width": 1280, "height": 800}
QUIET_MS, CAP_MS = 100, 1500
_SETTLE = resources.files(__package__ or "agentkv_envs").joinpath("settle.js").read_text()
# Without the script (a document the browser made itself, such as an error page) only the title is known.
_REST = """wait => window.__agentkv ? window.__agentkv.settle(wait)
    : {loading: false, document: String(performance.timeOrigin), title: document.title, invalid: []}"""
_GONE = ("Execution context was destroyed", "Cannot find context", "navigat", "frame was detached")


class Episode:
    """Opens with `start`, ends with `close`; in between `act` and `observe`."""

    def __init__(self, style: str, count_tokens: TokenCounter):
        self.style = style
        self.count_tokens = count_tokens
        self.sites: list[Site] = []
        self.urls: dict[str, str] = {}
        # For evaluators: the databases as they were at the start, and the requests of the pages.
        self.before: dict[str, bytes] = {}
        self.sent: list[Sent] = []
        self.task: Task | None = None
        self.context: BrowserContext | None = None
        self.pages: list[Page] = []
        self.current: Page | None = None
        self.last: Observation | None = None
        self._servers: list[SiteServer] = []
        self._states: dict[Page, PageState] = {}
        self._messages: list[str] = []
        self._navigating: set[Request] = set()
        self._dialog: Dialog | None = None
        self._dialog_opened = asyncio.Event()
        self._blocked: asyncio.Task[None] | None = None
        self._crashed = False
        self._reports: dict[Page, dict[str, Any]] = {}

    # Life

    async def start(self, browser: Browser, task: Task, world: World, logins: hosts.Logins | None = None) -> None:
        """Open the task's start pages: on its sites with fresh data, or on real hosts, signed in through `logins`."""
        if task.external:
            context = await self._open_hosts(browser, task, logins or hosts.Logins())
        else:
            context = await self._open_sites(browser, task, world)
        await context.add_init_script(_SETTLE)
        context.on("page", self._adopt)
        began = perf_counter()
        for url in self.bound.start_url.split(" |AND| "):
            page = await context.new_page()
            await page.goto(url, wait_until="domcontentloaded", timeout=0)
        self.current = self.pages[0]
        await self._settle(began)
        for site in self.sites:
            if site.started is not None:
                self.task = await site.started(self.current, self.bound)

    @property
    def bound(self) -> Task:
        """The task, with its placeholders filled in."""
        assert self.task is not None
        return self.task

    async def _open_hosts(self, browser: Browser, task: Task, logins: hosts.Logins) -> BrowserContext:
        hosts.require([task])
        self.urls.update(hosts.addresses())
        self.task = bind(task, self.values())
        await hosts.reset(self.task, self.urls)
        state = await logins.state(browser, self.urls, hosts.login_sites(task))
        self.context = context = await browser.new_context(
            viewport={**VIEWPORT, **task.raw.get("viewport_size", {})},
            locale="en-US",
            accept_downloads=False,
            storage_state=state,
        )
        await hosts.check_images(self.task, context)
        return context

    async def _open_sites(self, browser: Browser, task: Task, world: World) -> BrowserContext:
        self.sites = [open_site(name, world, self.urls) for name in task.sites]
        task = at_seed(task, world, self.sites)
        self.sites = with_reminder(task, self.sites)
        self._servers = [SiteServer(site.app) for site in self.sites]
        opening = browser.new_context(viewport=VIEWPORT, locale="en-US", timezone_id="UTC", accept_downloads=False)
        starting = asyncio.gather(*(server.start() for server in self._servers))
        context, _ = await asyncio.gather(opening, starting)
        self.context = context
        self.urls.update({site.name: server.url for site, server in zip(self.sites, self._servers, strict=True)})
        self.task = bind(task, self.values())
        if "db_state" in task.eval["eval_types"]:
            self.before = {site.name: site.database.serialize() for site in self.sites}
        cookies: list[Any] = [
            {"name": name, "value": value, "url": self.urls[site.name]}
            for site in self.sites
            for name, value in site.cookies.items()
        ]
        await context.add_cookies(cookies)
        return context

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
        self.sites, self._servers, self.context = [], [], None

    # Events

    def _adopt(self, page: Page) -> None:
        """A new tab: it becomes the current one."""
        self.pages.append(page)
        self._states[page] = PageState()
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
            self._states.pop(page, None)
            if self.current is page:
                self.current = self.pages[max(0, index - 1)] if self.pages else None

    def _on_crash(self, page: Page) -> None:
        self._crashed = True

    def _on_request(self, request: Request) -> None:
        if request.resource_type in ("document", "xhr", "fetch"):
            self.sent.append(Sent(request.method, request.url, form_fields(request.post_data_buffer)))
        if request.is_navigation_request() and request.frame.parent_frame is None:
            self._navigating.add(request)

    def _on_answer(self, answer: Any) -> None:
        self._navigating.discard(getattr(answer, "request", answer))

    async def _on_dialog(self, dialog: Dialog) -> None:
        """Alerts are noted and accepted, questions wait for the agent."""
        if dialog.type in ("alert", "beforeunload"):
            if dialog.type == "alert":
                self._messages.append(dialog.message)
            with contextlib.suppress(PlaywrightError):
                await dialog.accept()
            return
        self._dialog = dialog
        self._dialog_opened.set()

    # Acting

    async def act(self, action: Action) -> dict[str, float]:
        """Carry out an action and wait for the page to rest. Returns milliseconds by part.

        Raises:
            ActionError: it cannot be carried out; the page is as it was.
            InfraError: the page crashed.
        """
        began = perf_counter()
        if self._dialog is not None:
            await self._answer(action)
        elif action.kind == "dialog":
            raise ActionError("no dialog is open")
        else:
            assert self.last is not None
            action = resolve(action, self.last)
            if self._change_view(action):
                return {"action": (perf_counter() - began) * 1e3, "settle": 0.0}
            await self._until_dialog(perform(self, action))
        acted = perf_counter()
        if self._dialog is None:
            await self._until_dialog(self._settle(began))
        return {"action": (acted - began) * 1e3, "settle": (perf_counter() - acted) * 1e3}

    def _change_view(self, action: Action) -> bool:
        """`more` and `expand` change what is shown of the page, not the page."""
        if action.kind not in ("more", "expand", "click", "hover"):
            return False
        state = self._states[self.page()]
        mark = state.shown.get(action.element_id or 0)
        if mark is None or mark.role not in ("more", "expand"):
            return False
        change_view(state.view, mark)
        return True

    async def _until_dialog(self, work: Coroutine[Any, Any, None]) -> None:
        """Run to the end, or until a dialog blocks it; then the rest runs once the dialog is answered."""
        task = asyncio.ensure_future(work)
        opened = asyncio.ensure_future(self._dialog_opened.wait())
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
        dialog = self._dialog
        assert dialog is not None
        if action.kind != "dialog":
            raise ActionError("a dialog is open; answer it with dialog [accept] or dialog [dismiss]")
        verb, _, text = (action.text or "").partition(" ")
        self._dialog = None
        self._dialog_opened.clear()
        if verb == "accept":
            await dialog.accept(text or dialog.default_value)
        else:
            await dialog.dismiss()
        blocked, self._blocked = self._blocked, None
        if blocked is not None:
            await self._until_dialog(self._rest(blocked))

    @property
    def blocked(self) -> bool:
        """Whether an open dialog blocks the page."""
        return self._dialog is not None

    async def dismiss(self) -> None:
        """Close an open dialog without accepting it."""
        if self._dialog is not None:
            await self._answer(Action("dialog", text="dismiss"))
            await self._settle(perf_counter())

    @staticmethod
    async def _rest(blocked: asyncio.Task[None]) -> None:
        with contextlib.suppress(ActionError, PlaywrightError):
            await blocked

    def page(self) -> Page:
        """The current tab."""
        if self._crashed or self.current is None:
            raise InfraError("the page crashed")
        return self.current

    def locate(self, action: Action) -> Any:
        """Playwright's locator of the element an action names."""
        mark = self._states[self.page()].shown.get(action.element_id or 0)
        if mark is None:
            raise ActionError(f"there is no element [{action.element_id}] on this page")
        return self.page().locator(f"aria-ref={mark.key}")

    # Resting and observing

    async def _settle(self, began: float) -> None:
        """Wait for pending navigations, then for a quiet DOM, on whatever tab is current in the end."""
        while True:
            page = self.page()
            await self._wait_for_answer()
            try:
                since = (perf_counter() - began) * 1e3
                wait = {"quiet": QUIET_MS, "cap": CAP_MS, "since": since}
                report = await page.evaluate(_REST, wait)
            except PlaywrightError as error:
                if self._crashed:
                    raise InfraError("the page crashed") from None
                if page in self.pages and not any(sign in str(error) for sign in _GONE):
                    raise
                await asyncio.sleep(0.005)
                continue
            if page is self.page() and not self._navigating:
                self._reports[page] = report
                return

    async def _wait_for_answer(self) -> None:
        while self._navigating and not self._crashed:
            await asyncio.sleep(0.003)

    async def observe(self) -> Observation:
        """The current page as the agent sees it."""
        if self._dialog is not None and self.last is not None:
            self.last = dialog_observation(self.last, f'{self._dialog.type} "{self._dialog.message}"')
            return self.last
        page = self.page()
        snapshot = await page.aria_snapshot(mode="ai", boxes=True)
        report = self._reports.get(page, {})
        state = self._states[page]
        if state.document != report.get("document", ""):
            state = self._states[page] = PageState(document=report["document"])
        messages, self._messages = tuple(self._messages), []
        around = Surroundings(
            url=page.url,
            title=report.get("title", ""),
            tabs=await self._titles(),
            current_tab=self.pages.index(page),
            messages=(*messages, *report.get("invalid", ())),
            can_go_back=bool(report.get("canGoBack")),
            loading=bool(report.get("loading")),
        )
        self.last = observe(snapshot, state, around, self.style, self.count_tokens)
        return self.last

    async def side_page(self) -> Page:
        """A tab of the same context that the agent does not see, for evaluators; the caller closes it."""
        assert self.context is not None
        self.context.remove_listener("page", self._adopt)
        try:
            return await self.context.new_page()
        finally:
            self.context.on("page", self._adopt)

    async def _titles(self) -> tuple[str, ...]:
        if len(self.pages) == 1:
            return (self._reports.get(self.pages[0], {}).get("title", ""),)
        return tuple([await page.title() for page in self.pages])
