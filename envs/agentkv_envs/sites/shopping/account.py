"""Signing in, the address, and rewards."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from agentkv_envs.sites.shopping.database import COUNTRIES
from agentkv_envs.sites.shopping.shop import COOKIE, Shop, form_of
from agentkv_envs.sites.shopping.store import ShopError


async def login_form(shop: Shop, request: Request) -> Response:
    return shop.page(request, "login.html", next=request.query_params.get("next", "/customer/account/"))


async def login(shop: Shop, request: Request) -> Response:
    form = await form_of(request)
    try:
        token = shop.store.login(form.get("email", ""), form.get("password", ""))
    except ShopError as error:
        shop.store.say(str(error), "error")
        return RedirectResponse("/customer/account/login/", 303)
    next_page = form.get("next", "")
    response = RedirectResponse(next_page if next_page.startswith("/") else "/customer/account/", 303)
    response.set_cookie(COOKIE, token, httponly=True)
    return response


async def logout(shop: Shop, request: Request) -> Response:
    shop.store.logout(request.cookies.get(COOKIE, ""))
    return RedirectResponse("/", 303)


async def account(shop: Shop, request: Request) -> Response:
    return shop.page(request, "account.html")


async def address_form(shop: Shop, request: Request) -> Response:
    return shop.page(request, "address.html", countries=COUNTRIES)


async def address(shop: Shop, request: Request) -> Response:
    form = await form_of(request)
    if not shop.attempt(lambda: shop.store.save_address(form)):
        return RedirectResponse("/customer/address/edit/", 303)
    shop.store.say("You saved the address.")
    return RedirectResponse("/customer/account/", 303)


async def rewards(shop: Shop, request: Request) -> Response:
    code = ""
    if request.method == "POST":
        try:
            code = shop.store.reveal_reward()
        except ShopError as error:
            shop.store.say(str(error), "error")
    return shop.page(request, "rewards.html", code=code)
