"""The embedded sites. A site gives each episode its own application and database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkv_envs.errors import EnvError

if TYPE_CHECKING:
    from starlette.types import ASGIApp


@dataclass(frozen=True)
class Site:
    """One episode's instance of a site.

    Attributes:
        name: the site's name in tasks; `__NAME__` in upper case stands for its address.
        app: the ASGI application.
        database: the episode's database, for evaluators to read.
        cookies: name to value, set before the first page so that the episode starts logged in.
        facts: what differs between data seeds; tasks write `__KEY__` for a value.
        close: frees the database.
    """

    name: str
    app: ASGIApp
    database: sqlite3.Connection
    cookies: dict[str, str]
    facts: dict[str, str]
    close: Callable[[], None]


def _shopping(seed: int) -> Site:
    from agentkv_envs.sites.shopping.app import application
    from agentkv_envs.sites.shopping.database import facts
    from agentkv_envs.sites.shopping.shop import COOKIE, Shop

    shop = Shop(seed)
    cookies = {COOKIE: shop.store.new_session()}
    return Site("shopping", application(shop), shop.store.db, cookies, facts(seed), shop.store.close)


_SITES: dict[str, Callable[[int], Site]] = {"shopping": _shopping}
SITE_NAMES = tuple(_SITES)


def open_site(name: str, seed: int) -> Site:
    """A fresh instance of a site for one episode.

    Raises:
        EnvError: there is no such site.
    """
    if name not in _SITES:
        raise EnvError(f"there is no embedded site {name!r}; there are {', '.join(_SITES)}")
    return _SITES[name](seed)
