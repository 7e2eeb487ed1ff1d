"""Opening the classifieds for one episode."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agentkv_envs.sites import Site, World
from agentkv_envs.sites.classifieds.app import classifieds_app
from agentkv_envs.sites.classifieds.catalogue import OWNER
from agentkv_envs.sites.classifieds.database import facts
from agentkv_envs.sites.classifieds.front import COOKIE, Classifieds
from agentkv_envs.sites.classifieds.photos import caption as photo_caption
from agentkv_envs.sites.classifieds.photos import short_caption
from agentkv_envs.sites.classifieds.store import Store
from agentkv_envs.uploads import UPLOADS


def open_site(world: World, addresses: Mapping[str, str]) -> Site:
    """See `agentkv_envs.sites.open_site`."""
    site = Classifieds(world, addresses)
    store = site.store

    def caption(path: str) -> str | None:
        found = re.match(r"/oc-content/uploads/(\d+)(_thumbnail)?\.png", path)
        return picture_caption(store, int(found[1]), bool(found[2])) if found else None

    cookies = {COOKIE: store.new_session(OWNER)}
    return Site("classifieds", classifieds_app(site), store.db, cookies, facts(world), store.close, caption)


def picture_caption(store: Store, number: int, small: bool) -> str | None:
    """What the photo of an ad shows, less of it where it is `small`; None where nobody knows."""
    ad, uploaded = store.listing(number), store.photo(number)
    if uploaded is not None:
        return UPLOADS.get(uploaded["filename"])
    if ad is None or not ad["kind"]:
        return None
    if small:
        return short_caption(ad["colour"], ad["pattern"])
    return photo_caption(ad["kind"], ad["colour"], ad["pattern"], ad["background"], ad["condition"])
