"""Carrying out one action in the browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from agentkv_envs.actions import MAX_WAIT_S, clean_label
from agentkv_envs.addresses import wanted
from agentkv_envs.errors import ActionError
from agentkv_envs.types import Action
from agentkv_envs.uploads import UPLOADS, upload_bytes

if TYPE_CHECKING:
    from playwright.async_api import Page

    from agentkv_envs.episode import Episode

_TIMEOUT_MS = 4000.0
_KEYS = {"ctrl": "Control", "meta": "Control", "cmd": "Control", "esc": "Escape", "del": "Delete", "return": "Enter"}
_VALUE = "e => e.value === undefined ? e.textContent : e.value"
_CHOSEN = "e => [...e.selectedOptions].map(o => o.label).join(', ')"
_FILE_NAMES = "e => [...e.files].map(f => f.name).join(', ')"
_FILE = re.compile(r"file(\d+)")
_CHOOSER_MS = 2000.0


@dataclass(frozen=True)
class Check:
    """What a field must still hold once the page has come to rest."""

    kind: str
    locator: Any
    script: str
    expected: str

    async def problem(self) -> str | None:
        """None when the field holds it, or is gone."""
        try:
            if await self.locator.count() == 0:
                return None
            value = await self.locator.evaluate(self.script, timeout=_TIMEOUT_MS)
        except PlaywrightError:
            return None
        if _same(value, self.expected):
            return None
        return f'{self.kind}: reverted by the page: the field holds "{clean_label(value, 60)}"'


def _same(value: str, expected: str) -> bool:
    """Whether a page kept what it was given, spaces and signs of its own formatting aside."""
    return _bare(value) == _bare(expected) and bool(value.strip()) == bool(expected.strip())


def _bare(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())


async def perform(episode: Episode, action: Action, checks: list[Check]) -> None:
    """Carry out `action`; its element has been resolved.

    Args:
        checks: gets what is to be checked once the page has come to rest.

    Raises:
        ActionError: the browser refused, with the reason in the agent's words.
    """
    try:
        if action.kind not in _PERFORM:
            raise ActionError(f"there is no action {action.kind!r}; there are {', '.join(_PERFORM)}")
        check = await _PERFORM[action.kind](episode, action)
        if check is not None:
            checks.append(check)
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


def locate(page: Page, key: str) -> Any:
    """Playwright's locator of the element with this handle."""
    if (field := _FILE.fullmatch(key)) is not None:
        return page.locator("css:light=input[type=file]").nth(int(field.group(1)))
    return page.locator(f"aria-ref={key}")


async def _element(episode: Episode, action: Action) -> Any:
    """Playwright's locator of the element an action names; a stale one is known at once, without waiting."""
    mark = episode.state().shown.get(action.element_id or 0)
    if mark is None:
        raise ActionError(f"there is no element [{action.element_id}] on this page")
    locator = locate(episode.page(), mark.key)
    if await locator.count() == 0:
        raise ActionError(f"the element [{action.element_id}] is stale: it is no longer there; look at the page again")
    return locator


async def _click(episode: Episode, action: Action) -> None:
    locator = await _element(episode, action)
    await locator.click(timeout=_TIMEOUT_MS, no_wait_after=True)


async def _hover(episode: Episode, action: Action) -> None:
    await (await _element(episode, action)).hover(timeout=_TIMEOUT_MS)


async def _type(episode: Episode, action: Action) -> Check | None:
    locator = await _element(episode, action)
    await locator.fill(action.text or "", timeout=_TIMEOUT_MS)
    check = Check("type", locator, _VALUE, action.text or "")
    if (problem := await check.problem()) is not None:
        raise ActionError(problem)
    if not action.enter:
        return check
    await locator.press("Enter", timeout=_TIMEOUT_MS, no_wait_after=True)
    return None


async def _clear(episode: Episode, action: Action) -> None:
    await (await _element(episode, action)).fill("", timeout=_TIMEOUT_MS)


async def _select(episode: Episode, action: Action) -> Check:
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
    return Check("select", locator, _CHOSEN, labels[found[0]])


async def _upload(episode: Episode, action: Action) -> Check | None:
    name = (action.text or "").strip()
    assert episode.last is not None
    files = episode.last.files
    if name not in files or name not in UPLOADS:
        raise ActionError(f'upload: there is no file "{name}"; there are {", ".join(files) or "none in this task"}')
    payload: Any = {"name": name, "mimeType": "image/png", "buffer": upload_bytes(name)}
    locator = await _element(episode, action)
    if await locator.evaluate("e => e.tagName === 'INPUT' && e.type === 'file'"):
        await locator.set_input_files(payload, timeout=_TIMEOUT_MS)
        return Check("upload", locator, _FILE_NAMES, name)
    try:
        async with episode.page().expect_file_chooser(timeout=_CHOOSER_MS) as chooser:
            await locator.click(timeout=_TIMEOUT_MS, no_wait_after=True)
    except PlaywrightTimeout:
        raise ActionError("upload: this element does not ask for a file") from None
    await (await chooser.value).set_files(payload)
    return None


async def _press(episode: Episode, action: Action) -> None:
    text = (action.text or "").strip()
    if len(text) == 1 and not text.isascii():
        await episode.page().keyboard.insert_text(text)
        return
    keys = [_KEYS.get(key.strip().lower(), key.strip()) for key in text.split("+")]
    await episode.page().keyboard.press("+".join(keys))


async def _scroll(episode: Episode, action: Action) -> None:
    sign = -1 if action.text == "up" else 1
    await episode.page().evaluate("sign => window.scrollBy(0, sign * window.innerHeight)", sign)


async def _goto(episode: Episode, action: Action) -> None:
    url = wanted(action.text or "", episode.page().url, episode.urls)
    if not url.startswith(("http://", "https://")):
        raise ActionError("goto: the address must begin with http:// or https://")
    try:
        await episode.page().goto(url, wait_until="commit", timeout=0)
    except PlaywrightError as error:
        if "ERR_ABORTED" not in str(error):
            raise ActionError(f"goto: {episode.lasting(url)} cannot be reached") from None


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
    pages = episode.tabs.pages
    if index >= len(pages):
        raise ActionError(f"tab_focus: there is no tab {index}; tabs are numbered from 0 to {len(pages) - 1}")
    episode.tabs.current = pages[index]
    await pages[index].bring_to_front()


async def _close_tab(episode: Episode, action: Action) -> None:
    page = episode.page()
    if len(episode.tabs.pages) == 1:
        await _new_tab(episode, action)
    await page.close()


async def _wait(episode: Episode, action: Action) -> None:
    try:
        seconds = float(action.text or 1)
    except ValueError:
        raise ActionError(f"wait: {action.text!r} is no number of seconds") from None
    await asyncio.sleep(min(seconds, MAX_WAIT_S))


async def _not_here(episode: Episode, action: Action) -> None:
    raise ActionError(f"{action.kind} works only on an element of that kind")


_PERFORM: dict[str, Callable[[Episode, Action], Awaitable[Check | None]]] = {
    "click": _click,
    "hover": _hover,
    "type": _type,
    "clear": _clear,
    "select": _select,
    "upload": _upload,
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
