"""The shop's routes, in the shape of a Magento shop, over one episode's store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from agentkv_envs.sites.shopping import account, browsing, buying, ordering
from agentkv_envs.sites.shopping.shop import COOKIE, Shop

Handler = Callable[[Shop, Request], Awaitable[Response]]

# Method, path, handler, and whether the customer must be signed in.
_ROUTES: tuple[tuple[str, str, Handler, bool], ...] = (
    ("GET", "/", browsing.home, False),
    ("GET", "/static/{name}", browsing.static, False),
    ("GET", "/media/{id:int}.png", browsing.picture, False),
    ("GET", "/catalogsearch/result/", browsing.search, False),
    ("GET", "/deals/", browsing.deals, False),
    ("GET", "/info/{name}/", browsing.info, False),
    ("GET", "/contact/", browsing.contact, False),
    ("POST", "/contact/", browsing.contact, False),
    ("GET", "/review/product/post/id/{id:int}/", browsing.review_form, True),
    ("POST", "/review/product/post/id/{id:int}/", browsing.review, True),
    ("GET", "/checkout/cart/", buying.cart, True),
    ("POST", "/checkout/cart/add/product/{id:int}/", buying.cart_add, True),
    ("POST", "/checkout/cart/updatePost/", buying.cart_update, True),
    ("POST", "/checkout/cart/delete/id/{id:int}/", buying.cart_remove, True),
    ("POST", "/checkout/cart/clear/", buying.cart_clear, True),
    ("GET", "/wishlist/", buying.wishlist, True),
    ("POST", "/wishlist/index/add/product/{id:int}/", buying.wish_add, True),
    ("POST", "/wishlist/index/remove/item/{id:int}/", buying.wish_remove, True),
    ("POST", "/wishlist/index/cart/item/{id:int}/", buying.wish_to_cart, True),
    ("GET", "/checkout/", ordering.checkout, True),
    ("POST", "/checkout/", ordering.checkout_post, True),
    ("GET", "/checkout/onepage/success/{id:int}/", ordering.success, True),
    ("GET", "/sales/order/history/", ordering.orders, True),
    ("GET", "/sales/order/view/order_id/{id:int}/", ordering.order, True),
    ("POST", "/sales/order/cancel/order_id/{id:int}/", ordering.order_cancel, True),
    ("POST", "/sales/order/reorder/order_id/{id:int}/", ordering.reorder, True),
    ("GET", "/customer/account/", account.account, True),
    ("GET", "/customer/account/login/", account.login_form, False),
    ("POST", "/customer/account/login/", account.login, False),
    ("POST", "/customer/account/logout/", account.logout, False),
    ("GET", "/customer/address/edit/", account.address_form, True),
    ("POST", "/customer/address/edit/", account.address, True),
    ("GET", "/rewards/", account.rewards, True),
    ("POST", "/rewards/", account.rewards, True),
    ("GET", "/{slug}.html", browsing.category, False),
)


def application(shop: Shop) -> Starlette:
    """The ASGI application of one episode."""

    def endpoint(handler: Handler, private: bool) -> Callable[[Request], Awaitable[Response]]:
        async def run(request: Request) -> Response:
            if private and shop.store.customer(request.cookies.get(COOKIE)) is None:
                back = {"next": request.url.path} if request.method == "GET" else {}
                return RedirectResponse(f"/customer/account/login/?{urlencode(back)}", 303)
            return await handler(shop, request)

        return run

    async def missing(request: Request, error: Exception) -> Response:
        body = "We could not find that page."
        return shop.page(request, "message.html", status=404, heading="Page not found", body=body)

    routes = [Route(path, endpoint(handler, private), methods=[method]) for method, path, handler, private in _ROUTES]
    return Starlette(routes=routes, exception_handlers={404: missing})
