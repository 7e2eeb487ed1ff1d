"""The shop's routes, in the shape of a Magento shop, over one episode's store."""

from __future__ import annotations

from starlette.applications import Starlette

from agentkv_envs.sites import web
from agentkv_envs.sites.shopping import account, browsing, buying, ordering, products
from agentkv_envs.sites.shopping.shop import Shop

_OPEN: tuple[web.Entry[Shop], ...] = (
    ("GET", "/", browsing.home, False),
    ("GET", "/static/{name}", browsing.static, False),
    ("GET", "/media/{id:int}.png", browsing.picture, False),
    ("GET", "/media/review/{id:int}.png", browsing.photo, False),
    ("GET", "/catalogsearch/result/", browsing.search, False),
    ("GET", "/deals/", browsing.deals, False),
    ("GET", "/info/{name}/", browsing.info, False),
    ("GET", "/contact/", browsing.contact, False),
    ("POST", "/contact/", browsing.contact_post, False),
    ("GET", "/delivery/estimate/", products.delivery, False),
    ("GET", "/review/product/list/id/{id:int}/", products.reviews, False),
    ("GET", "/questions/product/id/{id:int}/", products.questions, False),
    ("GET", "/catalog/product_compare/", products.compare, False),
    ("POST", "/catalog/product_compare/add/product/{id:int}/", products.compare_add, False),
    ("POST", "/catalog/product_compare/remove/product/{id:int}/", products.compare_remove, False),
    ("POST", "/catalog/product_compare/clear/", products.compare_clear, False),
    ("GET", "/customer/account/login/", account.login_form, False),
    ("POST", "/customer/account/login/", account.login, False),
    ("POST", "/customer/account/logout/", account.logout, False),
    ("GET", "/newsletter/", account.newsletter, False),
    ("POST", "/newsletter/", account.newsletter_post, False),
    ("POST", "/newsletter/unsubscribe/id/{id:int}/", account.unsubscribe, False),
    ("GET", "/{slug}.html", browsing.category, False),
)
_SIGNED_IN: tuple[web.Entry[Shop], ...] = (
    ("GET", "/review/product/post/id/{id:int}/", products.review_form, True),
    ("POST", "/review/product/post/id/{id:int}/", products.review_post, True),
    ("POST", "/review/product/helpful/id/{id:int}/", products.review_vote, True),
    ("POST", "/questions/product/id/{id:int}/", products.question_post, True),
    ("GET", "/questions/answer/id/{id:int}/", products.answer_form, True),
    ("POST", "/questions/answer/id/{id:int}/", products.answer_post, True),
    ("GET", "/checkout/cart/", buying.cart, True),
    ("POST", "/checkout/cart/add/product/{id:int}/", buying.cart_add, True),
    ("POST", "/checkout/cart/updatePost/", buying.cart_update, True),
    ("POST", "/checkout/cart/delete/id/{id:int}/", buying.cart_remove, True),
    ("POST", "/checkout/cart/clear/", buying.cart_clear, True),
    ("GET", "/wishlist/", buying.wishlist, True),
    ("POST", "/wishlist/index/add/product/{id:int}/", buying.wish_add, True),
    ("POST", "/wishlist/index/remove/item/{id:int}/", buying.wish_remove, True),
    ("POST", "/wishlist/index/cart/item/{id:int}/", buying.wish_to_cart, True),
    ("GET", "/notices/", buying.notices, True),
    ("POST", "/notices/add/product/{id:int}/", buying.notice_add, True),
    ("POST", "/notices/remove/id/{id:int}/", buying.notice_remove, True),
    ("GET", "/checkout/", ordering.checkout, True),
    ("POST", "/checkout/", ordering.checkout_post, True),
    ("GET", "/checkout/onepage/success/{id:int}/", ordering.success, True),
    ("GET", "/sales/order/history/", ordering.orders, True),
    ("GET", "/sales/order/view/order_id/{id:int}/", ordering.order, True),
    ("POST", "/sales/order/cancel/order_id/{id:int}/", ordering.order_cancel, True),
    ("POST", "/sales/order/reorder/order_id/{id:int}/", ordering.reorder, True),
    ("GET", "/sales/order/return/order_id/{id:int}/", ordering.return_form, True),
    ("POST", "/sales/order/return/order_id/{id:int}/", ordering.return_post, True),
    ("GET", "/sales/returns/", ordering.returns, True),
    ("GET", "/customer/account/", account.account, True),
    ("GET", "/customer/address/", account.addresses, True),
    ("GET", "/customer/address/edit/", account.address_form, True),
    ("POST", "/customer/address/edit/", account.address_post, True),
    ("GET", "/customer/address/new/", account.other_address_form, True),
    ("POST", "/customer/address/new/", account.other_address_post, True),
    ("GET", "/customer/address/edit/id/{id:int}/", account.other_address_form, True),
    ("POST", "/customer/address/edit/id/{id:int}/", account.other_address_post, True),
    ("POST", "/customer/address/delete/id/{id:int}/", account.address_delete, True),
    ("POST", "/customer/address/default/id/{id:int}/", account.address_default, True),
    ("GET", "/customer/messages/", account.inbox, True),
    ("POST", "/customer/messages/open/id/{id:int}/", account.message_open, True),
    ("GET", "/rewards/", account.rewards, True),
    ("POST", "/rewards/", account.rewards_post, True),
)


def application(shop: Shop) -> Starlette:
    """The ASGI application of one episode."""
    return web.application(shop, (*_OPEN, *_SIGNED_IN), account.sign_in_first, browsing.missing)
