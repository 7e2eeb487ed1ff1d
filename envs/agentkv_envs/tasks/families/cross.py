"""Families over several sites: a fact is read on one and needed on another."""

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
from agentkv_envs.tasks.families.shop_parts import Row, in_cart, open_product, ordered, product, search, to_checkout

_TABS = ("__WIKI__/", "__SHOPPING__/")
# Kind of article, label of the fact, and what the fact is called in an intent.
_FACTS = (
    ("museum", "Open", "opening hours"),
    ("dish", "Oven", "oven temperature"),
    ("event", "Meeting point", "meeting point"),
    ("plant", "Water every", "watering interval"),
    ("trail", "Waymark", "waymark"),
    ("bird", "Call", "call"),
    ("town", "Market day", "market day"),
)
_NUMBERS = (
    ("museum", "Phone", "phone number"),
    ("town", "Town hall", "phone number of the town hall"),
    ("maker", "Repair desk", "phone number of the repair desk"),
    ("mountain", "Hut phone", "phone number of the hut"),
)


def wiki_fact(draw: Draw, kinds: tuple[tuple[str, str, str], ...]) -> tuple[str, str, str]:
    """An article, what is asked of it, and the value."""
    kind, label, called = draw.choice(kinds)
    row = draw.one(
        "wiki",
        "SELECT a.title, f.value FROM article a JOIN fact f ON f.article_id = a.id WHERE a.kind = ? AND f.label = ?",
        kind,
        label,
    )
    return row["title"], called, row["value"]


def open_article(title: str) -> list[Step]:
    """Search the encyclopedia and open an article."""
    return [type_in("Search Fieldbook", title, enter=True), click(title)]


def _as_gift_note(draw: Draw, kind: str, kinds: tuple[tuple[str, str, str], ...]) -> Draft:
    title, called, value = wiki_fact(draw, kinds)
    item = product(draw, "product")
    template = draw.choice(
        (
            "Look up the {{called}} of {{title}} in the encyclopedia and close its tab. Then order one {{product}} in"
            " the shop; the gift note is what you looked up, nothing else.",
            "The gift note of my next order shall be the {{called}} of {{title}} as the encyclopedia gives it. Read it,"
            " close that tab, and order one {{product}}.",
        )
    )
    plan = [
        *open_article(title),
        read(value),
        act("close_tab"),
        *to_checkout(item["name"]),
        type_in("Gift note", value, uses=True),
        click("Place Order"),
        stop(),
    ]
    return Draft(
        template,
        {"called": called, "title": title, "product": item["name"]},
        _TABS,
        pages(*ordered(item["name"], gift_note=value)),
        tuple(plan),
        Needle(kind, value, f"the {called} of {title}: {value}", "shopping", "/checkout/"),
        changes=True,
    )


@family("wiki", "shopping")
def wiki_fact_as_note(draw: Draw) -> Draft:
    return _as_gift_note(draw, "attribute", _FACTS)


@family("wiki", "shopping")
def wiki_phone_as_note(draw: Draw) -> Draft:
    return _as_gift_note(draw, "code", _NUMBERS)


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
    template = draw.choice(
        (
            "The encyclopedia tells how heavy {{title}} lets things be. Look that up and close the tab. Then see what"
            " the {{first}} and the {{second}} weigh, in this order, and put the one the norm allows into the cart.",
        )
    )
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
        template,
        {"title": norm["title"], "first": first["name"], "second": second["name"]},
        _TABS,
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


@family("wiki", "shopping")
def higher_mountain_order(draw: Draw) -> Draft:
    """A comparison in the encyclopedia decides what is ordered in the shop."""
    kind, label, more = draw.choice(
        (("mountain", "Height", "higher"), ("trail", "Length", "longer"), ("museum", "Opened", "younger"))
    )
    a, b = draw.some(
        "wiki",
        2,
        "SELECT a.title, f.value, CAST(REPLACE(f.value, ',', '') AS INTEGER) AS size FROM article a"
        " JOIN fact f ON f.article_id = a.id WHERE a.kind = ? AND f.label = ?",
        kind,
        label,
    )
    require(a["size"] != b["size"])
    winner = max(a, b, key=lambda row: row["size"])
    loser = b if winner is a else a
    item = product(draw, "product")
    template = draw.choice(
        (
            "Find out in the encyclopedia which is {{more}}, {{a}} or {{b}}, and close its tab. Then order one"
            " {{product}} with the name of that one as the gift note.",
            "Which is {{more}}: {{a}} or {{b}}? Read both articles, close the tab, and order one {{product}} in the"
            " shop. Write the name of the {{more}} one as the gift note.",
        )
    )
    plan = [
        *open_article(a["title"]),
        read(f"{label}: {a['value']}"),
        *open_article(b["title"]),
        read(f"{label}: {b['value']}"),
        act("close_tab"),
        *to_checkout(item["name"]),
        type_in("Gift note", winner["title"], uses=True),
        click("Place Order"),
        stop(),
    ]
    return Draft(
        template,
        {"more": more, "a": a["title"], "b": b["title"], "product": item["name"]},
        _TABS,
        pages(*ordered(item["name"], gift_note=winner["title"])),
        tuple(plan),
        Needle(
            "relation",
            f"{label}: {b['value']}",
            f"{winner['title']} is {more} than {loser['title']}.",
            "shopping",
            "/checkout/",
        ),
        changes=True,
    )


@family("wiki", "shopping")
def article_for_review(draw: Draw) -> Draft:
    """A fact of the encyclopedia is repeated in a review of a product."""
    title, called, value = wiki_fact(draw, _FACTS)
    item = product(draw, "product", "1")
    template = draw.choice(
        (
            "Read the {{called}} of {{title}} in the encyclopedia, then close that tab. Review the {{product}} in the"
            " shop: 5 stars, nickname Emma, summary Useful there, and as the review what you have read.",
        )
    )
    plan = [
        *open_article(title),
        read(value),
        act("close_tab"),
        search(item["name"]),
        click(item["name"]),
        click("Write a review"),
        act('select "Rating" [5 stars]'),
        type_in("Nickname", "Emma"),
        type_in("Summary", "Useful there"),
        type_in("Review", value, uses=True),
        click("Submit Review"),
        stop(),
    ]
    targets = [
        {
            "url": "last",
            "locator": f"func:shopping_get_sku_latest_review_{column}('{item['sku']}')",
            "required_contents": {"exact_match": text},
        }
        for column, text in (("rating", "5"), ("author", "Emma"), ("text", value))
    ]
    return Draft(
        template,
        {"called": called, "title": title, "product": item["name"]},
        _TABS,
        pages(*targets),
        tuple(plan),
        Needle("attribute", value, f"the {called} of {title}: {value}", "shopping", "/review/"),
        changes=True,
    )
