"""Pages for looking around: home, categories, search, deals, information, pictures."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agentkv_envs.sites.shopping.catalogue import TODAY
from agentkv_envs.sites.shopping.history import SHIPPING
from agentkv_envs.sites.shopping.images import COLOURS, customer_photo, product_picture
from agentkv_envs.sites.shopping.products import product_page
from agentkv_envs.sites.shopping.shop import MENU, PACKAGE, Shop
from agentkv_envs.sites.shopping.store_products import Filters, Listing
from agentkv_envs.sites.web import CACHED, form_of, see, static_file, to_int

_SORTS = (
    ("position", "Popular"),
    ("name", "Name"),
    ("price", "Cheapest"),
    ("price-desc", "Dearest"),
    ("rating", "Best rated"),
    ("newest", "Newest"),
)


async def home(shop: Shop, request: Request) -> Response:
    return shop.page(request, "home.html", featured=shop.store.featured())


async def category(shop: Shop, request: Request) -> Response:
    slug = request.path_params["slug"]
    for row in shop.store.categories():
        if row["slug"] == slug:
            listing = shop.store.in_category(row["id"], *_order(request), Filters.of(request.query_params))
            kinds = next(kinds for name, _, kinds in MENU if name == slug)
            return _listing(shop, request, listing, row["name"], row["blurb"], kinds)
    return await product_page(shop, request, slug)


async def search(shop: Shop, request: Request) -> Response:
    query = request.query_params.get("q", "").strip()
    listing = shop.store.search(query, *_order(request), Filters.of(request.query_params))
    return _listing(shop, request, listing, f"Search results for: '{query}'", "", ())


def _order(request: Request) -> tuple[str, int]:
    params = request.query_params
    return params.get("product_list_order", "position"), to_int(params.get("p"), 1)


def _listing(
    shop: Shop, request: Request, listing: Listing, heading: str, blurb: str, kinds: tuple[str, ...]
) -> Response:
    params = {k: v for k, v in request.query_params.items() if v}

    def page_url(number: int) -> str:
        return f"{request.url.path}?{urlencode({**params, 'p': number})}"

    filters = Filters.of(request.query_params)
    return shop.page(
        request,
        "listing.html",
        listing=listing,
        heading=f"{heading}: {filters.kind}" if filters.kind else heading,
        blurb=blurb,
        kinds=kinds,
        filters=filters,
        sorts=_SORTS,
        sort=params.get("product_list_order", "position"),
        hidden={k: v for k, v in params.items() if k not in ("p", "product_list_order")},
        bare=f"{request.url.path}?{urlencode({'q': params['q']})}" if "q" in params else request.url.path,
        page_url=page_url,
    )


async def picture(shop: Shop, request: Request) -> Response:
    product = shop.store.one("SELECT kind, colour FROM product WHERE id = ?", request.path_params["id"])
    if product is None:
        raise HTTPException(404)
    colour = request.query_params.get("colour", "")
    drawn = product_picture(product["kind"], colour if colour in COLOURS else product["colour"])
    return Response(drawn, media_type="image/png", headers=CACHED)


async def photo(shop: Shop, request: Request) -> Response:
    row = shop.store.one(
        "SELECT kind, colour, photo FROM review r JOIN product p ON p.id = r.product_id WHERE r.id = ?",
        request.path_params["id"],
    )
    if row is None or row["photo"] is None:
        raise HTTPException(404)
    return Response(customer_photo(row["kind"], row["colour"], row["photo"]), media_type="image/png", headers=CACHED)


async def static(shop: Shop, request: Request) -> Response:
    return static_file(PACKAGE, request.path_params["name"])


async def info(shop: Shop, request: Request) -> Response:
    name = request.path_params["name"]
    if name not in ("shipping-returns", "size-guide", "about"):
        raise HTTPException(404)
    return shop.page(request, f"info-{name}.html", shipping=SHIPPING)


async def deals(shop: Shop, request: Request) -> Response:
    return shop.page(request, "deals.html", deals=shop.store.deals(), today=TODAY.isoformat())


async def contact(shop: Shop, request: Request) -> Response:
    return shop.page(request, "contact.html")


async def contact_post(shop: Shop, request: Request) -> Response:
    form = await form_of(request)
    texts = (form.get("name", ""), form.get("topic", ""), form.get("body", ""))
    if shop.attempt(lambda: shop.store.send_message(*texts)):
        shop.store.say("Thank you. Your message was sent.")
    return see("/contact/")


async def missing(shop: Shop, request: Request) -> Response:
    body = "We could not find that page."
    return shop.page(request, "message.html", status=404, heading="Page not found", body=body)
