"""The site's addresses, in the shape of OSClass: `/index.php`, with `page` and `action` for what to show."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from agentkv_envs.sites.classifieds import account, ads, browsing, deals
from agentkv_envs.sites.classifieds.front import Classifieds, sign_in_first
from agentkv_envs.sites.web import Entry, Handler, application

# Method, page and action (or route), to the handler.
_PUBLIC: dict[str, Handler[Classifieds]] = {
    "GET": browsing.home,
    "GET search": browsing.search,
    "GET item": browsing.item,
    "GET item location": browsing.location,
    "GET ajax location": browsing.suggest,
    "GET user pub_profile": browsing.seller,
    "GET login": account.login_form,
    "POST login": account.login,
    "POST main logout": account.logout,
}
_PRIVATE: dict[str, Handler[Classifieds]] = {
    "GET item item_add": ads.add,
    "POST item item_add": ads.add_post,
    "GET item item_edit": ads.edit,
    "POST item item_edit": ads.edit_post,
    "POST item item_delete": ads.delete,
    "POST item sold": ads.sold,
    "POST item renew": ads.renew,
    "GET item answer": ads.answer_form,
    "POST item answer": ads.answer,
    "POST item answer_offer": ads.answer_offer,
    "GET item add_comment": deals.comment_form,
    "POST item add_comment": deals.comment,
    "POST item delete_comment": deals.comment_delete,
    "GET item offer": deals.offer_form,
    "POST item offer": deals.offer,
    "GET item contact": deals.contact_form,
    "POST item contact": deals.contact,
    "GET item report": deals.report_form,
    "POST item report": deals.report,
    "POST item phone": deals.phone,
    "POST item favourite": deals.favourite_add,
    "POST item unfavourite": deals.favourite_remove,
    "GET custom watchlist-user": account.favourites,
    "GET user dashboard": account.dashboard,
    "GET user items": ads.mine,
    "GET user offers": deals.offers,
    "POST user withdraw": deals.offer_withdraw,
    "GET user pickup": deals.pickup_form,
    "POST user pickup": deals.pickup,
    "GET user messages": deals.inbox,
    "GET user thread": deals.thread,
    "POST user thread": deals.reply,
    "POST user secret": deals.secret,
    "POST user thread_delete": deals.thread_delete,
    "GET user profile": account.profile_form,
    "POST user profile": account.profile,
    "GET user following": account.following,
    "POST user follow": account.follow,
    "POST user unfollow": account.unfollow,
    "GET user rate": account.rate_form,
    "POST user rate": account.rate,
    "GET user alerts": account.searches,
    "POST user alerts": account.search_save,
    "POST user alert_delete": account.search_delete,
}


async def dispatch(site: Classifieds, request: Request) -> Response:
    """Answer an address by its method, page and action."""
    params = request.query_params
    action = params.get("action") or params.get("route") or ""
    key = " ".join(filter(None, (request.method, params.get("page", ""), action)))
    if key in _PUBLIC:
        return await _PUBLIC[key](site, request)
    if key not in _PRIVATE:
        raise HTTPException(404)
    return sign_in_first(site, request) or await _PRIVATE[key](site, request)


_ENTRIES: tuple[Entry[Classifieds], ...] = (
    ("GET", "/", browsing.home, False),
    ("GET", "/index.php", dispatch, False),
    ("POST", "/index.php", dispatch, False),
    ("GET", "/oc-content/uploads/{id:int}.png", browsing.picture, False),
    ("GET", "/oc-content/uploads/{id:int}_thumbnail.png", browsing.picture, False),
    ("GET", "/static/{name}", browsing.static, False),
)


def classifieds_app(site: Classifieds) -> Starlette:
    """The ASGI application of one episode."""
    return application(site, _ENTRIES, sign_in_first, browsing.missing)
