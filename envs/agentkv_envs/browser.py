"""Finding, starting and ending Chromium."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import uuid
from pathlib import Path

import psutil
from playwright.async_api import Browser, Playwright, async_playwright
from playwright.async_api import Error as PlaywrightError

from agentkv_envs.errors import BrowserMissing, InfraError
from agentkv_envs.targets import Targets

INSTALL_HINT = (
    "install one with `apt-get install chromium-headless-shell` (Debian, Ubuntu) or `playwright install chromium`,"
    " or name one in AGENTKV_CHROMIUM"
)
_ARGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
)
# Only the machine itself can be reached: a page cannot load anything from outside.
_OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
_CLOSE_S = 3.0


def find_executable(given: str | None = None) -> str | None:
    """Path of the Chromium to use; None means Playwright's own.

    The order is: the argument, AGENTKV_CHROMIUM, chromium-headless-shell, chromium. The headless shell comes first
    because it starts four times faster and takes half the memory.

    Raises:
        BrowserMissing: the path that was given holds no program.
    """
    for source, path in (("executable", given), ("AGENTKV_CHROMIUM", os.environ.get("AGENTKV_CHROMIUM"))):
        if path:
            found = shutil.which(path)
            if found is None:
                raise BrowserMissing(f"{source} names {path}, which is not a program; {INSTALL_HINT}")
            return found
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


class BrowserHost:
    """One running Chromium, started on demand and killed for certain.

    Every process it starts carries a mark in its command line, so that a hung browser can be killed without
    touching any other.

    Attributes:
        targets: the tabs of the browser that runs, or ran last.
    """

    def __init__(self, executable: str | None = None, offline: bool = True):
        self._executable = executable
        self._offline = offline
        self.targets = Targets()
        self._mark = ""
        self._has_run = False
        self._reach: frozenset[str] = frozenset()
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None

    @property
    def mark(self) -> str:
        """The flag that the browser's processes carry ("" before the first start)."""
        return self._mark

    async def get(self, reach: frozenset[str] = frozenset()) -> Browser:
        """The running browser; starts one when there is none, or one that reaches other hosts.

        Args:
            reach: names of hosts that pages may load from besides 127.0.0.1.

        Raises:
            BrowserMissing: there is no Chromium on this machine, or none that starts.
            InfraError: it did start before, but does not any more.
        """
        if self._browser is not None and self._browser.is_connected():
            if reach == self._reach:
                return self._browser
            await self.close()
        self._reach = reach
        path = find_executable(self._executable)
        if self._playwright is None:
            self._playwright = await async_playwright().start()
        if path is None and not Path(self._playwright.chromium.executable_path).exists():
            raise BrowserMissing(f"no Chromium found; {INSTALL_HINT}")
        self._mark = f"--agentkv-browser={os.getpid()}-{uuid.uuid4().hex[:12]}"
        rules = ", ".join([_OFFLINE, *(f"EXCLUDE {host}" for host in sorted(reach))])
        args = [*_ARGS, self._mark, *([rules] if self._offline else [])]
        try:
            self._browser = await self._playwright.chromium.launch(executable_path=path, args=args)
            self.targets = Targets()
            await self.targets.watch(self._browser)
        except PlaywrightError as error:
            reason = f"Chromium ({path or 'Playwright'}) does not start: {_first_line(error)}"
            if self._has_run:
                raise InfraError(reason) from None
            raise BrowserMissing(f"{reason}; {INSTALL_HINT}") from None
        self._has_run = True
        return self._browser

    async def close(self) -> None:
        """End the browser, by force when it does not end by itself."""
        browser, self._browser = self._browser, None
        if browser is not None:
            with contextlib.suppress(PlaywrightError, TimeoutError):
                await asyncio.wait_for(browser.close(), _CLOSE_S)
        self.kill()

    def kill(self) -> None:
        """Kill whatever is left of this host's browser processes. Safe to call at any time, from any thread."""
        self._browser = None
        if not self._mark:
            return
        mine = [process for process in psutil.Process().children(recursive=True) if self._is_mine(process)]
        for process in mine:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(mine, timeout=2)

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            return self._mark in process.cmdline()
        except psutil.Error:
            return False

    async def shut_down(self) -> None:
        """Close the browser and Playwright's driver."""
        await self.close()
        playwright, self._playwright = self._playwright, None
        if playwright is not None:
            with contextlib.suppress(PlaywrightError, TimeoutError):
                await asyncio.wait_for(playwright.stop(), _CLOSE_S)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
