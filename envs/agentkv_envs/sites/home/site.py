"""Opening the portal for one episode."""

from __future__ import annotations

from collections.abc import Mapping

from agentkv_envs.sites import Site, World
from agentkv_envs.sites.home.database import facts
from agentkv_envs.sites.home.pages import Home, home_app


def open_site(world: World, addresses: Mapping[str, str]) -> Site:
    """See `agentkv_envs.sites.open_site`. Nobody signs in here, so there are no cookies."""
    home = Home(world, addresses)
    return Site("home", home_app(home), home.store.db, {}, facts(world), home.store.close)
