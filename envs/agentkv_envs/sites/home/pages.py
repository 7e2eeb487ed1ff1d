"""The portal's pages and addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agentkv_envs.sites import World
from agentkv_envs.sites.home.database import TOPICS
from agentkv_envs.sites.home.store import Store
from agentkv_envs.sites.storage import Refusal, Row
from agentkv_envs.sites.web import Entry, application, form_of, render, see, static_file

PACKAGE = __package__ or ""
# How the portal calls the other sites, in the order it lists them.
SITES = {
    "shopping": ("Brightcart", "a shop for every room"),
    "classifieds": ("Doorstep", "second-hand ads"),
    "forum": ("Commonroom", "a forum"),
    "wiki": ("Fieldbook", "an encyclopedia"),
}


class Home:
    """One episode's portal."""

    def __init__(self, world: World, addresses: Mapping[str, str]):
        self.store = Store(world)
        self.addresses = addresses

    def sites(self) -> list[tuple[str, str, str]]:
        """Name, what it is, and address of each other site of the episode."""
        return [(*SITES[name], self.addresses[name]) for name in SITES if name in self.addresses]

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        common = {"sites": self.sites(), "messages": self.store.messages(), "topics": TOPICS}
        return render(PACKAGE, template, {**common, **values}, status)

    def tell(self, action: Callable[[], object], done: str) -> bool:
        """Run an action; `done` with its result for {} becomes the next page's message, or else the refusal."""
        try:
            self.store.say(done.format(action()))
        except Refusal as error:
            self.store.say(str(error), "error")
            return False
        return True


def _notice(home: Home, request: Request) -> Row:
    notice = home.store.notice(int(request.path_params["id"]))
    if notice is None:
        raise HTTPException(404)
    return notice


async def front(home: Home, request: Request) -> Response:
    return home.page("home.html", notices=home.store.notices(request.query_params.get("topic", "")))


async def notice(home: Home, request: Request) -> Response:
    return home.page("notice.html", notice=_notice(home, request))


async def pin_form(home: Home, request: Request) -> Response:
    return home.page("pin.html", form={"topic": "", "title": "", "body": ""})


async def pin(home: Home, request: Request) -> Response:
    form = {"topic": "", "title": "", "body": "", **await form_of(request)}
    if not home.tell(lambda: home.store.pin(form["topic"], form["title"], form["body"]), "Your notice is up."):
        return home.page("pin.html", form=form)
    return see("/")


async def take_down(home: Home, request: Request) -> Response:
    number = _notice(home, request)["id"]
    done = home.tell(lambda: home.store.take_down(number), "Your notice is taken down.")
    return see("/" if done else f"/notice/{number}/")


async def slip(home: Home, request: Request) -> Response:
    number = _notice(home, request)["id"]
    home.tell(lambda: home.store.take_slip(number), "Your slip says: phone {}. It is shown once.")
    return see(f"/notice/{number}/")


async def sign_up(home: Home, request: Request) -> Response:
    number = _notice(home, request)["id"]
    home.tell(lambda: home.store.sign_up(number), "You have signed up.")
    return see(f"/notice/{number}/")


async def cancel(home: Home, request: Request) -> Response:
    number = _notice(home, request)["id"]
    home.tell(lambda: home.store.cancel(number), "Your seat is free again.")
    return see(f"/notice/{number}/")


async def locker(home: Home, request: Request) -> Response:
    return home.page("locker.html", locker=home.store.locker())


async def locker_code(home: Home, request: Request) -> Response:
    home.tell(home.store.reveal_code, "The code is {}. It is shown once.")
    return see("/locker/")


async def static(home: Home, request: Request) -> Response:
    return static_file(PACKAGE, request.path_params["name"])


async def missing(home: Home, request: Request) -> Response:
    return home.page("missing.html", status=404)


_ENTRIES: tuple[Entry[Home], ...] = (
    ("GET", "/", front, False),
    ("GET", "/notice/new/", pin_form, False),
    ("POST", "/notice/new/", pin, False),
    ("GET", "/notice/{id:int}/", notice, False),
    ("POST", "/notice/{id:int}/delete/", take_down, False),
    ("POST", "/notice/{id:int}/slip/", slip, False),
    ("POST", "/notice/{id:int}/signup/", sign_up, False),
    ("POST", "/notice/{id:int}/cancel/", cancel, False),
    ("GET", "/locker/", locker, False),
    ("POST", "/locker/", locker_code, False),
    ("GET", "/static/{name}", static, False),
)


def home_app(home: Home) -> Starlette:
    """The ASGI application of one episode."""
    return application(home, _ENTRIES, lambda home, request: None, missing)
