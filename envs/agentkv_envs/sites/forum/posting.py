"""What the member does to posts, comments and wiki pages."""

from __future__ import annotations

from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentkv_envs.sites import web
from agentkv_envs.sites.forum.forum import (
    Forum,
    comment_of,
    comment_path,
    forum_of,
    found,
    post_of,
    post_path,
)
from agentkv_envs.sites.forum.themes import TAGS
from agentkv_envs.sites.forum.writing import REASONS
from agentkv_envs.sites.storage import Refusal, Row

# What the buttons of a post do: the table, whether the post goes into it, and what is said.
_KEEPING = {
    "save": ("saved", True, "Saved."),
    "unsave": ("saved", False, "No longer saved."),
    "hide": ("hidden", True, "The post is hidden from lists."),
    "unhide": ("hidden", False, "The post is no longer hidden."),
}


def _post_by_id(site: Forum, post_id: int) -> Row:
    row = found(
        site.store.one("SELECT p.id, f.name FROM post p JOIN forum f ON f.id = p.forum_id WHERE p.id = ?", post_id)
    )
    return found(site.store.post(row["name"], row["id"]))


async def submit_form(site: Forum, request: Request) -> Response:
    chosen = request.path_params.get("forum", "")
    return site.page(request, "submit.html", tags=TAGS, forums=site.store.forum_names(), form={"forum": chosen})


async def submit(site: Forum, request: Request) -> Response:
    """A new post; a refused one comes back with what was typed."""
    form = await web.form_of(request)
    texts = [form.get(name, "") for name in ("forum", "tag", "title", "body", "url")]
    try:
        post_id = site.store.submit(*texts)
    except Refusal as error:
        site.store.say(str(error), "error")
        return site.page(request, "submit.html", tags=TAGS, forums=site.store.forum_names(), form=form)
    site.store.say("Your post was published.")
    return web.see(post_path(_post_by_id(site, post_id)))


async def edit_form(site: Forum, request: Request) -> Response:
    return site.page(request, "edit.html", post=post_of(site, request), tags=TAGS)


async def edit(site: Forum, request: Request) -> Response:
    post, form = post_of(site, request), await web.form_of(request)
    texts = [form.get(name, "") for name in ("tag", "title", "body", "url")]
    if not site.attempt(lambda: site.store.edit_post(post, *texts), "Your post was changed."):
        return web.see(f"/f/{post['forum']}/{post['id']}/-/edit")
    return web.see(post_path(_post_by_id(site, post["id"])))


async def delete(site: Forum, request: Request) -> Response:
    post = post_of(site, request)
    if not site.attempt(lambda: site.store.delete_post(post), "Your post was deleted."):
        return web.see(post_path(post))
    return web.see(f"/f/{post['forum']}")


async def vote_post(site: Forum, request: Request) -> Response:
    post = _post_by_id(site, request.path_params["id"])
    return await _vote(
        request, lambda choice: site.store.vote_post(post, choice), lambda: _post_by_id(site, post["id"])
    )


async def vote_comment(site: Forum, request: Request) -> Response:
    row = found(site.store.one("SELECT id, post_id FROM comment WHERE id = ?", request.path_params["id"]))

    def comment() -> Row:
        return found(site.store.comment(row["post_id"], row["id"]))

    return await _vote(request, lambda choice: site.store.vote_comment(comment(), choice), comment)


async def _vote(request: Request, vote: Callable[[int], None], row: Callable[[], Row]) -> Response:
    """A vote from the vote box, answered with the new score."""
    choice = web.to_int((await web.form_of(request)).get("choice"), 9)
    try:
        vote(choice)
    except Refusal as error:
        return JSONResponse({"error": str(error)})
    said = {1: "Upvoted.", 0: "Your vote was taken back.", -1: "Downvoted."}[choice]
    return JSONResponse({"score": row()["score"], "choice": choice, "message": said})


async def comment(site: Forum, request: Request) -> Response:
    post, body = post_of(site, request), (await web.form_of(request)).get("comment", "")
    made: list[int] = []
    if not site.attempt(lambda: made.append(site.store.add_comment(post, body)), "Your comment was posted."):
        return web.see(post_path(post))
    return web.see(comment_path(post, made[0]))


async def reply(site: Forum, request: Request) -> Response:
    post, parent = comment_of(site, request)
    body = (await web.form_of(request)).get("comment", "")
    made: list[int] = []
    if not site.attempt(lambda: made.append(site.store.add_comment(post, body, parent)), "Your reply was posted."):
        return web.see(comment_path(post, parent["id"]))
    return web.see(comment_path(post, made[0]))


async def comment_form(site: Forum, request: Request) -> Response:
    post, row = comment_of(site, request)
    return site.page(request, "edit_comment.html", post=post, comment=row)


async def comment_edit(site: Forum, request: Request) -> Response:
    post, row = comment_of(site, request)
    body = (await web.form_of(request)).get("comment", "")
    if not site.attempt(lambda: site.store.edit_comment(row, body), "Your comment was changed."):
        return web.see(f"{comment_path(post, row['id'])}/-/edit")
    return web.see(comment_path(post, row["id"]))


async def comment_delete(site: Forum, request: Request) -> Response:
    post, row = comment_of(site, request)
    if not site.attempt(lambda: site.store.delete_comment(row), "Your comment was deleted."):
        return web.see(comment_path(post, row["id"]))
    return web.see(post_path(post))


async def keep(site: Forum, request: Request) -> Response:
    """Save, unsave, hide or unhide; then back to the post, or to its forum when it was hidden."""
    post, what = post_of(site, request), request.path_params["what"]
    if what not in _KEEPING:
        raise HTTPException(404)
    table, on, said = _KEEPING[what]
    done = site.attempt(lambda: site.store.mark(table, post, on), said)
    return web.see(f"/f/{post['forum']}" if what == "hide" and done else post_path(post))


async def report_form(site: Forum, request: Request) -> Response:
    return site.page(request, "report.html", post=post_of(site, request), reasons=REASONS)


async def report(site: Forum, request: Request) -> Response:
    post, reason = post_of(site, request), (await web.form_of(request)).get("reason", "")
    if not site.attempt(lambda: site.store.report(post, reason), "Thank you, the moderator will look at it."):
        return web.see(f"/f/{post['forum']}/{post['id']}/-/report")
    return web.see(post_path(post))


async def subscribe_form(site: Forum, request: Request) -> Response:
    return site.page(request, "door.html", forum=forum_of(site, request))


async def subscribe(site: Forum, request: Request) -> Response:
    row, word = forum_of(site, request), (await web.form_of(request)).get("door_word", "")
    try:
        number = site.store.subscribe(row, word)
    except Refusal as error:
        site.store.say(str(error), "error")
        return web.see(f"/f/{row['name']}/subscribe" if row["door_word"] else f"/f/{row['name']}")
    site.store.say(f"Welcome to f/{row['name']}. Your member number is {number}; it is shown only once.")
    return web.see(f"/f/{row['name']}")


async def unsubscribe(site: Forum, request: Request) -> Response:
    row = forum_of(site, request)
    site.attempt(lambda: site.store.unsubscribe(row), f"You left f/{row['name']}.")
    return web.see(f"/f/{row['name']}")


async def wiki_form(site: Forum, request: Request) -> Response:
    return site.page(request, "wiki_edit.html", entry=found(site.store.wiki_page(request.path_params["path"])))


async def wiki_edit(site: Forum, request: Request) -> Response:
    entry = found(site.store.wiki_page(request.path_params["path"]))
    body = (await web.form_of(request)).get("body", "")
    if not site.attempt(lambda: site.store.edit_wiki(entry, body), "The page was changed."):
        return web.see(f"/wiki/-/edit/{entry['path']}")
    return web.see(f"/wiki/{entry['path']}")
