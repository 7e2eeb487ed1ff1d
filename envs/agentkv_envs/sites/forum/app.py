"""The forum's routes, in the shape of a Postmill forum."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentkv_envs.sites import web
from agentkv_envs.sites.forum import browsing, members, posting
from agentkv_envs.sites.forum.forum import COOKIE, Forum

_POST = "/f/{forum}/{id:int}"
_COMMENT = _POST + "/-/comment/{comment:int}"

ROUTES: tuple[web.Entry[Forum], ...] = (
    ("GET", "/", browsing.front, False),
    ("GET", "/static/{name}", browsing.static, False),
    ("GET", "/image/{id:int}.png", browsing.image, False),
    ("GET", "/reader/{title}", browsing.reader, False),
    ("GET", "/all", browsing.everything, False),
    ("GET", "/all/{sort}", browsing.everything, False),
    ("GET", "/search", browsing.search, False),
    ("GET", "/forums", browsing.forums, False),
    ("GET", "/wiki", browsing.wiki, False),
    ("GET", "/wiki/-/edit/{path:path}", posting.wiki_form, True),
    ("POST", "/wiki/-/edit/{path:path}", posting.wiki_edit, True),
    ("GET", "/wiki/{path:path}", browsing.wiki_page, False),
    ("GET", "/login", members.login_form, False),
    ("POST", "/login", members.login, False),
    ("POST", "/logout", members.logout, False),
    ("GET", "/submit", posting.submit_form, True),
    ("POST", "/submit", posting.submit, True),
    ("GET", "/submit/{forum}", posting.submit_form, True),
    ("POST", "/sv/{id:int}", posting.vote_post, True),
    ("POST", "/cv/{id:int}", posting.vote_comment, True),
    ("GET", "/messages", members.inbox, True),
    ("GET", "/message/{id:int}", members.thread, True),
    ("POST", "/message/{id:int}", members.answer, True),
    ("POST", "/message/{id:int}/delete", members.thread_delete, True),
    ("GET", "/edit_biography", members.biography_form, True),
    ("POST", "/edit_biography", members.biography, True),
    ("GET", "/block_list", members.block_list, True),
    ("GET", "/kept/{table}", members.kept, True),
    ("GET", "/user/{name}", members.profile, False),
    ("GET", "/user/{name}/comments", members.comments, False),
    ("POST", "/user/{name}/block", members.block, True),
    ("POST", "/user/{name}/unblock", members.unblock, True),
    ("GET", "/user/{name}/compose_message", members.compose_form, True),
    ("POST", "/user/{name}/compose_message", members.compose, True),
    ("GET", _COMMENT, browsing.comment, False),
    ("POST", _COMMENT, posting.reply, True),
    ("GET", _COMMENT + "/-/edit", posting.comment_form, True),
    ("POST", _COMMENT + "/-/edit", posting.comment_edit, True),
    ("POST", _COMMENT + "/-/delete", posting.comment_delete, True),
    ("POST", _POST + "/-/comment", posting.comment, True),
    ("GET", _POST + "/-/more", browsing.more, False),
    ("GET", _POST + "/-/edit", posting.edit_form, True),
    ("POST", _POST + "/-/edit", posting.edit, True),
    ("POST", _POST + "/-/delete", posting.delete, True),
    ("GET", _POST + "/-/report", posting.report_form, True),
    ("POST", _POST + "/-/report", posting.report, True),
    ("POST", _POST + "/-/{what}", posting.keep, True),
    ("GET", _POST, browsing.post, False),
    ("GET", _POST + "/", browsing.post, False),
    ("GET", _POST + "/{slug}", browsing.post, False),
    ("GET", "/f/{forum}", browsing.forum, False),
    ("GET", "/f/{forum}/subscribe", posting.subscribe_form, True),
    ("POST", "/f/{forum}/subscribe", posting.subscribe, True),
    ("POST", "/f/{forum}/unsubscribe", posting.unsubscribe, True),
    ("GET", "/f/{forum}/{sort}", browsing.forum, False),
    ("GET", "/{sort}", browsing.front, False),
)


def guard(site: Forum, request: Request) -> Response | None:
    """Who is not signed in is sent to the sign-in form; a vote box is told so."""
    if site.store.user_id(request.cookies.get(COOKIE)) is not None:
        return None
    if request.url.path.startswith(("/sv/", "/cv/")):
        return JSONResponse({"error": "Sign in to vote."})
    back = {"next": request.url.path} if request.method == "GET" else {}
    return web.see(f"/login?{urlencode(back)}")


def application(site: Forum) -> Starlette:
    """The ASGI application of one episode."""
    return web.application(site, ROUTES, guard, browsing.missing)
