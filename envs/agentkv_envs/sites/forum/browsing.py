"""Pages for reading: front page, forums, posts, comments, search, wiki."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agentkv_envs.sites import web
from agentkv_envs.sites.forum.content import ME
from agentkv_envs.sites.forum.forum import (
    PACKAGE,
    Forum,
    comment_of,
    forum_of,
    found,
    page_number,
    pager,
    period_of,
    post_of,
)
from agentkv_envs.sites.forum.pictures import picture
from agentkv_envs.sites.forum.reading import SORTS, THREADS
from agentkv_envs.sites.storage import Row
from agentkv_envs.sites.wiki.articles import by_title

# How long the rest of a thread takes to arrive, in seconds.
MORE_DELAY = 0.4


def _sort(request: Request) -> str:
    sort: str = request.path_params.get("sort", "hot")
    if sort not in SORTS:
        raise HTTPException(404)
    return sort


async def front(site: Forum, request: Request) -> Response:
    return _front(site, request, everything=False)


async def everything(site: Forum, request: Request) -> Response:
    return _front(site, request, everything=True)


def _front(site: Forum, request: Request, everything: bool) -> Response:
    sort, period = _sort(request), period_of(request)
    listing = site.store.front(everything, sort, period, page_number(request))
    return site.page(
        request,
        "front.html",
        **pager(request, listing),
        base="/all" if everything else "",
        sort=sort,
        period=period,
        subscriptions=site.store.subscriptions(),
    )


async def forums(site: Forum, request: Request) -> Response:
    return site.page(request, "forums.html", **pager(request, site.store.forums(page_number(request))))


async def forum(site: Forum, request: Request) -> Response:
    row = forum_of(site, request)
    sort, period = _sort(request), period_of(request)
    listing = site.store.in_forum(row["id"], sort, period, page_number(request))
    return site.page(
        request,
        "forum.html",
        **pager(request, listing),
        forum=row,
        base=f"/f/{row['name']}",
        sort=sort,
        period=period,
        wiki=site.store.wiki_of(row["id"]),
    )


async def post(site: Forum, request: Request) -> Response:
    row = post_of(site, request)
    row_forum = found(site.store.forum(row["forum"]))
    threads = site.store.threads(row["id"])
    return site.page(
        request,
        "post.html",
        post=row,
        forum=row_forum,
        threads=threads[:THREADS],
        rest=threads[THREADS:],
        next=THREADS,
        mine=row["author_id"] == ME,
        saved=site.store.is_marked("saved", row["id"]),
        hidden=site.store.is_marked("hidden", row["id"]),
        wiki=site.store.wiki_of(row_forum["id"]),
    )


async def more(site: Forum, request: Request) -> Response:
    """The next threads of a post, as a piece of a page; takes its time."""
    row = post_of(site, request)
    start = max(0, web.to_int(request.query_params.get("after"), 0))
    await asyncio.sleep(MORE_DELAY)
    threads = site.store.threads(row["id"])
    end = start + THREADS
    return site.page(request, "more.html", post=row, threads=threads[start:end], rest=threads[end:], next=end)


async def comment(site: Forum, request: Request) -> Response:
    row_post, row = comment_of(site, request)
    parent: Row | None = site.store.comment(row_post["id"], row["parent_id"]) if row["parent_id"] else None
    replies = site.store.replies(row["id"])
    mine = row["author_id"] == ME and not row["deleted"]
    return site.page(request, "comment.html", post=row_post, comment=row, parent=parent, replies=replies, mine=mine)


async def search(site: Forum, request: Request) -> Response:
    query = request.query_params.get("q", "").strip()
    listing = site.store.search(query, page_number(request))
    return site.page(
        request,
        "list.html",
        **pager(request, listing),
        heading=f"Results for: '{query}'",
        empty="Nothing was found. Try fewer or other words.",
    )


async def image(site: Forum, request: Request) -> Response:
    row = found(site.store.one("SELECT * FROM post WHERE id = ? AND picture_count > 0", request.path_params["id"]))
    png = picture(row["picture_kind"], row["picture_colour"], row["picture_count"], row["id"] % 5)
    return Response(png, media_type="image/png", headers=web.CACHED)


async def reader(site: Forum, request: Request) -> Response:
    """A copy of an article, for episodes without the encyclopedia."""
    articles = by_title(site.world.seed, site.world.split)
    article = articles.get(request.path_params["title"].replace("_", " "))
    if article is None:
        return await missing(site, request)
    texts = [text.replace("[[", "").replace("]]", "") for text in (article.opening, *(b for _, b in article.sections))]
    return site.page(request, "reader.html", article=article, texts=texts)


async def wiki(site: Forum, request: Request) -> Response:
    return site.page(request, "wiki.html", **pager(request, site.store.wiki_pages(page_number(request))))


async def wiki_page(site: Forum, request: Request) -> Response:
    return site.page(request, "wiki_page.html", entry=found(site.store.wiki_page(request.path_params["path"])))


async def static(site: Forum, request: Request) -> Response:
    return web.static_file(PACKAGE, request.path_params["name"])


async def missing(site: Forum, request: Request) -> Response:
    return site.page(request, "missing.html", 404)
