"""Cart and wish list."""

from __future__ import annotations

import functools

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from agentkv_envs.sites.shopping.shop import Shop, form_of, product_of, to_int


async def cart(shop: Shop, request: Request) -> Response:
    return shop.page(request, "cart.html", items=shop.store.cart(), totals=shop.store.totals("Pickup"))


async def cart_add(shop: Shop, request: Request) -> Response:
    product, form = product_of(shop, request), await form_of(request)
    qty = to_int(form.get("qty", "1"), 0)
    if shop.attempt(lambda: shop.store.add_to_cart(product, qty, form.get("size", ""))):
        shop.store.say(f"You added {product['name']} to your", link="/checkout/cart/", link_text="shopping cart")
    return RedirectResponse(f"/{product['slug']}.html", 303)


async def cart_update(shop: Shop, request: Request) -> Response:
    form = await form_of(request)
    for item in shop.store.cart():
        wanted = to_int(form.get(f"qty-{item['item_id']}"), item["qty"])
        if wanted != item["qty"]:
            shop.attempt(functools.partial(shop.store.set_quantity, item["item_id"], wanted))
    return RedirectResponse("/checkout/cart/", 303)


async def cart_remove(shop: Shop, request: Request) -> Response:
    shop.store.remove_from_cart(int(request.path_params["id"]))
    return RedirectResponse("/checkout/cart/", 303)


async def cart_clear(shop: Shop, request: Request) -> Response:
    shop.store.clear_cart()
    return RedirectResponse("/checkout/cart/", 303)


async def wishlist(shop: Shop, request: Request) -> Response:
    return shop.page(request, "wishlist.html", items=shop.store.wishlist())


async def wish_add(shop: Shop, request: Request) -> Response:
    product = product_of(shop, request)
    shop.store.wish(product["id"])
    shop.store.say(f"{product['name']} was added to your", link="/wishlist/", link_text="wish list")
    return RedirectResponse(f"/{product['slug']}.html", 303)


async def wish_remove(shop: Shop, request: Request) -> Response:
    shop.store.unwish(int(request.path_params["id"]))
    return RedirectResponse("/wishlist/", 303)


async def wish_to_cart(shop: Shop, request: Request) -> Response:
    item_id = int(request.path_params["id"])
    for item in shop.store.wishlist():
        if item["item_id"] != item_id:
            continue
        if item["sizes"]:
            shop.store.say("Please choose a size.", "error")
            return RedirectResponse(f"/{item['slug']}.html", 303)
        if shop.attempt(functools.partial(shop.store.add_to_cart, item, 1)):
            shop.store.unwish(item_id)
            shop.store.say(f"You added {item['name']} to your", link="/checkout/cart/", link_text="shopping cart")
    return RedirectResponse("/wishlist/", 303)
