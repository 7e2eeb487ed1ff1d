"""Opening the forum for one episode."""

from __future__ import annotations

from collections.abc import Mapping

from agentkv_envs.sites import Site, World
from agentkv_envs.sites.forum.app import application
from agentkv_envs.sites.forum.content import ME
from agentkv_envs.sites.forum.database import world as world_data
from agentkv_envs.sites.forum.forum import COOKIE, Forum
from agentkv_envs.sites.forum.pictures import caption


def open_site(world: World, addresses: Mapping[str, str]) -> Site:
    """See `agentkv_envs.sites.open_site`."""
    forum = Forum(world, addresses)
    store = forum.store

    def told(path: str) -> str | None:
        number = path.removeprefix("/image/").removesuffix(".png")
        if not path.startswith("/image/") or not number.isdigit():
            return None
        row = store.one("SELECT * FROM post WHERE id = ? AND picture_count > 0", int(number))
        return caption(row["picture_kind"], row["picture_colour"], row["picture_count"]) if row is not None else None

    cookies = {COOKIE: store.new_session(ME)}
    _, facts = world_data(world.seed, world.split)
    return Site("forum", application(forum), store.db, cookies, facts, store.close, told)
