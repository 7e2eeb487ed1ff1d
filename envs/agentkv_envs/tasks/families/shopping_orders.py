"""The first tasks of the shop: orders. None of these families is trained on."""

from __future__ import annotations

from agentkv_envs.tasks.draft import (
    Draft,
    Draw,
    Needle,
    act,
    answer,
    click,
    family,
    page_holds,
    pages,
    read,
    select,
    stop,
    type_in,
)
from agentkv_envs.tasks.families.shop_parts import (
    HOME,
    deal,
    open_product,
    order_label,
    ordered,
    orders,
    product,
    see_deal,
    ship_by,
    spoken,
    to_checkout,
)


@family("shopping", train=False)
def tracking_number(draw: Draw) -> Draft:
    where = "created = ?" if "date" in draw.pinned else "tracking != '' AND ? = ''"
    order = draw.one("shopping", f"SELECT * FROM orders WHERE {where}", draw.pinned.get("date", ""))
    plan = [*orders(), click(order_label(order)), read(order["tracking"]), stop(order["tracking"])]
    return Draft(
        "What is the tracking number of my order from {{date}}?",
        {"date": spoken(order["created"])},
        (HOME,),
        answer(order["tracking"]),
        tuple(plan),
    )


@family("shopping", train=False)
def deal_order(draw: Draw) -> Draft:
    item, offer = product(draw, "product"), deal(draw)
    end = [
        type_in("Discount code", offer["code"], enter=True, uses=True),
        ship_by(draw, "Pickup"),
        click("Place Order"),
        stop(),
    ]
    plan = [*see_deal(offer), *to_checkout(item["name"]), *end]
    # The code may also be looked up when the cart is full; then it is needed sooner.
    later = [
        *open_product(item["name"]),
        click("Add to Cart"),
        *see_deal(offer),
        click("Cart (1)"),
        click("Proceed to Checkout"),
        *end,
    ]
    return Draft(
        "Order one {{product}} with the {{deal}} code from the Deals page. Choose Pickup.",
        {"product": item["name"], "deal": offer["label"]},
        (HOME,),
        pages(*ordered(item["name"], code=offer["code"], shipping_method="Pickup")),
        tuple(plan),
        Needle("code", offer["code"], f"the {offer['label']} code is {offer['code']}.", "shopping", "/checkout/"),
        changes=True,
        alternatives=(tuple(later),),
    )


@family("shopping", train=False)
def reward_order(draw: Draw) -> Draft:
    item = product(draw, "product")
    code = draw.value("shopping", "SELECT reward_code FROM customer WHERE id = 1")
    plan = [
        click("My Account"),
        click("Rewards"),
        click("Reveal Code"),
        *open_product(item["name"]),
        type_in("Qty", "2"),
        click("Add to Cart"),
        click("shopping cart"),
        click("Proceed to Checkout"),
        type_in("Discount code", code, enter=True, uses=True),
        click("Place Order"),
        stop(),
    ]
    quantity = {
        "url": "last",
        "locator": f"func:shopping_get_order_product_quantity(__page__, '{item['sku']}')",
        "required_contents": {"exact_match": "2"},
    }
    return Draft(
        "Reveal my reward code, then order 2 of the {{product}} with it. Keep the other details as they are.",
        {"product": item["name"]},
        (HOME,),
        pages(*ordered(item["name"], code=code), quantity),
        tuple(plan),
        Needle("code", code, f"your reward code is {code}.", "shopping", "/checkout/"),
        changes=True,
    )


@family("shopping", train=False)
def review_from_order(draw: Draw) -> Draft:
    where = "created = ?" if "date" in draw.pinned else "status IN ('Shipped', 'Complete') AND ? = ''"
    order = draw.one("shopping", f"SELECT * FROM orders WHERE {where}", draw.pinned.get("date", ""))
    item = draw.one(
        "shopping",
        "SELECT p.* FROM order_item i JOIN product p ON p.id = i.product_id WHERE i.order_id = ?",
        order["id"],
    )
    stars = draw.pinned.get("stars") or draw.choice((2, 3, 4, 5))
    title = draw.pinned.get("title") or draw.choice(("As expected", "Does its job", "Not bad at all"))
    text = draw.pinned.get("text") or draw.choice(("I use it every day.", "It came well packed.", "It feels solid."))
    plan = [
        *orders(),
        click(order_label(order)),
        click(item["name"]),
        click("Write a review"),
        select("Rating", f"{stars} stars"),
        type_in("Nickname", "Emma"),
        type_in("Summary", title),
        type_in("Review", text),
        click("Submit Review"),
        stop(),
    ]
    targets = [
        {
            "url": "last",
            "locator": f"func:shopping_get_sku_latest_review_{column}('{item['sku']}')",
            "required_contents": {"exact_match": value},
        }
        for column, value in (("rating", str(stars * 20)), ("author", "Emma"), ("text", text))
    ]
    return Draft(
        "Write a {{stars}}-star review of the {{kind}} from my order of {{date}}."
        " Nickname: Emma. Summary: {{title}}. Review: {{text}}",
        {
            "stars": str(stars),
            "kind": item["kind"].lower(),
            "date": spoken(order["created"]),
            "title": title,
            "text": text,
        },
        (HOME,),
        pages(*targets),
        tuple(plan),
        changes=True,
    )


@family("shopping", train=False)
def thanks_order(draw: Draw) -> Draft:
    item = product(draw, "product")
    newest = draw.one("shopping", "SELECT * FROM orders ORDER BY created DESC, id DESC LIMIT 1")
    code = draw.value("shopping", "SELECT code FROM coupon WHERE label = 'Thank you'")
    plan = [
        *orders(),
        click(order_label(newest)),
        read(code),
        *to_checkout(item["name"]),
        type_in("Discount code", code, enter=True, uses=True),
        ship_by(draw, "Express"),
        click("Place Order"),
        stop(),
    ]
    return Draft(
        "My newest order shows a thank-you code. Use it to order one {{product}} by {{shipping}}.",
        {"product": item["name"], "shipping": "Express"},
        (HOME,),
        pages(*ordered(item["name"], code=code, shipping_method="Express")),
        tuple(plan),
        Needle("code", code, f"the thank-you code is {code}.", "shopping", "/checkout/"),
        changes=True,
    )


@family("shopping", train=False)
def cancel_order(draw: Draw) -> Draft:
    order = draw.one("shopping", "SELECT * FROM orders WHERE status = 'Processing'")
    plan = [*orders(), click(order_label(order)), click("Cancel Order"), act("dialog [accept]"), stop()]
    url = f"__SHOPPING__/sales/order/view/order_id/{order['id']}/"
    return Draft(
        "Cancel my order from {{date}}.",
        {"date": spoken(order["created"])},
        (HOME,),
        pages(page_holds(url, ".order-status", exact_match="Canceled")),
        tuple(plan),
        changes=True,
    )


@family("shopping", train=False)
def reorder_as_gift(draw: Draw) -> Draft:
    found = draw.rows(
        "shopping",
        "SELECT o.*, p.name, i.qty FROM orders o JOIN order_item i ON i.order_id = o.id JOIN product p ON"
        " p.id = i.product_id WHERE o.status = 'Complete' AND p.stock >= i.qty AND p.sizes = ''"
        " GROUP BY o.id HAVING COUNT(*) = 1",
    )
    order = draw.choice([o for o in found if o["created"] == draw.pinned.get("date", o["created"])])
    name = draw.pinned.get("name") or draw.choice(("Paul", "Klara", "Anton", "Marta"))
    note = draw.pinned.get("note") or draw.choice(("Happy birthday", "Get well soon", "With love"))
    plan = [
        *orders(),
        click(order_label(order)),
        click("Reorder"),
        click("Proceed to Checkout"),
        type_in("First name", name),
        type_in("Gift note", note),
        click("Place Order"),
        stop(),
    ]
    return Draft(
        "Order the same again as on {{date}}, but send it to {{name}} Fischer by Standard shipping"
        " with the gift note {{note}}.",
        {"date": spoken(order["created"]), "name": name, "note": note},
        (HOME,),
        pages(
            *ordered(order["name"], gift_note=note),
            page_holds(
                "func:shopping_get_latest_order_url()",
                ".order-facts .shipping-address",
                must_include=[f"{name} Fischer"],
            ),
            page_holds("func:shopping_get_latest_order_url()", ".order-items", must_include=[f"x {order['qty']}"]),
        ),
        tuple(plan),
        changes=True,
    )
