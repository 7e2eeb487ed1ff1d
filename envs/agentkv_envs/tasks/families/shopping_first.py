"""The first tasks of the shop: looking around, cart, wish list, address. None of these families is trained on."""

from __future__ import annotations

from agentkv_envs.sites.web import money
from agentkv_envs.tasks.draft import (
    Draft,
    Draw,
    act,
    answer,
    click,
    ends_on,
    expand,
    family,
    number,
    page_holds,
    pages,
    read,
    require,
    select,
    stop,
    type_in,
)
from agentkv_envs.tasks.families.shop_parts import (
    HOME,
    PLAIN,
    in_cart,
    open_product,
    product,
    search,
    url_of,
)


@family("shopping", train=False)
def product_into_cart(draw: Draw) -> Draft:
    item = product(draw, "product")
    plan = [*open_product(item["name"]), click("Add to Cart"), stop()]
    return Draft(
        "Add the {{product}} to the cart.",
        {"product": item["name"]},
        (HOME,),
        pages(in_cart(item["name"])),
        tuple(plan),
        changes=True,
    )


@family("shopping", train=False)
def cheapest_of_kind(draw: Draw) -> Draft:
    kind = draw.pinned.get("kind") or draw.choice(
        [r[0] for r in draw.rows("shopping", "SELECT DISTINCT kind FROM product")]
    )
    found = draw.rows(
        "shopping",
        "SELECT * FROM product WHERE id IN (SELECT rowid FROM product_search WHERE product_search MATCH ?)"
        " ORDER BY price_cents",
        " ".join(f'"{word}"*' for word in kind.split()),
    )
    require(len(found) > 1 and found[0]["kind"] == kind and found[0]["price_cents"] < found[1]["price_cents"])
    plan = [search(kind.lower()), select("Sort by", "Cheapest"), click(found[0]["name"]), stop()]
    return Draft(
        "Open the page of the cheapest {{kind}}.",
        {"kind": kind.lower()},
        (HOME,),
        ends_on(url_of(found[0])),
        tuple(plan),
    )


@family("shopping", train=False)
def weight_of_product(draw: Draw) -> Draft:
    item = product(draw, "product", "1")
    weight = str(item["weight_g"])
    plan = [*open_product(item["name"]), read(f"{weight} g"), stop(weight)]
    return Draft(
        "How many grams does the {{product}} weigh?", {"product": item["name"]}, (HOME,), answer(weight), tuple(plan)
    )


@family("shopping", train=False)
def change_address(draw: Draw) -> Draft:
    street = (
        draw.pinned.get("street") or f"{draw.choice(('Birkenweg', 'Seestrasse', 'Am Markt'))} {draw.rng.randint(2, 60)}"
    )
    postcode = draw.pinned.get("postcode") or str(draw.rng.randint(10200, 13900))
    home = draw.one("shopping", "SELECT * FROM customer WHERE id = 1")
    plan = [
        click("My Account"),
        click("Edit Address"),
        type_in("Street", street),
        type_in("Postcode", postcode),
        click("Save Address"),
        stop(),
    ]
    target = page_holds(
        "__SHOPPING__/customer/account/",
        ".panel .address",
        exact_match=f"{street}, {postcode} {home['city']}, {home['country']}",
    )
    return Draft(
        "I have moved: change my street to {{street}} and my postcode to {{postcode}}.",
        {"street": street, "postcode": postcode},
        (HOME,),
        pages(target),
        tuple(plan),
        changes=True,
    )


@family("shopping", train=False)
def swap_wish(draw: Draw) -> Draft:
    wishes = draw.rows(
        "shopping", "SELECT p.* FROM wishlist_item w JOIN product p ON p.id = w.product_id ORDER BY w.id"
    )
    kinds = [w["kind"] for w in wishes]
    require(len(wishes) >= 2)
    out = draw.choice([w for w in wishes if kinds.count(w["kind"]) == 1])
    stays = next(w for w in wishes if w["id"] != out["id"])
    item = product(draw, "product", f"{PLAIN} AND kind NOT IN ({', '.join('?' * len(kinds))})", *kinds)
    plan = [
        click("My Account"),
        click("My Wish List"),
        click(f"Remove {out['name']}"),
        *open_product(item["name"]),
        click("Add to Wish List"),
        stop(),
    ]
    url = "__SHOPPING__/wishlist/"
    return Draft(
        "Take the {{old}} off my wish list and put the {{product}} on it instead.",
        {"old": out["kind"].lower(), "product": item["name"]},
        (HOME,),
        pages(
            page_holds(url, ".wishlist", must_include=[item["name"], stays["name"]]),
            page_holds(url, ".wishlist", must_exclude=[out["name"]]),
        ),
        tuple(plan),
        changes=True,
    )


@family("shopping", train=False)
def longer_warranty(draw: Draw) -> Draft:
    groups = draw.rows(
        "shopping",
        "SELECT brand, variant, kind, MIN(id) AS first, MAX(id) AS second FROM product GROUP BY brand, variant, kind"
        " HAVING COUNT(*) = 2 AND MIN(warranty_years) != MAX(warranty_years)",
    )
    sort = draw.pinned.get("sort")
    group = draw.choice(
        [g for g in groups if sort is None or sort == f"{g['brand']} {g['variant']} {g['kind']}".lower()]
    )
    words = f"{group['brand']} {group['variant']} {group['kind']}"
    both = draw.rows("shopping", "SELECT * FROM product WHERE id IN (?, ?)", group["first"], group["second"])
    longer, shorter = sorted(both, key=lambda p: -p["warranty_years"])
    plan = [
        search(words),
        click(both[0]["name"]),
        read("Warranty:"),
        act("go_back"),
        click(both[1]["name"]),
        read("Warranty:"),
        stop(longer["colour"], uses=True),
    ]
    return Draft(
        "There are two products called {{words}}. Which comes with the longer warranty? Answer with its colour.",
        {"words": words},
        (HOME,),
        answer(longer["colour"], exclude=[shorter["colour"]]),
        tuple(plan),
    )


@family("shopping", train=False)
def collection_fee(draw: Draw) -> Draft:
    what = draw.pinned.get("product") or draw.choice(("tent", "chair"))
    plan = [expand("Footer"), click("Shipping and returns"), read("the collection fee is $9"), stop("$9")]
    return Draft(
        "How much is the fee when a {{product}} that I return is collected at my door?",
        {"product": what},
        (HOME,),
        answer("9", exclude=["45"]),
        tuple(plan),
    )


@family("shopping", train=False)
def sum_of_two(draw: Draw) -> Draft:
    a = product(draw, "a", "1")
    b = product(draw, "b", "kind != ?", a["kind"])
    total = a["price_cents"] + b["price_cents"]
    plan = [
        search(a["name"]),
        read(f"{money(a['price_cents'])}"),
        search(b["name"]),
        read(f"{money(b['price_cents'])}"),
        stop(money(total), uses=True),
    ]
    return Draft(
        "What do one {{a}} and one {{b}} cost together?",
        {"a": a["name"], "b": b["name"]},
        (HOME,),
        number(f"{total / 100:g}"),
        tuple(plan),
    )


@family("shopping", train=False)
def size_by_guide(draw: Draw) -> Draft:
    item = product(draw, "product", "stock >= 4 AND sizes = 'S,M,L' AND colours = ''")
    chest = draw.pinned.get("chest") or draw.rng.randint(86, 112)
    size = "S" if chest <= 94 else "M" if chest <= 102 else "L"
    plan = [
        *open_product(item["name"]),
        click("Size guide"),
        act("close_tab"),
        select("Size", size, uses=True),
        click("Add to Cart"),
        stop(),
    ]
    return Draft(
        "Put a {{product}} into the cart, in the size for a chest of {{chest}} cm according to the size guide.",
        {"product": item["name"], "chest": str(chest)},
        (HOME,),
        pages(in_cart(item["name"], f"size {size}")),
        tuple(plan),
        changes=True,
    )
