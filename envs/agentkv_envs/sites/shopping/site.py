"""Opening the shop for one episode."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

from agentkv_envs.sites import Site, World
from agentkv_envs.sites.shopping.app import application
from agentkv_envs.sites.shopping.facts import facts
from agentkv_envs.sites.shopping.images import COLOURS, GROUNDS
from agentkv_envs.sites.shopping.shop import COOKIE, Shop
from agentkv_envs.sites.shopping.store import Store


def open_site(world: World, addresses: Mapping[str, str]) -> Site:
    """See `agentkv_envs.sites.open_site`."""
    shop = Shop(world, addresses)
    store = shop.store
    cookies = {COOKIE: store.new_session(1)}
    known = facts(world.seed, world.split)
    return Site("shopping", application(shop), store.db, cookies, known, store.close, lambda path: caption(store, path))


def caption(store: Store, path: str) -> str | None:
    """What a picture shows, see `Site.caption`."""
    parts = urlsplit(path)
    if media := re.fullmatch(r"/media/(\d+)\.png", parts.path):
        row = store.one("SELECT kind, colour FROM product WHERE id = ?", int(media[1]))
        chosen = parse_qs(parts.query).get("colour", [""])[0]
        return f"{chosen if chosen in COLOURS else row['colour']} {row['kind']}".lower() if row else None
    if media := re.fullmatch(r"/media/review/(\d+)\.png", parts.path):
        row = store.one(
            "SELECT kind, colour, photo FROM review r JOIN product p ON p.id = r.product_id"
            " WHERE r.id = ? AND photo IS NOT NULL",
            int(media[1]),
        )
        return f"{row['colour']} {row['kind']} {GROUNDS[row['photo']][0]}".lower() if row else None
    return None
