"""Pages about people: signing in, profiles, what the member keeps, messages."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agentkv_envs.sites import web
from agentkv_envs.sites.forum.content import ME
from agentkv_envs.sites.forum.forum import COOKIE, Forum, found, page_number, pager, user_of
from agentkv_envs.sites.storage import Refusal


async def login_form(site: Forum, request: Request) -> Response:
    return site.page(request, "login.html", next=request.query_params.get("next", "/"))


async def login(site: Forum, request: Request) -> Response:
    form = await web.form_of(request)
    try:
        token = site.store.login(form.get("name", ""), form.get("password", ""))
    except Refusal as error:
        site.store.say(str(error), "error")
        return web.see("/login")
    response = web.see(web.inside(form.get("next", ""), "/"))
    response.set_cookie(COOKIE, token, httponly=True)
    return response


async def logout(site: Forum, request: Request) -> Response:
    site.store.end_session(request.cookies.get(COOKIE))
    return web.see("/")


async def profile(site: Forum, request: Request) -> Response:
    user = user_of(site, request)
    listing = site.store.posts_by(user["id"], page_number(request))
    return site.page(request, "user.html", **pager(request, listing), user=user, mine=user["id"] == ME)


async def comments(site: Forum, request: Request) -> Response:
    user = user_of(site, request)
    listing = site.store.comments_by(user["id"], page_number(request))
    return site.page(request, "user_comments.html", **pager(request, listing), user=user)


async def kept(site: Forum, request: Request) -> Response:
    """The member's saved or hidden posts."""
    table = request.path_params["table"]
    if table not in ("saved", "hidden"):
        raise HTTPException(404)
    listing = site.store.marked(table, page_number(request))
    return site.page(
        request, "list.html", **pager(request, listing), heading=f"{table.capitalize()} posts", empty="There are none."
    )


async def block_list(site: Forum, request: Request) -> Response:
    return site.page(request, "blocked.html", people=site.store.blocked())


async def block(site: Forum, request: Request) -> Response:
    user = user_of(site, request)
    site.attempt(lambda: site.store.block(user, True), f"You blocked {user['name']}.")
    return web.see(f"/user/{user['name']}")


async def unblock(site: Forum, request: Request) -> Response:
    user = user_of(site, request)
    site.attempt(lambda: site.store.block(user, False), f"{user['name']} is no longer blocked.")
    return web.see(f"/user/{user['name']}")


async def biography_form(site: Forum, request: Request) -> Response:
    return site.page(request, "biography.html")


async def biography(site: Forum, request: Request) -> Response:
    text = (await web.form_of(request)).get("biography", "")
    me = found(site.store.user_by_id(ME))
    if not site.attempt(lambda: site.store.save_biography(text), "Your biography was saved."):
        return web.see("/edit_biography")
    return web.see(f"/user/{me['name']}")


async def inbox(site: Forum, request: Request) -> Response:
    return site.page(request, "inbox.html", threads=site.store.inbox())


async def thread(site: Forum, request: Request) -> Response:
    row = found(site.store.thread(request.path_params["id"]))
    return site.page(request, "thread.html", thread=row, letters=site.store.read_thread(row["id"]))


async def answer(site: Forum, request: Request) -> Response:
    row = found(site.store.thread(request.path_params["id"]))
    user = found(site.store.user_by_id(row["user_id"]))
    body = (await web.form_of(request)).get("body", "")
    site.attempt(lambda: site.store.send(user, body), "Your message was sent.")
    return web.see(f"/message/{row['id']}")


async def thread_delete(site: Forum, request: Request) -> Response:
    row = found(site.store.thread(request.path_params["id"]))
    site.attempt(lambda: site.store.delete_thread(row["id"]), f"The conversation with {row['person']} was deleted.")
    return web.see("/messages")


async def compose_form(site: Forum, request: Request) -> Response:
    return site.page(request, "compose.html", user=user_of(site, request))


async def compose(site: Forum, request: Request) -> Response:
    user, body = user_of(site, request), (await web.form_of(request)).get("body", "")
    made: list[int] = []
    if not site.attempt(lambda: made.append(site.store.send(user, body)), "Your message was sent."):
        return web.see(f"/user/{user['name']}/compose_message")
    return web.see(f"/message/{made[0]}")
