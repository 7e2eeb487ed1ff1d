"""Pages for looking around: home, search, ads, sellers, photos, the map."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentkv_envs.sites.classifieds import dealing
from agentkv_envs.sites.classifieds.catalogue import CONDITIONS, OWNER
from agentkv_envs.sites.classifieds.front import COOKIE, PACKAGE, Classifieds, ad_of, number_of
from agentkv_envs.sites.classifieds.photos import photo
from agentkv_envs.sites.classifieds.store import Search
from agentkv_envs.sites.web import CACHED, render, static_file, to_int


async def home(site: Classifieds, request: Request) -> Response:
    return site.page(request, "home.html", ads=site.store.latest(5))


async def search(site: Classifieds, request: Request) -> Response:
    wanted = Search.of(request.query_params)
    page = site.store.search(wanted, to_int(request.query_params.get("iPage"), 1))
    category = next((c["name"] for c in site.store.categories() if c["slug"] == wanted.category), "")
    heading = f"{wanted.pattern} in {category}" if wanted.pattern and category else wanted.pattern or category
    return site.page(
        request,
        "search.html",
        wanted=wanted,
        page=page,
        heading=f"Ads: {heading}" if heading else "All ads",
        conditions=CONDITIONS,
    )


async def item(site: Classifieds, request: Request) -> Response:
    ad = ad_of(site, request)
    mine = ad["user_id"] == OWNER and site.store.owner(request.cookies.get(COOKIE)) is not None
    return site.page(
        request,
        "item.html",
        ad=ad,
        mine=mine,
        favourite=site.store.is_favourite(ad["id"]),
        offers=dealing.offers(site.store, ad["id"]),
        comments=dealing.comments(site.store, ad["id"]),
        questions=[c["id"] for c in dealing.unanswered(site.store, ad["id"])] if mine else [],
        similar=site.store.similar(ad),
    )


async def location(site: Classifieds, request: Request) -> Response:
    """The map that an ad shows in a frame."""
    ad = ad_of(site, request)
    place = site.store.place(ad["place"])
    assert place is not None
    return render(PACKAGE, "location.html", {"ad": ad, "place": place, "route": "route" in request.query_params})


async def seller(site: Classifieds, request: Request) -> Response:
    user = site.store.user(number_of(request))
    if user is None:
        raise HTTPException(404)
    page = site.store.ads_of(user["id"], to_int(request.query_params.get("iPage"), 1))
    ratings, followed = site.store.ratings(user["id"]), site.store.follows(user["id"])
    return site.page(request, "seller.html", user=user, page=page, ratings=ratings, followed=followed)


async def suggest(site: Classifieds, request: Request) -> Response:
    """Places that begin with `term`, for the suggestions under a field."""
    term = request.query_params.get("term", "").strip()
    return JSONResponse([place["name"] for place in site.store.places(term)][:5] if term else [])


async def picture(site: Classifieds, request: Request) -> Response:
    number = int(request.path_params["id"])
    ad, uploaded = site.store.listing(number), site.store.photo(number)
    if ad is None:
        raise HTTPException(404)
    drawn = (ad["kind"], ad["colour"], ad["pattern"], ad["background"], ad["condition"])
    content = uploaded["png"] if uploaded is not None else photo(*drawn)
    # The owner may change the photo of an ad at any time.
    headers = {"cache-control": "no-store"} if ad["user_id"] == OWNER else CACHED
    return Response(content, media_type="image/png", headers=headers)


async def static(site: Classifieds, request: Request) -> Response:
    return static_file(PACKAGE, request.path_params["name"])


async def missing(site: Classifieds, request: Request) -> Response:
    return site.page(request, "missing.html", status=404)
