"""The encyclopedia's pages, at addresses of the shape that kiwix gives an archive."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from agentkv_envs.sites import web
from agentkv_envs.sites.wiki.store import MAIN_PAGE, Listing, Store

ROOT = "/fieldbook_en/A"
_PACKAGE = __package__ or ""
_LINK = re.compile(r"\[\[([^\]]+)\]\]")


def path_of(title: str) -> str:
    """The path of an article."""
    return f"{ROOT}/{quote(title.replace(' ', '_'), safe=':/')}"


def linked(text: str) -> Markup:
    """A text with its `[[Title]]` as links."""
    parts = _LINK.split(text)
    return Markup("").join(
        Markup('<a href="{}">{}</a>').format(path_of(part), part) if i % 2 else escape(part)
        for i, part in enumerate(parts)
    )


class Wiki:
    """One episode's encyclopedia and the addresses of its neighbours."""

    def __init__(self, store: Store, addresses: Mapping[str, str]):
        self.store = store
        self.addresses = addresses

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        common = {
            "query": request.query_params.get("pattern", ""),
            "portal": self.addresses.get("home", ""),
            "root": ROOT,
            "path_of": path_of,
            "linked": linked,
        }
        return web.render(_PACKAGE, template, {**common, **values}, status)

    def listing(self, request: Request, heading: str, listing: Listing, **values: Any) -> Response:
        """A page with a list of articles; `listing` is one page of it."""
        params = dict(request.query_params)

        def page_url(number: int) -> str:
            return f"{request.url.path}?{urlencode({**params, 'page': number})}"

        return self.page(request, "listing.html", heading=heading, listing=listing, page_url=page_url, **values)


def _page_number(request: Request) -> int:
    return web.to_int(request.query_params.get("page"), 1)


async def root(wiki: Wiki, request: Request) -> Response:
    return web.see(path_of(MAIN_PAGE))


async def article(wiki: Wiki, request: Request) -> Response:
    title = request.path_params["title"].replace("_", " ")
    space, _, name = title.partition(":")
    if title == MAIN_PAGE:
        return wiki.page(request, "main.html", categories=wiki.store.categories())
    if space == "Category":
        listing = wiki.store.in_category(name, _page_number(request))
        return wiki.listing(request, name, listing) if listing.total else await missing(wiki, request)
    if space == "Links":
        return wiki.listing(request, f"Links to {name}", wiki.store.linking_to(name, _page_number(request)))
    found = wiki.store.article(title)
    if found is None:
        return await missing(wiki, request)
    return wiki.page(
        request,
        "article.html",
        article=found,
        facts=wiki.store.facts(found["id"]),
        sections=wiki.store.sections(found["id"]),
        backlinks=wiki.store.linking_to(found["title"], 1).total,
    )


async def search(wiki: Wiki, request: Request) -> Response:
    query = request.query_params.get("pattern", "").strip()
    return wiki.listing(request, f"Results for: '{query}'", wiki.store.search(query, _page_number(request)))


async def static(wiki: Wiki, request: Request) -> Response:
    return web.static_file(_PACKAGE, request.path_params["name"])


async def missing(wiki: Wiki, request: Request) -> Response:
    return wiki.page(request, "missing.html", 404)


def application(wiki: Wiki) -> Starlette:
    """The ASGI application of one episode; nothing is behind a sign-in."""
    entries: tuple[web.Entry[Wiki], ...] = (
        ("GET", "/", root, False),
        ("GET", "/static/{name}", static, False),
        ("GET", "/search", search, False),
        ("GET", f"{ROOT}/{{title:path}}", article, False),
    )
    return web.application(wiki, entries, lambda _wiki, _request: None, missing)
