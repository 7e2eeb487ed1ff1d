"""What the shop's families share: products and orders drawn from its database, and ways through its pages."""

from __future__ import annotations

import sqlite3
from datetime import date
from typing import Any

from agentkv_envs.sites.web import money
from agentkv_envs.tasks.draft import Draw, Step, click, page_holds, read, require, select, type_in

HOME = "__SHOPPING__/"
LATEST = "func:shopping_get_latest_order_url()"
# In stock and without colours or sizes to choose from.
PLAIN = "stock >= 4 AND sizes = '' AND colours = ''"
# What placing an order changes.
ORDER = ("orders", "order_item", "product.stock", "cart", "cart_item", "coupon.used")
Row = sqlite3.Row


def product(draw: Draw, key: str, where: str = PLAIN, *args: object) -> Row:
    """The pinned product of this key, else any for which `where` holds."""
    if key in draw.pinned:
        return draw.one("shopping", "SELECT * FROM product WHERE name = ?", draw.pinned[key])
    return draw.one("shopping", f"SELECT * FROM product WHERE {where}", *args)


def pair(draw: Draw, condition: str) -> tuple[Row, Row]:
    """Two products of one brand, kind and variant in different colours, the only two of their sort.

    `condition` relates a and b, as in "a.weight_g > b.weight_g".
    """
    found = draw.one(
        "shopping",
        "SELECT a.id AS first, b.id AS second FROM product a JOIN product b ON a.brand = b.brand AND a.kind = b.kind"
        " AND a.variant = b.variant AND a.id != b.id WHERE a.stock >= 3 AND b.stock >= 3 AND a.sizes = ''"
        " AND a.colours = '' AND b.colours = ''"
        " AND (SELECT COUNT(*) FROM product c WHERE c.brand = a.brand AND c.kind = a.kind AND c.variant = a.variant)"
        " = 2"
        f" AND {condition}",
    )
    both = [draw.rows("shopping", "SELECT * FROM product WHERE id = ?", found[k])[0] for k in ("first", "second")]
    return both[0], both[1]


def search(text: str) -> Step:
    return type_in("Search", text, enter=True)


def open_product(name: str) -> list[Step]:
    """Search for a product by its name and open its page."""
    return [search(name), click(name)]


def to_checkout(name: str) -> list[Step]:
    """Put a product into the cart and go to the checkout: 5 actions."""
    return [*open_product(name), click("Add to Cart"), click("shopping cart"), click("Proceed to Checkout")]


def orders() -> list[Step]:
    return [click("My Account"), click("My Orders")]


def order_label(row: Row) -> str:
    return f"Order {row['number']}"


def spoken(iso: str) -> str:
    """2026-02-18 as February 18."""
    day = date.fromisoformat(iso)
    return f"{day:%B} {day.day}"


def ordered(name: str, **facts: Any) -> list[dict[str, Any]]:
    """Targets for the newest order: it holds the product, and each of these facts of the order."""
    targets = [page_holds(LATEST, ".order-items", must_include=[name])]
    if (code := facts.pop("code", None)) is not None:
        targets.append(page_holds(LATEST, ".order-facts .discount", must_include=[f"({code})"]))
    for css, value in facts.items():
        targets.append(page_holds(LATEST, f".order-facts .{css.replace('_', '-')}", exact_match=value))
    return targets


def only(*tables: str) -> dict[str, Any]:
    """eval_ext: nothing of the shop changes but these tables and columns."""
    return {"db_state": {"unchanged": {"shopping": list(tables)}}}


def in_cart(*words: str) -> dict[str, Any]:
    """Target: the cart holds all of these."""
    return page_holds("__SHOPPING__/checkout/cart/", "#cart .cart.items", must_include=list(words))


def url_of(row: Row) -> str:
    return f"__SHOPPING__/{row['slug']}.html"


def shipping_option(draw: Draw, name: str) -> str:
    """The label of a shipping method in the checkout."""
    from agentkv_envs.sites.shopping.history import SHIPPING

    fee = dict(SHIPPING).get(name)
    require(fee is not None)
    return f"{name} {money(fee or 0)}"


def ship_by(draw: Draw, name: str) -> Step:
    return select("Shipping", shipping_option(draw, name))


def deal(draw: Draw) -> Row:
    """The pinned deal, else any of the Deals page."""
    if "deal" in draw.pinned:
        return draw.one("shopping", "SELECT * FROM coupon WHERE label = ?", draw.pinned["deal"])
    return draw.one("shopping", "SELECT * FROM coupon WHERE listed AND category_id IS NULL AND percent AND ends = ''")


def see_deal(row: Row) -> list[Step]:
    return [click("Deals"), read(f"code {row['code']}")]
