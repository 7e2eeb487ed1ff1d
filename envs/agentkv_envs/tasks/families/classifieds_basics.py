"""Short tasks of the classifieds."""

from __future__ import annotations

from agentkv_envs.sites.web import money
from agentkv_envs.tasks.draft import (
    Draft,
    Draw,
    answer,
    click,
    ends_on,
    expand,
    family,
    read,
    require,
    select,
    stop,
    type_in,
    unachievable,
)
from agentkv_envs.tasks.families.ad_parts import (
    HOME,
    OWNER,
    SITE,
    ad,
    favour,
    is_favourite,
    my_ad,
    my_ads,
    open_ad,
    search,
    stored,
)
from agentkv_envs.tasks.families.parts import rows


@family(SITE)
def pickup_day(draw: Draw) -> Draft:
    item = ad(draw)
    template = draw.choice(
        (
            "On which day of the week can the {{ad}} be picked up?",
            "Which pickup day does the ad {{ad}} name?",
            "When is pickup for the {{ad}}? Answer with the day, or N/A if there is no such ad.",
        )
    )
    plan = (*open_ad(item), read(f"Pickup: {item['pickup_day']}"), stop(item["pickup_day"]))
    return Draft(template, {"ad": item["title"]}, (HOME,), answer(item["pickup_day"]), plan)


@family(SITE)
def favourite_ad(draw: Draw) -> Draft:
    item = ad(draw)
    template = draw.choice(
        (
            "Put the {{ad}} among my favourites.",
            "Add the ad {{ad}} to my favourites.",
            "I want to find the {{ad}} again later: make it a favourite. Answer N/A if that is impossible.",
        )
    )
    plan = (*favour(item), stop())
    values = {"ad": item["title"]}
    ext = stored(is_favourite(item), classifieds=("favourite",))
    return Draft(template, values, (HOME,), {}, plan, changes=True, eval_ext=ext)


@family(SITE)
def cheapest_ad(draw: Draw) -> Draft:
    kind = draw.choice([row[0] for row in draw.rows(SITE, "SELECT DISTINCT kind FROM listing WHERE kind != ''")])
    found = draw.rows(
        SITE,
        "SELECT * FROM listing WHERE status != 'sold' AND id IN (SELECT rowid FROM listing_search WHERE listing_search"
        " MATCH ?) ORDER BY price_cents",
        " ".join(f'"{word}"*' for word in kind.split()),
    )
    require(found[0]["kind"] == kind and found[0]["price_cents"] < found[1]["price_cents"])
    template = draw.choice(
        (
            "Open the cheapest ad for a {{kind}}.",
            "Which {{kind}} costs least? Go to its ad.",
            "Find the {{kind}} with the lowest price and open the ad.",
        )
    )
    plan = (search(kind.lower()), click("Cheapest"), click(found[0]["title"]), stop())
    url = f"__CLASSIFIEDS__/index.php?page=item&id={found[0]['id']}"
    return Draft(template, {"kind": kind.lower()}, (HOME,), ends_on(url), plan)


@family(SITE)
def comment_ad(draw: Draw) -> Draft:
    item = ad(draw)
    text = draw.choice(("Is it still there?", "Does it come with a receipt?", "Could you keep it until May?"))
    template = draw.choice(("Comment on the {{ad}}: {{text}}", "Ask this in a comment on the ad {{ad}}: {{text}}"))
    plan = (*open_ad(item), click("Write a Comment"), type_in("Comment", text), click("Publish Comment"), stop())
    said = rows(SITE, f"SELECT body FROM comment WHERE user_id = {OWNER} AND listing_id = {item['id']}", [text])
    ext = stored(said, classifieds=("comment",))
    return Draft(template, {"ad": item["title"], "text": text}, (HOME,), {}, plan, changes=True, eval_ext=ext)


@family(SITE)
def nothing_so_cheap(draw: Draw) -> Draft:
    kind = draw.choice([row[0] for row in draw.rows(SITE, "SELECT DISTINCT kind FROM listing WHERE kind != ''")])
    lowest = draw.value(
        SITE,
        "SELECT MIN(price_cents) FROM listing WHERE id IN (SELECT rowid FROM listing_search WHERE listing_search"
        " MATCH ?)",
        " ".join(f'"{word}"*' for word in kind.split()),
    )
    limit = money((lowest // 100 - draw.rng.randint(1, 3)) * 100)
    require(lowest > 500)
    template = draw.choice(
        (
            "Put any {{kind}} for {{limit}} or less among my favourites. If there is none, answer N/A.",
            "Is there a {{kind}} for at most {{limit}}? Make it a favourite, or answer N/A.",
        )
    )
    plan = (search(kind.lower()), click("Cheapest"), stop("N/A"))
    values = {"kind": kind.lower(), "limit": limit}
    return Draft(template, values, (HOME,), unachievable(), plan, why_not=f"No {kind.lower()} costs {limit} or less.")


@family(SITE, train=False)
def no_such_offer(draw: Draw) -> Draft:
    """One's own ad takes no offer of one's own."""
    item = my_ad(draw)
    template = "Make an offer of half its price for the {{ad}}. Answer N/A if that cannot be done."
    plan = (*open_ad(item), stop("N/A"))
    return Draft(template, {"ad": item["title"]}, (HOME,), unachievable(), plan, why_not="The ad is the user's own.")


@family(SITE)
def new_price(draw: Draw) -> Draft:
    item = my_ad(draw)
    price = str(item["price_cents"] // 100 - draw.rng.randint(3, 20))
    require(int(price) > 0)
    template = draw.choice(
        (
            "Lower the price of my ad {{ad}} to {{price}} dollars.",
            "My {{ad}} does not sell. Change its price to {{price}} dollars.",
        )
    )
    plan = (
        *my_ads(),
        click(item["title"]),
        click("Edit Ad"),
        type_in("Price", price),
        click("Save Changes"),
        stop(),
    )
    cents = rows(SITE, f"SELECT price_cents FROM listing WHERE id = {item['id']}", [int(price) * 100])
    ext = stored(cents, classifieds=("listing.price_cents",))
    return Draft(template, {"ad": item["title"], "price": price}, (HOME,), {}, plan, changes=True, eval_ext=ext)


@family(SITE)
def report_ad(draw: Draw) -> Draft:
    item = ad(draw)
    reason = draw.choice(("Sold already", "Wrong category", "Misleading photo", "Scam"))
    note = draw.choice(("I know this one.", "Please check.", "Seen elsewhere."))
    template = draw.choice(
        (
            "Report the ad {{ad}}. Reason: {{reason}}. Note: {{note}}",
            "Something is wrong with the {{ad}}: report it, reason {{reason}}, note {{note}}",
        )
    )
    plan = (
        *open_ad(item),
        expand("Similar ads"),
        click("Report this ad"),
        select("Reason", reason),
        type_in("Note", note),
        click("Send Report"),
        stop(),
    )
    told = rows(SITE, "SELECT listing_id, reason, note FROM report", [item["id"], reason, note])
    values = {"ad": item["title"], "reason": reason, "note": note}
    ext = stored(told, classifieds=("report",))
    return Draft(template, values, (HOME,), {}, plan, changes=True, eval_ext=ext)
