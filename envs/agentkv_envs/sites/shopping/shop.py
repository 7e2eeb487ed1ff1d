"""What all pages of the shop share: the episode's store, templates, form reading."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from agentkv_envs.sites.shopping.store import ShopError, Store

COOKIE = "brightcart_session"
STATIC = {"shop.css": "text/css", "shop.js": "text/javascript"}


def money(cents: int) -> str:
    """`$25` or `$25.50`."""
    return f"${cents / 100:.2f}" if cents % 100 else f"${cents // 100}"


@functools.lru_cache(maxsize=1)
def _templates() -> Environment:
    env = Environment(
        loader=PackageLoader(__package__ or "", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    env.filters["money"] = money
    return env


@functools.lru_cache(maxsize=8)
def static_text(name: str) -> str:
    return resources.files(__package__ or "").joinpath("static", name).read_text()


async def form_of(request: Request) -> dict[str, str]:
    form = await request.form()
    return {key: value for key, value in form.items() if not isinstance(value, UploadFile)}


def to_int(text: str | None, default: int) -> int:
    try:
        return int((text or "").strip())
    except ValueError:
        return default


class Shop:
    """One episode's shop: its store and the handlers over it."""

    def __init__(self, seed: int = 0):
        self.store = Store(seed)

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a template with what every page shows."""
        common = {
            "customer": self.store.customer(request.cookies.get(COOKIE)),
            "categories": self.store.categories(),
            "cart_count": self.store.cart_count(),
            "query": request.query_params.get("q", ""),
            "messages": self.store.messages(),
        }
        return HTMLResponse(_templates().get_template(template).render(**{**common, **values}), status)

    def attempt(self, action: Callable[[], object]) -> bool:
        """Run a store action; a refusal becomes an error message on the next page."""
        try:
            action()
        except ShopError as error:
            self.store.say(str(error), "error")
            return False
        return True


def product_of(shop: Shop, request: Request) -> Any:
    """The product whose id stands in the address; a missing one is a 404."""
    try:
        return shop.store.product_by_id(int(request.path_params["id"]))
    except ShopError:
        raise HTTPException(404) from None
