"""Waiting for a page to come to rest, and what it then tells about itself."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

QUIET_MS, CAP_MS = 100, 1500
# A page of more elements takes seconds to read; no agent could use it.
MAX_NODES = 20_000
# Without the script (a document the browser made itself, such as an error page) only the title is known.
_REST = """wait => window.__agentkv ? window.__agentkv.settle(wait)
    : {loading: false, document: String(performance.timeOrigin), title: document.title}"""
_EARLY = "wait => window.__agentkv ? window.__agentkv.early(wait) : null"


async def at_rest(page: Page, since: float, mark: bool, fresh: bool) -> dict[str, Any]:
    """The report of `settle.js`, once nothing has changed for `QUIET_MS`, or after `CAP_MS`.

    A new document is read while it rests; if nothing changed in it from then on, the report has its accessibility tree
    as "snapshot".

    Args:
        since: when the action began, in milliseconds since the epoch.
        mark: whether pictures get marks for their captions.
        fresh: whether the document may be new.
    """
    resting = page.evaluate(_REST, {"quiet": QUIET_MS, "cap": CAP_MS, "since": since, "mark": mark})
    if not fresh:
        return dict(await resting)
    begun = asyncio.Event()
    reading = asyncio.ensure_future(_read_early(page, mark, begun))
    try:
        report = dict(await resting)
        if reading.done() or begun.is_set():
            when, snapshot = await reading
            if when is not None and when["document"] == report["document"] and report["changed"] <= when["at"]:
                report["snapshot"] = snapshot
        return report
    finally:
        reading.cancel()


async def _read_early(page: Page, mark: bool, begun: asyncio.Event) -> tuple[dict[str, Any] | None, str]:
    """When the document was whole, and its accessibility tree then; sets `begun` when it begins to read that."""
    with contextlib.suppress(PlaywrightError):
        await page.wait_for_load_state("domcontentloaded", timeout=CAP_MS)
        await page.locator("html").count()  # Playwright's own script, for which the reading would have to wait
        when = await page.evaluate(_EARLY, {"cap": CAP_MS, "most": MAX_NODES, "mark": mark})
        if when is not None:
            begun.set()
            return when, await page.aria_snapshot(mode="ai", boxes=True, timeout=0)
    return None, ""
