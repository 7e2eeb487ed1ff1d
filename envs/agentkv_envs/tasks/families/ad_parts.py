"""What the families of the classifieds share: ads drawn from the database, facts found there, and their uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentkv_envs.tasks.draft import Draw, Step, click, read, require, type_in
from agentkv_envs.tasks.families.parts import Found, Use, rows, state
from agentkv_envs.tasks.families.shop_parts import Row

HOME = "__CLASSIFIEDS__/"
OWNER = 1
SITE = "classifieds"
_OPEN = "l.status = 'active' AND l.user_id != 1 AND l.id NOT IN (SELECT listing_id FROM favourite)"
_FRESH = f"{_OPEN} AND l.id NOT IN (SELECT listing_id FROM thread)"
_SELECT = "SELECT l.*, u.name AS seller, u.phone FROM listing l JOIN user u ON u.id = l.user_id"
# What is read on an ad: column, what its table calls it, what an intent calls it.
_SPECS = (
    ("year", "Bought", "year of buying"),
    ("extra", "Included", "thing that is included"),
    ("pickup_day", "Pickup", "pickup day"),
)
_LETTERS = (
    (r"(\w+day at \d+:00)", "meeting time"),
    (r"(\d+ cm) wide", "width"),
    (r"(\$\d+) and it is yours", "price"),
    (r"warranty runs until (\w+ \d{4})", "end of the warranty"),
)


def ad(draw: Draw, *, unlike: Row | None = None, where: str = "1", args: tuple[object, ...] = ()) -> Row:
    """Any ad of somebody else that nothing has been done with yet.

    Args:
        unlike: an ad that it must share neither kind, year, extra, pickup day nor seller with.
    """
    if unlike is not None:
        where += " AND l.kind != ? AND l.year != ? AND l.extra != ? AND l.pickup_day != ? AND l.user_id != ?"
        args += tuple(unlike[key] for key in ("kind", "year", "extra", "pickup_day", "user_id"))
    return draw.one(SITE, f"{_SELECT} WHERE {_FRESH} AND {where}", *args)


def my_ad(draw: Draw, where: str = "1", *args: object) -> Row:
    return draw.one(SITE, f"{_SELECT} WHERE l.user_id = {OWNER} AND l.status = 'active' AND {where}", *args)


def page_of(row: Row) -> str:
    """The address of an ad."""
    return f"/index.php?page=item&id={row['id']}"


def edit_page(row: Row) -> str:
    """The address of the form of one's own ad."""
    return f"/index.php?page=item&action=item_edit&id={row['id']}"


def stored(*checks: Mapping[str, Any], **free: tuple[str, ...]) -> dict[str, Any]:
    """eval_ext: these rows hold, and nothing changes but what is free, by site."""
    return {"db_state": state(checks, free)}


def search(words: str) -> Step:
    return type_in("Search ads", words, enter=True)


def open_ad(row: Row) -> list[Step]:
    """Search for an ad by its title and open it."""
    return [search(row["title"]), click(row["title"])]


def favour(row: Row) -> list[Step]:
    """Put an ad among the favourites: 3 actions."""
    return [*open_ad(row), click("Add to Favourites")]


def is_favourite(row: Row) -> dict[str, object]:
    return rows(SITE, f"SELECT COUNT(*) FROM favourite WHERE listing_id = {row['id']}", [1])


def my_ads() -> list[Step]:
    return [click("My Account"), click("My Ads")]


# Facts


def found_spec(draw: Draw, source: Row) -> Found:
    """An attribute that stands on an ad's page and nowhere else."""
    column, label, called = draw.choice(_SPECS)
    value = str(source[column])
    template = draw.choice(("look up the {{spec}} in the ad {{ad}}", "see in the ad {{ad}} what the {{spec}} is"))
    return Found(
        "attribute",
        template,
        {"spec": called, "ad": source["title"]},
        (*open_ad(source), read(f"{label}: {value}")),
        f"{label}: {value}",
        value,
        f"{source['title']}: {label} {value}.",
    )


def found_route(draw: Draw, source: Row) -> Found:
    """The bus to an ad's place, which the map in its frame tells when it is asked."""
    bus = draw.value(SITE, "SELECT bus FROM place WHERE name = ?", source["place"]).partition(",")[0]
    template = draw.choice(
        ("let the map of the ad {{ad}} show the route and see which bus it is", "find out which bus goes to the {{ad}}")
    )
    return Found(
        "attribute",
        template,
        {"ad": source["title"]},
        (*open_ad(source), click("Show Route"), read(f"Take {bus}")),
        f"Take {bus}",
        bus,
        f"{bus} goes to the {source['title']}.",
    )


def found_phone(draw: Draw, source: Row) -> Found:
    """The seller's phone number, which an ad shows once."""
    template = draw.choice(
        ("have the ad {{ad}} show the phone number", "get the phone number of the seller of the {{ad}}")
    )
    return Found(
        "code",
        template,
        {"ad": source["title"]},
        (*open_ad(source), click("Show Phone"), read(source["phone"])),
        source["phone"],
        source["phone"],
        f"the seller of the {source['title']} has the phone number {source['phone']}.",
        {SITE: ("listing.phone_shown",)},
    )


def found_secret(draw: Draw) -> Found:
    """The code of a secret message, which is destroyed by reading."""
    letter = draw.one(SITE, "SELECT t.*, u.name FROM thread t JOIN user u ON u.id = t.user_id WHERE t.secret != ''")
    code = re.search(r"[A-Z]{2}\d+|\d{4}", letter["secret"])
    require(code)
    assert code is not None
    template = draw.choice(
        ("read the secret message of {{other}} for its code", "get the code out of the secret message from {{other}}")
    )
    return Found(
        "code",
        template,
        {"other": letter["name"]},
        (
            click("Messages"),
            click(letter["name"]),
            click("Read Secret Message"),
            read(code.group()),
        ),
        code.group(),
        code.group(),
        f"the code of {letter['name']} is {code.group()}.",
        {SITE: ("thread.unread", "thread.secret")},
    )


def found_letter(draw: Draw) -> Found:
    """What somebody has written in a private message."""
    pattern, called = draw.choice(_LETTERS)
    letters = draw.rows(
        SITE,
        "SELECT m.body, u.name FROM message m JOIN thread t ON t.id = m.thread_id JOIN user u ON u.id = t.user_id"
        " WHERE NOT m.mine",
    )
    hits = [(row["name"], hit.group(1)) for row in letters if (hit := re.search(pattern, row["body"]))]
    other, value = draw.choice(hits)
    template = draw.choice(
        ("see in the message from {{other}} what the {{what}} is", "look up the {{what}} in what {{other}} wrote to me")
    )
    return Found(
        "attribute",
        template,
        {"what": called, "other": other},
        (click("Messages"), click(other), read(value)),
        value,
        value,
        f"the {called} in the message of {other} is {value}.",
        {SITE: ("thread.unread",)},
    )


# Uses


def message_seller(draw: Draw, value: str, unlike: Row | None = None) -> Use:
    """A favourite first, then a message to the seller of another ad: the fact is needed as the 7th action."""
    c = ad(draw, unlike=unlike)
    b = ad(draw, unlike=unlike, where="l.kind != ? AND l.user_id != ?", args=(c["kind"], c["user_id"]))
    template = draw.choice(
        (
            "put the {{c}} among my favourites, and then write that, and nothing else, to the seller of the {{b}}",
            "add the {{c}} to the favourites and contact the seller of the {{b}} with just that as the message",
        )
    )
    sent = (
        "SELECT m.body FROM message m JOIN thread t ON t.id = m.thread_id"
        f" WHERE m.mine AND t.listing_id = {b['id']} AND t.user_id = {b['user_id']}"
    )
    return Use(
        template,
        {"c": c["title"], "b": b["title"]},
        (
            *favour(c),
            *open_ad(b),
            click("Contact Seller"),
            type_in("Message", value, uses=True),
            click("Send Message"),
        ),
        SITE,
        f"/index.php?page=item&action=contact&id={b['id']}",
        rows=(rows(SITE, sent, [value]), is_favourite(c)),
        free={SITE: ("favourite", "message", "thread")},
    )


def comment_on_ad(draw: Draw, value: str, unlike: Row | None = None) -> Use:
    """A favourite first, then a comment on another ad: the fact is needed as the 7th action."""
    c = ad(draw, unlike=unlike)
    b = ad(draw, unlike=unlike, where="l.kind != ? AND l.user_id != ?", args=(c["kind"], c["user_id"]))
    template = draw.choice(
        (
            "put the {{c}} among my favourites, and then comment on the {{b}} with that and nothing else",
            "make the {{c}} one of my favourites, open the ad {{b}} and write a comment that holds only that",
        )
    )
    said = f"SELECT body FROM comment WHERE user_id = {OWNER} AND listing_id = {b['id']}"
    return Use(
        template,
        {"c": c["title"], "b": b["title"]},
        (
            *favour(c),
            *open_ad(b),
            click("Write a Comment"),
            type_in("Comment", value, uses=True),
            click("Publish Comment"),
        ),
        SITE,
        f"/index.php?page=item&action=add_comment&id={b['id']}",
        rows=(rows(SITE, said, [value]), is_favourite(c)),
        free={SITE: ("favourite", "comment")},
    )
