"""What all pages of the shop share: the episode's store, the frame of a page, refusals as messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from agentkv_envs.sites import World
from agentkv_envs.sites.shopping.history import COUNTRIES
from agentkv_envs.sites.shopping.kinds import CATEGORIES, kinds_of
from agentkv_envs.sites.shopping.store import Store
from agentkv_envs.sites.shopping.store_cart import day
from agentkv_envs.sites.storage import Refusal, Row
from agentkv_envs.sites.web import render

COOKIE = "brightcart_session"
PACKAGE = __package__ or ""
MENU = tuple((slug, name, kinds_of(slug)) for slug, name, _ in CATEGORIES)


class Shop:
    """One episode's shop: its store and the addresses of the sites beside it."""

    def __init__(self, world: World | None = None, addresses: Mapping[str, str] | None = None):
        self.store = Store(world)
        self.addresses = addresses if addresses is not None else {}

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a template with what every page shows."""
        common = {
            "customer": self.store.customer(request.cookies.get(COOKIE)),
            "menu": MENU,
            "cart_count": self.store.cart_count(),
            "compare_count": len(self.store.compared()),
            "query": request.query_params.get("q", ""),
            "portal": self.addresses.get("home", ""),
            "messages": self.store.messages(),
            "countries": COUNTRIES,
            "day": day,
        }
        return render(PACKAGE, template, {**common, **values}, status)

    def attempt(self, action: Callable[[], object]) -> bool:
        """Run a store action; a refusal becomes an error message on the next page."""
        try:
            action()
        except Refusal as error:
            self.store.say(str(error), "error")
            return False
        return True

    def customer(self, request: Request) -> Row:
        """The customer who is signed in; only for pages behind the sign-in."""
        customer = self.store.customer(request.cookies.get(COOKIE))
        assert customer is not None
        return customer

    def product(self, request: Request) -> Row:
        """The product whose id stands in the address.

        Raises:
            HTTPException: 404, there is none.
        """
        try:
            return self.store.product_by_id(int(request.path_params["id"]))
        except Refusal:
            raise HTTPException(404) from None
