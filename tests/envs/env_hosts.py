"""Stand-ins for the benchmark's hosts: the embedded shop, and small sites with the others' login forms."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from agentkv_envs.sites import World, open_site
from agentkv_envs.sites.server import SiteServer


@contextmanager
def serve(make_app: Callable[[], Any]) -> Iterator[str]:
    """The address of an application that runs on a thread of its own."""
    started, loop = threading.Event(), asyncio.new_event_loop()
    servers: list[SiteServer] = []

    async def begin() -> None:
        servers.append(SiteServer(make_app()))
        await servers[0].start()
        started.set()

    def run() -> None:
        loop.run_until_complete(begin())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(20)
    try:
        yield servers[0].url
    finally:
        asyncio.run_coroutine_threadsafe(servers[0].stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def shop() -> Any:
    """The embedded shop, nobody signed in."""
    return open_site("shopping", World(), {}).app


def members_site(form: str, account: tuple[str, str], sign: str, log: list[str]) -> Callable[[], Starlette]:
    """A site whose every page is for members; it notes resets and sign-ins."""

    cookie = f"member-{sign.partition(' ')[0]}"

    async def page(request: Request) -> Response:
        query = str(request.url.query)
        if request.method == "POST":
            data = {key: str(value) for key, value in (await request.form()).items()}
            if "reset" in query or request.url.path == "/reset":
                log.append(f"reset {data.get('token', '')}".strip())
                return Response("ok")
            right = (data["user"], data["password"]) == account
            log.append("sign-in" if right else "refused")
            answer = RedirectResponse("/", 303)
            if right:
                answer.set_cookie(cookie, "yes")
            return answer
        if "login" in str(request.url) or cookie not in request.cookies:
            return HTMLResponse(f"<title>Log in</title><form method=post action='/login'>{form}</form>")
        return HTMLResponse(f"<title>Members</title><h1>Welcome</h1><p>{sign}</p><a href='/next'>Next</a>")

    return lambda: Starlette(routes=[Route("/{rest:path}", page, methods=["GET", "POST"])])


CLASSIFIEDS_FORM = "<input id=email name=user><input id=password name=password><button>Log in</button>"
REDDIT_FORM = (
    "<label>Username <input name=user></label><label>Password <input name=password></label><button>Log in</button>"
)
