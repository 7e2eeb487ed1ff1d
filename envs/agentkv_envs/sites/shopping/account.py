"""Signing in and the customer's account: addresses, rewards, newsletter, messages."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agentkv_envs.sites.shopping.shop import COOKIE, Shop
from agentkv_envs.sites.shopping.store_customer import ADDRESS_FIELDS, FREQUENCIES, TOPICS
from agentkv_envs.sites.storage import Refusal, Row
from agentkv_envs.sites.web import form_of, inside, see


def sign_in_first(shop: Shop, request: Request) -> Response | None:
    """The way to the sign-in form for a visitor who is not signed in."""
    if shop.store.customer(request.cookies.get(COOKIE)) is not None:
        return None
    back = {"next": request.url.path} if request.method == "GET" else {}
    return see(f"/customer/account/login/?{urlencode(back)}")


async def login_form(shop: Shop, request: Request) -> Response:
    return shop.page(request, "login.html", next=request.query_params.get("next", "/customer/account/"))


async def login(shop: Shop, request: Request) -> Response:
    form = await form_of(request)
    try:
        token = shop.store.login(form.get("email", ""), form.get("password", ""))
    except Refusal as error:
        shop.store.say(str(error), "error")
        return see("/customer/account/login/")
    response = see(inside(form.get("next", ""), "/customer/account/"))
    response.set_cookie(COOKIE, token, httponly=True)
    return response


async def logout(shop: Shop, request: Request) -> Response:
    shop.store.end_session(request.cookies.get(COOKIE))
    return see("/")


async def account(shop: Shop, request: Request) -> Response:
    return shop.page(request, "account.html")


# Addresses


async def address_form(shop: Shop, request: Request) -> Response:
    return shop.page(request, "address.html", form=shop.customer(request), label=None)


async def address_post(shop: Shop, request: Request) -> Response:
    form = await form_of(request)
    if not shop.attempt(lambda: shop.store.save_address(form)):
        return see("/customer/address/edit/")
    shop.store.say("You saved the address.")
    return see("/customer/account/")


async def addresses(shop: Shop, request: Request) -> Response:
    return shop.page(request, "addresses.html", addresses=shop.store.addresses())


def _other_address(shop: Shop, request: Request) -> Row:
    address = shop.store.address(int(request.path_params["id"]))
    if address is None:
        raise HTTPException(404)
    return address


async def other_address_form(shop: Shop, request: Request) -> Response:
    """The form of a new address, or of the one in the path."""
    if "id" in request.path_params:
        address = _other_address(shop, request)
        return shop.page(request, "address.html", form=address, label=address["label"])
    return shop.page(request, "address.html", form=dict.fromkeys(ADDRESS_FIELDS, ""), label="")


async def other_address_post(shop: Shop, request: Request) -> Response:
    form = await form_of(request)
    address_id = _other_address(shop, request)["id"] if "id" in request.path_params else None
    try:
        shop.store.save_other_address(form, address_id)
    except Refusal as error:
        shop.store.say(str(error), "error")
        kept = {**dict.fromkeys(ADDRESS_FIELDS, ""), **form}
        return shop.page(request, "address.html", form=kept, label=form.get("label", ""))
    shop.store.say("You saved the address.")
    return see("/customer/address/")


async def address_delete(shop: Shop, request: Request) -> Response:
    address = _other_address(shop, request)
    shop.store.delete_address(address["id"])
    shop.store.say(f"The address {address['label']} was deleted.")
    return see("/customer/address/")


async def address_default(shop: Shop, request: Request) -> Response:
    address = _other_address(shop, request)
    shop.store.make_default(address["id"])
    shop.store.say("The default address was changed.")
    return see("/customer/address/")


# Rewards, newsletter, messages


async def rewards(shop: Shop, request: Request) -> Response:
    return shop.page(request, "rewards.html", code="")


async def rewards_post(shop: Shop, request: Request) -> Response:
    code = ""
    try:
        code = shop.store.reveal_reward()
    except Refusal as error:
        shop.store.say(str(error), "error")
    return shop.page(request, "rewards.html", code=code)


async def newsletter(shop: Shop, request: Request) -> Response:
    subscriptions = shop.store.newsletter()
    return shop.page(request, "newsletter.html", subscriptions=subscriptions, topics=TOPICS, frequencies=FREQUENCIES)


async def newsletter_post(shop: Shop, request: Request) -> Response:
    form = await form_of(request)
    choice = (form.get("email", ""), form.get("topic", ""), form.get("frequency", ""))
    codes: list[str] = []
    if shop.attempt(lambda: codes.append(shop.store.subscribe(*choice))):
        shop.store.say(f"You are subscribed. 10% off from $40 with the code {codes[0]}: it is shown only now.")
    return see("/newsletter/")


async def unsubscribe(shop: Shop, request: Request) -> Response:
    shop.store.unsubscribe(int(request.path_params["id"]))
    shop.store.say("You are no longer subscribed.")
    return see("/newsletter/")


async def inbox(shop: Shop, request: Request) -> Response:
    return shop.page(request, "inbox.html", inbox=shop.store.inbox())


async def message_open(shop: Shop, request: Request) -> Response:
    """Shown in answer to a form, not under an address of its own: a message told once cannot be fetched again."""
    try:
        message = shop.store.open_message(int(request.path_params["id"]))
    except Refusal as error:
        shop.store.say(str(error), "error")
        return see("/customer/messages/")
    return shop.page(request, "mail.html", mail=message)
