"""Tasks of the shop in which a fact is found and needed later."""

from __future__ import annotations

from agentkv_envs.tasks.draft import (
    Draft,
    Draw,
    Needle,
    click,
    expand,
    family,
    page_holds,
    pages,
    read,
    require,
    select,
    side_by_side,
    stop,
    type_in,
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
    spoken,
    to_checkout,
)

_WISHES = "__SHOPPING__/wishlist/"


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
            side_by_side(*((item["name"], f"{item['weight_g']} g") for item in (first, second))),
        ),
        changes=True,
    )


def _others(draw: Draw, kind: str, where: str = "1", *args: object) -> list[Row]:
    """Two products of other kinds, to be busy with in between."""
    found = draw.some("shopping", 2, f"SELECT * FROM product WHERE {PLAIN} AND kind != ? AND {where}", kind, *args)
    require(found[0]["kind"] != found[1]["kind"])
    return found


@family("shopping")
def warranty_by_message(draw: Draw) -> Draft:
    item = product(draw, "product", "warranty_years > 1")
    c, d = _others(draw, item["kind"], "warranty_years != ?", item["warranty_years"])
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
    rated = {item["name"]: draw.value("shopping", rate, item["id"]) for item in (a, b)}
    best, other = sorted((a, b), key=lambda item: -rated[item["name"]])
    require(rated[best["name"]] > rated[other["name"]])
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
        read(f"rated {rated[best['name']]}"),
        read(f"rated {rated[other['name']]}"),
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
            side_by_side(*rated.items()),
        ),
        changes=True,
    )
