"""Tasks of the classifieds in which a fact is found and needed later."""

from __future__ import annotations

from agentkv_envs.tasks.draft import (
    Draft,
    Draw,
    Needle,
    Step,
    click,
    family,
    read,
    require,
    select,
    side_by_side,
    stop,
    type_in,
)
from agentkv_envs.tasks.families.ad_parts import (
    HOME,
    OWNER,
    SITE,
    ad,
    comment_on_ad,
    edit_page,
    favour,
    found_letter,
    found_phone,
    found_route,
    found_secret,
    found_spec,
    is_favourite,
    message_seller,
    my_ad,
    my_ads,
    open_ad,
    page_of,
    stored,
)
from agentkv_envs.tasks.families.parts import join, rows
from agentkv_envs.tasks.families.shop_parts import Row


@family(SITE)
def spec_to_seller(draw: Draw) -> Draft:
    source = ad(draw)
    found = found_spec(draw, source)
    return join(draw, found, message_seller(draw, found.value, source), (HOME,))


@family(SITE, train=False)
def route_in_comment(draw: Draw) -> Draft:
    source = ad(draw)
    found = found_route(draw, source)
    return join(draw, found, comment_on_ad(draw, found.value, source), (HOME,))


@family(SITE)
def phone_in_comment(draw: Draw) -> Draft:
    source = ad(draw)
    found = found_phone(draw, source)
    return join(draw, found, comment_on_ad(draw, found.value, source), (HOME,))


@family(SITE)
def secret_to_seller(draw: Draw) -> Draft:
    found = found_secret(draw)
    return join(draw, found, message_seller(draw, found.value), (HOME,))


@family(SITE)
def letter_in_comment(draw: Draw) -> Draft:
    found = found_letter(draw)
    return join(draw, found, comment_on_ad(draw, found.value), (HOME,))


@family(SITE)
def same_pickup_day(draw: Draw) -> Draft:
    """One's own ad gets the pickup day of another."""
    source = ad(draw)
    day = source["pickup_day"]
    mine = my_ad(draw, "l.pickup_day != ? AND l.kind != ?", day, source["kind"])
    c = ad(draw, unlike=source, where="l.kind != ?", args=(mine["kind"],))
    template = draw.choice(
        (
            "See on which day the {{ad}} can be picked up. Add the {{c}} to my favourites. Then give my ad {{mine}} the"
            " same pickup day.",
            "My ad {{mine}} shall have the pickup day of the {{ad}}: look that up first, then put the {{c}} among my"
            " favourites, and change my ad last.",
        )
    )
    plan = (
        *open_ad(source),
        read(f"Pickup: {day}"),
        *favour(c),
        *my_ads(),
        click(mine["title"]),
        click("Edit Ad"),
        select("Pickup day", day, uses=True),
        click("Save Changes"),
        stop(),
    )
    kept = rows(SITE, f"SELECT pickup_day FROM listing WHERE id = {mine['id']}", [day])
    return Draft(
        template,
        {"ad": source["title"], "c": c["title"], "mine": mine["title"]},
        (HOME,),
        {},
        plan,
        Needle("attribute", f"Pickup: {day}", f"the {source['title']} is picked up on {day}.", SITE, edit_page(mine)),
        changes=True,
        eval_ext=stored(kept, is_favourite(c), classifieds=("favourite", "listing.pickup_day")),
    )


@family(SITE)
def pickup_with_code(draw: Draw) -> Draft:
    """A bought thing is picked up with a code that was told once."""
    item = ad(draw)
    c = ad(draw, unlike=item)
    dollars = str(item["price_cents"] // 100)
    template = draw.choice(
        (
            "Offer the full {{dollars}} dollars for the {{ad}} and note the pickup code. Put the {{c}} among my"
            " favourites. Then confirm the pickup with the code.",
            "Buy the {{ad}} with an offer of {{dollars}} dollars. The pickup code is shown once. After you have made"
            " the {{c}} a favourite, confirm the pickup in My Offers.",
        )
    )
    plan = (
        *open_ad(item),
        click("Make an Offer"),
        type_in("Your offer in dollars", dollars),
        click("Send Offer"),
        read(item["pickup_code"]),
        *favour(c),
        click("My Account"),
        click("My Offers"),
        click("Confirm Pickup"),
        type_in("Pickup code", item["pickup_code"], uses=True),
        click("Confirm Pickup"),
        stop(),
    )
    code = item["pickup_code"]
    bought = rows(SITE, f"SELECT state FROM offer WHERE user_id = {OWNER} AND listing_id = {item['id']}", ["collected"])
    return Draft(
        template,
        {"ad": item["title"], "dollars": dollars, "c": c["title"]},
        (HOME,),
        {},
        plan,
        Needle(
            "code",
            code,
            f"the pickup code of the {item['title']} is {code}.",
            SITE,
            "/index.php?page=user&action=pickup*",
        ),
        changes=True,
        eval_ext=stored(bought, is_favourite(c), classifieds=("favourite", "offer", "listing.status")),
    )


@family(SITE)
def counter_offer(draw: Draw) -> Draft:
    """The seller's counter-offer is told once; it is accepted after another errand."""
    item = ad(draw, where="l.floor_cents < l.price_cents - 500 AND l.floor_cents > l.price_cents * 0.7")
    c = ad(draw, unlike=item)
    least, low = str(item["floor_cents"] // 100), str(item["price_cents"] // 200 + 1)
    template = draw.choice(
        (
            "Offer {{low}} dollars for the {{ad}}. The seller will name a price, once. Put the {{c}} among my"
            " favourites, withdraw the offer, and offer the price that was named.",
            "Try {{low}} dollars for the {{ad}} and remember what the seller asks instead. Make the {{c}} a favourite;"
            " then withdraw your offer in My Offers and make one of exactly what was asked.",
        )
    )
    plan = (
        *open_ad(item),
        click("Make an Offer"),
        type_in("Your offer in dollars", low),
        click("Send Offer"),
        read(f"for ${least} it is yours"),
        *favour(c),
        click("My Account"),
        click("My Offers"),
        click("Withdraw"),
        click(item["title"]),
        click("Make an Offer"),
        type_in("Your offer in dollars", least, uses=True),
        click("Send Offer"),
        stop(),
    )
    made = f"SELECT amount_cents, state FROM offer WHERE user_id = {OWNER} AND listing_id = {item['id']}"
    expected = ([int(low) * 100, "withdrawn"], [int(least) * 100, "accepted"])
    return Draft(
        template,
        {"ad": item["title"], "low": low, "c": c["title"]},
        (HOME,),
        {},
        plan,
        Needle(
            "attribute",
            f"for ${least} it is yours",
            f"the seller asks ${least}.",
            SITE,
            f"/index.php?page=item&action=offer&id={item['id']}",
        ),
        changes=True,
        eval_ext=stored(
            rows(SITE, made, *expected),
            is_favourite(c),
            classifieds=("favourite", "offer", "listing.status"),
        ),
    )


# Relations


def _busy(draw: Draw, *others: Row) -> tuple[Row, Row, list[Step]]:
    """Two more ads to make favourites of: 6 actions."""
    kinds = [row["kind"] for row in others]
    marks = ", ".join("?" * len(kinds))
    c = ad(draw, unlike=others[0], where=f"l.kind NOT IN ({marks})", args=tuple(kinds))
    d = ad(draw, unlike=others[0], where=f"l.kind NOT IN ({marks}, ?)", args=(*kinds, c["kind"]))
    return c, d, [*favour(c), *favour(d)]


@family(SITE)
def newer_of_two(draw: Draw) -> Draft:
    """Of two things, the one that was bought later becomes a favourite."""
    a = ad(draw)
    b = ad(draw, where="l.kind = ? AND l.year != ? AND l.user_id != ?", args=(a["kind"], a["year"], a["user_id"]))
    newer, older = sorted((a, b), key=lambda row: -row["year"])
    c, d, busy = _busy(draw, a, b)
    require(c["year"] != b["year"] and d["year"] != b["year"])
    template = draw.choice(
        (
            "Find out which was bought later, the {{a}} or the {{b}}. Then make the {{c}} and the {{d}} favourites, and"
            " last the one of the two that was bought later.",
            "Read in the ads {{a}} and {{b}} when each was bought. Put the {{c}} and the {{d}} among my favourites, and"
            " after them the newer of the first two, but not the older.",
        )
    )
    plan = (
        *open_ad(a),
        read(f"Bought: {a['year']}"),
        *open_ad(b),
        read(f"Bought: {b['year']}"),
        *busy,
        type_in("Search ads", newer["title"], enter=True, uses=True),
        click(newer["title"]),
        click("Add to Favourites"),
        stop(),
    )
    note = f"the {newer['title']} was bought later than the {older['title']}."
    years = side_by_side((a["title"], a["year"]), (b["title"], b["year"]))
    checks = [is_favourite(row) for row in (c, d, newer)]
    none = rows(SITE, f"SELECT COUNT(*) FROM favourite WHERE listing_id = {older['id']}", [0])
    return Draft(
        template,
        {key: row["title"] for key, row in zip("abcd", (a, b, c, d), strict=True)},
        (HOME,),
        {},
        plan,
        Needle("relation", f"Bought: {b['year']}", note, SITE, page_of(d), years),
        changes=True,
        eval_ext=stored(*checks, none, classifieds=("favourite",)),
    )


@family(SITE)
def same_seller(draw: Draw) -> Draft:
    """What else does the seller of an ad have? Their newest ad becomes a favourite."""
    a = ad(draw)
    theirs = draw.rows(SITE, "SELECT * FROM listing WHERE user_id = ? ORDER BY created DESC, id", a["user_id"])
    newest = theirs[0]
    require(newest["id"] != a["id"] and newest["kind"] != a["kind"] and newest["status"] == "active")
    c, d, busy = _busy(draw, a, newest)
    require(a["user_id"] not in (c["user_id"], d["user_id"]))
    template = draw.choice(
        (
            "See what the seller of the {{a}} has posted last (the first ad on their page). Make the {{c}} and the"
            " {{d}} favourites, and then that newest ad as well.",
            "Which ad stands first on the page of the person who sells the {{a}}? Put the {{c}}, then the {{d}}, and"
            " last that ad among my favourites.",
        )
    )
    plan = (
        *open_ad(a),
        click(a["seller"]),
        read(newest["title"]),
        *busy,
        type_in("Search ads", newest["title"], enter=True, uses=True),
        click(newest["title"]),
        click("Add to Favourites"),
        stop(),
    )
    note = f"the newest ad of {a['seller']}, who sells the {a['title']}, is {newest['title']}."
    checks = [is_favourite(row) for row in (c, d, newest)]
    return Draft(
        template,
        {key: row["title"] for key, row in zip("acd", (a, c, d), strict=True)},
        (HOME,),
        {},
        plan,
        Needle("relation", newest["title"], note, SITE, page_of(d)),
        changes=True,
        eval_ext=stored(*checks, classifieds=("favourite",)),
    )


@family(SITE)
def better_seller(draw: Draw) -> Draft:
    """Of two sellers, the one with the better rating is followed later on."""
    rating = "(SELECT ROUND(AVG(stars), 1) FROM rating WHERE seller_id = l.user_id)"
    rated = f"{rating} IS NOT NULL AND l.user_id NOT IN (SELECT seller_id FROM follow)"
    a = ad(draw, where=rated)
    b = ad(draw, unlike=a, where=rated)
    stars = {
        row["user_id"]: draw.value(SITE, "SELECT ROUND(AVG(stars), 1) FROM rating WHERE seller_id = ?", row["user_id"])
        for row in (a, b)
    }
    require(abs(stars[a["user_id"]] - stars[b["user_id"]]) >= 0.3)
    better, worse = sorted((a, b), key=lambda row: -stars[row["user_id"]])
    c, d, busy = _busy(draw, a, b)
    template = draw.choice(
        (
            "Compare the ratings of the sellers of the {{a}} and the {{b}} on their pages. Add the {{c}} and the {{d}}"
            " to my favourites, then go back to the ad of the better rated seller and follow that seller.",
            "Who has the better rating: the seller of the {{a}} or the one of the {{b}}? Make the {{c}} and the {{d}}"
            " favourites; then open the better one's ad again, from there the seller's page, and follow them.",
        )
    )
    plan = (
        *open_ad(a),
        click(a["seller"]),
        read(f"Rating: {stars[a['user_id']]} from"),
        *open_ad(b),
        click(b["seller"]),
        read(f"Rating: {stars[b['user_id']]} from"),
        *busy,
        type_in("Search ads", better["title"], enter=True, uses=True),
        click(better["title"]),
        click(better["seller"]),
        click("Follow Seller"),
        stop(),
    )
    note = f"{better['seller']}, who sells the {better['title']}, is rated better than {worse['seller']}."
    ratings = side_by_side(*((f"{row['seller']}, {row['title']}", stars[row["user_id"]]) for row in (a, b)))
    follows = rows(SITE, "SELECT seller_id FROM follow WHERE id > 2", [better["user_id"]])
    return Draft(
        template,
        {key: row["title"] for key, row in zip("abcd", (a, b, c, d), strict=True)},
        (HOME,),
        {},
        plan,
        Needle("relation", f"Rating: {stars[b['user_id']]} from", note, SITE, page_of(d), ratings),
        changes=True,
        eval_ext=stored(follows, is_favourite(c), is_favourite(d), classifieds=("favourite", "follow")),
    )
