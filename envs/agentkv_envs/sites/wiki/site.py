"""Opening the encyclopedia for one episode."""

from __future__ import annotations

from collections.abc import Mapping

from agentkv_envs.sites import Site, World
from agentkv_envs.sites.wiki.database import facts
from agentkv_envs.sites.wiki.pages import Wiki, application
from agentkv_envs.sites.wiki.store import Store


def open_site(world: World, addresses: Mapping[str, str]) -> Site:
    """See `agentkv_envs.sites.open_site`."""
    store = Store(world.seed, world.split)
    app = application(Wiki(store, addresses))
    return Site("wiki", app, store.db, {}, facts(world.seed, world.split), store.close)
