"""program_html: what stands on a page, found by JavaScript in the page or by one of a fixed list of functions."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from agentkv_envs.scoring.case import Case
from agentkv_envs.scoring.text import Unscored, match_content

_LAMBDA = "lambda:"


async def program_html(case: Case) -> tuple[bool, str]:
    """Whether every target holds what it must, and a note on the first that does not.

    Raises:
        Unscored: no target fails, but one needs a judge.
    """
    unsure: Unscored | None = None
    for i, target in enumerate(case.eval["program_html"]):
        content = await _content(case, target)
        try:
            passed = content is not None and await _matches(case, content, target["required_contents"])
        except Unscored as reason:
            unsure = reason
            continue
        if not passed:
            return False, f"target {i} held {(content or '')[:80]!r}"
    if unsure is not None:
        raise unsure
    return True, ""


async def _matches(case: Case, content: str, required: dict[str, Any]) -> bool:
    ask = case.judges.ask(case.task.intent)
    return await asyncio.to_thread(match_content, content, required, case.dialect, ask)


async def _content(case: Case, target: dict[str, Any]) -> str | None:
    """The text a target's locator finds; None when the page does not open or a `lambda:` fails."""
    async with case.page_at(str(target["url"])) as page:
        return None if page is None else await _locate(case, page, target)


async def _locate(case: Case, page: Page, target: dict[str, Any]) -> str | None:
    locator = target.get("locator", "").strip()
    if not locator:
        return await page.content()
    if locator.startswith("func:"):
        return await case.call(locator, page)
    if locator.startswith(_LAMBDA):
        return await _lambda(page, locator, case.dialect)
    for action in target.get("prep_actions", ()):
        with contextlib.suppress(PlaywrightError):
            await page.evaluate(f"() => {action}")
    try:
        return _as_text(await page.evaluate(f"() => {locator}"))
    except PlaywrightError:
        return ""


async def _lambda(page: Page, locator: str, dialect: str) -> str | None:
    """In "official", characters of the prefix are stripped, not the prefix, and a falsy value is a failure."""
    script = locator.lstrip(_LAMBDA) if dialect == "official" else locator.removeprefix(_LAMBDA)
    try:
        value = await page.evaluate(script)
    except PlaywrightError:
        return None
    failed = not value if dialect == "official" else value is None
    return None if failed else _as_text(value)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)
