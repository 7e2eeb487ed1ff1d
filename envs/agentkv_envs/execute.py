"""Carrying out one action in the browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from playwright.async_api import Error as PlaywrightError

from agentkv_envs.actions import MAX_WAIT_S, clean_label
from agentkv_envs.errors import ActionError
from agentkv_envs.types import Action

if TYPE_CHECKING:
    from agentkv_envs.episode import Episode

_TIMEOUT_MS = 4000.0
_KEYS = {"ctrl": "Control", "meta": "Control", "cmd": "Control", "esc": "Escape", "del": "Delete", "return": "Enter"}
# Public names under which the benchmark's prompts know the sites.
_ALIASES = {"onestopmarket.com": "shopping", "shopping.com": "shopping"}


async def perform(episode: Episode, action: Action) -> None:
    """Carry out `action`; its element has been resolved.

    Raises:
        ActionError: the browser refused, with the reason in the agent's words.
    """
    try:
        await _PERFORM[action.kind](episode, action)
    except PlaywrightError as error:
        raise ActionError(_reason(action, error)) from None


def _reason(action: Action, error: PlaywrightError) -> str:
    text = str(error)
    if "intercepts pointer events" in text:
        return f"{action.kind}: something on the page covers the element"
    if "Timeout" in text:
        return f"{action.kind}: the element did not become ready"
    first = re.sub(r"^[\w.]+: ", "", text.strip().split("\n", 1)[0])
    return f"{action.kind}: {first}"


async def _element(episode: Episode, action: Action) -> Any:
    locator = episode.locate(action)
    if await locator.count() == 0:
        raise ActionError(f"the element [{action.element_id}] is no longer on the page; look at the page again")
    return locator


async def _click(episode: Episode, action: Action) -> None:
    locator = await _element(episode, action)
    await locator.click(timeout=_TIMEOUT_MS, no_wait_after=True)


async def _hover(episode: Episode, action: Action) -> None:
    await (await _element(episode, action)).hover(timeout=_TIMEOUT_MS)


async def _type(episode: Episode, action: Action) -> None:
    locator = await _element(episode, action)
    await locator.fill(action.text or "", timeout=_TIMEOUT_MS)
    if action.enter:
        await locator.press("Enter", timeout=_TIMEOUT_MS, no_wait_after=True)


async def _clear(episode: Episode, action: Action) -> None:
    await (await _element(episode, action)).fill("", timeout=_TIMEOUT_MS)


async def _select(episode: Episode, action: Action) -> None:
    locator = await _element(episode, action)
    script = "e => e.tagName === 'SELECT' ? [...e.options].map(o => o.label) : null"
    labels = await locator.evaluate(script)
    if labels is None:
        raise ActionError("select: this element is not a select box; click it instead")
    options = [clean_label(label, 60).casefold() for label in labels]
    wanted = (action.text or "").casefold().strip()
    found = [i for i, label in enumerate(options) if label == wanted]
    found = found or [i for i, label in enumerate(options) if wanted and wanted in label]
    if len(found) != 1 and (not found or options[found[0]] != wanted):
        shown = ", ".join(clean_label(label, 30) for label in labels[:8])
        raise ActionError(f'select: no single option "{action.text}"; there are {shown}')
    await locator.select_option(index=found[0], timeout=_TIMEOUT_MS)


async def _press(episode: Episode, action: Action) -> None:
    keys = [_KEYS.get(key.strip().lower(), key.strip()) for key in (action.text or "").split("+")]
    await episode.page().keyboard.press("+".join(keys))


async def _scroll(episode: Episode, action: Action) -> None:
    sign = -1 if action.text == "up" else 1
    await episode.page().evaluate("sign => window.scrollBy(0, sign * window.innerHeight)", sign)


async def _goto(episode: Episode, action: Action) -> None:
    url = (action.text or "").strip()
    host = re.match(r"(?:https?://)?(?:www\.)?([\w.-]+)", url)
    if host is not None and (site := _ALIASES.get(host.group(1).lower())) in episode.urls:
        url = episode.urls[site or ""] + url[host.end() :]
    url = urljoin(episode.page().url, url)
    if not url.startswith(("http://", "https://")):
        raise ActionError("goto: the address must begin with http:// or https://")
    try:
        await episode.page().goto(url, wait_until="commit", timeout=0)
    except PlaywrightError as error:
        if "ERR_ABORTED" not in str(error):
            raise ActionError(f"goto: {url} cannot be reached") from None


async def _go_back(episode: Episode, action: Action) -> None:
    if not await episode.page().evaluate("window.navigation ? navigation.canGoBack : history.length > 1"):
        raise ActionError("go_back: there is no page to go back to")
    await episode.page().go_back(wait_until="commit", timeout=0)


async def _go_forward(episode: Episode, action: Action) -> None:
    if not await episode.page().evaluate("window.navigation ? navigation.canGoForward : true"):
        raise ActionError("go_forward: there is no page to go forward to")
    await episode.page().go_forward(wait_until="commit", timeout=0)


async def _new_tab(episode: Episode, action: Action) -> None:
    assert episode.context is not None
    await episode.context.new_page()


async def _tab_focus(episode: Episode, action: Action) -> None:
    index = int(action.text or 0)
    if index >= len(episode.pages):
        raise ActionError(f"tab_focus: there is no tab {index}; tabs are numbered from 0 to {len(episode.pages) - 1}")
    episode.current = episode.pages[index]
    await episode.current.bring_to_front()


async def _close_tab(episode: Episode, action: Action) -> None:
    page = episode.page()
    if len(episode.pages) == 1:
        await _new_tab(episode, action)
    await page.close()


async def _wait(episode: Episode, action: Action) -> None:
    await asyncio.sleep(min(float(action.text or 1), MAX_WAIT_S))


async def _not_here(episode: Episode, action: Action) -> None:
    raise ActionError(f"{action.kind} works only on an element of that kind")


_PERFORM: dict[str, Callable[[Episode, Action], Awaitable[None]]] = {
    "click": _click,
    "hover": _hover,
    "type": _type,
    "clear": _clear,
    "select": _select,
    "press": _press,
    "scroll": _scroll,
    "goto": _goto,
    "go_back": _go_back,
    "go_forward": _go_forward,
    "new_tab": _new_tab,
    "tab_focus": _tab_focus,
    "close_tab": _close_tab,
    "wait": _wait,
    "more": _not_here,
    "expand": _not_here,
}
