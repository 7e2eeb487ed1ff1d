"""The customer of an episode and what happened before it: addresses, orders, a return, messages."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentkv_envs.sites.shopping.catalogue import Product, Variant
from agentkv_envs.sites.shopping.vocabulary import VOCABULARIES

SHIPPING = (("Standard", 500), ("Express", 1200), ("Pickup", 0))
COUNTRIES = ("Germany", "France", "Italy", "Spain", "Austria")


@dataclass(frozen=True)
class Past:
    """A past order; `kin` when it went to a relative, `items` as (product id, quantity), drawn where empty."""

    created: str
    status: str
    shipping: str
    kin: bool = False
    items: tuple[tuple[int, int], ...] = ()


# Orders by id from 1. Ids of the first five do not follow their dates: tasks name them.
_PAST = (
    Past("2026-03-02", "Processing", "Express", items=((13, 1), (150, 2))),
    Past("2026-02-18", "Shipped", "Standard", items=((57, 1),)),
    Past("2026-01-27", "Complete", "Standard", kin=True, items=((216, 1), (203, 1), (39, 2))),
    Past("2025-12-11", "Complete", "Pickup", items=((89, 4),)),
    Past("2025-11-03", "Canceled", "Standard", items=((167, 1),)),
    Past("2026-02-25", "Complete", "Express"),
    Past("2026-02-09", "Complete", "Standard", kin=True),
    Past("2025-10-19", "Complete", "Standard"),
    Past("2025-09-05", "Complete", "Pickup"),
    Past("2025-08-14", "Canceled", "Express", kin=True),
)


def insert_history(
    db: sqlite3.Connection,
    split: str,
    rng: random.Random,
    known: Mapping[str, str],
    products: Sequence[Product],
    variants: Sequence[Variant],
) -> None:
    """Fill the tables about the customer; `variants` stand in the order of their ids."""
    home = _insert_customer(db, split, rng, known)
    _insert_orders(db, split, rng, known, products, variants, home)
    returned = db.execute("SELECT MIN(id) FROM order_item WHERE order_id = 8").fetchone()[0]
    db.execute(
        "INSERT INTO item_return (number, order_item_id, reason, resolution, status, created)"
        " VALUES (?, ?, 'Arrived broken', 'Refund', 'Refunded', '2025-10-30')",
        (known["RETURN_1"], returned),
    )
    _insert_inbox(db, known)
    liked = (31, 192) if split == "test" else sorted(rng.sample(range(1, len(products)), 2))
    db.executemany("INSERT INTO wishlist_item (product_id) VALUES (?)", [(product_id,) for product_id in liked])


def _insert_customer(db: sqlite3.Connection, split: str, rng: random.Random, known: Mapping[str, str]) -> str:
    """The customer and the address book; returns the default address as orders show it."""
    words = VOCABULARIES[split]
    places = list(zip(words.streets, words.towns, strict=False))
    if split != "test":
        rng.shuffle(places)
    (street, (city, postcode)), (office, (town, code)), (third, (village, zone)) = places[:3]
    first, last, kin = known["FIRSTNAME"], known["LASTNAME"], known["KIN"]
    db.execute(
        "INSERT INTO customer (id, email, password, firstname, lastname, street, city, postcode, country, telephone,"
        " points, reward_code) VALUES (1, ?, ?, ?, ?, ?, ?, ?, 'Germany', ?, 420, ?)",
        (
            *(known["EMAIL"], known["PASSWORD"], first, last, street, city, postcode),
            *(known["PHONE"], known["REWARD_CODE"]),
        ),
    )
    db.execute("INSERT INTO cart (id) VALUES (1)")
    db.executemany(
        "INSERT INTO address (label, firstname, lastname, street, city, postcode, country, telephone)"
        " VALUES (?, ?, ?, ?, ?, ?, 'Germany', ?)",
        [
            ("Office", first, last, office, town, code, f"040-{rng.randint(10000, 99999)}"),
            (kin, kin, last, third, village, zone, f"0561-{rng.randint(1000, 9999)}"),
        ],
    )
    return f"{street}, {postcode} {city}, Germany"


def _insert_orders(
    db: sqlite3.Connection,
    split: str,
    rng: random.Random,
    known: Mapping[str, str],
    products: Sequence[Product],
    variants: Sequence[Variant],
    home: str,
) -> None:
    options: dict[int, list[int]] = {}
    for number, variant in enumerate(variants, 1):
        options.setdefault(variant.product_id, []).append(number)
    for order_id, past in enumerate(_PAST, 1):
        fixed = past.items if split == "test" else ()
        items = [(product, qty, 1.0) for product, qty in fixed] or _draw_items(rng, len(products))
        lines = []
        for product_id, qty, factor in items:
            numbers = options.get(product_id, []) if not fixed else []
            variant_id = rng.choice(numbers) if numbers else None
            chosen = variants[variant_id - 1] if variant_id else None
            price = round((chosen or products[product_id - 1]).price_cents * factor / 50) * 50
            size = ", ".join(filter(None, (chosen.colour, chosen.size))) if chosen else ""
            lines.append((order_id, product_id, variant_id, size, qty, price))
        _insert_order(db, order_id, past, known, home, sum(line[4] * line[5] for line in lines))
        db.executemany(
            "INSERT INTO order_item (order_id, product_id, variant_id, size, qty, price_cents)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            lines,
        )


def _draw_items(rng: random.Random, number: int) -> list[tuple[int, int, float]]:
    """One to three products, how many of each, and what they cost then as a share of today's price."""
    chosen = rng.sample(range(1, number + 1), rng.randint(1, 3))
    return [(product, rng.choice((1, 1, 2, 3)), rng.choice((0.9, 1.0, 1.1))) for product in chosen]


def _insert_order(
    db: sqlite3.Connection, order_id: int, past: Past, known: Mapping[str, str], home: str, subtotal: int
) -> None:
    fee = dict(SHIPPING)[past.shipping]
    tracking = known[f"TRACKING_{order_id}"] if past.status in ("Shipped", "Complete") else ""
    name = known["KIN" if past.kin else "FIRSTNAME"]
    db.execute(
        "INSERT INTO orders (id, number, created, status, shipping, shipping_cents, discount_cents, total_cents,"
        " recipient, address, telephone, tracking) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?)",
        (
            *(order_id, known[f"ORDER_{order_id}"], past.created, past.status, past.shipping, fee, subtotal + fee),
            *(f"{name} {known['LASTNAME']}", home, known["PHONE"], tracking),
        ),
    )


def _insert_inbox(db: sqlite3.Connection, known: Mapping[str, str]) -> None:
    rows = (
        (
            "Parcel desk",
            f"Locker for order {known['ORDER_2']}",
            f"Your parcel waits in locker {known['LOCKER']} until 21 March. The code is {known['LOCKER_CODE']}.",
            *("2026-03-12", 1),
        ),
        (
            "Offers",
            "For the office, until tomorrow",
            f"30% off the Office items of one order with the code {known['MAIL_CODE']}. It ends on 15 March.",
            *("2026-03-11", 1),
        ),
        (
            "Service desk",
            "Collection of your chair",
            f"{known['AGENT']} collects the chair on {known['COLLECTION_DAY']}, {known['COLLECTION_HOURS']} o'clock.",
            *("2026-03-09", 0),
        ),
    )
    db.executemany("INSERT INTO inbox (sender, subject, body, received, once) VALUES (?, ?, ?, ?, ?)", rows)
