"""Opening the shop for one episode."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agentkv_envs.sites import Site, World
from agentkv_envs.sites.shopping.app import application
from agentkv_envs.sites.shopping.database import facts
from agentkv_envs.sites.shopping.shop import COOKIE, Shop


def open_site(world: World, addresses: Mapping[str, str]) -> Site:
    """See `agentkv_envs.sites.open_site`."""
    shop = Shop(world.seed)
    cookies = {COOKIE: shop.store.new_session()}

    def caption(path: str) -> str | None:
        media = re.match(r"/media/(\d+)\.png", path)
        row = media and shop.store.one("SELECT kind, colour FROM product WHERE id = ?", int(media[1]))
        return f"{row['colour']} {row['kind']}".lower() if row else None

    return Site("shopping", application(shop), shop.store.db, cookies, facts(world.seed), shop.store.close, caption)
