"""Scoring an episode with VisualWebArena's evaluators: the product of all parts."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from agentkv_envs.episode import Episode
from agentkv_envs.scoring.functions import Sources, call
from agentkv_envs.scoring.text import DIALECTS, Unscored, match_answer, match_content
from agentkv_envs.scoring.urls import match_url
from agentkv_envs.types import Score, Task

__all__ = ["DIALECTS", "score_episode"]


async def score_episode(episode: Episode, answer: str, dialect: str) -> Score:
    """The verdict on where the episode ended.

    The agent's own tab is never navigated: program_html looks at other addresses on a new tab of the same
    browser context, so that `last` and url_match see the page the agent stopped on.
    """
    task = episode.task
    assert task is not None
    parts: dict[str, float] = {}
    notes: list[str] = []
    for kind in task.eval["eval_types"]:
        try:
            passed, note = await _part(kind, task, episode, answer, dialect)
        except Unscored as reason:
            notes.append(f"{kind}: {reason}")
            continue
        parts[kind] = float(passed)
        if note:
            notes.append(f"{kind}: {note}")
    failed = any(value == 0.0 for value in parts.values())
    complete = len(parts) == len(set(task.eval["eval_types"]))
    return Score(False if failed else True if complete else None, parts, "; ".join(notes))


async def _part(kind: str, task: Task, episode: Episode, answer: str, dialect: str) -> tuple[bool, str]:
    if kind == "string_match":
        passed = match_answer(answer, task.eval["reference_answers"], dialect)
        return passed, "" if passed else f"the answer was {answer[:80]!r}"
    if kind == "url_match":
        url = episode.page().url
        passed = match_url(url, task.eval["reference_url"], task.eval.get("url_note", "EXACT"), dialect)
        return passed, "" if passed else f"ended on {url}"
    if kind == "program_html":
        return await _program(task, episode, dialect)
    raise Unscored("images are not scored here")


async def _program(task: Task, episode: Episode, dialect: str) -> tuple[bool, str]:
    unsure: Unscored | None = None
    for i, target in enumerate(task.eval["program_html"]):
        content = await _content(task, episode, target)
        try:
            passed = content is not None and match_content(content, target["required_contents"], dialect)
        except Unscored as reason:
            unsure = reason
            continue
        if not passed:
            return False, f"target {i} held {(content or '')[:80]!r}"
    if unsure is not None:
        raise unsure
    return True, ""


async def _content(task: Task, episode: Episode, target: dict[str, Any]) -> str | None:
    """The text a target's locator finds; None when a `lambda:` fails."""
    shop = next((site for site in episode.sites if site.name == "shopping"), None)
    sources = Sources(shop.database if shop else None, episode.urls.get("shopping", ""), None)
    url = str(target["url"]).replace("__last_url__", episode.page().url)
    if url.startswith("func:"):
        url = await call(url.removeprefix("func:"), sources, task.task_id)
    if url == "last":
        return await _locate(task, episode.page(), target.get("locator", ""), sources)
    page = await episode.side_page()
    try:
        await page.goto(url, wait_until="domcontentloaded")
        return await _locate(task, page, target.get("locator", ""), sources)
    except PlaywrightError:
        return ""
    finally:
        await page.close()


async def _locate(task: Task, page: Page, locator: str, sources: Sources) -> str | None:
    locator = locator.strip()
    if not locator:
        return await page.content()
    if locator.startswith("func:"):
        inner = Sources(sources.database, sources.shop_url, page)
        return await call(locator.removeprefix("func:"), inner, task.task_id)
    try:
        if locator.startswith("lambda:"):
            return _as_text(await page.evaluate(locator.removeprefix("lambda:")))
        return _as_text(await page.evaluate(f"() => {locator}"))
    except PlaywrightError:
        return None if locator.startswith("lambda:") else ""


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)
