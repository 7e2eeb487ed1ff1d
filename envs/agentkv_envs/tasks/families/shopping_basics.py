"""Short tasks of the shop."""

from __future__ import annotations

from agentkv_envs.sites.web import money
from agentkv_envs.tasks.draft import (
    Draft,
    Draw,
    answer,
    click,
    ends_on,
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
    in_cart,
    open_product,
    ordered,
    product,
    search,
    ship_by,
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
