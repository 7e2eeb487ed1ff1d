"""Checkout and past orders."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from agentkv_envs.sites.shopping.database import COUNTRIES, SHIPPING
from agentkv_envs.sites.shopping.shop import COOKIE, Shop, form_of


async def checkout(shop: Shop, request: Request) -> Response:
    if not shop.store.cart():
        shop.store.say("Your cart is empty.", "error")
        return RedirectResponse("/checkout/cart/", 303)
    customer = shop.store.customer(request.cookies.get(COOKIE))
    assert customer is not None
    return _checkout_page(shop, request, {**dict(customer), "shipping": "Standard", "gift_note": ""})


def _checkout_page(shop: Shop, request: Request, form: Mapping[str, Any]) -> Response:
    totals = shop.store.totals(str(form["shipping"]))
    return shop.page(
        request,
        "checkout.html",
        form=form,
        totals=totals,
        coupon=shop.store.coupon(),
        items=shop.store.cart(),
        shipping=SHIPPING,
        countries=COUNTRIES,
    )


async def checkout_post(shop: Shop, request: Request) -> Response:
    form = await form_of(request)
    if form.get("do") == "place":
        placed: list[int] = []
        if shop.attempt(lambda: placed.append(shop.store.place_order(form))):
            return RedirectResponse(f"/checkout/onepage/success/{placed[0]}/", 303)
    elif shop.attempt(lambda: shop.store.apply_coupon(form.get("coupon", ""))) and shop.store.coupon():
        shop.store.say("The discount code was applied.")
    blank = dict.fromkeys(
        ("firstname", "lastname", "street", "city", "postcode", "country", "telephone", "gift_note"), ""
    )
    return _checkout_page(shop, request, {**blank, "shipping": "Standard", **form})


async def success(shop: Shop, request: Request) -> Response:
    return shop.page(request, "success.html", order=_order_row(shop, request))


async def orders(shop: Shop, request: Request) -> Response:
    return shop.page(request, "orders.html", orders=shop.store.orders())


async def order(shop: Shop, request: Request) -> Response:
    order = _order_row(shop, request)
    newest = shop.store.orders()[0]["id"]
    thanks = shop.store.thanks_code() if order["id"] == newest and order["status"] != "Pending" else ""
    return shop.page(request, "order.html", order=order, items=shop.store.order_items(order["id"]), thanks=thanks)


def _order_row(shop: Shop, request: Request) -> Any:
    order = shop.store.order(int(request.path_params["id"]))
    if order is None:
        raise HTTPException(404)
    return order


async def order_cancel(shop: Shop, request: Request) -> Response:
    order = _order_row(shop, request)
    if shop.attempt(lambda: shop.store.cancel_order(order["id"])):
        shop.store.say(f"Order {order['number']} was cancelled.")
    return RedirectResponse(f"/sales/order/view/order_id/{order['id']}/", 303)


async def reorder(shop: Shop, request: Request) -> Response:
    order = _order_row(shop, request)
    for item in shop.store.order_items(order["id"]):
        shop.attempt(functools.partial(shop.store.add_to_cart, item, item["qty"], item["size"]))
    return RedirectResponse("/checkout/cart/", 303)
