"""Families of the shop, for tests and for training."""

from __future__ import annotations

from agentkv_envs.sites.web import money
from agentkv_envs.tasks.draft import (
    Draft,
    Draw,
    Needle,
    answer,
    click,
    ends_on,
    expand,
    family,
    page_holds,
    pages,
    read,
    require,
    select,
    stop,
    type_in,
    unachievable,
)
from agentkv_envs.tasks.families.shop_parts import (
    HOME,
    PLAIN,
    Row,
    deal,
    in_cart,
    open_product,
    order_label,
    ordered,
    orders,
    pair,
    product,
    search,
    see_deal,
    ship_by,
    spoken,
    to_checkout,
    url_of,
)

_WISHES = "__SHOPPING__/wishlist/"


@family("shopping")
def read_spec(draw: Draw) -> Draft:
    item = product(draw, "product", "1")
    what, shown, value = draw.choice(
        (
            ("material", f"Material: {item['material']}", item["material"]),
            ("SKU", f"SKU: {item['sku']}", item["sku"]),
            ("price", money(item["price_cents"]), money(item["price_cents"])),
        )
    )
    template = draw.choice(
        (
            "What is the {{what}} of the {{product}}?",
            "Tell me the {{what}} of the {{product}}.",
            "I need the {{what}} of the {{product}} in the shop.",
        )
    )
    plan = [*open_product(item["name"]), read(shown), stop(value)]
    return Draft(template, {"what": what, "product": item["name"]}, (HOME,), answer(value), tuple(plan))


@family("shopping")
def wish_for(draw: Draw) -> Draft:
    item = product(draw, "product", "1")
    template = draw.choice(
        (
            "Put the {{product}} on my wish list.",
            "Add the {{product}} to the wish list.",
            "I would like to have the {{product}} one day: note it on my wish list.",
            "Add the {{product}} to my wish list. Answer N/A when that cannot be done.",
        )
    )
    plan = [*open_product(item["name"]), click("Add to Wish List"), stop()]
    target = page_holds(_WISHES, ".wishlist", must_include=[item["name"]])
    return Draft(template, {"product": item["name"]}, (HOME,), pages(target), tuple(plan), changes=True)


@family("shopping")
def several_into_cart(draw: Draw) -> Draft:
    item = product(draw, "product")
    count = draw.rng.randint(2, 4)
    template = draw.choice(
        (
            "Put {{count}} of the {{product}} into the cart.",
            "Add {{count}} pieces of the {{product}} to my cart.",
            "I need {{count}} times the {{product}}; put them into the cart. If that is impossible, answer N/A.",
        )
    )
    plan = [*open_product(item["name"]), type_in("Qty", str(count)), click("Add to Cart"), stop()]
    quantity = {
        "url": "__SHOPPING__/checkout/cart/",
        "locator": "document.querySelector('#cart input[name^=\"qty-\"]').value",
        "required_contents": {"exact_match": str(count)},
    }
    values = {"count": str(count), "product": item["name"]}
    return Draft(template, values, (HOME,), pages(in_cart(item["name"]), quantity), tuple(plan), changes=True)


@family("shopping")
def dearest_of_kind(draw: Draw) -> Draft:
    kind = draw.choice([row[0] for row in draw.rows("shopping", "SELECT DISTINCT kind FROM product")])
    found = draw.rows(
        "shopping",
        "SELECT * FROM product WHERE id IN (SELECT rowid FROM product_search WHERE product_search MATCH ?)"
        " ORDER BY price_cents DESC",
        " ".join(f'"{word}"*' for word in kind.split()),
    )
    require(len(found) > 1 and found[0]["kind"] == kind and found[0]["price_cents"] > found[1]["price_cents"])
    template = draw.choice(
        (
            "Open the page of the dearest {{kind}}.",
            "Which {{kind}} costs the most? Go to its page.",
            "Show me the most expensive {{kind}} of the shop.",
        )
    )
    plan = [search(kind.lower()), select("Sort by", "Dearest"), click(found[0]["name"]), stop()]
    return Draft(template, {"kind": kind.lower()}, (HOME,), ends_on(url_of(found[0])), tuple(plan))


@family("shopping")
def order_one(draw: Draw) -> Draft:
    item = product(draw, "product")
    method = draw.choice(("Standard", "Express", "Pickup"))
    template = draw.choice(
        (
            "Order one {{product}}, shipping {{method}}.",
            "Buy one {{product}}. Choose {{method}} at the checkout.",
            "Please order the {{product}} for me with {{method}}.",
        )
    )
    plan = [*to_checkout(item["name"]), ship_by(draw, method), click("Place Order"), stop()]
    return Draft(
        template,
        {"product": item["name"], "method": method},
        (HOME,),
        pages(*ordered(item["name"], shipping_method=method)),
        tuple(plan),
        changes=True,
    )


@family("shopping")
def two_into_cart(draw: Draw) -> Draft:
    a = product(draw, "a")
    b = product(draw, "b", "stock >= 4 AND sizes = '' AND colours = '' AND kind != ?", a["kind"])
    template = draw.choice(
        (
            "Put the {{a}} and the {{b}} into the cart.",
            "I want both the {{a}} and the {{b}}: add them to the cart.",
        )
    )
    plan = [*open_product(a["name"]), click("Add to Cart"), *open_product(b["name"]), click("Add to Cart"), stop()]
    values = {"a": a["name"], "b": b["name"]}
    return Draft(template, values, (HOME,), pages(in_cart(a["name"], b["name"])), tuple(plan), changes=True)


@family("shopping")
def not_sold(draw: Draw) -> Draft:
    item = product(draw, "product", "1")
    held = {r[0] for r in draw.rows("shopping", "SELECT name FROM product")}
    colours = sorted({r[0] for r in draw.rows("shopping", "SELECT DISTINCT colour FROM product")})
    names = [f"{item['brand']} {c} {item['variant']} {item['kind']}" for c in colours]
    wanted = draw.choice([name for name in names if name not in held])
    near = draw.rows(
        "shopping",
        "SELECT 1 FROM product_search WHERE product_search MATCH ?",
        " ".join(f'"{word}"*' for word in wanted.replace("-", " ").split()),
    )
    require(not near)
    template = draw.choice(
        (
            "Put the {{product}} into the cart. If the shop does not sell it, answer N/A.",
            "Order one {{product}}; answer N/A if there is none in the shop.",
            "Add the {{product}} to my wish list. Answer N/A when that cannot be done.",
        )
    )
    plan = [search(wanted), search(f"{item['variant']} {item['kind']}"), stop("N/A")]
    return Draft(
        template,
        {"product": wanted},
        (HOME,),
        unachievable(),
        tuple(plan),
        why_not=f"The shop sells no {wanted}.",
    )


@family("shopping")
def tracking_in_note(draw: Draw) -> Draft:
    order = draw.one("shopping", "SELECT * FROM orders WHERE tracking != ''")
    item = product(draw, "product")
    template = draw.choice(
        (
            "Look up the tracking number of my order of {{date}}. Then order one {{product}} and write that number,"
            " and nothing else, as its gift note.",
            "Order one {{product}}. Its gift note must be the tracking number of my order of {{date}};"
            " look that up first.",
        )
    )
    plan = [
        *orders(),
        click(order_label(order)),
        read(order["tracking"]),
        *to_checkout(item["name"]),
        type_in("Gift note", order["tracking"], uses=True),
        click("Place Order"),
        stop(),
    ]
    note = f"the tracking number of the order of {spoken(order['created'])} is {order['tracking']}."
    return Draft(
        template,
        {"date": spoken(order["created"]), "product": item["name"]},
        (HOME,),
        pages(*ordered(item["name"], gift_note=order["tracking"])),
        tuple(plan),
        Needle("code", order["tracking"], note, "shopping", "/checkout/"),
        changes=True,
    )


@family("shopping")
def deal_for_two(draw: Draw) -> Draft:
    offer, a = deal(draw), product(draw, "a")
    b = product(draw, "b", "stock >= 4 AND sizes = '' AND colours = '' AND kind != ?", a["kind"])
    template = draw.choice(
        (
            "Note the {{deal}} code on the Deals page, then order one {{a}} and one {{b}} with it.",
            "Order one {{a}} together with one {{b}}, using the code of the deal {{deal}}. See the Deals page first.",
        )
    )
    plan = [
        *see_deal(offer),
        *open_product(a["name"]),
        click("Add to Cart"),
        *to_checkout(b["name"]),
        type_in("Discount code", offer["code"], enter=True, uses=True),
        click("Place Order"),
        stop(),
    ]
    return Draft(
        template,
        {"deal": offer["label"], "a": a["name"], "b": b["name"]},
        (HOME,),
        pages(*ordered(a["name"], code=offer["code"]), *ordered(b["name"])),
        tuple(plan),
        Needle("code", offer["code"], f"the {offer['label']} code is {offer['code']}.", "shopping", "/checkout/"),
        changes=True,
    )


@family("shopping")
def lighter_of_two(draw: Draw) -> Draft:
    light, heavy = pair(draw, "a.weight_g < b.weight_g")
    c, d = _others(draw, light["kind"])
    first, second = draw.rng.sample([light, heavy], 2)
    template = draw.choice(
        (
            "Compare the weights of the {{first}} and the {{second}} on their pages. Then put the {{c}} and the {{d}}"
            " on my wish list, and last put the lighter of the two into the cart.",
            "Find out which is lighter, the {{first}} or the {{second}}. Before you add that one to the cart, put the"
            " {{c}} and the {{d}} on my wish list.",
        )
    )
    plan = [
        *open_product(first["name"]),
        read(f"Weight: {first['weight_g']} g"),
        *open_product(second["name"]),
        read(f"Weight: {second['weight_g']} g"),
        *open_product(c["name"]),
        click("Add to Wish List"),
        *open_product(d["name"]),
        click("Add to Wish List"),
        type_in("Search", light["name"], enter=True, uses=True),
        click(light["name"]),
        click("Add to Cart"),
        stop(),
    ]
    return Draft(
        template,
        {"first": first["name"], "second": second["name"], "c": c["name"], "d": d["name"]},
        (HOME,),
        pages(
            in_cart(light["name"]),
            page_holds("__SHOPPING__/checkout/cart/", "#cart .cart.items", must_exclude=[heavy["name"]]),
            page_holds(_WISHES, ".wishlist", must_include=[c["name"], d["name"]]),
        ),
        tuple(plan),
        Needle(
            "relation",
            f"Weight: {second['weight_g']} g",
            f"the {light['name']} is lighter than the {heavy['name']}.",
            "shopping",
            f"/{d['slug']}.html",
        ),
        changes=True,
    )


def _others(draw: Draw, kind: str) -> list[Row]:
    """Two products of other kinds, to be busy with in between."""
    found = draw.some(
        "shopping",
        2,
        "SELECT * FROM product WHERE kind != ? AND stock >= 4 AND sizes = '' AND colours = '' AND colours = ''",
        kind,
    )
    require(found[0]["kind"] != found[1]["kind"])
    return found


@family("shopping")
def warranty_by_message(draw: Draw) -> Draft:
    item = product(draw, "product", "warranty_years > 1")
    c, d = _others(draw, item["kind"])
    years = f"{item['warranty_years']} years"
    template = draw.choice(
        (
            "See how long the warranty of the {{product}} is. Put the {{c}} and the {{d}} on my wish list. Then send"
            " the service desk a message (name Emma, topic Other) that holds nothing but that warranty.",
            "I need the warranty of the {{product}}, but first add the {{c}} and the {{d}} to my wish list. When you"
            " have seen it and done that, contact the shop as Emma, topic Other; the message is just the warranty.",
        )
    )
    plan = [
        *open_product(item["name"]),
        read(f"Warranty: {years}"),
        *open_product(c["name"]),
        click("Add to Wish List"),
        *open_product(d["name"]),
        click("Add to Wish List"),
        expand("Footer"),
        click("Contact"),
        type_in("Name", "Emma"),
        select("Topic", "Other"),
        type_in("Message", years, uses=True),
        click("Send Message"),
        stop(),
    ]
    state = {"site": "shopping", "sql": "SELECT name, topic, body FROM message", "expect": [["Emma", "Other", years]]}
    return Draft(
        template,
        {"product": item["name"], "c": c["name"], "d": d["name"]},
        (HOME,),
        pages(page_holds(_WISHES, ".wishlist", must_include=[c["name"], d["name"]])),
        tuple(plan),
        Needle(
            "attribute", f"Warranty: {years}", f"the {item['name']} has a warranty of {years}.", "shopping", "/contact/"
        ),
        changes=True,
        eval_ext={"db_state": {"rows": [state]}},
    )


@family("shopping")
def better_rated(draw: Draw) -> Draft:
    a, b = pair(draw, "a.price_cents != b.price_cents")
    rate = "SELECT ROUND(AVG(rating), 1) FROM review WHERE product_id = ?"
    both = sorted((a, b), key=lambda p: -draw.value("shopping", rate, p["id"]))
    best, other = both
    scores = [draw.value("shopping", rate, p["id"]) for p in both]
    require(scores[0] > scores[1])
    c, d = _others(draw, a["kind"])
    e = product(draw, "e", f"{PLAIN} AND kind NOT IN (?, ?, ?)", a["kind"], c["kind"], d["kind"])
    words = f"{a['brand']} {a['variant']} {a['kind']}"
    template = draw.choice(
        (
            "Of the two products called {{words}}, one is rated better. Look that up. Then put the {{c}}, the {{d}} and"
            " the {{e}} into the cart, and last put the better rated one on my wish list.",
            "Search for {{words}} and see which of the two is rated better. Order nothing yet: put the {{c}}, the {{d}}"
            " and the {{e}} into the cart, and after that the better rated one on the wish list.",
        )
    )
    plan = [
        search(words),
        read(f"rated {scores[0]}"),
        read(f"rated {scores[1]}"),
        *open_product(c["name"]),
        click("Add to Cart"),
        *open_product(d["name"]),
        click("Add to Cart"),
        *open_product(e["name"]),
        click("Add to Cart"),
        type_in("Search", best["name"], enter=True, uses=True),
        click(best["name"]),
        click("Add to Wish List"),
        stop(),
    ]
    return Draft(
        template,
        {"words": words, "c": c["name"], "d": d["name"], "e": e["name"]},
        (HOME,),
        pages(
            in_cart(c["name"], d["name"], e["name"]),
            page_holds(_WISHES, ".wishlist", must_include=[best["name"]]),
            page_holds(_WISHES, ".wishlist", must_exclude=[other["name"]]),
        ),
        tuple(plan),
        Needle(
            "relation",
            f'"{best["name"]}"',
            f"the {best['name']} is rated better than the {other['name']}.",
            "shopping",
            f"/{e['slug']}.html",
        ),
        changes=True,
    )
