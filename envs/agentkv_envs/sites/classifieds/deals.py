"""Pages about other people's ads: comments, offers, contact, phone, favourites, reports; and private messages."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agentkv_envs.sites.classifieds import dealing
from agentkv_envs.sites.classifieds.front import Classifieds, ad_of, item_path, number_of
from agentkv_envs.sites.classifieds.store import REASONS
from agentkv_envs.sites.web import form_of, see, to_int

INBOX = "/index.php?page=user&action=messages"
OFFERS = "/index.php?page=user&action=offers"


def _action(name: str, number: int) -> str:
    return f"/index.php?page=item&action={name}&id={number}"


async def comment_form(site: Classifieds, request: Request) -> Response:
    return site.page(request, "comment.html", ad=ad_of(site, request))


async def comment(site: Classifieds, request: Request) -> Response:
    ad, form = ad_of(site, request), await form_of(request)
    body = form.get("body", "")
    if not site.attempt(lambda: dealing.add_comment(site.store, ad, body), "Your comment is published."):
        return see(_action("add_comment", ad["id"]))
    return see(item_path(ad["id"]))


async def comment_delete(site: Classifieds, request: Request) -> Response:
    ad = ad_of(site, request)
    site.attempt(lambda: dealing.delete_comment(site.store, number_of(request, "comment")), "Your comment is deleted.")
    return see(item_path(ad["id"]))


async def offer_form(site: Classifieds, request: Request) -> Response:
    return site.page(request, "offer.html", ad=ad_of(site, request))


async def offer(site: Classifieds, request: Request) -> Response:
    ad, form = ad_of(site, request), await form_of(request)
    dollars = to_int(form.get("amount", "").removeprefix("$"), 0)
    if not site.tell(lambda: dealing.make_offer(site.store, ad, dollars)):
        return see(_action("offer", ad["id"]))
    return see(item_path(ad["id"]))


async def offer_withdraw(site: Classifieds, request: Request) -> Response:
    site.attempt(lambda: dealing.withdraw_offer(site.store, number_of(request)), "Your offer is withdrawn.")
    return see(OFFERS)


async def offers(site: Classifieds, request: Request) -> Response:
    return site.page(request, "offers.html", offers=dealing.my_offers(site.store))


async def pickup_form(site: Classifieds, request: Request) -> Response:
    wanted = number_of(request)
    deal = next((o for o in dealing.my_offers(site.store) if o["id"] == wanted and o["state"] == "accepted"), None)
    if deal is None:
        raise HTTPException(404)
    return site.page(request, "pickup.html", deal=deal)


async def pickup(site: Classifieds, request: Request) -> Response:
    form, wanted = await form_of(request), number_of(request)
    done = "The pickup is confirmed. You can rate the seller now."
    if not site.attempt(lambda: dealing.confirm_pickup(site.store, wanted, form.get("code", "")), done):
        return see(f"/index.php?page=user&action=pickup&id={wanted}")
    return see(OFFERS)


async def phone(site: Classifieds, request: Request) -> Response:
    ad = ad_of(site, request)
    site.tell(lambda: f"Phone {site.store.reveal_phone(ad)}. Note it down, it is shown once.")
    return see(item_path(ad["id"]))


async def report_form(site: Classifieds, request: Request) -> Response:
    return site.page(request, "report.html", ad=ad_of(site, request), reasons=REASONS)


async def report(site: Classifieds, request: Request) -> Response:
    ad, form = ad_of(site, request), await form_of(request)
    done = "Thank you. We will look at this ad."
    if not site.attempt(lambda: site.store.report(ad, form.get("reason", ""), form.get("note", "")), done):
        return see(_action("report", ad["id"]))
    return see(item_path(ad["id"]))


async def favourite_add(site: Classifieds, request: Request) -> Response:
    ad = ad_of(site, request)
    site.attempt(lambda: site.store.add_favourite(ad), "The ad is one of your favourites now.")
    return see(item_path(ad["id"]))


async def favourite_remove(site: Classifieds, request: Request) -> Response:
    site.store.remove_favourite(number_of(request))
    site.store.say("The ad is no longer one of your favourites.")
    return see("/index.php?page=custom&route=watchlist-user")


async def contact_form(site: Classifieds, request: Request) -> Response:
    return site.page(request, "contact.html", ad=ad_of(site, request))


async def contact(site: Classifieds, request: Request) -> Response:
    ad, form = ad_of(site, request), await form_of(request)
    body = form.get("body", "")
    if not site.attempt(lambda: dealing.contact_seller(site.store, ad, body), "Your message is sent."):
        return see(_action("contact", ad["id"]))
    return see(item_path(ad["id"]))


async def inbox(site: Classifieds, request: Request) -> Response:
    return site.page(request, "inbox.html", threads=dealing.threads(site.store))


async def thread(site: Classifieds, request: Request) -> Response:
    found = dealing.thread(site.store, number_of(request))
    if found is None:
        raise HTTPException(404)
    return site.page(request, "thread.html", thread=found, letters=dealing.messages_in(site.store, found["id"]))


def _thread_path(request: Request) -> str:
    return f"/index.php?page=user&action=thread&id={number_of(request)}"


async def secret(site: Classifieds, request: Request) -> Response:
    site.tell(lambda: f"{dealing.read_secret(site.store, number_of(request))} This secret message is destroyed now.")
    return see(_thread_path(request))


async def reply(site: Classifieds, request: Request) -> Response:
    form = await form_of(request)
    site.attempt(lambda: dealing.reply(site.store, number_of(request), form.get("body", "")), "Your message is sent.")
    return see(_thread_path(request))


async def thread_delete(site: Classifieds, request: Request) -> Response:
    dealing.delete_thread(site.store, number_of(request))
    site.store.say("The conversation is deleted.")
    return see(INBOX)
