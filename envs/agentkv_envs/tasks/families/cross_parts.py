"""For families over several sites: facts of the encyclopedia, the shop and the portal, and the shop's uses of one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentkv_envs.tasks.draft import Draw, Step, click, expand, page_holds, read, require, select, side_by_side, type_in
from agentkv_envs.tasks.families.parts import Found, Use, rows
from agentkv_envs.tasks.families.shop_parts import (
    ORDER,
    Row,
    open_product,
    order_label,
    ordered,
    orders,
    product,
    spoken,
    to_checkout,
)

# Kind of article, label of the fact, and what the fact is called in an intent.
WIKI_FACTS = (
    ("museum", "Open", "opening hours"),
    ("dish", "Oven", "oven temperature"),
    ("event", "Meeting point", "meeting point"),
    ("plant", "Water every", "watering interval"),
    ("trail", "Waymark", "waymark"),
    ("bird", "Call", "call"),
    ("town", "Market day", "market day"),
    ("maker", "Guarantee", "guarantee"),
)
WIKI_NUMBERS = (
    ("museum", "Phone", "phone number"),
    ("town", "Town hall", "phone number of the town hall"),
    ("maker", "Repair desk", "phone number of the repair desk"),
    ("mountain", "Hut phone", "phone number of the hut"),
)
_COMPARED = (
    ("mountain", "Height", "higher"),
    ("trail", "Length", "longer"),
    ("museum", "Opened", "younger"),
    ("town", "Population", "larger"),
)


def open_article(title: str) -> list[Step]:
    """Search the encyclopedia and open an article."""
    return [type_in("Search Fieldbook", title, enter=True), click(title)]


def found_in_wiki(draw: Draw, facts: Sequence[tuple[str, str, str]], kind: str) -> Found:
    """A fact of an article."""
    sort, label, called = draw.choice(facts)
    row = draw.one(
        "wiki",
        "SELECT a.title, f.value FROM article a JOIN fact f ON f.article_id = a.id WHERE a.kind = ? AND f.label = ?",
        sort,
        label,
    )
    template = draw.choice(
        (
            "look up the {{called}} of {{title}} in the encyclopedia",
            "read in the encyclopedia what the {{called}} of {{title}} is",
        )
    )
    return Found(
        kind,
        template,
        {"called": called, "title": row["title"]},
        (*open_article(row["title"]), read(row["value"])),
        row["value"],
        row["value"],
        f"the {called} of {row['title']}: {row['value']}.",
    )


def found_by_comparing(draw: Draw) -> Found:
    """Which of two things in the encyclopedia is the higher, longer, younger or larger."""
    kind, label, more = draw.choice(_COMPARED)
    a, b = draw.some(
        "wiki",
        2,
        "SELECT a.title, f.value, CAST(REPLACE(f.value, ',', '') AS INTEGER) AS size FROM article a"
        " JOIN fact f ON f.article_id = a.id WHERE a.kind = ? AND f.label = ?",
        kind,
        label,
    )
    require(a["size"] != b["size"])
    winner, loser = (a, b) if a["size"] > b["size"] else (b, a)
    template = draw.choice(
        (
            "find out in the encyclopedia which is {{more}}, {{one}} or {{other}}",
            "read both articles, {{one}} and {{other}}, to see which of them is {{more}}",
        )
    )
    return Found(
        "relation",
        template,
        {"more": more, "one": a["title"], "other": b["title"]},
        (*open_article(a["title"]), read(a["value"]), *open_article(b["title"]), read(b["value"])),
        b["value"],
        winner["title"],
        f"{winner['title']} is {more} than {loser['title']}.",
        compared=side_by_side((a["title"], a["value"]), (b["title"], b["value"])),
    )


def found_in_product(draw: Draw) -> Found:
    """What a product's page says of it."""
    item = product(draw, "product", "warranty_years > 1")
    what, label, value = draw.choice(
        (
            ("warranty", "Warranty", f"{item['warranty_years']} years"),
            ("weight", "Weight", f"{item['weight_g']} g"),
        )
    )
    return Found(
        "attribute",
        "look up the {{what}} of the {{product}} in the shop",
        {"what": what, "product": item["name"]},
        (*open_product(item["name"]), read(f"{label}: {value}")),
        f"{label}: {value}",
        value,
        f"the {what} of the {item['name']} is {value}.",
    )


def found_tracking(draw: Draw) -> Found:
    """The tracking number of an order."""
    order = draw.one("shopping", "SELECT * FROM orders WHERE tracking != ''")
    return Found(
        "code",
        "look up the tracking number of my order of {{date}} in the shop",
        {"date": spoken(order["created"])},
        (*orders(), click(order_label(order)), read(order["tracking"])),
        order["tracking"],
        order["tracking"],
        f"the tracking number of the order of {spoken(order['created'])} is {order['tracking']}.",
    )


# The portal and its notice board

SITE_LINKS = {"shopping": "Brightcart", "classifieds": "Doorstep", "forum": "Commonroom", "wiki": "Fieldbook"}
_NOTICE_FACTS = (
    ("Event", r"in ([A-Z][\w ]+),", "place"),
    ("Event", r"^(\w+ at \d+:00)", "time"),
    ("Found", r"at (counter \d)", "counter"),
    ("Notice", r"until (\d+ \w+)", "date of reopening"),
)


def found_on_board(draw: Draw) -> Found:
    """What a notice on the portal says."""
    topic, pattern, called = draw.choice(_NOTICE_FACTS)
    notice = draw.one("home", "SELECT * FROM notice WHERE topic = ?", topic)
    hit = re.search(pattern, notice["body"])
    require(hit)
    assert hit is not None
    return Found(
        "attribute",
        "read on the portal which {{what}} the notice {{notice}} names",
        {"what": called, "notice": notice["title"]},
        (click(notice["title"]), read(hit.group(1))),
        hit.group(1),
        hit.group(1),
        f"the {called} on the notice {notice['title']} is {hit.group(1)}.",
    )


def found_in_locker(draw: Draw) -> Found:
    """The code of the parcel locker, which the portal shows once."""
    locker = draw.one("home", "SELECT * FROM locker")
    return Found(
        "code",
        draw.choice(
            ("have the portal show the code of my parcel locker", "get my parcel locker's code from the portal")
        ),
        {},
        (click("Parcel Locker"), click("Show Code"), read(locker["code"])),
        locker["code"],
        locker["code"],
        f"the code of the parcel locker is {locker['code']}.",
        {"home": ("locker.shown",)},
    )


def found_on_slip(draw: Draw) -> Found:
    """A phone number on a slip torn off a notice, shown once."""
    notice = draw.one("home", "SELECT * FROM notice WHERE phone != '' AND slips > 0")
    return Found(
        "code",
        "take a slip from the notice {{notice}} on the portal for its phone number",
        {"notice": notice["title"]},
        (click(notice["title"]), click("Take a Slip"), read(notice["phone"])),
        notice["phone"],
        notice["phone"],
        f"the phone number of the notice {notice['title']} is {notice['phone']}.",
        {"home": ("notice.slips",)},
    )


def over_the_portal(site: str) -> tuple[Step, ...]:
    """From one of the portal's pages to a site."""
    return (click("Townboard"), click(SITE_LINKS[site]))


# Uses in the shop


def order_with_note(draw: Draw, value: str) -> Use:
    """An order whose gift note is the fact, which is needed as the 6th action."""
    item = product(draw, "product")
    template = draw.choice(
        (
            "order one {{item}} in the shop and write that, and nothing else, as the gift note",
            "buy one {{item}} in the shop with just that as its gift note",
        )
    )
    return Use(
        template,
        {"item": item["name"]},
        (*to_checkout(item["name"]), type_in("Gift note", value, uses=True), click("Place Order")),
        "shopping",
        "/checkout/",
        targets=tuple(ordered(item["name"], gift_note=value)),
        free={"shopping": ORDER},
    )


def wish_and_message(draw: Draw, value: str) -> Use:
    """A wish first, then a message to the service desk: the fact is needed as the 8th action."""
    item = product(draw, "product", "1")
    sent = rows("shopping", "SELECT name, topic, body FROM message", ["Emma", "Other", value])
    return Use(
        "put the {{item}} on my wish list in the shop, and then send its service desk a message (name Emma, topic"
        " Other) that is just that",
        {"item": item["name"]},
        (
            *open_product(item["name"]),
            click("Add to Wish List"),
            expand("Footer"),
            click("Contact"),
            type_in("Name", "Emma"),
            select("Topic", "Other"),
            type_in("Message", value, uses=True),
            click("Send Message"),
        ),
        "shopping",
        "/contact/",
        targets=(page_holds("__SHOPPING__/wishlist/", ".wishlist", must_include=[item["name"]]),),
        rows=(sent,),
        free={"shopping": ("message", "wishlist_item")},
    )


def review_with(draw: Draw, value: str) -> Use:
    """A review whose text is the fact, which is needed as the 7th action."""
    item: Row = product(draw, "product", "1")
    latest = "func:shopping_get_sku_latest_review_{}('{}')"
    targets = [
        {
            "url": "last",
            "locator": latest.format(column, item["sku"]),
            "required_contents": {"exact_match": text},
        }
        for column, text in (("rating", "100"), ("author", "Emma"), ("text", value))
    ]
    return Use(
        "review the {{item}} in the shop: 5 stars, nickname Emma, summary Useful there, and just that as the review",
        {"item": item["name"]},
        (
            *open_product(item["name"]),
            click("Write a review"),
            select("Rating", "5 stars"),
            type_in("Nickname", "Emma"),
            type_in("Summary", "Useful there"),
            type_in("Review", value, uses=True),
            click("Submit Review"),
        ),
        "shopping",
        "/review/product/post/*",
        targets=tuple(targets),
        free={"shopping": ("review",)},
    )
