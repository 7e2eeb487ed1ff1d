"""What all pages of the site share: the episode's store, the frame around a page, finding what an address names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from agentkv_envs.sites import World
from agentkv_envs.sites.classifieds.catalogue import OWNER
from agentkv_envs.sites.classifieds.store import Store
from agentkv_envs.sites.storage import Refusal, Row
from agentkv_envs.sites.web import render, see, to_int

COOKIE = "doorstep_session"
PACKAGE = __package__ or ""


class Classifieds:
    """One episode's site: its store and the addresses of the other sites."""

    def __init__(self, world: World, addresses: Mapping[str, str]):
        self.store = Store(world)
        self.addresses = addresses

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a template with what every page shows."""
        common = {
            "owner": self.store.owner(request.cookies.get(COOKIE)),
            "owner_id": OWNER,
            "portal": self.addresses.get("home", ""),
            "categories": self.store.categories(),
            "pattern": request.query_params.get("sPattern", ""),
            "messages": self.store.messages(),
        }
        return render(PACKAGE, template, {**common, **values}, status)

    def attempt(self, action: Callable[[], object], done: str = "") -> bool:
        """Run an action of the store; a refusal, or else `done`, becomes a message on the next page."""
        try:
            action()
        except Refusal as error:
            self.store.say(str(error), "error")
            return False
        if done:
            self.store.say(done)
        return True

    def tell(self, action: Callable[[], str]) -> bool:
        """Like `attempt`; what the action returns is the message."""
        try:
            self.store.say(action())
        except Refusal as error:
            self.store.say(str(error), "error")
            return False
        return True


def sign_in_first(site: Classifieds, request: Request) -> Response | None:
    """The guard of private pages."""
    if site.store.owner(request.cookies.get(COOKIE)) is not None:
        return None
    back = {"next": f"{request.url.path}?{request.url.query}"} if request.method == "GET" else {}
    return see("/index.php?" + urlencode({"page": "login", **back}))


def number_of(request: Request, name: str = "id") -> int:
    """A number in the address, -1 where there is none."""
    return to_int(request.query_params.get(name), -1)


def ad_of(site: Classifieds, request: Request) -> Row:
    """The ad an address names; a missing one is a 404."""
    ad = site.store.listing(number_of(request))
    if ad is None:
        raise HTTPException(404)
    return ad


def item_path(number: int) -> str:
    return f"/index.php?page=item&id={number}"
