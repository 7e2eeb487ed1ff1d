"""Signing in, the profile, favourites, sellers that are followed, saved searches, ratings."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agentkv_envs.sites.classifieds import dealing
from agentkv_envs.sites.classifieds.front import COOKIE, Classifieds, number_of
from agentkv_envs.sites.storage import Refusal, Row
from agentkv_envs.sites.web import form_of, inside, see, to_int

ACCOUNT = "/index.php?page=user&action=dashboard"
SEARCHES = "/index.php?page=user&action=alerts"


async def login_form(site: Classifieds, request: Request) -> Response:
    return site.page(request, "login.html", next=request.query_params.get("next", ACCOUNT))


async def login(site: Classifieds, request: Request) -> Response:
    form = await form_of(request)
    try:
        token = site.store.login(form.get("email", ""), form.get("password", ""))
    except Refusal as error:
        site.store.say(str(error), "error")
        return see("/index.php?page=login")
    response = see(inside(form.get("next", ""), ACCOUNT))
    response.set_cookie(COOKIE, token, httponly=True)
    return response


async def logout(site: Classifieds, request: Request) -> Response:
    site.store.end_session(request.cookies.get(COOKIE))
    return see("/")


async def dashboard(site: Classifieds, request: Request) -> Response:
    return site.page(request, "dashboard.html")


async def profile_form(site: Classifieds, request: Request) -> Response:
    return site.page(request, "profile.html")


async def profile(site: Classifieds, request: Request) -> Response:
    form = await form_of(request)
    saved = site.attempt(
        lambda: site.store.save_profile(form.get("phone", ""), form.get("place", "")), "Your profile is saved."
    )
    return see(ACCOUNT if saved else "/index.php?page=user&action=profile")


async def favourites(site: Classifieds, request: Request) -> Response:
    return site.page(request, "favourites.html", ads=site.store.favourites())


async def following(site: Classifieds, request: Request) -> Response:
    return site.page(request, "following.html", sellers=site.store.followed())


def _seller(site: Classifieds, request: Request) -> Row:
    user = site.store.user(number_of(request))
    if user is None:
        raise HTTPException(404)
    return user


def _seller_path(user: Row) -> str:
    return f"/index.php?page=user&action=pub_profile&id={user['id']}"


async def follow(site: Classifieds, request: Request) -> Response:
    user = _seller(site, request)
    site.attempt(lambda: site.store.follow(user["id"]), f"You follow {user['name']} now.")
    return see(_seller_path(user))


async def unfollow(site: Classifieds, request: Request) -> Response:
    user = _seller(site, request)
    site.store.unfollow(user["id"])
    site.store.say(f"You no longer follow {user['name']}.")
    return see(_seller_path(user))


async def rate_form(site: Classifieds, request: Request) -> Response:
    return site.page(request, "rate.html", user=_seller(site, request))


async def rate(site: Classifieds, request: Request) -> Response:
    user, form = _seller(site, request), await form_of(request)
    stars, body = to_int(form.get("stars"), 0), form.get("body", "")
    if not site.attempt(lambda: dealing.rate_seller(site.store, user["id"], stars, body), "Your rating is published."):
        return see(f"/index.php?page=user&action=rate&id={user['id']}")
    return see(_seller_path(user))


async def searches(site: Classifieds, request: Request) -> Response:
    return site.page(request, "searches.html", searches=site.store.saved_searches())


async def search_save(site: Classifieds, request: Request) -> Response:
    form = await form_of(request)
    query = form.get("query", "")
    site.attempt(lambda: site.store.save_search(form.get("name", ""), query), "Your search is saved.")
    return see(f"/index.php?page=search&{query}")


async def search_delete(site: Classifieds, request: Request) -> Response:
    site.store.delete_search(number_of(request))
    site.store.say("The saved search is deleted.")
    return see(SEARCHES)
