"""What all pages of the forum share: the episode's store, its neighbours, rendering."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agentkv_envs.sites import World, web
from agentkv_envs.sites.forum.reading import PERIODS, Listing
from agentkv_envs.sites.forum.store import Store
from agentkv_envs.sites.storage import Refusal, Row
from agentkv_envs.sites.wiki.pages import path_of

COOKIE = "commonroom_session"
PACKAGE = __package__ or ""


def slug(title: str) -> str:
    """The end of a post's address: `which-kettle-for-a-van`."""
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())[:60].rstrip("-") or "-"


def post_path(post: Row) -> str:
    """The address of a post."""
    return f"/f/{post['forum']}/{post['id']}/{slug(post['title'])}"


def day(stamp: str) -> str:
    """`Mar 11`, with the year where it is not this one."""
    moment = datetime.fromisoformat(stamp)
    return f"{moment:%b} {moment.day}" + ("" if moment.year == 2026 else f", {moment.year}")


def moment(stamp: str) -> str:
    """`Mar 11, 08:40`."""
    return f"{day(stamp)}, {datetime.fromisoformat(stamp):%H:%M}"


class Forum:
    """One episode's forum."""

    def __init__(self, world: World, addresses: Mapping[str, str]):
        self.world = world
        self.addresses = addresses
        self.store = Store(world.seed, world.split)

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        """Render a template with what every page shows."""
        user_id = self.store.user_id(request.cookies.get(COOKIE))
        common = {
            "me": self.store.user_by_id(user_id) if user_id is not None else None,
            "unread": self.store.unread(),
            "query": request.query_params.get("q", ""),
            "messages": self.store.messages(),
            "portal": self.addresses.get("home", ""),
            "post_path": post_path,
            "day": day,
            "moment": moment,
            "link_of": self.link_of,
        }
        return web.render(PACKAGE, template, {**common, **values}, status)

    def link_of(self, post: Row) -> str:
        """Where a post's link leads: to the encyclopedia where there is one, else to a copy of its article here."""
        space, _, title = post["url"].partition(":")
        if space != "wiki":
            return str(post["url"])
        wiki = self.addresses.get("wiki")
        return f"{wiki}{path_of(title)}" if wiki else f"/reader/{quote(title.replace(' ', '_'))}"

    def attempt(self, action: Callable[[], object], done: str = "") -> bool:
        """Run a store action; what it says, or why it was refused, becomes a message on the next page."""
        try:
            action()
        except Refusal as error:
            self.store.say(str(error), "error")
            return False
        if done:
            self.store.say(done)
        return True


def found(row: Row | None) -> Row:
    """A row that an address names; a missing one is a 404."""
    if row is None:
        raise HTTPException(404)
    return row


def forum_of(site: Forum, request: Request) -> Row:
    return found(site.store.forum(request.path_params["forum"]))


def post_of(site: Forum, request: Request) -> Row:
    return found(site.store.post(request.path_params["forum"], request.path_params["id"]))


def comment_of(site: Forum, request: Request) -> tuple[Row, Row]:
    """The post and the comment that an address names."""
    post = post_of(site, request)
    return post, found(site.store.comment(post["id"], request.path_params["comment"]))


def user_of(site: Forum, request: Request) -> Row:
    return found(site.store.user(request.path_params["name"]))


def comment_path(post: Row, comment_id: int) -> str:
    return f"/f/{post['forum']}/{post['id']}/-/comment/{comment_id}"


def page_number(request: Request) -> int:
    return web.to_int(request.query_params.get("page"), 1)


def period_of(request: Request) -> str:
    period = request.query_params.get("t", "all")
    return period if period in PERIODS else "all"


def pager(request: Request, listing: Listing) -> dict[str, Any]:
    """What a template needs to show a page of a list and the way to its neighbours."""
    params = dict(request.query_params)

    def page_url(number: int) -> str:
        return f"{request.url.path}?{urlencode({**params, 'page': number})}"

    return {"listing": listing, "page_url": page_url}
