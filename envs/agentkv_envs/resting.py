"""Waiting for a page to come to rest, and what it then tells about itself."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

QUIET_MS, CAP_MS = 100, 1500
# Without the script (a document the browser made itself, such as an error page) only the title is known.
_REST = """wait => window.__agentkv ? window.__agentkv.settle(wait)
    : {loading: false, document: String(performance.timeOrigin), title: document.title}"""


async def at_rest(page: Page, since: float, mark: bool, fresh: bool) -> dict[str, Any]:
    """The report of `settle.js`, once nothing has changed for `QUIET_MS`, or after `CAP_MS`.

    Args:
        since: when the action began, in milliseconds since the epoch.
        mark: whether pictures get marks for their captions.
        fresh: whether the document may be new. It gets Playwright's own script while it rests, for which the first look
            at it would have to wait otherwise.
    """
    resting = page.evaluate(_REST, {"quiet": QUIET_MS, "cap": CAP_MS, "since": since, "mark": mark})
    if not fresh:
        return dict(await resting)
    report, _ = await asyncio.gather(resting, _prepare_reading(page))
    return dict(report)


async def _prepare_reading(page: Page) -> None:
    with contextlib.suppress(PlaywrightError):
        await page.wait_for_load_state("domcontentloaded", timeout=CAP_MS)
        await page.locator("html").count()
