"""Pages for looking around: home, categories, search, products, reviews, information."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from agentkv_envs.sites.shopping.database import SHIPPING
from agentkv_envs.sites.shopping.images import product_picture
from agentkv_envs.sites.shopping.shop import STATIC, Shop, form_of, product_of, static_text, to_int


async def home(shop: Shop, request: Request) -> Response:
    return shop.page(request, "home.html", featured=shop.store.featured())


async def category(shop: Shop, request: Request) -> Response:
    slug = request.path_params["slug"]
    for row in shop.store.categories():
        if row["slug"] == slug:
            listing = shop.store.in_category(row["id"], *_order(request))
            return _listing(shop, request, listing, row["name"], row["blurb"])
    return await _product_page(shop, request, slug)


async def search(shop: Shop, request: Request) -> Response:
    query = request.query_params.get("q", "").strip()
    listing = shop.store.search(query, *_order(request))
    return _listing(shop, request, listing, f"Search results for: '{query}'", "")


def _order(request: Request) -> tuple[str, bool, int]:
    params = request.query_params
    sort = params.get("product_list_order", "position")
    return sort.removesuffix("-desc"), sort.endswith("-desc"), to_int(params.get("p"), 1)


def _listing(shop: Shop, request: Request, listing: Any, heading: str, blurb: str) -> Response:
    params = dict(request.query_params)

    def page_url(number: int) -> str:
        return f"{request.url.path}?{urlencode({**params, 'p': number})}"

    sort = params.get("product_list_order", "position")
    hidden = {k: v for k, v in params.items() if k not in ("p", "product_list_order")}
    return shop.page(
        request,
        "listing.html",
        listing=listing,
        heading=heading,
        blurb=blurb,
        sort=sort,
        hidden=hidden,
        page_url=page_url,
    )


async def _product_page(shop: Shop, request: Request, slug: str) -> Response:
    product = shop.store.product(slug)
    if product is None:
        raise HTTPException(404)
    reviews = shop.store.reviews(product["id"])
    return shop.page(request, "product.html", product=product, reviews=reviews, related=shop.store.related(product))


async def picture(shop: Shop, request: Request) -> Response:
    product = shop.store.one("SELECT kind, colour FROM product WHERE id = ?", request.path_params["id"])
    if product is None:
        raise HTTPException(404)
    picture = product_picture(product["kind"], product["colour"])
    return Response(picture, media_type="image/png", headers={"cache-control": "max-age=3600"})


async def static(shop: Shop, request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    return Response(static_text(name), media_type=STATIC[name], headers={"cache-control": "max-age=3600"})


async def info(shop: Shop, request: Request) -> Response:
    name = request.path_params["name"]
    if name not in ("shipping-returns", "size-guide", "about"):
        raise HTTPException(404)
    return shop.page(request, f"info-{name}.html", shipping=SHIPPING)


async def deals(shop: Shop, request: Request) -> Response:
    return shop.page(request, "deals.html", deals=shop.store.deals())


async def contact(shop: Shop, request: Request) -> Response:
    if request.method == "POST":
        form = await form_of(request)
        sent = shop.attempt(
            lambda: shop.store.send_message(form.get("name", ""), form.get("topic", ""), form.get("body", ""))
        )
        if sent:
            shop.store.say("Thank you. Your message was sent.")
        return RedirectResponse("/contact/", 303)
    return shop.page(request, "contact.html")


async def review_form(shop: Shop, request: Request) -> Response:
    product = product_of(shop, request)
    return shop.page(request, "review.html", product=product)


async def review(shop: Shop, request: Request) -> Response:
    product, form = product_of(shop, request), await form_of(request)
    rating = to_int(form.get("rating"), 0)
    texts = (form.get("nickname", ""), form.get("title", ""), form.get("detail", ""))
    if not shop.attempt(lambda: shop.store.add_review(product["id"], rating, *texts)):
        return RedirectResponse(f"/review/product/post/id/{product['id']}/", 303)
    shop.store.say("Thank you. Your review was published.")
    return RedirectResponse(f"/{product['slug']}.html", 303)
