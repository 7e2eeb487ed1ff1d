"""Pages of one's own ads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agentkv_envs.sites.classifieds import dealing, selling
from agentkv_envs.sites.classifieds.catalogue import CONDITIONS, DAYS, OWNER
from agentkv_envs.sites.classifieds.front import Classifieds, ad_of, item_path, number_of
from agentkv_envs.sites.storage import Row
from agentkv_envs.sites.web import form_of, see, to_int, upload_of

MY_ADS = "/index.php?page=user&action=items"
_EMPTY = {
    "title": "",
    "category": "",
    "price": "",
    "condition": "",
    "place": "",
    "pickup_day": "",
    "description": "",
}


def _form(site: Classifieds, request: Request, values: Mapping[str, Any], ad: Row | None) -> Response:
    return site.page(request, "ad_form.html", form={**_EMPTY, **values}, ad=ad, conditions=CONDITIONS, days=DAYS)


def own_ad(site: Classifieds, request: Request) -> Row:
    """The owner's ad an address names; anybody else's is a 404."""
    ad = ad_of(site, request)
    if ad["user_id"] != OWNER:
        raise HTTPException(404)
    return ad


async def mine(site: Classifieds, request: Request) -> Response:
    page = site.store.ads_of(OWNER, to_int(request.query_params.get("iPage"), 1))
    return site.page(request, "my_ads.html", page=page)


async def add(site: Classifieds, request: Request) -> Response:
    return _form(site, request, {"place": site.store.user(OWNER)["place"]}, None)  # type: ignore[index]


async def add_post(site: Classifieds, request: Request) -> Response:
    form, upload = await form_of(request), await upload_of(request, "photo")
    numbers: list[int] = []
    if not site.attempt(lambda: numbers.append(selling.post_ad(site.store, form, upload)), "Your ad is published."):
        return _form(site, request, form, None)
    return see(item_path(numbers[0]))


async def edit(site: Classifieds, request: Request) -> Response:
    ad = own_ad(site, request)
    return _form(site, request, {**ad, "category": ad["category_slug"], "price": ad["price_cents"] // 100}, ad)


async def edit_post(site: Classifieds, request: Request) -> Response:
    ad, form = own_ad(site, request), await form_of(request)
    upload = await upload_of(request, "photo")
    if not site.attempt(lambda: selling.edit_ad(site.store, ad, form, upload), "Your changes are saved."):
        return _form(site, request, form, ad)
    return see(item_path(ad["id"]))


async def sold(site: Classifieds, request: Request) -> Response:
    ad = own_ad(site, request)
    site.attempt(lambda: selling.mark_sold(site.store, ad), "The ad is marked as sold.")
    return see(item_path(ad["id"]))


async def renew(site: Classifieds, request: Request) -> Response:
    ad = own_ad(site, request)
    site.attempt(lambda: selling.renew(site.store, ad), "The ad has today's date now.")
    return see(item_path(ad["id"]))


async def delete(site: Classifieds, request: Request) -> Response:
    ad = own_ad(site, request)
    if not site.attempt(lambda: selling.delete_ad(site.store, ad), f"{ad['title']} is deleted."):
        return see(item_path(ad["id"]))
    return see(MY_ADS)


async def answer_form(site: Classifieds, request: Request) -> Response:
    ad, wanted = own_ad(site, request), number_of(request, "comment")
    question = next((c for c in dealing.comments(site.store, ad["id"]) if c["id"] == wanted), None)
    if question is None:
        raise HTTPException(404)
    return site.page(request, "answer.html", ad=ad, question=question)


async def answer(site: Classifieds, request: Request) -> Response:
    ad, wanted, form = own_ad(site, request), number_of(request, "comment"), await form_of(request)
    body = form.get("body", "")
    if not site.attempt(lambda: dealing.add_comment(site.store, ad, body, wanted), "Your answer is published."):
        return see(f"/index.php?page=item&action=answer&id={ad['id']}&comment={wanted}")
    return see(item_path(ad["id"]))


async def answer_offer(site: Classifieds, request: Request) -> Response:
    ad, offer, accept = own_ad(site, request), number_of(request, "offer"), "accept" in request.query_params
    told = "The offer is accepted and the ad reserved." if accept else "The offer is declined."
    site.attempt(lambda: dealing.answer_offer(site.store, ad, offer, accept), told)
    return see(item_path(ad["id"]))
