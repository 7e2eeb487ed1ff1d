"""Opening MiniWoB++ for one episode."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources

from playwright.async_api import Page
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from agentkv_envs.sites import Site, World
from agentkv_envs.sites.miniwob.pages import html_folder
from agentkv_envs.types import Task

_START = resources.files(__package__ or "").joinpath("start.js").read_text("utf-8").strip()
_READY_MS = 10_000
# Some pages give their wording with its parts.
_UTTERANCE = "() => { const said = core.getUtterance(); return said.utterance ?? said; }"


def open_site(world: World, addresses: Mapping[str, str]) -> Site:
    """See `agentkv_envs.sites.open_site`. The data seed is the seed of the page."""
    folder = html_folder()

    async def page(request: Request) -> HTMLResponse:
        name = request.path_params["name"]
        file = folder / "miniwob" / f"{name}.html"
        if not re.fullmatch(r"[a-z0-9-]+", name) or not file.is_file():
            raise HTTPException(404)
        start = f"<script>{_START}({world.seed});</script>"
        return HTMLResponse(with_script(file.read_text("utf-8"), start))

    app = Starlette(
        routes=[Route("/miniwob/{name}.html", page), Mount("/", StaticFiles(directory=folder, follow_symlink=True))]
    )
    database = sqlite3.connect(":memory:")
    return Site("miniwob", app, database, {}, {}, database.close, started=_started)


def with_script(html: str, script: str) -> str:
    """The page with a script at its end, after those that define the task."""
    before, mark, after = html.rpartition("</body>")
    return f"{before}{script}{mark}{after}" if mark else html + script


async def _started(page: Page, task: Task) -> Task:
    """The task with the page's own wording as its intent."""
    await page.wait_for_function("() => WOB_TASK_READY", timeout=_READY_MS)
    return replace(task, intent=await page.evaluate(_UTTERANCE))
