"""Cart, wish list, notices about sold-out products."""

from __future__ import annotations

import functools

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentkv_envs.sites.shopping.products import product_path
from agentkv_envs.sites.shopping.shop import Shop
from agentkv_envs.sites.storage import Refusal
from agentkv_envs.sites.web import form_of, see, to_int


async def cart(shop: Shop, request: Request) -> Response:
    return shop.page(request, "cart.html", items=shop.store.cart(), totals=shop.store.totals("Pickup"))


async def cart_add(shop: Shop, request: Request) -> Response:
    """Add a product; the page's script gets JSON for its toast, others are led back to the product."""
    product, form = shop.product(request), await form_of(request)
    qty = to_int(form.get("qty", "1"), 0)
    text, link, added = f"You added {product['name']} to your", "/checkout/cart/", True
    try:
        shop.store.add_to_cart(product, qty, form.get("size", ""), form.get("colour", ""))
    except Refusal as error:
        text, link, added = str(error), "", False
    if "json" in request.headers.get("accept", ""):
        return JSONResponse({"added": added, "text": text, "link": link, "count": shop.store.cart_count()})
    shop.store.say(text, "success" if added else "error", link, "shopping cart" if added else "")
    return see(product_path(product))


async def cart_update(shop: Shop, request: Request) -> Response:
    form = await form_of(request)
    for item in shop.store.cart():
        wanted = to_int(form.get(f"qty-{item['item_id']}"), item["qty"])
        if wanted != item["qty"]:
            shop.attempt(functools.partial(shop.store.set_quantity, item["item_id"], wanted))
    return see("/checkout/cart/")


async def cart_remove(shop: Shop, request: Request) -> Response:
    shop.store.remove_from_cart(int(request.path_params["id"]))
    return see("/checkout/cart/")


async def cart_clear(shop: Shop, request: Request) -> Response:
    shop.store.clear_cart()
    return see("/checkout/cart/")


async def wishlist(shop: Shop, request: Request) -> Response:
    return shop.page(request, "wishlist.html", items=shop.store.wishlist())


async def wish_add(shop: Shop, request: Request) -> Response:
    product = shop.product(request)
    shop.store.wish(product["id"])
    shop.store.say(f"{product['name']} was added to your", link="/wishlist/", link_text="wish list")
    return see(product_path(product))


async def wish_remove(shop: Shop, request: Request) -> Response:
    shop.store.unwish(int(request.path_params["id"]))
    return see("/wishlist/")


async def wish_to_cart(shop: Shop, request: Request) -> Response:
    item_id = int(request.path_params["id"])
    for item in shop.store.wishlist():
        if item["item_id"] != item_id:
            continue
        if item["sizes"] or item["colours"]:
            shop.store.say("Please choose the options here.", "error")
            return see(product_path(item))
        if shop.attempt(functools.partial(shop.store.add_to_cart, item, 1)):
            shop.store.unwish(item_id)
            shop.store.say(f"You added {item['name']} to your", link="/checkout/cart/", link_text="shopping cart")
    return see("/wishlist/")


async def notices(shop: Shop, request: Request) -> Response:
    return shop.page(request, "notices.html", items=shop.store.notices())


async def notice_add(shop: Shop, request: Request) -> Response:
    product, form = shop.product(request), await form_of(request)
    choice = (form.get("email", ""), form.get("colour", ""), form.get("size", ""))
    if shop.attempt(lambda: shop.store.notify(product, *choice)):
        shop.store.say(
            f"We will write to {choice[0].strip()} when it is back.", link="/notices/", link_text="My notices"
        )
    return see(product_path(product))


async def notice_remove(shop: Shop, request: Request) -> Response:
    shop.store.drop_notice(int(request.path_params["id"]))
    return see("/notices/")
