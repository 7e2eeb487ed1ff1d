"""Pages about one product: options, delivery, reviews, questions; and the comparison of several."""

from __future__ import annotations

import asyncio
import json
from datetime import date, timedelta

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentkv_envs.sites.shopping.catalogue import TODAY
from agentkv_envs.sites.shopping.shop import Shop
from agentkv_envs.sites.shopping.store_cart import day
from agentkv_envs.sites.shopping.store_community import REVIEW_SORTS
from agentkv_envs.sites.storage import Refusal, Row
from agentkv_envs.sites.web import form_of, money, see, to_int

# How long the carrier takes to answer, on purpose.
DELIVERY_DELAY_S = 0.4
_REVIEW_SORT_NAMES = (("newest", "Newest"), ("helpful", "Helpful"), ("highest", "Highest"), ("lowest", "Lowest"))


async def product_page(shop: Shop, request: Request, slug: str) -> Response:
    product = shop.store.product(slug)
    if product is None:
        raise HTTPException(404)
    variants = shop.store.variants(product["id"])
    choices = [
        {"colour": v["colour"], "size": v["size"], "price": money(v["price_cents"]), "stock": v["stock"]}
        for v in variants
    ]
    return shop.page(
        request,
        "product.html",
        product=product,
        choices=json.dumps(choices),
        lacking=not all(row["stock"] for row in (product, *variants)),
        reviews=shop.store.reviews(product["id"], "helpful")[:2],
        questions=len(shop.store.questions(product["id"])),
        related=shop.store.related(product),
    )


def product_path(product: Row) -> str:
    return f"/{product['slug']}.html"


# Delivery


async def delivery(shop: Shop, request: Request) -> Response:
    """When a product arrives: JSON for the script of the product page, a page of its own otherwise."""
    params = request.query_params
    await asyncio.sleep(DELIVERY_DELAY_S)
    try:
        product = shop.store.product_by_id(to_int(params.get("product"), 0))
        text = _arrival(*shop.store.delivery(product, params.get("postcode", "")))
    except Refusal as error:
        text = str(error)
    if "json" in request.headers.get("accept", ""):
        return JSONResponse({"text": text})
    return shop.page(request, "message.html", heading="Delivery", body=text)


def _arrival(standard: int, express: int) -> str:
    fast = f"Express {_weekday(express)}" if express else "no Express there"
    return f"Arrives: Standard {_weekday(standard)}, {fast}."


def _weekday(working_days: int) -> str:
    """The date so many working days from now, as "Tue 17 March"."""
    then = TODAY
    while working_days:
        then += timedelta(days=1)
        working_days -= then.weekday() < 5
    return f"{date(then.year, then.month, then.day):%a} {day(then.isoformat())}"


# Reviews


async def reviews(shop: Shop, request: Request) -> Response:
    product, params = shop.product(request), request.query_params
    sort = params.get("sort", "newest")
    sort = sort if sort in REVIEW_SORTS else "newest"
    page = shop.store.review_page(product["id"], sort, to_int(params.get("p"), 1))

    def page_url(number: int) -> str:
        return f"{request.url.path}?sort={sort}&p={number}"

    names = _REVIEW_SORT_NAMES
    return shop.page(request, "reviews.html", product=product, listing=page, sort=sort, sorts=names, page_url=page_url)


async def review_form(shop: Shop, request: Request) -> Response:
    return shop.page(request, "review.html", product=shop.product(request))


async def review_post(shop: Shop, request: Request) -> Response:
    product, form = shop.product(request), await form_of(request)
    rating = to_int(form.get("rating"), 0)
    texts = (form.get("nickname", ""), form.get("title", ""), form.get("detail", ""))
    if not shop.attempt(lambda: shop.store.add_review(product["id"], rating, *texts)):
        return see(f"/review/product/post/id/{product['id']}/")
    shop.store.say("Thank you. Your review was published.")
    return see(product_path(product))


async def review_vote(shop: Shop, request: Request) -> Response:
    form = await form_of(request)
    voted: list[Row] = []
    if shop.attempt(lambda: voted.append(shop.store.vote_helpful(int(request.path_params["id"])))):
        shop.store.say(f"Thank you. You found the review by {voted[0]['nickname']} helpful.")
    product = to_int(form.get("product"), 1)
    sort, page = form.get("sort", "newest"), to_int(form.get("p"), 1)
    return see(f"/review/product/list/id/{product}/?sort={sort if sort in REVIEW_SORTS else 'newest'}&p={page}")


# Questions


async def questions(shop: Shop, request: Request) -> Response:
    product = shop.product(request)
    return shop.page(request, "questions.html", product=product, questions=shop.store.questions(product["id"]))


async def question_post(shop: Shop, request: Request) -> Response:
    product, form = shop.product(request), await form_of(request)
    name = shop.customer(request)["firstname"]
    if shop.attempt(lambda: shop.store.ask(product["id"], name, form.get("text", ""))):
        shop.store.say("Your question was published.")
    return see(f"/questions/product/id/{product['id']}/")


def _question(shop: Shop, request: Request) -> Row:
    try:
        return shop.store.question(int(request.path_params["id"]))
    except Refusal:
        raise HTTPException(404) from None


async def answer_form(shop: Shop, request: Request) -> Response:
    question = _question(shop, request)
    product = shop.store.product_by_id(question["product_id"])
    return shop.page(request, "answer.html", question=question, product=product)


async def answer_post(shop: Shop, request: Request) -> Response:
    question, form = _question(shop, request), await form_of(request)
    name = shop.customer(request)["firstname"]
    if not shop.attempt(lambda: shop.store.answer(question["id"], name, form.get("text", ""))):
        return see(f"/questions/answer/id/{question['id']}/")
    shop.store.say("Thank you. Your answer was published.")
    return see(f"/questions/product/id/{question['product_id']}/")


# Comparing


async def compare(shop: Shop, request: Request) -> Response:
    return shop.page(request, "compare.html", items=shop.store.compared())


async def compare_add(shop: Shop, request: Request) -> Response:
    product = shop.product(request)
    if shop.attempt(lambda: shop.store.compare(product["id"])):
        path = "/catalog/product_compare/"
        shop.store.say(f"You added {product['name']} to your", link=path, link_text="compare list")
    return see(product_path(product))


async def compare_remove(shop: Shop, request: Request) -> Response:
    shop.store.uncompare(int(request.path_params["id"]))
    return see("/catalog/product_compare/")


async def compare_clear(shop: Shop, request: Request) -> Response:
    shop.store.clear_compared()
    return see("/catalog/product_compare/")
