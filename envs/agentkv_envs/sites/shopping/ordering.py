"""Checkout, past orders, returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agentkv_envs.sites.shopping.history import SHIPPING
from agentkv_envs.sites.shopping.shop import Shop
from agentkv_envs.sites.shopping.store_customer import ADDRESS_FIELDS
from agentkv_envs.sites.shopping.store_orders import REASONS, RESOLUTIONS
from agentkv_envs.sites.storage import Refusal, Row
from agentkv_envs.sites.web import form_of, see, to_int


async def checkout(shop: Shop, request: Request) -> Response:
    if not shop.store.cart():
        shop.store.say("Your cart is empty.", "error")
        return see("/checkout/cart/")
    customer = shop.customer(request)
    chosen = shop.store.address(to_int(request.query_params.get("address"), 0)) or customer
    form = {field: chosen[field] for field in ADDRESS_FIELDS}
    return _checkout_page(shop, request, {**form, "shipping": "Standard", "gift_note": ""})


def _checkout_page(shop: Shop, request: Request, form: Mapping[str, Any]) -> Response:
    coupon = shop.store.coupon()
    return shop.page(
        request,
        "checkout.html",
        form=form,
        addresses=shop.store.addresses(),
        address_id=to_int(request.query_params.get("address"), 0),
        totals=shop.store.totals(str(form["shipping"])),
        code=form.get("coupon", coupon["code"] if coupon is not None else ""),
        discounted=coupon is not None,
        items=shop.store.cart(),
        shipping=SHIPPING,
    )


async def checkout_post(shop: Shop, request: Request) -> Response:
    form = await form_of(request)
    if form.get("do") == "place":
        placed: list[int] = []
        if shop.attempt(lambda: placed.append(shop.store.place_order(form))):
            return see(f"/checkout/onepage/success/{placed[0]}/")
    elif shop.attempt(lambda: shop.store.apply_coupon(form.get("coupon", ""))) and shop.store.coupon():
        shop.store.say("The discount code was applied.")
    blank = dict.fromkeys((*ADDRESS_FIELDS, "gift_note"), "")
    return _checkout_page(shop, request, {**blank, "shipping": "Standard", **form})


async def success(shop: Shop, request: Request) -> Response:
    return shop.page(request, "success.html", order=_order_row(shop, request))


async def orders(shop: Shop, request: Request) -> Response:
    return shop.page(request, "orders.html", orders=shop.store.orders())


async def order(shop: Shop, request: Request) -> Response:
    order = _order_row(shop, request)
    items = shop.store.order_items(order["id"])
    return shop.page(request, "order.html", order=order, items=items, thanks=shop.store.thanks_code(order))


def _order_row(shop: Shop, request: Request) -> Row:
    order = shop.store.order(int(request.path_params["id"]))
    if order is None:
        raise HTTPException(404)
    return order


def _order_path(order: Row) -> str:
    return f"/sales/order/view/order_id/{order['id']}/"


async def order_cancel(shop: Shop, request: Request) -> Response:
    order = _order_row(shop, request)
    if shop.attempt(lambda: shop.store.cancel_order(order["id"])):
        shop.store.say(f"Order {order['number']} was cancelled.")
    return see(_order_path(order))


async def reorder(shop: Shop, request: Request) -> Response:
    for refused in shop.store.reorder(_order_row(shop, request)["id"]):
        shop.store.say(refused, "error")
    return see("/checkout/cart/")


# Returns


async def returns(shop: Shop, request: Request) -> Response:
    return shop.page(request, "returns.html", returns=shop.store.returns())


async def return_form(shop: Shop, request: Request) -> Response:
    order = _order_row(shop, request)
    if not shop.attempt(lambda: shop.store.check_returnable(order)):
        return see(_order_path(order))
    items = [item for item in shop.store.order_items(order["id"]) if not item["return_number"]]
    return shop.page(request, "return.html", order=order, items=items, reasons=REASONS, resolutions=RESOLUTIONS)


async def return_post(shop: Shop, request: Request) -> Response:
    order, form = _order_row(shop, request), await form_of(request)
    if not shop.attempt(lambda: shop.store.check_returnable(order)):
        return see(_order_path(order))
    choice = (to_int(form.get("item"), 0), form.get("reason", ""), form.get("resolution", ""))
    try:
        number, pin = shop.store.open_return(order, *choice)
    except Refusal as error:
        shop.store.say(str(error), "error")
        return see(f"/sales/order/return/order_id/{order['id']}/")
    shop.store.say(f"Your return number is {number}. Drop-off PIN {pin}: it is shown only now.")
    return see("/sales/returns/")
