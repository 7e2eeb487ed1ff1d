"""The shop's pages: routes in the shape of a Magento shop, server-rendered, for one episode each."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from agentkv_envs.sites.shopping.database import COUNTRIES, SHIPPING
from agentkv_envs.sites.shopping.images import product_picture
from agentkv_envs.sites.shopping.store import ShopError, Store

COOKIE = "brightcart_session"
Handler = Callable[["Shop", Request], Awaitable[Response]]
_STATIC = {"shop.css": "text/css", "shop.js": "text/javascript"}


def money(cents: int) -> str:
    """`$25` or `$25.50`."""
    return f"${cents / 100:.2f}" if cents % 100 else f"${cents // 100}"


@functools.lru_cache(maxsize=1)
def _templates() -> Environment:
    env = Environment(
        loader=PackageLoader(__package__ or "", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    env.filters["money"] = money
    return env


@functools.lru_cache(maxsize=8)
def _static(name: str) -> str:
    return resources.files(__package__ or "").joinpath("static", name).read_text()


async def _form(request: Request) -> dict[str, str]:
    form = await request.form()
    return {key: value for key, value in form.items() if not isinstance(value, UploadFile)}


def _int(text: str | None, default: int) -> int:
    try:
        return int((text or "").strip())
    except ValueError:
        return default


class Shop:
    """One episode's shop: its store and the handlers over it."""

    def __init__(self, seed: int = 0):
        self.store = Store(seed)

    def application(self) -> Starlette:
        """The ASGI application."""

        def endpoint(handler: Handler, private: bool) -> Callable[[Request], Awaitable[Response]]:
            async def run(request: Request) -> Response:
                if private and self.store.customer(request.cookies.get(COOKIE)) is None:
                    return RedirectResponse(f"/customer/account/login/?{urlencode({'next': request.url.path})}", 303)
                return await handler(self, request)

            return run

        routes = [
            Route(path, endpoint(handler, private), methods=[method]) for method, path, handler, private in _ROUTES
        ]
        return Starlette(routes=routes, exception_handlers={404: self._missing})

    async def _missing(self, request: Request, error: Exception) -> Response:
        return self.page(
            request, "message.html", status=404, heading="Page not found", body="We could not find that page."
        )

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a template with what every page shows."""
        common = {
            "customer": self.store.customer(request.cookies.get(COOKIE)),
            "categories": self.store.categories(),
            "cart_count": self.store.cart_count(),
            "query": request.query_params.get("q", ""),
            "messages": self.store.messages(),
        }
        return HTMLResponse(_templates().get_template(template).render(**{**common, **values}), status)

    def attempt(self, action: Callable[[], object]) -> bool:
        """Run a store action; a refusal becomes an error message on the next page."""
        try:
            action()
        except ShopError as error:
            self.store.say(str(error), "error")
            return False
        return True

    # Browsing

    async def home(self, request: Request) -> Response:
        return self.page(request, "home.html", featured=self.store.featured())

    async def category(self, request: Request) -> Response:
        slug = request.path_params["slug"]
        for row in self.store.categories():
            if row["slug"] == slug:
                listing = self.store.in_category(row["id"], *self._order(request))
                return self._listing(request, listing, row["name"], row["blurb"])
        return await self.product(request, slug)

    async def search(self, request: Request) -> Response:
        query = request.query_params.get("q", "").strip()
        listing = self.store.search(query, *self._order(request))
        return self._listing(request, listing, f"Search results for: '{query}'", "")

    @staticmethod
    def _order(request: Request) -> tuple[str, bool, int]:
        params = request.query_params
        sort = params.get("product_list_order", "position")
        return sort.removesuffix("-desc"), sort.endswith("-desc"), _int(params.get("p"), 1)

    def _listing(self, request: Request, listing: Any, heading: str, blurb: str) -> Response:
        params = dict(request.query_params)

        def page_url(number: int) -> str:
            return f"{request.url.path}?{urlencode({**params, 'p': number})}"

        sort = params.get("product_list_order", "position")
        hidden = {k: v for k, v in params.items() if k not in ("p", "product_list_order")}
        return self.page(
            request,
            "listing.html",
            listing=listing,
            heading=heading,
            blurb=blurb,
            sort=sort,
            hidden=hidden,
            page_url=page_url,
        )

    async def product(self, request: Request, slug: str) -> Response:
        product = self.store.product(slug)
        if product is None:
            raise HTTPException(404)
        reviews = self.store.reviews(product["id"])
        return self.page(request, "product.html", product=product, reviews=reviews, related=self.store.related(product))

    async def picture(self, request: Request) -> Response:
        product = self.store.one("SELECT kind, colour FROM product WHERE id = ?", request.path_params["id"])
        if product is None:
            raise HTTPException(404)
        picture = product_picture(product["kind"], product["colour"])
        return Response(picture, media_type="image/png", headers={"cache-control": "max-age=3600"})

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404)
        return Response(_static(name), media_type=_STATIC[name], headers={"cache-control": "max-age=3600"})

    async def info(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ("shipping-returns", "size-guide", "about"):
            raise HTTPException(404)
        return self.page(request, f"info-{name}.html", shipping=SHIPPING)

    async def deals(self, request: Request) -> Response:
        return self.page(request, "deals.html", deals=self.store.deals())

    async def contact(self, request: Request) -> Response:
        if request.method == "POST":
            form = await _form(request)
            sent = self.attempt(
                lambda: self.store.send_message(form.get("name", ""), form.get("topic", ""), form.get("body", ""))
            )
            if sent:
                self.store.say("Thank you. Your message was sent.")
            return RedirectResponse("/contact/", 303)
        return self.page(request, "contact.html")

    # Reviews

    async def review_form(self, request: Request) -> Response:
        product = self._product(request)
        return self.page(request, "review.html", product=product)

    async def review(self, request: Request) -> Response:
        product, form = self._product(request), await _form(request)
        rating = _int(form.get("rating"), 0)
        texts = (form.get("nickname", ""), form.get("title", ""), form.get("detail", ""))
        if not self.attempt(lambda: self.store.add_review(product["id"], rating, *texts)):
            return RedirectResponse(f"/review/product/post/id/{product['id']}/", 303)
        self.store.say("Thank you. Your review was published.")
        return RedirectResponse(f"/{product['slug']}.html", 303)

    def _product(self, request: Request) -> Any:
        try:
            return self.store.product_by_id(int(request.path_params["id"]))
        except ShopError:
            raise HTTPException(404) from None

    # Cart and wish list

    async def cart(self, request: Request) -> Response:
        return self.page(request, "cart.html", items=self.store.cart(), totals=self.store.totals("Pickup"))

    async def cart_add(self, request: Request) -> Response:
        product, form = self._product(request), await _form(request)
        qty = _int(form.get("qty", "1"), 0)
        if self.attempt(lambda: self.store.add_to_cart(product, qty, form.get("size", ""))):
            self.store.say(f"You added {product['name']} to your", link="/checkout/cart/", link_text="shopping cart")
        return RedirectResponse(f"/{product['slug']}.html", 303)

    async def cart_update(self, request: Request) -> Response:
        form = await _form(request)
        for item in self.store.cart():
            wanted = _int(form.get(f"qty-{item['item_id']}"), item["qty"])
            if wanted != item["qty"]:
                self.attempt(functools.partial(self.store.set_quantity, item["item_id"], wanted))
        return RedirectResponse("/checkout/cart/", 303)

    async def cart_remove(self, request: Request) -> Response:
        self.store.remove_from_cart(int(request.path_params["id"]))
        return RedirectResponse("/checkout/cart/", 303)

    async def cart_clear(self, request: Request) -> Response:
        self.store.clear_cart()
        return RedirectResponse("/checkout/cart/", 303)

    async def wishlist(self, request: Request) -> Response:
        return self.page(request, "wishlist.html", items=self.store.wishlist())

    async def wish_add(self, request: Request) -> Response:
        product = self._product(request)
        self.store.wish(product["id"])
        self.store.say(f"{product['name']} was added to your", link="/wishlist/", link_text="wish list")
        return RedirectResponse(f"/{product['slug']}.html", 303)

    async def wish_remove(self, request: Request) -> Response:
        self.store.unwish(int(request.path_params["id"]))
        return RedirectResponse("/wishlist/", 303)

    async def wish_to_cart(self, request: Request) -> Response:
        item_id = int(request.path_params["id"])
        for item in self.store.wishlist():
            if item["item_id"] != item_id:
                continue
            if item["sizes"]:
                self.store.say("Please choose a size.", "error")
                return RedirectResponse(f"/{item['slug']}.html", 303)
            if self.attempt(functools.partial(self.store.add_to_cart, item, 1)):
                self.store.unwish(item_id)
                self.store.say(f"You added {item['name']} to your", link="/checkout/cart/", link_text="shopping cart")
        return RedirectResponse("/wishlist/", 303)

    # Checkout and orders

    async def checkout(self, request: Request) -> Response:
        if not self.store.cart():
            self.store.say("Your cart is empty.", "error")
            return RedirectResponse("/checkout/cart/", 303)
        customer = self.store.customer(request.cookies.get(COOKIE))
        assert customer is not None
        return self._checkout_page(request, {**dict(customer), "shipping": "Standard", "gift_note": ""})

    def _checkout_page(self, request: Request, form: Mapping[str, Any]) -> Response:
        totals = self.store.totals(str(form["shipping"]))
        return self.page(
            request,
            "checkout.html",
            form=form,
            totals=totals,
            coupon=self.store.coupon(),
            items=self.store.cart(),
            shipping=SHIPPING,
            countries=COUNTRIES,
        )

    async def checkout_post(self, request: Request) -> Response:
        form = await _form(request)
        if form.get("do") == "place":
            placed: list[int] = []
            if self.attempt(lambda: placed.append(self.store.place_order(form))):
                return RedirectResponse(f"/checkout/onepage/success/{placed[0]}/", 303)
        elif self.attempt(lambda: self.store.apply_coupon(form.get("coupon", ""))) and self.store.coupon():
            self.store.say("The discount code was applied.")
        blank = dict.fromkeys(
            ("firstname", "lastname", "street", "city", "postcode", "country", "telephone", "gift_note"), ""
        )
        return self._checkout_page(request, {**blank, "shipping": "Standard", **form})

    async def success(self, request: Request) -> Response:
        return self.page(request, "success.html", order=self._order_row(request))

    async def orders(self, request: Request) -> Response:
        return self.page(request, "orders.html", orders=self.store.orders())

    async def order(self, request: Request) -> Response:
        order = self._order_row(request)
        newest = self.store.orders()[0]["id"]
        thanks = self.store.thanks_code() if order["id"] == newest and order["status"] != "Pending" else ""
        return self.page(request, "order.html", order=order, items=self.store.order_items(order["id"]), thanks=thanks)

    def _order_row(self, request: Request) -> Any:
        order = self.store.order(int(request.path_params["id"]))
        if order is None:
            raise HTTPException(404)
        return order

    async def order_cancel(self, request: Request) -> Response:
        order = self._order_row(request)
        if self.attempt(lambda: self.store.cancel_order(order["id"])):
            self.store.say(f"Order {order['number']} was cancelled.")
        return RedirectResponse(f"/sales/order/view/order_id/{order['id']}/", 303)

    async def reorder(self, request: Request) -> Response:
        order = self._order_row(request)
        for item in self.store.order_items(order["id"]):
            self.attempt(functools.partial(self.store.add_to_cart, item, item["qty"], item["size"]))
        return RedirectResponse("/checkout/cart/", 303)

    # Account

    async def login_form(self, request: Request) -> Response:
        return self.page(request, "login.html", next=request.query_params.get("next", "/customer/account/"))

    async def login(self, request: Request) -> Response:
        form = await _form(request)
        try:
            token = self.store.login(form.get("email", ""), form.get("password", ""))
        except ShopError as error:
            self.store.say(str(error), "error")
            return RedirectResponse("/customer/account/login/", 303)
        next_page = form.get("next", "")
        response = RedirectResponse(next_page if next_page.startswith("/") else "/customer/account/", 303)
        response.set_cookie(COOKIE, token, httponly=True)
        return response

    async def logout(self, request: Request) -> Response:
        self.store.logout(request.cookies.get(COOKIE, ""))
        return RedirectResponse("/", 303)

    async def account(self, request: Request) -> Response:
        return self.page(request, "account.html")

    async def address_form(self, request: Request) -> Response:
        return self.page(request, "address.html", countries=COUNTRIES)

    async def address(self, request: Request) -> Response:
        form = await _form(request)
        if not self.attempt(lambda: self.store.save_address(form)):
            return RedirectResponse("/customer/address/edit/", 303)
        self.store.say("You saved the address.")
        return RedirectResponse("/customer/account/", 303)

    async def rewards(self, request: Request) -> Response:
        code = ""
        if request.method == "POST":
            try:
                code = self.store.reveal_reward()
            except ShopError as error:
                self.store.say(str(error), "error")
        return self.page(request, "rewards.html", code=code)


_ROUTES: tuple[tuple[str, str, Handler, bool], ...] = (
    ("GET", "/", Shop.home, False),
    ("GET", "/static/{name}", Shop.static, False),
    ("GET", "/media/{id:int}.png", Shop.picture, False),
    ("GET", "/catalogsearch/result/", Shop.search, False),
    ("GET", "/deals/", Shop.deals, False),
    ("GET", "/info/{name}/", Shop.info, False),
    ("GET", "/contact/", Shop.contact, False),
    ("POST", "/contact/", Shop.contact, False),
    ("GET", "/review/product/post/id/{id:int}/", Shop.review_form, True),
    ("POST", "/review/product/post/id/{id:int}/", Shop.review, True),
    ("GET", "/checkout/cart/", Shop.cart, True),
    ("POST", "/checkout/cart/add/product/{id:int}/", Shop.cart_add, True),
    ("POST", "/checkout/cart/updatePost/", Shop.cart_update, True),
    ("POST", "/checkout/cart/delete/id/{id:int}/", Shop.cart_remove, True),
    ("POST", "/checkout/cart/clear/", Shop.cart_clear, True),
    ("GET", "/wishlist/", Shop.wishlist, True),
    ("POST", "/wishlist/index/add/product/{id:int}/", Shop.wish_add, True),
    ("POST", "/wishlist/index/remove/item/{id:int}/", Shop.wish_remove, True),
    ("POST", "/wishlist/index/cart/item/{id:int}/", Shop.wish_to_cart, True),
    ("GET", "/checkout/", Shop.checkout, True),
    ("POST", "/checkout/", Shop.checkout_post, True),
    ("GET", "/checkout/onepage/success/{id:int}/", Shop.success, True),
    ("GET", "/sales/order/history/", Shop.orders, True),
    ("GET", "/sales/order/view/order_id/{id:int}/", Shop.order, True),
    ("POST", "/sales/order/cancel/order_id/{id:int}/", Shop.order_cancel, True),
    ("POST", "/sales/order/reorder/order_id/{id:int}/", Shop.reorder, True),
    ("GET", "/customer/account/", Shop.account, True),
    ("GET", "/customer/account/login/", Shop.login_form, False),
    ("POST", "/customer/account/login/", Shop.login, False),
    ("POST", "/customer/account/logout/", Shop.logout, False),
    ("GET", "/customer/address/edit/", Shop.address_form, True),
    ("POST", "/customer/address/edit/", Shop.address, True),
    ("GET", "/rewards/", Shop.rewards, True),
    ("POST", "/rewards/", Shop.rewards, True),
    ("GET", "/{slug}.html", Shop.category, False),
)
