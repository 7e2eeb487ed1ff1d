"""The observation dictionary that agents written for BrowserGym expect."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from time import monotonic
from typing import Any

import numpy as np
from PIL import Image
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from agentkv_envs.contexts import VIEWPORT
from agentkv_envs.episode import Episode
from agentkv_envs.execute import locate
from agentkv_envs.inline import Mark
from agentkv_envs.types import Element

_MARK = "(e, id) => id ? e.setAttribute('bid', id) : e.removeAttribute('bid')"
_STYLES: list[str] = []


async def browsergym_observation(episode: Episode, last_action: str, last_error: str) -> dict[str, Any]:
    """What the current tab holds, under BrowserGym's keys. Ids ("bid") are those of the episode's observation.

    Elements get their `bid` attribute while the page is read and lose it afterwards. Arrays are numpy's: `screenshot`
    is uint8 of (height, width, 3), `elapsed_time` float64 of (1,) in seconds, `active_page_index` int64 of (1,).
    While a dialog blocks the page, `dom_object`, `axtree_object` and `screenshot` are empty.
    """
    page, seen, task = episode.page(), episode.last, episode.bound
    assert seen is not None
    raw: dict[str, Any] = {"dom_object": {}, "axtree_object": {"nodes": []}, "screenshot": b""}
    if not episode.blocked:
        raw = await _read(page, episode.state().shown)
    return {
        "chat_messages": ({"role": "user", "timestamp": 0.0, "message": task.intent},),
        "goal": task.intent,
        "goal_object": ({"type": "text", "text": task.intent},),
        "open_pages_urls": np.array([tab.url for tab in episode.tabs.pages]),
        "open_pages_titles": np.array(seen.tabs),
        "active_page_index": np.array([seen.current_tab]),
        "url": page.url,
        "screenshot": _pixels(raw["screenshot"]),
        "dom_object": raw["dom_object"],
        "axtree_object": raw["axtree_object"],
        "extra_element_properties": {str(e.id): _properties(e) for e in seen.elements},
        "focused_element_bid": "" if seen.focused is None else str(seen.focused),
        "last_action": last_action,
        "last_action_error": last_error,
        "elapsed_time": np.array([monotonic() - episode.began]),
    }


async def _read(page: Page, shown: Mapping[int, Mark]) -> dict[str, Any]:
    named = {number: mark for number, mark in shown.items() if mark.role not in ("more", "expand")}
    session = await page.context.new_cdp_session(page)
    try:
        await _mark(page, named, True)
        dom = await session.send("DOMSnapshot.captureSnapshot", {"computedStyles": _STYLES, "includeDOMRects": True})
        tree = await session.send("Accessibility.getFullAXTree")
    finally:
        await _mark(page, named, False)
        await session.detach()
    bids = _bids(dom)
    for node in tree["nodes"]:
        if (bid := bids.get(node.get("backendDOMNodeId", -1))) is not None:
            node["browsergym_id"] = bid
    return {"dom_object": dom, "axtree_object": tree, "screenshot": await page.screenshot(type="png")}


async def _mark(page: Page, shown: Mapping[int, Mark], on: bool) -> None:
    async def one(number: int, mark: Mark) -> None:
        try:
            await locate(page, mark.key).evaluate(_MARK, str(number) if on else "", timeout=1000)
        except PlaywrightError:
            return  # It has left the page since; then it has no id in the tree either.

    await asyncio.gather(*(one(number, mark) for number, mark in shown.items()))


def _bids(dom: Mapping[str, Any]) -> dict[int, str]:
    """Backend node id to `bid`, for the nodes of a DOM snapshot that have one."""
    strings = dom["strings"]
    found: dict[int, str] = {}
    for document in dom["documents"]:
        nodes = document["nodes"]
        for backend, attributes in zip(nodes["backendNodeId"], nodes["attributes"], strict=True):
            pairs = zip(attributes[::2], attributes[1::2], strict=True)
            bid = next((strings[value] for name, value in pairs if strings[name] == "bid"), None)
            if bid is not None:
                found[backend] = bid
    return found


def _properties(element: Element) -> dict[str, Any]:
    box = element.box
    visible = box is not None and box[1] < VIEWPORT["height"] and box[1] + box[3] > 0
    return {
        "visibility": 1.0 if visible else 0.0,
        "bbox": None if box is None else list(box),
        "clickable": not element.disabled,
        "set_of_marks": visible,
    }


def _pixels(png: bytes) -> Any:
    if not png:
        return np.zeros((0, 0, 3), np.uint8)
    return np.array(Image.open(io.BytesIO(png)).convert("RGB"))
