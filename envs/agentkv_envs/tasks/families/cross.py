"""Families over several sites: a fact is found on one and used on another.

Either two tabs are open at the start and the first is closed once the fact was read, or the way leads over the portal.
"""

from __future__ import annotations

from agentkv_envs.tasks.draft import (
    Draft,
    Draw,
    Needle,
    Step,
    act,
    click,
    family,
    page_holds,
    pages,
    read,
    require,
    stop,
    type_in,
)
from agentkv_envs.tasks.families.ad_parts import ad, found_phone, found_spec, message_seller
from agentkv_envs.tasks.families.cross_parts import (
    WIKI_FACTS,
    WIKI_NUMBERS,
    found_by_comparing,
    found_in_locker,
    found_in_product,
    found_in_wiki,
    found_on_board,
    found_on_slip,
    found_tracking,
    open_article,
    order_with_note,
    over_the_portal,
    review_with,
    wish_and_message,
)
from agentkv_envs.tasks.families.forum_parts import CODES, FACTS, comment_on_post, found_in_post, message_author
from agentkv_envs.tasks.families.parts import closing, join
from agentkv_envs.tasks.families.shop_parts import Row, in_cart, open_product

_WIKI_SHOP = ("__WIKI__/", "__SHOPPING__/")
_PORTAL = ("__HOME__/",)


# The encyclopedia


@family("wiki", "shopping")
def wiki_fact_as_note(draw: Draw) -> Draft:
    found = found_in_wiki(draw, WIKI_FACTS, "attribute")
    return join(draw, found, order_with_note(draw, found.value), _WIKI_SHOP, closing())


@family("wiki", "shopping")
def wiki_phone_as_note(draw: Draw) -> Draft:
    found = found_in_wiki(draw, WIKI_NUMBERS, "code")
    return join(draw, found, order_with_note(draw, found.value), _WIKI_SHOP, closing())


@family("wiki", "shopping")
def compared_for_note(draw: Draw) -> Draft:
    found = found_by_comparing(draw)
    return join(draw, found, order_with_note(draw, found.value), _WIKI_SHOP, closing())


@family("wiki", "shopping")
def wiki_fact_in_review(draw: Draw) -> Draft:
    found = found_in_wiki(draw, WIKI_FACTS, "attribute")
    return join(draw, found, review_with(draw, found.value), _WIKI_SHOP, closing())


@family("wiki", "forum")
def wiki_fact_in_comment(draw: Draw) -> Draft:
    found = found_in_wiki(draw, WIKI_FACTS, "attribute")
    return join(draw, found, comment_on_post(draw, found.value), ("__WIKI__/", "__FORUM__/"), closing())


@family("wiki", "forum")
def compared_for_comment(draw: Draw) -> Draft:
    found = found_by_comparing(draw)
    return join(draw, found, comment_on_post(draw, found.value), ("__WIKI__/", "__FORUM__/"), closing())


@family("wiki", "classifieds", train=False)
def compared_for_seller(draw: Draw) -> Draft:
    found = found_by_comparing(draw)
    return join(draw, found, message_seller(draw, found.value), ("__WIKI__/", "__CLASSIFIEDS__/"), closing())


@family("wiki", "shopping", train=False)
def within_the_norm(draw: Draw) -> Draft:
    """Of two products, one is light enough for a norm of the encyclopedia."""
    norm = draw.one(
        "wiki",
        "SELECT a.title, c.value AS covers, w.value AS weight FROM article a JOIN fact c ON c.article_id = a.id AND"
        " c.label = 'Covers' JOIN fact w ON w.article_id = a.id AND w.label = 'Weight at most' WHERE a.kind = 'norm'",
    )
    limit = int(norm["weight"].split()[0])
    where = (
        "SELECT * FROM product WHERE stock >= 3 AND sizes = '' AND colours = '' AND LOWER(kind) || 's' = ? AND weight_g"
    )
    good = draw.one("shopping", f"{where} <= ?", norm["covers"], limit)
    bad = draw.one("shopping", f"{where} > ?", norm["covers"], limit)
    first, second = draw.rng.sample([good, bad], 2)
    last = [] if good is second else [type_in("Search", good["name"], enter=True, uses=True), click(good["name"])]
    plan = [
        *open_article(norm["title"]),
        read(f"Weight at most: {norm['weight']}"),
        act("close_tab"),
        *_weigh(first),
        *_weigh(second),
        *last,
        click("Add to Cart", uses=not last),
        stop(),
    ]
    return Draft(
        "The encyclopedia tells how heavy {{title}} lets things be. Look that up and close the tab. Then see what the"
        " {{first}} and the {{second}} weigh, in this order, and put the one the norm allows into the cart.",
        {"title": norm["title"], "first": first["name"], "second": second["name"]},
        _WIKI_SHOP,
        pages(
            in_cart(good["name"]),
            page_holds("__SHOPPING__/checkout/cart/", "#cart .cart.items", must_exclude=[bad["name"]]),
        ),
        tuple(plan),
        Needle(
            "relation",
            f"Weight at most: {norm['weight']}",
            f"{norm['title']} allows {norm['weight']} at most.",
            "shopping",
            f"/{second['slug']}.html",
        ),
        changes=True,
    )


def _weigh(item: Row) -> list[Step]:
    require(item["weight_g"])
    return [*open_product(item["name"]), read(f"{item['weight_g']} g")]


# Two of the three sites


@family("classifieds", "shopping")
def ad_spec_as_note(draw: Draw) -> Draft:
    found = found_spec(draw, ad(draw))
    return join(draw, found, order_with_note(draw, found.value), ("__CLASSIFIEDS__/", "__SHOPPING__/"), closing())


@family("classifieds", "forum")
def ad_phone_to_author(draw: Draw) -> Draft:
    found = found_phone(draw, ad(draw))
    return join(draw, found, message_author(draw, found.value), ("__CLASSIFIEDS__/", "__FORUM__/"), closing())


@family("classifieds", "forum")
def ad_spec_in_comment(draw: Draw) -> Draft:
    found = found_spec(draw, ad(draw))
    return join(draw, found, comment_on_post(draw, found.value), ("__CLASSIFIEDS__/", "__FORUM__/"), closing())


@family("forum", "shopping")
def post_fact_as_note(draw: Draw) -> Draft:
    found = found_in_post(draw, FACTS, "attribute")
    return join(draw, found, order_with_note(draw, found.value), ("__FORUM__/", "__SHOPPING__/"), closing())


@family("forum", "classifieds")
def post_code_to_seller(draw: Draw) -> Draft:
    found = found_in_post(draw, CODES, "code")
    return join(draw, found, message_seller(draw, found.value), ("__FORUM__/", "__CLASSIFIEDS__/"), closing())


@family("shopping", "forum")
def product_fact_in_comment(draw: Draw) -> Draft:
    found = found_in_product(draw)
    return join(draw, found, comment_on_post(draw, found.value), ("__SHOPPING__/", "__FORUM__/"), closing())


@family("shopping", "classifieds")
def tracking_to_seller(draw: Draw) -> Draft:
    found = found_tracking(draw)
    return join(draw, found, message_seller(draw, found.value), ("__SHOPPING__/", "__CLASSIFIEDS__/"), closing())


# Over the portal


@family("home", "shopping")
def notice_as_note(draw: Draw) -> Draft:
    found = found_on_board(draw)
    return join(draw, found, order_with_note(draw, found.value), _PORTAL, over_the_portal("shopping"))


@family("home", "shopping", train=False)
def locker_code_as_note(draw: Draw) -> Draft:
    found = found_in_locker(draw)
    return join(draw, found, order_with_note(draw, found.value), _PORTAL, over_the_portal("shopping"))


@family("home", "classifieds")
def slip_to_seller(draw: Draw) -> Draft:
    found = found_on_slip(draw)
    return join(draw, found, message_seller(draw, found.value), _PORTAL, over_the_portal("classifieds"))


@family("home", "forum")
def notice_in_comment(draw: Draw) -> Draft:
    found = found_on_board(draw)
    return join(draw, found, comment_on_post(draw, found.value), _PORTAL, over_the_portal("forum"))


@family("home", "shopping")
def notice_by_message(draw: Draw) -> Draft:
    found = found_on_board(draw)
    return join(draw, found, wish_and_message(draw, found.value), _PORTAL, over_the_portal("shopping"))
